//! Opens the first subflow of a trunk over the best link that answers.
//!
//! The links are tried one after the other, as Happy Eyeballs (RFC 8305) tries addresses. All links are tried
//! with the server's first address before the next one.
//!
//! The kernel repeats a lost SYN, and from the third time on without MPTCP: after 3 s (Linux 6.12 and later,
//! `net.mptcp.syn_retrans_before_tcp_fallback`). If a link comes back just then, the connection keeps a
//! single path, and the kernel may refuse MPTCP to all others for an hour (`net.mptcp.blackhole_timeout`). So
//! each connection is given up before that, and another one is started.

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

/// The time after which a connection is given up, which is before the kernel falls back to TCP.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(2_500);
/// The most connections to one address over one link that are started one after the other.
const CONNECTIONS: u32 = 2;
/// The most attempts for one trunk.
const ATTEMPTS_MAX: usize = 32;

/// The links that are tried for a trunk, in this order; `None` lets the system choose.
pub(crate) type Order = Vec<Option<String>>;

/// Connects to any of the addresses over any of the links, and returns the first connection.
///
/// # Errors
/// If no attempt succeeds; the error is that of the last attempt, with its address.
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

/// Connects, and starts again if that takes too long. An administrator can make the kernel fall back to TCP
/// sooner; if all attempts fell back, the last connection is used.
async fn begun_afresh<C>(connect: impl Fn() -> C) -> io::Result<Connection>
where
    C: Future<Output = io::Result<Connection>>,
{
    let mut last = Err(io::ErrorKind::TimedOut.into());
    for _ in 0..CONNECTIONS {
        match timeout(CONNECT_TIMEOUT, connect()).await {
            Ok(Ok(connection)) if has_left_mptcp(&connection) => last = Ok(connection),
            // An earlier connection that fell back is better than none.
            Ok(Err(e)) => return last.or(Err(e)),
            Ok(connected) => return connected,
            Err(_) => {}
        }
    }
    last
}

/// Whether the connection has one path because packets were lost.
fn has_left_mptcp(connection: &Connection) -> bool {
    let was_lost = || tcp_socket_info(connection.stream.as_fd()).is_ok_and(|tcp| tcp.total_retrans > 0);
    connection.transport == Transport::Tcp && was_lost()
}
