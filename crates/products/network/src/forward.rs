//! A forwarder at work.

use std::collections::BTreeMap;

use anabranch_algo::{Machine as _, Output, Time};
use anabranch_net::Clock;
use anabranch_overlay::cache::{PacketCache, Policy};
use anabranch_overlay::forwarder::{Forwarder, Frames, Step};
use serde::Serialize;

use super::event::ServiceEvent;
use super::frame_batch::FrameBatches;
use super::keys::forwarder_secret;
use super::service_loop::{Service, run};
use anabranch::network::line_sockets::{Arrived, Outlets};
use anabranch::network::{Place, since_1970};
use anabranch::secret;
use anabranch::text::seconds;
use anabranch::{Control, Error, Result, Stop};

/// What a forwarder has done.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct ForwardStats {
    /// Seconds since it was started.
    pub elapsed_s: f64,
    /// Frames sent on, once for each line that they went over.
    pub forwarded: u64,
    /// Their bytes.
    pub forwarded_bytes: u64,
    /// Frames that the system had no room for.
    pub unsent: u64,
    /// Frames that went nowhere, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Its packet cache, if it has one.
    pub cache: Option<CacheStats>,
    /// Its lines.
    pub lines: Vec<LineStats>,
}

/// How a line does.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct LineStats {
    /// The node at the other end.
    pub to: String,
    /// This node's address on it.
    pub address: String,
    /// Whether that answers; `None` for hosts, which are not asked.
    pub up: Option<bool>,
    /// The measured delay in one direction, milliseconds.
    pub delay_ms: Option<f64>,
    /// Frames sent over it.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What a forwarder's cache has done.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct CacheStats {
    /// Bytes that it holds.
    pub stored_bytes: usize,
    /// Packets that it might have answered with.
    pub asked: u64,
    /// Those of them that it had.
    pub hits: u64,
    /// Bytes that it sent.
    pub hit_bytes: u64,
}

/// Forwards at a node of a domain, perhaps with a packet cache of so many bytes, until `stop` is stopped or
/// `listener` answers [`Control::Stop`].
///
/// # Errors
/// [`ErrorKind::Usage`](anabranch::ErrorKind::Usage) if the node is a host,
/// [`ErrorKind::System`](anabranch::ErrorKind::System) if it cannot listen.
pub fn forward(
    place: &Place,
    cache: Option<(Policy, usize)>,
    stop: &Stop,
    listener: &mut dyn FnMut(ServiceEvent<ForwardStats>) -> Control,
) -> Result<ForwardStats> {
    let domain = place.domain();
    if !domain.is_forwarder(place.node()) {
        return Err(Error::usage(format!(
            "{} is a host of the domain {}: it is not among its forwarders",
            place.node_name(),
            domain.name
        )));
    }
    let own_secret = forwarder_secret(place)?;
    let service = |clock: Clock| {
        let date = clock.now() + since_1970(clock);
        let started_ms = date.as_nanos() / 1_000_000;
        let mut forwarder = Forwarder::new(domain, place.node(), started_ms, secret()?, clock.now());
        if let Some(own_secret) = own_secret {
            forwarder = forwarder.with_secret(own_secret, date);
        }
        if let Some((policy, bytes)) = cache {
            forwarder = forwarder.with_cache(PacketCache::new(policy, bytes, place.node()));
        }
        Ok(Forwarding { forwarder, clock, batches: FrameBatches::default() })
    };
    run(place, domain.forwarder_port, service, stop, listener)
}

struct Forwarding {
    forwarder: Forwarder,
    clock: Clock,
    batches: FrameBatches,
}

impl Service for Forwarding {
    type Stats = ForwardStats;

    fn receive(&mut self, now: Time, _: &Place, out: &Outlets, arrived: Arrived<'_>) {
        let (bytes, stride) = (arrived.received.bytes, arrived.received.stride);
        let Self { forwarder, batches, .. } = self;
        forwarder.handle(now, Frames { from: arrived.from, bytes: &mut *bytes, stride });
        loop {
            match forwarder.poll(now) {
                Output::Send(Step::Forward(hop, train)) => batches.push(hop, &bytes[train], stride, out),
                Output::Send(Step::Send(hop, frame)) => batches.push(hop, &frame, frame.len(), out),
                Output::Event(never) => match never {},
                Output::Wait(_) => return,
            }
        }
    }

    fn flush(&mut self, out: &Outlets) {
        self.batches.flush(out);
    }

    fn poll(&mut self, now: Time, place: &Place, out: &Outlets, _: &mut Vec<String>) -> Result<Time> {
        // Only keyed identifiers have dates.
        if place.domain().is_keyed() {
            self.forwarder.set_zero_since_1970(now, since_1970(self.clock));
        }
        loop {
            match self.forwarder.poll(now) {
                Output::Send(Step::Send(hop, frame)) => _ = out.send(hop.from, hop.to, &frame, None),
                // All that came has been sent on where it came.
                Output::Send(Step::Forward(..)) => {}
                Output::Event(never) => match never {},
                Output::Wait(until) => return Ok(until),
            }
        }
    }

    fn stats(&self, now: Time, place: &Place) -> ForwardStats {
        let Self { forwarder, batches, .. } = self;
        let counters = forwarder.counters();
        ForwardStats {
            elapsed_s: seconds(now.since(Time::ZERO)),
            forwarded: counters.forwarded,
            forwarded_bytes: counters.forwarded_bytes,
            unsent: batches.lost,
            dropped: counters.dropped.iter().map(|(why, count)| (why.name(), *count)).collect(),
            cache: forwarder.cache().map(|cache| {
                let counters = cache.counters();
                CacheStats {
                    stored_bytes: cache.stored_bytes(),
                    asked: counters.asked,
                    hits: counters.hits,
                    hit_bytes: counters.hit_bytes,
                }
            }),
            lines: forwarder
                .status()
                .zip(place.addresses())
                .map(|(line, address)| LineStats {
                    to: place.name_of(line.there).to_owned(),
                    address: address.to_string(),
                    up: line.up,
                    delay_ms: line.delay.map(|delay| delay.as_nanos() as f64 / 1e6),
                    frames: line.sent.0,
                    bytes: line.sent.1,
                })
                .collect(),
        }
    }
}
