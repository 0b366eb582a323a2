//! Capsules (RFC 9297 section 3.2), and the UDP datagrams in them (RFC 9298 section 5).
//!
//! The machine takes bytes as they arrive and returns datagrams. It holds at most one datagram. Unknown
//! capsules of any length are skipped as they arrive.

use bytes::{Buf as _, Bytes};

/// The most bytes of a UDP datagram (RFC 9298 section 5).
pub const PAYLOAD_BYTES_MAX: usize = 65_527;
/// The type of a capsule with a datagram (RFC 9297 section 3.5).
const DATAGRAM: u64 = 0;
/// The context id of UDP datagrams (RFC 9298 section 5).
const UDP: u64 = 0;

/// A violation of the format. The connection cannot continue after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The datagram is longer than RFC 9298 section 5 allows.
    #[error("a capsule's datagram is longer than one of UDP can be")]
    Long,
    /// The capsule ends within the fields that all capsules of its type have (RFC 9297 section 3.2).
    #[error("a capsule is over before the context of its datagram")]
    Short,
}

/// The counts of skipped capsules and datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// The number of capsules of unknown types.
    pub capsules: u64,
    /// The number of datagrams of unknown contexts.
    pub datagrams: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// The type, the length, and for a datagram the context are being read.
    #[default]
    Head,
    /// This number of bytes of the datagram is still missing.
    Payload(usize),
    /// This number of bytes is still to be skipped.
    Skipped(u64),
}

/// Reads the capsules of one direction.
#[derive(Debug, Default)]
pub struct Capsules {
    state: State,
    /// The part of a head that has arrived: at most three numbers of eight bytes.
    head: Vec<u8>,
    payload: Vec<u8>,
    passed: Passed,
}

impl Capsules {
    /// Returns the payload of the next complete datagram, and removes the bytes that it used from `bytes`.
    /// With `None`, all bytes were used and more are needed.
    ///
    /// # Errors
    /// If the bytes violate the format. It must not be called again then.
    pub fn next(&mut self, bytes: &mut Bytes) -> Result<Option<Bytes>, Malformed> {
        loop {
            match self.state {
                State::Head => {
                    if !bytes.has_remaining() {
                        return Ok(None);
                    }
                    self.head.push(bytes.get_u8());
                    if let Some(state) = self.after_head()? {
                        self.head.clear();
                        self.state = state;
                    }
                }
                State::Payload(left) => {
                    let taken = left.min(bytes.len());
                    self.payload.extend_from_slice(&bytes.split_to(taken));
                    if taken < left {
                        self.state = State::Payload(left - taken);
                        return Ok(None);
                    }
                    self.state = State::Head;
                    return Ok(Some(std::mem::take(&mut self.payload).into()));
                }
                State::Skipped(0) => self.state = State::Head,
                State::Skipped(left) => {
                    if !bytes.has_remaining() {
                        return Ok(None);
                    }
                    let taken = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    bytes.advance(taken);
                    self.state = State::Skipped(left - taken as u64);
                }
            }
        }
    }

    /// Whether the bytes so far end between two capsules.
    #[must_use]
    pub fn is_between(&self) -> bool {
        self.head.is_empty() && matches!(self.state, State::Head | State::Skipped(0))
    }

    /// Returns the counts of skipped capsules and datagrams so far.
    #[must_use]
    pub const fn passed(&self) -> Passed {
        self.passed
    }

    /// Returns the state that follows the head, if the head is complete.
    fn after_head(&mut self) -> Result<Option<State>, Malformed> {
        let Some((kind, rest)) = number(&self.head) else { return Ok(None) };
        let Some((length, rest)) = number(rest) else { return Ok(None) };
        if kind != DATAGRAM {
            self.passed.capsules += 1;
            return Ok(Some(State::Skipped(length)));
        }
        let Some((context, _)) = number(rest) else {
            // A context follows the length unless these bytes are the whole capsule.
            return if rest.len() as u64 >= length { Err(Malformed::Short) } else { Ok(None) };
        };
        let left = length - rest.len() as u64;
        if context != UDP {
            self.passed.datagrams += 1;
            return Ok(Some(State::Skipped(left)));
        }
        match usize::try_from(left) {
            Ok(left) if left <= PAYLOAD_BYTES_MAX => Ok(Some(State::Payload(left))),
            _ => Err(Malformed::Long),
        }
    }
}

/// Reads a variable-length number (RFC 9000 section 16). Returns it and the rest, or `None` if it is not
/// complete.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let first = bytes.first()?;
    let (number, rest) = bytes.split_at_checked(1 << (first >> 6))?;
    let all = number.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
    Some((all & (u64::MAX >> (66 - 8 * number.len())), rest))
}

