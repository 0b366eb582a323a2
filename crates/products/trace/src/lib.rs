//! Captures of Multipath TCP and TCP in, statistics out.
//!
//! **Purpose.** Reads a capture as a stream, finds the connections in it and the subflows of each, and says
//! byte for byte which subflow carried what, what was sent twice and why, how long the receiver waited, and
//! which subflow took over from which. It reads what any `tcpdump` writes, also while it writes.
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
//! Nothing is allocated for a segment in order, and all that grows has a limit (`*_MAX`): what goes beyond is
//! counted in the report.
//!
//! **Refused.** What is no capture, a record that contradicts itself, zeros in place of records, a file that
//! ends within a record: [`CaptureError`] says at which byte and frame; what came before is reported all the
//! same. Frames that are no TCP, fragments and cut headers are counted in [`Totals`].
//!
//! **Definitions** (`exact`; README.md has them with their sources): a byte of data is *unique* when no
//! subflow has sent it before; *retransmitted* when its TCP sequence number was sent before on its subflow;
//! *reinjected* when it has a new TCP sequence number and another subflow sent it first; *re-sent* when the
//! same subflow did. A mapping is never counted by its length, as each segment repeats it.
//!
//! **Map.**
//! * [`capture`]: files and pipes to frames; [`mod@segment`]: frames to TCP segments.
//! * [`table`]: segments to connections; `connection`, `subflow`, `half`, `stream`: what is known of each.
//! * `runs`: which numbers were seen and who sent them first; `round_trips`: from there to the
//!   acknowledgement; `distribution`: quantiles in constant memory.
//! * [`handover`], [`journal`], [`audit`]: what is found besides.
//! * [`report`]: what is told of a connection; [`summary`]: the same for people, in `words`; [`html`]: as a
//!   page with sequence plots ([`plot`]); [`csv`]: for tables.
//! * [`anonymise`]: a copy of a capture that others may have.
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
