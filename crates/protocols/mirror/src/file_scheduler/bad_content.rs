//! Handles wrong bytes: distinguishes a server that has a different file from answers that were mixed up.

use super::api::{Event, FileId};
use super::connection::Request;
use super::{BAD_FILES_MAX, FileScheduler, FileState};
use crate::fetch_id::ConnectionId;

impl FileScheduler {
    /// Handles an answer whose bytes are not the file's. The answer counts against the server only if no
    /// other request was outstanding, because some servers and proxies answer in the wrong order. Otherwise
    /// the connection requests the file again, alone.
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

    /// Limits both connections of a pair to one request at a time, or lifts this limit.
    pub(super) fn set_sequential(&mut self, p: ConnectionId, sequential: bool) {
        let pair = self.connections[p].pair;
        for connection in self.connections.iter_mut().filter(|connection| connection.pair == pair) {
            connection.sequential = sequential;
        }
    }

    /// Returns the suspect file, which a connection without requests requests again, alone. If the file is
    /// wrong again, the server has wrong bytes, and the connection may pipeline again. This happens even if
    /// another server has delivered the file meanwhile.
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
