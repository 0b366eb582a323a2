//! Makes the mirrors of the soak, by a seed.

use std::cell::RefCell;
use std::rc::Rc;

use anabranch_http::client::testing::{Reply, Then};
use anabranch_mirror::leaf_list;
use bytes::Bytes;

use crate::get::testing::{Mirror, Rng, Servers};

/// The behaviour of a mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nature {
    /// The mirror answers rightly and at once.
    Good,
    /// Some of the time, the mirror falls silent, breaks off, or answers that it cannot serve now.
    Faulty,
    /// The mirror is faulty, and some of its bytes are wrong.
    Liar,
    /// The mirror does not have the file.
    Empty,
    /// The mirror takes connections and never answers.
    #[cfg(test)]
    Mute,
}

/// The length of a piece in bytes. A body is sent at one piece in 2 to 39 ms.
const PIECE_BYTES: u64 = 32 << 10;

impl Nature {
    /// Makes the answer of this mirror from an honest one.
    fn twist(self, rng: &mut Rng, mut reply: Reply) -> Reply {
        let delay = rng.millis(5, 120);
        if self != Self::Good && rng.one_in(12) {
            let reply = match rng.below(3) {
                0 => Reply::new(503, "later"),
                1 => Reply::new(500, "it broke"),
                _ => Reply::nothing(Then::Refuse),
            };
            return Reply { delay, ..reply };
        }
        if self == Self::Liar && rng.one_in(3) && !reply.body.is_empty() {
            let mut bytes = reply.body.to_vec();
            bytes[rng.below(reply.body.len() as u64) as usize] ^= 1;
            reply.body = bytes.into();
        }
        reply = Reply { delay, ..reply }.at(PIECE_BYTES * 1_000 / (2 + rng.below(38)));
        // Of a hundred answers of a faulty mirror, 7 fall silent and 8 break off.
        let then = match if self == Self::Good { 99 } else { rng.below(100) } {
            0..7 => Then::Stall,
            7..15 => Then::Close,
            _ => return reply,
        };
        let bytes = rng.below(reply.body.len() as u64 + 1) as usize;
        reply.cut(bytes, then)
    }
}

/// Makes mirrors of these natures, called `m0`, `m1` and so on.
pub(super) fn servers(seed: u64, natures: &[Nature], content: &[u8], leaves: &[u8]) -> Servers {
    let (content, leaves) = (Bytes::copy_from_slice(content), Bytes::copy_from_slice(leaves));
    let mirror = |(number, nature): (usize, &Nature)| {
        let (nature, rng) = (*nature, RefCell::new(Rng::new(seed ^ (1 + number as u64) << 32)));
        let beside = (!leaves.is_empty()).then(|| (format!("/f{}", leaf_list::SUFFIX), leaves.clone()));
        let files = [("/f".to_owned(), content.clone())].into_iter().chain(beside).collect();
        let mirror = Mirror::of(files).but(move |_, reply| match nature {
            Nature::Empty => Reply { delay: rng.borrow_mut().millis(5, 120), ..Reply::new(404, "") },
            #[cfg(test)]
            Nature::Mute => Reply::nothing(Then::Mute),
            _ if reply.status == 404 => reply,
            nature => nature.twist(&mut rng.borrow_mut(), reply),
        });
        (format!("m{number}"), Rc::new(mirror))
    };
    natures.iter().enumerate().map(mirror).collect()
}
