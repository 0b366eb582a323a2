//! A forwarder at work.

use std::collections::BTreeMap;

use algo::{Span, Time};
use overlay::cache::{PacketCache, Policy};
use overlay::forwarder::{Forwarder, Step};
use serde::Serialize;

use super::event::ServiceEvent;
use super::frame_batch::FrameBatches;
use super::line_sockets::LineSockets;
use super::place::{Place, since_1970};
use crate::secret::secret;
use crate::{Control, Error, Result, Stop};

/// Time between two [`ServiceEvent::Stats`].
pub(super) const STATS_EVERY: Span = Span::from_secs(1);

/// What a forwarder has done.
#[derive(Clone, Debug, Default, Serialize)]
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
pub struct LineStats {
    /// The node at the other end.
    pub to: String,
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
/// [`Error::Usage`] if the node is a host, [`Error::System`] if it cannot listen.
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
    let mut sockets = LineSockets::bind(&place.addresses(), domain.forwarder_port)?;
    let clock = sockets.clock;
    let started_ms = (clock.now() + since_1970(clock)).as_nanos() / 1_000_000;
    let mut forwarder = Forwarder::new(domain, place.node(), started_ms, secret()?, clock.now());
    if let Some((policy, bytes)) = cache {
        forwarder = forwarder.with_cache(PacketCache::new(policy, bytes, place.node()));
    }
    let mut batches = FrameBatches::default();
    let stats = |forwarder: &Forwarder, lost: u64| stats(place, forwarder, lost, clock.now());
    let mut stopped = listener(ServiceEvent::Listening(sockets.addresses())) == Control::Stop;
    let mut report_at = clock.now() + STATS_EVERY;
    while !stopped && !stop.is_stopped() {
        let now = clock.now();
        let due = forwarder.poll(now, |hop, bytes| {
            sockets.out.send(hop.from, hop.to, bytes, None);
        });
        if now >= report_at {
            report_at = now + STATS_EVERY;
            let stats = stats(&forwarder, batches.lost);
            stopped = listener(ServiceEvent::Stats(Box::new(stats))) == Control::Stop;
        }
        sockets.wait(due.min(report_at), stop)?;
        let now = clock.now();
        sockets.receive(|out, arrived| {
            let (bytes, stride) = (arrived.received.bytes, arrived.received.stride);
            forwarder.handle(now, arrived.from, bytes, stride, |step, train| match step {
                Step::Forward(hop, hop_limit) => batches.push(hop, train, stride, Some(hop_limit), out),
                Step::Send(hop, frame) => batches.push(hop, &frame, frame.len(), None, out),
            });
        })?;
        batches.flush(&sockets.out);
    }
    Ok(stats(&forwarder, batches.lost))
}

fn stats(place: &Place, forwarder: &Forwarder, unsent: u64, now: Time) -> ForwardStats {
    let counters = forwarder.counters();
    ForwardStats {
        elapsed_s: now.since(Time::ZERO).as_nanos() as f64 / 1e9,
        forwarded: counters.forwarded,
        forwarded_bytes: counters.forwarded_bytes,
        unsent,
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
            .map(|line| LineStats {
                to: place.name_of(line.there).to_owned(),
                up: line.up,
                delay_ms: line.delay.map(|delay| delay.as_nanos() as f64 / 1e6),
                frames: line.sent.0,
                bytes: line.sent.1,
            })
            .collect(),
    }
}
