//! Operations on the verifier of a small content: only true pages and true bytes are taken, and a page is
//! taken exactly when the one above it is there.
#![no_main]

use std::collections::BTreeSet;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use mmtp::id::GROUP_BYTES;
use mmtp::tree::{BadPage, Cv, Outboard, PAGE, Verdict, Verifier, group_cv, levels, pages};

/// 64 × 64 + 70 groups, three levels: groups of the same byte, the last one shorter.
static TREE: LazyLock<Outboard> = LazyLock::new(|| {
    let count = PAGE * PAGE + 70;
    let leaves = (0..count).map(|group| group_cv(group, &group_bytes(group, count))).collect();
    Outboard::from_leaves(leaves, (count - 1) * GROUP_BYTES as u64 + 5).expect("two groups and more")
});

fn group_bytes(group: u64, count: u64) -> Vec<u8> {
    vec![group as u8; if group == count - 1 { 5 } else { GROUP_BYTES }]
}

fuzz_target!(|bytes: &[u8]| {
    let id = TREE.id();
    let count = id.groups();
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
                let mut cvs: Vec<Cv> = TREE.cvs(level, page * PAGE, PAGE as usize).unwrap_or(&[]).to_vec();
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
                        shape = shape && cvs.len() == TREE.cvs(level, page * PAGE, 64).map_or(0, <[Cv]>::len);
                    }
                }
                let top = level + 1 == levels(&id);
                let parent =
                    top || model.contains(&(level, page)) || model.contains(&(level + 1, page / PAGE));
                let expected = match (shape, parent, right) {
                    (false, _, _) => Err(BadPage::Shape),
                    (true, false, _) => Err(BadPage::Orphan),
                    (true, true, false) => Err(BadPage::Wrong),
                    (true, true, true) => Ok(()),
                };
                assert_eq!(verifier.add_page(level, page, &cvs), expected);
                if expected.is_ok() {
                    model.insert((level, page));
                }
            }
            2 => {
                let group = number % (count + 2);
                let mut bytes = if group < count { group_bytes(group, count) } else { Vec::new() };
                let changed = change >= 128 && !bytes.is_empty();
                if changed {
                    let at = usize::from(at) % bytes.len();
                    bytes[at] ^= 1;
                }
                let verdict = match () {
                    () if group >= count => Verdict::Bad,
                    () if !model.contains(&(0, group / PAGE)) => Verdict::Unknown,
                    () if changed => Verdict::Bad,
                    () => Verdict::Good(TREE.leaves()[group as usize]),
                };
                assert_eq!(verifier.check(group, &bytes), verdict);
                // What is missing is what can be added next.
                if let Some((level, page)) = verifier.missing_page(group) {
                    assert!(!model.contains(&(level, page)));
                    assert!(level + 1 == levels(&id) || model.contains(&(level + 1, page / PAGE)));
                }
            }
            _ => {
                verifier.forget_page(level, number % 70);
                model.remove(&(level, number % 70));
            }
        }
        assert_eq!(verifier.held(), model.len());
    }
});
