//! The errors of a fetch.

use std::time::Duration;
use std::{fmt, io};

/// The reason why a client cannot start: an option cannot be followed, or the system refuses. Displays as one
/// clause for people.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StartError(pub(super) String);

impl From<io::Error> for StartError {
    fn from(e: io::Error) -> Self {
        Self(format!("the HTTP client cannot start: {e}"))
    }
}

/// The reason why a fetch failed. Displays as one clause for people.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FetchError {
    /// There is no connection: the name, the route or the interface failed, or the server refused or did not
    /// answer.
    Unreachable(String),
    /// The connection broke off or stalled. Another try may succeed.
    Broken(String),
    /// The server has failed (5xx other than 503 and 511), or the server or a proxy was not ready (408, 421,
    /// 425). Another try may succeed.
    ServerError {
        /// The HTTP status.
        status: u16,
        /// How long the client should wait, if the server says so (`Retry-After`); at most a day.
        retry: Option<Duration>,
    },
    /// The server is busy (429 or 503).
    Busy {
        /// How long the client should wait, if the server says so (`Retry-After`); at most a day.
        retry: Option<Duration>,
    },
    /// The server does not have the file (404 or 410).
    NotFound(u16),
    /// The server or a proxy refuses access (401, 403 or 407).
    Forbidden {
        /// The HTTP status.
        status: u16,
        /// Whether the request carried credentials.
        credentials: CredentialStatus,
        /// The server that refuses, if a redirect led to it; with its port if that is not the usual one.
        at: Option<String>,
    },
    /// The server answers 401 and accepts only authentication schemes that the client does not support, such
    /// as Digest (RFC 7616).
    UnknownScheme {
        /// The names of these schemes.
        schemes: String,
        /// The server that refuses, as in [`Forbidden`](Self::Forbidden).
        at: Option<String>,
    },
    /// The server does not support ranges: it sends the whole file or nothing.
    NoRanges,
    /// The file has changed: it has another length.
    Changed(String),
    /// The file's `ETag` is not the expected one. The file has changed, or the server sends a new tag with
    /// each answer, or none.
    ChangedTag,
    /// The file's `Last-Modified` is not the expected one, and there is no strong `ETag`.
    ChangedDate,
    /// The bytes are compressed, with the coding that this names (`Content-Encoding`).
    Encoded(String),
    /// The server sent something else, such as a login page or another range.
    NotTheFile(String),
    /// TLS failed, for example because of a certificate or a version.
    Tls(String),
    /// The request cannot be made, or the answer is a final no.
    Refused(String),
}

impl std::error::Error for FetchError {}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "it cannot be reached: {why}"),
            Self::Broken(why) | Self::NotTheFile(why) | Self::Refused(why) => f.write_str(why),
            Self::ServerError { status, retry: Some(wait) } if wait.as_secs() > 0 => {
                write!(f, "the server answers {status}, and wants to be left alone for {} s", wait.as_secs())
            }
            Self::ServerError { status, .. } => write!(f, "the server answers {status}"),
            Self::Busy { retry: Some(wait) } if wait.as_secs() > 0 => {
                write!(f, "the server is busy, for {} s", wait.as_secs())
            }
            Self::Busy { .. } => f.write_str("the server is busy"),
            Self::NotFound(status) => write!(f, "the server does not have it ({status})"),
            Self::Forbidden { status: 407, .. } => f.write_str("the proxy wants a name and a password (407)"),
            Self::UnknownScheme { schemes, at } => {
                subject(f, at.as_deref())?;
                write!(
                    f,
                    "wants a name and a password by the scheme {schemes}, and only Basic is spoken (401)"
                )
            }
            Self::Forbidden { status, at, .. } => {
                subject(f, at.as_deref())?;
                match status {
                    401 => f.write_str("wants a name and a password (401)"),
                    status => write!(f, "does not allow it ({status})"),
                }
            }
            Self::NoRanges => f.write_str("the server cannot send parts of it"),
            Self::Changed(why) => write!(f, "the file has changed: {why}"),
            Self::ChangedTag => f.write_str("the file has changed: its ETag is another now, or none"),
            Self::ChangedDate => f.write_str("the file has changed: it has another date"),
            Self::Encoded(coding) => write!(f, "the server sends it compressed ({coding})"),
            Self::Tls(why) => write!(f, "no secure connection: {why}"),
        }
    }
}

/// Writes the subject of the sentence: the server that refuses the request.
fn subject(f: &mut fmt::Formatter<'_>, at: Option<&str>) -> fmt::Result {
    match at {
        Some(host) => write!(f, "it leads to {host}, which "),
        None => f.write_str("the server "),
    }
}

/// Whether a server that refuses a request got credentials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CredentialStatus {
    /// The request carried no credentials, because there were none.
    #[default]
    None,
    /// The request carried no credentials, although [`Options`](super::Options) have some. They are for
    /// another server, or this server may not be told them.
    Withheld,
    /// The request carried a name and a password, or a header field with credentials.
    Sent,
}

impl FetchError {
    /// The error of a server that takes a request and then is silent for `wait`.
    pub(super) fn no_answer(wait: Duration) -> Self {
        Self::Broken(format!("no answer for {} s", wait.as_secs_f32()))
    }

    /// The error of a connection that ends before the answer of `host` has begun. `why` is one clause.
    pub(super) fn no_head(host: &str, why: &str) -> Self {
        Self::Broken(format!("no answer from {host}: {why}"))
    }

    /// The error of a server or a proxy that answers 401, 403 or 407.
    pub(super) const fn forbidden(status: u16) -> Self {
        Self::Forbidden { status, credentials: CredentialStatus::None, at: None }
    }
}

/// Returns the text of an error and of its sources, in one clause.
pub(super) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let more = inner.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `Retry-After: 0` asks for no wait, so that the message names none.
    #[test]
    fn a_wait_of_nothing_is_not_told() {
        let told = |seconds| {
            let retry = Some(Duration::from_secs(seconds));
            [FetchError::Busy { retry }, FetchError::ServerError { status: 503, retry }]
                .map(|e| e.to_string())
        };
        assert_eq!(told(0), ["the server is busy", "the server answers 503"]);
        let longer =
            ["the server is busy, for 7 s", "the server answers 503, and wants to be left alone for 7 s"];
        assert_eq!(told(7), longer);
    }
}
