//! The SYN with its retransmissions, and the parameters that the two SYNs settle: segment size, window
//! scale, SACK, timestamps, ECN (RFC 9293
//! section 3.7.1, RFC 7323, RFC 2018, RFC 3168 section 6.1.1).

use std::net::SocketAddr;

use anabranch_algo::{Span, Time};
use anabranch_mptcp_wire::{OptionBuffer, SackBlocks, TcpOption};

use crate::config::TcpConfig;
use crate::segment::{Flags, IPV4_HEADER_BYTES, IPV6_HEADER_BYTES, Segment, TCP_HEADER_BYTES};

/// The segment size of a peer that names none (RFC 9293 section 3.7.1).
const MSS_DEFAULT: u16 = 536;
/// The smallest segment size that is accepted from a peer. Options take their room from it, too.
const MSS_MIN: u16 = 88;
/// The largest shift of a window (RFC 7323 section 2.3).
const WINDOW_SCALE_MAX: u8 = 14;

/// The SYN or SYN/ACK and its retransmissions.
#[derive(Clone, Copy, Debug)]
pub(super) struct SynTimer {
    pub(super) iss: u32,
    /// How often the SYN was sent.
    pub(super) count: u32,
    /// When it was first sent, and last.
    pub(super) began: Time,
    pub(super) sent_at: Time,
    pub(super) due: Time,
}

impl SynTimer {
    /// Returns when the SYN was sent that the peer has answered. If it was sent more than once, only the
    /// timestamp tells that the answer echoes (RFC 7323 section 4.1); `timestamp` is that of a segment sent
    /// now.
    pub(super) fn answered(&self, now: Time, timestamp: u32, echo: Option<u32>) -> Option<Time> {
        if self.count == 1 {
            return Some(self.sent_at);
        }
        let ago = Span::from_millis(u64::from(timestamp.wrapping_sub(echo?)));
        (ago <= now.since(self.began) + Span::from_millis(1))
            .then(|| Time::ZERO + (now.since(Time::ZERO) - ago))
    }
}

/// The options of a segment that TCP itself reads.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TcpFields {
    pub(crate) mss: Option<u16>,
    pub(crate) window_scale: Option<u8>,
    pub(crate) sack_permitted: bool,
    pub(crate) sack: SackBlocks,
    /// The value and the echo of the timestamps option.
    pub(crate) timestamps: Option<(u32, u32)>,
}

impl TcpFields {
    /// Reads the options of a segment and ignores malformed ones.
    pub(crate) fn read(segment: &Segment) -> Self {
        let mut fields = Self::default();
        for option in segment.options.iter().flatten() {
            match option {
                TcpOption::Mss(bytes) => fields.mss = Some(bytes),
                TcpOption::WindowScale(shift) => fields.window_scale = Some(shift),
                TcpOption::SackPermitted => fields.sack_permitted = true,
                TcpOption::Sack(blocks) => fields.sack = blocks,
                TcpOption::Timestamps { value, echo } => fields.timestamps = Some((value, echo)),
                _ => {}
            }
        }
        fields
    }
}

/// The parameters on which both ends agreed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    /// The most bytes of data and options in a segment.
    pub(crate) mss: u16,
    /// The shift of the windows that the peer announces.
    pub(crate) peer_scale: u8,
    /// The shift of the windows that are announced to the peer.
    pub(crate) own_scale: u8,
    pub(crate) sack: bool,
    pub(crate) timestamps: bool,
    pub(crate) ecn: bool,
}

/// Returns the segment size that this end announces, which fits into the MTU without fragments.
pub(crate) fn own_mss(config: &TcpConfig, local: SocketAddr) -> u16 {
    let ip = if local.is_ipv4() { IPV4_HEADER_BYTES } else { IPV6_HEADER_BYTES };
    config.mtu_bytes.saturating_sub((ip + TCP_HEADER_BYTES) as u16).max(MSS_MIN)
}

impl Agreed {
    /// Returns the parameters that this end offers.
    pub(crate) fn offer(config: &TcpConfig, local: SocketAddr, buffer_bytes: u32) -> Self {
        let own_scale = (0..WINDOW_SCALE_MAX).find(|shift| buffer_bytes >> shift <= u32::from(u16::MAX));
        Self {
            mss: own_mss(config, local),
            peer_scale: 0,
            own_scale: own_scale.unwrap_or(WINDOW_SCALE_MAX),
            sack: true,
            timestamps: config.timestamps,
            ecn: config.ecn,
        }
    }

    /// Reduces the offer to what the peer's SYN or SYN/ACK also offers.
    pub(crate) fn settle(&mut self, segment: &Segment, fields: &TcpFields) {
        let peer_mss = fields.mss.unwrap_or(MSS_DEFAULT).max(MSS_MIN);
        self.mss = self.mss.min(peer_mss);
        match fields.window_scale {
            Some(shift) => self.peer_scale = shift.min(WINDOW_SCALE_MAX),
            None => self.own_scale = 0,
        }
        self.sack &= fields.sack_permitted;
        self.timestamps &= fields.timestamps.is_some();
        let is_reply = segment.flags.has(Flags::ACK);
        let wanted = if is_reply { Flags::ECE } else { Flags::ECE.and(Flags::CWR) };
        // A SYN/ACK that reflects both flags comes from a host that does not know them.
        let reflected = is_reply && segment.flags.has(Flags::CWR);
        self.ecn &= segment.flags.has(wanted) && !reflected;
    }

    /// Returns the options of a SYN, or of a SYN/ACK after [`settle`](Self::settle).
    pub(crate) fn write(&self, local_mss: u16, timestamps: (u32, u32), is_reply: bool) -> OptionBuffer {
        let mut options = OptionBuffer::default();
        options.push(&TcpOption::Mss(local_mss));
        if self.sack {
            options.push(&TcpOption::SackPermitted);
        }
        if self.timestamps {
            options.push(&TcpOption::Timestamps { value: timestamps.0, echo: timestamps.1 });
        }
        if self.own_scale > 0 || !is_reply {
            options.push(&TcpOption::WindowScale(self.own_scale));
        }
        options
    }
}
