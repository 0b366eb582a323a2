//! Which subflows a connection makes, and which addresses the ends tell each other (RFC 8684 section 3.4).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

use anabranch_algo::{Span, Time};

/// Addresses of a peer that are remembered at most.
const REMOTES_MAX: usize = 16;
/// The identifier of a local address that is not in the book: peers joined at it without having been told.
pub(crate) const UNKNOWN_ID: u8 = u8::MAX;

/// A local address, and what it may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    /// The address.
    pub address: IpAddr,
    /// Whether subflows from it are backups (RFC 8684 section 3.2, flag B).
    pub backup: bool,
    /// Whether peers are told of it (ADD_ADDR).
    pub announce: bool,
}

impl LocalAddress {
    /// An address for subflows of this end's own making.
    #[must_use]
    pub const fn new(address: IpAddr) -> Self {
        Self { address, backup: false, announce: false }
    }
}

/// How subflows are made. Only the end that began a connection makes any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathManager {
    /// None besides the first; those that the peer makes are accepted.
    Default,
    /// One from each local address to each address of the peer.
    Fullmesh,
    /// The same, but all besides the first are backups.
    Backup,
    /// So many in all, between the first two addresses, which differ by their ports.
    Ndiffports(u8),
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

/// The first SYN, which goes out from one local address after the other until one is answered (as RFC 8305
/// section 5 does with addresses of the peer).
#[derive(Clone, Debug)]
struct Race {
    /// The addresses that have not been tried.
    rest: VecDeque<IpAddr>,
    at: Time,
    wait: Span,
}

/// What a connection knows of addresses, and which subflows it has tried.
#[derive(Clone, Debug)]
pub(crate) struct AddressBook {
    manager: PathManager,
    locals: Vec<Local>,
    /// The identifier of the next local address. None is used twice: the peer may remember it.
    next_id: u8,
    /// By identifier.
    remotes: BTreeMap<u8, SocketAddr>,
    /// Identifiers of both ends, of subflows that exist or were tried.
    tried: BTreeSet<(u8, u8)>,
    /// Subflows made between the first two addresses.
    made: u8,
    race: Option<Race>,
}

impl AddressBook {
    /// The first subflow runs from `first` to `remote`: both have identifier 0.
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

    /// Has the first SYN go out from another address, too, once it has not been answered for `wait`, and so
    /// on; from addresses for backups last.
    pub(crate) fn begin_race(&mut self, now: Time, wait: Span) {
        let Some((first, others)) = self.locals.split_first() else { return };
        let others = others.iter().filter(|own| own.address.is_ipv4() == first.address.is_ipv4());
        let mut others: Vec<_> = others.collect();
        others.sort_by_key(|own| own.backup);
        let rest = others.into_iter().map(|own| own.address).collect();
        self.race = Some(Race { rest, at: now + wait, wait });
    }

    /// When the next SYN goes out.
    pub(crate) fn race_at(&self) -> Time {
        self.race.as_ref().filter(|race| !race.rest.is_empty()).map_or(Time::NEVER, |race| race.at)
    }

    /// From which address the next SYN is to go out now.
    pub(crate) fn next_attempt(&mut self, now: Time) -> Option<IpAddr> {
        let race = self.race.as_mut().filter(|race| race.at <= now)?;
        race.at = now + race.wait;
        race.rest.pop_front()
    }

    /// The first subflow runs from this address. Whether it is for backups.
    pub(crate) fn won(&mut self, address: IpAddr) -> bool {
        self.race = None;
        let Some(at) = self.locals.iter().position(|local| local.address == address) else { return false };
        self.locals.swap(0, at);
        // Nothing has been told of either yet.
        let (id, first_id) = (self.locals[at].id, self.locals[0].id);
        (self.locals[at].id, self.locals[0].id) = (first_id, id);
        self.locals[0].backup
    }

    /// Subflows are made as this one says from now on; those that there are stay.
    pub(crate) const fn set_manager(&mut self, manager: PathManager) {
        self.manager = manager;
    }

    /// This end has an address more; `None` if it was there before, or there have been too many.
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

    /// This end has lost an address: its identifier, if it had one.
    pub(crate) fn remove_local(&mut self, address: IpAddr) -> Option<u8> {
        let at = self.locals.iter().position(|local| local.address == address)?;
        if let Some(race) = &mut self.race {
            race.rest.retain(|other| *other != address);
        }
        Some(self.locals.remove(at).id)
    }

    /// Whether later subflows from this address are backups.
    pub(crate) fn set_backup(&mut self, address: IpAddr, backup: bool) {
        for local in self.locals.iter_mut().filter(|local| local.address == address) {
            local.backup = backup;
        }
    }

    /// Addresses that the peer is to be told of: all that it does not know from the first subflow.
    pub(crate) fn announced(&self) -> impl Iterator<Item = &Local> {
        self.locals.iter().filter(|local| local.announce && local.id != 0)
    }

    /// The local address that has an identifier.
    pub(crate) fn local(&self, address: IpAddr) -> Option<&Local> {
        self.locals.iter().find(|local| local.address == address)
    }

    /// The peer has this address, too.
    pub(crate) fn add_remote(&mut self, id: u8, address: SocketAddr) {
        if self.remotes.len() < REMOTES_MAX {
            self.remotes.entry(id).or_insert(address);
        }
    }

    /// The peer has lost the address with this identifier.
    pub(crate) fn remove_remote(&mut self, id: u8) {
        self.remotes.remove(&id);
        self.tried.retain(|(_, remote)| *remote != id);
    }

    /// The subflow between two addresses is gone for a reason that may pass: it can be tried again.
    pub(crate) fn retry(&mut self, local_id: u8, remote_id: u8) {
        self.tried.remove(&(local_id, remote_id));
        self.made = self.made.saturating_sub(1);
    }

    /// The next subflow that is to be made; each is named once.
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
        // Its identifier is not used again.
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
        // The third is of the other family.
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
