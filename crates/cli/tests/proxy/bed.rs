//! Two hosts that are joined by two emulated links, with a proxy's server on one and its client on the other.
//! It needs root and `/dev/net/tun`.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anabranch_algo::{Span, Time};
use anabranch_net::testing::{AmongFew, among_few};
use anabranch_net::{Clock, Namespace};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{anabranch, noise};

/// A scenario with two links towards `f.tx`, which is the host with the links.
const TWO_LINKS: &str = r#"
title = "Two links"
duration = "20 s"

[link.up]
rate = "100 Mbit/s"

[link.a]
rate = "20 Mbit/s"

[link.b]
rate = "20 Mbit/s"

[flow.f]
paths = [{ via = ["up"], back = ["a"], rtt = "20 ms" }, { via = ["up"], back = ["b"], rtt = "20 ms" }]
"#;
/// The bytes of the film, which take 1.6 s over both links.
pub(crate) const BYTES: usize = 8_000_000;
/// The address of `f.rx`, where the server and the origin run.
const SERVER: &str = "10.1.255.1";

/// Two hosts that are up, with a server on one, a client on the other, and an origin beside the server.
pub(crate) struct Bed {
    pub(crate) dir: TempDir,
    pub(crate) name: String,
    pub(crate) content: Vec<u8>,
    server: String,
    pub(crate) socks: String,
    /// The URL of the film.
    pub(crate) origin: String,
    pub(crate) running: Vec<Child>,
    /// Keeps most other tests out, because tests of a bed measure times.
    _few: AmongFew,
}

impl Bed {
    /// Brings up the hosts with a server and a client. Returns `None` where that is not possible.
    pub(crate) fn new(name: &str) -> Option<Self> {
        let mut bed = Self::without_client(name)?;
        bed.client(&[]);
        Some(bed)
    }

    /// Starts a client with these additional options.
    pub(crate) fn client(&mut self, more: &[&str]) {
        let to = self.server.clone();
        self.socks = self.start("tx", &[&client_args(&to), more].concat(), "address");
    }

    /// Returns the command of a client with these additional options, without starting it.
    pub(crate) fn client_command(&self, more: &[&str]) -> Command {
        let program = [&[crate::common::program()], &client_args(&self.server)[..], more].concat();
        self.on("tx", &program)
    }

    pub(crate) fn without_client(name: &str) -> Option<Self> {
        Self::without_mptcp(name, &[])
    }

    /// Brings up the hosts with a server, where the kernels of these hosts have no MPTCP.
    pub(crate) fn without_mptcp(name: &str, without: &[&str]) -> Option<Self> {
        if let Err(e) = anabranch_lab::linux::testbed::allowed() {
            anabranch_net::testing::refused_device(format!("the proxy between hosts: {e}"));
            return None;
        }
        let few = among_few();
        let name = format!("{name}-{}", std::process::id());
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join(format!("{name}.toml")), TWO_LINKS).expect("written");
        let content = noise(BYTES);
        fs::write(dir.path().join("film"), &content).expect("written");
        let mut bed = Self {
            dir,
            name,
            content,
            server: String::new(),
            socks: String::new(),
            origin: String::new(),
            running: Vec::new(),
            _few: few,
        };
        let up = bed.lab(&["up", &bed.name.clone()]).output().expect("it runs");
        assert!(up.status.success(), "{up:?}");
        // The rules are moved, so that other rules can come before the one for local addresses.
        for host in ["rx", "tx"] {
            bed.ip(host, "rule add priority 10 lookup local");
            bed.ip(host, "rule del priority 0 lookup local");
        }
        for host in without {
            bed.says(host, &["sysctl", "-qw", "net.mptcp.enabled=0"]);
        }
        let paired = bed.own(&["proxy", "pair"]).output().expect("it runs");
        assert!(paired.status.success(), "{paired:?}");
        anabranch_net::testing::write_secret(&bed.dir.path().join("pair"), paired.stdout).expect("written");
        let server = ["proxy", "server", "--listen", "0.0.0.0:0", "--allow", "127.0.0.0/8", "--json"];
        let port = bed.start("rx", &server, "address").rsplit(':').next().expect("a port").to_owned();
        let http = ["serve", "film", "--http", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--json"];
        bed.origin = bed.start("rx", &http, "http");
        bed.server = format!("{SERVER}:{port}");
        Some(bed)
    }

    pub(crate) fn own(&self, args: &[&str]) -> Command {
        let mut command = anabranch();
        command.current_dir(self.dir.path()).env("STATE_DIRECTORY", self.dir.path());
        command.env("RUNTIME_DIRECTORY", self.dir.path().join("run")).args(args);
        command
    }

