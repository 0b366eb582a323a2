//! The counters of an emulator.

use anabranch_algo::{Span, Time};
use anabranch_sim::{Histogram, RouteId, Stats};

/// The number of a TUN device of an [`Emulator`](super::Emulator), in the order in which the devices were
/// added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u32);

/// The counters of one connection, which is one direction between two devices.
#[derive(Clone, Debug)]
pub struct ConnectionStats {
    /// The port where its packets are read.
    pub from: PortId,
    /// The port where its packets are written.
    pub to: PortId,
    /// The route that its packets take.
    pub route: RouteId,
    /// Packets written at the end.
    pub packets: u64,
    /// Bytes written at the end, including IP headers.
    pub bytes: u64,
    /// Packets that the kernel refused at the end, because the device is down or memory is short. They are
    /// lost in addition to the losses of the links. If this is not 0, the run was not the one that was asked
    /// for.
    pub unwritten: u64,
    /// How late each packet was handed to the kernel.
    pub lateness: Histogram,
}

/// The counters of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Packets read.
    pub packets: u64,
    /// Bytes read, including IP headers.
    pub bytes: u64,
    /// Packets that were dropped because the device has no connection.
    pub unrouted: u64,
    /// Reads that were no whole IP packet, for example because the device's MTU was raised. They were
    /// dropped.
    pub malformed: u64,
    /// Reads that failed.
    pub unread: u64,
    /// Packets that the kernel dropped before they could be read, because too many waited
    /// ([`anabranch_net::tun::QUEUE_PACKETS`]). If this is not 0, the run was not the one that was asked for,
    /// unless a program sent without congestion control.
    pub overflowed: u64,
}

/// The state and the counters of an emulator.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The time since the start, which is also the net's time.
    pub at: Time,
    /// Whether the thread is of the real-time class.
    pub realtime: bool,
    /// The CPU time of the thread, for all its emulators. It includes the network stack's work on the packets
    /// that the thread wrote.
    pub cpu: Span,
    /// How often the thread went to sleep, for all its emulators.
    pub waits: u64,
    /// The counters of each link, in the order in which the links were made.
    pub links: Vec<Stats>,
    /// How long packets stayed at each link that plays a trace; `None` for other links.
    pub sojourns: Vec<Option<Histogram>>,
    /// The counters of each connection, in the order in which the connections were made.
    pub connections: Vec<ConnectionStats>,
    /// The counters of each device, in the order in which the devices were added.
    pub ports: Vec<PortStats>,
    /// The reason why the thread stopped carrying packets, if it did.
    pub failure: Option<String>,
}

impl Snapshot {
    /// Returns the lateness of the packets of all connections.
    #[must_use]
    pub fn lateness(&self) -> Histogram {
        let mut all = Histogram::new();
        self.connections.iter().for_each(|connection| all.add(&connection.lateness));
        all
    }

    /// Returns the largest 99th percentile of lateness among the connections. A percentile over all packets
    /// would hide a connection with few.
    #[must_use]
    pub fn late_p99(&self) -> Span {
        let each = self.connections.iter().map(|connection| connection.lateness.quantile(0.99));
        each.max().unwrap_or(Span::ZERO)
    }

    /// Says in words how the run differs from what the links were told to do; `None` if it does not. Lateness
    /// is not included, because only the caller knows how late packets may be.
    #[must_use]
    pub fn violations(&self) -> Option<String> {
        let sum = |count: fn(&PortStats) -> u64| self.ports.iter().map(count).sum::<u64>();
        let counts = [
            (
                self.connections.iter().map(|connection| connection.unwritten).sum(),
                "packets refused by the kernel",
            ),
            (sum(|port| port.overflowed), "packets dropped before they were read"),
            (sum(|port| port.malformed), "packets that were not whole"),
            (sum(|port| port.unrouted), "packets that no connection takes"),
            (sum(|port| port.unread), "failed reads"),
        ];
        let counts =
            counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
        let realtime = (!self.realtime).then(|| "not real-time".to_owned());
        let failure = self.failure.iter().map(|failure| format!("stopped: {failure}"));
        let violations: Vec<String> = failure.chain(counts).chain(realtime).collect();
        (!violations.is_empty()).then(|| violations.join(", "))
    }
}
