//! One flow of datagrams at the server: its sockets, and the hosts that may answer.
//!
//! All destinations of a flow see the same port of the server, and only hosts to which the program has sent
//! can answer (RFC 4787: endpoint-independent mapping, address-dependent filtering). So programs that find
//! each other by STUN work, and other hosts cannot send to the flow.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anabranch_net::Clock;
use bytes::Bytes;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::egress::{Connector, Failed};
use crate::event::{Event, Finished, Protocol, Reports};
use crate::quota::{Pace, Rested};
use crate::relay::Ending;
use crate::role::Live;
use crate::server::association::{Association, FlowId};
use crate::trunk::{Destination, Host, Reason};

/// The time without a datagram after which a flow ends that was never answered.
const IDLE_ONE_WAY: Duration = Duration::from_secs(60);
/// The time without a datagram after which a flow ends that was answered.
const IDLE_BOTH_WAYS: Duration = Duration::from_secs(120);
/// The most hosts that may answer a flow, and the most names whose addresses it keeps. Beyond these, the
/// lists start anew.
const HOSTS_MAX: usize = 1_024;
const NAMES_MAX: usize = 64;
/// The longest time that the lookup of a name may take.
const NAME_TIMEOUT: Duration = Duration::from_secs(5);
/// The most datagrams that are passed on at once.
const BATCH_MAX: usize = 64;
/// The indices of the directions, which are those of a connection to an origin.
const FROM_ORIGIN: usize = 0;
const TO_ORIGIN: usize = 1;
const DATAGRAM_BYTES_MAX: usize = 65_535;

#[derive(Default)]
struct Sockets {
    v4: Option<UdpSocket>,
    v6: Option<UdpSocket>,
}

