//! The downloads that are not complete. Nothing is kept of a complete one.

use std::collections::BTreeMap;

use super::download::Download;
use super::item::{DownloadId, GiveUp};
use super::path::PendingRequest;

/// Downloads under way, by number; see the [module](self).
#[derive(Default)]
pub(super) struct Downloads {
    active: BTreeMap<DownloadId, Download>,
    added: DownloadId,
}

impl Downloads {
    /// A number for one more download; it is kept unless it is complete from the start.
    pub(super) fn add(&mut self, download: Download) -> DownloadId {
        let id = self.added;
        self.added += 1;
        if !download.is_complete() {
            self.active.insert(id, download);
        }
        id
    }

    pub(super) fn get(&self, id: DownloadId) -> Option<&Download> {
        self.active.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: DownloadId) -> Option<&mut Download> {
        self.active.get_mut(&id)
    }

    /// In the order in which they were added.
    pub(super) fn iter(&self) -> impl Iterator<Item = (DownloadId, &Download)> {
        self.active.iter().map(|(id, download)| (*id, download))
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Download> {
        self.active.values_mut()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    /// Forgets a download, and gives it back unless that was done before.
    pub(super) fn remove(&mut self, id: DownloadId) -> Option<Download> {
        self.active.remove(&id)
    }

    /// Packet `i` of the answer to a request is not expected any more.
    pub(super) fn give_up(&mut self, asked: &PendingRequest, i: u32, how: GiveUp) {
        if let (Some(item), Some(state)) = (asked.item(i), self.get_mut(asked.download)) {
            state.give_up(item, asked.epoch, how);
        }
    }

    /// Blocks asked for and not verified.
    pub(super) fn blocks_open(&self) -> usize {
        self.active.values().map(Download::blocks_open).sum()
    }
}
