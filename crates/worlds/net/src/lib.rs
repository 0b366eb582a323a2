//! World 2: real time and real sockets.
//!
//! **Purpose.** Moves datagrams for machines: UDP with segmentation offload (GSO, GRO), ECN and batched
//! system calls, bound to the interface a subflow was promised; the clock; and the one place where a process
//! waits. It also makes the parts of test beds: network namespaces and TUN devices.
//!
//! **Non-goals.** No protocol: nothing here looks into a datagram. No threads but the resolver's, no async
//! runtime, no logging. Linux first; other Unix systems compile without offloads and without binding to
//! interfaces.
//!
//! **Map.**
//! * [`capabilities`]: the privileges of this process.
//! * [`clock`]: [`Clock`], the only reader of the operating system's clock.
//! * [`counters`]: numbers that only grow, in a table.
//! * [`udp`]: [`Udp`], one socket of a source ([`Udp::listen`]) or of a subflow ([`Udp::connect`]).
//! * [`interface`]: [`interfaces`], the interfaces of this host.
//! * [`egress`]: [`Egress`], the interface or address that a subflow must use; [`usable_egresses`], the
//!   default set.
//! * [`lan`]: [`LanSocket`], datagrams to all hosts of a LAN.
//! * [`limits`]: [`Limits`], the rate at which a transfer may receive, in all and over each egress.
//! * `marked`: how [`udp`] sends packets with a DSCP.
//! * `route_lookup`: the route that the kernel would take, asked over rtnetlink; behind [`egress`].
//! * [`packet_socket`]: [`PacketSocket`], the frames of one device (Linux).
//! * [`places`]: [`Places`], fair shares of a limited number of places, for tasks and threads.
//! * [`poll`]: [`Poller`], waits for sockets until a [`Time`](anabranch_algo::Time); [`WakeReceiver`], ends
//!   the wait from elsewhere.
//! * [`private_file`]: files that only their user may write, and secrets.
//! * [`prometheus`]: writes numbers as text for Prometheus.
//! * [`quantity`]: reads numbers with units, as command lines and scenarios have them.
//! * [`resolver`]: [`Resolver`], turns names into addresses.
//! * [`mptcp_socket`]: the measurements of an MPTCP connection of this process, subflow by subflow (Linux).
//! * `uplink`: [`uplink_of`], the line by which a local end leaves this host.
//! * [`netlink`]: interfaces, addresses, routes and rules; the kernel's MPTCP endpoints; its sockets (Linux).
//! * [`nearest`](nearest()): finds the name that was meant, for messages about one that does not exist.
//! * [`network_monitor`]: [`NetworkMonitor`], tells that interfaces, addresses or routes changed.
//! * [`namespace`]: [`Namespace`], a network namespace that lives as long as its descriptor.
//! * [`tun`]: [`Tun`], a network device (TUN or TAP) whose wire is this process.
//! * [`testing`]: how tests of all crates are skipped, kept apart from each other and lengthened.
//! * `syscalls`: the system calls that only unsafe code can make. Other crates use `end_with_parent` (a child
//!   process does not outlive this one), `ProcessFd`, `set_nice` and `prefer_huge_pages` (Linux).
//!
//! **How fast.** `cargo run --release -p anabranch-net --example udp_ceiling` prints the throughput of a pair
//! of these sockets on this machine: the ceiling of every protocol above.
#![deny(unsafe_code)]

pub mod capabilities;
pub mod clock;
pub mod counters;
pub mod egress;
pub mod interface;
pub mod lan;
pub mod limits;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod marked;
#[cfg(target_os = "linux")]
pub mod mptcp_socket;
#[cfg(target_os = "linux")]
pub mod namespace;
mod nearest;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod netlink;
pub mod network_monitor;
#[cfg(target_os = "linux")]
pub mod packet_socket;
pub mod places;
pub mod poll;
pub mod private_file;
pub mod prometheus;
pub mod quantity;
pub mod resolver;
mod route_lookup;
#[cfg(target_os = "linux")]
mod syscalls;
pub mod testing;
#[cfg(target_os = "linux")]
pub mod tun;
pub mod udp;
mod uplink;
pub mod via;

pub use clock::Clock;
pub use egress::{Egress, other_egresses, usable_egresses};
pub use interface::{Interface, interfaces, is_link_local};
pub use lan::LanSocket;
pub use limits::{Limits, SharedLimit};
#[cfg(target_os = "linux")]
pub use namespace::Namespace;
pub use nearest::nearest;
pub use network_monitor::NetworkMonitor;
#[cfg(target_os = "linux")]
pub use packet_socket::PacketSocket;
pub use places::{HeldPlace, Places};
pub use poll::{Interest, Poller, Ready, WakeReceiver, Waker};
pub use resolver::Resolver;
#[cfg(target_os = "linux")]
pub use syscalls::{ProcessFd, end_with_parent, prefer_huge_pages, set_nice};
#[cfg(target_os = "linux")]
pub use tun::Tun;
pub use udp::{Datagrams, Ecn, IcmpError, Received, RecvBuffers, RecvOutcome, SendOutcome, Udp};
pub use uplink::uplink_of;
