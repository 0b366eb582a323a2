//! The domain-scale study of the dissertation (§4.2.3, Table 4.2, Fig. 4.16 and 4.17): many users of one
//! network at once, by a fluid model that is held against the packet simulator.
//!
//! * [`network`]: links and flows, what both worlds run.
//! * [`draw`]: clients, servers and paths by chance, as §4.2.3 has them.
//! * [`fluid`]: where rates settle; [`packets`]: the same in the packet simulator.
//! * [`study`]: all cases of the figures over many draws; [`check`]: the model against packets.
//! * [`rank_gain`]: gains by rank; [`rank_pairs`]: where the printed ones may come from.
//! * [`report`]: the figures as tables, beside the dissertation's averages.

pub mod check;
pub mod draw;
pub mod fluid;
pub mod network;
pub mod packets;
pub mod rank_gain;
pub mod rank_pairs;
pub mod report;
pub mod study;
