//! Puts the simulator's links between real network stacks, in real time.
//!
//! **Purpose.** Lets programs on this host, such as the kernel's own TCP and unmodified programs, use the
//! links of a scenario. An [`Emulator`] is an [`anabranch_sim::Net`] whose packets come from TUN devices in
//! namespaces and go to others. It adds nothing to the behaviour of the links.
//!
//! A packet enters the net with the time at which it was read. The net has its own clock and says when the
//! packet leaves. An emulator that wakes late does not move the departure; it only hands the packet over
//! late. This lateness is counted for every packet ([`ConnectionStats::lateness`]). The wait before a packet
//! is read cannot be measured; it takes about as long.
//!
//! **Non-goals.** No behaviour of links: that is `sim`'s. No protocol: IP packets are read only to mark and
//! to count. No addresses and routes: the program that makes the namespaces sets them.
//!
//! **Map.**
//! * [`Emulator`]: the net, the devices at its ends, and the connections between them; [`Emulator::start`]
//!   begins.
//! * [`EmulatorHandle`]: a running emulator, with changes of links, [`Snapshot`]s, and its end.
//! * [`Driver`]: the thread of one or many emulators.
//! * [`IpPacket`]: a packet in the net. [`Histogram`]: counts how late packets were.
//!
//! **The thread.** A [`Driver`] is a thread for one emulator or many. It waits for their devices and for the
//! next event of their nets, to the nanosecond. It is of the real-time class if that is allowed
//! ([`Snapshot::realtime`]). If it is not, packets are milliseconds late on a busy machine.
//!
//! **What is left behind.** Nothing: devices and namespaces end with the descriptors that this process holds.
//!
//! ```no_run
//! use anabranch_algo::{Rate, Span};
//! use anabranch_emulator::{Emulator, IpPacket};
//! use anabranch_net::{Namespace, Tun};
//! use anabranch_sim::LinkConfig;
//!
//! # fn main() -> std::io::Result<()> {
//! let mut links = anabranch_sim::Net::<IpPacket>::new(1);
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

#![cfg(target_os = "linux")]
#![deny(unsafe_code)]

mod buffer_pool;
mod cross_traffic;
mod driver;
mod emulation;
mod handle;
mod ip_packet;
mod setup;
mod stats;
mod syscalls;

pub use anabranch_sim::Histogram;
pub use driver::Driver;
pub use handle::EmulatorHandle;
pub use ip_packet::IpPacket;
pub use setup::Emulator;
pub use stats::{ConnectionStats, PortId, PortStats, Snapshot};
