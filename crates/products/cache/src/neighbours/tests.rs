use super::*;

/// Caches on one LAN in virtual time, each with the objects that it has. A packet takes a millisecond.
struct Lan {
    now: Time,
    caches: Vec<(SocketAddr, Neighbours, Vec<Digest>)>,
    /// Packets on their way: the time, the sender, the receiver, the bytes.
    flying: Vec<(Time, SocketAddr, SocketAddr, Vec<u8>)>,
    /// Addresses whose packets are lost.
    deaf: Vec<SocketAddr>,
    sent: Vec<(SocketAddr, Option<SocketAddr>, usize)>,
    holders: Vec<(Time, SocketAddr, Ticket, Vec<Holder>)>,
}

const PORT: u16 = 77;

fn address(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, number], 5_000))
}

fn object(number: u8) -> Digest {
    Digest::Sha256([number; 32])
}

fn content(digest: &Digest) -> ContentId {
    ContentId { root: *blake3::hash(digest.bytes()).as_bytes(), length: 1_000 }
}

impl Lan {
    fn new() -> Self {
        let (caches, flying, deaf, sent, holders) = Default::default();
        Self { now: Time::ZERO, caches, flying, deaf, sent, holders }
    }

    fn join(&mut self, number: u8, secret: &[u8], objects: &[u8]) {
        let machine = Neighbours::new(self.now, PacketKey::of(secret), [number; 32]);
        self.caches.push((address(number), machine, objects.iter().map(|n| object(*n)).collect()));
    }

    fn handle(&mut self, number: u8, input: Input<'_>) {
        let now = self.now;
        let cache = self.caches.iter_mut().find(|(at, ..)| *at == address(number)).unwrap();
        cache.1.handle(now, input);
        self.drain();
    }

    fn drain(&mut self) -> Time {
        let everybody: Vec<SocketAddr> = self.caches.iter().map(|(at, ..)| *at).collect();
        let mut next = Time::NEVER;
        for (at, machine, objects) in &mut self.caches {
            loop {
                match machine.poll(self.now) {
                    Output::Wait(until) => break next = next.min(until),
                    Output::Event(Event::Asked(asked)) => {
                        let has = objects.contains(&asked.digest);
                        let at = has.then(|| (content(&asked.digest), PORT));
                        machine.handle(self.now, Input::Have(asked, at));
                    }
                    Output::Event(Event::Holders(ticket, holders)) => {
                        self.holders.push((self.now, *at, ticket, holders));
                    }
                    Output::Send(Transmit { to, bytes }) => {
                        self.sent.push((*at, to, bytes.len()));
                        for receiver in &everybody {
                            if to.is_none_or(|to| to == *receiver) && !self.deaf.contains(at) {
                                let then = self.now + Span::from_millis(1);
                                self.flying.push((then, *at, *receiver, bytes.clone()));
                            }
                        }
                    }
                }
            }
        }
        next
    }

    fn run(&mut self, span: Span) {
        let end = self.now + span;
        loop {
            let timer = self.drain();
            let arrival = self.flying.iter().map(|(then, ..)| *then).min().unwrap_or(Time::NEVER);
            let next = timer.min(arrival);
            if next > end {
                self.now = end;
                return;
            }
            self.now = next;
            let (due, rest) = self.flying.drain(..).partition(|(then, ..)| *then <= next);
            self.flying = rest;
            let due: Vec<(Time, SocketAddr, SocketAddr, Vec<u8>)> = due;
            for (_, from, to, bytes) in due {
                let cache = self.caches.iter_mut().find(|(at, ..)| *at == to);
                if let Some((_, machine, _)) = cache.filter(|_| !self.deaf.contains(&to)) {
                    machine.handle(next, Input::Packet(from, &bytes));
                }
                self.drain();
            }
        }
    }

    fn ask(&mut self, number: u8, wanted: u8) -> (Span, Vec<Holder>) {
        let before = (self.now, self.holders.len());
        self.handle(number, Input::Ask(u64::from(wanted), object(wanted)));
        self.run(Span::from_millis(300));
        let [(at, cache, ticket, holders)] = &self.holders[before.1..] else { panic!("{:?}", self.holders) };
        assert_eq!((*cache, *ticket), (address(number), u64::from(wanted)));
        (at.since(before.0), holders.clone())
    }

    fn known(&self) -> Vec<usize> {
        self.caches.iter().map(|(_, machine, _)| machine.count()).collect()
    }
}

