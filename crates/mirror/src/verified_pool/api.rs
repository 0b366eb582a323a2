//! What the pool is told of the right bytes, and what it says.

use std::fmt;
use std::ops::Range;

use mmtp::id::LENGTH_MAX;
use mmtp::tree::ChainingValue;

use super::{BLOCK, MirrorId, PIECE_BYTES_MAX};

/// What is known of the right bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// The chaining value of each block; of a content of one block its BLAKE3 hash.
    Leaves(Vec<ChainingValue>),
    /// A hash of each piece.
    Pieces {
        /// Bytes of a piece: a multiple of a block, at most [`PIECE_BYTES_MAX`]. The last piece may be
        /// shorter.
        bytes: u64,
        /// The SHA-256 of each.
        sha256: Vec<[u8; 32]>,
    },
    /// Nothing.
    Nothing,
}

/// A [`Check`] that does not fit the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckError {
    /// The content would be longer than any.
    TooLong,
    /// There are more or fewer hashes than blocks or pieces.
    Count {
        /// As many as there are.
        hashes: u64,
        /// As many as there should be.
        expected: u64,
    },
    /// Pieces that are not whole blocks, or too long.
    PieceLength(u64),
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "the content is longer than {LENGTH_MAX} bytes"),
            Self::Count { hashes, expected } => {
                write!(f, "there are {hashes} hashes for what has {expected} parts")
            }
            Self::PieceLength(bytes) => write!(
                f,
                "pieces of {bytes} bytes cannot be checked: they must be whole blocks of {BLOCK} bytes, at \
                 most {PIECE_BYTES_MAX}"
            ),
        }
    }
}

impl std::error::Error for CheckError {}

/// What is reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A block is here and, as far as can be known, right.
    Verified {
        /// Its number.
        block: u64,
        /// Its bytes.
        bytes: Vec<u8>,
        /// Its chaining value; of a content of one block its hash.
        cv: ChainingValue,
    },
    /// These blocks had been reported and were brought by a liar: they are missing again, and each will be
    /// reported once more. Only without hashes.
    Revoked {
        /// Their numbers.
        blocks: Range<u64>,
    },
    /// A mirror has sent wrong bytes. Nothing is taken from it any more.
    Banned {
        /// Which.
        mirror: MirrorId,
        /// A block that it sent wrong, or that is in a piece that it did.
        block: u64,
    },
    /// Mirrors have different bytes and nothing tells which of them is right: the content cannot be had.
    Conflict {
        /// Which.
        mirrors: Vec<MirrorId>,
        /// A block in which they differ.
        block: u64,
    },
    /// All blocks are here, and every check that can be made has been.
    Complete,
}
