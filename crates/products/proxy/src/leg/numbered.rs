//! A datagram that is about to leave.

use bytes::Bytes;

use super::mode::Mode;
use super::packet::{Datagram, Frame};
use crate::trunk::Destination;

/// A datagram with its number.
#[derive(Debug)]
pub(super) struct Numbered {
    pub(super) flow: u32,
    pub(super) mode: Mode,
    pub(super) number: u64,
    pub(super) peer: Destination,
    pub(super) bytes: Bytes,
}

impl Numbered {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let number = self.number as u32 & 0xff_ffff;
        let (mode, flow, peer) = (self.mode, self.flow, self.peer.clone());
        Frame::Datagram(Datagram { mode, flow, number, peer, bytes: &self.bytes }).encode(out);
    }
}
