//! Hashes that lie beside a file on its server.

use anabranch_http::client::{FetchId, RequestKind};
use mirror::leaf_list::{self, LeafList};
use mirror::metalink::METALINK_MAX;

use super::{Discovery, LINE_MAX, ProbeKind};

/// URLs beside which a leaf list is looked for if it is known which root it is to give.
const BESIDE_MAX: usize = 4;

impl Discovery<'_, '_> {
    /// Without a Metalink: hashes may lie beside the file.
    pub(super) fn look_beside(&mut self) {
        let Some(first) = self.urls.first().cloned() else { return };
        // Whose list gives the root that the user wants does not matter; whose root is believed does.
        let askable = if self.said.id.is_some() { BESIDE_MAX } else { usize::from(self.wants_root()) };
        let lists = self.urls.iter().take(askable).filter_map(|url| url.sibling(leaf_list::SUFFIX).ok());
        self.lists_of_leaves.extend(lists.map(|url| (url, true)));
        if let Ok(url) = first.sibling(".b3")
            && self.wants_root()
        {
            self.ask(ProbeKind::Line, &url, RequestKind::Document { max: LINE_MAX }, true);
        }
        if let Ok(url) = first.sibling(".meta4") {
            self.ask(ProbeKind::List, &url, RequestKind::Document { max: METALINK_MAX }, true);
        }
    }

    /// A leaf list has come. Where the content id is known, it is used if it gives that root, and no other is
    /// waited for then.
    pub(super) fn leaves_came(&mut self, bytes: &[u8], by: Option<String>) {
        match LeafList::parse(bytes) {
            // Another one may be right.
            Ok(leaves) if self.said.id.is_some_and(|id| id.root != leaves.id().root) => {}
            Ok(leaves) => self.leaves = Some((leaves, by)),
            Err(e) => self.observer.notice(&format!("a leaf list is left out: {e}")),
        }
        if self.said.id.is_some() && self.leaves.is_some() {
            let more: Vec<FetchId> =
                self.asked.iter().filter(|(_, q)| q.kind == ProbeKind::Leaves).map(|(id, _)| *id).collect();
            for id in more {
                self.client.cancel(id);
                self.asked.remove(&id);
            }
        }
    }
}
