//! Compares the hash tree with BLAKE3 itself, and with bao-tree as an independent oracle.

use anabranch_mmtp::ContentId;
use anabranch_mmtp::id::BLOCK_BYTES;
use anabranch_mmtp::tree::{
    ChainingValue, CheckResult, Outboard, PAGE_CVS, PAGES_MAX, PageError, Verifier, block_cv, cvs, levels,
    page_len, pages, root_of_leaves,
};
use bao_tree::BlockSize;
use bao_tree::io::outboard::PreOrderMemOutboard;
use proptest::prelude::*;

/// Returns bytes that differ from block to block.
fn bytes(len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    blake3::Hasher::new().update(&len.to_le_bytes()).finalize_xof().fill(&mut out);
    out
}

const SIZES: [usize; 16] = [
    0,
    1,
    1_023,
    1_024,
    1_025,
    16_383,
    16_384,
    16_385,
    32_767,
    32_768,
    32_769,
    3 * BLOCK_BYTES,
    64 * BLOCK_BYTES,
    64 * BLOCK_BYTES + 1,
    65 * BLOCK_BYTES + 7,
    191 * BLOCK_BYTES + 16_000,
];

#[test]
fn the_root_is_the_blake3_hash() {
    for size in SIZES {
        let bytes = bytes(size);
        let outboard = Outboard::of_bytes(&bytes);
        assert_eq!(outboard.id(), ContentId::of(&bytes), "{size}");
        let streamed = root_of_leaves(outboard.leaves().iter().copied());
        assert_eq!(streamed, (size > BLOCK_BYTES).then_some(outboard.id().root), "{size}");
    }
}

/// The content has three levels: 64 × 64 zero blocks and one byte more.
#[test]
fn three_levels_of_zeros() {
    let block = [0; BLOCK_BYTES];
    let count = PAGE_CVS * PAGE_CVS + 1;
    let mut leaves: Vec<ChainingValue> = (0..count - 1).map(|i| block_cv(i, &block)).collect();
    leaves.push(block_cv(count - 1, &[0]));
    let length = (count - 1) * BLOCK_BYTES as u64 + 1;
    let mut whole = blake3::Hasher::new();
    for _ in 1..count {
        whole.update(&block);
    }
    whole.update(&[0]);
    let outboard = Outboard::from_leaves(leaves, length).unwrap();
    let id = outboard.id();
    assert_eq!(id.root, *whole.finalize().as_bytes());
    assert_eq!(root_of_leaves(outboard.leaves().iter().copied()), Some(id.root));
    assert_eq!((levels(&id), cvs(&id, 0), cvs(&id, 1), cvs(&id, 2), cvs(&id, 3)), (3, 4097, 65, 2, 0));
    assert_eq!((pages(&id, 0), pages(&id, 1), pages(&id, 2)), (65, 2, 1));
    // On the way down to the last block, pages of one CV pass it on unchanged.
    let mut verifier = Verifier::new(id);
    for expected in [(2, 0), (1, 1), (0, 64)] {
        let (level, page) = verifier.missing_page(count - 1).unwrap();
        assert_eq!((level, page), expected);
        add(&mut verifier, &outboard, level, page).unwrap();
    }
    assert_eq!(verifier.check(count - 1, &[0]), CheckResult::Valid(outboard.leaves()[count as usize - 1]));
    assert_eq!(verifier.check(count - 1, &[1]), CheckResult::Invalid);
    assert_eq!(verifier.check(0, &block), CheckResult::PageMissing);
}