    pub(crate) fn lab(&self, args: &[&str]) -> Command {
        self.own(&[&["lab"], args].concat())
    }

    /// Returns the command of a program on a host.
    pub(crate) fn on(&self, host: &str, program: &[&str]) -> Command {
        self.lab(&[&["exec", &format!("{}/f.{host}", self.name), "--"], program].concat())
    }

    /// Starts a command of ours on a host. Returns the first value with this key that it prints.
    pub(crate) fn start(&mut self, host: &str, args: &[&str], key: &'static str) -> String {
        let program = [&[crate::common::program()], args].concat();
        let mut child = self.on(host, &program).stdout(Stdio::piped()).spawn().expect("it runs");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
        let mut said = lines.filter_map(move |line| {
            let line: Value = serde_json::from_str(&line).ok()?;
            line[key].as_str().or(line[key][0].as_str()).map(str::to_owned)
        });
        let first = said.next().expect("where it listens");
        // Its later output is read and ignored.
        std::thread::spawn(move || said.for_each(drop));
        self.running.push(child);
        first
    }

    /// Fetches the film through the proxy, as a program on the host with the links does.
    pub(crate) fn curl(&self) -> Child {
        let proxy = format!("socks5h://{}", self.socks);
        let args = ["curl", "-sS", "--max-time", "60", "-x", &proxy, "-o", "got", &self.origin];
        self.on("tx", &args).spawn().expect("it runs")
    }

    /// Runs `ip` on a host, and returns its output.
    pub(crate) fn ip(&self, host: &str, arguments: &str) -> String {
        let program: Vec<_> = ["ip"].into_iter().chain(arguments.split_whitespace()).collect();
        self.says(host, &program)
    }

    pub(crate) fn says(&self, host: &str, program: &[&str]) -> String {
        let done = self.on(host, program).output().expect("it runs");
        assert!(done.status.success(), "{program:?}: {done:?}");
        String::from_utf8(done.stdout).expect("text")
    }

    /// Blocks all packets between the server and this address of the client. Each host drops the packets that
    /// arrive, so that TCP is not told and keeps retransmitting.
    pub(crate) fn silence(&self, address: &str) {
        self.ip("rx", &format!("rule add from {address} blackhole priority 1"));
        self.ip("tx", &format!("rule add to {address} iif {} blackhole priority 1", device(address)));
    }

    pub(crate) fn restore(&self, address: &str) {
        self.ip("rx", &format!("rule del from {address} blackhole priority 1"));
        self.ip("tx", &format!("rule del to {address} iif {} blackhole priority 1", device(address)));
    }

    /// Returns the tokens of the MPTCP connections that have an established subflow from this address. A
    /// connection may have two such subflows: one may have begun when the kernel's endpoint was set again.
    pub(crate) fn connections(&self, address: &str) -> BTreeSet<String> {
        let all = self.says("tx", &["ss", "-tinH", "state", "established", "src", address]);
        // The field has the form `token:PEER(id:0)/OWN(id:2)`.
        let tokens = all.split("token:").skip(1).filter_map(|rest| rest.split(['/', '(']).nth(2));
        tokens.map(str::to_owned).collect()
    }

    /// Returns how many connections have an established subflow from this address.
    pub(crate) fn subflows(&self, address: &str) -> usize {
        self.connections(address).len()
    }

    /// Returns how many subflows of the server are established with this address of the client.
    pub(crate) fn subflows_at_server(&self, address: &str) -> usize {
        self.says("rx", &["ss", "-tinH", "state", "established", "dst", address]).matches("token:").count()
    }

    /// Returns the bytes that the host with the links has received and sent on this device, by the
    /// interface's counters.
    pub(crate) fn counted(&self, device: &str) -> [u64; 2] {
        let all: Value =
            serde_json::from_str(&self.ip("tx", &format!("-s -j link show dev {device}"))).expect("JSON");
        ["rx", "tx"].map(|way| all[0]["stats64"][way]["bytes"].as_u64().expect("a count"))
    }

    pub(crate) fn is_here(&self) -> bool {
        fs::read(self.dir.path().join("got")).expect("a file") == self.content
    }

    /// Takes the hosts down. Returns the bytes that each link carried.
    pub(crate) fn carried(mut self) -> impl Fn(&str) -> u64 {
        let down = self.down();
        let state: Value = serde_json::from_slice(&down.stdout).expect("JSON");
        move |link| {
            let links = state["links"].as_array().expect("a list");
            let link = links.iter().find(|row| row["name"] == link).expect("a link");
            link["delivered_bytes"].as_u64().expect("a count")
        }
    }

