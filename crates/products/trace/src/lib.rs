//! Analyses captures of Multipath TCP and TCP.
//!
//! **Purpose.** Reads a capture as a stream and finds the connections in it and the subflows of each. Reports
//! byte for byte which subflow carried which data, what was sent twice and why, how long the receiver waited,
//! and which subflow took over from which. Reads the files of any `tcpdump`, also while it writes them.
//!
//! **Non-goals.** It does not capture, decrypt, reassemble payload or decode applications. It knows no
//! protocol but TCP and Multipath TCP.
//!
//! **Data flow.**
//!
//! ```text
//! bytes ─ read_capture ─▶ Frame ─ segment ─▶ Segment ─ Analysis ─▶ Connection ─ at its end ─▶ report
//!         pcap, pcapng            link, IP, TCP        4-tuple,     │ subflows: Half, Half
//!                                                      tokens       │ streams:  Stream, Stream
//!                                                                   │ handovers, journal, audit
//! ```
//!
//! Nothing is allocated for a segment in order. Everything that grows has a limit (`*_MAX`); what exceeds a
//! limit is counted in the report.
//!
//! **Refused.** Input that is not a capture, a record that contradicts itself, zeros in place of records, and
//! a file that ends within a record. [`CaptureError`] says at which byte and frame; everything before the
//! error is still reported. Frames without TCP, fragments and cut headers are counted in [`Totals`].
//!
//! **Definitions** (`exact`; README.md has them with their sources): a byte of data is *unique* when no
//! subflow has sent it before; *retransmitted* when its TCP sequence number was sent before on its subflow;
//! *reinjected* when it has a new TCP sequence number and another subflow sent it first; *re-sent* when it
//! has a new TCP sequence number and the same subflow sent it first. The length of a mapping is never
//! counted, because each segment repeats the mapping.
//!
//! **Map.**
//! * [`capture`]: from files and pipes to frames; [`mod@segment`]: from frames to TCP segments.
//! * [`table`]: from segments to connections; `connection`, `subflow`, `half`, `stream`: the state of each.
//! * `runs`: which numbers were seen and which subflow sent them first; `round_trips`: times from a segment
//!   to its acknowledgement; `distribution`: quantiles in constant memory.
//! * [`handover`], [`journal`], [`audit`]: handovers, events and checksums.
//! * [`report`]: the report of a connection; [`summary`]: the report as text, in `words`; [`html`]: the
//!   report as a page with sequence plots ([`plot`]); [`csv`]: the report as a table.
//! * [`anonymise`]: a copy of a capture that can be shared.
//! * [`both_ends`]: two captures of the same transfers; [`study`]: many captures, beside the numbers of a
//!   paper and as its scripts count (`pam16`).
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod anonymise;
pub mod audit;
pub mod both_ends;
pub mod capture;
mod clocks;
mod connection;
pub mod csv;
mod distribution;
mod half;
pub mod handover;
pub mod html;
pub mod journal;
mod pam16;
pub mod plot;
pub mod report;
mod round_trips;
mod runs;
pub mod segment;
mod stream;
pub mod study;
mod subflow;
pub mod summary;
pub mod table;
mod words;

pub use capture::{Capture, CaptureError, Frame, read_capture};
pub use connection::{Fallback, Protocol};
pub use distribution::Quantiles;
pub use report::ConnectionReport;
pub use stream::{SLOT_NS, STALL_NS};
pub use subflow::Side;
pub use table::{Analysis, Totals};
