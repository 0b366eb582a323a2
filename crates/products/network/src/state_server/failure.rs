//! The failures of the state's server, as texts for people.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::address::{StateServer, TIMEOUT};
use anabranch::text::printable;
use anabranch::{Error, ErrorPlace};

/// The reason why the server cannot be used.
#[derive(Debug)]
pub(super) struct Failure {
    /// The text that follows the server's name in a sentence.
    pub(super) text: String,
    /// Whether a later attempt may succeed.
    passes: bool,
}

impl Failure {
    pub(super) fn lasting(text: impl Into<String>) -> Self {
        Self { text: text.into(), passes: false }
    }

    pub(super) fn passing(text: impl Into<String>) -> Self {
        Self { text: text.into(), passes: true }
    }

    /// Makes the failure of a login with a wrong name or password.
    pub(super) fn not_let_in(error: &RedisError) -> Self {
        if matches!(error.code(), Some("NOAUTH" | "DENIED")) {
            return Self::lasting(format!(
                "wants a name and a password in `state`: {}",
                printable(&error.to_string())
            ));
        }
        let said = error.to_string();
        let said = printable(&said);
        Self::lasting(format!("does not let us in, so name or password in `state` are wrong: {said}"))
    }

    /// Converts the failure to an error of the start.
    pub(super) fn error(&self, server: &StateServer) -> Error {
        let text = format!("the state {server} {}", self.text);
        let error = if self.passes { Error::unreachable(text) } else { Error::usage(text) };
        error.at(ErrorPlace::Url(server.to_string()))
    }
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        let said = error.to_string();
        let said = printable(&said);
        let kind = error.kind();
        if error.is_timeout() {
            let text = format!("does not answer within {} seconds", TIMEOUT.as_millis() / 1_000);
            return Self { text, passes: true };
        }
        match kind {
            ErrorKind::Io => Self { text: format!("does not answer: {said}"), passes: true },
            ErrorKind::AuthenticationFailed | ErrorKind::Server(ServerErrorKind::NoPerm) => {
                Self::lasting(format!("does not let us in, so name or password in `state` are wrong: {said}"))
            }
            ErrorKind::Server(
                ServerErrorKind::BusyLoading
                | ServerErrorKind::TryAgain
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ReadOnly,
            ) => Self { text: format!("is not ready: {said}"), passes: true },
            _ => match error.code() {
                Some("NOAUTH" | "WRONGPASS" | "DENIED") => {
                    Self::lasting(format!("wants a name and a password in `state`: {said}"))
                }
                Some("BUSY" | "MISCONF" | "OOM") => {
                    Self { text: format!("is not ready: {said}"), passes: true }
                }
                _ => Self::lasting(format!(
                    "cannot be used (Redis 7.0 or later, or Valkey, is needed): {said}"
                )),
            },
        }
    }
}
