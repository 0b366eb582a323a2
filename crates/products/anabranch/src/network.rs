//! Publish/subscribe networks: content is published and asked for by name, and travels over the paths that a
//! topology manager hands out. The machines are the crate `overlay`'s; this runs them.
//!
//! A [`Place`] is a node of a [domain](anabranch_overlay::domain): this machine's, found by its addresses.
//! The members that serve the others are [`forward`], [`rendezvous`] and [`manage_topology`]. Who offers
//! something there says so with [`Serve::publish`](crate::Serve::publish), who wants it with
//! [`Get::name`](crate::Get::name); who wants to see how the network is [looks](look).

mod agent;
mod event;
mod forward;
mod frame_batch;
mod keys;
mod line_sockets;
mod look;
mod place;
mod prometheus;
mod rendezvous_service;
mod service_loop;
mod state;
mod state_server;
mod topology_service;

pub use anabranch_overlay::cache::Policy as CachePolicy;
pub use anabranch_overlay::member_key::MemberKey;
pub use anabranch_overlay::publication::{Name, PublicKey, ScopeKey};
pub use event::ServiceEvent;
pub use forward::{CacheStats, ForwardStats, LineStats, forward};
pub use keys::new_services_key;
pub use look::{Destination, LookedPath, NetworkLook, look};
pub use place::Place;
pub use prometheus::Metrics;
pub use rendezvous_service::{RendezvousStats, rendezvous};
pub use state::StateStats;
pub use state_server::{SharedStateStats, StateAt, StateServer};
pub use topology_service::{TopologyStats, manage_topology};

pub(crate) use agent::{Publishing, Watch};
pub(crate) use place::unknown_scope;
