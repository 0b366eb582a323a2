//! A move with its connection: finds the other host and the paths to it, and settles moves that were
//! interrupted.

use std::collections::BTreeMap;

use anabranch_machines::paths::{self, Carried};
use anabranch_machines::remote::resolve;
use anabranch_machines::store::Store;

use crate::error::{Error, Result};
use crate::event::Event;
use crate::manager::Manager;
use crate::mover::{Goal, Moved, TAIL};
use crate::remote::{Pair, Remote, Way};
use crate::wire::PORT;

/// A move that ended, and what each link carried.
#[derive(Clone, Debug)]
pub struct Report {
    /// The move.
    pub moved: Moved,
    /// The bytes that each link of this host carried.
    pub links: BTreeMap<String, u64>,
    /// Why it used one path only, if it did not mean to.
    pub note: Option<String>,
}

/// Moves an instance to a host that was paired, over the links that are named, or else over all that lead
/// there.
///
/// # Errors
/// `NotFound` if the instance or the host is not known; `Unreachable` if the host or a named link is not
/// reached; otherwise as [`Manager::depart`].
pub fn go(store: &Store, manager: &Manager, name: &str, to: &str, via: &[String]) -> Result<Report> {
    let (host, pairing) = store.host(to)?;
    let peer = resolve(&host.address, PORT)?;
    let mut remote = Remote::connect(peer, &pairing, Way::AllPaths)?;
    let addresses = remote.addresses()?;
    let ways = paths::find(via, &addresses)?;
    let (session, note) = match paths::set_up(&ways) {
        Ok(session) => (session, None),
        Err(e) if via.is_empty() => (None, Some(format!("over one path only: {e}"))),
        Err(e) => return Err(e.into()),
    };
    if session.is_some() || ways.first().is_some_and(|way| way.remote != peer.ip()) {
        // A connection that is there already would not use the new paths.
        let first = ways.first().map_or(peer.ip(), |way| way.remote);
        remote = Remote::connect((first, peer.port()).into(), &pairing, Way::AllPaths)?;
    }
    let goal = Goal { to: to.to_owned(), addresses: addresses.clone(), tail: TAIL };
    let mut remote = Pair::new(remote, &pairing);
    let moved = manager.depart(name, &goal, &mut remote);
    let mut carried = Carried::default();
    let _ = carried.read(&addresses, &[peer.port()]);
    drop(remote);
    drop(session);
    Ok(Report { moved: moved?, links: carried.by_device(), note })
}

/// Asks the destinations of moves that were interrupted what is true, and follows them. Reports what is
/// settled.
///
/// # Errors
/// `Failed` if the records cannot be read.
pub fn settle(store: &Store, manager: &Manager, mut report: impl FnMut(Event)) -> Result {
    for (name, leaving) in manager.undecided()? {
        let ask = || {
            let (host, pairing) = store.host(&leaving.to)?;
            let mut remote =
                Remote::connect_any(resolve(&host.address, PORT)?, &leaving.addresses, &pairing)?;
            manager.settle(&name, &leaving, TAIL, &mut remote)
        };
        match ask() {
            Ok(runs_here) => report(Event::Settled { name, runs_here }),
            // It is asked again.
            Err(Error::Unreachable(_)) => {}
            Err(e) => report(Event::Notice(format!("the move of {name} is not settled: {e}"))),
        }
    }
    Ok(())
}
