//! Operations on the verifier of a small content: only true pages and true bytes are taken, and a page is
//! taken exactly when the one above it is there.
#![no_main]

use std::collections::BTreeSet;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use anabranch_mmtp::id::BLOCK_BYTES;
use anabranch_mmtp::tree::{
    ChainingValue, CheckResult, Outboard, PAGE_CVS, PageError, Verifier, block_cv, levels, pages,
};

/// 64 × 64 + 70 blocks, three levels: blocks of the same byte, the last one shorter.
static TREE: LazyLock<Outboard> = LazyLock::new(|| {
    let count = PAGE_CVS * PAGE_CVS + 70;
    let leaves = (0..count).map(|block| block_cv(block, &block_bytes(block, count))).collect();
    Outboard::from_leaves(leaves, (count - 1) * BLOCK_BYTES as u64 + 5).expect("two blocks and more")
});

fn block_bytes(block: u64, count: u64) -> Vec<u8> {
    vec![block as u8; if block == count - 1 { 5 } else { BLOCK_BYTES }]
}

fuzz_target!(|bytes: &[u8]| {
    let id = TREE.id();
    let count = id.blocks();
    let mut verifier = Verifier::new(id);
    let mut model: BTreeSet<(u8, u64)> = BTreeSet::new();
    let (operations, _) = bytes.as_chunks::<6>();
    for &[operation, level, hi, lo, at, change] in operations {
        let number = u64::from(u16::from_be_bytes([hi, lo]));
        let level = level % 5;
        match operation % 4 {
            // A page, perhaps with a changed bit, perhaps of the wrong length, perhaps of nowhere.
            0 | 1 => {
                let page = if operation & 4 == 0 { number % 70 } else { number };
                let mut cvs: Vec<ChainingValue> =
                    TREE.cvs(level, page * PAGE_CVS, PAGE_CVS as usize).unwrap_or(&[]).to_vec();
                let exists = level < levels(&id) && page < pages(&id, level);
                assert_eq!(exists, !cvs.is_empty());
                let (mut shape, mut right) = (exists, true);
                match change {
                    0..200 => {}
                    200..230 => {
                        if let Some(cv) = cvs.get_mut(usize::from(at)) {
                            cv[usize::from(change) % 32] ^= 1 << (at % 8);
                            right = false;
                        }
                    }
                    _ => {
                        cvs.resize(usize::from(at), [0; 32]);
                        shape = shape
                            && cvs.len()
                                == TREE.cvs(level, page * PAGE_CVS, 64).map_or(0, <[ChainingValue]>::len);
                    }
                }
                let top = level + 1 == levels(&id);
                let parent =
                    top || model.contains(&(level, page)) || model.contains(&(level + 1, page / PAGE_CVS));
                let expected = match (shape, parent, right) {
                    (false, _, _) => Err(PageError::Shape),
                    (true, false, _) => Err(PageError::ParentMissing),
                    (true, true, false) => Err(PageError::Wrong),
                    (true, true, true) => Ok(()),
                };
                assert_eq!(verifier.add_page(level, page, &cvs), expected);
                if expected.is_ok() {
                    model.insert((level, page));
                }
            }
            2 => {
                let block = number % (count + 2);
                let mut bytes = if block < count { block_bytes(block, count) } else { Vec::new() };
                let changed = change >= 128 && !bytes.is_empty();
                if changed {
                    let at = usize::from(at) % bytes.len();
                    bytes[at] ^= 1;
                }
                let result = match () {
                    () if block >= count => CheckResult::Invalid,
                    () if !model.contains(&(0, block / PAGE_CVS)) => CheckResult::PageMissing,
                    () if changed => CheckResult::Invalid,
                    () => CheckResult::Valid(TREE.leaves()[block as usize]),
                };
                assert_eq!(verifier.check(block, &bytes), result);
                // What is missing is what can be added next.
                if let Some((level, page)) = verifier.missing_page(block) {
                    assert!(!model.contains(&(level, page)));
                    assert!(level + 1 == levels(&id) || model.contains(&(level + 1, page / PAGE_CVS)));
                }
            }
            _ => {
                verifier.forget_page(level, number % 70);
                model.remove(&(level, number % 70));
            }
        }
        assert_eq!(verifier.pages_cached(), model.len());
    }
});
