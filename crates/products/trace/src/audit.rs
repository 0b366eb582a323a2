//! Checks DSS checksums (RFC 8684 section 3.3.1) if the payload was captured.

use anabranch_mptcp_wire::InternetChecksum;
use anabranch_mptcp_wire::checksum::dss_pseudo_header;
use serde::Serialize;

/// The results of checking the checksums of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Checksums {
    /// Whether an end asked for checksums in MP_CAPABLE.
    pub required: bool,
    /// The mappings whose checksum is right.
    pub right: u64,
    /// The mappings whose checksum is wrong.
    pub wrong: u64,
    /// The mappings with a checksum whose payload was not captured whole and in order.
    pub unchecked: u64,
}

/// The checksum of a mapping while its bytes arrive.
#[derive(Debug, Default)]
pub(crate) struct MappingChecksum {
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    next: u64,
    end: u64,
    sum: InternetChecksum,
    expected: u16,
}

impl MappingChecksum {
    /// Begins a mapping of `seq..end` on the subflow.
    pub(crate) fn begin(
        &mut self,
        (seq, end): (u64, u64),
        (data_seq, subflow_seq, data_bytes): (u64, u32, u16),
        expected: u16,
        counts: &mut Checksums,
    ) {
        self.end(counts);
        let sum = dss_pseudo_header(data_seq, subflow_seq, data_bytes);
        self.open = Some(Open { next: seq, end, sum, expected });
    }

    /// Ends the mapping. If its checksum could not be checked, the mapping counts as unchecked.
    pub(crate) fn end(&mut self, counts: &mut Checksums) {
        counts.unchecked += u64::from(self.open.take().is_some());
    }

    /// Takes payload of `bytes` bytes on the wire at `start`, of which `captured` was captured.
    pub(crate) fn payload(&mut self, start: u64, bytes: u64, captured: &[u8], counts: &mut Checksums) {
        let Some(open) = &mut self.open else { return };
        // Old bytes change nothing; a hole or a cut makes the check impossible.
        if start.saturating_add(bytes) <= open.next {
            return;
        }
        let is_whole = start == open.next && start + bytes <= open.end && captured.len() as u64 == bytes;
        if !is_whole {
            self.end(counts);
            return;
        }
        open.sum.add(captured);
        open.next += bytes;
        if open.next == open.end {
            if open.sum.finish() == open.expected {
                counts.right += 1;
            } else {
                counts.wrong += 1;
            }
            self.open = None;
        }
    }
}
