//! The status of an HTTP server, whether it is asked for ranges or for whole files.

use anabranch_algo::Span;
use anabranch_http::client::{CredentialStatus, FetchError};

use crate::error::ErrorKind;
use crate::event::Observer;

/// The longest wait that is granted to a server that asks for one.
pub(super) const HOUR: Span = Span::from_secs(3_600);

/// The status of a server, under the name that people know.
pub(super) struct ServerStatus {
    pub(super) name: String,
    /// The reason why the server is not asked any more.
    pub(super) out: Option<String>,
    /// The advice for the user about that reason.
    advice: Option<&'static str>,
    /// The kind of error with which a transfer fails if it has no other server.
    pub(super) code: ErrorKind,
    /// Whether the server is not asked any more because it sent wrong bytes.
    pub(super) lied: bool,
    /// Whether the server is not asked any more because its file has changed.
    pub(super) has_changed: bool,
    /// The last answer, if it said that the server cannot answer now.
    pub(super) fault: Option<String>,
}

impl ServerStatus {
    pub(super) const fn new(name: String) -> Self {
        let (lied, has_changed) = (false, false);
        Self { name, out: None, advice: None, code: ErrorKind::NotFound, lied, has_changed, fault: None }
    }

    /// Records that the server is not asked any more. `trusted` says whether the user named the server.
    pub(super) fn give_up(&mut self, error: &FetchError, trusted: bool, observer: &mut Observer<'_>) {
        observer.notice(&format!("{}: {error}: not asked any more", self.name));
        (self.out, self.advice) = (Some(error.to_string()), advice(error, trusted));
        self.code = code(error);
        self.has_changed =
            matches!(error, FetchError::Changed(_) | FetchError::ChangedTag | FetchError::ChangedDate);
    }

    /// Bans the server because it sent wrong bytes, as `what` says.
    pub(super) fn ban(&mut self, what: String) {
        (self.lied, self.out, self.advice, self.code) = (true, Some(what), None, ErrorKind::Corrupt);
    }

    /// Records the error that the server answered with.
    pub(super) fn answered(&mut self, error: &FetchError) {
        if let FetchError::ServerError { .. } | FetchError::Busy { .. } = error {
            self.fault = Some(error.to_string());
        }
    }

    /// Returns the server's name and what it did, if it sent wrong bytes.
    pub(super) fn lie(&self) -> Option<(&str, &str)> {
        self.out.as_deref().filter(|_| self.lied).map(|why| (self.name.as_str(), why))
    }
}

/// Returns the kind of error with which a transfer fails when none of these servers is left, and a message
/// that says why.
pub(super) fn none_left<'a>(all: impl Iterator<Item = &'a ServerStatus> + Clone) -> (ErrorKind, String) {
    let why = all.clone().filter_map(|one| {
        let advice = one.advice.map(|advice| format!(": {advice}")).unwrap_or_default();
        Some(format!("{}: {}{advice}", one.name, one.out.as_deref()?))
    });
    let why: Vec<String> = why.collect();
    let code = most_specific(all.filter(|one| one.out.is_some()).map(|one| one.code));
    (code, format!("no mirror is left ({})", why.join("; ")))
}

/// Returns the answers of those servers that do answer, but only that they cannot serve now.
pub(super) fn faults<'a>(all: impl Iterator<Item = &'a ServerStatus>) -> Option<String> {
    let of = |one: &ServerStatus| Some(format!("{}: {}", one.name, one.fault.as_ref()?));
    let faults: Vec<String> = all.filter(|one| one.out.is_none()).filter_map(of).collect();
    (!faults.is_empty()).then(|| faults.join("; "))
}

/// Returns the kind of error with which a transfer fails for `error`.
pub(super) const fn code(error: &FetchError) -> ErrorKind {
    match error {
        FetchError::Unreachable(_)
        | FetchError::Broken(_)
        | FetchError::ServerError { .. }
        | FetchError::Busy { .. }
        | FetchError::Tls(_) => ErrorKind::Unreachable,
        FetchError::Forbidden { .. } | FetchError::UnknownScheme { .. } => ErrorKind::Refused,
        _ => ErrorKind::NotFound,
    }
}

