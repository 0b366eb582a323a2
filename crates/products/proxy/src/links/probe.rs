//! Whether the server is there, over one link.

use std::net::SocketAddr;
use std::time::Duration;

use anabranch_net::Egress;
use socket2::SockRef;
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The second SYN of a probe leaves so long after the first: one packet may be lost.
const PROBE_AGAIN: Duration = Duration::from_millis(100);
/// And then another one as often as this, as long as the probe lasts, which is seconds where a full queue
/// was measured. The kernel would send the first one again after 1 s and after 3: a link that comes back
/// meanwhile would wait for that.
const PROBE_EVERY: Duration = Duration::from_millis(300);

/// When each SYN leaves.
fn departures(servers: usize, limit: Duration) -> impl Iterator<Item = Duration> {
    let first = u32::try_from(servers.max(2)).unwrap_or(u32::MAX);
    let beginning = (0..first).map(|n| PROBE_AGAIN * n);
    let rest = (1..).map(move |n| PROBE_AGAIN * (first - 1) + PROBE_EVERY * n);
    beginning.chain(rest).take_while(move |departure| *departure < limit)
}

/// Whether the server takes a connection over this link, which is reset at once. The server knows that one
/// without a byte is a probe.
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
        // No route, say: whoever asks again at once finds the same.
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
