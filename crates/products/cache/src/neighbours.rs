//! Caches of one LAN that find each other, and ask each other for objects whose hash is known. docs/cache.md
//! says who may do what, and why.
//!
//! [`Neighbours`] is a [`Machine`]: it knows no socket and no clock. [`Input::Ask`] leads to one
//! [`Event::Holders`] for each ticket, at most [`ANSWER_WAIT`] later, and at once if no neighbour is known.
//! What it sends without a destination goes to all caches of the LAN.
//!
//! **Bounds.** It knows at most [`PEERS_MAX`] neighbours, asks at most [`ASKED_MAX`] of them for one object,
//! and answers at most [`REPLIES_MAX`] packets a second. A packet is answered with at most one packet, which
//! is not longer; a hello to all, which many hear, is answered by the three whose identifiers are nearest.

mod packet;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use anabranch_algo::{Machine, Output, Span, Time};
use anabranch_mmtp::ContentId;

use crate::digest::Digest;
pub use packet::{Message, PACKET_BYTES_MAX, Packet, PacketKey};

/// The most neighbours that are known, and the most at one address.
pub const PEERS_MAX: usize = 64;
const PEERS_PER_HOST_MAX: usize = 4;
/// The most neighbours that are asked for one object.
pub const ASKED_MAX: usize = 8;
/// The most questions that wait for answers.
const QUESTIONS_MAX: usize = 256;
/// The most packets that are answered in a second.
pub const REPLIES_MAX: u32 = 1_000;
/// How long answers are waited for.
pub const ANSWER_WAIT: Span = Span::from_millis(100);
/// How long further answers are waited for when there is one.
const SECOND_WAIT: Span = Span::from_millis(2);
/// How often a cache says hello, and how long one is known that says nothing more.
const HELLO_EVERY: Span = Span::from_secs(60);
const FORGET_AFTER: Span = Span::from_secs(190);
/// How many hellos a cache says soon after its start, since packets to all are lost easily, and the first
/// pause between them, which doubles.
const FIRST_HELLOS: u32 = 3;
const FIRST_PAUSE: Span = Span::from_secs(1);
/// The questions in a row that a neighbour may leave without an answer. Then it is not asked for a while.
const UNANSWERED_MAX: u32 = 2;
const REST: Span = Span::from_secs(600);
/// How long an address is not asked after a failed transfer, and the most such addresses.
const LEFT_ALONE_FOR: Span = Span::from_secs(600);
const LEFT_ALONE_MAX: usize = 64;
/// The most caches that answer a hello to all.
const NEAREST: usize = 3;

/// The number of a request for an object, which the caller chooses.
pub type Ticket = u64;

/// What a machine of neighbours is told.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A packet has come from this address.
    Packet(SocketAddr, &'a [u8]),
    /// An object is wanted.
    Ask(Ticket, Digest),
    /// Answers a question of a neighbour ([`Event::Asked`]): the object's name and the port at which mmTP
    /// serves it, or `None` if this cache does not have the object.
    Have(Asked, Option<(ContentId, u16)>),
    /// A transfer from this address has failed: its caches are not asked for a while.
    LeaveAlone(IpAddr),
    /// This cache ends.
    Leave,
}

/// What a machine of neighbours reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A neighbour wants an object: it is to be answered by [`Input::Have`].
    Asked(Asked),
    /// These have the wanted object, as they say. There are no further ones.
    Holders(Ticket, Vec<Holder>),
}

/// A question of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The hash of the object.
    pub digest: Digest,
    from: SocketAddr,
    number: u64,
}

/// A neighbour that says it has an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The address at which mmTP serves it.
    pub address: SocketAddr,
    /// The name that it has there, as the neighbour says.
    pub content: ContentId,
}

/// A packet that is to be sent, to an address or, without one, to all caches of the LAN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The receiver.
    pub to: Option<SocketAddr>,
    /// The packet.
    pub bytes: Vec<u8>,
}

/// A cache of the LAN.
#[derive(Debug)]
struct Peer {
    id: u64,
    heard: Time,
    /// Whether it had what it was asked for last.
    had: bool,
    unanswered: u32,
    rests_until: Time,
}

/// An object that neighbours have been asked for.
#[derive(Debug)]
struct Question {
    ticket: Ticket,
    /// The neighbours that have not answered yet.
    open: Vec<SocketAddr>,
    holders: Vec<Holder>,
    until: Time,
}

