//! The receiver's side of the hash tree: proven pages, and blocks that are checked against them.

use std::collections::BTreeMap;

use super::page::{
    ChainingValue, MergeKind, PAGE_BITS, PAGE_CVS, block_cv, levels, merge_page, page_len, page_of, pages,
};
use crate::id::{BLOCK_BYTES, ContentId, LENGTH_MAX};

/// The most pages that a [`Verifier`] keeps: 8 MiB of CVs, enough for 4 GiB in flight at once.
pub const PAGES_MAX: usize = 4096;

/// Checks blocks in any order against the name of their content.
///
/// A verifier keeps proven pages, at most [`PAGES_MAX`]. If there are more, it drops the page that was not
/// used for the longest time, but never the top page. A page is used when a block is checked with it, and
/// when a page below it is added. A page of level 0 is useless once its 64 blocks, which are one segment, are
/// done; call [`forget_page`](Self::forget_page) then. A dropped page is simply missing again.
#[derive(Clone, Debug)]
pub struct Verifier {
    id: ContentId,
    levels: u8,
    cached: BTreeMap<(u8, u64), CachedPage>,
    /// The number of uses of pages so far.
    clock: u64,
}

#[derive(Clone, Debug)]
struct CachedPage {
    cvs: Box<[ChainingValue]>,
    used: u64,
}

/// The result of checking a block's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckResult {
    /// The bytes are the content's. This is the block's CV; for a content of at most one block, its root.
    Valid(ChainingValue),
    /// The bytes are not the content's.
    Invalid,
    /// The page with the block's CV is missing.
    PageMissing,
}

/// The reason why a page is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageError {
    /// The content has no such page, or the page has another number of CVs.
    Shape,
    /// The page above this page is missing.
    ParentMissing,
    /// The page is not the content's: its sender lies, or has another file.
    Wrong,
}

impl core::fmt::Display for PageError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Shape => "the content has no such page of hashes",
            Self::ParentMissing => "the page of hashes above is missing",
            Self::Wrong => "the page of hashes is not the content's",
        })
    }
}

impl core::error::Error for PageError {}

impl Verifier {
    /// Creates a verifier of this content without pages.
    #[must_use]
    pub fn new(id: ContentId) -> Self {
        Self { id, levels: levels(&id), cached: BTreeMap::new(), clock: 0 }
    }

    /// Returns the content's name.
    #[must_use]
    pub const fn id(&self) -> ContentId {
        self.id
    }

    /// Returns the page, as (level, number), that must be added next before `block` can be checked: the
    /// highest missing one. Returns `None` if no page is missing: the block's CV is known, or the content
    /// needs no pages or has no such block.
    #[must_use]
    pub fn missing_page(&self, block: u64) -> Option<(u8, u64)> {
        if block >= self.id.blocks() {
            return None;
        }
        let mut missing = None;
        for level in 0..self.levels {
            let page = page_of(block, level);
            if self.cached.contains_key(&(level, page)) {
                break;
            }
            missing = Some((level, page));
        }
        missing
    }

    /// Whether this page is proven and kept.
    #[must_use]
    pub fn has_page(&self, level: u8, page: u64) -> bool {
        self.cached.contains_key(&(level, page))
    }

    /// Whether the page can be checked: the page above it is known, or it is the top page.
    #[must_use]
    pub fn can_check(&self, level: u8, page: u64) -> bool {
        level + 1 == self.levels || self.has_page(level + 1, page >> PAGE_BITS)
    }

    /// Adds a page if it is right, as the page above it or the root proves.
    ///
    /// # Errors
    /// If the page is not accepted; the error says why. Nothing has changed then.
    pub fn add_page(&mut self, level: u8, page: u64, cvs: &[ChainingValue]) -> Result<(), PageError> {
        if level >= self.levels
            || page >= pages(&self.id, level)
            || cvs.len() != page_len(&self.id, level, page)
        {
            return Err(PageError::Shape);
        }
        self.clock += 1;
        if let Some(held) = self.cached.get_mut(&(level, page)) {
            held.used = self.clock;
            return if *held.cvs == *cvs { Ok(()) } else { Err(PageError::Wrong) };
        }
        let proven = if level + 1 == self.levels {
            merge_page(cvs, MergeKind::Root) == self.id.root
        } else {
            let parent =
                self.cached.get_mut(&(level + 1, page >> PAGE_BITS)).ok_or(PageError::ParentMissing)?;
            parent.used = self.clock;
            parent.cvs.get((page % PAGE_CVS) as usize) == Some(&merge_page(cvs, MergeKind::Inner))
        };
        if !proven {
            return Err(PageError::Wrong);
        }
        if self.cached.len() >= PAGES_MAX {
            self.evict();
        }
        self.cached.insert((level, page), CachedPage { cvs: cvs.into(), used: self.clock });
        Ok(())
    }

    /// Returns the CV that a block must have, if it is known. It is never known for a content of at most one
    /// block.
    pub fn cv(&mut self, block: u64) -> Option<ChainingValue> {
        let held = self.cached.get_mut(&(0, page_of(block, 0)))?;
        self.clock += 1;
        held.used = self.clock;
        held.cvs.get((block % PAGE_CVS) as usize).copied()
    }

    /// Checks all bytes of a block, without padding. The empty content is checked as block 0.
    pub fn check(&mut self, block: u64, bytes: &[u8]) -> CheckResult {
        let blocks_max = LENGTH_MAX / BLOCK_BYTES as u64;
        if bytes.len() != self.id.block_len(block) || (block > 0 && bytes.is_empty()) || block >= blocks_max {
            return CheckResult::Invalid;
        }
        if self.levels == 0 {
            let good = *blake3::hash(bytes).as_bytes() == self.id.root;
            return if good { CheckResult::Valid(self.id.root) } else { CheckResult::Invalid };
        }
        match self.cv(block) {
            None => CheckResult::PageMissing,
            Some(cv) if block_cv(block, bytes) == cv => CheckResult::Valid(cv),
            Some(_) => CheckResult::Invalid,
        }
    }

    /// Drops a page, if it is kept.
    pub fn forget_page(&mut self, level: u8, page: u64) {
        self.cached.remove(&(level, page));
    }

    /// Returns the number of pages that are kept, at most [`PAGES_MAX`].
    #[must_use]
    pub fn pages_cached(&self) -> usize {
        self.cached.len()
    }

    /// Drops the page that was not used for the longest time. This walks over all pages, but at most once per
    /// MiB of content, and only if finished segments are not forgotten.
    fn evict(&mut self) {
        let top = self.levels - 1;
        let others = self.cached.iter().filter(|((level, _), _)| *level != top);
        if let Some(key) = others.min_by_key(|(_, held)| held.used).map(|(key, _)| *key) {
            self.cached.remove(&key);
        }
    }
}
