//! Publish/subscribe networks: content is published and requested by name, and travels over the paths that a
//! topology manager chooses. The machines are in the crate `overlay`; this module runs them.
//!
//! A [`Place`] is a node of a [domain](anabranch_overlay::domain): the one that is this machine, found by its
//! addresses. A host offers a file with [`Serve::publish`](crate::Serve::publish) and fetches one with
//! [`Get::name`](crate::Get::name); [`look`] shows it the state of the network, and [`list`] what is
//! published there. The members that serve the others (forwarders, rendezvous, topology manager) are in the
//! crate `anabranch-network`, which runs on the same [`line_sockets`].

mod agent;
mod asker;
pub mod line_sockets;
mod listing;
mod look;
mod place;

pub use anabranch_overlay::member_key::MemberKey;
pub use anabranch_overlay::publication::{Name, NameError, PublicKey, Publication, Scope, ScopeKey};
pub use listing::{Listing, list};
pub use look::{Destination, LookedPath, NetworkLook, look};
pub use place::{Place, since_1970};

pub(crate) use agent::{Publishing, Watch};
pub(crate) use place::unknown_scope;
