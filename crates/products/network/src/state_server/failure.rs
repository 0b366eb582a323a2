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
    pub(super) passes: bool,
    /// The key whose table is too long to be read, if that is the reason.
    pub(super) too_long: Option<String>,
}

impl Failure {
    pub(super) fn lasting(text: impl Into<String>) -> Self {
        Self { text: text.into(), passes: false, too_long: None }
    }

    pub(super) fn passing(text: impl Into<String>) -> Self {
        Self { text: text.into(), passes: true, too_long: None }
    }

    /// Makes the failure of a login with a wrong name or password.
    pub(super) fn not_let_in(error: &RedisError) -> Self {
        match error.code() {
            Some("NOAUTH" | "DENIED") => Self::wants_login(error),
            _ => Self::wrong_login(error),
        }
    }

    fn wants_login(error: &RedisError) -> Self {
        Self::lasting(format!("wants a name and a password in `state`: {}", said(error)))
    }

    fn wrong_login(error: &RedisError) -> Self {
        let said = said(error);
        Self::lasting(format!("does not let us in, so name or password in `state` are wrong: {said}"))
    }

    fn not_ready(error: &RedisError) -> Self {
        Self::passing(format!("is not ready: {}", said(error)))
    }

    /// Converts the failure to an error of the start.
    pub(super) fn error(&self, server: &StateServer) -> Error {
        let text = format!("the state {server} {}", self.text);
        let error = if self.passes { Error::unreachable(text) } else { Error::usage(text) };
        error.at(ErrorPlace::Url(server.to_string()))
    }
}

/// Returns what the server or the library says, for people.
fn said(error: &RedisError) -> String {
    printable(&error.to_string()).into_owned()
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        if error.is_timeout() {
            let seconds = TIMEOUT.as_millis() / 1_000;
            return Self::passing(format!("does not answer within {seconds} seconds"));
        }
        match error.kind() {
            ErrorKind::Io => Self::passing(format!("does not answer: {}", said(&error))),
            ErrorKind::AuthenticationFailed | ErrorKind::Server(ServerErrorKind::NoPerm) => {
                Self::wrong_login(&error)
            }
            ErrorKind::Server(
                ServerErrorKind::BusyLoading
                | ServerErrorKind::TryAgain
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ReadOnly,
            ) => Self::not_ready(&error),
            _ => match error.code() {
                Some("NOAUTH" | "WRONGPASS" | "DENIED") => Self::wants_login(&error),
                Some("BUSY" | "MISCONF" | "OOM") => Self::not_ready(&error),
                _ => Self::lasting(format!(
                    "cannot be used (Redis 7.0 or later, or Valkey, is needed): {}",
                    said(&error)
                )),
            },
        }
    }
}
