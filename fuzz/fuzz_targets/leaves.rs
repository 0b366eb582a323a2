//! Any bytes as a leaf list, and as lines of `b3sum`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use anabranch_mirror::leaf_list::{LeafList, b3sum};
use anabranch_mmtp::ContentId;
use anabranch_mmtp::tree::root_of_leaves;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(leaves) = LeafList::parse(bytes).map_err(|error| error.to_string()) {
        assert_eq!(leaves.encode(), bytes);
    }
    let _ = b3sum(bytes, b"name");
    // Chaining values with the root that they give are a list.
    let (cvs, rest) = bytes.as_chunks::<32>();
    let Some(root) = root_of_leaves(cvs.iter().copied()) else { return };
    let length = cvs.len() as u64 * 16_384 - (rest.len() as u64);
    let leaves = LeafList::new(ContentId { root, length }, cvs.to_vec()).expect("they give the root");
    assert_eq!(LeafList::parse(&leaves.encode()), Ok(leaves));
});
