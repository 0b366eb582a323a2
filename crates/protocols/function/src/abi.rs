//! What a host and a module agree on. A module has no imports, a memory named `memory` and five functions,
//! which have only integers as arguments:
//!
//! | export | what it does |
//! | --- | --- |
//! | [`EXPORT_ABI`]`() -> u32` | returns [`ABI`] |
//! | [`EXPORT_AREA`]`() -> u32` | returns the address of an [`Area`] |
//! | [`EXPORT_START`]`(len: u32) -> u32` | reads settings from the packet's place |
//! | [`EXPORT_PACKET`]`(now: u64, from: u32, len: u32) -> u32` | handles the packet; returns an [`Answer`] |
//! | [`EXPORT_REPORT`]`() -> u32` | writes a report to the packet's place |
//!
//! Settings are lines `KEY VALUE`, `len` bytes of them; the answer is 0, or the length of a text that says
//! what is wrong. A report is lines `NAME NUMBER`, and the answer is their length. The time is milliseconds
//! since the instance began, which goes on when it moves.

/// The version of this ABI.
pub const ABI: u32 = 1;
/// The room for a packet, in bytes.
pub const PACKET_BYTES_MAX: usize = 2_048;

/// The names of the exports.
pub const EXPORT_ABI: &str = "anabranch_abi";
/// See [`EXPORT_ABI`].
pub const EXPORT_AREA: &str = "anabranch_area";
/// See [`EXPORT_ABI`].
pub const EXPORT_START: &str = "anabranch_start";
/// See [`EXPORT_ABI`].
pub const EXPORT_PACKET: &str = "anabranch_packet";
/// See [`EXPORT_ABI`].
pub const EXPORT_REPORT: &str = "anabranch_report";

/// The places in a module's memory: four little-endian numbers of 32 bits in this order.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// The address of the room for a packet.
    pub packet: u32,
    /// The room for a packet, bytes.
    pub packet_bytes: u32,
    /// The address of the state.
    pub state: u32,
    /// The length of the state, bytes.
    pub state_bytes: u32,
}

impl Area {
    /// The length of an area in memory, bytes.
    pub const BYTES: usize = 16;

    /// Reads an area.
    #[must_use]
    pub fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Self { packet: number(0), packet_bytes: number(4), state: number(8), state_bytes: number(12) }
    }
}

/// The side of a function at which a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The side of the users.
    Inside = 0,
    /// The side of everybody else.
    Outside = 1,
}

impl Side {
    /// Returns the side of this number.
    #[must_use]
    pub const fn of(number: u32) -> Self {
        if number == 0 { Self::Inside } else { Self::Outside }
    }

    /// Returns the opposite side.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Inside => Self::Outside,
            Self::Outside => Self::Inside,
        }
    }
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is not sent on.
    Drop = 0,
    /// It goes out at the other side.
    Pass = 1,
    /// It goes back to the host from which it came.
    Reply = 2,
}

/// A verdict with the length of the packet now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What becomes of the packet.
    pub verdict: Verdict,
    /// Its length, bytes.
    pub len: u16,
}

impl Answer {
    /// Returns the answer as a number: the verdict in the upper half, the length in the lower one.
    #[must_use]
    pub const fn encode(self) -> u32 {
        (self.verdict as u32) << 16 | self.len as u32
    }

    /// Reads an answer; `None` for an unknown verdict.
    #[must_use]
    pub const fn decode(number: u32) -> Option<Self> {
        let verdict = match number >> 16 {
            0 => Verdict::Drop,
            1 => Verdict::Pass,
            2 => Verdict::Reply,
            _ => return None,
        };
        Some(Self { verdict, len: (number & 0xffff) as u16 })
    }
}
