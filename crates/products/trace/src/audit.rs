//! Checks of DSS checksums (RFC 8684 section 3.3.1) as far as payload was captured.

use anabranch_mptcp_wire::InternetChecksum;
use anabranch_mptcp_wire::checksum::dss_pseudo_header;
use serde::Serialize;

/// What the checksums of a connection were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Checksums {
    /// An end asked for checksums in MP_CAPABLE.
    pub required: bool,
    /// Mappings whose checksum is right.
    pub right: u64,
    /// Mappings whose checksum is wrong.
    pub wrong: u64,
    /// Mappings with a checksum whose payload was not captured whole and in order.
    pub unchecked: u64,
}

/// A mapping's checksum while its bytes come.
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
    /// A new mapping of `seq..end` on the subflow.
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

    /// The mapping ends before it could be checked.
    pub(crate) fn end(&mut self, counts: &mut Checksums) {
        counts.unchecked += u64::from(self.open.take().is_some());
    }

    /// Payload at `start` of which `captured` is there; `bytes` on the wire.
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