#[test]
fn a_newcomer_finds_who_has_an_object() {
    let mut lan = Lan::new();
    lan.join(1, b"", &[7]);
    lan.run(Span::from_secs(100));
    lan.join(2, b"", &[7, 8]);
    lan.join(3, b"", &[]);
    lan.run(Span::from_millis(10));
    assert_eq!(lan.known(), [2, 2, 2]);
    let (waited, mut holders) = lan.ask(3, 7);
    assert!(waited <= Span::from_millis(3), "{waited:?}");
    holders.sort_by_key(|holder| holder.address);
    let holder = |number: u8| Holder {
        address: SocketAddr::new(address(number).ip(), PORT),
        content: content(&object(7)),
    };
    assert_eq!(holders, [holder(1), holder(2)]);
    let (waited, holders) = lan.ask(3, 9);
    assert!(
        holders.is_empty() && waited <= Span::from_millis(3),
        "nobody has it, and all say so: {waited:?}"
    );
    // One that leaves is not asked.
    lan.handle(2, Input::Leave);
    lan.run(Span::from_millis(10));
    assert_eq!(lan.known()[0], 1);
}

#[test]
fn who_is_alone_or_keeps_to_itself_waits_for_nobody() {
    let mut lan = Lan::new();
    lan.join(1, b"", &[7]);
    lan.join(2, b"a secret", &[7]);
    lan.run(Span::from_secs(30));
    assert_eq!(lan.known(), [0, 0], "other keys are other neighbourhoods");
    for cache in [1, 2] {
        assert_eq!(lan.ask(cache, 7), (Span::ZERO, vec![]));
    }
}

#[test]
fn an_absent_neighbour_costs_two_short_waits() {
    let mut lan = Lan::new();
    lan.join(1, b"", &[7]);
    lan.join(2, b"", &[]);
    lan.run(Span::from_secs(10));
    lan.deaf.push(address(1));
    for _ in 0..2 {
        assert_eq!(lan.ask(2, 7), (ANSWER_WAIT, vec![]));
    }
    for _ in 0..20 {
        assert_eq!(lan.ask(2, 7), (Span::ZERO, vec![]));
    }
    // It comes back under another identifier: it is asked at once.
    lan.deaf.clear();
    lan.caches.retain(|(at, ..)| *at != address(1));
    lan.join(1, b"", &[7]);
    lan.caches.last_mut().unwrap().1 = Neighbours::new(lan.now, PacketKey::of(b""), [99; 32]);
    lan.run(Span::from_millis(10));
    assert_eq!(lan.ask(2, 7).1.len(), 1);
    // One that says nothing more is forgotten.
    lan.deaf.push(address(1));
    lan.run(FORGET_AFTER + HELLO_EVERY);
    assert_eq!(lan.ask(2, 7), (Span::ZERO, vec![]));
}

#[test]
fn who_sent_wrong_bytes_is_not_asked_for_ten_minutes() {
    let mut lan = Lan::new();
    lan.join(1, b"", &[7]);
    lan.join(2, b"", &[]);
    lan.run(Span::from_secs(10));
    lan.handle(2, Input::LeaveAlone(address(1).ip()));
    assert_eq!(lan.ask(2, 7), (Span::ZERO, vec![]));
    lan.run(LEFT_ALONE_FOR);
    assert_eq!(lan.ask(2, 7).1.len(), 1);
}

#[test]
fn tables_and_replies_are_bounded() {
    let now = Time::ZERO;
    let key = PacketKey::of(b"");
    let mut one = Neighbours::new(now, key, [1; 32]);
    let drain = |one: &mut Neighbours, now: Time| {
        let mut sent = 0;
        loop {
            match one.poll(now) {
                Output::Wait(_) => return sent,
                Output::Send(_) => sent += 1,
                Output::Event(Event::Asked(asked)) => one.handle(now, Input::Have(asked, None)),
                Output::Event(Event::Holders(..)) => {}
            }
        }
    };
    drain(&mut one, now);
    let digest = object(1);
    let mut sent = 0;
    for number in 0..10_000_u32 {
        let from = SocketAddr::from((std::net::Ipv4Addr::from(0x0a00_0000 + number), 9));
        let message = Message::Question { number: u64::from(number), digest };
        let bytes = Packet { sender: u64::from(number), message }.emit(&key);
        one.handle(now, Input::Packet(from, &bytes));
        sent += drain(&mut one, now);
        assert!(one.count() <= PEERS_MAX);
    }
    assert_eq!(sent, REPLIES_MAX, "each is answered once, up to the bound");
    for ticket in 0..1_000 {
        one.handle(now, Input::Ask(ticket, digest));
    }
    assert!(one.questions.len() <= QUESTIONS_MAX && one.out.len() <= 1_000 + QUESTIONS_MAX * ASKED_MAX);
}

#[test]
fn a_hello_to_all_is_answered_by_three() {
    let mut lan = Lan::new();
    for number in 1..=40 {
        lan.join(number, b"", &[]);
    }
    lan.run(Span::from_secs(200));
    assert_eq!(lan.known(), [39; 40]);
    lan.sent.clear();
    lan.join(99, b"", &[]);
    lan.run(Span::from_millis(10));
    let replies = lan.sent.iter().filter(|(_, to, _)| *to == Some(address(99))).count();
    assert_eq!(replies, 3);
    assert_eq!(lan.caches.last().unwrap().1.count(), 3);
    lan.run(HELLO_EVERY);
    assert_eq!(lan.caches.last().unwrap().1.count(), 40, "the others say hello in their turn");
}
