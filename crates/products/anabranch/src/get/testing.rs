//! A world in virtual time for whole transfers: mirrors by scripts, sources that speak mmTP, links that come
//! and go, names that take their time, a clock that leaps, a caller who stops, a kill, a disk that fills up.
//!
//! The soak has all of it by a seed; the promises of mirrors, row by row.
//!
//! * `sim_world`: the [`World`](super::world::World). `mirrors`: HTTP in it, with the client's own checks;
//!   `datagrams`: UDP in it; `weather`: when links, clock and caller do what.
//! * `mirror`: what a mirror does. `sim_source`: a source. `disk`: what a kill leaves. `rng`: numbers by a
//!   seed.

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
