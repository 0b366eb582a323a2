//! A message that is sent again, over one way after the other, until it is answered.
//!
//! A host knows the lines of its domain, but not which of them are down. So a call tries several ways: first
//! those that begin or end differently.

use anabranch_algo::{Span, Time};
use anabranch_topology::graph::NodeId;
use anabranch_topology::plan::Policy;

use crate::domain::{Domain, Service, Way};
use crate::frame;
use crate::message::Message;

/// The wait for the first answer. Each later wait is half as long again.
const FIRST_WAIT: Span = Span::from_millis(150);
/// The longest wait for an answer.
const LONGEST_WAIT: Span = Span::from_secs(2);
/// The most ways that a call tries.
const WAYS_MAX: usize = 8;

/// The ways from a node to a service.
#[derive(Clone, Debug)]
pub struct Reach {
    ways: Vec<Way>,
    port: u16,
}

/// A frame, and the way that it takes. The first link of the way gives the line by which the frame leaves.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent {
    /// The way.
    pub way: Way,
    /// The frame.
    pub frame: Vec<u8>,
}

impl Reach {
    /// Finds the ways from a node to a service; none if no way leads there.
    #[must_use]
    pub fn new(domain: &Domain, from: NodeId, service: Service) -> Self {
        let plan = |policy| domain.plan(from, &[service.node], WAYS_MAX, policy, |_| true);
        let mut ways: Vec<Way> = Vec::new();
        // Disjoint ways come first: a line that breaks one leaves the others.
        for found in plan(Policy::LinkDisjoint).into_iter().chain(plan(Policy::Shortest)) {
            if !ways.iter().any(|way| way.links == found.way.links) {
                ways.push(found.way);
            }
        }
        ways.truncate(WAYS_MAX);
        Self { ways, port: service.port }
    }

    /// Whether no way leads to the service.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ways.is_empty()
    }

    /// Returns a message that goes over the way `number`, and whose answer goes to `port`.
    pub(crate) fn send(&self, number: usize, message: &[u8], port: u16) -> Option<Sent> {
        let way = self.ways.get(number % self.ways.len().max(1))?.clone();
        let header =
            frame::request_header(&frame::header(&way.there, self.port), &frame::header(&way.back, port));
        Some(Sent { frame: [&header[..], message].concat(), way })
    }
}

/// Returns the number of a call, which only the holder of the secret can know before it is sent.
#[must_use]
pub(crate) fn draw(secret: &[u8; 32], number: u64) -> u64 {
    let hash = blake3::keyed_hash(secret, &number.to_be_bytes());
    u64::from_be_bytes(hash.as_bytes().first_chunk().copied().unwrap_or_default())
}

/// A call that waits for its answer.
#[derive(Clone, Debug)]
pub struct Call {
    /// The number of the call, which its answer has, too.
    pub id: u64,
    message: Vec<u8>,
    /// The UDP port to which the answer goes.
    port: u16,
    tries: u32,
    due: Time,
    wait: Span,
}

impl Call {
    /// Creates the call of a message; it is sent at once.
    #[must_use]
    pub fn new(message: &Message, port: u16, now: Time) -> Self {
        Self { id: message.call, message: message.to_bytes(), port, tries: 0, due: now, wait: FIRST_WAIT }
    }

    /// Returns how often the call was sent.
    #[must_use]
    pub const fn tries(&self) -> u32 {
        self.tries
    }

    /// Returns when the call is to be sent again.
    #[must_use]
    pub const fn due(&self) -> Time {
        self.due
    }

    /// Records an answer: the call begins anew at this time.
    pub(crate) fn restart(&mut self, at: Time) {
        (self.tries, self.due, self.wait) = (0, at, FIRST_WAIT);
    }

    /// Returns the frame to send now, if one is due.
    pub fn poll(&mut self, now: Time, reach: &Reach) -> Option<Sent> {
        if now < self.due {
            return None;
        }
        let sent = reach.send(self.tries as usize, &self.message, self.port);
        self.tries += 1;
        self.due = now + self.wait;
        // All ways are tried quickly once. After that it is more likely that the service does not answer.
        if self.tries as usize >= reach.ways.len().min(4) {
            self.wait = (self.wait + Span::from_nanos(self.wait.as_nanos() / 2)).min(LONGEST_WAIT);
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::tests::{node, square};
    use crate::message::Body;

    #[test]
    fn one_way_after_the_other() {
        let domain = square();
        let reach = Reach::new(&domain, node(&domain, "r1"), domain.topology);
        assert_eq!(reach.ways.len(), 1, "r2 and r3 meet in the host b only");
        let reach = Reach::new(&domain, node(&domain, "b"), domain.topology);
        assert_eq!(reach.ways.len(), 2);
        let message = Message { call: 7, body: Body::Published };
        let mut call = Call::new(&message, 9, Time::ZERO);
        let (mut now, mut firsts, mut waits) = (Time::ZERO, Vec::new(), Vec::new());
        for _ in 0..12 {
            let sent = call.poll(now, &reach).expect("it is due");
            assert_eq!(call.poll(now, &reach), None);
            let Ok(frame::Frame::Routed(routed)) = frame::parse(&sent.frame) else { panic!("a frame") };
            assert_eq!((Message::parse(routed.payload), routed.port), (Ok(message.clone()), 7_702));
            let way_back = routed.way_back.and_then(|way_back| frame::fields(&way_back));
            assert_eq!(way_back, Some((sent.way.back, 9)));
            firsts.push(sent.way.links[0]);
            waits.push(call.due().since(now));
            now = call.due();
        }
        assert!(firsts[0] != firsts[1] && firsts[0] == firsts[2]);
        assert_eq!((waits[0], waits[11]), (FIRST_WAIT, LONGEST_WAIT));
    }
}
