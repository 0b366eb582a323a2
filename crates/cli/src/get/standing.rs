//! What is known of a server of bytes, whether it is asked for ranges or for whole files.

use algo::Span;
use http_world::client::{Client, Trouble};

use crate::exit::Code;
use crate::view::View;

/// A wait that a server asks for is believed up to this.
pub(super) const HOUR: Span = Span::from_secs(3_600);

/// A server, as people know it.
pub(super) struct Standing {
    pub(super) name: String,
    /// Why it is not asked any more.
    pub(super) out: Option<String>,
    /// The exit status for that.
    pub(super) code: Code,
    /// Whether that is because it sent wrong bytes.
    pub(super) lied: bool,
    /// What it answered last, if that was that it cannot answer now.
    pub(super) fault: Option<String>,
}

impl Standing {
    pub(super) const fn new(name: String) -> Self {
        Self { name, out: None, code: Code::NotFound, lied: false, fault: None }
    }

    /// It is not asked any more, for `why`.
    pub(super) fn give_up(&mut self, trouble: &Trouble, why: String, view: &mut View) {
        view.note(&format!("{}: {trouble}: not asked any more", self.name));
        (self.out, self.code) = (Some(why), code(trouble));
    }

    /// It has answered like this.
    pub(super) fn answered(&mut self, trouble: &Trouble) {
        if let Trouble::Fault { .. } | Trouble::Busy { .. } = trouble {
            self.fault = Some(trouble.to_string());
        }
    }

    /// Its name and what it did, if it lied.
    pub(super) fn lie(&self) -> Option<(&str, &str)> {
        self.out.as_deref().filter(|_| self.lied).map(|why| (self.name.as_str(), why))
    }
}

/// The exit status when none of these is left, and why.
pub(super) fn none_left<'a>(all: impl Iterator<Item = &'a Standing> + Clone) -> (Code, String) {
    let why: Vec<String> =
        all.clone().filter_map(|one| Some(format!("{}: {}", one.name, one.out.as_deref()?))).collect();
    let code = if all.clone().any(|one| one.lied) {
        Code::Corrupt
    } else {
        worst(all.clone().filter(|one| one.out.is_some()).map(|one| one.code))
    };
    (code, format!("no mirror is left ({})", why.join("; ")))
}

/// What those say that answer, but only that they cannot answer now.
pub(super) fn faults<'a>(all: impl Iterator<Item = &'a Standing>) -> Option<String> {
    let of = |one: &Standing| Some(format!("{}: {}", one.name, one.fault.as_ref()?));
    let faults: Vec<String> = all.filter(|one| one.out.is_none()).filter_map(of).collect();
    (!faults.is_empty()).then(|| faults.join("; "))
}

/// The exit status of a transfer that fails for this.
pub(super) const fn code(trouble: &Trouble) -> Code {
    match trouble {
        Trouble::Unreachable(_)
        | Trouble::Broken(_)
        | Trouble::Fault { .. }
        | Trouble::Busy { .. }
        | Trouble::Tls(_) => Code::Unreachable,
        Trouble::Forbidden(_) => Code::Refused,
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
pub(super) fn told(trouble: &Trouble, trusted: bool, client: &Client) -> String {
    let advice = match trouble {
        Trouble::Forbidden(401 | 403) if !trusted && client.has_secrets() => {
            "what --user and --header say goes only to servers that the command line names: put a name and a \
             password for this one into ~/.netrc, and say --netrc"
        }
        Trouble::Forbidden(401) if !trusted => {
            "put them into ~/.netrc, and say --netrc (--user is for servers that the command line names)"
        }
        Trouble::Forbidden(401) if client.has_secrets() => "those that were given are wrong",
        Trouble::Forbidden(401) => "give them with --user, or put them into ~/.netrc and say --netrc",
        Trouble::Forbidden(407) => {
            "put them into the URL of the proxy (--proxy http://NAME:PASSWORD@HOST:PORT)"
        }
        _ => return trouble.to_string(),
    };
    format!("{trouble}: {advice}")
}

/// How long a server is left alone that asks for it.
pub(super) fn pause(trouble: &Trouble) -> Span {
    let (Trouble::Busy { retry } | Trouble::Fault { retry, .. }) = trouble else { return Span::ZERO };
    retry.map_or(Span::ZERO, |wait| Span::from_nanos(wait.as_nanos() as u64)).min(HOUR)
}
