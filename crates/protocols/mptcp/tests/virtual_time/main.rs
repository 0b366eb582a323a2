//! Two stacks over links that lose, delay, repeat and reorder, in virtual time.

mod addresses;
mod attacks;
mod multipath;
mod nat;
mod network;
mod race;
mod random;
mod recovery;
mod tail_loss;
mod tcp;
mod thin;
mod throughput;
