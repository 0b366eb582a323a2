//! A program's datagrams: UDP ASSOCIATE of SOCKS5 (RFC 1928 section 7) and CONNECT-UDP (RFC 9298).
//!
//! Both are an *association*: a flow of the client's leg that exists as long as the program's connection.
//! They differ only towards the program: SOCKS5 uses a UDP port of the client, CONNECT-UDP uses capsules on
//! the connection.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZero;
use std::pin::Pin;

use anabranch_net::Clock;
use bytes::{Buf as _, Bytes, BytesMut};
use tokio::net::UdpSocket;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use crate::buffer::{BUFFER_BYTES, poll_read};
use crate::client::datagrams::{DatagramLeg, ProgramFlow};
use crate::descriptors::Descriptors;
use crate::egress;
use crate::event::{Event, Finished, Protocol, Reports};
use crate::flows::Early;
use crate::ingress::capsule::{self, Capsules, Malformed};
use crate::ingress::{Association, socks_udp};
use crate::quota::{Pace, Quotas, Rested};
use crate::relay::{Broken, Ending, TcpLeg};
use crate::trunk::{Destination, Host, Reason};

/// The most datagrams that are taken from a socket before other sources have their turn.
const BATCH_MAX: usize = 64;
const DATAGRAM_BYTES_MAX: usize = 65_535;
/// The most bytes of capsules that wait for a program that does not read. Further datagrams to it are
/// dropped.
const WAITING_BYTES_MAX: usize = 256 * 1024;

/// Serves an association as long as the program's connection lives, and reports how it ended.
pub(super) async fn associate(
    datagrams: &DatagramLeg,
    quotas: &Quotas,
    reports: &Reports,
    leg: TcpLeg,
    from: SocketAddr,
    wanted: Association,
) {
    let clock = Clock::start();
    let admitted = quotas.admit(wanted.user.as_deref().unwrap_or_default());
    let opened = match admitted {
        Ok(admitted) => datagrams.open().await.map(|flow| (flow, Pace::new(admitted))),
        Err(e) => Err((Reason::Busy, e.to_string())),
    };
    let mut finished = None;
    let end = match opened {
        Ok((flow, pace)) => {
            let mut traffic = Traffic { from, user: wanted.user.clone(), finished: None, pace };
            let end = match &wanted.to {
                Some(to) => capsules(leg, flow, &mut traffic, &wanted, to, reports).await,
                None => own_port(leg, flow, &mut traffic, &wanted).await,
            };
            finished = traffic.finished;
            end
        }
        Err((reason, why)) => refuse(leg, &wanted, reason, why).await,
    };
    match (finished, end) {
        (Some(mut finished), end) => {
            finished.end(clock, end);
            reports.put(Event::Finished(finished));
        }
        (None, Err(Ending { reason, why })) => {
            let why = why.unwrap_or_else(|| reason.to_string());
            reports.put(Event::Notice(format!("a program cannot send datagrams: {why}")));
        }
        (None, Ok(())) => {}
    }
}

async fn refuse(leg: TcpLeg, wanted: &Association, reason: Reason, why: String) -> Result<(), Ending> {
    leg.end_with(&wanted.failed(reason)).await;
    Err(Ending { reason, why: Some(why) })
}

/// The traffic of an association.
struct Traffic {
    from: SocketAddr,
    user: Option<String>,
    /// The report of the association. It is `None` until the program has sent a datagram.
    finished: Option<Finished>,
    pace: Pace,
}

/// The index of the direction from the program.
const UP: usize = 0;
/// The index of the direction to the program.
const DOWN: usize = 1;

impl Traffic {
    /// Counts a datagram of the program and sends it on the flow.
    fn send(&mut self, flow: &ProgramFlow, to: &Destination, payload: Bytes) {
        let begin = || Finished {
            protocol: Protocol::Udp,
            ..Finished::begin(self.from, self.user.clone(), to.clone())
        };
        self.finished.get_or_insert_with(begin).sent_bytes += payload.len() as u64;
        self.pace.count(UP, payload.len());
        flow.send(to, payload);
    }

