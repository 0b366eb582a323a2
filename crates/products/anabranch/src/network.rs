//! Publish/subscribe networks: content is published and asked for by name, and travels over the paths that a
//! topology manager hands out. The machines are the crate `overlay`'s; this runs them.
//!
//! A [`Place`] is a node of a [domain](anabranch_overlay::domain): this machine's, found by its addresses. A
//! host offers a file with [`Serve::publish`](crate::Serve::publish), fetches one with
//! [`Get::name`](crate::Get::name), and sees with [`look`] how the network is. The members that serve the
//! others (forwarders, rendezvous, topology manager) are the crate `anabranch-network`, which runs on the
//! same
//! [`line_sockets`].

mod agent;
pub mod line_sockets;
mod look;
mod place;

pub use anabranch_overlay::member_key::MemberKey;
pub use anabranch_overlay::publication::{Name, PublicKey, ScopeKey};
pub use look::{Destination, LookedPath, NetworkLook, look};
pub use place::{Place, since_1970};

pub(crate) use agent::{Publishing, Watch};
pub(crate) use place::unknown_scope;