    pub(crate) fn down(&mut self) -> Output {
        let down = self.lab(&["down", &self.name, "--json"]).output().expect("it runs");
        for mut child in self.running.drain(..) {
            let _ = child.wait();
        }
        down
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if !self.running.is_empty() {
            self.down();
        }
    }
}

fn client_args(server: &str) -> [&str; 9] {
    ["proxy", "client", "--server", server, "--pair-file", "pair", "--socks", "127.0.0.1:0", "--json"]
}

/// Returns the device of the client's host that has this address.
fn device(address: &str) -> &'static str {
    if address == "10.1.0.1" { "p0" } else { "p1" }
}

/// The first byte of a connection tells an origin what to do with it.
const ECHO: u8 = b'e';
const SEND: u8 = b'd';
const TAKE: u8 = b'u';
/// The bytes of a message of a session, and the time between two messages.
const MESSAGE_BYTES: usize = 48;
const MESSAGE_EVERY: Duration = Duration::from_millis(100);
/// The most bytes of a stream that are written or read at once.
const PIECE_BYTES: usize = 64 * 1024;

impl Bed {
    /// Opens the network namespace of a running program.
    pub(crate) fn namespace(of: &Child) -> Namespace {
        Namespace::open(Path::new(&format!("/proc/{}/ns/net", of.id()))).expect("a namespace")
    }

    /// Starts an origin beside the server that echoes, sends or receives while the bed exists.
    pub(crate) fn tcp_origin(&self) -> SocketAddr {
        let bind = || TcpListener::bind("127.0.0.1:0").expect("a listener");
        let listener = Self::namespace(&self.running[0]).run(bind).expect("a namespace");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                std::thread::spawn(move || serve(stream));
            }
        });
        address
    }

    fn socks_connection(&self) -> TcpStream {
        let client = self.running.last().expect("a client");
        let socks: SocketAddr = self.socks.parse().expect("an address");
        let connected = Self::namespace(client).run(|| TcpStream::connect(socks)).expect("a namespace");
        connected.expect("a connection")
    }

    /// Opens a connection through the proxy, as a program on the host with the links does.
    pub(crate) fn connect(&self, to: SocketAddr) -> TcpStream {
        let mut stream = self.socks_connection();
        let IpAddr::V4(ip) = to.ip() else { panic!("an origin with IPv4") };
        let mut request = vec![5, 1, 0, 5, 1, 0, 1];
        request.extend(ip.octets());
        request.extend(to.port().to_be_bytes());
        stream.write_all(&request).expect("written");
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(answer[..4], [5, 0, 5, 0], "{answer:?}");
        stream.set_nodelay(true).expect("an option");
        stream.set_read_timeout(Some(Duration::from_secs(180))).expect("an option");
        stream
    }

    /// Starts a session like one of SSH: short messages both ways, ten per second.
    pub(crate) fn session(&self, to: SocketAddr) -> Traffic {
        let mut stream = self.connect(to);
        stream.write_all(&[ECHO]).expect("written");
        Traffic::start(move |pace| {
            let mut number = 0_u64;
            while !pace.is_over() {
                let message = noise_at(number, MESSAGE_BYTES);
                let mut echo = vec![0; MESSAGE_BYTES];
                stream.write_all(&message).expect("the session lives");
                stream.read_exact(&mut echo).expect("the session lives");
                assert_eq!(echo, message, "message {number} of a session");
                pace.moved(MESSAGE_BYTES);
                number += 1;
                std::thread::sleep(MESSAGE_EVERY);
            }
        })
    }

    /// Starts a download that goes on until it is ended. Every byte is checked.
    pub(crate) fn download(&self, from: SocketAddr) -> Traffic {
        let mut stream = self.connect(from);
        stream.write_all(&[SEND]).expect("written");
        Traffic::start(move |pace| {
            let mut buffer = vec![0; PIECE_BYTES];
            let mut at = 0;
            while !pace.is_over() {
                let n = stream.read(&mut buffer).expect("the download lives");
                assert!(n > 0, "the download ended");
                assert!(is_pattern(&buffer[..n], at), "the bytes at {at} are others");
                at += n as u64;
                pace.moved(n);
            }
        })
    }

    /// Starts an upload of this many bytes. It is complete when the origin confirms that all arrived
    /// unchanged.
    pub(crate) fn upload(&self, to: SocketAddr, bytes: u64) -> Traffic {
        let mut stream = self.connect(to);
        stream.write_all(&[TAKE]).expect("written");
        stream.write_all(&bytes.to_be_bytes()).expect("written");
        Traffic::start(move |pace| {
            let mut word = stream.try_clone().expect("a handle");
            let writing = std::thread::spawn(move || {
                let mut at = 0;
                while at < bytes {
                    let n = PIECE_BYTES.min((bytes - at) as usize);
                    stream.write_all(&pattern(at, n)).expect("the upload lives");
                    at += n as u64;
                }
            });
            // The origin reports its progress as eight bytes at a time.
            let mut seen = 0;
            while seen < bytes {
                let mut count = [0; 8];
                word.read_exact(&mut count).expect("the upload lives");
                let count = u64::from_be_bytes(count);
                pace.moved((count - seen) as usize);
                seen = count;
            }
            writing.join().expect("it was written");
        })
    }
}

