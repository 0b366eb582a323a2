//! Repeats the domain-scale study of the dissertation (§4.2.3, Table 4.2, Fig. 4.16 and 4.17): many users of
//! one network at once, by a fluid model that is compared with the packet simulator.
//!
//! * [`network`]: the links and flows that both worlds run.
//! * [`draw`]: random clients, servers and paths, as in §4.2.3.
//! * [`fluid`]: the rates at which flows settle; [`packets`]: these networks in the packet simulator.
//! * [`study`]: all cases of the figures over many draws; [`check`]: the model against packets.
//! * [`rank_gain`]: gains by rank; [`rank_pairs`]: possible origins of the printed ones.
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
