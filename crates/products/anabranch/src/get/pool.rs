//! The pool from which mirrors take missing blocks: a pool of their own, or the subscriber.

use std::ops::Range;

use anabranch_mirror::range_scheduler::{MirrorId, Pool, RangeScheduler};
use anabranch_mirror::verified_pool::{Check, VerifiedPool};
use anabranch_mmtp::subscriber::{DownloadId, PathReport, SourceId, Subscriber};

/// The state of the pool from which mirrors take missing blocks.
pub(super) enum PoolState {
    /// There is no pool yet. Once the content is wanted, mirrors get a pool of their own with this check.
    Check(Check),
    /// Mirrors have a pool of their own.
    Plain(Box<VerifiedPool>),
    /// There is no pool yet. Once the content is wanted, the subscriber is the pool. It gets the leaf list,
    /// if the check has one; any other check is kept for mirrors that go on without sources.
    Subscribing(Check),
    /// The subscriber is the pool: mirrors reserve blocks of this download with it.
    Subscriber(DownloadId),
}

/// Presents the subscriber as a pool.
struct SubscriberPool<'a> {
    subscriber: &'a mut Subscriber,
    download: DownloadId,
    sources: Vec<Option<SourceId>>,
    /// The rate of all mirrors together, bytes a second.
    rate_bytes: u64,
    /// The rate of all paths of the subscriber together, bytes a second.
    paths_bytes: u64,
}

impl SubscriberPool<'_> {
    fn source(&self, mirror: MirrorId) -> Option<SourceId> {
        self.sources.get(usize::from(mirror)).copied().flatten()
    }
}

impl Pool for SubscriberPool<'_> {
    fn take(&mut self, mirror: MirrorId, blocks: u64) -> Option<Range<u64>> {
        let source = self.source(mirror)?;
        self.subscriber.reserve(source, self.download, blocks, self.rate_bytes)
    }

    fn release(&mut self, blocks: Range<u64>) {
        self.subscriber.release(self.download, blocks);
    }

    fn idle(&self) -> u64 {
        // The paths will take their share of the blocks that have been requested from no source or mirror.
        let stranded = self.subscriber.blocks_stranded(self.download);
        let idle = u128::from(self.subscriber.blocks_unrequested(self.download) + stranded);
        let (mine, all) = (u128::from(self.rate_bytes), u128::from(self.rate_bytes + self.paths_bytes));
        if idle == 0 || all == 0 { idle as u64 } else { (idle * mine / all).max(1) as u64 }
    }

    fn is_wanted(&self, block: u64) -> bool {
        self.subscriber.is_wanted(self.download, block)
    }

    fn deliver(&mut self, mirror: MirrorId, block: u64, bytes: &[u8]) {
        if let Some(source) = self.source(mirror) {
            self.subscriber.insert_block(source, self.download, block, bytes);
        }
    }
}

/// The pool before any content is wanted: it has no blocks.
struct Nothing;

impl Pool for Nothing {
    fn take(&mut self, _: MirrorId, _: u64) -> Option<Range<u64>> {
        None
    }
    fn release(&mut self, _: Range<u64>) {}
    fn idle(&self) -> u64 {
        0
    }
    fn is_wanted(&self, _: u64) -> bool {
        false
    }
    fn deliver(&mut self, _: MirrorId, _: u64, _: &[u8]) {}
}

/// Calls `f` with the machine and its pool.
pub(super) fn with_pool<T>(
    kind: &mut PoolState,
    machine: &mut RangeScheduler,
    sources: Vec<Option<SourceId>>,
    subscriber: &mut Subscriber,
    f: impl FnOnce(&mut RangeScheduler, &mut dyn Pool) -> T,
) -> T {
    match kind {
        PoolState::Plain(plain) => f(machine, &mut **plain),
        PoolState::Subscriber(download) => {
            let rate_bytes = machine.connections().filter_map(|connection| connection.rate).sum();
            let paths = subscriber.paths().filter(|path| path.srtt > anabranch_algo::Span::ZERO);
            let rate = |p: PathReport| {
                let window = u64::from(p.cwnd) * p.chunk_bytes as u64;
                anabranch_algo::Rate::of(window, p.srtt).as_bytes()
            };
            let paths_bytes = paths.map(rate).sum();
            f(
                machine,
                &mut SubscriberPool { subscriber, download: *download, sources, rate_bytes, paths_bytes },
            )
        }
        PoolState::Check(_) | PoolState::Subscribing(_) => f(machine, &mut Nothing),
    }
}
