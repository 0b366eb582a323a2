//! Simulates flows of this project's TCP and Multipath TCP ([`anabranch_mptcp`]): whole connections, with
//! handshakes, options and acknowledgements, segment by segment.
//!
//! ```text
//!  Transfer ── views of the body ──▶ Stack of the sender ── segments ──▶ links ──▶ Stack of the receiver
//!     ▲                                     ▲                                            │        │
//!     │                                     └──────── acknowledgements ◀── links ◀───────┘        │
//!     └─────────────────────── views of what has arrived in order, compared with the body ◀───────┘
//! ```
//!
//! A flow is a pair of hosts, each with a [`Stack`](anabranch_mptcp::Stack); each of its transfers is a
//! connection. The host that opens connections has an address for each path. No byte of a body is copied on
//! the way: segments, queues and programs hold views of one pattern.
//!
//! This module refuses nothing: the scenario's check does.

mod body;
mod config;
mod flow;
mod packet;
mod transfer;

use anabranch_algo::{Span, Time};
use anabranch_mptcp::SubflowReport;
use anabranch_sim::{EventQueue, RouteId};

pub use config::{Message, Opener, TcpFlowConfig, TcpPath, TransferConfig, Workload};
use flow::{Due, Flow};
pub use packet::{FLOW_TCP, TcpPacket};
pub use transfer::TransferReport;

/// A flow of TCP, numbered in the order in which it was added.
pub type TcpFlowId = usize;

/// All flows of TCP and Multipath TCP; see the [module](self).
#[derive(Default)]
pub struct TcpFlows {
    flows: Vec<Flow>,
    timers: EventQueue<(u32, Due)>,
    /// Paths of all flows so far.
    paths: u32,
    digest: u64,
    storm: bool,
}

impl TcpFlows {
    /// Adds a flow; `seed` decides its keys and sequence numbers.
    ///
    /// # Panics
    /// If it has no path.
    pub fn flow(&mut self, config: TcpFlowConfig, seed: anabranch_mptcp::Seed) -> TcpFlowId {
        assert!(!config.paths.is_empty(), "a flow has at least one path");
        let no = self.flows.len();
        for (t, transfer) in config.transfers.iter().enumerate() {
            self.timers.push(transfer.start, (no as u32, Due::Transfer(t as u32)));
        }
        if let Some(stop) = config.stop {
            self.timers.push(stop, (no as u32, Due::Stop));
        }
        let paths = config.paths.len() as u32;
        self.flows.push(Flow::new(no as u32, self.paths, config, seed));
        self.paths += paths;
        no
    }

    /// Returns the time of the next event that is not a packet's arrival.
    #[must_use]
    pub fn next_timer(&self) -> Time {
        self.timers.next_at()
    }

    /// Handles the timers that are due at `now`; passes each packet to `send`.
    pub fn timers(&mut self, now: Time, send: &mut impl FnMut(RouteId, TcpPacket)) {
        while !self.storm
            && let Some((_, (no, due))) = self.timers.pop_due(now)
        {
            self.flows[no as usize].timer(now, due, send);
            self.arm(no);
        }
    }

    /// Handles a packet that has reached the end of its route; passes each packet in answer to `send`.
    pub fn arrived(&mut self, now: Time, packet: &TcpPacket, send: &mut impl FnMut(RouteId, TcpPacket)) {
        let what = now.as_nanos() ^ packet.fingerprint();
        self.digest = (self.digest.rotate_left(5) ^ what).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.flows[packet.flow as usize].arrived(now, packet, send);
        self.arm(packet.flow);
    }

    /// Makes sure that a flow has timers no later than its deadlines.
    fn arm(&mut self, no: u32) {
        let flow = &mut self.flows[no as usize];
        self.storm |= flow.storms();
        for (at, due) in flow.new_timers() {
            self.timers.push(at, (no, due));
        }
    }

    /// Whether a stack had something to do so often at one time that there must be an endless loop.
    #[must_use]
    pub const fn storms(&self) -> bool {
        self.storm
    }

    /// Returns a digest of all arrivals and their times.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.digest
    }

    // Readers.

    /// Returns the payload bytes that the receiver's program has read in all transfers of a flow.
    #[must_use]
    pub fn read_bytes(&self, flow: TcpFlowId) -> u64 {
        self.flows[flow].read_bytes()
    }

    /// Returns the payload bytes that have arrived so far on each path of a flow. Bytes that have arrived on
    /// two paths count on both.
    #[must_use]
    pub fn delivered_bytes(&self, flow: TcpFlowId) -> &[u64] {
        self.flows[flow].delivered()
    }

    /// Returns the sum of the windows of the sender's subflows on each path of a flow, packets.
    #[must_use]
    pub fn cwnds(&self, flow: TcpFlowId) -> Vec<u32> {
        let mut cwnds = vec![0; self.flows[flow].delivered().len()];
        self.flows[flow].each_subflow(|path, report: &SubflowReport| {
            if let Some(cwnd) = cwnds.get_mut(path) {
                *cwnd += report.cwnd_packets;
            }
        });
        cwnds
    }

    /// Returns the smoothed RTT of each path of a flow, as of its latest subflow; zero before the first
    /// sample.
    #[must_use]
    pub fn srtts(&self, flow: TcpFlowId) -> Vec<Span> {
        self.flows[flow].srtts()
    }

    /// Returns how many segments with data the sender of a flow has sent.
    #[must_use]
    pub fn data_segments(&self, flow: TcpFlowId) -> u64 {
        self.flows[flow].data_segments()
    }

    /// Returns the transfers of a flow, in the order in which they were configured.
    #[must_use]
    pub fn transfers(&self, flow: TcpFlowId) -> Vec<TransferReport> {
        self.flows[flow].transfers()
    }

    /// Returns the invariants that were violated.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let of = |(no, flow): (usize, &Flow)| -> Vec<String> {
            flow.violations().iter().map(|what| format!("TCP flow {no}: {what}")).collect()
        };
        self.flows.iter().enumerate().flat_map(of).collect()
    }
}
