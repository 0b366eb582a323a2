//! How it ended, and why files are not here.

use mirror::file_scheduler::FileId;

use super::Small;
use crate::exit::Code;
use crate::get::standing::none_left;
use crate::view::Snapshot;

/// How it ended.
pub(in crate::get) struct Ended {
    /// Files that are not here, each with the exit status and the reason.
    pub(in crate::get) lost: Vec<(FileId, Code, String)>,
    /// Servers that lied: origin, name, what they did.
    pub(in crate::get) liars: Vec<((bool, String, u16), String, String)>,
    /// What came over which way.
    pub(in crate::get) last: Snapshot,
}

impl Small<'_> {
    /// How it ended.
    pub(in crate::get) fn end(mut self) -> Ended {
        let last = self.snapshot(true);
        let liars = self.servers.iter().filter_map(|seen| {
            let (name, why) = seen.standing.lie()?;
            Some((seen.origin.clone(), name.to_owned(), why.to_owned()))
        });
        let missing = (0..self.items.len()).filter(|n| !self.here.contains(n));
        let missing: Vec<FileId> = missing.collect();
        let why = if missing.is_empty() { (Code::NotFound, String::new()) } else { self.why() };
        let lost = missing.into_iter().map(|n| {
            let (code, why) = self.why_not(n).unwrap_or_else(|| why.clone());
            (n, code, why)
        });
        Ended { liars: liars.collect(), lost: lost.collect(), last }
    }

    /// Why this file in particular is not here.
    fn why_not(&self, file: FileId) -> Option<(Code, String)> {
        let Some(servers) = self.wrong.get(&file) else { return self.refusal(file) };
        let why = if servers.len() >= self.items.get(file)?.urls.len() {
            "wrong bytes at every mirror: it has changed since the Metalink was made?".to_owned()
        } else {
            let names: Vec<&str> =
                servers.iter().map(|n| self.servers[usize::from(*n)].standing.name.as_str()).collect();
            format!("wrong bytes at {}, and no other mirror brought it", names.join(", "))
        };
        Some((Code::Corrupt, why))
    }

    /// The same if a server that may have it does not give it out.
    fn refusal(&self, file: FileId) -> Option<(Code, String)> {
        let seen = &self.servers[usize::from(*self.refused.get(&file)?)];
        Some((Code::Refused, format!("{}: {}", seen.standing.name, seen.forbids.as_ref()?)))
    }

    /// Why files are lost.
    fn why(&self) -> (Code, String) {
        if let Some(why) = &self.gave_up {
            return (Code::Unreachable, why.clone());
        }
        if self.servers.iter().any(|seen| seen.standing.out.is_none()) || self.servers.is_empty() {
            let refused = self
                .servers
                .iter()
                .filter_map(|s| Some(format!("{}: {}", s.standing.name, s.refused.as_ref()?)));
            let refused: Vec<String> = refused.collect();
            let refused =
                if refused.is_empty() { String::new() } else { format!(" ({})", refused.join("; ")) };
            return (Code::NotFound, format!("no mirror has them{refused}"));
        }
        none_left(self.servers.iter().map(|seen| &seen.standing))
    }
}
