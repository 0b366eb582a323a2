//! The limits of each user: connections, new connections per second, bytes per second, and a share of the
//! descriptors of all users.
//!
//! At the server a *user* is a client. At the client it is a name; programs that need no name are one user
//! together. The rate is limited by [`RateLimits`]: a reader pays for the bytes and reads no more until they
//! are paid for. Descriptors are [shared](anabranch_algo::fair_share): if none is left, the user with the
//! most gives way, datagrams before connections.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::task::Poll;
use std::time::Duration;

use anabranch_algo::fair_share::Yields;
use anabranch_algo::{Rate, RateLimiter, RateLimits, Span, Time};
use anabranch_net::{Clock, HeldPlace, Places};
use tokio::time::{Sleep, sleep};

/// The limits of a user; `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserLimits {
    /// The most connections at a time.
    pub connections: Option<u32>,
    /// The most new connections per second. After a pause, those of one second may come at once.
    pub new_connections: Option<u32>,
    /// The rate of all connections together, in each direction.
    pub rate: Option<Rate>,
}

/// The reason why a user may have no further connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooMany {
    #[error("the user has as many connections as it may have")]
    Open,
    #[error("the user opens connections faster than it may")]
    New,
    #[error("there are too many users")]
    Users,
    #[error("too few descriptors are left of those that this process may have (ulimit -n, LimitNOFILE=)")]
    Descriptors,
}

/// The most users that are remembered: those with connections, and those that had one recently.
const USERS_MAX: usize = 65_536;
/// The time for which a user without connections is remembered. After it, the limit per second would not
/// delay the user any more.
const REMEMBERED: Span = Span::from_secs(2);
/// The most users that are forgotten when another one comes.
const FORGOTTEN_AT_ONCE: usize = 2;

#[derive(Debug)]
struct Has {
    connections: u32,
    /// The number of associations, which share the rate but do not count as connections.
    others: u32,
    /// The time up to which new connections are paid for.
    paid: Time,
    /// When the last connection ended.
    since: Time,
    rate: Arc<UserRate>,
}

/// The rate limit of a user, which may change.
#[derive(Debug)]
pub(crate) struct UserRate {
    is_limited: AtomicBool,
    /// The limits for the two directions: from the connection, and towards it.
    directions: RwLock<[RateLimits; 2]>,
    clock: Clock,
}

impl UserRate {
    fn new(rate: Option<Rate>, clock: Clock) -> Self {
        let made = Self { is_limited: AtomicBool::new(false), directions: RwLock::default(), clock };
        made.set(rate);
        made
    }

    fn set(&self, rate: Option<Rate>) {
        let limits = || RateLimits::new([Arc::new(RateLimiter::new(rate))]);
        *self.directions.write().unwrap_or_else(PoisonError::into_inner) = [limits(), limits()];
        self.is_limited.store(rate.is_some(), Ordering::Relaxed);
    }

    /// Returns the most bytes that should be read at once in this direction.
    pub(crate) fn piece_bytes(&self, direction: usize) -> usize {
        match self.is_limited.load(Ordering::Relaxed) {
            false => usize::MAX,
            true => self.of(direction).piece_bytes(),
        }
    }

    /// Pays for bytes that were read. Returns when the next ones may be read.
    pub(crate) async fn pay(&self, direction: usize, bytes: usize) {
        if let Some(pause) = self.charge(direction, bytes) {
            sleep(pause).await;
        }
    }

    /// Pays for bytes that were read. Returns how long nothing more may be read, if at all.
    fn charge(&self, direction: usize, bytes: usize) -> Option<Duration> {
        if !self.is_limited.load(Ordering::Relaxed) {
            return None;
        }
        let now = self.clock.now();
        let due = self.of(direction).charge(now, bytes);
        (due > now).then(|| Duration::from_nanos(due.since(now).as_nanos()))
    }

    fn of(&self, direction: usize) -> RateLimits {
        self.directions.read().unwrap_or_else(PoisonError::into_inner)[direction].clone()
    }
}

#[derive(Debug, Default)]
struct State {
    limits: UserLimits,
    users: BTreeMap<String, Has>,
}

/// The state of all users. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Quotas {
    state: Arc<Mutex<State>>,
    places: Places<String>,
    /// The descriptors for trunks of users whose connections hold all others.
    kept: Places<String>,
    clock: Clock,
}

impl Quotas {
    /// Creates the state with these limits of each user, and this number of descriptors for all users.
    pub(crate) fn new(limits: UserLimits, descriptors: u64) -> Self {
        let state = Arc::new(Mutex::new(State { limits, ..State::default() }));
        Self { state, places: Places::new(descriptors), kept: Places::new(0), clock: Clock::start() }
    }

    /// Reserves this number of further descriptors for trunks.
    pub(crate) fn with_kept(self, descriptors: u64) -> Self {
        Self { kept: Places::new(descriptors), ..self }
    }

