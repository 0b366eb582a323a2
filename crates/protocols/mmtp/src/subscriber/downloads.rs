//! The downloads that are not complete. A complete download leaves no state.

use std::collections::BTreeMap;

use super::download::Download;
use super::item::{DownloadId, GiveUp};
use super::path::PendingRequest;

/// The running downloads by number; see the [module](self).
#[derive(Default)]
pub(super) struct Downloads {
    active: BTreeMap<DownloadId, Download>,
    added: DownloadId,
}

impl Downloads {
    /// Returns a number for a new download. The download is kept unless it is complete from the start.
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

    /// Iterates over the downloads in the order in which they were added.
    pub(super) fn iter(&self) -> impl Iterator<Item = (DownloadId, &Download)> {
        self.active.iter().map(|(id, download)| (*id, download))
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Download> {
        self.active.values_mut()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    /// Removes a download and returns it, unless it was removed before.
    pub(super) fn remove(&mut self, id: DownloadId) -> Option<Download> {
        self.active.remove(&id)
    }

    /// Records that packet `i` of the answer to a request is no longer expected.
    pub(super) fn give_up(&mut self, asked: &PendingRequest, i: u32, how: GiveUp) {
        if let (Some(item), Some(state)) = (asked.item(i), self.get_mut(asked.download)) {
            state.give_up(item, asked.epoch, how);
        }
    }

    /// Returns how many blocks are asked for and not verified.
    pub(super) fn blocks_open(&self) -> usize {
        self.active.values().map(Download::blocks_open).sum()
    }
}
