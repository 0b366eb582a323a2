//! Keeps the uplinks of a host right for the kernel's Multipath TCP, while links come and go.
//!
//! **Purpose.** Follows interfaces, addresses, default routes and radios, decides which uplinks carry and
//! which are backups, and keeps MPTCP endpoints, their flags and policy routes accordingly. Puts everything
//! back at the end.
//!
//! **Non-goals.** It configures no interface, address or default route, and does not fight with a program
//! that manages paths. It works for connections of other programs, and never opens one.
//!
//! **Data flow.**
//!
//! ```text
//! rtnetlink ── something changed ─▶ survey ─┐
//! nl80211 ──── station statistics ─▶ Reading ┴▶ Decider ── Wanted ─▶ Session: plan, journal, netlink
//!                                              └─ reports ─▶ Snapshot ─▶ Unix socket
//! ```
//!
//! **Refused.** See [`Error`]. An interface that cannot be used is no error: its report says why.
//!
//! **Map.**
//! * [`decide`]: the decisions, a machine without sockets and clock; [`policy`]: what the user wants.
//! * [`mend`]: endpoints that connections have lost, and that are made anew; also a machine.
//! * [`radio`]: the statistics of radios, behind a trait.
//! * [`daemon`]: the loop; [`status`]: what it tells, and how it is asked; [`managers`]: other programs that
//!   manage paths.

pub mod daemon;
pub mod decide;
pub mod managers;
pub mod mend;
pub mod policy;
pub mod radio;
pub mod status;

mod error;

pub use daemon::{Daemon, Options, clean, preview};
pub use error::{Error, Result};
pub use policy::Policy;
