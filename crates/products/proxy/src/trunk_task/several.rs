//! What a trunk carries for the choice among several servers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use anabranch_algo::Span;
use tokio::sync::Notify;

use crate::trunk::{Announced, Destination};

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
    pub(super) load: Option<Announced>,
    named: Vec<(Destination, bool)>,
    pub(super) learners: BTreeMap<u32, Learner>,
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

    pub(super) fn take_named(&mut self) -> Vec<(Destination, bool)> {
        std::mem::take(&mut self.named)
    }

    /// Sets what is woken by news. If there are some, it is woken at once.
    pub(super) fn set_news(&mut self, news: Arc<Notify>, has_news: bool) {
        self.news = Some(news);
        if has_news || !self.named.is_empty() {
            self.wake();
        }
    }

    pub(super) fn forget(&mut self, stream: u32) {
        self.learners.remove(&stream);
    }
}
