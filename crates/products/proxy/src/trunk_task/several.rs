//! What a trunk carries for the choice among several servers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use anabranch_algo::Span;
use tokio::sync::Notify;

use crate::trunk::{Announced, Destination, GoAwayReason};
use crate::trunk_task::{Stream, TrunkHandle};

/// The most servers that a trunk may name before they are taken; more are dropped.
const NAMED_MAX: usize = 16;

/// Takes the distance of an origin once it is known.
pub(crate) struct Learner(pub(crate) Box<dyn FnOnce(Span) + Send>);

impl fmt::Debug for Learner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Learner")
    }
}

/// What the server has said on one trunk.
#[derive(Debug, Default)]
pub(super) struct Several {
    load: Option<Announced>,
    named: Vec<(Destination, bool)>,
    learners: BTreeMap<u32, Learner>,
    /// Wakes the task that keeps the servers.
    news: Option<Arc<Notify>>,
}

impl Several {
    pub(super) fn wake(&self) {
        self.news.iter().for_each(|news| news.notify_one());
    }

    pub(super) const fn note_load(&mut self, load: Announced) {
        self.load = Some(load);
    }

    pub(super) fn note_distance(&mut self, stream: u32, rtt: Span) {
        if let Some(Learner(learn)) = self.learners.remove(&stream) {
            learn(rtt);
        }
    }

    pub(super) fn note_server(&mut self, server: Destination, is_wanted: bool) {
        if self.named.len() < NAMED_MAX {
            self.named.push((server, is_wanted));
            self.wake();
        }
    }

    pub(super) fn forget(&mut self, stream: u32) {
        self.learners.remove(&stream);
    }
}

impl TrunkHandle {
    /// Announces the load of this server to the client.
    pub(crate) fn announce(&self, load: Announced) {
        let mut state = self.shared.lock();
        state.trunk.announce(load);
        state.wake_task(self.shared.now());
    }

    /// Names another server to the client.
    pub(crate) fn name_server(&self, server: Destination, is_wanted: bool) {
        let mut state = self.shared.lock();
        state.trunk.name_server(server, is_wanted);
        state.wake_task(self.shared.now());
    }

    /// Measures the round trip now.
    pub(crate) fn measure(&self) {
        let mut state = self.shared.lock();
        state.trunk.measure();
        state.wake_task(self.shared.now());
    }

    /// Returns the shortest round trip of the last minute or two, if any was measured.
    pub(crate) fn shortest_rtt(&self) -> Option<Span> {
        self.shared.lock().trunk.shortest_rtt()
    }

    /// Returns the load that the server announced last.
    pub(crate) fn announced(&self) -> Option<Announced> {
        self.shared.lock().several.load
    }

    /// Returns the servers that were named since the last call, and whether the client is to go there.
    pub(crate) fn take_named(&self) -> Vec<(Destination, bool)> {
        std::mem::take(&mut self.shared.lock().several.named)
    }

    /// Sets what is woken when the server goes away or names another one.
    pub(crate) fn tell_news(&self, news: Arc<Notify>) {
        let mut state = self.shared.lock();
        if state.peer_goes.is_some() || !state.several.named.is_empty() {
            news.notify_one();
        }
        state.several.news = Some(news);
    }

    /// Returns the reason of the other side's GOAWAY.
    pub(crate) fn peer_goes(&self) -> Option<GoAwayReason> {
        self.shared.lock().peer_goes
    }
}

impl Stream {
    /// Asks for the distance of the origin of this stream, which was just opened.
    pub(crate) fn ask_distance(&self, learner: Learner) {
        let mut state = self.shared.lock();
        state.trunk.ask_distance(self.number);
        state.several.learners.insert(self.number, learner);
        state.wake_task(self.shared.now());
    }

    /// Whether the client has asked for the distance of the origin.
    pub(crate) fn wants_distance(&self) -> bool {
        self.shared.lock().trunk.wants_distance(self.number)
    }

    /// Tells the client the round trip to the origin.
    pub(crate) fn tell_distance(&self, rtt: Span) {
        let mut state = self.shared.lock();
        state.trunk.tell_distance(self.number, rtt);
        state.wake_task(self.shared.now());
    }
}
