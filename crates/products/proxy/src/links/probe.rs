//! Probes whether the server answers over a link.

use std::net::SocketAddr;
use std::time::Duration;

use anabranch_net::Egress;
use socket2::SockRef;
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The time between the first and the second SYN of a probe, because one packet may be lost.
const PROBE_AGAIN: Duration = Duration::from_millis(100);
/// The time between the following SYNs. A probe takes seconds if a full queue was measured before. The kernel
/// would repeat the first SYN only after 1 s and after 3 s, and a link that comes back in between would wait
/// for that.
const PROBE_EVERY: Duration = Duration::from_millis(300);

/// Returns when each SYN leaves, counted from the start of the probe.
fn departures(servers: usize, limit: Duration) -> impl Iterator<Item = Duration> {
    let first = u32::try_from(servers.max(2)).unwrap_or(u32::MAX);
    let beginning = (0..first).map(|n| PROBE_AGAIN * n);
    let rest = (1..).map(move |n| PROBE_AGAIN * (first - 1) + PROBE_EVERY * n);
    beginning.chain(rest).take_while(move |departure| *departure < limit)
}

/// Whether the server takes a connection over this link within `limit`. The connection is reset at once; the
/// server takes a connection without a byte for a probe.
pub(crate) async fn probe(name: &str, servers: &[SocketAddr], limit: Duration) -> bool {
    let mut attempts = JoinSet::new();
    for (server, departure) in servers.iter().cycle().zip(departures(servers.len(), limit)) {
        let (egress, server) = (Egress::of_device(name), *server);
        attempts.spawn(async move {
            sleep(departure).await;
            let Ok((socket, peer)) = egress.tcp_socket(server) else { return false };
            let connected = TcpSocket::from_std_stream(socket.into()).connect(peer).await;
            connected.is_ok_and(|stream| SockRef::from(&stream).set_linger(Some(Duration::ZERO)).is_ok())
        });
    }
    let any = async {
        while let Some(ended) = attempts.join_next().await {
            if ended.unwrap_or(false) {
                return true;
            }
        }
        // All attempts failed, for example because there is no route; an immediate repetition would fail too.
        false
    };
    timeout(limit, any).await.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_probe_never_waits_for_the_kernel_to_send_again() {
        let millis = |servers, limit| {
            let all = departures(servers, Duration::from_millis(limit));
            all.map(|departure| departure.as_millis()).collect::<Vec<_>>()
        };
        assert_eq!(millis(1, 300), [0, 100]);
        assert_eq!(millis(4, 300), [0, 100, 200]);
        assert_eq!(millis(1, 3_200)[..4], [0, 100, 400, 700]);
        assert!(millis(1, 3_200).last() > Some(&2_800));
    }
}
