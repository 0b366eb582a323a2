//! What an emulator counts.

use anabranch_algo::{Span, Time};
use anabranch_sim::{Histogram, RouteId, Stats};

/// A TUN device of an [`Emulator`](super::Emulator), by the order in which they were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u32);

/// What one connection has carried, one direction between two devices.
#[derive(Clone, Debug)]
pub struct ConnectionStats {
    /// Where its packets are read.
    pub from: PortId,
    /// Where they are written.
    pub to: PortId,
    /// How they travel.
    pub route: RouteId,
    /// Packets handed over at the end.
    pub packets: u64,
    /// Their bytes, IP headers included.
    pub bytes: u64,
    /// Packets that the kernel refused at the end: the device is down, memory is short. They are lost, beyond
    /// what the links lose: not 0 means that the run was not what was asked for.
    pub unwritten: u64,
    /// How much later than its time the kernel was given each packet.
    pub lateness: Histogram,
}

/// What was read from one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Packets read.
    pub packets: u64,
    /// Their bytes, IP headers included.
    pub bytes: u64,
    /// Packets that no connection takes; they go nowhere.
    pub unrouted: u64,
    /// What was no whole IP packet, as when the device's MTU has been raised; it goes nowhere.
    pub malformed: u64,
    /// Reads that failed.
    pub unread: u64,
    /// Packets that the kernel dropped before they could be read, since too many waited
    /// ([`anabranch_net::tun::QUEUE_PACKETS`]): not 0 means that the run was not what was asked for, unless a
    /// program sent without regard.
    pub overflowed: u64,
}

/// How an emulator is doing.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The time since the start, which is also the net's.
    pub at: Time,
    /// Whether the thread is of the real-time class.
    pub realtime: bool,
    /// CPU time of the thread, with what the network stack did with the packets that it wrote; of all its
    /// emulators.
    pub cpu: Span,
    /// How often the thread went to sleep, with all its emulators.
    pub waits: u64,
    /// What each link saw, by the order in which they were made.
    pub links: Vec<Stats>,
    /// How long packets stayed at each link that plays a trace; none of others.
    pub sojourns: Vec<Option<Histogram>>,
    /// What each connection carried, by the order in which they were made.
    pub connections: Vec<ConnectionStats>,
    /// What was read from each device, by the order in which they were given.
    pub ports: Vec<PortStats>,
    /// Why it stopped to carry anything, if it did.
    pub failure: Option<String>,
}

impl Snapshot {
    /// How late the packets of all connections were handed over.
    #[must_use]
    pub fn lateness(&self) -> Histogram {
        let mut all = Histogram::new();
        self.connections.iter().for_each(|connection| all.add(&connection.lateness));
        all
    }

    /// What 99 of 100 packets of each connection were not later than: the 99th percentile of that connection
    /// where it is largest. All packets together would say less of a connection with few.
    #[must_use]
    pub fn late_p99(&self) -> Span {
        let each = self.connections.iter().map(|connection| connection.lateness.quantile(0.99));
        each.max().unwrap_or(Span::ZERO)
    }

    /// In which ways the run was not what the links were told to do, in words; `None` if in none. How late
    /// packets may be, only the caller knows.
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
