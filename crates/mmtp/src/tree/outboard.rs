//! The source's side of the tree: every list, made once from the groups.

use super::{Cv, Finish, PAGE, group_cv, levels, merge_page};
use crate::id::{ContentId, GROUP_BYTES};

/// The hash tree of a content: all its lists. It takes 32.5 bytes for each group of 16 KiB, 0.2 % of the
/// content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outboard {
    id: ContentId,
    /// Level 0 first; none for a content of at most one group.
    lists: Vec<Vec<Cv>>,
}

impl Outboard {
    /// The tree over these groups' CVs (see [`group_cv`]), of a content of `length` bytes. `None` if that
    /// many bytes are not that many groups, or not at least two (see [`bare`](Self::bare)).
    #[must_use]
    pub fn from_leaves(leaves: Vec<Cv>, length: u64) -> Option<Self> {
        let mut id = ContentId { root: [0; 32], length };
        if id.groups() < 2 || id.groups() != leaves.len() as u64 {
            return None;
        }
        let mut lists = Vec::with_capacity(usize::from(levels(&id)));
        let mut list = leaves;
        while list.len() as u64 > PAGE {
            let above = list.chunks(PAGE as usize).map(|page| merge_page(page, Finish::Inner)).collect();
            lists.push(std::mem::replace(&mut list, above));
        }
        id.root = merge_page(&list, Finish::Root);
        lists.push(list);
        Some(Self { id, lists })
    }

    /// The tree of a content of at most one group: nothing but its name. `None` if it has more.
    #[must_use]
    pub fn bare(id: ContentId) -> Option<Self> {
        (id.groups() <= 1).then_some(Self { id, lists: Vec::new() })
    }

    /// The tree of these bytes.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let groups = bytes.chunks(GROUP_BYTES);
        let leaves = (0..).zip(groups).map(|(index, group)| group_cv(index, group)).collect();
        Self::from_leaves(leaves, bytes.len() as u64)
            .unwrap_or_else(|| Self { id: ContentId::of(bytes), lists: Vec::new() })
    }

    /// The content's name.
    #[must_use]
    pub const fn id(&self) -> ContentId {
        self.id
    }

    /// At most `n` CVs of level `level`, from number `first` on; fewer at the end of the list. `None` if
    /// there are none.
    #[must_use]
    pub fn cvs(&self, level: u8, first: u64, n: usize) -> Option<&[Cv]> {
        let list = self.lists.get(usize::from(level))?;
        let from = list.get(usize::try_from(first).ok()?..)?;
        let some = &from[..n.min(from.len())];
        (!some.is_empty()).then_some(some)
    }

    /// The CVs of all groups; none for a content of at most one.
    #[must_use]
    pub fn leaves(&self) -> &[Cv] {
        self.lists.first().map_or(&[], Vec::as_slice)
    }
}
