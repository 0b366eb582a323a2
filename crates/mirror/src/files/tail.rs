//! The end: ways without work help those that have some.

use algo::{Span, Time};

use super::{ALL_OUTSTANDING_MAX, Fate, FileId, Files};
use crate::plan::WayId;

/// What asking twice must save.
const SAVING_MIN: Span = Span::from_millis(50);

impl Files {
    /// Asks every way without work for the file that it would spare the others most time with.
    pub(super) fn help(&mut self, now: Time) {
        for p in 0..self.ways.len() {
            if self.outstanding() >= ALL_OUTSTANDING_MAX {
                return;
            }
            let server = usize::from(self.ways[p].server);
            if !self.may_help(now, p) || !self.servers[server].idle.is_empty() {
                continue;
            }
            if let Some(file) = self.worst(now, p) {
                self.ask(now, p, file);
            }
        }
    }

    /// The file that comes latest from another way, if it would come earlier over this one.
    fn worst(&self, now: Time, p: WayId) -> Option<FileId> {
        let way = &self.ways[p];
        let mut worst = None;
        for other in self.ways.iter().filter(|other| !other.requests.is_empty()) {
            for (left, request) in other.answers(now) {
                let file = &self.files[request.file];
                let has_it = file.places.iter().any(|place| place.server == way.server && !place.gone);
                let saves = left > way.would_take(file.bytes) + SAVING_MIN;
                if file.fate == Fate::Asked(1) && has_it && saves && worst.is_none_or(|(most, _)| left > most)
                {
                    worst = Some((left, request.file));
                }
            }
        }
        worst.map(|(_, file)| file)
    }
}
