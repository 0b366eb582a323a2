//! What is known of a server of bytes, whether it is asked for ranges or for whole files.

use std::time::Duration;

use algo::Span;
use http_world::client::Trouble;

use super::look::code;
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
}

impl Standing {
    pub(super) const fn new(name: String) -> Self {
        Self { name, out: None, code: Code::NotFound, lied: false }
    }

    /// It is not asked any more.
    pub(super) fn give_up(&mut self, trouble: &Trouble, view: &mut View) {
        view.note(&format!("{}: {trouble}: not asked any more", self.name));
        (self.out, self.code) = (Some(trouble.to_string()), code(trouble));
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
    } else if all.clone().all(|one| one.out.is_none() || one.code == Code::Unreachable) {
        Code::Unreachable
    } else {
        Code::NotFound
    };
    (code, format!("no mirror is left ({})", why.join("; ")))
}

/// How long a busy server is left alone.
pub(super) fn pause(retry: Option<Duration>) -> Span {
    retry.map_or(Span::ZERO, |wait| Span::from_nanos(wait.as_nanos() as u64)).min(HOUR)
}
