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
    /// No hash is known; mirrors are compared.
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

/// A mirror of which all is here and is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Which.
    pub mirror: MirrorId,
    /// It is not asked again; if false, it has one more turn, for some of it may be of an older file.
    pub is_refuted: bool,
}

/// What the pool reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A block is here and, as far as can be checked, right.
    Verified {
        /// Who brought it.
        mirror: MirrorId,
        /// Its number.
        block: u64,
        /// Its bytes.
        bytes: Vec<u8>,
        /// Its chaining value; of a content of one block its hash.
        cv: ChainingValue,
    },
    /// These blocks were reported, and came from a mirror that is banned now, or that may have had another
    /// file. They are missing again, and each will be reported once more. Only where no hash of the parts is
    /// known.
    Revoked {
        /// Their numbers.
        blocks: Range<u64>,
    },
    /// These blocks were reported, and are of a mirror that is set aside now, or not of the one that is tried
    /// alone. They are missing again, but whoever has them keeps them: each will be reported once more, or
    /// [restored](Event::Restored). Only where a hash of the whole alone is known.
    Shelved {
        /// Their numbers.
        blocks: Range<u64>,
    },
    /// These blocks were [shelved](Event::Shelved), and nothing else was reported in their place: they are
    /// here again.
    Restored {
        /// Their numbers.
        blocks: Range<u64>,
    },
    /// Some of what earlier transfers left is not what the mirrors of now have, or may be of a mirror that is
    /// banned now: what is [revoked](Event::Revoked) next comes again. Only where no hash is known.
    EarlierDropped {
        /// A block in which they differ, or in which the mirror lied.
        block: u64,
    },
    /// A mirror has sent wrong bytes and is not used any more.
    Banned {
        /// Which.
        mirror: MirrorId,
        /// A wrong block, or a block of a wrong piece.
        block: u64,
    },
    /// A mirror has other bytes than two others, and is not asked as long as these bring the file: a hash of
    /// the whole will tell who is right.
    SetAside {
        /// Which.
        mirror: MirrorId,
        /// A block in which it differs.
        block: u64,
    },
    /// Mirrors have different bytes, and nothing tells which are right: the transfer fails, unless a hash of
    /// the whole is known and [`try_next`](super::VerifiedPool::try_next) finds somebody.
    Conflict {
        /// Which.
        mirrors: Vec<MirrorId>,
        /// A block in which they differ.
        block: u64,
    },
    /// All blocks are here, and every check that can be made has been.
    Complete,
}
