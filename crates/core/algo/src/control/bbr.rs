//! Implements BBR, ours after version 3 (draft-ietf-ccwg-bbr, section 5). The window and the pace follow from
//! a model of the path, its largest delivery rate and its smallest round-trip time, and not from losses.
//!
//! Here b is the largest rate of two probing cycles, r the smallest RTT of 10 s, and b r their product:
//!
//! | phase | pace | window | until |
//! | --- | --- | --- | --- |
//! | Startup | 2.77 b | 2 b r | three rounds without a quarter more, or 2 % and 6 packets are lost |
//! | Drain | 0.5 b | 2 b r | b r in flight, or three rounds |
//! | Down | 0.9 b | 2 b r | b r in flight, and 0.85 of the long-term bound |
//! | Cruise | b | 2 b r, 0.85 of the bound | 2 to 3 s since the last probe, or min(b r, 62 or 63) rounds |
//! | Refill | b | 2 b r | one round |
//! | Up | 1.25 b | 2.25 b r | three rounds without a quarter more, or a loss of 2 % in a round |
//! | ProbeRtt | b | b r/2 | 200 ms and a round, each 5 s in which no small RTT was seen |
//!
//! Paces are 1 % below these values. A probe (Refill, Up) that loses 2 % sets the long-term bound of the
//! flight to the packets it had in flight, at least 0.7 of the target. Losses in other rounds bound rate and
//! flight for a while to the packets that arrive (`bounds.rs`). The wait between probes is drawn from a
//! number that follows from the time.
//!
//! **Coupled** BBR, ours: the paths of a group probe together. The first path whose wait is over begins a
//! probe and publishes its time (`phase_at`); the other paths follow at once and restart their waits. A path
//! that probes alone with a share y of a bottleneck has 1.25 y/(1 + 0.25 y) of it meanwhile. So small flows
//! gain most, and n paths that are not coupled end up with the shares of n flows. If all paths of a group
//! probe at the same time, each gains by 1.25/(1 + 0.25 Σy), as one flow with the sum of their rates would.
//! So beside other flows the sum becomes the share of one flow, while paths that share no link lose nothing.
//! The rounds between probes count the b r of all paths, and b is at most the path's share of the largest
//! rate that the group had as a whole (`group_rate.rs`).
//!
//! These parts of the draft are left out: the allowance for aggregated acknowledgements (5.5.9), the undoing
//! of spurious losses (5.5.11), restarts from idle (5.4), and windows restored after a recovery (5.6.4.4). A
//! mark (RFC 3168) counts as a loss of more than 2 %.

mod bounds;
mod controller;
mod delivery;
mod group_rate;
mod min_rtt;
mod phase;
mod plateau;
mod probe_bw;
mod state;
mod transitions;

pub use state::Bbr;
