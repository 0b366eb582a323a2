//! The loop of a member that serves others: waits for frames, passes them on, and reports statistics.

use std::os::fd::BorrowedFd;

use anabranch_algo::{Span, Time};
use anabranch_mmtp::peer::Peer;
use anabranch_net::Clock;

use super::event::ServiceEvent;
use anabranch::network::Place;
use anabranch::network::line_sockets::{Arrived, LineSockets, Outlets};
use anabranch::{Control, Result, Stop};

/// The time between two [`ServiceEvent::Stats`].
const STATS_EVERY: Span = Span::from_secs(1);

/// The service that the loop runs.
pub(super) trait Service {
    /// The statistics of the service.
    type Stats;

    /// Takes frames that arrived.
    fn receive(&mut self, now: Time, place: &Place, out: &Outlets, arrived: Arrived<'_>);

    /// Called when all frames that had arrived have been passed to [`receive`](Self::receive).
    fn flush(&mut self, out: &Outlets) {
        let _ = out;
    }

    /// Returns a descriptor that ends the loop's wait when it can be read, as packets do.
    fn wake(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Sends what is due and appends messages for people to `notices`. Returns when to call it again.
    ///
    /// # Errors
    /// If the service cannot continue.
    fn poll(&mut self, now: Time, place: &Place, out: &Outlets, notices: &mut Vec<String>) -> Result<Time>;

    /// Returns the statistics so far.
    fn stats(&self, now: Time, place: &Place) -> Self::Stats;
}

/// Runs a service at a node's addresses until `stop` is stopped or `listener` answers [`Control::Stop`].
///
/// # Errors
/// [`ErrorKind::System`](anabranch::ErrorKind::System) if it cannot listen; also every error of `service` and
/// of the service's own work.
pub(super) fn run<S: Service>(
    place: &Place,
    port: u16,
    service: impl FnOnce(Clock) -> Result<S>,
    stop: &Stop,
    listener: &mut dyn FnMut(ServiceEvent<S::Stats>) -> Control,
) -> Result<S::Stats> {
    let mut sockets = LineSockets::bind(&place.addresses(), port)?;
    let clock = sockets.clock;
    let mut service = service(clock)?;
    let mut notices = Vec::new();
    let mut stopped = listener(ServiceEvent::Listening(sockets.addresses())) == Control::Stop;
    let mut report_at = clock.now() + STATS_EVERY;
    while !stopped && !stop.is_stopped() {
        let now = clock.now();
        let due = service.poll(now, place, &sockets.out, &mut notices)?;
        for notice in notices.drain(..) {
            stopped |= listener(ServiceEvent::Notice(notice)) == Control::Stop;
        }
        if now >= report_at {
            report_at = now + STATS_EVERY;
            let stats = Box::new(service.stats(now, place));
            stopped |= listener(ServiceEvent::Stats(stats)) == Control::Stop;
        }
        sockets.wait(due.min(report_at), stop, service.wake())?;
        let now = clock.now();
        sockets.receive(|out, arrived| service.receive(now, place, out, arrived))?;
        service.flush(&sockets.out);
    }
    Ok(service.stats(clock.now(), place))
}

/// Returns the messages in frames that came from forwarders, with their senders.
pub(super) fn messages<'a>(
    place: &Place,
    arrived: &'a Arrived<'_>,
) -> impl Iterator<Item = (Peer, &'a [u8])> + use<'a> {
    let address = arrived.from;
    place.routed(arrived).map(move |routed| (Peer { address, way_back: routed.way_back }, routed.payload))
}

/// Sends an answer over the line on which the question arrived.
pub(super) fn answer(place: &Place, out: &Outlets, to: &Peer, message: &[u8]) {
    if let Some(from) = place.address_towards(to.address) {
        out.send(from, to.address, &[to.prefix(), message].concat(), None);
    }
}
