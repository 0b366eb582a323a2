//! The receiver's side of the tree: pages that are proven, and groups checked against them.

use std::collections::BTreeMap;

use super::{Cv, Finish, PAGE, PAGE_BITS, group_cv, levels, merge_page, page_len, page_of, pages};
use crate::id::{ContentId, GROUP_BYTES, LENGTH_MAX};

/// Pages that a [`Verifier`] holds: 8 MiB of CVs, enough for 4 GiB in flight at once.
pub const PAGES_MAX: usize = 4096;

/// Checks groups in any order against the name of their content.
///
/// It holds proven pages, at most [`PAGES_MAX`]. When they are too many, the one that was longest of no use
/// goes (used are: a page when a group is checked with it, and the parent when a page is added), but never
/// the top page. A page of level 0 is of no use once its 64 groups, which are one segment, are done:
/// [`forget_page`](Self::forget_page) then. A page that went is simply missing again.
#[derive(Clone, Debug)]
pub struct Verifier {
    id: ContentId,
    levels: u8,
    held: BTreeMap<(u8, u64), Held>,
    /// Counts uses.
    clock: u64,
}

#[derive(Clone, Debug)]
struct Held {
    cvs: Box<[Cv]>,
    used: u64,
}

/// What is known of a group's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They are the content's. With the group's CV; for a content of at most one group, its root.
    Good(Cv),
    /// They are not.
    Bad,
    /// The page that would tell is missing.
    Unknown,
}

/// Why a page is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPage {
    /// The content has no such page, or one with another number of CVs.
    Shape,
    /// The page above it is missing.
    Orphan,
    /// It is not the content's: who sent it lies, or has another file.
    Wrong,
}

impl core::fmt::Display for BadPage {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Shape => "the content has no such page of hashes",
            Self::Orphan => "the page of hashes above is missing",
            Self::Wrong => "the page of hashes is not the content's",
        })
    }
}

impl core::error::Error for BadPage {}

impl Verifier {
    /// A verifier of this content that holds no page yet.
    #[must_use]
    pub fn new(id: ContentId) -> Self {
        Self { id, levels: levels(&id), held: BTreeMap::new(), clock: 0 }
    }

    /// The content's name.
    #[must_use]
    pub const fn id(&self) -> ContentId {
        self.id
    }

    /// The page, as (level, number), that must be added next before group `group` can be checked: the highest
    /// that is missing. `None` if nothing is: the group's CV is known, or the content needs no pages, or has
    /// no such group.
    #[must_use]
    pub fn missing_page(&self, group: u64) -> Option<(u8, u64)> {
        if group >= self.id.groups() {
            return None;
        }
        let mut missing = None;
        for level in 0..self.levels {
            let page = page_of(group, level);
            if self.held.contains_key(&(level, page)) {
                break;
            }
            missing = Some((level, page));
        }
        missing
    }

    /// Whether this page is proven and held.
    #[must_use]
    pub fn holds(&self, level: u8, page: u64) -> bool {
        self.held.contains_key(&(level, page))
    }

    /// Whether what this page is to be checked against is known: the root, or the page above.
    #[must_use]
    pub fn can_check(&self, level: u8, page: u64) -> bool {
        level + 1 == self.levels || self.holds(level + 1, page >> PAGE_BITS)
    }

    /// Takes page `page` of level `level` if it proves right against the page above it, or the root.
    ///
    /// # Errors
    /// Why not; then nothing has changed.
    pub fn add_page(&mut self, level: u8, page: u64, cvs: &[Cv]) -> Result<(), BadPage> {
        if level >= self.levels
            || page >= pages(&self.id, level)
            || cvs.len() != page_len(&self.id, level, page)
        {
            return Err(BadPage::Shape);
        }
        self.clock += 1;
        if let Some(held) = self.held.get_mut(&(level, page)) {
            held.used = self.clock;
            return if *held.cvs == *cvs { Ok(()) } else { Err(BadPage::Wrong) };
        }
        let proven = if level + 1 == self.levels {
            merge_page(cvs, Finish::Root) == self.id.root
        } else {
            let parent = self.held.get_mut(&(level + 1, page >> PAGE_BITS)).ok_or(BadPage::Orphan)?;
            parent.used = self.clock;
            parent.cvs.get((page % PAGE) as usize) == Some(&merge_page(cvs, Finish::Inner))
        };
        if !proven {
            return Err(BadPage::Wrong);
        }
        if self.held.len() >= PAGES_MAX {
            self.evict();
        }
        self.held.insert((level, page), Held { cvs: cvs.into(), used: self.clock });
        Ok(())
    }

    /// The CV that group `group` must have, if known; never for a content of at most one group.
    pub fn cv(&mut self, group: u64) -> Option<Cv> {
        let held = self.held.get_mut(&(0, page_of(group, 0)))?;
        self.clock += 1;
        held.used = self.clock;
        held.cvs.get((group % PAGE) as usize).copied()
    }

    /// Checks the bytes of group `group`, all of them, without padding. The content of no bytes is checked as
    /// group 0.
    pub fn check(&mut self, group: u64, bytes: &[u8]) -> Verdict {
        let groups_max = LENGTH_MAX / GROUP_BYTES as u64;
        if bytes.len() != self.id.group_len(group) || (group > 0 && bytes.is_empty()) || group >= groups_max {
            return Verdict::Bad;
        }
        if self.levels == 0 {
            let good = *blake3::hash(bytes).as_bytes() == self.id.root;
            return if good { Verdict::Good(self.id.root) } else { Verdict::Bad };
        }
        match self.cv(group) {
            None => Verdict::Unknown,
            Some(cv) if group_cv(group, bytes) == cv => Verdict::Good(cv),
            Some(_) => Verdict::Bad,
        }
    }

    /// Drops a page, if held.
    pub fn forget_page(&mut self, level: u8, page: u64) {
        self.held.remove(&(level, page));
    }

    /// Number of pages held, at most [`PAGES_MAX`].
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Drops the page that was longest of no use. A walk over all of them, but at most once for a MiB of
    /// content, and only where finished segments are not forgotten.
    fn evict(&mut self) {
        let top = self.levels - 1;
        let others = self.held.iter().filter(|((level, _), _)| *level != top);
        if let Some(key) = others.min_by_key(|(_, held)| held.used).map(|(key, _)| *key) {
            self.held.remove(&key);
        }
    }
}
