//! Whether the server is there, over one link.

use std::net::SocketAddr;
use std::time::Duration;

use net::Egress;
use socket2::SockRef;
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The second SYN of a probe leaves so long after the first: one packet may be lost.
const PROBE_AGAIN: Duration = Duration::from_millis(100);

/// Whether the server takes a connection over this link, which is reset at once. The server knows that one
/// without a byte is a probe.
pub(crate) async fn probe(name: &str, servers: &[SocketAddr], limit: Duration) -> bool {
    let mut attempts = JoinSet::new();
    for (n, server) in servers.iter().cycle().take(2.max(servers.len())).enumerate() {
        let (egress, server) = (Egress::of_device(name), *server);
        attempts.spawn(async move {
            sleep(PROBE_AGAIN * u32::try_from(n).unwrap_or(0)).await;
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
