//! The simulator's links between real network stacks, in real time.
//!
//! An [`Emulator`] is a [`sim::Net`] whose packets come out of TUN devices and go into others, in namespaces
//! with whatever runs there: the kernel's own TCP, unmodified programs. It adds nothing to what the links do.
//! A packet enters the net with the time at which it was read; when it leaves, the net says, which keeps a
//! clock of its own: that the emulator wakes late never moves a departure, it only hands the packet over
//! late. By how much is counted for every packet ([`ConnectionStats::lateness`]). That a packet waits before
//! it is read can't be seen, and takes about as long.
//!
//! **The thread.** A [`Driver`] is one, for one emulator or many. It waits for their devices and for the next
//! event of their nets, to the nanosecond. It is of the real-time class where that is allowed
//! ([`Snapshot::realtime`]): otherwise, on a busy machine, packets are milliseconds late.
//!
//! **What is left behind.** Nothing: devices and namespaces go with the descriptors that this process holds.
//!
//! ```no_run
//! use algo::{Rate, Span};
//! use net::emulator::{Emulator, IpPacket};
//! use net::{Namespace, Tun};
//! use sim::LinkConfig;
//!
//! # fn main() -> std::io::Result<()> {
//! let mut links = sim::Net::<IpPacket>::new(1);
//! let config = LinkConfig::new(Rate::from_bits(12_000_000), Span::from_millis(20)).queue_packets(40);
//! let down = links.link("down", config.clone());
//! let down = links.route(&[down]);
//! let up = links.link("up", config);
//! let up = links.route(&[up]);
//!
//! let (server, client) = (Namespace::new()?, Namespace::new()?);
//! let mut emulator = Emulator::new(links);
//! let near = emulator.add_port(Tun::new(&server, "link", 1_500, false)?);
//! let far = emulator.add_port(Tun::new(&client, "link", 1_500, false)?);
//! emulator.connect(near, far, down, Some(0));
//! emulator.connect(far, near, up, None);
//! let running = emulator.start()?;
//! // Give both devices addresses and routes, run programs in both namespaces, then:
//! println!("{:?}", running.stop().connections[0].lateness.quantile(0.99));
//! # Ok(())
//! # }
//! ```

mod buffer_pool;
mod cross_traffic;
mod driver;
mod emulation;
mod histogram;
mod ip_packet;

use std::io;
use std::sync::Arc;
use std::sync::mpsc;

use algo::{Span, Time};
use sim::{LinkChange, LinkConfig, LinkId, RouteId, Stats};

pub use cross_traffic::CrossTraffic;
pub use driver::Driver;
pub use histogram::Histogram;
pub use ip_packet::IpPacket;

use crate::Tun;
use cross_traffic::CrossTrafficGenerator;
use driver::Request;

/// A TUN device of an [`Emulator`], by the order in which they were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u32);

/// Links, and the devices between which they carry packets; see the [module](self).
#[derive(Debug)]
pub struct Emulator {
    net: sim::Net<IpPacket>,
    links: u32,
    ports: Vec<Port>,
    connections: Vec<Connection>,
    cross_traffic: CrossTrafficGenerator,
}

#[derive(Debug)]
struct Port {
    tun: Arc<Tun>,
    /// Where what is read here goes.
    connection: Option<u32>,
    stats: PortStats,
    /// Whether there may be something to read.
    active: bool,
}

#[derive(Debug)]
struct Connection {
    to: u32,
    route: RouteId,
    flow: u32,
    stats: ConnectionStats,
}

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
    /// ([`tun::QUEUE_PACKETS`](crate::tun::QUEUE_PACKETS)): not 0 means that the run was not what was asked
    /// for, unless a program sent without regard.
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

impl Emulator {
    /// An emulator of these links, without devices. Time zero of the net is the moment of
    /// [`start`](Self::start).
    #[must_use]
    pub fn new(mut net: sim::Net<IpPacket>) -> Self {
        net.report_drops(true);
        // A net does not say how many links it has. The number of one more does, which no route uses.
        let links = net.link("", LinkConfig::default()).0;
        Self {
            net,
            links,
            ports: Vec::new(),
            connections: Vec::new(),
            cross_traffic: CrossTrafficGenerator::default(),
        }
    }

