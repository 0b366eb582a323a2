//! Studies the latency of messages: video, games and web pages over two paths (Yedugundla, licentiate thesis,
//! paper I).
//!
//! ```text
//!  bed × workload × transport × seed ── Task::run: one simulation ──▶ latencies ──▶ Row ──▶ tables, page
//! ```
//!
//! The program at the receiver opens connections: over the first path alone, over the second alone (TCP), or
//! over both (MPTCP with each scheduler). The sender writes messages when they are due; the latency of a
//! message is the time from its writing until the receiver's program has read all of it. A page is fetched
//! over six connections, object by object; its time counts from the opening of the connections until its last
//! byte. mmTP has no part in this: it transfers contents that a receiver asks for by name, and has no
//! messages.
//!
//! Numbers that the thesis does not print are *assumed*; the page says which.

mod grid;
mod report;
mod row;
mod run;
mod workload;

pub use grid::{Bed, LONG_QUEUE_PACKETS, Paths, QUEUE_PACKETS, Task, Transport};
pub use report::{figure, markdown, table};
pub use row::{Row, rows};
pub use workload::{DEADLINE, GAMES, PAGES, Workload};