impl Sockets {
    /// Returns the socket for this address. Makes it if it does not exist.
    async fn towards(&mut self, to: SocketAddr, connector: &Connector) -> io::Result<&UdpSocket> {
        let (slot, any) = match to {
            SocketAddr::V4(_) => (&mut self.v4, IpAddr::from(Ipv4Addr::UNSPECIFIED)),
            SocketAddr::V6(_) => (&mut self.v6, IpAddr::from(Ipv6Addr::UNSPECIFIED)),
        };
        if slot.is_none() {
            let made = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
            connector.check_descriptors(&made)?;
            *slot = Some(made);
        }
        slot.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Waits for datagrams and returns them.
    async fn receive(&self) -> Vec<(SocketAddr, Bytes)> {
        let readable = async |socket: &Option<UdpSocket>| match socket {
            // An error belongs to a datagram that was sent before, so it is ignored.
            Some(socket) => drop(socket.readable().await),
            None => std::future::pending().await,
        };
        tokio::select! {
            () = readable(&self.v4) => {}
            () = readable(&self.v6) => {}
        }
        self.take()
    }

    /// Returns the datagrams that are there, at most a batch. The buffer is on the stack, so that a waiting
    /// flow holds none.
    fn take(&self) -> Vec<(SocketAddr, Bytes)> {
        let (mut buffer, mut all) = ([0; DATAGRAM_BYTES_MAX], Vec::new());
        for socket in [&self.v4, &self.v6].into_iter().flatten() {
            while all.len() < BATCH_MAX
                && let Ok((n, from)) = socket.try_recv_from(&mut buffer)
            {
                all.push((from, Bytes::copy_from_slice(&buffer[..n])));
            }
        }
        all
    }
}

/// The addresses to which a flow may send, and the hosts that may answer.
#[derive(Default)]
struct Peers {
    names: BTreeMap<Destination, SocketAddr>,
    hosts: BTreeSet<IpAddr>,
}

impl Peers {
    /// Returns the address of a destination, if the policy allows it.
    ///
    /// The lookup of a name takes turns with those of other clients than `owner`.
    async fn address(
        &mut self,
        connector: &Connector,
        owner: &str,
        to: &Destination,
    ) -> Result<SocketAddr, Failed> {
        if let Some(known) = self.names.get(to) {
            return Ok(*known);
        }
        let late = || Failed { reason: Reason::Name, why: "the name's address takes too long".to_owned() };
        let finding = async {
            match to.host() {
                Host::Name(_) => connector.of(owner).addresses(to).await,
                _ => connector.addresses(to).await,
            }
        };
        let found = timeout(NAME_TIMEOUT, finding).await.map_err(|_| late())??;
        let address = *found.first().ok_or_else(late)?;
        if matches!(to.host(), Host::Name(_)) || !self.hosts.contains(&address.ip()) {
            if self.names.len() >= NAMES_MAX {
                self.names.clear();
            }
            self.names.insert(to.clone(), address);
        }
        if self.hosts.len() >= HOSTS_MAX {
            self.hosts.clear();
        }
        self.hosts.insert(address.ip());
        Ok(address)
    }
}

/// Serves a flow until it ends.
pub(super) async fn serve_flow(
    connector: Live<Connector>,
    reports: Reports,
    association: Arc<Association>,
    flow: FlowId,
    mut from_leg: mpsc::Receiver<(Destination, Bytes)>,
    mut pace: Pace,
) {
    let clock = Clock::start();
    let (mut sockets, mut peers) = (Sockets::default(), Peers::default());
    let mut finished: Option<Finished> = None;
    let mut failure = None;
    loop {
        let is_answered = finished.as_ref().is_some_and(|finished| finished.received_bytes > 0);
        let patience = if is_answered { IDLE_BOTH_WAYS } else { IDLE_ONE_WAY };
        tokio::select! {
            rested = pace.rested() => if rested == Rested::GaveWay { break },
            got = from_leg.recv(), if !pace.rests(TO_ORIGIN) => {
                let Some((to, bytes)) = got else { break };
                pace.count(TO_ORIGIN, bytes.len());
                let finished = finished.get_or_insert_with(|| {
                    let finished = Finished::begin(association.from, association.client.clone(), to.clone());
                    Finished { protocol: Protocol::Udp, ..finished }
                });
                let connector = connector.get();
                let sent = match peers.address(&connector, &association.owner, &to).await {
                    Ok(address) => {
                        finished.origin = finished.origin.or(Some(address));
                        let len = bytes.len() as u64;
                        match sockets.towards(address, &connector).await {
                            Ok(socket) => {
                                let sent = socket.send_to(&bytes, address).await;
                                sent.map(|_| len).map_err(|e| e.to_string())
                            }
                            Err(e) => Err(e.to_string()),
                        }
                        .map_err(|why| Failed { reason: Reason::HostUnreachable, why })
                    }
                    Err(failed) => Err(failed),
                };
                match sent {
                    Ok(bytes) => finished.sent_bytes += bytes,
                    Err(failed) => failure = Some(failed),
                }
            }
            received = sockets.receive(), if !pace.rests(FROM_ORIGIN) => {
                let mut answers = Vec::new();
                pace.count(FROM_ORIGIN, received.iter().map(|(_, bytes)| bytes.len()).sum());
                for (from, bytes) in received {
                    let ip = from.ip().to_canonical();
                    let Ok(peer) = Destination::from_ip(ip, from.port()) else { continue };
                    if peers.hosts.contains(&ip) {
                        if let Some(finished) = &mut finished {
                            finished.received_bytes += bytes.len() as u64;
                        }
                        answers.push((peer, bytes));
                    }
                }
                association.send(flow.number, answers);
            }
            () = sleep(patience) => break,
        }
    }
    association.forget(flow);
    if let Some(mut finished) = finished {
        // The flow has failed only if none of its datagrams was sent.
        let failure = failure.filter(|_| finished.sent_bytes == 0);
        finished.end(clock, failure.map_or(Ok(()), |failed| Err(Ending::from(failed))));
        reports.put(Event::Finished(finished));
    }
}
