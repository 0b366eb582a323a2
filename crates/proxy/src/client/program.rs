//! One connection of a program.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use net::Clock;
use tokio::time::timeout;

use crate::client::trunks::Trunks;
use crate::event::{Event, Finished, Reports};
use crate::ingress::{Handshake, Progress, Request};
use crate::relay::{Broken, Ending, Leg, relay};
use crate::trunk_task::Stream;

/// A program may take so long to say where it wants to go.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// A program that was told that it is connected gets so long to say something, so that its first bytes travel
/// with its destination: the server may then send them with its SYN. One that waits for the origin to speak
/// first loses this time.
const FIRST_BYTES_WAIT: Duration = Duration::from_millis(2);

/// What programs' connections have in common.
#[derive(Clone, Debug)]
pub(super) struct Service {
    pub(super) trunks: Trunks,
    pub(super) reports: Reports,
    /// Whether programs are told that they are connected when they are.
    pub(super) is_strict: bool,
}

impl Service {
    /// Serves a program, to the end.
    pub(super) async fn serve(&self, mut leg: Leg, from: SocketAddr, mut handshake: Handshake) {
        let clock = Clock::start();
        let asked = timeout(HANDSHAKE_TIMEOUT, read_request(&mut leg, &mut handshake)).await;
        let request = match asked {
            Ok(Ok(Some(request))) => request,
            // It was told why.
            Ok(Ok(None)) => return leg.end_with(&[]).await,
            // It is gone, or has said too little: there is nothing to answer.
            Ok(Err(_)) | Err(_) => return,
        };
        let mut finished = Finished::begin(from, None, request.destination.clone());
        let end = self.carry(leg, *request, &mut finished).await;
        finished.end(clock, end);
        self.reports.put(Event::Finished(finished));
    }

    async fn carry(&self, mut leg: Leg, mut request: Request, finished: &mut Finished) -> Result<(), Ending> {
        let waits = self.is_strict && !request.is_answered_by_origin();
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
        finished.sent_bytes = request.first.len() as u64;
        if waits {
            leg.write_all(request.accepted()).await.map_err(Broken::Tcp)?;
        }
        let relayed = relay(leg, stream, request.body.clone()).await;
        finished.sent_bytes += relayed.from_tcp;
        finished.received_bytes = relayed.to_tcp;
        if let (0, true, Err(Broken::Stream(reason))) =
            (relayed.to_tcp, request.is_answered_by_origin(), &relayed.end)
        {
            // Nothing was said to the program yet, so this can be.
            relayed.leg.end_with(&request.failed(*reason)).await;
        }
        Ok(relayed.end?)
    }

    /// A stream to where the program wants to go, with its first bytes; with `waits`, one that is connected.
    async fn open(&self, leg: &Leg, request: &Request, waits: bool) -> Result<Stream, Ending> {
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

/// What the program wants; `None` if it was told that it cannot have that.
async fn read_request(leg: &mut Leg, handshake: &mut Handshake) -> io::Result<Option<Box<Request>>> {
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
            Progress::Wanted(request) => return Ok(Some(request)),
            Progress::Refused => return Ok(None),
        }
    }
}
