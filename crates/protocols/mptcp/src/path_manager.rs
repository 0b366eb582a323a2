//! Decides which subflows a connection makes and which addresses the ends tell each other (RFC 8684 section
//! 3.4).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

use anabranch_algo::{Span, Time};

/// The most addresses of a peer that are remembered.
const REMOTES_MAX: usize = 16;
/// The identifier of a local address that the address book does not know: a peer joined at it without being
/// told.
pub(crate) const UNKNOWN_ID: u8 = u8::MAX;

/// A local address and its permitted uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    /// The IP address.
    pub address: IpAddr,
    /// Whether subflows from this address are backups (RFC 8684 section 3.2, flag B).
    pub backup: bool,
    /// Whether peers are told of this address (ADD_ADDR).
    pub announce: bool,
}

impl LocalAddress {
    /// Creates an address from which this end makes regular subflows and which is not announced to peers.
    #[must_use]
    pub const fn new(address: IpAddr) -> Self {
        Self { address, backup: false, announce: false }
    }
}

/// The rule by which subflows are made. Only the end that began a connection makes subflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathManager {
    /// Makes no subflow besides the first; accepts those that the peer makes.
    Default,
    /// Makes one subflow from each local address to each address of the peer.
    Fullmesh,
    /// Makes one subflow from each local address to each address of the peer; all besides the first are
    /// backups.
    Backup,
    /// Makes this number of subflows in all between the first two addresses. They differ by their ports.
    Ndiffports(u8),
}

impl PathManager {
    /// The names that [`by_name`](Self::by_name) knows.
    pub const NAMES: &[&str] = &["fullmesh", "backup", "default"];

    /// Returns the path manager of this name; a number from 1 on means as many subflows between the first two
    /// addresses. Returns `None` if there is none.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "fullmesh" => Some(Self::Fullmesh),
            "backup" => Some(Self::Backup),
            "default" => Some(Self::Default),
            count => count.parse().ok().filter(|count| *count > 0).map(Self::Ndiffports),
        }
    }
}

/// A subflow that is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JoinPlan {
    pub(crate) local: IpAddr,
    pub(crate) local_id: u8,
    pub(crate) remote: SocketAddr,
    pub(crate) remote_id: u8,
    pub(crate) backup: bool,
}

/// A local address and its identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Local {
    pub(crate) address: IpAddr,
    pub(crate) id: u8,
    pub(crate) backup: bool,
    pub(crate) announce: bool,
}

/// The race of first SYNs: one goes out from each local address in turn until one is answered. RFC 8305
/// section 5 does this with the addresses of the peer.
#[derive(Clone, Debug)]
struct Race {
    /// The addresses from which no SYN has been sent yet.
    rest: VecDeque<IpAddr>,
    at: Time,
    wait: Span,
}

/// The addresses that a connection knows, and the subflows that it has tried.
#[derive(Clone, Debug)]
pub(crate) struct AddressBook {
    manager: PathManager,
    locals: Vec<Local>,
    /// The identifier of the next local address. No identifier is used twice, because the peer may remember
    /// it.
    next_id: u8,
    /// The peer's addresses by identifier.
    remotes: BTreeMap<u8, SocketAddr>,
    /// The pairs of local and remote identifiers between which a subflow exists or was tried.
    tried: BTreeSet<(u8, u8)>,
    /// The subflows that this end has made, the first included.
    made: u8,
    race: Option<Race>,
}

impl AddressBook {
    /// Creates a book whose first subflow runs from `first` to `remote`; both have identifier 0.
    pub(crate) fn new(
        manager: PathManager,
        first: IpAddr,
        others: impl Iterator<Item = LocalAddress>,
        remote: SocketAddr,
    ) -> Self {
        let mut book = Self {
            manager,
            locals: vec![Local { address: first, id: 0, backup: false, announce: false }],
            next_id: 1,
            remotes: BTreeMap::from([(0, remote)]),
            tried: BTreeSet::from([(0, 0)]),
            made: 1,
            race: None,
        };
        for own in others {
            book.add_local(own);
        }
        book
    }

    /// Begins the race of first SYNs: whenever `wait` passes without an answer, one goes out from the next
    /// address of the same family. Addresses for backups come last.
    pub(crate) fn begin_race(&mut self, now: Time, wait: Span) {
        let Some((first, others)) = self.locals.split_first() else { return };
        let others = others.iter().filter(|own| own.address.is_ipv4() == first.address.is_ipv4());
        let mut others: Vec<_> = others.collect();
        others.sort_by_key(|own| own.backup);
        let rest = others.into_iter().map(|own| own.address).collect();
        self.race = Some(Race { rest, at: now + wait, wait });
    }

