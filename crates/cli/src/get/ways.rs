//! The ways to mirrors: which local ends lead to which of their addresses.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

use mirror::range_scheduler::{MirrorId, State};
use mirror::url::Url;
use net::Egress;

use super::standing::Standing;
use crate::exit::{Code, Failure, Outcome};
use crate::view::{NO_ANSWER_YET, PathRow};

/// Why a named local end leads nowhere, where nothing else is known.
pub(super) const NO_FAMILY: &str = "no mirror is of its address family";

/// One of the machine's ways.
pub(super) struct Way {
    pub(super) mirror: MirrorId,
    pub(super) via: Egress,
    pub(super) address: IpAddr,
    /// Why it is not used any more, though its mirror may be over others.
    pub(super) shut: Option<String>,
}

impl Way {
    /// Its row without the numbers; `of`: its server.
    pub(super) fn row(&self, of: &Standing, state: State) -> PathRow {
        let one = self.address.is_unspecified();
        PathRow {
            source: if one { of.name.clone() } else { format!("{} ({})", of.name, self.address) },
            via: self.via.to_string(),
            state: match (&of.out, state) {
                (Some(why), _) if of.lied => format!("banned: {why}"),
                (Some(why), _) => why.clone(),
                (None, State::Opening) => NO_ANSWER_YET.into(),
                (None, State::Open) => "open".into(),
                (None, State::Stalled) => "silent".into(),
                (None, State::Failing) => "failing".into(),
                (None, State::Busy) => "busy".into(),
                (None, State::Down) => self.shut.clone().unwrap_or_else(|| "interface gone".into()),
                (None, State::Closed) => "closed".into(),
            },
            ..PathRow::default()
        }
    }
}

/// The way that a request is on; its number is in the request's.
pub(super) const fn way_of(fetch: u64) -> usize {
    (fetch % mirror::range_scheduler::CONNECTIONS_MAX as u64) as usize
}

/// Whether the mirror of this way may be asked from another local end too.
pub(super) fn has_others(ways: &[Way], this: usize) -> bool {
    let Some(this) = ways.get(this) else { return false };
    ways.iter().any(|way| way.mirror == this.mirror && way.via != this.via && way.shut.is_none())
}

/// That every named local end leads to a mirror. `why`: what is known if one does not.
///
/// # Errors
/// Exit status 4 if one does not.
pub(super) fn all_lead(named: &[Egress], ways: &[Way], why: Option<&str>) -> Outcome {
    let Some(via) = named.iter().find(|via| !ways.iter().any(|way| way.via == **via)) else { return Ok(()) };
    let why = why.unwrap_or(NO_FAMILY);
    Err(Failure::new(Code::Unreachable, format!("--via {via} leads to no mirror: {why}")))
}

/// Of addresses the first of each family: more of them commonly lead to the same machine by the same way.
pub(super) fn one_a_family(found: impl Iterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in found {
        if addresses.iter().all(|a| a.is_ipv4() != address.is_ipv4()) {
            addresses.push(address);
        }
    }
    addresses
}

/// The ends of the ways to the server of a URL: from where to where.
///
/// # Errors
/// A clause that says why its name leads nowhere.
pub(super) fn ends(url: &Url, proxied: bool, named: &[Egress]) -> Result<Vec<(Egress, SocketAddr)>, String> {
    if proxied {
        // The server's addresses say nothing about ways.
        let via = if named.is_empty() { vec![Egress::any()] } else { named.to_vec() };
        let any = SocketAddr::new(IpAddr::from([0; 4]), url.port());
        return Ok(via.into_iter().map(|via| (via, any)).collect());
    }
    let host = url.host().trim_matches(['[', ']']);
    let found = (host, url.port()).to_socket_addrs().map_err(|e| format!("cannot look it up: {e}"))?;
    ways_to(&one_a_family(found), named)
}

/// The local ends to use towards a server, each once: over two families it would be two connections by the
/// same way.
fn ways_to(peers: &[SocketAddr], named: &[Egress]) -> Result<Vec<(Egress, SocketAddr)>, String> {
    let mut ways: Vec<(Egress, SocketAddr)> = Vec::new();
    for &peer in peers {
        let ends = super::paths::ways(named, peer.ip()).map_err(|e| e.to_string())?;
        for via in ends {
            let same = |known: &Egress| {
                *known == via || (known.device().is_some() && known.device() == via.device())
            };
            let family = |known: &SocketAddr| known.is_ipv4() == peer.is_ipv4();
            if !ways.iter().any(|(known, other)| same(known) && !family(other)) {
                ways.push((via, peer));
            }
        }
    }
    Ok(ways)
}
