//! The connections of an agent: how many there may be of one host or client, and how long they may take to
//! show whose they are. [`Places`] shares them out; a connection that loses its place is ended.

use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Wake, Waker};

use anabranch_algo::Time;
use anabranch_algo::fair_share::Yields;
use anabranch_net::Clock;
use anabranch_net::places::{HeldPlace, Places};

/// Ends a connection when it is woken.
#[derive(Debug)]
struct End(TcpStream);

impl Wake for End {
    fn wake(self: Arc<Self>) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// Connections that share their places among the holders.
#[derive(Debug)]
pub struct Connections<K> {
    places: Places<K>,
    /// The connections that may only take until a time.
    hurried: Mutex<Vec<(Weak<End>, Time)>>,
    clock: Clock,
}

impl<K: Ord + Clone> Connections<K> {
    /// Makes so many places.
    #[must_use]
    pub fn new(capacity: u64, clock: Clock) -> Self {
        Self { places: Places::new(capacity), hurried: Mutex::default(), clock }
    }

    /// Takes a place for a connection of `holder`, which is ended at `until` if it still has the place then.
    /// To make room, another connection may be ended. `None` if there is no room.
    pub fn take(&self, holder: K, stream: &TcpStream, until: Option<Time>) -> Option<Held<K>> {
        let end = Arc::new(End(stream.try_clone().ok()?));
        let place = self.places.take(holder, Yields::Next).ok()?;
        let waker = Waker::from(Arc::clone(&end));
        if place.poll_given_up(&Context::from_waker(&waker)).is_ready() {
            waker.wake();
        }
        if let Some(until) = until {
            let mut hurried = self.hurried.lock().unwrap_or_else(PoisonError::into_inner);
            hurried.push((Arc::downgrade(&end), until));
        }
        Some(Held { place, _end: end })
    }

    /// Ends connections that take too long.
    pub fn end_late(&self) {
        let now = self.clock.now();
        let mut hurried = self.hurried.lock().unwrap_or_else(PoisonError::into_inner);
        hurried.retain(|(end, until)| {
            let Some(end) = end.upgrade() else { return false };
            if *until <= now {
                end.wake();
                return false;
            }
            true
        });
    }
}

/// The place of a connection, until it is dropped.
#[derive(Debug)]
pub struct Held<K: Ord + Clone> {
    place: HeldPlace<K>,
    _end: Arc<End>,
}

impl<K: Ord + Clone> Held<K> {
    /// Notes that the other end has said something. With `is_used`, its own further connections do not end
    /// this one, and others only if it has more than its share.
    pub fn heard(&self, is_used: bool) {
        self.place.heard();
        self.place.set_yields(if is_used { Yields::IfOverShare } else { Yields::Next });
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::TcpListener;

    use anabranch_algo::Span;

    use super::*;

    #[test]
    fn one_holder_takes_no_place_of_another_and_the_late_are_ended() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let pair = || {
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            near.set_read_timeout(Some(std::time::Duration::from_millis(50))).unwrap();
            (near, listener.accept().unwrap().0)
        };
        let has_ended = |near: &mut TcpStream| near.read(&mut [0]).is_ok();
        let clock = Clock::start();
        let all = Connections::new(3, clock);
        let mut pairs: Vec<_> = (0..6).map(|_| pair()).collect();
        let honest = all.take("honest", &pairs[0].1, None).unwrap();
        honest.heard(true);
        let flood: Vec<_> = (1..5).map(|n| all.take("flood", &pairs[n].1, None).unwrap()).collect();
        let ended: Vec<bool> = pairs.iter_mut().map(|(near, _)| has_ended(near)).collect();
        assert_eq!(ended, [false, true, true, false, false, false], "the oldest of who has most");
        drop(flood);
        let _late = all.take("late", &pairs[5].1, Some(clock.now() + Span::from_millis(1))).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(2));
        all.end_late();
        assert!(has_ended(&mut pairs[5].0) && !has_ended(&mut pairs[0].0));
    }
}
