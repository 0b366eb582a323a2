//! The machines and the wire of the overlay in simulated domains.

mod rendezvous_bed;
mod simulated_domain;

mod cached_transfer;
mod classes;
mod domain;
mod false_positives;
mod keyed;
mod rendezvous_restart;
mod rendezvous_shared;
mod wire_doc;