    /// Returns when the next SYN of the race goes out.
    pub(crate) fn race_at(&self) -> Time {
        self.race.as_ref().filter(|race| !race.rest.is_empty()).map_or(Time::NEVER, |race| race.at)
    }

    /// Returns the address from which the next SYN of the race must go out now, if one is due.
    pub(crate) fn next_attempt(&mut self, now: Time) -> Option<IpAddr> {
        let race = self.race.as_mut().filter(|race| race.at <= now)?;
        race.at = now + race.wait;
        race.rest.pop_front()
    }

    /// Ends the race: the first subflow runs from `address`. Returns whether this address is for backups.
    pub(crate) fn won(&mut self, address: IpAddr) -> bool {
        self.race = None;
        let Some(at) = self.locals.iter().position(|local| local.address == address) else { return false };
        self.locals.swap(0, at);
        // The peer knows neither identifier yet, so they can be swapped.
        let (id, first_id) = (self.locals[at].id, self.locals[0].id);
        (self.locals[at].id, self.locals[0].id) = (first_id, id);
        self.locals[0].backup
    }

    /// Makes further subflows by the rule `manager`; existing subflows stay.
    pub(crate) const fn set_manager(&mut self, manager: PathManager) {
        self.manager = manager;
    }

    /// Adds a local address. Returns `None` if it was there before, or if all identifiers are used up.
    pub(crate) fn add_local(&mut self, own: LocalAddress) -> Option<Local> {
        let LocalAddress { address, backup, announce } = own;
        if let Some(known) = self.locals.iter_mut().find(|local| local.address == address) {
            (known.backup, known.announce) = (backup, announce);
            return None;
        }
        let id = self.next_id;
        self.next_id = id.checked_add(1).filter(|next| *next < UNKNOWN_ID)?;
        let local = Local { address, id, backup, announce };
        self.locals.push(local);
        Some(local)
    }

    /// Removes a local address and returns its identifier, if the address was known.
    pub(crate) fn remove_local(&mut self, address: IpAddr) -> Option<u8> {
        let at = self.locals.iter().position(|local| local.address == address)?;
        if let Some(race) = &mut self.race {
            race.rest.retain(|other| *other != address);
        }
        Some(self.locals.remove(at).id)
    }

    /// Sets whether later subflows from `address` are backups.
    pub(crate) fn set_backup(&mut self, address: IpAddr, backup: bool) {
        for local in self.locals.iter_mut().filter(|local| local.address == address) {
            local.backup = backup;
        }
    }

    /// Returns the addresses that the peer must be told of: all that are announced, but not the first
    /// subflow's.
    pub(crate) fn announced(&self) -> impl Iterator<Item = &Local> {
        self.locals.iter().filter(|local| local.announce && local.id != 0)
    }

    /// Returns the entry of a local address, if the book has it.
    pub(crate) fn local(&self, address: IpAddr) -> Option<&Local> {
        self.locals.iter().find(|local| local.address == address)
    }

    /// Remembers a further address of the peer, unless `REMOTES_MAX` addresses are known.
    pub(crate) fn add_remote(&mut self, id: u8, address: SocketAddr) {
        if self.remotes.len() < REMOTES_MAX {
            self.remotes.entry(id).or_insert(address);
        }
    }

    /// Forgets the peer's address with this identifier.
    pub(crate) fn remove_remote(&mut self, id: u8) {
        self.remotes.remove(&id);
        self.tried.retain(|(_, remote)| *remote != id);
    }

    /// Lets the subflow between two addresses be tried again, because it ended for a reason that may pass.
    pub(crate) fn retry(&mut self, local_id: u8, remote_id: u8) {
        self.tried.remove(&(local_id, remote_id));
        self.made = self.made.saturating_sub(1);
    }

    /// Lets all subflows be tried again but those between the identifiers in `present`, which exist.
    pub(crate) fn retry_all_but(&mut self, present: &BTreeSet<(u8, u8)>) {
        self.tried.retain(|ids| present.contains(ids));
        self.made = present.len() as u8;
    }

