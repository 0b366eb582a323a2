//! Wrong bytes: whether a server has another file, or answers were mixed up.

use super::way::Request;
use super::{Event, Fate, FileId, Files};
use crate::plan::WayId;

/// A server that has sent other bytes for so many files is not asked any more.
pub const WRONG_MAX: u32 = 8;

impl Files {
    /// What came is not the file. Only if nothing else was under way is that the server's word: some servers
    /// and proxies answer in another order than they are asked.
    pub(super) fn wrong(&mut self, p: WayId, request: &Request) {
        let (file, server) = (request.file, self.ways[p].server);
        self.set_single(p, !request.alone);
        if !request.alone {
            self.ways[p].doubted.get_or_insert(file);
            self.put_back(file);
            return;
        }
        self.leave_queue(file);
        if let Some(place) = self.files[file].places.get_mut(request.place) {
            place.gone = true;
        }
        self.events.push_back(Event::Wrong { file, server });
        let entry = &mut self.servers[usize::from(server)];
        entry.wrong += 1;
        let is_enough = entry.wrong >= WRONG_MAX;
        self.put_back(file);
        if is_enough {
            self.close_server(server);
        }
    }

    /// Lets a way and its second lane ask for one file at a time, or for many again.
    pub(super) fn set_single(&mut self, p: WayId, single: bool) {
        let lanes = self.ways[p].lanes;
        for way in self.ways.iter_mut().filter(|way| way.lanes == lanes) {
            way.single = single;
        }
    }

    /// The file that a way without work is to be asked for once more, alone: if it is wrong again, that is
    /// not because answers were mixed up, and the way may be asked for many again. It may be here by then.
    pub(super) fn again(&mut self, p: WayId) -> Option<FileId> {
        let way = self.ways.get_mut(p).filter(|way| way.requests.is_empty())?;
        let (file, server) = (way.doubted?, way.server);
        let entry = &self.files[file];
        let is_wanted = entry.fate != Fate::Lost
            && entry.places.iter().any(|place| place.server == server && !place.gone);
        if !is_wanted {
            way.doubted = None;
        }
        is_wanted.then_some(file)
    }
}