/// bao-tree's outboard in pre-order lists the tree's inner nodes as pairs of CVs. At a block size of 16 KiB
/// its lowest nodes hold our leaves, in order.
#[test]
fn bao_tree_has_the_same_root_and_leaves() {
    let block_size = BlockSize::from_chunk_log(4);
    for size in SIZES.into_iter().filter(|size| *size > BLOCK_BYTES) {
        let bytes = bytes(size);
        let outboard = Outboard::of_bytes(&bytes);
        let oracle = PreOrderMemOutboard::create(&bytes, block_size);
        assert_eq!(*oracle.root.as_bytes(), outboard.id().root);
        let (pairs, rest) = oracle.data.as_chunks::<64>();
        assert!(rest.is_empty());
        let mut pairs = pairs.iter();
        let leaves = in_order(&mut pairs, outboard.leaves().len());
        assert!(pairs.next().is_none());
        assert_eq!(leaves, outboard.leaves(), "{size}");
    }
}

/// Returns the leaves of a pre-order subtree of `count` blocks.
fn in_order<'a>(pairs: &mut impl Iterator<Item = &'a [u8; 64]>, count: usize) -> Vec<ChainingValue> {
    let pair = pairs.next().unwrap();
    let left = count.next_power_of_two() / 2;
    let mut leaves = Vec::new();
    for (cv, count) in [(&pair[..32], left), (&pair[32..], count - left)] {
        match count {
            1 => leaves.push(cv.try_into().unwrap()),
            _ => leaves.extend(in_order(pairs, count)),
        }
    }
    leaves
}

fn add(verifier: &mut Verifier, outboard: &Outboard, level: u8, page: u64) -> Result<(), PageError> {
    verifier.add_page(level, page, outboard.cvs(level, page * PAGE_CVS, PAGE_CVS as usize).unwrap())
}

#[test]
fn one_block_needs_no_pages() {
    for size in [0, 1, BLOCK_BYTES] {
        let bytes = bytes(size);
        let id = ContentId::of(&bytes);
        let mut verifier = Verifier::new(id);
        assert_eq!(verifier.missing_page(0), None);
        assert_eq!(verifier.check(0, &bytes), CheckResult::Valid(id.root));
        assert_eq!(verifier.check(1, &[]), CheckResult::Invalid);
        assert_eq!(verifier.check(0, &vec![0; size + 1]), CheckResult::Invalid);
        assert_eq!(verifier.add_page(0, 0, &[id.root]), Err(PageError::Shape));
        assert_eq!(Outboard::bare(id).unwrap(), Outboard::of_bytes(&bytes));
        assert_eq!(Outboard::of_bytes(&bytes).cvs(0, 0, 1), None);
    }
    let mut lie = Verifier::new(ContentId { root: [0; 32], length: 0 });
    assert_eq!(lie.check(0, &[]), CheckResult::Invalid);
    assert_eq!(Outboard::from_leaves(vec![[0; 32]], 5), None);
    assert_eq!(Outboard::from_leaves(vec![[0; 32]; 3], 2 * BLOCK_BYTES as u64), None);
    assert_eq!(Outboard::bare(ContentId { root: [0; 32], length: BLOCK_BYTES as u64 + 1 }), None);
}

#[test]
fn wrong_pages_are_refused_and_change_nothing() {
    let bytes = bytes(70 * BLOCK_BYTES + 5);
    let outboard = Outboard::of_bytes(&bytes);
    let mut verifier = Verifier::new(outboard.id());
    assert_eq!(add(&mut verifier, &outboard, 0, 1), Err(PageError::ParentMissing));
    let top = outboard.cvs(1, 0, 64).unwrap();
    assert_eq!(verifier.add_page(1, 0, &[top[1], top[0]]), Err(PageError::Wrong));
    assert_eq!(verifier.add_page(1, 0, &top[..1]), Err(PageError::Shape));
    assert_eq!(verifier.add_page(1, 1, top), Err(PageError::Shape));
    assert_eq!(verifier.add_page(2, 0, top), Err(PageError::Shape));
    assert_eq!(verifier.add_page(1, 0, top), Ok(()));
    assert_eq!(verifier.add_page(1, 0, &[top[1], top[0]]), Err(PageError::Wrong));
    let mut page = outboard.cvs(0, 64, 64).unwrap().to_vec();
    assert_eq!(page.len(), page_len(&outboard.id(), 0, 1));
    page[3][31] ^= 1;
    assert_eq!(verifier.add_page(0, 1, &page), Err(PageError::Wrong));
    assert_eq!(verifier.pages_cached(), 1);
    add(&mut verifier, &outboard, 0, 1).unwrap();
    add(&mut verifier, &outboard, 0, 1).unwrap();
    assert_eq!(verifier.missing_page(70), None);
    assert_eq!(verifier.missing_page(71), None);
    assert_eq!(verifier.missing_page(63), Some((0, 0)));
    verifier.forget_page(0, 1);
    assert_eq!(verifier.missing_page(70), Some((0, 1)));
}

