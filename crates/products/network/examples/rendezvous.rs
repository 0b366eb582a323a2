//! Measures a rendezvous: publications and lookups per second, memory, disk, and its next start.
//!
//! ```text
//! cargo run --release -p anabranch-network --example rendezvous -- [PUBLICATIONS [DIRECTORY [SERVER]]]
//! ```
//!
//! A million signed publications, each with its own name and content, go through the machine alone. Then they
//! go as UDP over loopback through the service with a state in DIRECTORY (by default that for temporary
//! files). The service is ended, started again, and asked for each publication. The rates are those of one
//! core: they are divided by the CPU time of the thread that does the work. With SERVER
//! (`redis+unix:///tmp/s`), an empty Redis or Valkey, the measurement is repeated with a shared state. Its
//! CPU time is that of all threads of this process without the asking thread, and that of the server is
//! printed beside it.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anabranch::{Control, Stop};
use anabranch_algo::{Machine as _, Output, Span, Time};
use anabranch_mmtp::ContentId;
use anabranch_mmtp::peer::Peer;
use anabranch_net::{Clock, Datagrams, RecvBuffers, Udp};
use anabranch_network::{self as network, Place, RendezvousStats, ServiceEvent, StateAt};
use anabranch_overlay::call::{Call, Reach};
use anabranch_overlay::domain::Domain;
use anabranch_overlay::frame::{self, Frame};
use anabranch_overlay::message::{Body, Message, Wanted};
use anabranch_overlay::publication::{Publication, ScopeKey, SignedPublication};
use anabranch_overlay::rendezvous::Rendezvous;
use nix::time::{ClockId, clock_gettime};

/// The most questions that wait for their answer at a time.
const WINDOW: usize = 1_024;
/// The pause between two looks for answers while there are none,
const LOOK_EVERY: Duration = Duration::from_micros(100);
/// and the number of vain looks after which the questions are repeated.
const SILENCES: u32 = 20_000;
/// The lease of a publication in seconds, which is longer than the measurement runs.
const LEASE_S: u32 = 12 * 3_600;

/// A domain, and the messages that its host `a` sends through the forwarder, which this program plays too.
struct Bench {
    dir: tempfile::TempDir,
    place: Place,
    key: ScopeKey,
    /// The header that the forwarder puts before a message of `a`.
    header: Vec<u8>,
    peer: Peer,
    issued: Time,
}

impl Bench {
    fn new(at: &Path) -> Self {
        let dir = tempfile::tempdir_in(at).expect("a directory");
        let key = ScopeKey::new([7; 32]).expect("a key");
        let text = format!(
            "name = \"bench\"\nforwarders = [\"r\"]\n[rendezvous]\nnode = \"rv\"\n[topology]\nnode = \"rv\"\n\
             port = 7702\n[scopes]\nfilms = \"{}\"\n[[line]]\nbetween = [\"r\", \"a\"]\n\
             addresses = [\"127.93.1.1\", \"127.93.1.2\"]\n[[line]]\nbetween = [\"r\", \"rv\"]\n\
             addresses = [\"127.93.1.3\", \"127.93.1.4\"]\n",
            key.public()
        );
        let file = dir.path().join("net.toml");
        std::fs::write(&file, text).expect("written");
        let place = Place::new(&file, Some("rv")).expect("a node");
        let domain: &Domain = place.domain();
        let reach = Reach::new(domain, domain.graph.by_name("a").expect("a host"), domain.rendezvous);
        let mut new = Self {
            dir,
            key,
            header: Vec::new(),
            peer: Peer { address: ([127, 93, 1, 3], domain.forwarder_port).into(), way_back: None },
            issued: now(),
            place,
        };
        let call = Call::new(&new.lookup(0), 5_000, Time::ZERO).poll(Time::ZERO, &reach).expect("a way");
        let Ok(Frame::Routed(routed)) = frame::parse(&call.frame) else { panic!("a frame") };
        new.peer.way_back = routed.way_back;
        new.header.extend_from_slice(&call.frame[..call.frame.len() - routed.payload.len()]);
        new
    }

    fn content(number: u32) -> ContentId {
        ContentId { root: *blake3::hash(&number.to_be_bytes()).as_bytes(), length: 100_000_000 }
    }

    fn name(number: u32) -> String {
        format!("films/2026/title-{number:07}.mkv")
    }

