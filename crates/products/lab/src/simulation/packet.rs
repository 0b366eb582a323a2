//! What a simulation is made of.

use anabranch_algo::controller::ControllerKind;
use anabranch_mmtp::subscriber::PathId;
use anabranch_sim::{LinkChange, LinkId};

use crate::packet_flows::Segment;

/// What a packet has beside its UDP payload: Ethernet, IPv4 and UDP headers, bytes. A link's
/// [`mtu_bytes`](anabranch_sim::LinkConfig::mtu_bytes) counts them: 1,514 is the usual MTU of 1,500.
pub const OVERHEAD_BYTES: usize = 14 + 20 + 8;
/// UDP payload that fits an MTU of 1,500 over IPv4, bytes.
pub const PAYLOAD_MAX: usize = 1_472;

/// [`anabranch_sim::Packet::flow`] of content on path `p` of the simulation is this and `p`; of packet flows'
/// data, its path.
pub const FLOW_DATAGRAMS: u32 = 1 << 31;

/// A source of a simulation, by the order in which it was added.
pub type SimSourceId = usize;
/// A receiver of a simulation, by the order in which it was added.
pub type ReceiverId = usize;

/// How a path runs.
#[derive(Clone, Debug)]
pub struct PathSpec {
    /// Links from the source to the receiver.
    pub down: Vec<LinkId>,
    /// Links from the receiver to the source.
    pub up: Vec<LinkId>,
    /// Friendliness group: paths with the same number are coupled.
    pub group: u32,
    /// Its uplink, for [`Grouping::Auto`](anabranch_mmtp::subscriber::Grouping::Auto); none: that is not
    /// known.
    pub uplink: Option<u32>,
    /// Its congestion control.
    pub control: ControllerKind,
    /// UDP payload that the receiver's interface takes, bytes.
    pub payload_max: usize,
}

impl PathSpec {
    /// A path over these links, in group 0, of an Ethernet interface and an
    /// uplink that is not known.
    #[must_use]
    pub fn new(down: &[LinkId], up: &[LinkId], control: impl Into<ControllerKind>) -> Self {
        let (down, up, control) = (down.into(), up.into(), control.into());
        Self { down, up, group: 0, uplink: None, control, payload_max: PAYLOAD_MAX }
    }
}

/// What may happen to a simulation at a given time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// A source dies.
    Kill {
        /// Which.
        source: SimSourceId,
        /// Whether its host answers in its place that nobody is there (ICMP).
        unreachable: bool,
    },
    /// A source is back, as a new process with a new secret.
    Restart {
        /// Which.
        source: SimSourceId,
    },
    /// A link changes.
    Link {
        /// Which.
        link: LinkId,
        /// How.
        change: LinkChange,
    },
    /// A receiver loses the interface of a path, or has it again.
    Interface {
        /// Whose.
        receiver: ReceiverId,
        /// Of which path.
        path: PathId,
        /// Whether it is there now.
        up: bool,
    },
}

/// What travels over the links: 16 bytes, for every one under way is in some queue.
#[derive(Clone, Debug)]
pub(crate) enum Packet {
    /// Of mmTP.
    Datagram(Box<Datagram>),
    /// Of a packet flow.
    Segment(Segment),
}

const _: () = assert!(size_of::<Packet>() == 16);

impl From<Datagram> for Packet {
    fn from(datagram: Datagram) -> Self {
        Self::Datagram(Box::new(datagram))
    }
}

/// A UDP payload on its way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Datagram {
    pub(super) bytes: Vec<u8>,
    /// Whether it is content, not a request: then the number of the path among all of the simulation.
    pub(super) content: Option<u32>,
    pub(super) ect: bool,
    pub(super) marked: bool,
    /// A header was hit: the checksum tells, nobody sees it.
    pub(super) broken: bool,
    /// It says that nobody was there.
    pub(super) icmp: bool,
}

impl anabranch_sim::Packet for Packet {
    fn bytes(&self) -> u32 {
        match self {
            Self::Datagram(datagram) => (datagram.bytes.len() + OVERHEAD_BYTES) as u32,
            Self::Segment(segment) => segment.bytes(),
        }
    }
    fn mark(&mut self) {
        match self {
            Self::Datagram(datagram) => datagram.marked = datagram.ect,
            Self::Segment(segment) => segment.mark(),
        }
    }
    fn is_ect(&self) -> bool {
        match self {
            Self::Datagram(datagram) => datagram.ect,
            Self::Segment(segment) => segment.is_ect(),
        }
    }
    fn flow(&self) -> Option<u32> {
        match self {
            Self::Datagram(datagram) => datagram.content.map(|path| FLOW_DATAGRAMS | path),
            Self::Segment(segment) => segment.flow(),
        }
    }
    fn flow_key(&self) -> u64 {
        match self {
            // The paths of mmTP are numbered apart from those of packet flows.
            Self::Datagram(datagram) => 1 << 63 | datagram.content.map_or(0, |path| 1 + u64::from(path)),
            Self::Segment(segment) => segment.flow_key(),
        }
    }
    /// A flip in the payload gets through, as if it had slipped past the checksum: the harder test.
    fn corrupt(&mut self, bit: u64) {
        let Self::Datagram(datagram) = self else { return };
        let at = (bit / 8) as usize;
        match at.checked_sub(OVERHEAD_BYTES).and_then(|at| datagram.bytes.get_mut(at)) {
            Some(byte) => *byte ^= 1 << (bit % 8),
            None => datagram.broken = true,
        }
    }
}
