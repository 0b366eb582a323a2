//! Two hosts, a client and a server, and the links between their addresses.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use anabranch_algo::{Machine as _, Output, Span, SplitMix64, Time};
use anabranch_mptcp::{Config, ConnectionEvent, ConnectionId, Input, LocalAddress, Segment, Stack};

pub(crate) const PORT: u16 = 80;

/// The properties of a link: its delays, losses and other faults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    /// The delay in one direction.
    pub(crate) delay: Span,
    /// The largest random delay that is added to `delay`, which reorders segments.
    pub(crate) jitter: Span,
    /// How long the link carries one segment before it carries the next.
    pub(crate) gap: Span,
    /// The most segments that wait for the link; further ones are lost.
    pub(crate) queue: u64,
    /// Of 1,000 segments, `loss` are lost and `twice` arrive twice.
    pub(crate) loss: u64,
    pub(crate) twice: u64,
    /// Whether the link drops everything.
    pub(crate) is_cut: bool,
    /// Whether options of Multipath TCP are removed.
    pub(crate) strips: bool,
}

impl Faults {
    pub(crate) const fn none(delay_ms: u64) -> Self {
        Self {
            delay: Span::from_millis(delay_ms),
            jitter: Span::ZERO,
            gap: Span::ZERO,
            queue: u64::MAX,
            loss: 0,
            twice: 0,
            is_cut: false,
            strips: false,
        }
    }
}

/// One host, and the progress of its program.
pub(crate) struct Host {
    pub(crate) stack: Stack,
    pub(crate) connection: Option<ConnectionId>,
    pub(crate) events: Vec<ConnectionEvent>,
    /// The bytes to write, the bytes written so far, and the bytes read.
    pub(crate) to_write: usize,
    pub(crate) written: usize,
    pub(crate) read: Vec<u8>,
    pub(crate) seed: u8,
    /// Whether the program finishes once all is written.
    pub(crate) finishes: bool,
    /// Whether the program reads.
    pub(crate) reads: bool,
    pub(crate) is_closed: bool,
}

