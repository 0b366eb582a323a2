//! A [`FairShare`] for tasks and threads: they share its places, and it tells them when to give one up.
//!
//! A task takes a place ([`Places::take`]), reports when it hears from the holder ([`HeldPlace::heard`]), and
//! waits for [`HeldPlace::given_up`] beside its other work. When that returns, the task ends and drops the
//! place. Until then, one place more than the capacity may be in use.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use anabranch_algo::Span;
pub use anabranch_algo::fair_share::host_of;
use anabranch_algo::fair_share::{Counters, FairShare, Full, Place, Yields};

use crate::Clock;

/// The shortest time between two reports about a holder; more frequent reports make no difference.
const HEARD_EVERY: Span = Span::from_millis(10);

struct State<K> {
    share: FairShare<K>,
    /// The messages to each place. A place has its own lock, so that waiting tasks do not wait for each
    /// other.
    told: BTreeMap<Place, Arc<Mutex<Told>>>,
}

/// Says whether a place was told to give up since its task last asked.
#[derive(Debug)]
enum Told {
    /// The place was not told. The field has the waker of the waiting task, if a task waits.
    No(Option<Waker>),
    Yes,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Holds places that all holders share. Clones share the same places.
pub struct Places<K> {
    state: Arc<Mutex<State<K>>>,
    clock: Clock,
}

impl<K> Clone for Places<K> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state), clock: self.clock }
    }
}

impl<K> fmt::Debug for Places<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places").finish_non_exhaustive()
    }
}

impl<K: Ord + Clone> Places<K> {
    /// Creates places with `capacity` units in all.
    #[must_use]
    pub fn new(capacity: u64) -> Self {
        let state = State { share: FairShare::new(capacity), told: BTreeMap::new() };
        Self { state: Arc::new(Mutex::new(state)), clock: Clock::start() }
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        lock(&self.state)
    }

    /// Takes a place for `holder`. To make room, another place may be told to give up.
    ///
    /// # Errors
    /// [`Full`] if there is no room, and none can be made.
    pub fn take(&self, holder: K, yields: Yields) -> Result<HeldPlace<K>, Full> {
        let mut state = self.lock();
        let (place, gives_way) = state.share.ask(self.clock.now(), holder, yields)?;
        let told = Arc::new(Mutex::new(Told::No(None)));
        state.told.insert(place, Arc::clone(&told));
        state.tell(gives_way);
        drop(state);
        Ok(HeldPlace { places: self.clone(), place, told, heard_ns: AtomicU64::new(0) })
    }

    /// Returns the number of places that gave way and of requests that were refused, in all.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.lock().share.counters()
    }

    /// Returns the number of units that are held.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.lock().share.used()
    }
}

impl<K> State<K> {
    fn tell(&self, gives_way: Option<Place>) {
        let Some(told) = gives_way.and_then(|place| self.told.get(&place)) else { return };
        if let Told::No(Some(waker)) = std::mem::replace(&mut *lock(told), Told::Yes) {
            waker.wake();
        }
    }
}

/// Holds a place until it is dropped.
pub struct HeldPlace<K: Ord + Clone> {
    places: Places<K>,
    place: Place,
    told: Arc<Mutex<Told>>,
    /// The time at which the holder was last reported as heard, in nanoseconds of the clock.
    heard_ns: AtomicU64,
}

impl<K: Ord + Clone> fmt::Debug for HeldPlace<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HeldPlace").field(&self.place).finish()
    }
}

impl<K: Ord + Clone> HeldPlace<K> {
    /// Reports that the holder has sent or moved data.
    pub fn heard(&self) {
        let now = self.places.clock.now();
        let last = self.heard_ns.load(Ordering::Relaxed);
        if now.as_nanos() >= last.saturating_add(HEARD_EVERY.as_nanos()) {
            self.heard_ns.store(now.as_nanos(), Ordering::Relaxed);
            self.places.lock().share.heard(now, self.place);
        }
    }

    /// Sets how readily the place is given up.
    pub fn set_yields(&self, yields: Yields) {
        self.places.lock().share.set_yields(self.place, yields);
    }

    /// Sets the number of units that the place holds. To make room, another place or this one may be told to
    /// give up.
    pub fn resize(&self, units: u64) {
        let mut state = self.places.lock();
        let gives_way = state.share.resize(self.place, units);
        state.tell(gives_way);
    }

    /// Returns `Ready` if the place was told to give up since this method last returned `Ready`. If not, `cx`
    /// is woken when it is told. Only one task can wait at a time.
    pub fn poll_given_up(&self, cx: &Context<'_>) -> Poll<()> {
        match &mut *lock(&self.told) {
            told @ Told::Yes => {
                *told = Told::No(None);
                Poll::Ready(())
            }
            Told::No(waker) => {
                if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                    *waker = Some(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }

    /// Waits until the place is told to give up.
    pub async fn given_up(&self) {
        poll_fn(|cx| self.poll_given_up(cx)).await;
    }
}

impl<K: Ord + Clone> Drop for HeldPlace<K> {
    fn drop(&mut self) {
        let mut state = self.places.lock();
        state.share.release(self.place);
        state.told.remove(&self.place);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    #[test]
    fn who_gives_way_is_told_once() {
        let places = Places::new(2);
        let [old, young] = [(); 2].map(|()| places.take("a", Yields::First).unwrap());
        let mut cx = Context::from_waker(Waker::noop());
        let mut waits = pin!(old.given_up());
        assert!(waits.as_mut().poll(&mut cx).is_pending());
        let other = places.take("b", Yields::IfOverShare).unwrap();
        assert!(waits.as_mut().poll(&mut cx).is_ready());
        assert!(old.poll_given_up(&cx).is_pending() && young.poll_given_up(&cx).is_pending());
        let last = places.take("c", Yields::IfOverShare).unwrap();
        assert!(young.poll_given_up(&cx).is_ready(), "told before it asked");
        drop((other, young, last));
        assert_eq!((places.used(), places.counters()), (0, Counters { gave_way: 2, refused: 0 }));
    }
}