/// The Outboard of made-up leaves stands for a content that is too long for memory. The verifier's memory is
/// bounded, and the top page and pages in use stay.
#[test]
fn pages_are_bounded() {
    let count = (PAGES_MAX as u64 + 500) * PAGE_CVS;
    let leaf = |i: u64| *blake3::hash(&i.to_le_bytes()).as_bytes();
    let outboard = Outboard::from_leaves((0..count).map(leaf).collect(), count * BLOCK_BYTES as u64).unwrap();
    let mut verifier = Verifier::new(outboard.id());
    let mut added = 0;
    for block in (0..count).step_by(PAGE_CVS as usize) {
        while let Some((level, page)) = verifier.missing_page(block) {
            add(&mut verifier, &outboard, level, page).unwrap();
            added += 1;
        }
        assert!(verifier.pages_cached() <= PAGES_MAX);
        // The page of block 5 is used all the time.
        assert_eq!(verifier.cv(5), Some(leaf(5)));
        assert_eq!(verifier.cv(block), Some(leaf(block)));
    }
    // No page was asked for twice.
    assert_eq!(added, (0..4).map(|level| pages(&outboard.id(), level)).sum::<u64>());
    assert_eq!(verifier.pages_cached(), PAGES_MAX);
    // Pages that were not used for long are missing again, from the highest dropped page on.
    assert_eq!(verifier.missing_page(64), Some((1, 0)));
    add(&mut verifier, &outboard, 1, 0).unwrap();
    assert_eq!(verifier.missing_page(64), Some((0, 1)));
    assert_eq!(verifier.pages_cached(), PAGES_MAX);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_size_any_order(
        size in 0_usize..6_000_000,
        mut order in Just((0_u64..400).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let bytes = bytes(size);
        let outboard = Outboard::of_bytes(&bytes);
        prop_assert_eq!(outboard.id(), ContentId::of(&bytes));
        let mut verifier = Verifier::new(outboard.id());
        order.retain(|block| *block < outboard.id().blocks());
        for block in order {
            while let Some((level, page)) = verifier.missing_page(block) {
                add(&mut verifier, &outboard, level, page).unwrap();
            }
            let from = block as usize * BLOCK_BYTES;
            let mut block_bytes = bytes[from..size.min(from + BLOCK_BYTES)].to_vec();
            let good = outboard.leaves().get(block as usize).copied().unwrap_or(outboard.id().root);
            prop_assert_eq!(verifier.check(block, &block_bytes), CheckResult::Valid(good));
            let last = block_bytes.len() - 1;
            block_bytes[last] ^= 0x80;
            prop_assert_eq!(verifier.check(block, &block_bytes), CheckResult::Invalid);
        }
    }

    /// The streaming root is the root of the lists, whatever the number of leaves.
    #[test]
    fn streaming_root(count in 2_u64..20_000) {
        let leaf = |i: u64| *blake3::hash(&i.to_le_bytes()).as_bytes();
        let leaves: Vec<ChainingValue> = (0..count).map(leaf).collect();
        let outboard = Outboard::from_leaves(leaves.clone(), count * BLOCK_BYTES as u64).unwrap();
        prop_assert_eq!(root_of_leaves(leaves), Some(outboard.id().root));
    }
}

#[test]
fn no_leaves_no_root() {
    assert_eq!(root_of_leaves([]), None);
    assert_eq!(root_of_leaves([[1; 32]]), None);
}
