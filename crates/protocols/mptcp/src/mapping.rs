//! The positions of a subflow's bytes in the data: the mappings that arrived, and their checksums (RFC 8684
//! section 3.3.1).

use std::collections::VecDeque;

use anabranch_mptcp_wire::checksum::dss_checksum;

use crate::payload::Payload;

/// The most mappings that are kept; further ones are dropped, and arrive again with their bytes.
const MAPPINGS_MAX: usize = 16_384;

/// The position of a range of a subflow's bytes in the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// The first byte's number on the subflow, counted from its SYN, which has 0.
    pub(crate) start: u64,
    /// The number of bytes.
    pub(crate) len: u64,
    /// The first byte's number in the data, counted from the initial data sequence number.
    pub(crate) data_seq: u64,
    /// The checksum of the bytes, if they have one.
    pub(crate) check: Option<Check>,
}

/// The checksum of a mapping, and the values that go into it besides the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) checksum: u16,
    /// The first byte's data sequence number on the wire.
    pub(crate) wire_seq: u64,
    /// Whether a DATA_FIN counts in the length.
    pub(crate) has_fin: bool,
}

impl Mapping {
    const fn end(&self) -> u64 {
        self.start + self.len
    }
}

/// The reason why bytes have no valid position in the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapError {
    /// No mapping covers the bytes.
    Unmapped,
    /// The checksum of the mapping at this data sequence number (as on the wire) is wrong.
    Checksum(u64),
}

/// The mappings of one subflow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mappings {
    /// The mappings in order of their start, without overlap.
    list: VecDeque<Mapping>,
    /// Bytes of the first mapping that wait until the mapping is complete, because it has a checksum.
    held: Vec<Payload>,
}

impl Mappings {
    /// Remembers a mapping. `expected` is the number of the next byte that the subflow will hand over.
    /// Ignores a mapping that is known, old or in conflict with another; [`map`](Self::map) then fails for
    /// bytes without a mapping.
    pub(crate) fn insert(&mut self, mapping: Mapping, expected: u64) {
        if mapping.len == 0 || mapping.end() <= expected || self.list.len() >= MAPPINGS_MAX {
            return;
        }
        let at = self.list.partition_point(|known| known.start < mapping.start);
        let before = at.checked_sub(1).and_then(|before| self.list.get(before));
        let is_free = before.is_none_or(|before| before.end() <= mapping.start)
            && self.list.get(at).is_none_or(|after| mapping.end() <= after.start);
        if is_free {
            self.list.insert(at, mapping);
        }
    }

    /// Finds the positions of bytes that begin at `start` on the subflow, and hands each part to `place`.
    /// Bytes whose mapping has a checksum are handed over once the mapping is complete and its checksum is
    /// right.
    pub(crate) fn map(
        &mut self,
        mut start: u64,
        mut payload: Payload,
        mut place: impl FnMut(u64, Payload),
    ) -> Result<(), MapError> {
        while !payload.is_empty() {
            while self.list.front().is_some_and(|mapping| mapping.end() <= start) {
                self.list.pop_front();
            }
            let mapping = self.list.front().filter(|mapping| mapping.start <= start);
            let mapping = *mapping.ok_or(MapError::Unmapped)?;
            let part = payload.split_to((mapping.end() - start) as usize);
            let (at, len) = (mapping.data_seq + (start - mapping.start), part.len() as u64);
            start += len;
            match mapping.check {
                None => place(at, part),
                Some(Check { checksum, wire_seq, has_fin }) => {
                    self.held.push(part);
                    if start == mapping.end() {
                        let held = std::mem::take(&mut self.held);
                        let counted = (mapping.len + u64::from(has_fin)) as u16;
                        let parts = held.iter().map(Payload::as_bytes);
                        let sum = dss_checksum(wire_seq, mapping.start as u32, counted, parts);
                        if sum != checksum {
                            return Err(MapError::Checksum(wire_seq));
                        }
                        let mut at = mapping.data_seq;
                        for part in held {
                            let len = part.len() as u64;
                            place(at, part);
                            at += len;
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(mappings: &mut Mappings, start: u64, bytes: &[u8]) -> Result<Vec<(u64, Vec<u8>)>, MapError> {
        let mut out = Vec::new();
        let place = |at, part: Payload| out.push((at, part.as_bytes().to_vec()));
        mappings.map(start, Payload::copy_of(bytes), place).map(|()| out)
    }

    #[test]
    fn bytes_are_cut_at_mappings() {
        let mut mappings = Mappings::default();
        let mapping = |start, len, data_seq| Mapping { start, len, data_seq, check: None };
        mappings.insert(mapping(4, 2, 900), 1);
        mappings.insert(mapping(1, 3, 100), 1);
        // The first mapping is known; the second conflicts with others.
        mappings.insert(mapping(1, 3, 100), 1);
        mappings.insert(mapping(3, 3, 7), 1);
        let out = mapped(&mut mappings, 1, b"abcde").unwrap();
        assert_eq!(out, [(100, b"abc".to_vec()), (900, b"de".to_vec())]);
        assert_eq!(mapped(&mut mappings, 6, b"f"), Err(MapError::Unmapped));
    }

    #[test]
    fn bytes_wait_for_their_checksum() {
        let sum = dss_checksum(1_050, 1, 5, [b"hell".as_slice()]);
        for (sum, right) in [(sum, true), (sum ^ 1, false)] {
            let mut mappings = Mappings::default();
            let check = Some(Check { checksum: sum, wire_seq: 1_050, has_fin: true });
            mappings.insert(Mapping { start: 1, len: 4, data_seq: 50, check }, 1);
            assert_eq!(mapped(&mut mappings, 1, b"he"), Ok(Vec::new()));
            let whole = mapped(&mut mappings, 3, b"ll");
            if right {
                assert_eq!(whole, Ok(vec![(50, b"he".to_vec()), (52, b"ll".to_vec())]));
            } else {
                assert_eq!(whole, Err(MapError::Checksum(1_050)));
            }
        }
    }
}
