//! A program's datagrams: SOCKS5's UDP ASSOCIATE (RFC 1928 section 7).

use std::net::SocketAddr;

use bytes::Bytes;
use tokio::net::UdpSocket;

use crate::client::datagrams::{DatagramLeg, ProgramFlow};
use crate::event::{Finished, Protocol};
use crate::ingress::socks_udp;
use crate::relay::{Broken, Ending, Leg};
use crate::trunk::Destination;

/// Datagrams that are taken in a row before the others have their turn.
const BATCH_MAX: usize = 64;
const DATAGRAM_BYTES_MAX: usize = 65_535;

/// Serves it as long as the program's connection lives. `finished` is there once something was sent.
pub(super) async fn associate(
    datagrams: &DatagramLeg,
    mut leg: Leg,
    from: SocketAddr,
    finished: &mut Option<Finished>,
) -> Result<(), Ending> {
    let local = leg.local_addr().map_err(Broken::Tcp)?;
    let opened = datagrams.open().await;
    let bound = UdpSocket::bind(SocketAddr::new(local.ip(), 0)).await;
    let (mut flow, socket) = match (opened, bound) {
        (Ok(flow), Ok(socket)) => (flow, socket),
        (opened, bound) => {
            leg.end_with(&socks_udp::REFUSED).await;
            let (reason, why) = match (opened, bound) {
                (Err((reason, why)), _) => (reason, why),
                (Ok(_), bound) => {
                    let e = bound.err().unwrap_or_else(|| std::io::ErrorKind::Other.into());
                    (crate::egress::reason(&e), e.to_string())
                }
            };
            return Err(Ending { reason, why: Some(why) });
        }
    };
    let address = socket.local_addr().map_err(Broken::Tcp)?;
    leg.write_all(&socks_udp::bound(address)).await.map_err(Broken::Tcp)?;
    // The port from which the program sends: the first one.
    let mut program: Option<SocketAddr> = None;
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        tokio::select! {
            ended = leg.read() => match ended {
                Ok(bytes) if bytes.is_empty() => break,
                // Nothing is to be said there.
                Ok(_) => {}
                Err(e) => return Err(Broken::Tcp(e).into()),
            },
            readable = socket.readable() => {
                readable.map_err(Broken::Tcp)?;
                for _ in 0..BATCH_MAX {
                    let Ok((n, sender)) = socket.try_recv_from(&mut buffer) else { break };
                    let is_ours = sender.ip().to_canonical() == from.ip().to_canonical();
                    if is_ours && program.is_none_or(|known| known == sender) {
                        take(&buffer[..n], &flow, from, finished, || program = Some(sender));
                    }
                }
            }
            Some((peer, bytes)) = flow.receive() => {
                let mut next = Some((peer, bytes));
                while let Some((peer, bytes)) = next {
                    if let (Some(program), Some(finished)) = (program, finished.as_mut()) {
                        finished.received_bytes += bytes.len() as u64;
                        // A program that does not read loses its own.
                        let _ = socket.try_send_to(&socks_udp::encode(&peer, &bytes), program);
                    }
                    next = flow.receive_now();
                }
            }
        }
    }
    leg.end_with(&[]).await;
    Ok(())
}

/// A datagram of the program; what is malformed is dropped.
fn take(
    bytes: &[u8],
    flow: &ProgramFlow,
    from: SocketAddr,
    finished: &mut Option<Finished>,
    is_right: impl FnOnce(),
) {
    let Some((to, payload)) = socks_udp::decode(bytes) else { return };
    is_right();
    let begin =
        |to: &Destination| Finished { protocol: Protocol::Udp, ..Finished::begin(from, None, to.clone()) };
    finished.get_or_insert_with(|| begin(&to)).sent_bytes += payload.len() as u64;
    flow.send(&to, Bytes::copy_from_slice(payload));
}
