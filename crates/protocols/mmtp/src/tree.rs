//! The hash tree: BLAKE3's own tree, seen as lists of chaining values (CVs) in pages.
//!
//! Level 0 lists the CV of every 16 KiB block. Level L+1 lists one CV for each *page*, a run of 64
//! ([`PAGE_CVS`]) consecutive CVs of level L. The last page may be shorter, and a page of one CV passes it on
//! unchanged. The first list of at most 64 CVs is the *top page*. Merged with root finalization, it gives the
//! root, which names the content.
//!
//! A page is a left-aligned run of 2ⁿ subtrees of equal size, so its merge is a node of BLAKE3's tree. There,
//! the left subtree is the largest power of two of chunks that leaves at least one to the right (BLAKE3
//! paper, §2.1). So the root is the plain BLAKE3 hash of the bytes. A content of one block has no lists: its
//! hash is the root.
//!
//! A source holds an [`Outboard`], a receiver a [`Verifier`].

mod outboard;
mod page;
mod verifier;

pub use outboard::Outboard;
pub use page::{
    ChainingValue, LEVELS_MAX, PACKET_CVS, PAGE_CVS, block_cv, cvs, levels, page_len, page_of, pages,
    root_of_leaves,
};
pub use verifier::{CheckResult, PAGES_MAX, PageError, Verifier};
