//! One stream: to its origin, and back.

use std::net::SocketAddr;

use bytes::Bytes;
use net::Clock;

use crate::egress::{Connector, Failed};
use crate::event::{Event, Finished, Reports};
use crate::ingress::Body;
use crate::relay::{Broken, Ending, Leg, relay};
use crate::trunk::Destination;
use crate::trunk_task::{Accepted, Stream};

/// First bytes that are taken before there is a connection: what fits into a SYN, and more.
const FIRST_BYTES_MAX: usize = 16 * 1024;

/// What all streams have in common.
#[derive(Clone)]
pub(super) struct Origins {
    pub(super) connector: Connector,
    pub(super) reports: Reports,
}

impl From<Failed> for Ending {
    fn from(Failed { reason, why }: Failed) -> Self {
        Self { reason, why: Some(why) }
    }
}

impl Origins {
    /// Serves a stream, to the end. `from` is the client's host, `client` its name.
    pub(super) async fn serve(&self, accepted: Accepted, from: SocketAddr, client: Option<String>) {
        let clock = Clock::start();
        let Accepted { stream, destination, .. } = accepted;
        let mut finished = Finished::begin(from, client, destination.clone());
        let end = self.carry(stream, &destination, &mut finished).await;
        finished.end(clock, end);
        self.reports.put(Event::Finished(finished));
    }

    async fn carry(&self, stream: Stream, to: &Destination, finished: &mut Finished) -> Result<(), Ending> {
        // What came with the destination. More is not waited for: some origins speak first.
        let first = tokio::select! {
            biased;
            first = stream.read(FIRST_BYTES_MAX) => first?,
            () = std::future::ready(()) => None,
        };
        let first = first.unwrap_or_default();
        let connected = tokio::select! {
            connected = self.connector.connect(to, &first) => connected,
            reason = stream.peer_reset() => return Err(reason.into()),
        };
        let connected = connected.inspect_err(|failed| stream.reset(failed.reason))?;
        stream.confirm(connected.peer);
        finished.origin = Some(connected.peer);
        let leg = Leg::new(connected.stream);
        let rest: Bytes = first.slice(connected.sent..);
        let wrote = leg.write_all(&rest).await.map_err(Broken::Tcp);
        wrote.inspect_err(|broken| stream.reset(broken.reason()))?;
        finished.sent_bytes = first.len() as u64;
        let relayed = relay(leg, stream, Body::Endless).await;
        finished.sent_bytes += relayed.to_tcp;
        finished.received_bytes = relayed.from_tcp;
        Ok(relayed.end?)
    }
}