/// Returns the kind, among the errors of several servers, that says most about what to do.
pub(super) fn most_specific(all: impl Iterator<Item = ErrorKind> + Clone) -> ErrorKind {
    let first = [ErrorKind::Corrupt, ErrorKind::Target, ErrorKind::Refused, ErrorKind::NotFound];
    first.into_iter().find(|code| all.clone().any(|one| one == *code)).unwrap_or(ErrorKind::Unreachable)
}

/// Returns a text that says what happened, and what to do if a name and a password are wanted. `trusted` says
/// whether the caller named the server.
pub(super) fn describe(error: &FetchError, trusted: bool) -> String {
    match advice(error, trusted) {
        Some(advice) => format!("{error}: {advice}"),
        None => error.to_string(),
    }
}

fn advice(error: &FetchError, trusted: bool) -> Option<&'static str> {
    if let FetchError::ChangedTag | FetchError::ChangedDate = error {
        return Some(
            "if it is another with each answer, give a hash with `checksum`: then it does not count",
        );
    }
    let FetchError::Forbidden { status, credentials, at } = error else { return None };
    match (status, credentials) {
        (407, _) => Some("put them into the URL of the proxy (`proxy` http://NAME:PASSWORD@HOST:PORT)"),
        (401 | 403, CredentialStatus::Withheld) => Some(
            "what `user`, `header` and `netrc` say goes only to servers of which the request names a URL, \
             and by https to machines in ~/.netrc: name a URL of this one, too",
        ),
        (401, CredentialStatus::Sent) => Some("those that were given are wrong"),
        (401, CredentialStatus::None) if trusted && at.is_none() => {
            Some("give them with `user`, or put them into ~/.netrc and say `netrc`")
        }
        (401, CredentialStatus::None) => Some(
            "name a URL of this server, and give them with `user`; for an https server it is enough to put \
             them into ~/.netrc, and say `netrc`",
        ),
        _ => None,
    }
}

/// Returns how long the server is left alone, as it asked: at most an hour.
pub(super) fn pause(error: &FetchError) -> Span {
    let (FetchError::Busy { retry } | FetchError::ServerError { retry, .. }) = error else {
        return Span::ZERO;
    };
    retry.map_or(Span::ZERO, |wait| Span::from_nanos(wait.as_nanos() as u64)).min(HOUR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Control, Stop};

    #[test]
    fn advice_is_about_what_was_sent_to_whom() {
        let text = |status, credentials, at: Option<&str>, trusted| {
            describe(&FetchError::Forbidden { status, credentials, at: at.map(str::to_owned) }, trusted)
        };
        assert!(text(401, CredentialStatus::Sent, None, true).ends_with("those that were given are wrong"));
        assert!(
            text(401, CredentialStatus::Sent, Some("b"), false)
                .starts_with("it leads to b, which wants a name")
        );
        assert!(
            text(401, CredentialStatus::Withheld, Some("b"), true).contains("name a URL of this one, too")
        );
        assert!(text(403, CredentialStatus::Withheld, None, false).contains("name a URL of this one, too"));
        assert!(text(401, CredentialStatus::None, None, true).contains("give them with `user`"));
        assert!(text(401, CredentialStatus::None, Some("b"), true).contains(": name a URL of this server"));
        assert!(
            text(403, CredentialStatus::Sent, None, true).ends_with("the server does not allow it (403)")
        );
        assert!(text(407, CredentialStatus::None, None, true).contains("URL of the proxy"));
    }

    #[test]
    fn what_to_do_is_told_at_the_end_alone() {
        let mut status = ServerStatus::new("a".into());
        let error = FetchError::Forbidden { status: 401, credentials: CredentialStatus::Sent, at: None };
        let mut listener = |_| Control::Continue;
        let stop = Stop::new().expect("descriptors");
        status.give_up(&error, true, &mut Observer::new(&mut listener, stop, Span::ZERO));
        assert_eq!(status.out.as_deref(), Some("the server wants a name and a password (401)"));
        let (code, why) = none_left(std::iter::once(&status));
        assert!(
            code == ErrorKind::Refused && why.contains("(401): those that were given are wrong"),
            "{why}"
        );
        status.ban("wrong bytes in block 1".into());
        assert_eq!(status.code, ErrorKind::Corrupt);
    }
}
