//! What becomes of a block of a piece, and of the piece with its last block.

use anabranch_mmtp::tree::ChainingValue;

use super::pieces::{PieceOutcome, Unverified};
use super::{Mode, VerifiedPool};
use crate::range_scheduler::{MirrorId, Pool as _};

impl VerifiedPool {
    pub(super) fn deliver_to_piece(&mut self, mirror: MirrorId, block: u64, bytes: &[u8], cv: ChainingValue) {
        let Mode::Pieces(pieces) = &mut self.mode else { return };
        if !pieces.hold(block, Unverified { mirror, cv, bytes: bytes.to_vec() }) {
            // No room: it is fetched again later.
            self.release(block..block + 1);
            return;
        }
        self.idle.remove(block);
        match pieces.check(block) {
            None => {}
            Some(PieceOutcome::Valid(held, liars)) => {
                for (block, held) in held {
                    self.accept(held.mirror, block, held.bytes, held.cv);
                }
                for (mirror, block) in liars {
                    self.ban(mirror, block);
                }
            }
            // A piece that has to come from one mirror is not idle: `take` looks there first.
            Some(PieceOutcome::Bad(liar)) => {
                let first = pieces.blocks_of(pieces.piece_of(block)).start;
                self.ban(liar, first);
            }
            Some(PieceOutcome::Mixed) => {}
        }
    }
}
