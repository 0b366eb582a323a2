//! Why a fetch failed.

use std::fmt;
use std::time::Duration;

/// Why a fetch failed. Displays as one clause for people.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FetchError {
    /// No connection: name, route, interface, refusal or timeout.
    Unreachable(String),
    /// It broke off or stalled: worth another try.
    Broken(String),
    /// The server has failed (5xx other than 503 and 511), or it or a proxy was not ready (408, 421, 425):
    /// worth another try.
    ServerError {
        /// What it answers.
        status: u16,
        /// How long it wants to be left alone (`Retry-After`), if it says so; at most a day.
        retry: Option<Duration>,
    },
    /// 429 or 503: not now.
    Busy {
        /// How long the server wants to be left alone (`Retry-After`), if it says so; at most a day.
        retry: Option<Duration>,
    },
    /// 404 or 410.
    NotFound(u16),
    /// 401, 403 or 407.
    Forbidden {
        /// What it answers.
        status: u16,
        /// Whether it was told a secret.
        credentials: CredentialStatus,
        /// The server that a redirect led to, with its port if that is not the usual one.
        at: Option<String>,
    },
    /// 401, and the server takes only schemes that are not spoken, such as Digest (RFC 7616).
    UnknownScheme {
        /// Their names.
        schemes: String,
        /// As in [`Forbidden`](Self::Forbidden).
        at: Option<String>,
    },
    /// The server sends the whole file or nothing.
    NoRanges,
    /// The file is not the one it was: another length or date.
    Changed(String),
    /// Its `ETag` is not the one it was: it has changed, or the server gives each answer another, or none.
    ChangedTag,
    /// The file has changed, as its date says: it is another, and there is no strong `ETag`.
    ChangedDate,
    /// Its bytes are compressed (`Content-Encoding`), which is named.
    Encoded(String),
    /// Something else came: a login page, another range.
    NotTheFile(String),
    /// TLS: a certificate, a version.
    Tls(String),
    /// It cannot be asked for, or the answer is a final no.
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

/// Who refuses a request.
fn subject(f: &mut fmt::Formatter<'_>, at: Option<&str>) -> fmt::Result {
    match at {
        Some(host) => write!(f, "it leads to {host}, which "),
        None => f.write_str("the server "),
    }
}

/// Whether a server that refuses a request got credentials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CredentialStatus {
    /// It got none, and there were none.
    #[default]
    None,
    /// It got none: what [`Options`](super::Options) has of header fields, a name and a password is for
    /// another server, or this one is none that it may be told to.
    Withheld,
    /// It got a name and a password, or such a field.
    Sent,
}

impl FetchError {
    /// A server takes a request and says nothing for so long.
    pub(super) fn no_answer(wait: Duration) -> Self {
        Self::Broken(format!("no answer for {} s", wait.as_secs_f32()))
    }

    /// A connection ends before the answer of `host` has begun, for a reason that is one clause.
    pub(super) fn no_head(host: &str, why: &str) -> Self {
        Self::Broken(format!("no answer from {host}: {why}"))
    }

    /// A server or a proxy answers 401, 403 or 407.
    pub(super) const fn forbidden(status: u16) -> Self {
        Self::Forbidden { status, credentials: CredentialStatus::None, at: None }
    }
}

/// An error with what it came from, in one clause.
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

    /// `Retry-After: 0` asks for no wait.
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
