//! A world in virtual time for whole transfers. It has mirrors by scripts, sources that speak mmTP, links
//! that come and go, and names that take time to look up. The clock may leap, the caller may stop, the
//! process may be killed, and the disk may fill up.
//!
//! In the soak, a seed decides all of this; the promises of mirrors set it row by row.
//!
//! * `sim_world`: the [`World`](super::world::World). `mirrors`: its HTTP, with the client's own checks.
//!   `datagrams`: its UDP. `weather`: the times at which links, clock and caller act.
//! * `mirror`: the script of a mirror. `sim_source`: a source. `disk`: the files that a kill leaves. `rng`:
//!   random numbers by a seed.

mod datagrams;
mod disk;
mod mirror;
mod mirrors;
mod rng;
mod sim_source;
mod sim_world;
mod weather;

pub(super) use disk::{files, restore, run_dir};
#[cfg(test)]
pub(super) use mirror::{Asked, honest};
pub(super) use mirror::{Mirror, Servers};
pub(super) use rng::Rng;
pub(super) use sim_world::SimWorld;
pub(super) use weather::Weather;