    /// Takes the descriptors of a user's trunk, which are never taken back: its socket, and a copy by which
    /// its subflows are watched ([`Traffic`](crate::traffic::Traffic)).
    pub(crate) fn trunk(&self, user: &str) -> Result<HeldPlace<String>, TooMany> {
        let kept = || self.kept.take(user.to_owned(), Yields::Never).map_err(|_| TooMany::Descriptors);
        let place = self.place(user, Yields::Never).or_else(|_| kept())?;
        place.resize(2);
        Ok(place)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the limits at once. Existing connections stay, but a new rate holds for them too.
    pub(crate) fn set(&self, limits: UserLimits) {
        let mut state = self.lock();
        if state.limits.rate != limits.rate {
            state.users.values().for_each(|has| has.rate.set(limits.rate));
        }
        state.limits = limits;
    }

    /// Admits a further connection of this user.
    pub(crate) fn admit(&self, user: &str) -> Result<Admitted, TooMany> {
        let now = self.clock.now();
        let mut state = self.lock();
        let limits = state.limits;
        let has = self.known(&mut state, user, now)?;
        if limits.connections.is_some_and(|most| has.connections >= most) {
            return Err(TooMany::Open);
        }
        if let Some(most) = limits.new_connections {
            // This is a token bucket, kept as the time at which all connections will be paid for.
            let second = Span::from_secs(1);
            let paid = has.paid.max(now) + second.over(most.into());
            if paid > now + second {
                return Err(TooMany::New);
            }
            has.paid = paid;
        }
        let place = self.place(user, Yields::IfOverShare)?;
        has.connections += 1;
        Ok(self.admitted(has, user, Kind::Connection, place))
    }

    /// Admits an association of this user, which shares the rate but does not count as a connection.
    pub(crate) fn join(&self, user: &str) -> Result<Admitted, TooMany> {
        let mut state = self.lock();
        let has = self.known(&mut state, user, self.clock.now())?;
        let place = self.place(user, Yields::Next)?;
        has.others += 1;
        Ok(self.admitted(has, user, Kind::Other, place))
    }

    fn place(&self, user: &str, yields: Yields) -> Result<HeldPlace<String>, TooMany> {
        self.places.take(user.to_owned(), yields).map_err(|_| TooMany::Descriptors)
    }

    fn known<'a>(&self, state: &'a mut State, user: &str, now: Time) -> Result<&'a mut Has, TooMany> {
        let rate = state.limits.rate;
        forget(&mut state.users, now);
        if !state.users.contains_key(user) {
            if state.users.len() >= USERS_MAX {
                return Err(TooMany::Users);
            }
            let rate = Arc::new(UserRate::new(rate, self.clock));
            let has = Has { connections: 0, others: 0, paid: Time::ZERO, since: now, rate };
            state.users.insert(user.to_owned(), has);
        }
        state.users.get_mut(user).ok_or(TooMany::Users)
    }

    fn admitted(&self, has: &mut Has, user: &str, kind: Kind, place: HeldPlace<String>) -> Admitted {
        has.since = Time::NEVER;
        Admitted { rate: Arc::clone(&has.rate), quotas: self.clone(), user: user.to_owned(), kind, place }
    }
}

/// Forgets a few users whose last connection ended long ago.
fn forget(users: &mut BTreeMap<String, Has>, now: Time) {
    let is_old = |has: &Has| has.connections + has.others == 0 && now >= has.since + REMEMBERED;
    let old = users.iter().filter(|(_, has)| is_old(has)).map(|(user, _)| user.clone());
    let old: Vec<_> = old.take(FORGOTTEN_AT_ONCE).collect();
    for user in old {
        users.remove(&user);
    }
}

/// How an admitted item is counted.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Connection,
    Other,
}

/// A connection or association that is admitted until this is dropped.
#[derive(Debug)]
pub(crate) struct Admitted {
    rate: Arc<UserRate>,
    quotas: Quotas,
    user: String,
    kind: Kind,
    place: HeldPlace<String>,
}

impl Admitted {
    pub(crate) fn rate(&self) -> &UserRate {
        &self.rate
    }

    /// Notes that bytes have moved.
    pub(crate) fn heard(&self) {
        self.place.heard();
    }

    /// Waits until the connection has to end because another user gets its place.
    pub(crate) async fn given_up(&self) {
        self.place.given_up().await;
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let now = self.quotas.clock.now();
        if let Some(has) = self.quotas.lock().users.get_mut(&self.user) {
            match self.kind {
                Kind::Connection => has.connections -= 1,
                Kind::Other => has.others -= 1,
            }
            if has.connections + has.others == 0 {
                has.since = now;
            }
        }
    }
}

/// The pace of a sender of datagrams in both directions. It pays for the datagrams that it moved, and rests
/// in a direction until they are paid for. Datagrams beyond the rate fill the queue before it, and are
/// dropped there.
#[derive(Debug)]
pub(crate) struct Pace {
    admitted: Admitted,
    rests: [Option<Pin<Box<Sleep>>>; 2],
}

