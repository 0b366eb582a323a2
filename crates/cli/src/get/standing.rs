//! What is known of a server of bytes, whether it is asked for ranges or for whole files.

use algo::Span;
use anabranch_http::client::{CredentialStatus, FetchError};

use crate::exit::Code;
use crate::view::View;

/// A wait that a server asks for is believed up to this.
pub(super) const HOUR: Span = Span::from_secs(3_600);

/// A server, as people know it.
pub(super) struct Standing {
    pub(super) name: String,
    /// Why it is not asked any more.
    pub(super) out: Option<String>,
    /// What can be done about that.
    advice: Option<&'static str>,
    /// The exit status for that.
    pub(super) code: Code,
    /// Whether that is because it sent wrong bytes.
    pub(super) lied: bool,
    /// What it answered last, if that was that it cannot answer now.
    pub(super) fault: Option<String>,
}

impl Standing {
    pub(super) const fn new(name: String) -> Self {
        Self { name, out: None, advice: None, code: Code::NotFound, lied: false, fault: None }
    }

    /// It is not asked any more. `trusted`: whether the user named it.
    pub(super) fn give_up(&mut self, error: &FetchError, trusted: bool, view: &mut View) {
        view.note(&format!("{}: {error}: not asked any more", self.name));
        (self.out, self.advice) = (Some(error.to_string()), advice(error, trusted));
        self.code = code(error);
    }

    /// It sent wrong bytes, as `what` says, and is not asked any more.
    pub(super) fn ban(&mut self, what: String) {
        (self.lied, self.out, self.advice, self.code) = (true, Some(what), None, Code::Corrupt);
    }

    /// It has answered like this.
    pub(super) fn answered(&mut self, error: &FetchError) {
        if let FetchError::ServerError { .. } | FetchError::Busy { .. } = error {
            self.fault = Some(error.to_string());
        }
    }

    /// Its name and what it did, if it lied.
    pub(super) fn lie(&self) -> Option<(&str, &str)> {
        self.out.as_deref().filter(|_| self.lied).map(|why| (self.name.as_str(), why))
    }
}

/// The exit status when none of these is left, and why.
pub(super) fn none_left<'a>(all: impl Iterator<Item = &'a Standing> + Clone) -> (Code, String) {
    let why = all.clone().filter_map(|one| {
        let advice = one.advice.map(|advice| format!(": {advice}")).unwrap_or_default();
        Some(format!("{}: {}{advice}", one.name, one.out.as_deref()?))
    });
    let why: Vec<String> = why.collect();
    let code = worst(all.filter(|one| one.out.is_some()).map(|one| one.code));
    (code, format!("no mirror is left ({})", why.join("; ")))
}

/// What those say that answer, but only that they cannot answer now.
pub(super) fn faults<'a>(all: impl Iterator<Item = &'a Standing>) -> Option<String> {
    let of = |one: &Standing| Some(format!("{}: {}", one.name, one.fault.as_ref()?));
    let faults: Vec<String> = all.filter(|one| one.out.is_none()).filter_map(of).collect();
    (!faults.is_empty()).then(|| faults.join("; "))
}

/// The exit status of a transfer that fails for this.
pub(super) const fn code(error: &FetchError) -> Code {
    match error {
        FetchError::Unreachable(_)
        | FetchError::Broken(_)
        | FetchError::ServerError { .. }
        | FetchError::Busy { .. }
        | FetchError::Tls(_) => Code::Unreachable,
        FetchError::Forbidden { .. } => Code::Refused,
        _ => Code::NotFound,
    }
}

/// The exit status where each of several servers has one of its own: that which says most about what to do.
pub(super) fn worst(all: impl Iterator<Item = Code> + Clone) -> Code {
    let first = [Code::Corrupt, Code::Target, Code::Refused, Code::NotFound];
    first.into_iter().find(|code| all.clone().any(|one| one == *code)).unwrap_or(Code::Unreachable)
}

/// What happened, and what to do if a name and a password are wanted. `trusted`: whether the user named the
/// server.
pub(super) fn told(error: &FetchError, trusted: bool) -> String {
    match advice(error, trusted) {
        Some(advice) => format!("{error}: {advice}"),
        None => error.to_string(),
    }
}

fn advice(error: &FetchError, trusted: bool) -> Option<&'static str> {
    let FetchError::Forbidden { status, credentials, at } = error else { return None };
    match (status, credentials) {
        (407, _) => Some("put them into the URL of the proxy (--proxy http://NAME:PASSWORD@HOST:PORT)"),
        (401 | 403, CredentialStatus::Withheld) => Some(
            "what --user and --header say goes only to servers that the command line names: put a name and a \
             password for this one into ~/.netrc, and say --netrc",
        ),
        (401, CredentialStatus::Sent) => Some("those that were given are wrong"),
        (401, CredentialStatus::None) if trusted && at.is_none() => {
            Some("give them with --user, or put them into ~/.netrc and say --netrc")
        }
        (401, CredentialStatus::None) => Some(
            "put them into ~/.netrc, and say --netrc (--user is for servers that the command line names)",
        ),
        _ => None,
    }
}

/// How long a server is left alone that asks for it.
pub(super) fn pause(error: &FetchError) -> Span {
    let (FetchError::Busy { retry } | FetchError::ServerError { retry, .. }) = error else {
        return Span::ZERO;
    };
    retry.map_or(Span::ZERO, |wait| Span::from_nanos(wait.as_nanos() as u64)).min(HOUR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_about_what_was_sent_to_whom() {
        let told = |status, credentials, at: Option<&str>, trusted| {
            told(&FetchError::Forbidden { status, credentials, at: at.map(str::to_owned) }, trusted)
        };
        assert!(told(401, CredentialStatus::Sent, None, true).ends_with("those that were given are wrong"));
        assert!(
            told(401, CredentialStatus::Sent, Some("b"), false)
                .starts_with("it leads to b, which wants a name")
        );
        assert!(
            told(401, CredentialStatus::Withheld, Some("b"), true).contains("for this one into ~/.netrc")
        );
        assert!(told(403, CredentialStatus::Withheld, None, false).contains("for this one into ~/.netrc"));
        assert!(told(401, CredentialStatus::None, None, true).contains("give them with --user"));
        assert!(told(401, CredentialStatus::None, Some("b"), true).contains(": put them into ~/.netrc"));
        assert!(
            told(403, CredentialStatus::Sent, None, true).ends_with("the server does not allow it (403)")
        );
        assert!(told(407, CredentialStatus::None, None, true).contains("URL of the proxy"));
    }

    #[test]
    fn what_to_do_is_told_at_the_end_alone() {
        let mut standing = Standing::new("a".into());
        let error = FetchError::Forbidden { status: 401, credentials: CredentialStatus::Sent, at: None };
        standing.give_up(&error, true, &mut View::new(crate::view::Mode::Quiet));
        assert_eq!(standing.out.as_deref(), Some("the server wants a name and a password (401)"));
        let (code, why) = none_left(std::iter::once(&standing));
        assert!(code == Code::Refused && why.contains("(401): those that were given are wrong"), "{why}");
        standing.ban("wrong bytes in block 1".into());
        assert_eq!(standing.code, Code::Corrupt);
    }
}
