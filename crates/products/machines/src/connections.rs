//! The connections of an agent: how many there may be of one host or client, and how long they may take to
//! show whose they are.

use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_algo::Time;
use anabranch_algo::fair_share::{FairShare, Place, Yields};
use anabranch_net::Clock;

struct Table<K> {
    share: FairShare<K>,
    /// The connections, and until when each may take.
    open: BTreeMap<Place, (TcpStream, Option<Time>)>,
}

/// Connections that share their places among the holders. A clone is the same.
pub(crate) struct Connections<K> {
    table: Arc<Mutex<Table<K>>>,
    clock: Clock,
}

impl<K> Clone for Connections<K> {
    fn clone(&self) -> Self {
        Self { table: Arc::clone(&self.table), clock: self.clock }
    }
}

impl<K: Ord + Clone> Connections<K> {
    pub(crate) fn new(capacity: u64, clock: Clock) -> Self {
        let table = Table { share: FairShare::new(capacity), open: BTreeMap::new() };
        Self { table: Arc::new(Mutex::new(table)), clock }
    }

    fn lock(&self) -> MutexGuard<'_, Table<K>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a connection of `holder`, which is ended at `until` if it still has the place then.
    /// To make room, another connection may be ended. `None` if there is no room.
    pub(crate) fn take(&self, holder: K, stream: &TcpStream, until: Option<Time>) -> Option<Held<K>> {
        let stream = stream.try_clone().ok()?;
        let mut table = self.lock();
        let (place, gives_way) = table.share.ask(self.clock.now(), holder, Yields::Next).ok()?;
        if let Some((other, _)) = gives_way.and_then(|place| table.open.get(&place)) {
            let _ = other.shutdown(Shutdown::Both);
        }
        table.open.insert(place, (stream, until));
        drop(table);
        Some(Held { all: self.clone(), place })
    }

    /// Ends connections that take too long.
    pub(crate) fn end_late(&self) {
        let now = self.clock.now();
        for (stream, until) in self.lock().open.values() {
            if until.is_some_and(|until| until <= now) {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
}

/// The place of a connection, until it is dropped.
pub(crate) struct Held<K: Ord + Clone> {
    all: Connections<K>,
    place: Place,
}

impl<K: Ord + Clone> Held<K> {
    /// Notes that the other end has said something. With `is_used`, its own further connections do not end
    /// this one, and others only if it has more than its share.
    pub(crate) fn heard(&self, is_used: bool) {
        let mut table = self.all.lock();
        table.share.heard(self.all.clock.now(), self.place);
        table.share.set_yields(self.place, if is_used { Yields::IfOverShare } else { Yields::Next });
    }
}

impl<K: Ord + Clone> Drop for Held<K> {
    fn drop(&mut self) {
        let mut table = self.all.lock();
        table.share.release(self.place);
        table.open.remove(&self.place);
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
