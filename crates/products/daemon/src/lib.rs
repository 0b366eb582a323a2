//! A queue of downloads on disk, which front ends of aria2 use by its JSON-RPC.
//!
//! **Purpose.** Programs that were written for `aria2c --enable-rpc` get downloads that come from all mirrors
//! over all links at once, verified, by [`anabranch::Get`]. The queue survives a kill and a restart.
//!
//! **Non-goals.** No BitTorrent and no FTP: such requests are refused with words. How bytes are fetched is
//! decided in `anabranch`. It prints nothing.
//!
//! **Map.**
//! * [`gid`], [`job`]: a download and its identifier. [`queue`]: the state machine; no IO.
//! * [`options`]: aria2's options. [`destination`]: where a download may go. [`day_limit`]: limits by the
//!   time of day.
//! * [`journal`]: the queue on disk. [`engine`]: jobs as transfers. [`daemon`]: all of it behind one lock.
//! * [`rpc`]: aria2's methods, texts in and out. [`token`]: the secret of requests.
//! * [`server`]: HTTP and WebSocket. [`command_line`]: the arguments of `aria2c`.

pub mod command_line;
pub mod daemon;
pub mod day_limit;
pub mod destination;
pub mod engine;
pub mod gid;
pub mod job;
pub mod journal;
mod local_time;
pub mod options;
#[cfg(test)]
mod origin;
pub mod queue;
pub mod rpc;
pub mod server;
pub mod token;
