//! The first subflow of a trunk: over the best link that answers.
//!
//! The links are tried one after the other, as Happy Eyeballs (RFC 8305) tries addresses; of the server's
//! addresses, too, the first comes first.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use net::Egress;
use tokio::time::timeout;

use crate::happy_eyeballs;
use crate::socket::{Connection, SocketOptions, connect};

/// A connection to one address over one link may take so long.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Attempts for one trunk at most.
const ATTEMPTS_MAX: usize = 32;

/// What a trunk is tried over, in order: the names of links, `None` for the one that the system picks.
pub(crate) type Order = Vec<Option<String>>;

/// The first connection to any of the addresses over any of the links.
///
/// # Errors
/// What the last attempt said, and where to.
pub(crate) async fn race(
    addresses: &[SocketAddr],
    order: &Order,
    options: &SocketOptions,
) -> Result<(Connection, SocketAddr), (Option<SocketAddr>, String)> {
    let pairs = addresses.iter().flat_map(|address| order.iter().map(|link| (*address, link.clone())));
    let pairs: Vec<_> = pairs.take(ATTEMPTS_MAX).collect();
    let attempts = pairs.into_iter().map(|(address, link)| {
        let mut options = options.clone();
        if let Some(name) = &link {
            options.egress = Egress::of_device(name.clone());
        }
        attempt(address, link, options)
    });
    let mut failure = (None, "the server's name has no address".to_owned());
    let connected = happy_eyeballs::race(attempts, |failed| match failed {
        Ok((address, why)) => failure = (Some(address), why),
        Err(e) => failure.1 = e.to_string(),
    });
    let connected = connected.await;
    connected.ok_or(failure)
}

async fn attempt(
    address: SocketAddr,
    link: Option<String>,
    options: SocketOptions,
) -> Result<(Connection, SocketAddr), (SocketAddr, String)> {
    let connecting = timeout(CONNECT_TIMEOUT, connect(address, &options)).await;
    let connected = connecting.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    connected.map(|connection| (connection, address)).map_err(|e| {
        let over = link.map_or_else(String::new, |link| format!(" over {link}"));
        (address, format!("no connection to the server{over}: {e}"))
    })
}
