//! Opens the sockets of a source, and finds the addresses by which receivers reach them.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use anabranch_http::server::Server;
use anabranch_net::{RecvBuffers, RecvOutcome, Udp, is_link_local};

use crate::host_port::PORT;
use crate::{Error, Result};

/// The largest number of addresses in a URI; a host may have many.
const ADDRESSES_MAX: usize = 8;
/// The largest number of batches of datagrams that [`drop_stale`] takes from a socket.
const STALE_MAX: usize = 1_000;

/// Binds UDP sockets to `addresses`. If there are none, binds the default port of every address; IPv6 is left
/// out if the host lacks it.
pub(super) fn udp(addresses: &[SocketAddr]) -> Result<Vec<Udp>> {
    let in_use = " (UDP): is another source running? Choose another port with `listen` ADDR:PORT; \
                  port 0 takes a free one";
    let listen =
        |address: SocketAddr| Udp::listen(address).map_err(|e| (e.kind(), failure(e, in_use).at(address)));
    if !addresses.is_empty() {
        return addresses.iter().map(|address| listen(*address).map_err(|(_, error)| error)).collect();
    }
    let v4 = listen((Ipv4Addr::UNSPECIFIED, PORT).into()).map_err(|(_, error)| error)?;
    match listen((Ipv6Addr::UNSPECIFIED, PORT).into()) {
        Ok(v6) => Ok(vec![v4, v6]),
        Err((io::ErrorKind::AddrInUse, error)) => Err(error),
        Err(_) => Ok(vec![v4]),
    }
}

/// Listens for HTTP; returns `None` if there are no `addresses`.
pub(super) fn http(addresses: &[SocketAddr]) -> Result<Option<Server>> {
    if addresses.is_empty() {
        return Ok(None);
    }
    Server::bind(addresses).map(Some).map_err(|e| {
        let error = failure(e, ": choose another port with `http` ADDR:PORT");
        if let [address] = addresses { error.at(*address) } else { error }
    })
}

fn failure(error: io::Error, in_use: &str) -> Error {
    let message = match error.kind() {
        io::ErrorKind::AddrInUse => format!("{error}{in_use}"),
        io::ErrorKind::AddrNotAvailable => format!("{error}: this machine has no such address"),
        io::ErrorKind::PermissionDenied => format!("{error}: ports below 1024 need privileges"),
        _ => error.to_string(),
    };
    Error::system(message).because(error)
}

/// Drops the datagrams that arrived while files were hashed: their senders have given up or will ask again.
pub(super) fn drop_stale(sockets: &[Udp]) {
    let mut buffers = RecvBuffers::new();
    for udp in sockets {
        for _ in 0..STALE_MAX {
            if !matches!(udp.recv(&mut buffers, |_| ()), Ok(RecvOutcome::Received { .. })) {
                break;
            }
        }
    }
}

/// Returns the addresses at which receivers may reach these sockets. For a wildcard, these are the addresses
/// of this machine that are usable from outside, or loopback if there are none.
pub(super) fn reachable(sockets: &[SocketAddr]) -> Vec<String> {
    let interfaces = anabranch_net::interfaces().unwrap_or_default();
    let mut addresses = Vec::new();
    let mut loopback = Vec::new();
    for local in sockets {
        if !local.ip().is_unspecified() {
            addresses.push(local.to_string());
            continue;
        }
        for interface in interfaces.iter().filter(|interface| interface.up) {
            for ip in interface.addresses.iter().filter(|ip| ip.is_ipv4() == local.is_ipv4()) {
                let text = SocketAddr::new(*ip, local.port()).to_string();
                if interface.loopback || ip.is_loopback() {
                    loopback.push(text);
                } else if !is_link_local(*ip) {
                    addresses.push(text);
                }
            }
        }
    }
    if addresses.is_empty() {
        addresses = loopback;
    }
    addresses.truncate(ADDRESSES_MAX);
    addresses
}

/// Returns whether an address is a loopback address, which no other machine can reach.
pub(super) fn is_loopback(address: &str) -> bool {
    address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback())
}