    /// Counts a datagram that goes to the program.
    fn count_received(&mut self, payload: &Bytes) {
        if let Some(finished) = &mut self.finished {
            finished.received_bytes += payload.len() as u64;
        }
        self.pace.count(DOWN, payload.len());
    }

    /// Returns the next datagram from the server, unless there is none or the rate limit does not allow it
    /// now.
    fn next(&self, flow: &mut ProgramFlow) -> Option<(Destination, Bytes)> {
        if self.pace.rests(DOWN) { None } else { flow.receive_now() }
    }
}

/// Decides which datagrams come from the program. They must come from the host of its connection, and from
/// the port that its request named. If it named none, they must all come from the port of the first datagram.
struct Sender {
    host: IpAddr,
    port: Option<NonZero<u16>>,
    /// The address of the first accepted datagram.
    known: Option<SocketAddr>,
}

impl Sender {
    fn of(connection: SocketAddr, port: Option<NonZero<u16>>) -> Self {
        Self { host: connection.ip().to_canonical(), port, known: None }
    }

    fn may_be(&self, from: SocketAddr) -> bool {
        from.ip().to_canonical() == self.host
            && self.port.is_none_or(|port| port.get() == from.port())
            && self.known.is_none_or(|known| known == from)
    }
}

/// Serves UDP ASSOCIATE: the program sends to a UDP port of the client, and each datagram names its
/// destination.
async fn own_port(
    mut leg: TcpLeg,
    mut flow: ProgramFlow,
    traffic: &mut Traffic,
    wanted: &Association,
) -> Result<(), Ending> {
    let local = leg.local_addr().map_err(Broken::Tcp)?;
    let socket = match bind(local).await {
        Ok(socket) => socket,
        Err(e) => return refuse(leg, wanted, egress::reason(&e), e.to_string()).await,
    };
    let address = socket.local_addr().map_err(Broken::Tcp)?;
    leg.write_all(&wanted.accepted(address)).await.map_err(Broken::Tcp)?;
    let mut program = Sender::of(traffic.from, wanted.port);
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        tokio::select! {
            ended = leg.read() => match ended {
                Ok(bytes) if bytes.is_empty() => break,
                // SOCKS5 defines no data on this connection, so it is ignored.
                Ok(_) => {}
                Err(e) => return Err(Broken::Tcp(e).into()),
            },
            rested = traffic.pace.rested() => end_if_given_up(rested)?,
            readable = socket.readable(), if !traffic.pace.rests(UP) => {
                readable.map_err(Broken::Tcp)?;
                for _ in 0..BATCH_MAX {
                    if traffic.pace.rests(UP) {
                        break;
                    }
                    let Ok((n, sender)) = socket.try_recv_from(&mut buffer) else { break };
                    // A malformed datagram is dropped and does not fix the program's port.
                    if program.may_be(sender)
                        && let Some((to, payload)) = socks_udp::decode(&buffer[..n])
                    {
                        program.known = Some(sender);
                        traffic.send(&flow, &to, Bytes::copy_from_slice(payload));
                    }
                }
            }
            Some((peer, bytes)) = flow.receive(), if !traffic.pace.rests(DOWN) => {
                let mut next = Some((peer, bytes));
                while let Some((peer, bytes)) = next {
                    if let Some(program) = program.known {
                        traffic.count_received(&bytes);
                        // Datagrams that the program's socket does not take are dropped.
                        let _ = socket.try_send_to(&socks_udp::encode(&peer, &bytes), program);
                    }
                    next = traffic.next(&mut flow);
                }
            }
        }
    }
    leg.end_with(&[]).await;
    Ok(())
}

async fn bind(local: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(SocketAddr::new(local.ip(), 0)).await?;
    Descriptors::of_process().check(&socket)?;
    Ok(socket)
}