/// Returns byte `at` of the data that a host writes.
fn byte(seed: u8, at: usize) -> u8 {
    (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[1] ^ seed
}

impl Host {
    fn new(config: Config, seed: u8) -> Self {
        Self {
            stack: Stack::new(config, [seed; 32]),
            connection: None,
            events: Vec::new(),
            to_write: 0,
            written: 0,
            read: Vec::new(),
            seed,
            finishes: true,
            reads: true,
            is_closed: false,
        }
    }

    /// Lets the program write as much as there is room for, read all that has come, and finish when all is
    /// written.
    fn work(&mut self) {
        let Some(id) = self.connection.filter(|_| !self.is_closed) else { return };
        while self.written < self.to_write {
            let end = (self.written + 4_000).min(self.to_write);
            let bytes: Vec<u8> = (self.written..end).map(|at| byte(self.seed, at)).collect();
            match self.stack.write(id, &bytes) {
                0 => break,
                count => self.written += count,
            }
        }
        if self.finishes && self.written == self.to_write {
            self.stack.finish(id);
        }
        let mut buffer = [0; 4096];
        while self.reads {
            match self.stack.read(id, &mut buffer) {
                0 => break,
                count => self.read.extend_from_slice(&buffer[..count]),
            }
        }
    }

    pub(crate) fn has(&self, wanted: impl Fn(&ConnectionEvent) -> bool) -> bool {
        self.events.iter().any(wanted)
    }
}

/// Sees, and may change, each segment that a host sends.
pub(crate) type Filter = Box<dyn FnMut(usize, &mut Segment) -> bool>;

/// The two hosts, client first, and the segments on their way.
pub(crate) struct Network {
    pub(crate) hosts: [Host; 2],
    pub(crate) now: Time,
    pub(crate) random: SplitMix64,
    /// The links, by the client's address.
    pub(crate) links: BTreeMap<IpAddr, Faults>,
    flying: BTreeMap<(Time, u64), (usize, Segment)>,
    /// Until when a link carries the segments that each of its ends has sent.
    busy: BTreeMap<(usize, IpAddr), Time>,
    sent: u64,
    /// All segments that were sent, with the time and the sender.
    pub(crate) log: Vec<(Time, usize, Segment)>,
    pub(crate) keeps_log: bool,
    /// Sees each segment before the link does and may change it. If it returns `false`, the segment is lost.
    pub(crate) filter: Option<Filter>,
}

pub(crate) fn client_address(no: u8) -> IpAddr {
    IpAddr::from([10, 0, no, 1])
}
pub(crate) fn server_address() -> IpAddr {
    IpAddr::from([10, 9, 0, 2])
}

impl Network {
    /// Creates the hosts. `links` has one link for each address of the client, which connects from the first.
    pub(crate) fn new(client: Config, server: Config, links: &[Faults], seed: u64) -> Self {
        let mut client = client;
        client.addresses = (0..links.len() as u8).map(|no| LocalAddress::new(client_address(no))).collect();
        let mut hosts = [Host::new(client, 1), Host::new(server, 2)];
        hosts[1].stack.listen(PORT);
        let links = links.iter().enumerate().map(|(no, link)| (client_address(no as u8), *link)).collect();
        Self {
            hosts,
            now: Time::ZERO + Span::from_secs(1_000),
            random: SplitMix64(seed),
            links,
            flying: BTreeMap::new(),
            busy: BTreeMap::new(),
            sent: 0,
            log: Vec::new(),
            keeps_log: std::env::var_os("MPTCP_LOG").is_some(),
            filter: None,
        }
    }

    /// Connects the client, which will write `upload` bytes; the server will write `download` bytes.
    pub(crate) fn connect(&mut self, upload: usize, download: usize) {
        let remote = SocketAddr::new(server_address(), PORT);
        let id = self.hosts[0].stack.connect(self.now, client_address(0), remote);
        self.hosts[0].connection = id;
        self.hosts[0].to_write = upload;
        self.hosts[1].to_write = download;
    }

    fn transmit(&mut self, from: usize, mut segment: Segment) {
        if self.keeps_log {
            self.log.push((self.now, from, segment.clone()));
        }
        if let Some(mut filter) = self.filter.take() {
            let passes = filter(from, &mut segment);
            self.filter = Some(filter);
            if !passes {
                return;
            }
        }
        let client = if from == 0 { segment.source.ip() } else { segment.target.ip() };
        let Some(link) = self.links.get(&client).copied() else { return };
        if link.is_cut || self.random.below(1_000) < link.loss {
            return;
        }
        if link.strips {
            strip(&mut segment);
        }
        let copies = 1 + u64::from(self.random.below(1_000) < link.twice);
        for _ in 0..copies {
            let jitter = Span::from_nanos(self.random.below(link.jitter.as_nanos() + 1));
            let busy = self.busy.entry((from, client)).or_insert(self.now);
            let waiting = busy.since(self.now).as_nanos().checked_div(link.gap.as_nanos());
            if waiting.is_some_and(|waiting| waiting > link.queue) {
                continue;
            }
            *busy = self.now.max(*busy) + link.gap;
            self.sent += 1;
            self.flying.insert((*busy + link.delay + jitter, self.sent), (1 - from, segment.clone()));
        }
    }

    /// Hands a segment to a host now, as if it had arrived.
    pub(crate) fn inject(&mut self, to: usize, segment: &Segment) {
        self.hosts[to].stack.handle(self.now, Input::Segment(segment));
        self.drain(to);
    }

    /// Lets a host do everything that is due. Returns when it must be woken.
    pub(crate) fn drain(&mut self, at: usize) -> Time {
        for turn in 0_u32.. {
            if turn > 20_000 {
                self.dump();
                panic!("host {at} has something to do for ever");
            }
            match self.hosts[at].stack.poll(self.now) {
                Output::Send(segment) => self.transmit(at, segment),
                Output::Event((id, event)) => {
                    let host = &mut self.hosts[at];
                    if let ConnectionEvent::Established { .. } = event {
                        host.connection.get_or_insert(id);
                    }
                    if host.connection == Some(id) {
                        host.is_closed |= matches!(event, ConnectionEvent::Closed { .. });
                        host.events.push(event);
                    }
                    host.work();
                }
                Output::Wait(time) => return time,
            }
        }
        unreachable!("the loop ends by returning");
    }

    /// Advances by one step of time. Returns `false` if nothing is left to happen before `end`.
    pub(crate) fn step(&mut self, end: Time) -> bool {
        let mut next = end;
        for at in 0..2 {
            self.hosts[at].work();
            next = next.min(self.drain(at));
        }
        if let Some(((at, _), _)) = self.flying.first_key_value() {
            next = next.min(*at);
        }
        if next >= end {
            self.now = end;
            return false;
        }
        self.now = self.now.max(next);
        while let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let (to, segment) = entry.remove();
            self.hosts[to].stack.handle(self.now, Input::Segment(&segment));
            self.drain(to);
        }
        true
    }

    /// Runs for `span`.
    pub(crate) fn run(&mut self, span: Span) {
        let end = self.now + span;
        while self.step(end) {}
    }

    /// Runs until both ends are closed, but at most for `span`. Returns whether they are closed.
    pub(crate) fn run_until_closed(&mut self, span: Span) -> bool {
        let end = self.now + span;
        while !self.hosts.iter().all(|host| host.is_closed) {
            if !self.step(end) {
                break;
            }
        }
        self.hosts.iter().all(|host| host.is_closed)
    }

    /// Prints the last segments, if the log is kept.
    pub(crate) fn dump(&self) {
        for (at, from, segment) in self.log.iter().rev().take(60).rev() {
            let ms = at.as_nanos() as f64 / 1e6 - 1e6;
            let options: Vec<_> = segment.options.iter().flatten().collect();
            println!(
                "{ms:10.3} {from} {} > {} {:02x} seq {} ack {} win {} {} {options:?}",
                segment.source,
                segment.target,
                segment.flags.0,
                segment.seq,
                segment.ack,
                segment.window,
                segment.payload.len()
            );
        }
    }

    /// Checks the data of both ends.
    ///
    /// # Errors
    /// If bytes are missing or wrong, or an end was not regular; the error says which.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (at, host) in self.hosts.iter().enumerate() {
            let peer = &self.hosts[1 - at];
            if host.read.len() != peer.to_write {
                return Err(format!("host {at} has read {} of {}", host.read.len(), peer.to_write));
            }
            if let Some(wrong) = (0..host.read.len()).find(|i| host.read[*i] != byte(peer.seed, *i)) {
                return Err(format!("host {at}: byte {wrong} is wrong"));
            }
            if !host.has(|event| *event == ConnectionEvent::Closed { error: None }) {
                return Err(format!("host {at}: {:?}", host.events));
            }
        }
        Ok(())
    }
}

/// Removes the options of Multipath TCP, as some middleboxes do.
pub(crate) fn strip(segment: &mut Segment) {
    let mut rest = anabranch_mptcp_wire::OptionBuffer::default();
    for option in segment.options.iter().flatten() {
        if !matches!(option, anabranch_mptcp_wire::TcpOption::Mptcp(_)) {
            rest.push(&option);
        }
    }
    segment.options = rest;
}

/// Makes a connection over these links and requires that its data arrives intact.
pub(crate) fn transfer(
    client: Config,
    server: Config,
    links: &[Faults],
    (upload, download): (usize, usize),
    seed: u64,
) -> Network {
    let mut network = Network::new(client, server, links, seed);
    network.connect(upload, download);
    let closed = network.run_until_closed(Span::from_secs(600));
    if let Err(error) = network.check() {
        network.dump();
        panic!("seed {seed}: {error}; closed: {closed}");
    }
    network
}
