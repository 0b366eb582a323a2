//! Lets mirrors continue alone when no source that has the hashes answers any more.

use anabranch_algo::Time;
use anabranch_mirror::range_scheduler::Input;
use anabranch_mirror::verified_pool::Check;
use anabranch_mmtp::subscriber::Subscriber;

use super::{MirrorDriver, sources};
use crate::Result;
use crate::get::pool::{PoolState, with_pool};
use crate::get::routes::Route;

impl MirrorDriver {
    /// Makes the mirrors continue alone, because no source that has hashes answers. Blocks that they have
    /// delivered and that nothing has verified yet are checked against what is known without sources, and are
    /// not requested again.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if the known hashes are not of this content.
    pub(in crate::get) fn go_alone(&mut self, now: Time, subscriber: &mut Subscriber) -> Result<()> {
        let PoolState::Subscriber(download) = self.pool else { return Ok(()) };
        // Pending requests belong to the subscriber's pool, so they are given up before the pool is replaced.
        // Everything that arrived for them has been delivered.
        let usable = |(_, route): &(usize, &Route)| route.shut.is_none() && !route.is_down;
        let connections: Vec<usize> =
            self.network.routes.iter().enumerate().filter(usable).map(|(n, _)| n).collect();
        let Self { machine, mirrors, pool, .. } = self;
        with_pool(pool, machine, sources(mirrors), subscriber, |machine, pool| {
            for connection in connections.iter().copied() {
                machine.handle(now, Input::Down { connection }, pool);
            }
        });
        let check = std::mem::replace(&mut self.config.check, Check::Nothing);
        let is_here = |block| !subscriber.is_wanted(download, block);
        self.pool = PoolState::Plain(self.pool_of(check, is_here)?);
        let held = subscriber.abandon(download).into_iter();
        let held: Vec<_> = held.filter_map(|(of, n, bytes)| Some((self.mirror_of(of)?, n, bytes))).collect();
        let Self { machine, mirrors, pool, .. } = self;
        with_pool(pool, machine, sources(mirrors), subscriber, |machine, pool| {
            for connection in connections {
                machine.handle(now, Input::Up { connection }, pool);
            }
            for (mirror, block, bytes) in held {
                pool.deliver(mirror, block, &bytes);
            }
        });
        Ok(())
    }
}
