//! The schedulers of ranges and files against simulated mirrors.

mod simulated_mirrors;

mod connection_handover;
mod fickle;
mod file_scheduler;
mod prefetch;
mod range_scheduler;
