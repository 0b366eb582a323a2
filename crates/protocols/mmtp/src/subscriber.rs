//! A receiver: pulls contents from many sources over many paths.
//!
//! One *path* (subflow) is a source seen from one local address. It has its own window, timers and pending
//! requests, and the windows of a group of paths are coupled ([`anabranch_algo::control`]). The receiver
//! decides everything: which path asks for which packets (`subscriber/schedule.rs`), which packets are lost
//! ([`anabranch_algo::sent_packets`]), and whether bytes are right (`subscriber/download.rs`). Sources only
//! answer.
//!
//! **Pending packets never exceed the window**: `in_flight ≤ cwnd` after each request, except for one probe
//! before a timeout.
//!
//! **Expiry.** A packet that expires once is asked for again on its path. The second time, any path with room
//! may ask. A path that timed out has had its probe unanswered. So the other paths take over all its pending
//! packets at once, and it is tried with single requests from then on.

mod api;
mod availability;
mod download;
mod downloads;
mod drive;
mod grouping;
mod item;
mod mtu;
mod pacer;
mod path;
mod poisoning;
mod receive;
mod regroup;
mod request_tags;
mod reservation;
mod schedule;
mod state;
mod timer;

pub use api::{Event, Input, PathReport, Transmit};
pub use download::BLOCKS_OPEN_MAX;
pub use grouping::Grouping;
pub use item::{DownloadId, PATHS_MAX, PathId, SOURCES_MAX, SourceId};
pub use path::{PathConfig, PathCounters, PathState, RETRY_MAX};
pub use state::Subscriber;