impl Pace {
    pub(crate) fn new(admitted: Admitted) -> Self {
        Self { admitted, rests: [None, None] }
    }

    /// Pays for bytes that were moved.
    pub(crate) fn count(&mut self, direction: usize, bytes: usize) {
        self.admitted.heard();
        if let Some(pause) = self.admitted.rate.charge(direction, bytes) {
            self.rests[direction] = Some(Box::pin(sleep(pause)));
        }
    }

    /// Whether nothing may be moved in this direction now.
    pub(crate) fn rests(&self, direction: usize) -> bool {
        self.rests[direction].is_some()
    }

    /// Waits until a resting direction may continue, or until the place is given up. Waits for ever if
    /// nothing rests.
    pub(crate) async fn rested(&mut self) -> Rested {
        poll_fn(|cx| {
            if self.admitted.place.poll_given_up(cx).is_ready() {
                return Poll::Ready(Rested::GaveWay);
            }
            let ended = |rest: &mut Option<Pin<Box<Sleep>>>| {
                let is_over = rest.as_mut().is_some_and(|sleep| sleep.as_mut().poll(cx).is_ready());
                is_over.then(|| *rest = None).is_some()
            };
            // Both directions are polled, so that each wakes this task.
            let ended = self.rests.iter_mut().map(ended).filter(|ended| *ended).count();
            if ended > 0 { Poll::Ready(Rested::GoOn) } else { Poll::Pending }
        })
        .await
    }
}

/// The result of a rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rested {
    /// More may be moved.
    GoOn,
    /// Another user gets the place, so this one ends.
    GaveWay,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_so_many_connections_and_the_others_have_theirs() {
        let limits = UserLimits { connections: Some(2), ..UserLimits::default() };
        let quotas = Quotas::new(limits, 100);
        let (a, b) = (quotas.admit("a").unwrap(), quotas.admit("a").unwrap());
        assert_eq!(quotas.admit("a").unwrap_err(), TooMany::Open);
        let other = quotas.admit("b").unwrap();
        drop(a);
        let again = quotas.admit("a").unwrap();
        quotas.set(UserLimits::default());
        drop((quotas.admit("a").unwrap(), b, other, again));
    }

    #[test]
    fn new_connections_come_at_their_rate_and_a_second_at_once() {
        let quotas = Quotas::new(UserLimits { new_connections: Some(5), ..UserLimits::default() }, 200);
        let admitted = (0..100).filter(|_| quotas.admit("a").is_ok()).count();
        assert!((5..=7).contains(&admitted), "{admitted}");
        assert!(quotas.admit("b").is_ok());
    }

    #[test]
    fn a_user_whose_connections_have_all_descriptors_still_gets_a_trunk() {
        let quotas = Quotas::new(UserLimits::default(), 10).with_kept(8);
        let all: Vec<_> = std::iter::from_fn(|| quotas.admit("a").ok()).collect();
        let trunks: Vec<_> = std::iter::from_fn(|| quotas.trunk("a").ok()).collect();
        assert_eq!((all.len(), trunks.len()), (10, 2), "and leaves some for others");
        assert!(quotas.trunk("b").is_ok());
    }

    #[test]
    fn one_user_has_all_descriptors_until_another_comes() {
        let quotas = Quotas::new(UserLimits::default(), 10);
        let trunks = [(); 2].map(|()| quotas.trunk("large").unwrap());
        let datagrams: Vec<_> = (0..4).map(|_| quotas.join("large").unwrap()).collect();
        let connections: Vec<_> = (0..4).map(|_| quotas.admit("large").unwrap()).collect();
        let cx = std::task::Context::from_waker(std::task::Waker::noop());
        let gone =
            |all: &[Admitted]| all.iter().filter(|one| one.place.poll_given_up(&cx).is_ready()).count();
        assert_eq!((gone(&datagrams), gone(&connections)), (2, 0), "datagrams give way to connections");
        let others: Vec<_> = (0..5).map(|_| quotas.admit("small").unwrap()).collect();
        assert_eq!((gone(&datagrams), gone(&connections)), (2, 3));
        assert_eq!(quotas.admit("small").unwrap_err(), TooMany::Descriptors, "both have the same");
        assert!(quotas.trunk("new").is_ok());
        drop((trunks, others));
    }

    #[test]
    fn who_is_gone_is_forgotten_but_not_at_once() {
        let mut users = BTreeMap::new();
        let rate = Arc::new(UserRate::new(None, Clock::start()));
        for user in 0..3 {
            let rate = Arc::clone(&rate);
            let has = Has { connections: user, others: 0, paid: Time::ZERO, since: Time::ZERO, rate };
            users.insert(user.to_string(), has);
        }
        forget(&mut users, Time::ZERO + Span::from_secs(1));
        assert_eq!(users.len(), 3);
        forget(&mut users, Time::ZERO + Span::from_secs(3));
        assert_eq!(users.len(), 2);
    }
}
