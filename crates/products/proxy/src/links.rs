//! The links that a client uses: which, what each may carry, and what the kernel is told of them.
//!
//! * [`Via`]: one link as a user names it, `wwan0:cost=5,cap=20GB/month`.
//! * `kernel_paths`: the kernel's MPTCP has an endpoint for each link as long as the client lives.
//! * `meter`: what the trunks' subflows say of each link; `liveness`: which links are dead, a decision;
//!   `probe` asks; `watch`: what is done then.
//! * `caps`: what links with a cap have carried, and whether they may carry more, a decision; `calendar`: for
//!   how long; `book`: the file that keeps it.
//! * `price`: which links carry data, by what they cost, a decision.
//! * `racing`: the first subflow of a trunk goes over a link that answers.

mod book;
mod calendar;
mod caps;
mod kernel_paths;
mod liveness;
mod meter;
mod price;
mod probe;
pub(crate) mod racing;
pub(crate) mod watch;

pub use anabranch_net::via::{Cap, Period, Via, ViaError, check};
pub use book::CapsError;
pub use caps::Usage;