    /// Adds a device.
    ///
    /// # Panics
    /// If there are 2^32.
    pub fn add_port(&mut self, tun: Tun) -> PortId {
        let id = u32::try_from(self.ports.len()).expect("fewer than 2^32 devices");
        let stats = PortStats::default();
        self.ports.push(Port { tun: Arc::new(tun), connection: None, stats, active: true });
        PortId(id)
    }

    /// Packets read at `from` travel `route` and are written at `to`. Those with TCP or UDP payload count as
    /// data of `flow` on links that drop by number ([`LinkConfig::scripted_flow_drops`]). Connections are
    /// numbered by the order in which they are made ([`Snapshot::connections`]).
    ///
    /// # Panics
    /// If a port is not of this emulator, `from` has a connection already, or only one of them has offload:
    /// what one hands out the other can't take.
    pub fn connect(&mut self, from: PortId, to: PortId, route: RouteId, flow: Option<u32>) {
        let offload = self.ports[to.0 as usize].tun.offload();
        let port = &mut self.ports[from.0 as usize];
        assert!(port.connection.is_none(), "a port leads to one other only");
        assert!(port.tun.offload() == offload, "both ends of a connection have offload, or none");
        port.connection = Some(u32::try_from(self.connections.len()).expect("no more than ports"));
        let lateness = Histogram::new();
        let stats = ConnectionStats { from, to, route, packets: 0, bytes: 0, unwritten: 0, lateness };
        let flow = flow.unwrap_or(ip_packet::NO_ID);
        self.connections.push(Connection { to: to.0, route, flow, stats });
    }

    /// Adds cross traffic, at the exact times of the net's clock.
    pub fn add_cross_traffic(&mut self, cross_traffic: CrossTraffic) {
        self.cross_traffic.add(cross_traffic);
    }

    /// Starts the clock, and a thread for this emulator alone; see [`Driver`] for many.
    ///
    /// # Errors
    /// Out of descriptors, of threads; a kernel before Linux 5.11.
    pub fn start(self) -> io::Result<EmulatorHandle> {
        Driver::new()?.start(self)
    }

    fn tuns(&self) -> Vec<Arc<Tun>> {
        self.ports.iter().map(|port| port.tun.clone()).collect()
    }
}

/// An [`Emulator`] at work, until it is dropped.
#[derive(Debug)]
pub struct EmulatorHandle {
    driver: Driver,
    number: u32,
    origin: Time,
    links: u32,
    tuns: Vec<Arc<Tun>>,
    /// Whether it has been stopped.
    stopped: bool,
}

impl EmulatorHandle {
    /// The time since the start, which is also the net's.
    #[must_use]
    pub fn now(&self) -> Time {
        Time::from_nanos(self.driver.now().since(self.origin).as_nanos())
    }

    /// How it is doing.
    ///
    /// # Panics
    /// If its thread has: a connection's route is not of its net.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.answer(Request::Snapshot)
    }

    /// Changes a link, now.
    ///
    /// # Panics
    /// If the link is not of its net.
    pub fn command(&self, link: LinkId, command: LinkChange) {
        assert!(link.0 < self.links, "a link of another network");
        self.driver.request(Request::Command(self.number, link, command));
    }

    /// Ends it, and says how it has been. What is still under way is lost; the devices are gone on return.
    ///
    /// # Panics
    /// If its thread has: a connection's route is not of its net.
    #[must_use]
    pub fn stop(mut self) -> Snapshot {
        self.stopped = true;
        self.answer(Request::Stop)
    }

    fn answer(&self, request: impl FnOnce(u32, mpsc::Sender<Snapshot>) -> Request) -> Snapshot {
        let (answer, answered) = mpsc::channel();
        self.driver.request(request(self.number, answer));
        let mut snapshot = self.driver.answer(&answered);
        // That need not disturb the thread. A device that somebody renamed is not counted.
        for (stats, tun) in snapshot.ports.iter_mut().zip(&self.tuns) {
            stats.overflowed = tun.overflowed().unwrap_or(0);
        }
        snapshot
    }
}

impl Drop for EmulatorHandle {
    fn drop(&mut self) {
        if !self.stopped {
            let (answer, answered) = mpsc::channel();
            self.driver.request(Request::Stop(self.number, answer));
            // Until the thread has let go of the devices, or has panicked.
            let _ = answered.recv();
        }
    }
}
