//! Which subflows a connection makes, and which addresses the ends tell each other (RFC 8684 section 3.4).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// Addresses of a peer that are remembered at most.
const REMOTES_MAX: usize = 16;

/// How subflows are made. Only the end that began a connection makes any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathManager {
    /// None besides the first; those that the peer makes are accepted.
    Default,
    /// One from each local address to each address of the peer.
    Fullmesh,
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
}

/// What a connection knows of addresses, and which subflows it has tried.
#[derive(Clone, Debug)]
pub(crate) struct AddressBook {
    manager: PathManager,
    locals: Vec<Local>,
    /// By identifier.
    remotes: BTreeMap<u8, SocketAddr>,
    /// Identifiers of both ends, of subflows that exist or were tried.
    tried: BTreeSet<(u8, u8)>,
    /// Subflows made between the first two addresses.
    made: u8,
}

impl AddressBook {
    /// The first subflow runs from `first` to `remote`: both have identifier 0.
    pub(crate) fn new(
        manager: PathManager,
        first: IpAddr,
        others: impl Iterator<Item = (IpAddr, bool)>,
        remote: SocketAddr,
    ) -> Self {
        let mut locals = vec![Local { address: first, id: 0, backup: false }];
        for (address, backup) in others {
            let id = locals.len() as u8;
            if locals.iter().all(|local| local.address != address) && id < u8::MAX {
                locals.push(Local { address, id, backup });
            }
        }
        let tried = BTreeSet::from([(0, 0)]);
        Self { manager, locals, remotes: BTreeMap::from([(0, remote)]), tried, made: 1 }
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
    }

    /// The next subflow that is to be made; each is named once.
    pub(crate) fn next_join(&mut self) -> Option<JoinPlan> {
        let plan = match self.manager {
            PathManager::Default => None,
            PathManager::Fullmesh => {
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
                    backup: local.backup,
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
    fn others() {
        assert_eq!(joins(&mut book(PathManager::Default)), []);
        assert_eq!(joins(&mut book(PathManager::Ndiffports(3))), [(0, 0, false), (0, 0, false)]);
    }
}