    fn signed(&self, number: u32) -> SignedPublication {
        let publication = Publication {
            name: Self::name(number).parse().expect("a name"),
            content: Self::content(number),
            collection: false,
            node: self.place.domain().graph.by_name("a").expect("a host"),
            port: 26_227,
            version_ms: self.issued.as_nanos() / 1_000_000,
            issued_ms: self.issued.as_nanos() / 1_000_000,
            lease_s: LEASE_S,
        };
        self.key.sign("bench", publication)
    }

    fn lookup(&self, number: u32) -> Message {
        let wanted = Wanted::Name(Self::name(number).parse().expect("a name"));
        Message { call: u64::from(number), body: Body::Lookup(wanted) }
    }

    fn content_lookup(&self, number: u32) -> Message {
        Message { call: u64::from(number), body: Body::Lookup(Wanted::Content(Self::content(number))) }
    }

    /// Returns a message as the forwarder passes it on.
    fn frame(&self, message: &[u8]) -> Vec<u8> {
        [&self.header, message].concat()
    }
}

#[expect(clippy::disallowed_methods, reason = "publications have dates")]
fn now() -> Time {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    Time::from_nanos(since.as_nanos() as u64)
}

/// Messages, one after the other.
#[derive(Default)]
struct Messages {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Messages {
    fn make(count: u32, message: impl Fn(u32) -> Vec<u8>) -> Self {
        let mut all = Self::default();
        for number in 0..count {
            all.bytes.extend_from_slice(&message(number));
            all.ends.push(all.bytes.len());
        }
        all
    }

    fn get(&self, place: usize) -> &[u8] {
        let from = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[from..self.ends[place]]
    }
}

/// Returns the CPU time of this thread.
fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock").into()
}

/// Returns the bytes of memory that this process uses.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("a file");
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("pages");
    pages * 4_096
}

/// Prints a row of the result.
fn row(what: &str, value: f64, unit: &str) {
    println!("{what:<62} {value:>12.0} {unit}");
    std::io::stdout().flush().expect("standard output");
}

fn rate(what: &str, count: usize, spent: Duration) {
    row(what, count as f64 / spent.as_secs_f64(), "/s");
}

/// Returns an order that has each of `count` numbers once, and no neighbours next to each other.
fn shuffled(count: usize) -> impl Iterator<Item = usize> {
    // This prime divides no count that users are likely to choose.
    (0..count).map(move |number| number * 7_368_787 % count)
}

/// Passes messages to a machine. Returns how many of its answers are `good`.
fn feed(
    machine: &mut Rendezvous,
    peer: &Peer,
    at: Time,
    messages: &Messages,
    good: impl Fn(&Body) -> bool,
) -> usize {
    let mut answered = 0;
    for place in shuffled(messages.ends.len()) {
        machine.handle(at, (*peer, messages.get(place)));
        loop {
            match machine.poll(at) {
                Output::Send(answer) => {
                    answered += usize::from(good(&Message::parse(&answer.message).expect("a message").body));
                }
                Output::Event(_) => {}
                Output::Wait(_) => break,
            }
        }
    }
    answered
}

const fn is_published(body: &Body) -> bool {
    matches!(body, Body::Published)
}

fn is_found(body: &Body) -> bool {
    matches!(body, Body::Match { publications, .. } if publications.len() == 1)
}

fn machine_alone(bench: &Bench, publications: &Messages, names: &Messages, contents: &Messages) {
    let count = publications.ends.len();
    let before = resident();
    let mut machine = Rendezvous::new(Arc::clone(bench.place.domain()));
    let begun = cpu();
    let published = feed(&mut machine, &bench.peer, bench.issued, publications, is_published);
    rate("machine alone: publications", count, cpu() - begun);
    row("  memory of a publication", (resident() - before) as f64 / count as f64, "bytes");
    let sample = count.min(50_000) as u32;
    let signed: Vec<SignedPublication> = (0..sample).map(|number| bench.signed(number)).collect();
    let (key, begun) = (bench.key.public(), cpu());
    assert!(signed.iter().all(|signed| signed.check("bench", &key, bench.issued).is_ok()));
    rate("  of that: checks of signatures alone", signed.len(), cpu() - begun);
    let begun = cpu();
    let by_name = feed(&mut machine, &bench.peer, bench.issued, names, is_found);
    rate("machine alone: lookups by name", count, cpu() - begun);
    let begun = cpu();
    let by_content = feed(&mut machine, &bench.peer, bench.issued, contents, is_found);
    rate("machine alone: lookups by content", count, cpu() - begun);
    assert_eq!([published, by_name, by_content, machine.len()], [count; 4], "all of them");
}

