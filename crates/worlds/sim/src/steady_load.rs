//! A steady load for the tests of queue disciplines: equal packets at equal distances over one link.

use crate::link::{DropReason, Event, Input, Link, Packet};
use crate::{Discipline, LinkConfig};
use anabranch_algo::{Machine, Output, Rate, Span, Time};

/// A packet of 1,000 bytes. `ect` tells whether it can carry a mark, `marked` whether it has one.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    pub(crate) ect: bool,
    pub(crate) marked: bool,
}

impl Packet for Probe {
    fn bytes(&self) -> u32 {
        1_000
    }
    fn mark(&mut self) {
        self.marked = true;
    }
    fn is_ect(&self) -> bool {
        self.ect
    }
}

/// A moment of a run, as the test sees it.
pub(crate) enum Seen<'a> {
    /// The link before it is polled at this time.
    Link(&'a Link<Probe>, Time),
    /// A packet arrives at this time.
    Arrived(Time, Probe),
    /// The discipline dropped a packet at this time.
    Dropped(Time),
}

/// Sends a packet each `gap` for `secs` seconds over a link of 1,000 packets/s whose queue has no other
/// limit. Returns the link at the end.
pub(crate) fn run(
    discipline: Discipline,
    ect: bool,
    gap: Span,
    secs: u64,
    mut see: impl FnMut(Seen<'_>),
) -> Link<Probe> {
    let config = LinkConfig::new(Rate::from_bytes(1_000_000), Span::ZERO).discipline(discipline);
    let mut link: Link<Probe> = Link::new(config.queue_packets(u32::MAX), 1, "a");
    let (mut now, mut next, end) = (Time::ZERO, Time::ZERO, Time::ZERO + Span::from_secs(secs));
    while now < end {
        see(Seen::Link(&link, now));
        match link.poll(now) {
            Output::Send(arrival) => see(Seen::Arrived(arrival.at, arrival.packet)),
            Output::Event(Event::Dropped { at, reason, .. }) => {
                assert_eq!(reason, DropReason::Early);
                see(Seen::Dropped(at));
            }
            Output::Event(event) => panic!("{event:?}"),
            Output::Wait(due) if due < next => now = due,
            Output::Wait(_) => {
                now = next;
                link.handle(now, Input::Packet(Probe { ect, marked: false }));
                next += gap;
            }
        }
    }
    link
}
