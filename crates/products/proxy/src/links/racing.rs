//! The first subflow of a trunk: over the best link that answers.
//!
//! The links are tried one after the other, as Happy Eyeballs (RFC 8305) tries addresses; of the server's
//! addresses, too, the first comes first.
//!
//! The kernel sends a lost SYN again, and from the third time on without MPTCP: after 3 s (Linux 6.12 and
//! later, `net.mptcp.syn_retrans_before_tcp_fallback`). If a link comes back just then, the connection has
//! one path for life, and the kernel may refuse MPTCP to all others for an hour
//! (`net.mptcp.blackhole_timeout`). So each connection is given up before that, and another one is begun.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::time::Duration;

use anabranch_http::happy_eyeballs;
use anabranch_net::Egress;
use anabranch_net::mptcp_socket::tcp_socket_info;
use tokio::time::timeout;

use crate::socket::{Connection, SocketOptions, connect};
use crate::trunk::Transport;

/// A connection is given up after so long: before the kernel leaves MPTCP.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(2_500);
/// Connections to one address over one link that are begun one after the other.
const CONNECTIONS: u32 = 2;
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
    let begin = |(address, link): (SocketAddr, Option<String>)| {
        let mut options = options.clone();
        if let Some(name) = &link {
            options.egress = Egress::of_device(name.clone());
        }
        attempt(address, link, options)
    };
    let mut failure = (None, "the server's name has no address".to_owned());
    let connected = happy_eyeballs::race(pairs, begin, |failed| match failed {
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
    let connected = begun_afresh(|| connect(address, &options)).await;
    connected.map(|connection| (connection, address)).map_err(|e| {
        let over = link.map_or_else(String::new, |link| format!(" over {link}"));
        (address, format!("no connection to the server{over}: {e}"))
    })
}

/// A connection, which is begun again when it takes too long. If the kernel has left MPTCP all the same, for
/// an administrator can make it less patient, the last one is what counts.
async fn begun_afresh<C>(connect: impl Fn() -> C) -> io::Result<Connection>
where
    C: Future<Output = io::Result<Connection>>,
{
    let mut last = Err(io::ErrorKind::TimedOut.into());
    for _ in 0..CONNECTIONS {
        match timeout(CONNECT_TIMEOUT, connect()).await {
            Ok(Ok(connection)) if has_left_mptcp(&connection) => last = Ok(connection),
            // One that was connected before is better than none.
            Ok(Err(e)) => return last.or(Err(e)),
            Ok(connected) => return connected,
            Err(_) => {}
        }
    }
    last
}

/// Whether it has one path since packets were lost.
fn has_left_mptcp(connection: &Connection) -> bool {
    let was_lost = || tcp_socket_info(connection.stream.as_fd()).is_ok_and(|tcp| tcp.total_retrans > 0);
    connection.transport == Transport::Tcp && was_lost()
}
