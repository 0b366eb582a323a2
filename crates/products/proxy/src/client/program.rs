//! Serves one connection of a program.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anabranch_net::Clock;
use bytes::Bytes;
use tokio::time::timeout;

use crate::client::associate::associate;
use crate::client::datagrams::DatagramLeg;
use crate::client::servers::Servers;
use crate::event::{Event, Finished, Reports};
use crate::flows::{Flow, Flows};
use crate::ingress::{Association, Handshake, Progress, Request, Users};
use crate::quota::Quotas;
use crate::relay::{Broken, Ending, TcpLeg, relay};
use crate::role::Live;
use crate::trunk::Reason;
use crate::trunk_task::Stream;

/// The time that a program has for its first bytes after it was told that it is connected. They then travel
/// with the destination, so that the server may send them with its SYN. A program that waits for the origin
/// to speak first loses this time.
const FIRST_BYTES_WAIT: Duration = Duration::from_millis(2);

/// The settings that may change while a client runs.
#[derive(Clone, Debug)]
pub(super) struct Manners {
    /// The users that may use the client.
    pub(super) users: Users,
    /// Whether programs are told that they are connected only when the server has connected.
    pub(super) is_strict: bool,
}

/// The parts of the client that programs' connections share.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) trunks: Servers,
    pub(super) datagrams: DatagramLeg,
    pub(super) reports: Reports,
    pub(super) flows: Flows,
    pub(super) quotas: Quotas,
    pub(super) manners: Live<Manners>,
}

impl Service {
    /// Reads a program's request and serves it until it ends.
    pub(super) async fn serve(&self, mut leg: TcpLeg, from: SocketAddr, mut handshake: Handshake) {
        let clock = Clock::start();
        let within = self.flows.timeouts().handshake;
        let asked = timeout(within, read_request(&mut leg, &mut handshake)).await;
        let request = match asked {
            Ok(Ok(Some(Asked::Connection(request)))) => request,
            Ok(Ok(Some(Asked::Datagrams(wanted)))) => {
                return associate(&self.datagrams, &self.quotas, &self.reports, leg, from, *wanted).await;
            }
            // The program has been told the reason.
            Ok(Ok(None)) => return leg.end_with(&[]).await,
            // The program is gone, or did not complete its request in time, so it gets no answer.
            Ok(Err(_)) | Err(_) => return,
        };
        self.finish(clock, leg, from, *request).await;
    }

    /// Serves a program whose connection was redirected, until it ends.
    pub(super) async fn serve_redirected(&self, leg: TcpLeg, from: SocketAddr) {
        match leg.redirected_from() {
            Ok(destination) => {
                self.finish(Clock::start(), leg, from, Request::redirected(destination)).await;
            }
            Err(e) => self.reports.put(Event::Notice(format!("a connection of {from} is refused: {e}"))),
        }
    }

    async fn finish(&self, clock: Clock, leg: TcpLeg, from: SocketAddr, request: Request) {
        let mut finished = Finished::begin(from, request.user.clone(), request.destination.clone());
        let end = self.begin(leg, request, &mut finished).await;
        finished.end(clock, end);
        self.reports.put(Event::Finished(finished));
    }

    async fn begin(&self, leg: TcpLeg, request: Request, finished: &mut Finished) -> Result<(), Ending> {
        let admitted = match self.quotas.admit(request.user.as_deref().unwrap_or_default()) {
            Ok(admitted) => admitted,
            Err(e) => {
                leg.end_with(&request.failed(Reason::Busy)).await;
                return Err(Ending { reason: Reason::Busy, why: Some(e.to_string()) });
            }
        };
        let flow =
            self.flows.begin(finished.from, finished.client.clone(), request.destination.clone(), admitted);
        let carried = tokio::select! {
            carried = self.carry(leg, request, &flow) => carried,
            early = flow.ends_early() => Err(early.into()),
        };
        let [from_tcp, to_tcp] = flow.moved();
        (finished.sent_bytes, finished.received_bytes) = (from_tcp, to_tcp);
        carried
    }

    async fn carry(&self, mut leg: TcpLeg, mut request: Request, flow: &Flow) -> Result<(), Ending> {
        let waits = self.manners.get().is_strict && !request.is_answered_by_origin();
        if !waits {
            leg.write_all(request.accepted()).await.map_err(Broken::Tcp)?;
            if request.first.is_empty() && !request.is_answered_by_origin() {
                let first = timeout(FIRST_BYTES_WAIT, leg.read()).await;
                // A read of no bytes means the end, which the relay sees again.
                request.first = first.unwrap_or_else(|_| Ok(Bytes::new())).map_err(Broken::Tcp)?.into();
            }
        }
        let stream = match self.open(&leg, &request, waits).await {
            Ok(stream) => stream,
            Err(ending) => {
                // A program that was already told that it is connected is reset instead.
                if waits || request.is_answered_by_origin() {
                    leg.end_with(&request.failed(ending.reason)).await;
                }
                return Err(ending);
            }
        };
        flow.open();
        flow.count_from_tcp(request.first.len()).await;
        if waits {
            leg.write_all(request.accepted()).await.map_err(Broken::Tcp)?;
        }
        let relayed = relay(leg, stream, request.body.clone(), flow).await;
        if let (0, true, Err(Broken::Stream(reason))) =
            (flow.moved()[1], request.is_answered_by_origin(), &relayed.end)
        {
            // Nothing was written to the program yet, so an HTTP answer can still report the failure.
            relayed.leg.end_with(&request.failed(*reason)).await;
        }
        Ok(relayed.end?)
    }

    /// Opens a stream to the request's destination and writes the first bytes. With `waits`, also waits until
    /// the server has connected.
    async fn open(&self, leg: &TcpLeg, request: &Request, waits: bool) -> Result<Stream, Ending> {
        let stream = self.trunks.open(&request.destination, waits).await?;
        stream.write_all(Bytes::copy_from_slice(&request.first)).await?;
        if waits {
            tokio::select! {
                connected = stream.connected() => drop(connected?),
                e = leg.failed() => return Err(Broken::Tcp(e).into()),
            }
        }
        Ok(stream)
    }
}

/// The request of a program.
enum Asked {
    Connection(Box<Request>),
    Datagrams(Box<Association>),
}

/// Reads a program's request. Returns `None` if the program was told that its request is refused.
async fn read_request(leg: &mut TcpLeg, handshake: &mut Handshake) -> io::Result<Option<Asked>> {
    loop {
        let bytes = leg.read().await?;
        if bytes.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut answer = Vec::new();
        let progress = handshake.handle(&bytes, &mut answer);
        leg.write_all(&answer).await?;
        match progress {
            Progress::More => {}
            Progress::Wanted(request) => return Ok(Some(Asked::Connection(request))),
            Progress::Associate(wanted) => return Ok(Some(Asked::Datagrams(wanted))),
            Progress::Refused => return Ok(None),
        }
    }
}
