//! Tests links, queues and media of the simulator through the public interface.

mod bottleneck;
mod fifo_link;
mod loss;
mod medium;
mod properties;
mod radio;
