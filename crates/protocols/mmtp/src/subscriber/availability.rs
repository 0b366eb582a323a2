//! Tracks which sources can still supply which contents.

use super::api::Event;
use super::item::{DownloadId, SourceId};
use super::state::Subscriber;
use crate::wire::Reason;

impl Subscriber {
    /// Whether some source can still supply a content: it is not banned and has not refused the content.
    #[must_use]
    pub fn is_obtainable(&self, download: DownloadId) -> bool {
        self.sources.iter().any(|source| !source.refuses(download))
    }

    /// Returns a content that is not complete and that no source can supply any more.
    #[must_use]
    pub fn unobtainable(&self) -> Option<DownloadId> {
        self.downloads.iter().map(|(id, _)| id).find(|id| !self.is_obtainable(*id))
    }

    /// Records that a source does not have a content, as the caller found out. The caller must release the
    /// blocks that this source has reserved.
    pub fn mark_unavailable(&mut self, source: SourceId, download: DownloadId) {
        self.refuse(source, download, Reason::Unknown);
        self.dirty = true;
    }

    /// Records that a source will not send a content, so that other sources have to.
    pub(super) fn refuse(&mut self, source: SourceId, download: DownloadId, reason: Reason) {
        let Some(entry) = self.sources.get_mut(usize::from(source)) else { return };
        if self.downloads.get(download).is_some() && entry.unavailable.insert(download) {
            self.events.push_back(Event::Refused { source, download, reason });
        }
        for q in 0..self.paths.len() {
            if self.paths[q].source == source {
                self.unassign(q);
            }
        }
    }

    pub(super) fn cannot_provide(&self, source: SourceId, download: DownloadId) -> bool {
        self.sources[usize::from(source)].refuses(download)
    }
}
