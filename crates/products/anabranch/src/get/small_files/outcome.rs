//! How the transfer of small files ended, and why some were not fetched.

use anabranch_algo::Time;
use anabranch_mirror::file_scheduler::FileId;

use super::{ByteTotals, SmallFiles};
use crate::Progress;
use crate::error::ErrorKind;
use crate::get::origin::Origin;
use crate::get::server_status::none_left;

/// How the transfer of small files ended.
pub(in crate::get) struct SmallFilesOutcome {
    /// Files that were not fetched, each with the kind of error and the reason.
    pub(in crate::get) lost: Vec<(FileId, ErrorKind, String)>,
    /// Servers that were banned: origin, name, and reason.
    pub(in crate::get) liars: Vec<(Origin, String, String)>,
    /// The byte counts of the whole directory, including these files.
    pub(in crate::get) totals: ByteTotals,
    /// The progress of each route at the end.
    pub(in crate::get) last: Progress,
}

impl SmallFiles<'_> {
    /// Ends the transfer of the small files and returns its outcome.
    pub(in crate::get) fn end(mut self, now: Time) -> SmallFilesOutcome {
        let last = self.snapshot(now, true);
        let liars = self.servers.iter().filter_map(|server| {
            let (name, why) = server.status.lie()?;
            Some((server.origin.clone(), name.to_owned(), why.to_owned()))
        });
        let missing = (0..self.items.len()).filter(|n| !self.here.contains(n));
        let missing: Vec<FileId> = missing.collect();
        let why = if missing.is_empty() { (ErrorKind::NotFound, String::new()) } else { self.why() };
        let lost = missing.into_iter().map(|n| {
            let (code, why) = self.why_not(n).unwrap_or_else(|| why.clone());
            (n, code, why)
        });
        SmallFilesOutcome { liars: liars.collect(), lost: lost.collect(), totals: self.totals, last }
    }

    /// Returns why this file was not fetched, if there is a reason of its own.
    fn why_not(&self, file: FileId) -> Option<(ErrorKind, String)> {
        if let Some(why) = self.contradictions.get(&file) {
            return Some((ErrorKind::Corrupt, why.clone()));
        }
        let Some(servers) = self.wrong.get(&file) else { return self.refusal(file) };
        let why = if servers.len() >= self.items.get(file)?.urls.len() {
            "wrong bytes at every mirror: it has changed since the Metalink was made?".to_owned()
        } else {
            let names: Vec<&str> =
                servers.iter().map(|n| self.servers[usize::from(*n)].status.name.as_str()).collect();
            format!("wrong bytes at {}, and no other mirror brought it", names.join(", "))
        };
        Some((ErrorKind::Corrupt, why))
    }

    /// Returns why a file was refused, if a server refused it with `FetchError::Forbidden`.
    fn refusal(&self, file: FileId) -> Option<(ErrorKind, String)> {
        let server = &self.servers[usize::from(*self.refused.get(&file)?)];
        Some((ErrorKind::Refused, format!("{}: {}", server.status.name, server.forbids.as_ref()?)))
    }

    /// Returns why the files without a reason of their own were not fetched.
    fn why(&self) -> (ErrorKind, String) {
        if let Some(why) = &self.gave_up {
            return (ErrorKind::Unreachable, why.clone());
        }
        if self.servers.iter().any(|server| server.status.out.is_none()) || self.servers.is_empty() {
            let refused = self
                .servers
                .iter()
                .filter_map(|s| Some(format!("{}: {}", s.status.name, s.refused.as_ref()?)));
            let refused: Vec<String> = refused.collect();
            let refused =
                if refused.is_empty() { String::new() } else { format!(" ({})", refused.join("; ")) };
            return (ErrorKind::NotFound, format!("no mirror has them{refused}"));
        }
        none_left(self.servers.iter().map(|server| &server.status))
    }
}
