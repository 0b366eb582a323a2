//! Wrong bytes: whether a server has another file, or answers were mixed up.

use super::connection::Request;
use super::{Event, FileId, FileScheduler, FileState};
use crate::range_scheduler::ConnectionId;

/// A server that has sent other bytes for so many files is not asked any more.
pub const BAD_FILES_MAX: u32 = 8;

impl FileScheduler {
    /// What came is not the file. Only if nothing else was under way is that the server's word: some servers
    /// and proxies answer in another order than they are asked.
    pub(super) fn on_bad_content(&mut self, p: ConnectionId, request: &Request) {
        let (file, server) = (request.file, self.connections[p].server);
        self.set_sequential(p, !request.unpipelined);
        if !request.unpipelined {
            self.connections[p].suspect.get_or_insert(file);
            self.requeue(file);
            return;
        }
        self.leave_queue(file);
        if let Some(url) = self.files[file].urls.get_mut(request.url_index) {
            url.gone = true;
        }
        self.events.push_back(Event::BadContent { file, server });
        let entry = &mut self.servers[usize::from(server)];
        entry.bad_files += 1;
        let is_enough = entry.bad_files >= BAD_FILES_MAX;
        self.requeue(file);
        if is_enough {
            self.close_server(server);
        }
    }

    /// Lets a connection and the second of its pair ask for one file at a time, or for many again.
    pub(super) fn set_sequential(&mut self, p: ConnectionId, sequential: bool) {
        let pair = self.connections[p].pair;
        for connection in self.connections.iter_mut().filter(|connection| connection.pair == pair) {
            connection.sequential = sequential;
        }
    }

    /// The file that a connection without work is to be asked for once more, alone: if it is wrong again,
    /// that is not because answers were mixed up, and the connection may be asked for many again. It may be
    /// here by then.
    pub(super) fn recheck(&mut self, p: ConnectionId) -> Option<FileId> {
        let connection = self.connections.get_mut(p).filter(|connection| connection.requests.is_empty())?;
        let (file, server) = (connection.suspect?, connection.server);
        let entry = &self.files[file];
        let is_wanted =
            entry.state != FileState::Lost && entry.urls.iter().any(|url| url.server == server && !url.gone);
        if !is_wanted {
            connection.suspect = None;
        }
        is_wanted.then_some(file)
    }
}
