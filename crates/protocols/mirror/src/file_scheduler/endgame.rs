//! The endgame: connections without work request second copies of files from connections that are late.

use anabranch_algo::{Span, Time};

use super::api::FileId;
use super::connection::Connection;
use super::{ALL_OUTSTANDING_MAX, FileScheduler, FileState};
use crate::fetch_id::ConnectionId;

/// The time that a second copy must save.
const SAVING_MIN: Span = Span::from_millis(50);

impl FileScheduler {
    /// Makes each idle connection request a copy of the file whose answer would come last.
    pub(super) fn steal(&mut self, now: Time) {
        for p in 0..self.connections.len() {
            if self.outstanding() >= ALL_OUTSTANDING_MAX {
                return;
            }
            let server = usize::from(self.connections[p].server);
            if !self.may_steal(now, p) || !self.servers[server].idle.is_empty() {
                continue;
            }
            if let Some(file) = self.latest_file(now, p) {
                self.ask(now, p, file);
            }
        }
    }

    /// Returns the file that another connection would deliver last, if this connection would deliver it
    /// earlier by more than [`SAVING_MIN`]. Only a file counts that this connection's server has, and that
    /// has one outstanding request or only slow ones.
    fn latest_file(&self, now: Time, p: ConnectionId) -> Option<FileId> {
        let connection = &self.connections[p];
        let mut worst = None;
        for other in self.connections.iter().filter(|other| !other.requests.is_empty()) {
            for (left, request) in other.answers(now) {
                let file = &self.files[request.file];
                let has_it = file.urls.iter().any(|url| url.server == connection.server && !url.gone);
                let saves = left > connection.delivery.time_for(file.bytes) + SAVING_MIN;
                let is_asked_once = file.state == FileState::Requested(1);
                if (is_asked_once || connection.is_proven() && self.is_stuck(now, request.file))
                    && has_it
                    && saves
                    && worst.is_none_or(|(most, _)| left > most)
                {
                    worst = Some((left, request.file));
                }
            }
        }
        worst.map(|(_, file)| file)
    }

    /// Whether all connections that have a request for the file are slow.
    fn is_stuck(&self, now: Time, file: FileId) -> bool {
        let has_it =
            |connection: &&Connection| connection.requests.iter().any(|request| request.file == file);
        self.files[file].state != FileState::Done
            && self.connections.iter().filter(has_it).all(|connection| connection.is_slow(now))
    }
}
