//! The packets of neighbours. All have a fixed length, and no answer is longer than what it answers.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0–3 | magic `anbn` |
//! | 4, 5, 6, 7 | version 1; kind: 1 hello, 2 leaving, 3 question, 4 answer; a flag; 0 |
//! | 8–15 | the sender's identifier, new at each start |
//! | 16–23 | question: a number; answer: the number of the question |
//! | 24– | question: the hash, then zeros to byte 87; answer: length (8), root (32), port of mmTP (2) |
//! | last 16 | keyed BLAKE3 of all before |
//!
//! The flag depends on the kind. In a hello, 1 asks the receivers to say hello. In a question, it is the
//! kind of the hash: 0 SHA-256, 1 SHA-512, 2 SHA-512/256. In an answer, 1 means that the sender has the
//! object.
//!
//! Numbers are little-endian. Without a secret, the key of the last field is one that everybody knows, and
//! the field is a check sum.

use anabranch_mmtp::ContentId;
use anabranch_mmtp::id::LENGTH_MAX;

use crate::digest::{Digest, HashKind};

/// The context of the key (BLAKE3, key derivation).
const CONTEXT: &str = "anabranch 2026-11-30 neighbours of a cache";
const MAGIC: [u8; 4] = *b"anbn";
const VERSION: u8 = 1;
const HEAD_BYTES: usize = 16;
const PROOF_BYTES: usize = 16;
/// The bytes of a question's number and hash, and of an answer's number, length, root and port.
const QUESTION_BYTES: usize = 8 + 64;
const ANSWER_BYTES: usize = 8 + 8 + 32 + 2;
/// The bytes of the longest packet.
pub const PACKET_BYTES_MAX: usize = HEAD_BYTES + QUESTION_BYTES + PROOF_BYTES;

/// The key of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketKey([u8; 32]);

impl PacketKey {
    /// Derives the key from the secret that neighbours share. Neighbours without a secret use the empty one.
    #[must_use]
    pub fn of(secret: &[u8]) -> Self {
        Self(blake3::derive_key(CONTEXT, secret))
    }

    /// Adds the proof to the bytes of a packet.
    #[must_use]
    pub fn seal(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        let proof = self.proof(&bytes);
        bytes.extend_from_slice(&proof.as_bytes()[..PROOF_BYTES]);
        bytes
    }

    fn proof(&self, bytes: &[u8]) -> blake3::Hash {
        blake3::keyed_hash(&self.0, bytes)
    }
}

/// What a packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The sender is there.
    Hello {
        /// Whether the nearest receivers are to say hello to the sender.
        asks: bool,
    },
    /// The sender ends.
    Leaving,
    /// Who has the object with this hash?
    Question {
        /// An unpredictable number, which only the receiver learns.
        number: u64,
        /// The hash.
        digest: Digest,
    },
    /// The answer to a question.
    Answer {
        /// The question's number.
        number: u64,
        /// The object's name in mmTP and the port at which it is served; `None` if it is not here.
        at: Option<(ContentId, u16)>,
    },
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The sender's identifier.
    pub sender: u64,
    /// What it says.
    pub message: Message,
}

impl Packet {
    /// Returns the bytes of the packet.
    #[must_use]
    pub fn emit(&self, key: &PacketKey) -> Vec<u8> {
        let (kind, flag, rest) = match &self.message {
            Message::Hello { asks } => (1, u8::from(*asks), Vec::new()),
            Message::Leaving => (2, 0, Vec::new()),
            Message::Question { number, digest } => {
                let kind = match digest.kind() {
                    HashKind::Sha256 => 0,
                    HashKind::Sha512 => 1,
                    HashKind::Sha512Of256 => 2,
                };
                let mut rest = [&number.to_le_bytes()[..], digest.bytes()].concat();
                rest.resize(QUESTION_BYTES, 0);
                (3, kind, rest)
            }
            Message::Answer { number, at } => {
                let (id, port) = at.unwrap_or((ContentId { root: [0; 32], length: 0 }, 0));
                let (length, port) = (id.length.to_le_bytes(), port.to_le_bytes());
                (4, u8::from(at.is_some()), [&number.to_le_bytes()[..], &length, &id.root, &port].concat())
            }
        };
        key.seal([&MAGIC[..], &[VERSION, kind, flag, 0], &self.sender.to_le_bytes(), &rest].concat())
    }