/// Appends a capsule with this UDP datagram to `out`.
pub fn encode(payload: &[u8], out: &mut Vec<u8>) {
    out.push(DATAGRAM as u8);
    // The length includes the context, which is one byte.
    let length = payload.len() as u64 + 1;
    match length {
        0..0x40 => out.push(length as u8),
        0x40..0x4000 => out.extend_from_slice(&(length as u16 | 0x4000).to_be_bytes()),
        _ => out.extend_from_slice(&(length as u32 | 0x8000_0000).to_be_bytes()),
    }
    out.push(UDP as u8);
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads these pieces. Returns the datagrams, the error if there was one, the skipped counts, and whether
    /// the end is between capsules.
    fn run(pieces: &[&[u8]]) -> (Vec<Bytes>, Option<Malformed>, Passed, bool) {
        let (mut capsules, mut all) = (Capsules::default(), Vec::new());
        for piece in pieces {
            let mut bytes = Bytes::copy_from_slice(piece);
            loop {
                match capsules.next(&mut bytes) {
                    Ok(Some(payload)) => all.push(payload),
                    Ok(None) => break,
                    Err(e) => return (all, Some(e), capsules.passed(), false),
                }
                assert!(capsules.payload.len() <= PAYLOAD_BYTES_MAX && capsules.head.len() <= 24);
            }
            assert!(bytes.is_empty());
        }
        (all, None, capsules.passed(), capsules.is_between())
    }

    #[test]
    fn numbers_are_those_of_quic() {
        // The vectors are from RFC 9000 section A.1.
        let eight = [0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c];
        assert_eq!(number(&eight), Some((151_288_809_941_952_652, &[][..])));
        assert_eq!(number(&[0x9d, 0x7f, 0x3e, 0x7d, 7]), Some((494_878_333, &[7][..])));
        assert_eq!(number(&[0x7b, 0xbd]), Some((15_293, &[][..])));
        assert_eq!(number(&[0x25]), Some((37, &[][..])));
        assert_eq!(number(&[0x40, 0x25]), Some((37, &[][..])));
        assert_eq!((number(&[]), number(&eight[..7])), (None, None));
    }

    #[test]
    fn what_is_unknown_is_passed_over_and_counted() {
        let mut bytes = vec![0x29, 3, 1, 2, 3];
        encode(b"one", &mut bytes);
        // Next are a datagram of an unknown context, and an empty capsule whose type has eight bytes.
        bytes.extend([0, 4, 2, 7, 7, 7]);
        bytes.extend([0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c, 0]);
        encode(b"", &mut bytes);
        let passed = Passed { capsules: 2, datagrams: 1 };
        let datagrams = vec![Bytes::from_static(b"one"), Bytes::new()];
        assert_eq!(run(&[&bytes]), (datagrams, None, passed, true));
        // A capsule of the largest length never ends, and takes no memory.
        let endless = [&[0x29][..], &[0xff; 8], &[7; 100_000]].concat();
        assert_eq!(run(&[&endless]), (vec![], None, Passed { capsules: 1, datagrams: 0 }, false));
    }

    #[test]
    fn what_no_end_may_send_is_refused_as_soon_as_its_head_is_there() {
        assert_eq!(run(&[&[0, 0]]).1, Some(Malformed::Short));
        assert_eq!(run(&[&[0, 1, 0x40]]).1, Some(Malformed::Short));
        assert_eq!(run(&[&[0, 1, 0]]).1, None, "a datagram without a byte");
        let long = |bytes: u32| [&[0][..], &(0x8000_0000 | bytes).to_be_bytes(), &[0]].concat();
        assert_eq!(run(&[&long(65_528)]).1, None);
        assert_eq!(run(&[&long(65_529)]).1, Some(Malformed::Long));
        // The length of datagrams in other contexts has no limit.
        let other = [&long(65_529)[..5], &[9]].concat();
        assert_eq!((run(&[&other]).1, run(&[&other]).2.datagrams), (None, 1));
    }

    proptest! {
        #[test]
        fn any_bytes_give_the_same_however_they_are_cut(
            pieces in prop::collection::vec(prop::collection::vec(0_u8..68, 0..40), 0..12),
        ) {
            let cut: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let whole = cut.concat();
            let single: Vec<&[u8]> = whole.chunks(1).collect();
            prop_assert_eq!(run(&cut), run(&[&whole]));
            prop_assert_eq!(run(&single), run(&[&whole]));
        }

        #[test]
        fn what_is_written_is_read(
            sizes in prop::collection::vec(
                prop_oneof![0_usize..70, 16_380_usize..16_390, Just(PAYLOAD_BYTES_MAX)], 0..6
            ),
            cut in 1_usize..70_000,
        ) {
            let payloads: Vec<Bytes> = sizes.iter().map(|size| vec![7; *size].into()).collect();
            let mut bytes = Vec::new();
            payloads.iter().for_each(|payload| encode(payload, &mut bytes));
            let pieces: Vec<&[u8]> = bytes.chunks(cut).collect();
            prop_assert_eq!(run(&pieces), (payloads, None, Passed::default(), true));
        }
    }
}
