//! The keys of the servers that a client knows.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::keys::{Pairing, PublicKey};
use crate::tls::{ALPN, ClientTls};

/// The pairings of a client, and which one fits a server. A server that has none of the keys gets no trunk,
/// wherever its name came from.
#[derive(Clone, Debug)]
pub(super) struct Keyring {
    all: Arc<[(PublicKey, ClientTls)]>,
    /// The index of the pairing that fits the server. Clones for one server share it.
    present: Arc<AtomicUsize>,
}

impl Keyring {
    /// Creates the ring of these pairings. Returns `None` if there are none.
    pub(super) fn new(pairings: &[Pairing]) -> Option<Self> {
        let one = |pairing: &Pairing| (pairing.server, ClientTls::new(pairing, ALPN));
        let all: Arc<[_]> = pairings.iter().map(one).collect();
        (!all.is_empty()).then(|| Self { all, present: Arc::default() })
    }

    /// Returns the ring for another server, which has the pairing of this index first.
    pub(super) fn beginning_at(&self, index: usize) -> Self {
        let present = Arc::new(AtomicUsize::new(index.min(self.all.len() - 1)));
        Self { all: Arc::clone(&self.all), present }
    }

    /// Returns the side of TLS for the present pairing.
    pub(super) fn tls(&self) -> &ClientTls {
        &self.all[self.present.load(Ordering::Relaxed)].1
    }

    /// Takes the pairing with the server that has this key. Returns whether there is one.
    pub(super) fn turn_to(&self, key: PublicKey) -> bool {
        let place = self.all.iter().position(|(known, _)| *known == key);
        place.into_iter().for_each(|place| self.present.store(place, Ordering::Relaxed));
        place.is_some()
    }
}
