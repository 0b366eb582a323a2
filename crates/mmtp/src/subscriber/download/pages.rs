//! Pages of the hash tree: which are to be asked, and what they prove when they come.

use super::{Download, IngestResult, Item, PartialPage, SourceId};
use crate::id::SEGMENT_BLOCKS;
use crate::tree::{self, ChainingValue};

impl Download {
    /// The chaining values still to be asked before `block` can be verified, as (level, first): all missing
    /// pages on the way from the root. They count as asked from now on. What somebody else was asked for is
    /// left out, unless `anew`: a path that has not been heard of yet must not make the others wait.
    pub(in crate::subscriber) fn request_pages(&mut self, block: u64, anew: bool) -> Vec<(u8, u64)> {
        while let Some((level, page)) = self.verifier.missing_page(block) {
            let known = self.outboard.as_ref().and_then(|tree| {
                tree.cvs(level, page * tree::PAGE_CVS, tree::page_len(&self.id, level, page))
            });
            let Some(known) = known else { break };
            if self.verifier.add_page(level, page, known).is_err() {
                break;
            }
        }
        if self.verifier.missing_page(block).is_none() {
            return Vec::new();
        }
        let mut items = Vec::new();
        let mut page = block;
        for level in 0..tree::levels(&self.id) {
            page /= tree::PAGE_CVS;
            if self.verifier.has_page(level, page) {
                break;
            }
            if !anew && self.pages.contains_key(&(level, page)) {
                continue;
            }
            self.pages.entry((level, page)).or_default();
            for half in 0..self.halves(level, page) {
                items.push((level, page * tree::PAGE_CVS + (half * tree::PACKET_CVS) as u64));
            }
        }
        items.reverse();
        items
    }

    fn page_cvs(&self, level: u8, page: u64) -> usize {
        let left = tree::cvs(&self.id, level).saturating_sub(page * tree::PAGE_CVS);
        usize::try_from(left.min(tree::PAGE_CVS)).unwrap_or(0)
    }

    fn halves(&self, level: u8, page: u64) -> usize {
        self.page_cvs(level, page).div_ceil(tree::PACKET_CVS)
    }

    /// How many chaining values the packet that begins at `first` has.
    pub(in crate::subscriber) fn hash_count(&self, level: u8, first: u64) -> usize {
        let left = tree::cvs(&self.id, level).saturating_sub(first);
        usize::try_from(left).unwrap_or(usize::MAX).min(tree::PACKET_CVS)
    }

    /// Verifies pages from the top down, then the blocks that waited for them.
    pub(super) fn verify_pages(&mut self, result: &mut IngestResult) {
        loop {
            let ready = self.pages.iter().rev().find_map(|(&(level, number), page)| {
                let halves = self.halves(level, number);
                let here = page.halves.iter().take(halves).all(Option::is_some);
                let parent = self.verifier.can_check(level, number);
                (here && parent).then_some((level, number))
            });
            let Some((level, number)) = ready else { return };
            let Some(page) = self.pages.remove(&(level, number)) else { return };
            let cvs: Vec<ChainingValue> = page.halves.into_iter().flatten().flatten().collect();
            if self.verifier.add_page(level, number, &cvs).is_err() {
                let senders: Vec<SourceId> = page.from.into_iter().flatten().collect();
                let mixed = senders.iter().any(|s| *s != senders[0]);
                if !mixed {
                    let blocks = tree::PAGE_CVS.saturating_pow(u32::from(level) + 1);
                    result.culprits.push((senders[0], number.saturating_mul(blocks)));
                }
                self.pages
                    .insert((level, number), PartialPage { exclusive: mixed, ..PartialPage::default() });
                result.rerequest.extend(self.page_items(level, number));
                return;
            }
            if level == 0 {
                let first = number * SEGMENT_BLOCKS;
                let waiting: Vec<u64> =
                    self.partials.range(first..first + SEGMENT_BLOCKS).map(|(&block, _)| block).collect();
                for block in waiting {
                    self.verify_block(block, result);
                }
            }
        }
    }

    /// Both packets of a page, for asking them again.
    pub(super) fn page_items(&self, level: u8, number: u64) -> Vec<Item> {
        (0..self.halves(level, number))
            .map(|half| Item::Hash {
                level,
                first: number * tree::PAGE_CVS + (half * tree::PACKET_CVS) as u64,
            })
            .collect()
    }
}
