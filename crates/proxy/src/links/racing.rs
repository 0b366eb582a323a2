//! The first subflow of a trunk: over the best link that answers.
//!
//! The links are tried one after the other, each [`ATTEMPT_DELAY`] after the one before or as soon as that
//! one has failed, as Happy Eyeballs (RFC 8305) tries addresses; of the server's addresses, too, the first
//! comes first. The first that is connected wins; the others are dropped.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use net::Egress;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::socket::{Connection, SocketOptions, connect};

/// Between the beginnings of two attempts. RFC 8305 section 5 recommends 250 ms.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
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
    let mut waiting = pairs.into_iter().peekable();
    // Dropping it ends what is under way.
    let mut attempts = JoinSet::new();
    let mut failure = (None, "the server's name has no address".to_owned());
    loop {
        if let Some((address, link)) = waiting.next() {
            let mut options = options.clone();
            if let Some(name) = &link {
                options.egress = Egress::of_device(name.clone());
            }
            attempts.spawn(attempt(address, link, options));
        }
        let ended = tokio::select! {
            ended = attempts.join_next() => ended,
            () = sleep(ATTEMPT_DELAY), if waiting.peek().is_some() => continue,
        };
        match ended {
            Some(Ok(Ok(connected))) => return Ok(connected),
            Some(Ok(Err((address, why)))) => failure = (Some(address), why),
            Some(Err(e)) => failure.1 = e.to_string(),
            None => {}
        }
        if attempts.is_empty() && waiting.peek().is_none() {
            return Err(failure);
        }
    }
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
