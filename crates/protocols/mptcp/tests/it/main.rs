//! Two stacks over links that lose, delay, repeat and reorder, in virtual time.

mod attacks;
mod multipath;
mod network;
mod random;
mod tail_loss;
mod tcp;
