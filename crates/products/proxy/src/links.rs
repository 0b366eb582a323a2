//! The links that a client uses: their choice, their limits, and the kernel's endpoints for them.
//!
//! * [`Via`]: a link as a user names it, `wwan0:cost=5,cap=20GB/month`.
//! * `kernel_paths`: gives the kernel's MPTCP an endpoint for each link while the client lives.
//! * `meter`: reads the trunks' subflows for each link; `liveness`: decides which links are dead; `probe`:
//!   asks the server over a link; `watch`: carries these decisions out.
//! * [`anabranch_house::links`]: counts the bytes of links with a cap, and decides by cost which links carry
//!   data.
//! * `racing`: starts the first subflow of a trunk over a link that answers.

mod kernel_paths;
mod liveness;
mod meter;
mod probe;
pub(crate) mod racing;
pub(crate) mod watch;

pub use anabranch_house::links::{CapsError, Usage};
pub use anabranch_net::via::{Cap, Period, Via, ViaError, check};
