//! Levels, pages and their arithmetic; merging chaining values as BLAKE3 does.

use blake3::hazmat::{self, HasherExt as _, Mode};

use crate::id::{BLOCK_BYTES, ContentId, SEGMENT_BLOCKS};

/// A chaining value: the hash of a subtree that is not the whole tree.
pub type ChainingValue = [u8; 32];

/// CVs of a page: one over a segment proves its blocks.
pub const PAGE_CVS: u64 = SEGMENT_BLOCKS;
/// CVs in one HASHES packet: half a page, 1,024 bytes.
pub const PACKET_CVS: usize = PAGE_CVS as usize / 2;
/// Levels that the longest content has: 2³² blocks, then 2²⁶, 2²⁰, 2¹⁴, 2⁸, 2² CVs.
pub const LEVELS_MAX: u8 = 6;

/// The bits of an index within a page.
pub(super) const PAGE_BITS: u32 = PAGE_CVS.trailing_zeros();

/// The CV of block `index`, whose bytes these are: all of them, 1 to [`BLOCK_BYTES`], less than that only in
/// the last block. Not for a content of one block, whose hash is the root itself.
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

/// Number of levels of the tree: 0 for a content of at most one block.
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

/// Number of CVs of level `level`; 0 if there is no such level.
#[must_use]
pub fn cvs(id: &ContentId, level: u8) -> u64 {
    if level < levels(id) { id.blocks().div_ceil(1 << (PAGE_BITS * u32::from(level))) } else { 0 }
}

/// Number of pages of level `level`; 0 if there is no such level.
#[must_use]
pub fn pages(id: &ContentId, level: u8) -> u64 {
    cvs(id, level).div_ceil(PAGE_CVS)
}

/// Number of CVs in page `page` of level `level`: 64, fewer in the last one, 0 beyond.
#[must_use]
pub fn page_len(id: &ContentId, level: u8, page: u64) -> usize {
    let first = page.saturating_mul(PAGE_CVS);
    cvs(id, level).saturating_sub(first).min(PAGE_CVS) as usize
}

/// The page of level `level` on the way to block `block`.
#[must_use]
pub const fn page_of(block: u64, level: u8) -> u64 {
    match block.checked_shr(PAGE_BITS * (level as u32 + 1)) {
        Some(page) => page,
        None => 0,
    }
}

/// Whether a merge is the last one.
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

/// Merges a page of 1 to 64 CVs as BLAKE3's tree does: neighbours pair up, an odd one passes to the next
/// round. A page of one that is to be the root is none: it passes through.
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

/// The root over the CVs of all blocks in order, in memory that grows with the logarithm of their number.
/// `None` for fewer than two: the root of one block is the hash of its bytes.
#[must_use]
pub fn root_of_leaves(leaves: impl IntoIterator<Item = ChainingValue>) -> Option<[u8; 32]> {
    // As in BLAKE3's own hasher: subtrees of falling size, one for each bit of the number of leaves before
    // the newest one. Merging is put off until the next leaf comes, because the last merge is another
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
