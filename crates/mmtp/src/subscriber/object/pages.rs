//! Pages of the hash tree: which are to be asked, and what they prove when they come.

use super::{Object, Outcome, Page, SourceId, What};
use crate::id::SEGMENT_GROUPS;
use crate::tree::{self, Cv};

impl Object {
    /// The chaining values still to be asked before `group` can be verified, as (level, first): all missing
    /// pages on the way from the root. They count as asked from now on. What somebody else was asked for is
    /// left out, unless `anew`: a path that has not been heard of yet must not make the others wait.
    pub(in crate::subscriber) fn ask_pages(&mut self, group: u64, anew: bool) -> Vec<(u8, u64)> {
        while let Some((level, page)) = self.verifier.missing_page(group) {
            let known = self
                .outboard
                .as_ref()
                .and_then(|tree| tree.cvs(level, page * tree::PAGE, tree::page_len(&self.id, level, page)));
            let Some(known) = known else { break };
            if self.verifier.add_page(level, page, known).is_err() {
                break;
            }
        }
        if self.verifier.missing_page(group).is_none() {
            return Vec::new();
        }
        let mut asks = Vec::new();
        let mut page = group;
        for level in 0..tree::levels(&self.id) {
            page /= tree::PAGE;
            if self.verifier.holds(level, page) {
                break;
            }
            if !anew && self.pages.contains_key(&(level, page)) {
                continue;
            }
            self.pages.entry((level, page)).or_default();
            for half in 0..self.halves(level, page) {
                asks.push((level, page * tree::PAGE + (half * tree::HASH_CHUNK) as u64));
            }
        }
        asks.reverse();
        asks
    }

    fn page_cvs(&self, level: u8, page: u64) -> usize {
        let left = tree::cvs(&self.id, level).saturating_sub(page * tree::PAGE);
        usize::try_from(left.min(tree::PAGE)).unwrap_or(0)
    }

    fn halves(&self, level: u8, page: u64) -> usize {
        self.page_cvs(level, page).div_ceil(tree::HASH_CHUNK)
    }

    /// How many chaining values the packet that begins at `first` has.
    pub(in crate::subscriber) fn hash_count(&self, level: u8, first: u64) -> usize {
        let left = tree::cvs(&self.id, level).saturating_sub(first);
        usize::try_from(left).unwrap_or(usize::MAX).min(tree::HASH_CHUNK)
    }

    /// Verifies pages from the top down, then the groups that waited for them.
    pub(super) fn settle_pages(&mut self, outcome: &mut Outcome) {
        loop {
            let ready = self.pages.iter().rev().find_map(|(&(level, number), page)| {
                let halves = self.halves(level, number);
                let here = page.halves.iter().take(halves).all(Option::is_some);
                let parent = self.verifier.can_check(level, number);
                (here && parent).then_some((level, number))
            });
            let Some((level, number)) = ready else { return };
            let Some(page) = self.pages.remove(&(level, number)) else { return };
            let cvs: Vec<Cv> = page.halves.into_iter().flatten().flatten().collect();
            if self.verifier.add_page(level, number, &cvs).is_err() {
                let senders: Vec<SourceId> = page.from.into_iter().flatten().collect();
                let mixed = senders.iter().any(|s| *s != senders[0]);
                if !mixed {
                    let groups = tree::PAGE.saturating_pow(u32::from(level) + 1);
                    outcome.liars.push((senders[0], number.saturating_mul(groups)));
                }
                self.pages.insert((level, number), Page { alone: mixed, ..Page::default() });
                outcome.again.extend(self.page_asks(level, number));
                return;
            }
            if level == 0 {
                let first = number * SEGMENT_GROUPS;
                let waiting: Vec<u64> =
                    self.partials.range(first..first + SEGMENT_GROUPS).map(|(&group, _)| group).collect();
                for group in waiting {
                    self.settle(group, outcome);
                }
            }
        }
    }

    /// Both packets of a page, for asking them again.
    pub(super) fn page_asks(&self, level: u8, number: u64) -> Vec<What> {
        (0..self.halves(level, number))
            .map(|half| What::Hash { level, first: number * tree::PAGE + (half * tree::HASH_CHUNK) as u64 })
            .collect()
    }
}
