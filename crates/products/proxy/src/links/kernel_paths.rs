//! Gives the kernel's MPTCP an endpoint for each link while the client lives.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use anabranch_kernel::uplinks::{self, Error, Options, PROGRAM_STATE_DIR, Program, STATE_DIR, Session};
use anabranch_net::interface::{Interface, interfaces, is_link_local};
use anabranch_net::mptcp_socket::{SubflowInfo, mptcp_socket_info};
use anabranch_net::netlink::{Endpoint, EndpointFlags, Netlink, PathManager, TcpInfo, TcpState};
use socket2::SockRef;

use crate::event::{Event, Reports};
use crate::links::Via;

/// Makes each link an MPTCP endpoint until the result is dropped. Blocks for some milliseconds. Returns
/// `None` if that is not allowed or not possible; a notice then gives the reason and the remedy.
pub(crate) fn begin(
    links: &[Via],
    backup: Vec<String>,
    program: Program,
    reports: &Reports,
) -> Option<Session> {
    if links.is_empty() {
        // A client that was killed may have left endpoints.
        let _ = Session::clean_up(Path::new(PROGRAM_STATE_DIR));
        if let Some(note) = only_one() {
            reports.put(Event::Notice(note));
        }
        return None;
    }
    let names: Vec<_> = links.iter().map(|link| link.name.clone()).collect();
    let options =
        Options { backup, program: Some(program), ..Options::for_program(names.clone(), Vec::new()) };
    match Session::begin(options) {
        Ok((session, plan)) => {
            let notes = plan.notes().iter().cloned().chain(foreign_endpoints(&names));
            notes.for_each(|note| reports.put(Event::Notice(note)));
            Some(session)
        }
        // An administrator has set the endpoints already.
        Err(_) if uplinks::covers(&names, Path::new(STATE_DIR)) => None,
        Err(e) => {
            reports.put(Event::Notice(refusal(links, &e)));
            None
        }
    }
}

/// Returns the kernel's endpoints, or none if they cannot be read.
fn endpoints() -> Vec<Endpoint> {
    PathManager::open().and_then(|manager| manager.endpoints()).unwrap_or_default()
}

/// Returns a notice if no link is named, the kernel has no endpoint, and there are several interfaces.
fn only_one() -> Option<String> {
    let leads_out = |interface: &Interface| {
        interface.up && !interface.loopback && !interface.addresses.iter().all(|ip| is_link_local(*ip))
    };
    let names: Vec<String> =
        interfaces().ok()?.into_iter().filter(leads_out).map(|interface| interface.name).collect();
    (names.len() > 1 && endpoints().is_empty()).then(|| {
        let via: String = names.iter().map(|name| format!(" --via {name}")).collect();
        format!(
            "one link only is used, for the kernel's MPTCP has been told of none; to use several, name \
             them:{via}"
        )
    })
}

/// Returns notices about endpoints that another program has set. Connections use those too.
fn foreign_endpoints(names: &[String]) -> Vec<String> {
    let Ok(netlink) = Netlink::open() else { return Vec::new() };
    let own: Vec<u32> = names.iter().filter_map(|name| netlink.index(name).ok()).collect();
    let is_foreign = |endpoint: &&Endpoint| {
        let is_used = endpoint.flags.has(EndpointFlags::SUBFLOW);
        is_used && endpoint.device.is_none_or(|device| !own.contains(&device))
    };
    let says = |endpoint: &Endpoint| {
        let Endpoint { ip, id, .. } = endpoint;
        format!(
            "the kernel was told of {ip} by somebody else: connections use it too, though no --via names it; \
             this ends that: sudo ip mptcp endpoint delete id {id}"
        )
    };
    endpoints().iter().filter(is_foreign).map(says).collect()
}

/// Returns the subflows of a connection. A plain TCP connection counts as one subflow.
pub(crate) fn subflows_of(connection: &OwnedFd) -> Option<Vec<SubflowInfo>> {
    if let Some((_, subflows)) = mptcp_socket_info(connection.as_fd()).ok()? {
        return Some(subflows);
    }
    let socket = SockRef::from(connection);
    let of = |address: socket2::SockAddr| address.as_socket();
    let (local, remote) = (of(socket.local_addr().ok()?)?, of(socket.peer_addr().ok()?)?);
    let local = SocketAddr::new(local.ip().to_canonical(), local.port());
    let tcp = TcpInfo { state: Some(TcpState::Established), ..TcpInfo::default() };
    Some(vec![SubflowInfo { local, remote, tcp }])
}

/// Returns for each link whether the kernel has no endpoint for it, because it could not be used.
pub(crate) fn unknown(links: &[Via]) -> Vec<bool> {
    let (endpoints, netlink) = (endpoints(), Netlink::open());
    let is_known = |link: &Via| {
        let index = netlink.as_ref().ok().and_then(|netlink| netlink.index(&link.name).ok());
        index.is_some() && endpoints.iter().any(|endpoint| endpoint.device == index)
    };
    links.iter().map(|link| !is_known(link)).collect()
}

/// Has the kernel announce the removal of these endpoints again. It no longer has them itself.
pub(crate) fn remove_again(endpoints: &[Endpoint]) {
    let Ok(manager) = PathManager::open() else { return };
    for endpoint in endpoints {
        // Connections whose first subflow used the address know it by the number 0 (RFC 8684, section 3.2).
        // The kernel removes that without an endpoint. If no connection has it, this fails.
        let _ = manager.del_endpoint(&Endpoint { id: 0, ..*endpoint });
        // The others know it by the endpoint's number, which the kernel has to know to remove it.
        if manager.add_endpoint(endpoint).is_ok() {
            let _ = manager.del_endpoint(endpoint);
        }
    }
}

/// Returns the links with an endpoint for an address that they have lost, while they have another address.
pub(crate) fn moved(before: &[Vec<IpAddr>], now: &[Vec<IpAddr>]) -> Vec<usize> {
    let used = endpoints();
    let is_lost = |ip: &IpAddr, now: &[IpAddr]| !now.contains(ip) && used.iter().any(|of| of.ip == *ip);
    let has_moved = |(_, (before, now)): &(usize, (&Vec<IpAddr>, &Vec<IpAddr>))| {
        !now.is_empty() && before.iter().any(|ip| is_lost(ip, now))
    };
    before.iter().zip(now).enumerate().filter(has_moved).map(|(n, _)| n).collect()
}

fn refusal(links: &[Via], error: &Error) -> String {
    let names: Vec<_> = links.iter().map(|link| link.name.as_str()).collect();
    let says = format!("the kernel is not told to use {}: {error}", names.join(", "));
    if matches!(error, Error::InUse) {
        return says;
    }
    let via: String = links.iter().map(|link| format!(" --via {}", link.name)).collect();
    let backup = links.iter().filter(|link| link.is_backup);
    let backup: String = backup.map(|link| format!(" --backup {}", link.name)).collect();
    format!("{says}; this does it: sudo anabranch kernel setup{via}{backup}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_may_not_is_told_what_to_run() {
        let links = [Via::new("wlan0"), Via { is_backup: true, ..Via::new("wwan0") }];
        let says = refusal(&links, &Error::Unusable("no".into()));
        assert_eq!(
            says,
            "the kernel is not told to use wlan0, wwan0: no; this does it: sudo anabranch kernel setup \
             --via wlan0 --via wwan0 --backup wwan0"
        );
    }
}
