//! How the pool verifies, and what it reports.

use std::ops::Range;

use anabranch_mmtp::id::{BLOCK_BYTES, LENGTH_MAX};
use anabranch_mmtp::tree::ChainingValue;

use super::pieces::PIECE_BYTES_MAX;
use crate::digests::PieceHashes;
use crate::range_scheduler::MirrorId;

/// How a content is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// The chaining value of each block; of a content of one block its BLAKE3 hash.
    Leaves(Vec<ChainingValue>),
    /// A hash of each piece.
    Pieces {
        /// Bytes of a piece: a multiple of a block, at most [`PIECE_BYTES_MAX`]. The last piece may be
        /// shorter.
        bytes: u64,
        /// The hash of each.
        hashes: PieceHashes,
    },
    /// No hash of the parts is known; mirrors are compared.
    Nothing,
}

/// A [`Check`] that does not fit the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// The content is too long.
    #[error("the content is longer than {LENGTH_MAX} bytes")]
    TooLong,
    /// There are more or fewer hashes than blocks or pieces.
    #[error("there are {hashes} hashes for what has {expected} parts")]
    Count {
        /// Their number.
        hashes: u64,
        /// The right number.
        expected: u64,
    },
    /// Pieces that are not whole blocks, or too long.
    #[error(
        "pieces of {0} bytes cannot be checked: they must be whole blocks of {BLOCK_BYTES} bytes, at most \
         {PIECE_BYTES_MAX}"
    )]
    PieceLength(u64),
}

/// What the pool reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A block is here and, as far as can be checked, right.
    Verified {
        /// The mirror that brought it.
        mirror: MirrorId,
        /// Its number.
        block: u64,
        /// Its bytes.
        bytes: Vec<u8>,
        /// Its chaining value; of a content of one block its hash.
        cv: ChainingValue,
    },
    /// These blocks were reported, and came from a mirror that is banned now. They are missing again, and
    /// each will be reported once more. Only where no hash of the parts is known.
    Revoked {
        /// Their numbers.
        blocks: Range<u64>,
    },
    /// A mirror has sent wrong bytes, or other bytes than those that decide, and is not used any more.
    Banned {
        /// Which.
        mirror: MirrorId,
        /// A wrong block, or a block of a wrong piece.
        block: u64,
    },
    /// Mirrors have different bytes, and their vote does not tell which are right: nothing more is asked for.
    /// Only where no hash of the parts is known.
    Split {
        /// Which.
        mirrors: Vec<MirrorId>,
        /// A block in which they differ.
        block: u64,
    },
    /// All blocks are here, and every check that can be made has been.
    Complete,
}
