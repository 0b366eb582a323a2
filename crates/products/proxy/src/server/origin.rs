//! Serves one stream: connects it to its origin and moves bytes both ways.

use std::net::SocketAddr;

use anabranch_net::Clock;
use bytes::Bytes;

use crate::descriptors::Shortage;
use crate::egress::{Connector, Failed};
use crate::event::{Event, Finished, Reports};
use crate::flows::{Flow, Flows, user};
use crate::ingress::Body;
use crate::quota::{Quotas, TooMany};
use crate::relay::{Broken, Ending, TcpLeg, relay};
use crate::role::Live;
use crate::trunk::{Destination, Reason};
use crate::trunk_task::{Accepted, Stream};

/// The most first bytes that are taken before the connection exists: as many as fit into a SYN, and more.
const FIRST_BYTES_MAX: usize = 16 * 1024;

/// The parts of the server that all streams share.
#[derive(Clone)]
pub(super) struct Origins {
    pub(super) connector: Live<Connector>,
    pub(super) reports: Reports,
    pub(super) flows: Flows,
    pub(super) quotas: Quotas,
    pub(super) shortage: Shortage,
}

impl From<Failed> for Ending {
    fn from(Failed { reason, why }: Failed) -> Self {
        Self { reason, why: Some(why) }
    }
}

impl Origins {
    /// Serves a stream until it ends. `from` is the client's address, `client` its name.
    pub(super) async fn serve(&self, accepted: Accepted, from: SocketAddr, client: Option<String>) {
        let clock = Clock::start();
        let Accepted { stream, destination, .. } = accepted;
        let mut finished = Finished::begin(from, client, destination.clone());
        let end = self.begin(stream, &destination, &mut finished).await;
        finished.end(clock, end);
        self.reports.put(Event::Finished(finished));
    }

    async fn begin(&self, stream: Stream, to: &Destination, finished: &mut Finished) -> Result<(), Ending> {
        let admitted = self.quotas.admit(&user(finished.client.as_deref(), finished.from)).map_err(|e| {
            stream.reset(Reason::Busy);
            if e == TooMany::Descriptors {
                self.shortage.tell(&self.reports, "programs are refused", &e);
            }
            Ending { reason: Reason::Busy, why: Some(e.to_string()) }
        })?;
        let flow = self.flows.begin(finished.from, finished.client.clone(), to.clone(), admitted);
        let carried = tokio::select! {
            carried = self.carry(stream, to, &flow) => carried,
            early = flow.ends_early() => Err(early.into()),
        };
        finished.origin = flow.origin.get().copied();
        let [from_tcp, to_tcp] = flow.moved();
        (finished.sent_bytes, finished.received_bytes) = (to_tcp, from_tcp);
        carried
    }

    async fn carry(&self, stream: Stream, to: &Destination, flow: &Flow) -> Result<(), Ending> {
        // Takes the bytes that came with the destination. It does not wait for more, because some origins
        // speak first.
        let first = tokio::select! {
            biased;
            first = stream.read(FIRST_BYTES_MAX) => first?,
            () = std::future::ready(()) => None,
        };
        let first = first.unwrap_or_default();
        let connector = self.connector.get().of(&user(flow.user.as_deref(), flow.from));
        let wants_distance = stream.wants_distance();
        let connected = tokio::select! {
            connected = connector.connect_measured(to, &first, wants_distance) => connected,
            reason = stream.peer_reset() => return Err(reason.into()),
        };
        let connected = connected.inspect_err(|failed| {
            stream.reset(failed.reason);
            if failed.reason == Reason::Busy {
                self.shortage.tell(&self.reports, "programs are refused", failed);
            }
        })?;
        stream.confirm(connected.peer);
        if wants_distance && let Some(rtt) = connected.rtt() {
            stream.tell_distance(rtt);
        }
        // The value is set once.
        let _ = flow.origin.set(connected.peer);
        flow.open();
        let leg = TcpLeg::new(connected.stream);
        let rest: Bytes = first.slice(connected.sent..);
        let wrote = leg.write_all(&rest).await.map_err(Broken::Tcp);
        wrote.inspect_err(|broken| stream.reset(broken.reason()))?;
        flow.count_to_tcp(first.len()).await;
        let relayed = relay(leg, stream, Body::Endless, flow).await;
        Ok(relayed.end?)
    }
}
