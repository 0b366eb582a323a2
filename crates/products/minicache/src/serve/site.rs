//! What all threads of a server share.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_algo::Time;
use anabranch_net::Clock;

use super::count::{Count, Counters};
use super::event::{Event, Listener};
use super::fill::Filler;
use super::settings::Settings;
use crate::image::Image;
use crate::layout::Entry;
use crate::name::Name;
use crate::proof::{Proof, ProofError, Proofs};

/// An image that is served.
pub(super) struct Site {
    image: Arc<Image>,
    proofs: Mutex<Proofs>,
    pub(super) counters: Arc<Counters>,
    pub(super) clock: Clock,
    pub(super) restarts: u64,
    /// Fetches what the image does not have; `None` in origin mode.
    pub(super) filler: Option<Arc<Filler>>,
    listener: Listener,
    stop: AtomicBool,
}

/// An object that is being sent: its chunks are given to no other object meanwhile.
pub(super) struct Held {
    image: Arc<Image>,
    pub(super) slot: u32,
    pub(super) entry: Entry,
    pub(super) proof: Arc<Proof>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.image.table().unpin(self.slot);
    }
}

impl Site {
    pub(super) fn new(image: Image, settings: Settings, listener: Listener) -> io::Result<Self> {
        let (image, counters) = (Arc::new(image), Arc::new(Counters::default()));
        let filler = settings.origins.map(|origins| {
            Filler::new(origins, Arc::clone(&image), Arc::clone(&counters), Arc::clone(&listener))
        });
        Ok(Self {
            image,
            proofs: Mutex::default(),
            counters,
            clock: Clock::start(),
            restarts: settings.restarts,
            filler: filler.transpose()?.map(Arc::new),
            listener,
            stop: AtomicBool::new(false),
        })
    }

    pub(super) fn image(&self) -> &Image {
        &self.image
    }

    /// Returns whether no object is being fetched.
    pub(super) fn is_idle(&self) -> bool {
        self.filler.as_ref().is_none_or(|filler| Arc::strong_count(filler) == 1)
    }

    /// Returns an object and keeps it in its place.
    pub(super) fn hold(&self, name: &Name) -> Option<Held> {
        let table = self.image.table();
        let found = table.find(name)?;
        if !table.pin(&found) {
            return None;
        }
        let Some(entry) = table.pinned(&found) else {
            table.unpin(found.slot);
            return None;
        };
        let proof = self.proofs().get(found.slot, &entry, self.image.layout());
        Some(Held { image: Arc::clone(&self.image), slot: found.slot, entry, proof })
    }

    fn proofs(&self) -> MutexGuard<'_, Proofs> {
        self.proofs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns once these bytes of an object have been compared with their hashes.
    ///
    /// # Errors
    /// If they are damaged or cannot be read: this is counted and told.
    pub(super) fn prove(
        &self,
        held: &Held,
        range: Range<u64>,
        buffer: &mut Vec<u8>,
    ) -> Result<(), ProofError> {
        held.proof.prove(self.image.disk(), range, buffer).inspect_err(|error| {
            self.counters.count(Count::Damaged);
            self.tell(&Event::Damaged { name: held.entry.names()[1], why: error.to_string() });
        })
    }

    /// Removes a damaged object, so that it is fetched anew. Returns whether that was possible.
    pub(super) fn give_up(&self, held: Held) -> bool {
        let slot = held.slot;
        drop(held);
        self.proofs().forget(slot);
        self.filler.is_some() && self.image.remove(slot).unwrap_or(false)
    }

    pub(super) fn tell(&self, event: &Event) {
        (self.listener)(event);
    }

    /// Returns the second of the process.
    pub(super) fn now_s(&self) -> u64 {
        self.clock.now().since(Time::ZERO).as_nanos() / 1_000_000_000
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(filler) = &self.filler {
            filler.stop();
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}
