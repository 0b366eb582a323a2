//! Limits on the descriptors of this process, and those that are kept for trunks, names and status.
//!
//! Without a reserve, connections of programs and to origins would take all descriptors. Then no trunk could
//! be replaced, no other client admitted and no name looked up until a connection ends. So connections may
//! not use the last descriptors. A server's clients share the rest ([`Descriptors::handshakes`],
//! [`Descriptors::shared`]). Descriptors of other parts of the process count too: the kernel gives the lowest
//! free number (POSIX.1-2017, section 2.14), so the number of a new descriptor shows how many are in use.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, PoisonError};

use anabranch_algo::{Span, Time};
use anabranch_net::Clock;
use nix::sys::resource::{Resource, getrlimit};

use crate::event::{Event, Reports};

/// The number of descriptors that are kept, unless that is more than half of all. A client's trunks and their
/// watch have 32 of them; links, names and the status need a few.
const KEPT: u64 = 64;
/// The most connections that have not been authenticated yet, and their largest part of all descriptors: each
/// of these connections uses two.
const HANDSHAKES_MAX: u64 = 1_024;
const HANDSHAKES_PART: u64 = 8;
/// The time after which a shortage is reported again.
const TOLD_AGAIN: Span = Span::from_secs(60);

/// The error that too few descriptors are left for a further connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too few descriptors are left of the {0} that this process may have (ulimit -n, LimitNOFILE=)")]
pub(crate) struct Scarce(u64);

/// The limit on descriptors of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptors {
    all: u64,
}

impl Descriptors {
    /// Reads the process's present limit.
    pub(crate) fn of_process() -> Self {
        // Every Unix has this limit, so the call does not fail.
        Self { all: getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft) }
    }

    fn kept(self) -> u64 {
        KEPT.min(self.all / 2)
    }

    /// Returns how many of the kept descriptors are for trunks.
    pub(crate) fn kept_for_trunks(self) -> u64 {
        self.kept() / 2
    }

    fn without_kept(self) -> u64 {
        self.all - self.kept()
    }

    /// Returns the most connections that may be unauthenticated at a time.
    pub(crate) fn handshakes(self) -> u64 {
        (self.without_kept() / HANDSHAKES_PART).clamp(1, HANDSHAKES_MAX)
    }

    /// Returns how many descriptors all clients share for their trunks, connections and datagrams.
    pub(crate) fn shared(self) -> u64 {
        self.without_kept().saturating_sub(2 * self.handshakes()).max(1)
    }

    /// Creates a limit of `all` descriptors.
    pub(crate) const fn of(all: u64) -> Self {
        Self { all }
    }

    /// Returns the limit of the process.
    pub(crate) const fn all(self) -> u64 {
        self.all
    }

    /// Fails if the new descriptor `made` is one of those that are kept.
    pub(crate) fn check(self, made: &impl AsRawFd) -> Result<(), Scarce> {
        let number = u64::try_from(made.as_raw_fd()).unwrap_or(0);
        if number < self.without_kept() { Ok(()) } else { Err(Scarce(self.all)) }
    }

    /// Fails if the next descriptor would be one of those that are kept. `any` is any open descriptor; a copy
    /// of it is made to learn the next number.
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

/// Whether an error came from [`Descriptors::check`].
pub(crate) fn is_scarce(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<Scarce>)
}

/// Reports a shortage at most once in [`TOLD_AGAIN`]. Clones share that limit.
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
    /// Reports a shortage: `what` says in words who is affected and how, `why` is the cause.
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