/// The caches of a LAN as one of them sees them.
#[derive(Debug)]
pub struct Neighbours {
    id: u64,
    key: PacketKey,
    /// The secret from which the numbers of questions are made.
    seed: [u8; 32],
    numbers: u64,
    peers: BTreeMap<SocketAddr, Peer>,
    left_alone: BTreeMap<IpAddr, Time>,
    questions: BTreeMap<u64, Question>,
    out: VecDeque<Output<Transmit, Event>>,
    hello_at: Time,
    first_hellos: u32,
    /// The second in which replies are counted, and their number.
    second: Time,
    replies: u32,
}

impl Neighbours {
    /// Begins without neighbours. `seed` must be unpredictable.
    #[must_use]
    pub fn new(now: Time, key: PacketKey, seed: [u8; 32]) -> Self {
        let mut neighbours = Self {
            id: 0,
            key,
            seed,
            numbers: 0,
            peers: BTreeMap::new(),
            left_alone: BTreeMap::new(),
            questions: BTreeMap::new(),
            out: VecDeque::new(),
            hello_at: now,
            first_hellos: 0,
            second: now,
            replies: 0,
        };
        neighbours.id = neighbours.number();
        neighbours
    }

    /// Returns the number of caches that are known.
    #[must_use]
    pub fn count(&self) -> usize {
        self.peers.len()
    }

    /// Returns an unpredictable number.
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        let hash = blake3::keyed_hash(&self.seed, &self.numbers.to_le_bytes());
        hash.as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    fn send(&mut self, to: Option<SocketAddr>, message: Message) {
        let bytes = Packet { sender: self.id, message }.emit(&self.key);
        self.out.push_back(Output::Send(Transmit { to, bytes }));
    }

    fn packet(&mut self, now: Time, from: SocketAddr, bytes: &[u8]) {
        let Some(Packet { sender, message }) = Packet::parse(&self.key, bytes) else { return };
        if sender == self.id {
            return;
        }
        match message {
            Message::Leaving => {
                self.peers.remove(&from);
            }
            Message::Hello { asks } => {
                self.meet(now, from, sender);
                if asks && self.is_among_nearest(sender) && self.may_reply(now) {
                    self.send(Some(from), Message::Hello { asks: false });
                }
            }
            Message::Question { number, digest } => {
                self.meet(now, from, sender);
                if self.may_reply(now) {
                    self.out.push_back(Output::Event(Event::Asked(Asked { digest, from, number })));
                }
            }
            Message::Answer { number, at } => self.answered(now, from, number, at),
        }
    }

    /// Notes that a cache is there.
    fn meet(&mut self, now: Time, from: SocketAddr, id: u64) {
        if let Some(peer) = self.peers.get_mut(&from) {
            if peer.id != id {
                (peer.unanswered, peer.rests_until) = (0, Time::ZERO);
            }
            (peer.id, peer.heard) = (id, now);
            return;
        }
        self.forget(now);
        let here = self.peers.keys().filter(|known| known.ip() == from.ip()).count();
        // A new neighbour replaces no known one, because any host can send such packets.
        if self.peers.len() < PEERS_MAX && here < PEERS_PER_HOST_MAX {
            let peer = Peer { id, heard: now, had: false, unanswered: 0, rests_until: Time::ZERO };
            self.peers.insert(from, peer);
        }
    }

    /// Forgets what is long ago.
    fn forget(&mut self, now: Time) {
        self.peers.retain(|_, peer| now.since(peer.heard) < FORGET_AFTER);
        self.left_alone.retain(|_, until| *until > now);
    }

    /// Whether fewer than three of the known caches have identifiers nearer to `id` than this one.
    fn is_among_nearest(&self, id: u64) -> bool {
        let nearer = |peer: &&Peer| peer.id != id && peer.id ^ id < self.id ^ id;
        self.peers.values().filter(nearer).take(NEAREST).count() < NEAREST
    }

    /// Counts a reply, unless there have been too many.
    fn may_reply(&mut self, now: Time) -> bool {
        if now.since(self.second) >= Span::from_secs(1) {
            (self.second, self.replies) = (now, 0);
        }
        self.replies += 1;
        self.replies <= REPLIES_MAX
    }