/// The bytes of a datagram of [`Bed::udp_origin`], and the time between two runs of datagrams.
pub(crate) const DATAGRAM_BYTES: usize = 1_200;
const RUN_EVERY: Duration = Duration::from_millis(2);

/// The arrivals of numbered datagrams at a program.
#[derive(Default)]
pub(crate) struct Heard {
    /// The time and the number of each datagram.
    pub(crate) all: Vec<(Time, u32)>,
}

impl Heard {
    /// Returns the bytes that arrived between these times, counted from the first datagram.
    pub(crate) fn bytes(&self, from: Span, to: Span) -> usize {
        let Some((first, _)) = self.all.first() else { return 0 };
        let is_within = |at: Time| (from..to).contains(&at.since(*first));
        self.all.iter().filter(|(at, _)| is_within(*at)).count() * DATAGRAM_BYTES
    }

    /// Returns how many datagrams arrived after one with a higher number.
    pub(crate) fn late(&self) -> usize {
        let mut highest = 0;
        let is_late = |(_, number): &&(Time, u32)| {
            highest = highest.max(*number);
            *number < highest
        };
        self.all.iter().filter(is_late).count()
    }

    /// Returns the longest time between two arrivals.
    pub(crate) fn gap(&self) -> Span {
        self.all.windows(2).map(|pair| pair[1].0.since(pair[0].0)).max().unwrap_or(Span::ZERO)
    }
}

impl Bed {
    /// Starts an origin beside the server that answers a datagram by a flow of numbered ones, with this rate
    /// and duration.
    pub(crate) fn udp_origin(&self, bytes_per_s: usize, lasts: Duration) -> SocketAddr {
        let bind = || UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let socket = Self::namespace(&self.running[0]).run(bind).expect("a namespace");
        let address = socket.local_addr().expect("an address");
        std::thread::spawn(move || {
            let (_, to) = socket.recv_from(&mut [0; 64]).expect("a request");
            let (clock, mut number) = (Clock::start(), 0_u32);
            loop {
                let passed = clock.now().since(Time::ZERO).as_nanos() as u128;
                if passed >= lasts.as_nanos() {
                    return;
                }
                let due = passed * bytes_per_s as u128 / 1_000_000_000 / DATAGRAM_BYTES as u128;
                while u128::from(number) < due {
                    let mut datagram = [0; DATAGRAM_BYTES];
                    datagram[..4].copy_from_slice(&number.to_be_bytes());
                    let _ = socket.send_to(&datagram, to);
                    number += 1;
                }
                std::thread::sleep(RUN_EVERY);
            }
        });
        address
    }

