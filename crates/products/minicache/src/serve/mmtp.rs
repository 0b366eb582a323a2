//! Offers the objects of an image to `anabranch get` and other receivers of mmTP, each by its BLAKE3 name.
//! What is not in the image is refused, also in peer mode: a receiver has other sources.

use std::ops::Range;

use anabranch::serve::Objects;
use anabranch_mmtp::ContentId;
use anabranch_mmtp::tree::ChainingValue;

use super::count::Count;
use super::site::{Held, Site};
use crate::disk::Disk as _;
use crate::name::Name;

impl Objects for Site {
    fn find(&self, root: &[u8; 32]) -> Option<ContentId> {
        let found = self.image().table().find(&Name::Root(*root))?;
        Some(ContentId { root: *root, length: found.length })
    }

    fn hashes(&self, content: &ContentId, level: u8, first: u64, count: usize) -> Option<Vec<ChainingValue>> {
        let held = held(self, content)?;
        held.proof.hashes(self.image().disk(), level, first, count).ok()
    }

    fn read(&self, content: &ContentId, range: Range<u64>, out: &mut Vec<u8>) -> Option<()> {
        let held = held(self, content)?;
        self.prove(&held, range.clone(), out).ok()?;
        out.clear();
        out.resize((range.end - range.start) as usize, 0);
        self.image().disk().read_at(held.proof.place(range.start), out).ok()?;
        self.image().table().count_bytes(held.slot, range.end - range.start);
        Some(())
    }

    fn sent(&self, packets: u64, bytes: u64) {
        self.counters.add(Count::MmtpPackets, packets);
        self.counters.add(Count::MmtpBytes, bytes);
    }
}

fn held(site: &Site, content: &ContentId) -> Option<Held> {
    site.hold(&Name::Root(content.root)).filter(|held| held.entry.id == *content)
}