/// The service on a thread of its own.
struct Running {
    stop: Stop,
    thread: JoinHandle<RendezvousStats>,
    /// The CPU time of the thread, sent with each of its events.
    spent: Receiver<Duration>,
}

impl Running {
    /// Starts the service and waits until it answers. Also returns how long that took.
    fn start(bench: &Bench, state: Option<StateAt>) -> (Self, Span) {
        let stop = Stop::new().expect("a stop");
        let (its, place) = (stop.clone(), bench.place.clone());
        let (told, spent) = channel();
        let clock = Clock::start();
        let thread = std::thread::spawn(move || {
            let mut tell = |event: ServiceEvent<RendezvousStats>| {
                if let ServiceEvent::Notice(text) = &event {
                    println!("  it says: {text}");
                }
                let _ = told.send(cpu());
                Control::Continue
            };
            network::rendezvous(&place, state.as_ref(), &its, &mut tell).expect("it works")
        });
        spent.recv().expect("it listens");
        let took = clock.now().since(Time::ZERO);
        (Self { stop, thread, spent }, took)
    }

    /// Returns the CPU time of the thread, now or a little later.
    fn cpu(&self) -> Duration {
        while self.spent.try_recv().is_ok() {}
        self.spent.recv().expect("it tells every second")
    }

    fn end(self) -> RendezvousStats {
        self.stop.stop();
        self.thread.join().expect("it ends")
    }
}

/// Sends the messages over loopback. Returns how many of the answers are `good`.
fn ask(bench: &Bench, messages: &Messages, count: usize, good: impl Fn(&Body) -> bool) -> usize {
    let udp = Udp::listen(bench.peer.address).expect("a socket");
    let to = SocketAddr::from(([127, 93, 1, 4], bench.place.domain().rendezvous.port));
    let send = |place: usize| {
        let bytes = &bench.frame(messages.get(place));
        udp.send(&Datagrams { to: Some(to), from_ip: None, bytes, segment: None, ecn: false, dscp: 0 });
    };
    let mut buffers = RecvBuffers::new();
    let mut waiting = BTreeSet::new();
    let (mut order, mut answered, mut silent) = (shuffled(messages.ends.len()).take(count), 0, 0);
    loop {
        while waiting.len() < WINDOW
            && let Some(place) = order.next()
        {
            waiting.insert(place as u64);
            send(place);
        }
        if waiting.is_empty() {
            return answered;
        }
        let before = waiting.len();
        let received = udp.recv(&mut buffers, |received| {
            for datagram in received.datagrams() {
                let Ok(Frame::Routed(routed)) = frame::parse(datagram) else { panic!("a frame") };
                let message = Message::parse(routed.payload).expect("a message");
                // A question that was repeated may get two answers; only the first counts.
                let is_first = waiting.remove(&message.call);
                answered += usize::from(is_first && good(&message.body));
            }
        });
        received.expect("it receives");
        silent = if waiting.len() < before { 0 } else { silent + 1 };
        if silent > 0 {
            std::thread::sleep(LOOK_EVERY);
        }
        if silent == SILENCES {
            // Some packets were lost, so their questions are repeated.
            waiting.iter().for_each(|place| send(*place as usize));
            silent = 0;
        }
    }
}

/// Sends the messages, and prints their rates by the clock and by the CPU time of the service.
fn timed(
    bench: &Bench,
    running: &Running,
    what: &str,
    messages: &Messages,
    good: impl Fn(&Body) -> bool,
    count: usize,
) {
    let (clock, before) = (Clock::start(), running.cpu());
    let begun = clock.now();
    let answered = ask(bench, messages, count, good);
    let took = clock.now().since(begun);
    let spent = running.cpu() - before;
    assert_eq!(answered, count, "{what}");
    rate(&format!("{what}, a second of CPU"), count, spent);
    rate("  by the clock", count, Duration::from_nanos(took.as_nanos()));
}