    /// Returns the next subflow that is to be made, each one once.
    pub(crate) fn next_join(&mut self) -> Option<JoinPlan> {
        let plan = match self.manager {
            PathManager::Default => None,
            PathManager::Fullmesh | PathManager::Backup => {
                let pairs = self.locals.iter().flat_map(|local| {
                    self.remotes.iter().map(move |(&remote_id, &remote)| (local, remote_id, remote))
                });
                let new = pairs.filter(|(local, remote_id, remote)| {
                    local.address.is_ipv4() == remote.is_ipv4()
                        && !self.tried.contains(&(local.id, *remote_id))
                });
                new.map(|(local, remote_id, remote)| JoinPlan {
                    local: local.address,
                    local_id: local.id,
                    remote,
                    remote_id,
                    backup: local.backup || self.manager == PathManager::Backup,
                })
                .next()
            }
            PathManager::Ndiffports(count) => {
                let (local, remote) = (self.locals.first()?, self.remotes.get(&0)?);
                (self.made < count).then_some(JoinPlan {
                    local: local.address,
                    local_id: local.id,
                    remote: *remote,
                    remote_id: 0,
                    backup: false,
                })
            }
        }?;
        self.made = self.made.saturating_add(1);
        self.tried.insert((plan.local_id, plan.remote_id));
        Some(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book(manager: PathManager) -> AddressBook {
        let ip = |last| IpAddr::from([10, 0, 0, last]);
        let others = [(ip(1), false), (ip(2), true), ("::1".parse().unwrap(), false)];
        let others = others.map(|(address, backup)| LocalAddress { backup, ..LocalAddress::new(address) });
        AddressBook::new(manager, ip(1), others.into_iter(), "10.0.9.1:80".parse().unwrap())
    }

    fn joins(book: &mut AddressBook) -> Vec<(u8, u8, bool)> {
        let plans = std::iter::from_fn(|| book.next_join());
        plans.map(|plan| (plan.local_id, plan.remote_id, plan.backup)).collect()
    }

    #[test]
    fn fullmesh() {
        let mut book = book(PathManager::Fullmesh);
        assert_eq!(joins(&mut book), [(1, 0, true)]);
        book.add_remote(7, "10.0.9.2:80".parse().unwrap());
        assert_eq!(joins(&mut book), [(0, 7, false), (1, 7, true)]);
        book.retry(0, 7);
        assert_eq!(joins(&mut book), [(0, 7, false)]);
        book.remove_remote(7);
        assert_eq!(joins(&mut book), []);
    }

    #[test]
    fn addresses_come_and_go() {
        let mut book = book(PathManager::Backup);
        let third = IpAddr::from([10, 0, 0, 3]);
        let added = book.add_local(LocalAddress { announce: true, ..LocalAddress::new(third) }).unwrap();
        assert_eq!((added.id, book.add_local(LocalAddress::new(third))), (3, None));
        assert_eq!(joins(&mut book), [(1, 0, true), (3, 0, true)]);
        assert_eq!((book.remove_local(third), book.remove_local(third)), (Some(3), None));
        // The identifier of the lost address is not used again.
        assert_eq!(book.add_local(LocalAddress::new(third)).unwrap().id, 4);
        assert_eq!(joins(&mut book), [(4, 0, true)]);
        let many = (0..600_u32)
            .filter(|no| book.add_local(LocalAddress::new(IpAddr::from(no.to_be_bytes()))).is_some());
        assert!(many.count() < 254);
    }

    #[test]
    fn the_address_that_wins_the_race_is_the_first() {
        let mut book = book(PathManager::Fullmesh);
        let (wait, second) = (Span::from_millis(250), IpAddr::from([10, 0, 0, 2]));
        book.begin_race(Time::ZERO, wait);
        assert_eq!((book.next_attempt(Time::ZERO), book.race_at()), (None, Time::ZERO + wait));
        assert_eq!(book.next_attempt(Time::ZERO + wait), Some(second));
        // The third address is IPv6, so no SYN goes out from it.
        assert_eq!((book.next_attempt(Time::ZERO + wait.times(9)), book.race_at()), (None, Time::NEVER));
        assert!(book.won(second));
        assert_eq!(book.local(second).unwrap().id, 0);
        assert_eq!(joins(&mut book), [(1, 0, false)]);
    }

    #[test]
    fn others() {
        assert_eq!(joins(&mut book(PathManager::Default)), []);
        let mut book = book(PathManager::Ndiffports(3));
        assert_eq!(joins(&mut book), [(0, 0, false), (0, 0, false)]);
        book.set_manager(PathManager::Ndiffports(4));
        assert_eq!(joins(&mut book), [(0, 0, false)]);
    }
}
