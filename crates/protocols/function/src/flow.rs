//! The flow of a packet: its ends as the users' side sees them, whatever way the packet goes.

use crate::abi::Side;
use crate::packet::{End, Ends};
use crate::table::{Key, Plain, mixed};

/// A flow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// The user's end.
    pub inside: End,
    /// The other end.
    pub outside: End,
    /// The number of the protocol.
    pub protocol: u32,
}

#[expect(unsafe_code, reason = "ends are two integers")]
// SAFETY: it is an address and a port.
unsafe impl Plain for End {}
#[expect(unsafe_code, reason = "a flow is integers")]
// SAFETY: it consists of two ends and a number.
unsafe impl Plain for Flow {}

impl Flow {
    /// A flow of zeros.
    pub const NONE: Self =
        Self { inside: End { address: 0, port: 0 }, outside: End { address: 0, port: 0 }, protocol: 0 };

    /// Returns the flow of a packet with these ends that comes from this side.
    #[must_use]
    pub const fn of(ends: Ends, from: Side) -> Self {
        let (inside, outside) = match from {
            Side::Inside => (ends.from, ends.to),
            Side::Outside => (ends.to, ends.from),
        };
        Self { inside, outside, protocol: ends.protocol as u32 }
    }
}

impl Key for Flow {
    fn mix(&self, seed: u64) -> u64 {
        let addresses = u64::from(self.inside.address) << 32 | u64::from(self.outside.address);
        let ports = u64::from(self.inside.port) << 32 | u64::from(self.outside.port) << 16;
        mixed(mixed(seed, addresses), ports | u64::from(self.protocol))
    }
}

/// An address as a key.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address(pub u32);

#[expect(unsafe_code, reason = "an address is an integer")]
// SAFETY: it is a number.
unsafe impl Plain for Address {}

impl Key for Address {
    fn mix(&self, seed: u64) -> u64 {
        mixed(seed, u64::from(self.0))
    }
}
