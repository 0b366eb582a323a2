//! Finds the routes to mirrors: which local ends lead to which of their addresses.

use std::net::{IpAddr, SocketAddr};

use anabranch_mirror::range_scheduler::{MirrorId, State};
use anabranch_mirror::url::Url;
use anabranch_net::Egress;

use super::server_status::ServerStatus;
use super::world::{Hold, World};
use crate::{Error, PathProgress, PathState, Result};

/// The reason why a named local end leads nowhere, if no other reason is known.
pub(super) const NO_FAMILY: &str = "no mirror is of its address family";

/// One route of the scheduler: a local end and an address of a mirror.
pub(super) struct Route {
    pub(super) mirror: MirrorId,
    pub(super) via: Egress,
    pub(super) address: IpAddr,
    /// The reason why the route is not used any more. Its mirror may still be used over other routes.
    pub(super) shut: Option<String>,
    /// Whether the local end is gone or held back.
    pub(super) is_down: bool,
    /// Whether it is held back.
    pub(super) is_held: bool,
}

impl Route {
    /// Returns the route's row of the progress report, without the numbers. `of` is the status of its server.
    pub(super) fn row(&self, of: &ServerStatus, state: State) -> PathProgress {
        PathProgress {
            source: label(&of.name, self.address),
            via: self.via.to_string(),
            state: match (&of.out, state) {
                (Some(why), _) if of.lied => PathState::Banned(why.clone()),
                (Some(why), _) => PathState::GivenUp(why.clone()),
                (None, State::Opening) => PathState::NoAnswerYet,
                (None, State::Open) => PathState::Open,
                (None, State::Stalled) => PathState::Silent,
                (None, State::Failing) => PathState::Failing,
                (None, State::Busy) => PathState::Busy,
                (None, State::Down) if self.is_held => PathState::Waiting,
                (None, State::Down) => self.shut.clone().map_or(PathState::InterfaceGone, PathState::GivenUp),
                (None, State::Closed) => PathState::Closed,
            },
            ..PathProgress::default()
        }
    }
}

/// Returns what has become of a path over a local end that is held back or not.
pub(super) const fn path_word(is_down: bool, held: Option<Hold>) -> &'static str {
    match (is_down, held) {
        (true, None) => "gone",
        (true, Some(_)) => "not used now",
        (false, _) => "back",
    }
}

/// Returns the name of a source for reports: `name`, with `address` in brackets. The address is left out if
/// the name is that address, or if a proxy stands between.
pub(super) fn label(name: &str, address: IpAddr) -> String {
    let host = name.parse().map(|peer: SocketAddr| peer.ip());
    let is_it = host.or_else(|_| name.trim_matches(['[', ']']).parse()) == Ok(address);
    if is_it || address.is_unspecified() { name.to_owned() } else { format!("{name} ({address})") }
}

/// Returns whether the mirror of route number `this` may be asked over another local end.
pub(super) fn has_others(routes: &[Route], this: usize) -> bool {
    let Some(this) = routes.get(this) else { return false };
    routes.iter().any(|route| route.mirror == this.mirror && route.via != this.via && route.shut.is_none())
}

/// Checks that every named local end that is not held back leads to a mirror. `why` is the known reason if
/// one does not.
///
/// # Errors
/// [`ErrorKind::Unreachable`](crate::ErrorKind::Unreachable) if one does not.
pub(super) fn all_lead(
    named: &[Egress],
    routes: &[Route],
    why: Option<&str>,
    world: &dyn World,
) -> Result<()> {
    let mut used = named.iter().filter(|via| world.held(via).is_none());
    let Some(via) = used.find(|via| !routes.iter().any(|route| route.via == **via)) else {
        return Ok(());
    };
    let why = why.unwrap_or(NO_FAMILY);
    Err(Error::unreachable(format!("`via` {via} leads to no mirror: {why}")))
}

/// Returns the first address of each family. Further addresses commonly lead to the same machine over the
/// same route.
pub(super) fn one_a_family(found: impl Iterator<Item = SocketAddr>, port: u16) -> Vec<SocketAddr> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for mut address in found {
        address.set_port(port);
        if addresses.iter().all(|a| a.is_ipv4() != address.is_ipv4()) {
            addresses.push(address);
        }
    }
    addresses
}

/// Returns the host of a URL in the form in which names are looked up.
pub(super) fn host_of(url: &Url) -> &str {
    url.host().trim_matches(['[', ']'])
}

/// Returns the local ends and remote addresses of the routes to the server of a URL. There are none as long
/// as its name has not been looked up.
///
/// # Errors
/// Returns a clause that says why there is no route.
pub(super) fn ends(
    url: &Url,
    proxied: bool,
    named: &[Egress],
    world: &mut dyn World,
) -> Result<Vec<(Egress, SocketAddr)>, String> {
    if proxied {
        // Through a proxy, the server's addresses say nothing about routes.
        let via = if named.is_empty() { vec![Egress::any()] } else { named.to_vec() };
        let any = SocketAddr::new(IpAddr::from([0; 4]), url.port());
        let via = via.into_iter().filter(|via| world.held(via).is_none());
        return Ok(via.map(|via| (via, any)).collect());
    }
    let Some(found) = world.resolve(host_of(url)) else { return Ok(Vec::new()) };
    let found = found.map_err(|e| format!("cannot look it up: {e}"))?;
    let mut routes: Vec<(Egress, SocketAddr)> = Vec::new();
    for peer in one_a_family(found.into_iter(), url.port()) {
        for via in world.local_ends(named, peer.ip()).map_err(|e| e.to_string())? {
            let is_held = world.held(&via).is_some();
            if !is_held
                && !routes.iter().any(|(known, other)| is_same_link(known, other.ip(), &via, peer.ip()))
            {
                routes.push((via, peer));
            }
        }
    }
    Ok(routes)
}

/// Returns whether two routes to a server differ only in the family of its address. Using both would mean two
/// connections over the same link.
fn is_same_link(known: &Egress, known_peer: IpAddr, via: &Egress, peer: IpAddr) -> bool {
    let same = known == via || (known.device().is_some() && known.device() == via.device());
    same && known_peer.is_ipv4() != peer.is_ipv4()
}

/// Returns the pairs in `found` that no route to this mirror has yet.
pub(super) fn new_ends(
    routes: &[Route],
    mirror: MirrorId,
    found: Vec<(Egress, SocketAddr)>,
) -> impl Iterator<Item = (Egress, SocketAddr)> {
    found.into_iter().filter(move |(via, peer)| {
        let known =
            |route: &&Route| route.via == *via || is_same_link(&route.via, route.address, via, peer.ip());
        !routes.iter().filter(|route| route.mirror == mirror).any(|route| known(&route))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_named_once() {
        let label = |name, address: &str| label(name, address.parse().expect("an address"));
        assert_eq!(label("a.example:8080", "192.0.2.1"), "a.example:8080 (192.0.2.1)");
        assert_eq!(label("192.0.2.1:8080", "192.0.2.1"), "192.0.2.1:8080");
        assert_eq!(label("[2001:db8::1]:8080", "2001:db8::1"), "[2001:db8::1]:8080");
        assert_eq!(label("[2001:db8::1]", "2001:db8::1"), "[2001:db8::1]");
        assert_eq!(label("192.0.2.1", "192.0.2.1"), "192.0.2.1");
        assert_eq!(label("a.example", "0.0.0.0"), "a.example", "its address is the proxy's affair");
    }
}
