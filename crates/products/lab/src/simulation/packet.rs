//! Defines the parts of a simulation: paths, faults and packets.

use anabranch_algo::controller::ControllerKind;
use anabranch_mmtp::subscriber::PathId;
use anabranch_sim::{LinkChange, LinkId};

use crate::packet_flows::Segment;
use crate::tcp_flows::TcpPacket;

/// Bytes of a packet beside its UDP payload: Ethernet, IPv4 and UDP headers. A link's
/// [`mtu_bytes`](anabranch_sim::LinkConfig::mtu_bytes) counts them: 1,514 is the usual MTU of 1,500.
pub const OVERHEAD_BYTES: usize = 14 + 20 + 8;
/// UDP payload that fits an MTU of 1,500 over IPv4, bytes.
pub const PAYLOAD_MAX: usize = 1_472;

/// Base of [`anabranch_sim::Packet::flow`] for content: path `p` of the simulation has this number plus `p`.
/// Data of packet flows has the number of its path.
pub const FLOW_DATAGRAMS: u32 = 1 << 31;

/// A source of a simulation, numbered in the order in which it was added.
pub type SimSourceId = usize;
/// A receiver of a simulation, numbered in the order in which it was added.
pub type ReceiverId = usize;

/// The links and settings of a path.
#[derive(Clone, Debug)]
pub struct PathSpec {
    /// Links from the source to the receiver.
    pub down: Vec<LinkId>,
    /// Links from the receiver to the source.
    pub up: Vec<LinkId>,
    /// Friendliness group: paths with the same number are coupled.
    pub group: u32,
    /// Number of the uplink, for [`Grouping::Auto`](anabranch_mmtp::subscriber::Grouping::Auto); `None` if
    /// it is unknown.
    pub uplink: Option<u32>,
    /// Congestion control of the path.
    pub control: ControllerKind,
    /// Largest UDP payload of the receiver's interface, bytes.
    pub payload_max: usize,
}

impl PathSpec {
    /// Creates a path over these links, in group 0, with an Ethernet interface and an unknown uplink.
    #[must_use]
    pub fn new(down: &[LinkId], up: &[LinkId], control: impl Into<ControllerKind>) -> Self {
        let (down, up, control) = (down.into(), up.into(), control.into());
        Self { down, up, group: 0, uplink: None, control, payload_max: PAYLOAD_MAX }
    }
}

/// A fault or change of a simulation at a given time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// A source dies.
    Kill {
        /// The source.
        source: SimSourceId,
        /// Whether the source's host answers requests with ICMP "unreachable".
        unreachable: bool,
    },
    /// A source is back, as a new process with a new secret.
    Restart {
        /// The source.
        source: SimSourceId,
    },
    /// A link changes.
    Link {
        /// The link.
        link: LinkId,
        /// The change.
        change: LinkChange,
    },
    /// A receiver loses the interface of a path, or gets it back.
    Interface {
        /// The receiver.
        receiver: ReceiverId,
        /// The path.
        path: PathId,
        /// Whether the interface is up from now on.
        up: bool,
    },
}

/// A packet on the links. Each packet in flight is in a queue, so it has only 16 bytes.
#[derive(Clone, Debug)]
pub(crate) enum Packet {
    /// A packet with content.
    Boxed(Box<BoxedPacket>),
    /// A segment of a packet flow.
    Segment(Segment),
}

/// A packet with content.
#[derive(Clone, Debug)]
pub(crate) enum BoxedPacket {
    /// A datagram of mmTP.
    Datagram(Datagram),
    /// A segment of TCP.
    Tcp(TcpPacket),
}

const _: () = assert!(size_of::<Packet>() == 16);

impl From<Datagram> for Packet {
    fn from(datagram: Datagram) -> Self {
        Self::Boxed(Box::new(BoxedPacket::Datagram(datagram)))
    }
}

impl From<TcpPacket> for Packet {
    fn from(packet: TcpPacket) -> Self {
        Self::Boxed(Box::new(BoxedPacket::Tcp(packet)))
    }
}

/// A UDP payload in flight.
#[derive(Clone, Debug, Default)]
pub(crate) struct Datagram {
    pub(super) bytes: Vec<u8>,
    /// For content (not requests): the number of the path among all paths of the simulation.
    pub(super) content: Option<u32>,
    pub(super) ect: bool,
    pub(super) marked: bool,
    /// Whether a header was corrupted: a checksum detects this, and the packet is ignored.
    pub(super) broken: bool,
    /// Whether it is an ICMP error that reports an unreachable source.
    pub(super) icmp: bool,
}

impl anabranch_sim::Packet for Packet {
    fn bytes(&self) -> u32 {
        match self {
            Self::Boxed(boxed) => boxed.bytes(),
            Self::Segment(segment) => segment.bytes(),
        }
    }
    fn mark(&mut self) {
        match self {
            Self::Boxed(boxed) => boxed.mark(),
            Self::Segment(segment) => segment.mark(),
        }
    }
    fn is_ect(&self) -> bool {
        match self {
            Self::Boxed(boxed) => boxed.is_ect(),
            Self::Segment(segment) => segment.is_ect(),
        }
    }
    fn flow(&self) -> Option<u32> {
        match self {
            Self::Boxed(boxed) => boxed.flow(),
            Self::Segment(segment) => segment.flow(),
        }
    }
    fn flow_key(&self) -> u64 {
        match self {
            Self::Boxed(boxed) => boxed.flow_key(),
            Self::Segment(segment) => segment.flow_key(),
        }
    }
    fn corrupt(&mut self, bit: u64) {
        if let Self::Boxed(boxed) = self {
            boxed.corrupt(bit);
        }
    }
}

impl anabranch_sim::Packet for BoxedPacket {
    fn bytes(&self) -> u32 {
        match self {
            Self::Datagram(datagram) => (datagram.bytes.len() + OVERHEAD_BYTES) as u32,
            Self::Tcp(packet) => packet.bytes(),
        }
    }
    fn mark(&mut self) {
        match self {
            Self::Datagram(datagram) => datagram.marked = datagram.ect,
            Self::Tcp(packet) => packet.mark(),
        }
    }
    fn is_ect(&self) -> bool {
        match self {
            Self::Datagram(datagram) => datagram.ect,
            Self::Tcp(packet) => packet.is_ect(),
        }
    }
    fn flow(&self) -> Option<u32> {
        match self {
            Self::Datagram(datagram) => datagram.content.map(|path| FLOW_DATAGRAMS | path),
            Self::Tcp(packet) => packet.flow(),
        }
    }
    fn flow_key(&self) -> u64 {
        match self {
            // The paths of mmTP are numbered apart from those of packet flows.
            Self::Datagram(datagram) => 1 << 63 | datagram.content.map_or(0, |path| 1 + u64::from(path)),
            Self::Tcp(packet) => packet.flow_key(),
        }
    }
    /// Flips a bit of an mmTP payload, as if it had slipped past the checksum: the harder test.
    fn corrupt(&mut self, bit: u64) {
        let datagram = match self {
            Self::Datagram(datagram) => datagram,
            Self::Tcp(packet) => return packet.corrupt(bit),
        };
        let at = (bit / 8) as usize;
        match at.checked_sub(OVERHEAD_BYTES).and_then(|at| datagram.bytes.get_mut(at)) {
            Some(byte) => *byte ^= 1 << (bit % 8),
            None => datagram.broken = true,
        }
    }
}