/// Serves CONNECT-UDP: the program sends to one destination, in capsules on its connection.
async fn capsules(
    mut leg: TcpLeg,
    mut flow: ProgramFlow,
    traffic: &mut Traffic,
    wanted: &Association,
    to: &Destination,
    reports: &Reports,
) -> Result<(), Ending> {
    leg.write_all(&wanted.accepted(traffic.from)).await.map_err(Broken::Tcp)?;
    let mut read = Capsules::default();
    let end = exchange(&mut leg, &mut flow, traffic, &mut read, Bytes::copy_from_slice(&wanted.first), to);
    let end = end.await;
    let passed = read.passed();
    if passed.datagrams > 0 {
        let says = format!("{} datagrams to {to} were of unknown contexts, and dropped", passed.datagrams);
        reports.put(Event::Notice(says));
    }
    if end.is_ok() {
        leg.end_with(&[]).await;
    }
    end
}

/// Moves datagrams until the program's connection ends.
async fn exchange(
    leg: &mut TcpLeg,
    flow: &mut ProgramFlow,
    traffic: &mut Traffic,
    read: &mut Capsules,
    mut come: Bytes,
    to: &Destination,
) -> Result<(), Ending> {
    let (mut reading, writing) = leg.halves();
    let mut waiting = BytesMut::new();
    loop {
        // Data beyond the rate limit stays in the connection, so the program has to wait.
        while !traffic.pace.rests(UP)
            && let Some(payload) = read.next(&mut come).map_err(malformed)?
        {
            traffic.send(flow, to, payload);
        }
        tokio::select! {
            rested = traffic.pace.rested() => end_if_given_up(rested)?,
            more = read_some(&mut reading), if !traffic.pace.rests(UP) => {
                come = more.map_err(Broken::Tcp)?;
                if come.is_empty() {
                    return if read.is_between() { Ok(()) } else { Err(cut()) };
                }
            }
            Some((peer, bytes)) = flow.receive(), if !traffic.pace.rests(DOWN) => {
                let mut next = Some((peer, bytes));
                while let Some((peer, bytes)) = next {
                    if answers(&peer, to) && waiting.len() + bytes.len() <= WAITING_BYTES_MAX {
                        traffic.count_received(&bytes);
                        let mut capsule = Vec::with_capacity(bytes.len() + 8);
                        capsule::encode(&bytes, &mut capsule);
                        waiting.extend_from_slice(&capsule);
                    }
                    next = traffic.next(flow);
                }
                write(&writing, &mut waiting).map_err(Broken::Tcp)?;
            }
            writable = writing.writable(), if !waiting.is_empty() => {
                writable.map_err(Broken::Tcp)?;
                write(&writing, &mut waiting).map_err(Broken::Tcp)?;
            }
        }
        tokio::task::consume_budget().await;
    }
}

fn end_if_given_up(rested: Rested) -> Result<(), Ending> {
    match rested {
        Rested::GoOn => Ok(()),
        Rested::GaveWay => Err(Early::GaveWay.into()),
    }
}

async fn read_some(from: &mut ReadHalf<'_>) -> io::Result<Bytes> {
    poll_fn(|cx| poll_read(Pin::new(&mut *from), cx, BUFFER_BYTES)).await
}

/// Writes as many of the waiting bytes as the connection takes without blocking.
fn write(to: &WriteHalf<'_>, waiting: &mut BytesMut) -> io::Result<()> {
    while !waiting.is_empty() {
        match to.try_write(waiting) {
            Ok(n) => waiting.advance(n),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Whether `peer` is the destination `to`. The flow also passes answers from other ports of its host.
fn answers(peer: &Destination, to: &Destination) -> bool {
    let is_host = match to.host() {
        // Only the server knows the addresses of a name, so any host is accepted.
        Host::Name(_) => true,
        Host::Ip(_) => peer.host() == to.host(),
    };
    is_host && peer.port() == to.port()
}

fn malformed(e: Malformed) -> Ending {
    Ending { reason: Reason::NoInterest, why: Some(e.to_string()) }
}

fn cut() -> Ending {
    Ending { reason: Reason::NoInterest, why: Some("the connection ended within a capsule".to_owned()) }
}
