//! Capsules (RFC 9297 section 3.2), and the datagrams of UDP in them (RFC 9298 section 5).
//!
//! A machine: bytes in as they come, datagrams out. It holds one datagram at most. What it does not know is
//! skipped as it comes, however long it says that it is.

use bytes::{Buf as _, Bytes};

/// Bytes of a datagram of UDP at most (RFC 9298 section 5).
pub const PAYLOAD_BYTES_MAX: usize = 65_527;
/// The type of a capsule that has a datagram (RFC 9297 section 3.5).
const DATAGRAM: u64 = 0;
/// The context of datagrams of UDP (RFC 9298 section 5).
const UDP: u64 = 0;

/// What no end may send: the connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// RFC 9298 section 5.
    #[error("a capsule's datagram is longer than one of UDP can be")]
    Long,
    /// The length of a capsule ends within what all of its type have (RFC 9297 section 3.2).
    #[error("a capsule is over before the context of its datagram")]
    Short,
}

/// What was passed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Capsules of unknown types.
    pub capsules: u64,
    /// Datagrams of unknown contexts.
    pub datagrams: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Its type, its length, of a datagram its context.
    #[default]
    Head,
    /// So many more bytes of a datagram.
    Payload(usize),
    /// So many more bytes of what is passed over.
    Skipped(u64),
}

/// The capsules of one direction.
#[derive(Debug, Default)]
pub struct Capsules {
    state: State,
    /// Of a head that is not whole: three numbers of eight bytes at most.
    head: Vec<u8>,
    payload: Vec<u8>,
    passed: Passed,
}

impl Capsules {
    /// The payload of the next datagram that is whole; what it took is gone from `bytes`. `None`: all were
    /// taken, and more are needed.
    ///
    /// # Errors
    /// What no end may send. It is not to be asked again then.
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

    /// Whether nothing of a capsule waits for the rest of it.
    #[must_use]
    pub fn is_between(&self) -> bool {
        self.head.is_empty() && matches!(self.state, State::Head | State::Skipped(0))
    }

    /// What was passed over so far.
    #[must_use]
    pub const fn passed(&self) -> Passed {
        self.passed
    }

    /// What follows the head, if it is whole.
    fn after_head(&mut self) -> Result<Option<State>, Malformed> {
        let Some((kind, rest)) = number(&self.head) else { return Ok(None) };
        let Some((length, rest)) = number(rest) else { return Ok(None) };
        if kind != DATAGRAM {
            self.passed.capsules += 1;
            return Ok(Some(State::Skipped(length)));
        }
        let Some((context, _)) = number(rest) else {
            // The bytes come one by one: these are all that it has.
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

/// A number (RFC 9000 section 16), and what is behind it; `None` if it is not whole.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let first = bytes.first()?;
    let (number, rest) = bytes.split_at_checked(1 << (first >> 6))?;
    let all = number.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
    Some((all & (u64::MAX >> (66 - 8 * number.len())), rest))
}

/// Writes a capsule that has this datagram, which UDP has brought.
pub fn encode(payload: &[u8], out: &mut Vec<u8>) {
    out.push(DATAGRAM as u8);
    // The context counts too.
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

    /// What comes of these pieces: datagrams, then perhaps why it ended.
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
        // RFC 9000 section A.1.
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
        // A context that nobody has agreed on, and a type of eight bytes with nothing in it.
        bytes.extend([0, 4, 2, 7, 7, 7]);
        bytes.extend([0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c, 0]);
        encode(b"", &mut bytes);
        let passed = Passed { capsules: 2, datagrams: 1 };
        let datagrams = vec![Bytes::from_static(b"one"), Bytes::new()];
        assert_eq!(run(&[&bytes]), (datagrams, None, passed, true));
        // One that is as long as can be never ends, and takes no memory.
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
        // Of another context nobody knows how long it may be.
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
