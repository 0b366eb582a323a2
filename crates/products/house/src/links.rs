//! The policy of links: which of the links that the user named carry data now.
//!
//! * [`Price`]: decides by backup and cost.
//! * [`Book`]: counts the bytes of links with a cap, for all programs that share its directory; [`Usage`] and
//!   [`Change`] are what it reports. `caps` has the counting, without a clock; `calendar` the periods.
//! * [`Standby`]: decides with both which links of a transfer are held back, from the bytes that each has
//!   brought.

mod book;
mod calendar;
mod caps;
mod price;
mod standby;

pub use book::{Book, CapsError};
pub use caps::{Change, Usage};
pub use price::Price;
pub use standby::{Mode, Seen, Standby};
