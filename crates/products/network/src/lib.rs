//! The members of a publish/subscribe network that serve the others.
//!
//! **Purpose.** Runs the machines of the crate `overlay` as programs: [`forward`] sends frames on, perhaps
//! with a packet cache; [`rendezvous`] keeps who publishes which name, in memory, a file or a server that
//! several share; [`manage_topology`] keeps how the lines do and hands out paths. [`Metrics`] is what each of
//! them tells Prometheus.
//!
//! **Non-goals.** No protocol and no decision lives here (`overlay`, `topology`). A host that fetches or
//! publishes needs none of this: that is [`anabranch::network`], which also has [`Place`], the node of a
//! domain that this machine is.
//!
//! **Map.**
//! * [`ServiceEvent`]: what a member tells its caller; the private module `service_loop` runs each of them.
//! * [`StateAt`]: where a rendezvous keeps what it knows: a file, or a [`StateServer`].
//! * [`new_services_key`]: the key of a new domain with keyed identifiers.

mod event;
mod forward;
mod frame_batch;
mod keys;
mod prometheus;
mod rendezvous_service;
mod service_loop;
mod state;
mod state_server;
mod topology_service;

pub use anabranch::network::Place;
pub use anabranch_overlay::cache::Policy as CachePolicy;
pub use event::ServiceEvent;
pub use forward::{CacheStats, ForwardStats, LineStats, forward};
pub use keys::new_services_key;
pub use prometheus::Metrics;
pub use rendezvous_service::{RendezvousStats, rendezvous};
pub use state::StateStats;
pub use state_server::{SharedStateStats, StateAt, StateServer};
pub use topology_service::{TopologyStats, manage_topology};
