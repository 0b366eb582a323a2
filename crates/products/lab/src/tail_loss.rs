//! Studies what happens when the end of a burst is lost, by the policy of the tail-loss probe (Yedugundla,
//! licentiate thesis, papers II and III).
//!
//! ```text
//!  grid of Bursts × policies ── Task::run: one simulation ──▶ Completion ──▶ Row ──▶ table, figure, page
//! ```
//!
//! A connection of Multipath TCP has two paths. All data goes over the first, the *primary* path; the second
//! is a backup, so it carries nothing but what the primary path fails to deliver. First messages open the
//! window and measure the round trip. After a pause a burst follows, whose last segments the primary path
//! drops by script, and on demand the first segment that is sent again there, too. The completion time of a
//! burst is the time from its writing until the program at the far end has read all of it.
//!
//! A run counts only if the script was played to its end and the primary path lost nothing else.

mod burst;
mod grid;
mod report;
mod row;

pub use anabranch_mptcp::TAIL_LOSS_POLICIES;

pub use burst::{Completion, RATE_MBITS, SEGMENT_BYTES, WARM_UP_SEGMENTS};
pub use grid::{AlternateQueue, Burst, Lost, RTTS_MS, RUNS, SEGMENTS, Task};
pub use report::{figure, markdown, table};
pub use row::{Row, rows};
