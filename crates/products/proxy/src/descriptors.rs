//! Descriptors that this process may have, and those that are kept for what must go on.
//!
//! Connections of programs and to origins would take all. Then no trunk could be made anew, no other client
//! be let in, no name be looked up, until somebody happens to end. So the last ones are not for them. What a
//! server has beyond these its clients share ([`Descriptors::handshakes`], [`Descriptors::shared`]). Whatever
//! else uses some is seen all the same: the kernel gives the lowest number that is free (POSIX.1-2017,
//! section 2.14), so the number of a new descriptor tells how many there are.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, PoisonError};

use anabranch_algo::{Span, Time};
use anabranch_net::Clock;
use nix::sys::resource::{Resource, getrlimit};

use crate::event::{Event, Reports};

/// So many are kept, if that is no more than half of all: a client's trunks and what watches them have 32,
/// links, names and whoever looks at the status a few.
const KEPT: u64 = 64;
/// Connections that have not shown yet whose they are, at most; and as part of all descriptors: each has two.
const HANDSHAKES_MAX: u64 = 1_024;
const HANDSHAKES_PART: u64 = 8;
/// A shortage is told again after so long.
const TOLD_AGAIN: Span = Span::from_secs(60);

/// Too few descriptors are left for a further connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too few descriptors are left of the {0} that this process may have (ulimit -n, LimitNOFILE=)")]
pub(crate) struct Scarce(u64);

/// The descriptors of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptors {
    all: u64,
}

impl Descriptors {
    /// As many as it may have now.
    pub(crate) fn of_process() -> Self {
        // Every Unix has this limit.
        Self { all: getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft) }
    }

    fn kept(self) -> u64 {
        KEPT.min(self.all / 2)
    }

    /// Of the descriptors that are kept, how many are for trunks.
    pub(crate) fn kept_for_trunks(self) -> u64 {
        self.kept() / 2
    }

    fn without_kept(self) -> u64 {
        self.all - self.kept()
    }

    /// How many are for connections that have not shown yet whose they are.
    pub(crate) fn handshakes(self) -> u64 {
        (self.without_kept() / HANDSHAKES_PART).clamp(1, HANDSHAKES_MAX)
    }

    /// How many clients share, for their trunks, connections and datagrams.
    pub(crate) fn shared(self) -> u64 {
        self.without_kept().saturating_sub(2 * self.handshakes()).max(1)
    }

    /// So many.
    pub(crate) const fn of(all: u64) -> Self {
        Self { all }
    }

    /// How many there are.
    pub(crate) const fn all(self) -> u64 {
        self.all
    }

    /// Whether a descriptor that was made just now is one of those that are kept.
    pub(crate) fn check(self, made: &impl AsRawFd) -> Result<(), Scarce> {
        let number = u64::try_from(made.as_raw_fd()).unwrap_or(0);
        if number < self.without_kept() { Ok(()) } else { Err(Scarce(self.all)) }
    }

    /// Whether the next descriptor will be one of those that are kept. `any` is one that can be copied.
    pub(crate) fn check_free(self, any: &impl AsFd) -> Result<(), Scarce> {
        let copy = any.as_fd().try_clone_to_owned();
        copy.map_err(|_| Scarce(self.all)).and_then(|copy| self.check(&copy))
    }
}

impl From<Scarce> for io::Error {
    fn from(scarce: Scarce) -> Self {
        Self::other(scarce)
    }
}

/// Whether this is what [`Descriptors::check`] says.
pub(crate) fn is_scarce(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<Scarce>)
}

/// Tells of a shortage, and not again for each of many. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Shortage {
    told: Arc<Mutex<Option<Time>>>,
    clock: Clock,
}

impl Default for Shortage {
    fn default() -> Self {
        Self { told: Arc::default(), clock: Clock::start() }
    }
}

impl Shortage {
    /// Somebody has to suffer for it: who and how, in words, and why.
    pub(crate) fn tell(&self, reports: &Reports, what: &str, why: &impl std::fmt::Display) {
        let now = self.clock.now();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|at| now.since(at) >= TOLD_AGAIN) {
            *told = Some(now);
            reports.put(Event::Notice(format!("{what}: {why}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::RawFd;

    use super::*;

    struct Number(RawFd);

    impl AsRawFd for Number {
        fn as_raw_fd(&self) -> RawFd {
            self.0
        }
    }

    #[test]
    fn the_last_ones_are_kept_and_at_least_half_are_for_connections() {
        for (all, last) in [(1_024, 959), (128, 63), (100, 49), (10, 4)] {
            let descriptors = Descriptors { all };
            assert_eq!(descriptors.check(&Number(last)), Ok(()));
            assert_eq!(descriptors.check(&Number(last + 1)), Err(Scarce(all)));
        }
        let error = io::Error::from(Scarce(10));
        assert!(is_scarce(&error) && error.to_string().contains("of the 10"));
        assert!(!is_scarce(&io::Error::other("something else")));
    }
}
