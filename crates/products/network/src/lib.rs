//! Runs the members of a publish/subscribe network that serve the others.
//!
//! **Purpose.** Runs the machines of the crate `overlay` as programs: [`forward`] sends frames on, perhaps
//! with a packet cache; [`rendezvous`] keeps the publishers of each name in memory, in a file or in a shared
//! server; [`manage_topology`] keeps the state of the lines and hands out paths. [`Metrics`] writes the
//! statistics of each of them for Prometheus.
//!
//! **Non-goals.** No protocol and no decision is defined here (`overlay`, `topology`). A host that fetches or
//! publishes uses [`anabranch::network`] instead. That module also has [`Place`], which says which node of a
//! domain this machine is.
//!
//! **Map.**
//! * [`ServiceEvent`]: an event of a member; the private module `service_loop` runs each member.
//! * [`StateAt`]: the place of a rendezvous's state: a file or a [`StateServer`].
//! * [`new_services_key`]: makes the key of a new domain with keyed identifiers.

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