    /// Runs a program on the host with the links that requests an association, sends one datagram, and
    /// receives until none has come for a second and a half. `meanwhile` runs at the same time.
    pub(crate) fn hear(&self, origin: SocketAddr, meanwhile: impl FnOnce() + Send) -> Heard {
        let client = self.running.last().expect("a client");
        let mut control = self.socks_connection();
        control.write_all(&[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).expect("written");
        let mut answer = [0; 12];
        control.read_exact(&mut answer).expect("an answer");
        assert_eq!(answer[..6], [5, 0, 5, 0, 0, 1], "{answer:?}");
        let relay = SocketAddr::new(
            IpAddr::from([answer[6], answer[7], answer[8], answer[9]]),
            u16::from_be_bytes([answer[10], answer[11]]),
        );
        let bind = || UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let socket = Self::namespace(client).run(bind).expect("a namespace");
        socket.connect(relay).expect("an address");
        let IpAddr::V4(ip) = origin.ip() else { panic!("an origin with IPv4") };
        let mut request = vec![0, 0, 0, 1];
        request.extend(ip.octets());
        request.extend(origin.port().to_be_bytes());
        request.push(b'!');
        socket.send(&request).expect("sent");
        // The length of the headers of SOCKS5 with an IPv4 address.
        const HEADER: usize = 10;
        let mut heard = Heard::default();
        std::thread::scope(|scope| {
            scope.spawn(meanwhile);
            let mut buffer = [0; 2_048];
            socket.set_read_timeout(Some(Duration::from_secs(5))).expect("an option");
            while let Ok(n) = socket.recv(&mut buffer) {
                assert_eq!(n, HEADER + DATAGRAM_BYTES);
                let number = u32::from_be_bytes(buffer[HEADER..][..4].try_into().expect("four"));
                heard.all.push((CLOCK.now(), number));
                socket.set_read_timeout(Some(Duration::from_millis(1_500))).expect("an option");
            }
        });
        heard
    }

    /// Returns how many UDP sockets on the host with the links are connected to the server.
    pub(crate) fn udp_paths(&self) -> usize {
        let all = self.says("tx", &["ss", "-uHn", "state", "established", "dst", SERVER]);
        all.lines().count()
    }
}

/// Returns the bytes of a stream at these positions.
fn pattern(at: u64, len: usize) -> Vec<u8> {
    (at..at + len as u64).map(|place| (place ^ (place >> 8) ^ (place >> 16)) as u8).collect()
}

fn is_pattern(bytes: &[u8], at: u64) -> bool {
    bytes == pattern(at, bytes.len())
}

fn noise_at(number: u64, len: usize) -> Vec<u8> {
    pattern(number * 1_000_003, len)
}

fn serve(mut stream: TcpStream) -> Option<()> {
    let mut kind = [0];
    stream.set_nodelay(true).ok()?;
    stream.read_exact(&mut kind).ok()?;
    let mut buffer = vec![0; PIECE_BYTES];
    match kind[0] {
        ECHO => loop {
            let n = stream.read(&mut buffer).ok().filter(|n| *n > 0)?;
            stream.write_all(&buffer[..n]).ok()?;
        },
        SEND => {
            for piece in 0.. {
                stream.write_all(&pattern(piece * PIECE_BYTES as u64, PIECE_BYTES)).ok()?;
            }
        }
        _ => {
            let mut count = [0; 8];
            stream.read_exact(&mut count).ok()?;
            let (mut at, whole) = (0, u64::from_be_bytes(count));
            while at < whole {
                let n = stream.read(&mut buffer).ok().filter(|n| *n > 0)?;
                // If the bytes are wrong, the reports stop, which the sender notices.
                is_pattern(&buffer[..n], at).then_some(())?;
                at += n as u64;
                stream.write_all(&at.to_be_bytes()).ok()?;
            }
        }
    }
    Some(())
}

/// The progress of a program's connection.
#[derive(Default)]
pub(crate) struct Pace {
    state: Mutex<PaceState>,
    is_over: AtomicBool,
}

#[derive(Default)]
struct PaceState {
    bytes: u64,
    moved_at: Option<Time>,
    longest: Span,
}

impl Pace {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn moved(&self, bytes: usize) {
        let (now, mut state) = (CLOCK.now(), self.state.lock().expect("a lock"));
        state.longest = state.longest.max(now.since(state.moved_at.unwrap_or(now)));
        state.moved_at = Some(now);
        state.bytes += bytes as u64;
    }
}

static CLOCK: LazyLock<Clock> = LazyLock::new(Clock::start);

/// A program's connection that goes on.
pub(crate) struct Traffic {
    pace: Arc<Pace>,
    thread: JoinHandle<()>,
}

impl Traffic {
    fn start(work: impl FnOnce(&Pace) + Send + 'static) -> Self {
        let pace = Arc::new(Pace::default());
        let own = Arc::clone(&pace);
        Self { pace, thread: std::thread::spawn(move || work(&own)) }
    }

    /// Returns the bytes that have arrived or were echoed.
    pub(crate) fn bytes(&self) -> u64 {
        self.pace.state.lock().expect("a lock").bytes
    }

    /// Returns the longest time without progress since this was last called.
    pub(crate) fn stall(&self) -> Span {
        let mut state = self.pace.state.lock().expect("a lock");
        let now = CLOCK.now();
        let stall = state.longest.max(now.since(state.moved_at.unwrap_or(now)));
        (state.longest, state.moved_at) = (Span::ZERO, Some(now));
        stall
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the end, and asserts that the connection was cut off.
    pub(crate) fn ends_cut(self) {
        assert!(self.thread.join().is_err(), "it went on to its end");
    }

    /// Ends the traffic, and asserts that everything was right.
    pub(crate) fn end(self) {
        self.pace.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("every byte came");
    }
}
