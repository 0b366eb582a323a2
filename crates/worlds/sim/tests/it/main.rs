//! Links, queues and media of the simulator, from outside.

mod bottleneck;
mod fifo_link;
mod loss;
mod medium;
mod properties;