    /// Parses a packet. Returns `None` if it is none, or was made with another key.
    #[must_use]
    pub fn parse(key: &PacketKey, bytes: &[u8]) -> Option<Self> {
        let (said, proof) = bytes.split_at_checked(bytes.len().checked_sub(PROOF_BYTES)?)?;
        let (head, rest) = said.split_first_chunk::<HEAD_BYTES>()?;
        if head[..4] != MAGIC || head[4] != VERSION || head[7] != 0 {
            return None;
        }
        let mut wanted = *key.proof(said).as_bytes();
        wanted[..PROOF_BYTES].copy_from_slice(proof);
        // This comparison takes as long for any difference.
        if key.proof(said) != blake3::Hash::from_bytes(wanted) {
            return None;
        }
        let number = |at: usize| Some(u64::from_le_bytes(*rest.get(at..)?.first_chunk()?));
        let sender = u64::from_le_bytes(*head[8..].first_chunk()?);
        let message = match (head[5], head[6], rest.len()) {
            (1, asks @ (0 | 1), 0) => Message::Hello { asks: asks == 1 },
            (2, 0, 0) => Message::Leaving,
            (3, kind, QUESTION_BYTES) => {
                let hash = &rest[8..];
                let digest = match kind {
                    0 => Digest::Sha256(*hash.first_chunk()?),
                    1 => Digest::Sha512(*hash.first_chunk()?),
                    2 => Digest::Sha512Of256(*hash.first_chunk()?),
                    _ => return None,
                };
                Message::Question { number: number(0)?, digest }
            }
            (4, here @ (0 | 1), ANSWER_BYTES) => {
                let id = ContentId { length: number(8)?, root: *rest[16..].first_chunk()? };
                let port = u16::from_le_bytes(*rest[48..].first_chunk()?);
                if here == 1 && (port == 0 || id.length > LENGTH_MAX) {
                    return None;
                }
                Message::Answer { number: number(0)?, at: (here == 1).then_some((id, port)) }
            }
            _ => return None,
        };
        Some(Self { sender, message })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all() -> Vec<Message> {
        let id = ContentId { root: [7; 32], length: LENGTH_MAX };
        vec![
            Message::Hello { asks: true },
            Message::Hello { asks: false },
            Message::Leaving,
            Message::Question { number: 5, digest: Digest::Sha256([1; 32]) },
            Message::Question { number: u64::MAX, digest: Digest::Sha512([2; 64]) },
            Message::Question { number: 0, digest: Digest::Sha512Of256([3; 32]) },
            Message::Answer { number: 5, at: Some((id, 9)) },
            Message::Answer { number: 5, at: None },
        ]
    }

    #[test]
    fn packets_are_read_by_those_who_have_the_key() {
        let key = PacketKey::of(b"ours");
        for message in all() {
            let packet = Packet { sender: 77, message };
            let bytes = packet.emit(&key);
            assert!(bytes.len() <= PACKET_BYTES_MAX);
            assert_eq!(Packet::parse(&key, &bytes), Some(packet));
            assert_eq!(Packet::parse(&PacketKey::of(b""), &bytes), None);
            for at in 0..bytes.len() {
                let mut other = bytes.clone();
                other[at] ^= 1;
                assert_eq!(Packet::parse(&key, &other), None, "byte {at} of {message:?}");
                assert_eq!(Packet::parse(&key, &bytes[..at]), None);
            }
        }
    }

    #[test]
    fn no_answer_is_longer_than_its_question() {
        let key = PacketKey::of(b"");
        let bytes = |message: &Message| Packet { sender: 1, message: *message }.emit(&key).len();
        let longest = |wanted: fn(&&Message) -> bool| all().iter().filter(wanted).map(bytes).max();
        let answer = longest(|message| matches!(message, Message::Answer { .. }));
        let question = all().iter().filter(|m| matches!(m, Message::Question { .. })).map(bytes).min();
        assert!(answer <= question);
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), valid in 0_u8..6) {
            let key = PacketKey::of(b"");
            // Most bytes are no packets for their check sum alone.
            let said = key.seal([&MAGIC[..], &[VERSION, valid, bytes.len() as u8 & 3, 0], &bytes].concat());
            if let Some(packet) = Packet::parse(&key, &said) {
                prop_assert!(packet.emit(&key).len() <= PACKET_BYTES_MAX);
            }
            prop_assert_eq!(Packet::parse(&key, &bytes), None);
        }
    }
}
