//! One connection of a program.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anabranch_net::Clock;
use bytes::Bytes;
use tokio::time::timeout;

use crate::client::associate::associate;
use crate::client::datagrams::DatagramLeg;
use crate::client::trunks::Trunks;
use crate::event::{Event, Finished, Reports};
use crate::flows::{Flow, Flows};
use crate::ingress::{Association, Handshake, Progress, Request, Users};
use crate::quota::Quotas;
use crate::relay::{Broken, Ending, TcpLeg, relay};
use crate::role::Live;
use crate::trunk::Reason;
use crate::trunk_task::Stream;

/// A program that was told that it is connected gets so long to say something, so that its first bytes travel
/// with its destination: the server may then send them with its SYN. One that waits for the origin to speak
/// first loses this time.
const FIRST_BYTES_WAIT: Duration = Duration::from_millis(2);

/// What may change while a client runs.
#[derive(Clone, Debug)]
pub(super) struct Manners {
    /// Who may use it.
    pub(super) users: Users,
    /// Whether programs are told that they are connected when they are.
    pub(super) is_strict: bool,
}

/// What programs' connections have in common.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) trunks: Trunks,
    pub(super) datagrams: DatagramLeg,
    pub(super) reports: Reports,
    pub(super) flows: Flows,
    pub(super) quotas: Quotas,
    pub(super) manners: Live<Manners>,
}

impl Service {
    /// Serves a program, to the end.
    pub(super) async fn serve(&self, mut leg: TcpLeg, from: SocketAddr, mut handshake: Handshake) {
        let clock = Clock::start();
        let within = self.flows.timeouts().handshake;
        let asked = timeout(within, read_request(&mut leg, &mut handshake)).await;
        let request = match asked {
            Ok(Ok(Some(Asked::Connection(request)))) => request,
            Ok(Ok(Some(Asked::Datagrams(wanted)))) => {
                return associate(&self.datagrams, &self.quotas, &self.reports, leg, from, *wanted).await;
            }
            // It was told why.
            Ok(Ok(None)) => return leg.end_with(&[]).await,
            // It is gone, or has said too little: there is nothing to answer.
            Ok(Err(_)) | Err(_) => return,
        };
        self.finish(clock, leg, from, *request).await;
    }

    /// Serves a program whose connection was redirected, to the end.
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
                // None at the end, which is seen again.
                request.first = first.unwrap_or_else(|_| Ok(Bytes::new())).map_err(Broken::Tcp)?.into();
            }
        }
        let stream = match self.open(&leg, &request, waits).await {
            Ok(stream) => stream,
            Err(ending) => {
                // Whoever was told that it is connected is reset.
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
            // Nothing was said to the program yet, so this can be.
            relayed.leg.end_with(&request.failed(*reason)).await;
        }
        Ok(relayed.end?)
    }

    /// A stream to where the program wants to go, with its first bytes; with `waits`, one that is connected.
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

/// What a program wants.
enum Asked {
    Connection(Box<Request>),
    Datagrams(Box<Association>),
}

/// What the program wants; `None` if it was told that it cannot have that.
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
