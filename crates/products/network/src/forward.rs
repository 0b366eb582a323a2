//! Runs a forwarder.

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

/// The statistics of a forwarder.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct ForwardStats {
    /// The time since the start, in seconds.
    pub elapsed_s: f64,
    /// The number of frames sent on, counted once for each line that they took.
    pub forwarded: u64,
    /// The bytes of these frames.
    pub forwarded_bytes: u64,
    /// The number of frames that the system did not take.
    pub unsent: u64,
    /// The number of dropped frames, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// The statistics of the packet cache, if there is one.
    pub cache: Option<CacheStats>,
    /// The statistics of each line.
    pub lines: Vec<LineStats>,
}

/// The statistics of a line.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct LineStats {
    /// The name of the node at the other end.
    pub to: String,
    /// This node's address on the line.
    pub address: String,
    /// Whether the other end answers; `None` for hosts, which are not probed.
    pub up: Option<bool>,
    /// The measured delay in one direction, in milliseconds.
    pub delay_ms: Option<f64>,
    /// The number of frames sent over the line.
    pub frames: u64,
    /// The bytes of these frames.
    pub bytes: u64,
}

/// The statistics of a forwarder's packet cache.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct CacheStats {
    /// The number of bytes that the cache holds.
    pub stored_bytes: usize,
    /// The number of packets for which the cache was searched.
    pub asked: u64,
    /// How many of `asked` the cache had.
    pub hits: u64,
    /// The number of bytes sent from the cache.
    pub hit_bytes: u64,
}

/// Runs a forwarder at a node of a domain, until `stop` is stopped or `listener` answers [`Control::Stop`].
/// With `cache`, it has a packet cache with this policy and number of bytes.
///
/// # Errors
/// [`ErrorKind::Usage`](anabranch::ErrorKind::Usage) if the node is a host, or if the key is missing or
/// wrong; [`ErrorKind::System`](anabranch::ErrorKind::System) if it cannot listen.
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
        // Only keyed identifiers depend on the date.
        if place.domain().is_keyed() {
            self.forwarder.set_zero_since_1970(now, since_1970(self.clock));
        }
        loop {
            match self.forwarder.poll(now) {
                Output::Send(Step::Send(hop, frame)) => _ = out.send(hop.from, hop.to, &frame, None),
                // Frames that arrived have been sent on as they arrived.
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