    fn ask(&mut self, now: Time, ticket: Ticket, digest: Digest) {
        self.forget(now);
        let fit = |(address, peer): &(&SocketAddr, &Peer)| {
            peer.rests_until <= now && !self.left_alone.contains_key(&address.ip())
        };
        let mut fit: Vec<_> = self.peers.iter().filter(fit).collect();
        // A neighbour that had the last object comes first, then the one that was heard last.
        fit.sort_by_key(|(_, peer)| std::cmp::Reverse((peer.had, peer.heard)));
        let asked: Vec<SocketAddr> = fit.iter().take(ASKED_MAX).map(|(address, _)| **address).collect();
        if asked.is_empty() || self.questions.len() >= QUESTIONS_MAX {
            self.out.push_back(Output::Event(Event::Holders(ticket, Vec::new())));
            return;
        }
        let number = self.number();
        for address in &asked {
            self.send(Some(*address), Message::Question { number, digest });
        }
        let question = Question { ticket, open: asked, holders: Vec::new(), until: now + ANSWER_WAIT };
        self.questions.insert(number, question);
    }

    fn answered(&mut self, now: Time, from: SocketAddr, number: u64, at: Option<(ContentId, u16)>) {
        let Some(question) = self.questions.get_mut(&number) else { return };
        let Some(place) = question.open.iter().position(|asked| *asked == from) else { return };
        question.open.swap_remove(place);
        if let Some(peer) = self.peers.get_mut(&from) {
            (peer.heard, peer.had, peer.unanswered) = (now, at.is_some(), 0);
        }
        if let Some((content, port)) = at {
            question.holders.push(Holder { address: SocketAddr::new(from.ip(), port), content });
            question.until = question.until.min(now + SECOND_WAIT);
        }
        if question.open.is_empty() {
            self.close(now, number);
        }
    }

    /// Ends a question.
    fn close(&mut self, now: Time, number: u64) {
        let Some(Question { ticket, open, holders, .. }) = self.questions.remove(&number) else { return };
        // A neighbour that was only slower than another has not been silent.
        if holders.is_empty() {
            for peer in open {
                let Some(peer) = self.peers.get_mut(&peer) else { continue };
                peer.unanswered += 1;
                if peer.unanswered >= UNANSWERED_MAX {
                    (peer.unanswered, peer.rests_until) = (0, now + REST);
                }
            }
        }
        self.out.push_back(Output::Event(Event::Holders(ticket, holders)));
    }

    fn leave_alone(&mut self, now: Time, address: IpAddr) {
        self.forget(now);
        if self.left_alone.len() >= LEFT_ALONE_MAX
            && let Some(first) = self.left_alone.iter().min_by_key(|(_, until)| **until).map(|(ip, _)| *ip)
        {
            self.left_alone.remove(&first);
        }
        self.left_alone.insert(address, now + LEFT_ALONE_FOR);
    }

    fn say_hello(&mut self, now: Time) {
        let is_first = self.first_hellos < FIRST_HELLOS;
        self.send(None, Message::Hello { asks: is_first });
        let pause = if is_first { FIRST_PAUSE.times(1 << self.first_hellos) } else { HELLO_EVERY };
        self.first_hellos += u32::from(is_first);
        self.hello_at = now + pause;
    }
}

impl Machine for Neighbours {
    type Input<'a> = Input<'a>;
    type Transmit = Transmit;
    type Event = Event;

    fn handle(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Packet(from, bytes) => self.packet(now, from, bytes),
            Input::Ask(ticket, digest) => self.ask(now, ticket, digest),
            Input::Have(asked, at) => {
                self.send(Some(asked.from), Message::Answer { number: asked.number, at });
            }
            Input::LeaveAlone(address) => self.leave_alone(now, address),
            Input::Leave => {
                self.send(None, Message::Leaving);
                self.hello_at = Time::NEVER;
            }
        }
    }

    fn poll(&mut self, now: Time) -> Output<Transmit, Event> {
        if now >= self.hello_at {
            self.say_hello(now);
        }
        while self.out.is_empty()
            && let Some(late) = self.questions.iter().find(|(_, q)| q.until <= now).map(|(number, _)| *number)
        {
            self.close(now, late);
        }
        self.out.pop_front().unwrap_or_else(|| {
            let ends = self.questions.values().map(|question| question.until);
            Output::Wait(ends.chain([self.hello_at]).min().unwrap_or(Time::NEVER))
        })
    }
}