/// Returns the CPU time of a server so far.
fn cpu_of(server: &str) -> Duration {
    let client = redis::Client::open(server).expect("an address");
    let mut connection = client.get_connection().expect("connected");
    let info: String = redis::cmd("INFO").arg("cpu").query(&mut connection).expect("an answer");
    let seconds = |name: &str| {
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.and_then(|value| value.trim().parse::<f64>().ok()).expect("seconds")
    };
    Duration::from_secs_f64(seconds("used_cpu_user") + seconds("used_cpu_sys"))
}

/// Returns the CPU time of all threads of this process.
fn cpu_of_process() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("a clock").into()
}

/// Runs all measurements with a state in a server.
fn shared(bench: &Bench, server: &str, publications: &Messages, names: &Messages, contents: &Messages) {
    let count = publications.ends.len();
    let state = || Some(StateAt::parse(server.as_ref()).expect("an address"));
    let (running, _) = Running::start(bench, state());
    type Good = fn(&Body) -> bool;
    let all: [(&str, &Messages, Good); 3] = [
        ("publications", publications, is_published),
        ("lookups by name", names, is_found),
        ("lookups by content", contents, is_found),
    ];
    for (what, messages, good) in all {
        let clock = Clock::start();
        let (own, process, its) = (cpu(), cpu_of_process(), cpu_of(server));
        assert_eq!(ask(bench, messages, count, good), count, "{what}");
        let took = clock.now().since(Time::ZERO);
        let spent = (cpu_of_process() - process).saturating_sub(cpu() - own);
        rate(&format!("UDP, state in a server: {what}, a second of CPU"), count, spent);
        rate("  a second of the server's CPU", count, cpu_of(server) - its);
        rate("  by the clock", count, Duration::from_nanos(took.as_nanos()));
    }
    let stats = running.end().shared_state.expect("a server");
    row("  queries a round trip", 4.0 * count as f64 / stats.round_trips as f64, "");
    // A new start has no signatures in memory, so each is checked once more.
    let (running, took) = Running::start(bench, state());
    row("started again, until it answers", took.as_nanos() as f64 / 1e6, "ms");
    let (process, own) = (cpu_of_process(), cpu());
    assert_eq!(ask(bench, names, count, is_found), count);
    let spent = (cpu_of_process() - process).saturating_sub(cpu() - own);
    rate("  lookups by name for the first time, a second of CPU", count, spent);
    running.end();
}

fn main() {
    let mut args = std::env::args().skip(1);
    let count: u32 = args.next().map_or(1_000_000, |text| text.parse().expect("a number"));
    let at = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let bench = Bench::new(&at);
    let server = args.next();
    let begun = cpu();
    let publications = Messages::make(count, |number| {
        Message { call: u64::from(number), body: Body::Publish(bench.signed(number)) }.to_bytes()
    });
    rate(&format!("{count} publications are made and signed"), count as usize, cpu() - begun);
    let names = Messages::make(count, |number| bench.lookup(number).to_bytes());
    let contents = Messages::make(count, |number| bench.content_lookup(number).to_bytes());
    machine_alone(&bench, &publications, &names, &contents);

    let all = count as usize;
    let (running, _) = Running::start(&bench, None);
    timed(&bench, &running, "UDP, no state: publications", &publications, is_published, all / 10);
    running.end();
    let state = bench.dir.path().join("state");
    let (running, _) = Running::start(&bench, Some(StateAt::File(state.clone())));
    timed(&bench, &running, "UDP, state on disk: publications", &publications, is_published, all);
    let stats = running.end().state.expect("a file");
    row("  publications a commit", all as f64 / stats.commits as f64, "");
    let bytes = std::fs::metadata(&state).expect("a file").len();
    row("  bytes on disk of a publication", bytes as f64 / all as f64, "");
    let (running, took) = Running::start(&bench, Some(StateAt::File(state)));
    row("started again, until it answers", took.as_nanos() as f64 / 1e6, "ms");
    row("  of that: CPU time", running.cpu().as_secs_f64() * 1e3, "ms");
    timed(&bench, &running, "UDP: lookups by name", &names, is_found, all);
    timed(&bench, &running, "UDP: lookups by content", &contents, is_found, all);
    let stats = running.end().state.expect("a file");
    assert_eq!(stats.taken_back, u64::from(count));
    if let Some(server) = server {
        shared(&bench, &server, &publications, &names, &contents);
    }
    println!("nothing was lost: each of {count} is found by its name and its content");
}
