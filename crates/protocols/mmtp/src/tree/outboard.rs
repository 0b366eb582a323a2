//! The source's side of the hash tree: all lists, computed once from the blocks.

use super::page::{ChainingValue, MergeKind, PAGE_CVS, block_cv, levels, merge_page};
use crate::id::{BLOCK_BYTES, ContentId};

/// The hash tree of a content: all its lists. It takes 32.5 bytes for each block of 16 KiB, 0.2 % of the
/// content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outboard {
    id: ContentId,
    /// The lists, level 0 first; empty for a content of at most one block.
    lists: Vec<Vec<ChainingValue>>,
}

impl Outboard {
    /// Builds the tree over the CVs of all blocks (see [`block_cv`]) of a content of `length` bytes. Returns
    /// `None` if the content has another number of blocks, or fewer than two (see [`bare`](Self::bare)).
    #[must_use]
    pub fn from_leaves(leaves: Vec<ChainingValue>, length: u64) -> Option<Self> {
        let mut id = ContentId { root: [0; 32], length };
        if id.blocks() < 2 || id.blocks() != leaves.len() as u64 {
            return None;
        }
        let mut lists = Vec::with_capacity(usize::from(levels(&id)));
        let mut list = leaves;
        while list.len() as u64 > PAGE_CVS {
            let above =
                list.chunks(PAGE_CVS as usize).map(|page| merge_page(page, MergeKind::Inner)).collect();
            lists.push(std::mem::replace(&mut list, above));
        }
        id.root = merge_page(&list, MergeKind::Root);
        lists.push(list);
        Some(Self { id, lists })
    }

    /// Creates the tree of a content of at most one block, which is only its name. Returns `None` if the
    /// content has more blocks.
    #[must_use]
    pub fn bare(id: ContentId) -> Option<Self> {
        (id.blocks() <= 1).then_some(Self { id, lists: Vec::new() })
    }

    /// Computes the tree of these bytes.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let blocks = bytes.chunks(BLOCK_BYTES);
        let leaves = (0..).zip(blocks).map(|(index, block)| block_cv(index, block)).collect();
        Self::from_leaves(leaves, bytes.len() as u64)
            .unwrap_or_else(|| Self { id: ContentId::of(bytes), lists: Vec::new() })
    }

    /// Returns the content's name.
    #[must_use]
    pub const fn id(&self) -> ContentId {
        self.id
    }

    /// Returns at most `n` CVs of a level, from number `first` on; fewer at the end of the list. Returns
    /// `None` if there are none.
    #[must_use]
    pub fn cvs(&self, level: u8, first: u64, n: usize) -> Option<&[ChainingValue]> {
        let list = self.lists.get(usize::from(level))?;
        let from = list.get(usize::try_from(first).ok()?..)?;
        let some = &from[..n.min(from.len())];
        (!some.is_empty()).then_some(some)
    }

    /// Returns the CVs of all blocks; none for a content of at most one block.
    #[must_use]
    pub fn leaves(&self) -> &[ChainingValue] {
        self.lists.first().map_or(&[], Vec::as_slice)
    }
}
