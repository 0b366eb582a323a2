//! Levels and pages of the hash tree, their arithmetic, and the merging of chaining values as in BLAKE3.

use blake3::hazmat::{self, HasherExt as _, Mode};

use crate::id::{BLOCK_BYTES, ContentId, SEGMENT_BLOCKS};

/// A chaining value (CV): the hash of a subtree that is not the whole tree.
pub type ChainingValue = [u8; 32];

/// The CVs of a page. The page over a segment proves the segment's blocks.
pub const PAGE_CVS: u64 = SEGMENT_BLOCKS;
/// The CVs in one HASHES packet: half a page, 1,024 bytes.
pub const PACKET_CVS: usize = PAGE_CVS as usize / 2;
/// The number of levels of the longest content: 2³² blocks, then 2²⁶, 2²⁰, 2¹⁴, 2⁸ and 2² CVs.
pub const LEVELS_MAX: u8 = 6;

/// The number of bits of an index within a page.
pub(super) const PAGE_BITS: u32 = PAGE_CVS.trailing_zeros();

/// Computes the CV of block `index` from its bytes. There must be 1 to [`BLOCK_BYTES`] of them, and fewer
/// than [`BLOCK_BYTES`] only in the last block. A content of one block has no CVs: the hash of its block is
/// the root itself.
///
/// # Panics
/// If `index` is not below 2³².
#[must_use]
pub fn block_cv(index: u64, bytes: &[u8]) -> ChainingValue {
    assert!(index < 1 << 32, "no content has a block {index}");
    debug_assert!((1..=BLOCK_BYTES).contains(&bytes.len()));
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(index * BLOCK_BYTES as u64).update(bytes).finalize_non_root()
}

/// Returns the number of levels of the tree; 0 for a content of at most one block.
#[must_use]
pub fn levels(id: &ContentId) -> u8 {
    let (mut count, mut levels) = (id.blocks(), 0);
    if count <= 1 {
        return 0;
    }
    loop {
        levels += 1;
        if count <= PAGE_CVS {
            return levels;
        }
        count = count.div_ceil(PAGE_CVS);
    }
}

/// Returns the number of CVs of a level; 0 if there is no such level.
#[must_use]
pub fn cvs(id: &ContentId, level: u8) -> u64 {
    if level < levels(id) { id.blocks().div_ceil(1 << (PAGE_BITS * u32::from(level))) } else { 0 }
}

/// Returns the number of pages of a level; 0 if there is no such level.
#[must_use]
pub fn pages(id: &ContentId, level: u8) -> u64 {
    cvs(id, level).div_ceil(PAGE_CVS)
}

/// Returns the number of CVs of a page: 64, fewer in the last page of the level, 0 beyond it.
#[must_use]
pub fn page_len(id: &ContentId, level: u8, page: u64) -> usize {
    let first = page.saturating_mul(PAGE_CVS);
    cvs(id, level).saturating_sub(first).min(PAGE_CVS) as usize
}

/// Returns the page of level `level` on the way to `block`.
#[must_use]
pub const fn page_of(block: u64, level: u8) -> u64 {
    match block.checked_shr(PAGE_BITS * (level as u32 + 1)) {
        Some(page) => page,
        None => 0,
    }
}

/// Whether a merge gives the root.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MergeKind {
    Root,
    Inner,
}

fn merge_two(left: &ChainingValue, right: &ChainingValue, kind: MergeKind) -> ChainingValue {
    match kind {
        MergeKind::Root => *hazmat::merge_subtrees_root(left, right, Mode::Hash).as_bytes(),
        MergeKind::Inner => hazmat::merge_subtrees_non_root(left, right, Mode::Hash),
    }
}

/// Merges a page of 1 to 64 CVs as BLAKE3's tree does: neighbours pair up, and an odd one passes to the next
/// round. A page of one CV gives this CV unchanged; it can never be the page of the root.
pub(super) fn merge_page(page: &[ChainingValue], kind: MergeKind) -> ChainingValue {
    debug_assert!((1..=PAGE_CVS as usize).contains(&page.len()));
    let mut nodes = [[0; 32]; PAGE_CVS as usize];
    let mut count = page.len().min(PAGE_CVS as usize);
    nodes[..count].copy_from_slice(&page[..count]);
    while count > 1 {
        let last = if count == 2 { kind } else { MergeKind::Inner };
        for i in 0..count / 2 {
            nodes[i] = merge_two(&nodes[2 * i], &nodes[2 * i + 1], last);
        }
        if count % 2 == 1 {
            nodes[count / 2] = nodes[count - 1];
        }
        count = count.div_ceil(2);
    }
    nodes[0]
}

/// Computes the root over the CVs of all blocks in order. Memory grows with the logarithm of their number.
/// Returns `None` for fewer than two, because the root of one block is the hash of its bytes.
#[must_use]
pub fn root_of_leaves(leaves: impl IntoIterator<Item = ChainingValue>) -> Option<[u8; 32]> {
    // As in BLAKE3's own hasher, there are subtrees of falling size, one for each bit of the number of leaves
    // before the newest one. Merging waits until the next leaf comes, because the last merge is a different
    // function.
    let mut subtrees: Vec<ChainingValue> = Vec::with_capacity(u64::BITS as usize + 1);
    let mut count = 0_u64;
    for leaf in leaves {
        merge_until(&mut subtrees, count.count_ones() as usize);
        subtrees.push(leaf);
        count += 1;
    }
    if count < 2 {
        return None;
    }
    merge_until(&mut subtrees, 2);
    match subtrees[..] {
        [left, right] => Some(merge_two(&left, &right, MergeKind::Root)),
        _ => None,
    }
}

/// Merges the last two subtrees until at most `len` are left.
fn merge_until(subtrees: &mut Vec<ChainingValue>, len: usize) {
    while let [.., left, right] = subtrees[..]
        && subtrees.len() > len
    {
        subtrees.truncate(subtrees.len() - 2);
        subtrees.push(merge_two(&left, &right, MergeKind::Inner));
    }
}
