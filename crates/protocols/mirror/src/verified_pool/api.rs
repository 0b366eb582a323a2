//! How the pool verifies a content, and which events it reports.

use std::ops::Range;

use anabranch_mmtp::id::{BLOCK_BYTES, LENGTH_MAX};
use anabranch_mmtp::tree::ChainingValue;

use super::pieces::PIECE_BYTES_MAX;
use crate::digests::PieceHashes;
use crate::range_scheduler::MirrorId;

/// How a content is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// The chaining value of each block. For a content of one block: its BLAKE3 hash.
    Leaves(Vec<ChainingValue>),
    /// A hash of each piece.
    Pieces {
        /// The length of a piece in bytes: a multiple of the block length, at most [`PIECE_BYTES_MAX`]. The
        /// last piece may be shorter.
        bytes: u64,
        /// The hash of each piece.
        hashes: PieceHashes,
    },
    /// No hash of the parts is known; mirrors are compared with each other.
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
        /// The number of hashes.
        hashes: u64,
        /// The number of blocks or pieces.
        expected: u64,
    },
    /// The piece length in bytes is not a multiple of the block length, or is too great.
    #[error(
        "pieces of {0} bytes cannot be checked: they must be whole blocks of {BLOCK_BYTES} bytes, at most \
         {PIECE_BYTES_MAX}"
    )]
    PieceLength(u64),
}

/// An event that the pool reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A block has arrived and is right as far as can be checked.
    Verified {
        /// The mirror that delivered the block.
        mirror: MirrorId,
        /// The number of the block.
        block: u64,
        /// The bytes of the block.
        bytes: Vec<u8>,
        /// The chaining value of the block. For a content of one block: its BLAKE3 hash.
        cv: ChainingValue,
    },
    /// Blocks that were reported before came from a mirror that is now banned. They are missing again, and
    /// each will be reported once more. This happens only where no hash of the parts is known.
    Revoked {
        /// The numbers of the blocks.
        blocks: Range<u64>,
    },
    /// A mirror sent wrong bytes, or bytes other than the majority's, and is not used any more.
    Banned {
        /// The banned mirror.
        mirror: MirrorId,
        /// A wrong block of this mirror, or a block of a wrong piece.
        block: u64,
    },
    /// Mirrors have different bytes, and their vote does not tell which bytes are right. Nothing more is
    /// requested. This happens only where no hash of the parts is known.
    Split {
        /// The mirrors that differ.
        mirrors: Vec<MirrorId>,
        /// A block in which they differ.
        block: u64,
    },
    /// All blocks have arrived, and every possible check is done.
    Complete,
}
