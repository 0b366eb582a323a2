//! Who knows which groups mirrors may bring: a pool of their own, or the subscriber, which lends.

use std::ops::Range;

use mirror::plain::{Check, Plain};
use mirror::plan::{MirrorId, Mirrors, Pool};
use mmtp::subscriber::{ObjectId, PathReport, SourceId, Subscriber};

/// Who knows what is missing.
pub(super) enum PoolState {
    /// A pool of the mirrors' own, once the content is wanted.
    Check(Check),
    Plain(Box<Plain>),
    /// The subscriber will lend, once the content is wanted.
    Lending(Check),
    /// It will lend groups of this content, once a source has answered that has its hashes.
    Waiting(ObjectId),
    /// The subscriber lends groups of this content.
    Lent(ObjectId),
}

/// The subscriber as a pool.
struct SubscriberPool<'a> {
    subscriber: &'a mut Subscriber,
    object: ObjectId,
    sources: Vec<Option<SourceId>>,
    /// What all mirrors bring, bytes a second.
    rate_bytes: u64,
    /// What all paths bring.
    paths_bytes: u64,
}

impl SubscriberPool<'_> {
    fn source(&self, mirror: MirrorId) -> Option<SourceId> {
        self.sources.get(usize::from(mirror)).copied().flatten()
    }
}

impl Pool for SubscriberPool<'_> {
    fn take(&mut self, mirror: MirrorId, groups: u64) -> Option<Range<u64>> {
        let source = self.source(mirror)?;
        self.subscriber.lend(source, self.object, groups, self.rate_bytes)
    }

    fn put_back(&mut self, groups: Range<u64>) {
        self.subscriber.give_back(self.object, groups);
    }

    fn idle(&self) -> u64 {
        // The paths will take their part of what nobody has been asked for.
        let idle = u128::from(self.subscriber.groups_idle(self.object));
        let (mine, all) = (u128::from(self.rate_bytes), u128::from(self.rate_bytes + self.paths_bytes));
        if idle == 0 || all == 0 { idle as u64 } else { (idle * mine / all).max(1) as u64 }
    }

    fn is_wanted(&self, group: u64) -> bool {
        self.subscriber.is_wanted(self.object, group)
    }

    fn bring(&mut self, mirror: MirrorId, group: u64, bytes: &[u8]) {
        if let Some(source) = self.source(mirror) {
            self.subscriber.bring(source, self.object, group, bytes);
        }
    }
}

/// Before anything is wanted.
struct Nothing;

impl Pool for Nothing {
    fn take(&mut self, _: MirrorId, _: u64) -> Option<Range<u64>> {
        None
    }
    fn put_back(&mut self, _: Range<u64>) {}
    fn idle(&self) -> u64 {
        0
    }
    fn is_wanted(&self, _: u64) -> bool {
        false
    }
    fn bring(&mut self, _: MirrorId, _: u64, _: &[u8]) {}
}

/// Calls `f` with the machine and its pool.
pub(super) fn with_pool<T>(
    kind: &mut PoolState,
    machine: &mut Mirrors,
    sources: Vec<Option<SourceId>>,
    subscriber: &mut Subscriber,
    f: impl FnOnce(&mut Mirrors, &mut dyn Pool) -> T,
) -> T {
    match kind {
        PoolState::Plain(plain) => f(machine, &mut **plain),
        PoolState::Lent(object) => {
            let rate_bytes = machine.ways().filter_map(|way| way.rate).sum();
            let paths = subscriber.paths().filter(|path| path.srtt > algo::Span::ZERO);
            let rate = |p: PathReport| {
                let window = u64::from(p.cwnd) * p.chunk_bytes as u64;
                algo::Rate::of(window, p.srtt).as_bytes()
            };
            let paths_bytes = paths.map(rate).sum();
            f(machine, &mut SubscriberPool { subscriber, object: *object, sources, rate_bytes, paths_bytes })
        }
        PoolState::Check(_) | PoolState::Lending(_) | PoolState::Waiting(_) => f(machine, &mut Nothing),
    }
}
