//! What keeps a laboratory up: a process of its own that holds its hosts and drives its links, and how others
//! find it and talk to it.
//!
//! It listens on a socket whose name is in no file system (an abstract one, see unix(7)) and that goes with
//! the process, as all else does that it holds. So there is no file that could be out of date, however it
//! ends.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

use algo::{Span, Time};
use lab::linux::testbed::{Testbed, violations};
use lab::scenario::Scenario;
use net::emulator::Snapshot;
use net::{Clock, Interest, Poller};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use serde::{Deserialize, Serialize};

use super::lab_name::is_plain;
use super::orphans;
use crate::exit::{Failure, Outcome};
use crate::signals::stop_signals;

/// How the names of the sockets begin.
const PREFIX: &str = "anabranch/lab/";
/// The largest scenario and the largest answer, bytes.
const MESSAGE_BYTES_MAX: u64 = 64 << 20;
/// How long the other side may be silent.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// What a laboratory is and how it does.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) name: String,
    pub(super) title: String,
    /// The process that holds it.
    pub(super) pid: u32,
    pub(super) up_s: f64,
    pub(super) hosts: Vec<Host>,
    pub(super) links: Vec<Link>,
    /// Packets that links handed over, and how late: the median, 99 of 100, the latest; µs.
    pub(super) packets: u64,
    pub(super) late_p50_us: f64,
    pub(super) late_p99_us: f64,
    pub(super) late_max_us: f64,
    /// Whether the links' thread is of the real-time class.
    pub(super) realtime: bool,
    /// Why what was measured on it should not be trusted.
    #[serde(rename = "faults")]
    pub(super) violations: Vec<String>,
}

/// A host.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Host {
    pub(super) name: String,
    /// The descriptor of its namespace in the daemon.
    pub(super) fd: i32,
    pub(super) addresses: Vec<String>,
    /// The address of the host at the other end.
    pub(super) peer: String,
    /// Of each path its round-trip time without queues, ms.
    pub(super) rtts_ms: Vec<f64>,
}

/// A link.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Link {
    pub(super) name: String,
    /// As the scenario writes it; none if it has none.
    pub(super) rate: Option<String>,
    pub(super) offered: u64,
    pub(super) delivered: u64,
    pub(super) delivered_bytes: u64,
    /// Packets dropped by the queue; lost at random or by script; for other reasons.
    pub(super) dropped: u64,
    pub(super) lost: u64,
    pub(super) other: u64,
    pub(super) queue_max_packets: u64,
}

/// What the daemon tells the command that started it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Started {
    Ready(State),
    Failed(String),
}

fn address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("{PREFIX}{name}"))
}

/// The laboratories that are up: this user's, and others' with their users' numbers.
#[derive(Debug, Default)]
pub(super) struct Labs {
    pub(super) own: Vec<String>,
    pub(super) others: Vec<(String, u32)>,
}

/// All laboratories that are up.
pub(super) fn labs() -> Labs {
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let name = |line: &str| Some(line.split_once(&format!(" @{PREFIX}"))?.1.to_owned());
    // Anybody may listen under any name.
    let mut names: Vec<String> = sockets.lines().filter_map(name).filter(|name| is_plain(name)).collect();
    names.sort_unstable();
    names.dedup();
    let mut labs = Labs::default();
    for name in names {
        // A connection has its listener's name too, and may outlive it by a moment.
        let Ok((stream, uid)) = connect(&name) else { continue };
        if uid != nix::unistd::geteuid().as_raw() {
            labs.others.push((name, uid));
        } else if exchange(stream, Request::State).is_ok() {
            labs.own.push(name);
        }
    }
    labs
}

/// A connection to a daemon, and whose it is.
fn connect(name: &str) -> io::Result<(UnixStream, u32)> {
    let stream = UnixStream::connect_addr(&address(name)?)?;
    let peer = getsockopt(&stream, PeerCredentials)?;
    Ok((stream, peer.uid()))
}

/// What can be asked of a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    State,
    /// End, after a last answer.
    Down,
}

impl Request {
    const fn word(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Down => "down",
        }
    }
}

/// Asks the daemon of a laboratory, and waits until it has ended if it was asked to.
pub(super) fn send_request(name: &str, request: Request) -> io::Result<State> {
    let (stream, uid) = connect(name)?;
    if uid != nix::unistd::geteuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to somebody else"));
    }
    exchange(stream, request)
}

fn exchange(mut stream: UnixStream, request: Request) -> io::Result<State> {
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    writeln!(stream, "{}", request.word())?;
    let mut text = String::new();
    stream.take(MESSAGE_BYTES_MAX).read_to_string(&mut text)?;
    serde_json::from_str(&text).map_err(io::Error::from)
}

/// Is the process that holds a laboratory: reads the scenario, tells whether it is up, and stays.
///
/// # Errors
/// 1 if its parent is gone or signals cannot be caught.
pub(super) fn run(name: &str, seed: u64) -> Outcome {
    let failed = |e: io::Error| Failure::other(e.to_string());
    // A session of its own: no terminal's Ctrl-C or end is meant for it.
    let _ = nix::unistd::setsid();
    let started = start(name, seed);
    let message = match &started {
        Ok(session) => Started::Ready(session.state(&session.testbed.running.snapshot())),
        Err(e) => Started::Failed(e.clone()),
    };
    let mut text = serde_json::to_string(&message).unwrap_or_default();
    text.push('\n');
    let mut out = io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(failed)?;
    // Whoever started it says why it did not work.
    let Ok(session) = started else { return Ok(()) };
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null").map_err(failed)?;
    nix::unistd::dup2_stdin(&null)
        .and_then(|()| nix::unistd::dup2_stdout(&null))
        .and_then(|()| nix::unistd::dup2_stderr(&null))
        .map_err(|e| failed(e.into()))?;
    session.serve().map_err(failed)
}

/// A laboratory that is up.
struct Session {
    name: String,
    scenario: Scenario,
    testbed: Testbed,
    listener: UnixListener,
}

fn start(name: &str, seed: u64) -> Result<Session, String> {
    let mut text = String::new();
    let read = io::stdin().take(MESSAGE_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|e| format!("the scenario cannot be read: {e}"))?;
    let scenario: Scenario = serde_json::from_str(&text).map_err(|e| format!("no scenario came: {e}"))?;
    scenario.check().map_err(|e| e.to_string())?;
    // First of all, so that of two at once one is refused.
    let listener = address(name).and_then(|address| UnixListener::bind_addr(&address));
    let listener = listener.map_err(|e| match e.kind() {
        io::ErrorKind::AddrInUse => format!("{name} is up already: anabranch lab down {name}"),
        _ => format!("cannot listen as {name}: {e}"),
    })?;
    let testbed = Testbed::new(&scenario, seed).map_err(|e| e.to_string())?;
    for host in testbed.pairs.iter().flat_map(|pair| [&pair.tx, &pair.rx]) {
        orphans::label(host, name).map_err(|e| format!("cannot name a host: {e}"))?;
    }
    Ok(Session { name: name.into(), scenario, testbed, listener })
}

impl Session {
    /// Answers until it is asked, or told by a signal, to end.
    fn serve(self) -> io::Result<()> {
        let (wake, stop) = stop_signals().map_err(io::Error::other)?;
        let mut poller = Poller::new(Clock::start());
        self.listener.set_nonblocking(true)?;
        while !stop.load(Ordering::Relaxed) {
            poller.wait(
                [(self.listener.as_fd(), Interest::Read), (wake.as_fd(), Interest::Read)],
                Time::NEVER,
            )?;
            let Ok((stream, _)) = self.listener.accept() else { continue };
            // Whoever asks and goes away harms nobody.
            if matches!(self.answer(&stream), Ok(Request::Down)) {
                let Self { name, scenario, testbed, listener } = self;
                let last = state(&name, &scenario, &testbed, &testbed.running.snapshot());
                drop(listener);
                drop(testbed);
                // The answer ends with the process's hosts: who has it knows that they are gone.
                return send(&stream, &last);
            }
        }
        Ok(())
    }

    /// Reads what is asked, and answers unless it is the end.
    fn answer(&self, stream: &UnixStream) -> io::Result<Request> {
        let peer = getsockopt(stream, PeerCredentials)?;
        if peer.uid() != nix::unistd::geteuid().as_raw() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        let mut word = String::new();
        BufReader::new(stream.take(64)).read_line(&mut word)?;
        if word.trim() == Request::Down.word() {
            return Ok(Request::Down);
        }
        send(stream, &self.state(&self.testbed.running.snapshot()))?;
        Ok(Request::State)
    }

    fn state(&self, snapshot: &Snapshot) -> State {
        state(&self.name, &self.scenario, &self.testbed, snapshot)
    }
}

fn send(mut stream: &UnixStream, state: &State) -> io::Result<()> {
    stream.write_all(serde_json::to_string(state)?.as_bytes())
}

fn state(name: &str, scenario: &Scenario, testbed: &Testbed, snapshot: &Snapshot) -> State {
    let late = snapshot.lateness();
    let micros = |span: Span| span.as_nanos() as f64 / 1e3;
    let mut hosts = Vec::new();
    for pair in &testbed.pairs {
        let rtts_ms: Vec<f64> = pair.rtts.iter().map(|rtt| rtt.as_nanos() as f64 / 1e6).collect();
        let senders: Vec<String> = (0..pair.rtts.len()).map(|p| pair.sender(p).to_string()).collect();
        let receiver = pair.receiver().to_string();
        for (end, space, addresses, peer) in [
            ("tx", &pair.tx, senders.clone(), receiver.clone()),
            ("rx", &pair.rx, vec![receiver], senders[0].clone()),
        ] {
            let (name, fd) = (format!("{}.{end}", pair.name), space.as_fd().as_raw_fd());
            hosts.push(Host { name, fd, addresses, peer, rtts_ms: rtts_ms.clone() });
        }
    }
    let link = |(name, id): (&str, sim::LinkId)| {
        let stats = &snapshot.links[id.0 as usize];
        let (dropped, lost) = (stats.dropped.congestion(), stats.dropped.loss + stats.dropped.scripted);
        Link {
            name: name.into(),
            rate: scenario.link.get(name).and_then(|link| link.rate).map(|rate| rate.to_string()),
            offered: stats.offered,
            delivered: stats.delivered,
            delivered_bytes: stats.delivered_bytes,
            dropped,
            lost,
            other: stats.dropped.total() - dropped - lost,
            queue_max_packets: stats.queue_max_packets,
        }
    };
    State {
        name: name.into(),
        title: scenario.title.clone(),
        pid: std::process::id(),
        up_s: snapshot.at.as_nanos() as f64 / 1e9,
        hosts,
        links: testbed.links().map(link).collect(),
        packets: late.count(),
        late_p50_us: micros(late.quantile(0.5)),
        late_p99_us: micros(late.quantile(0.99)),
        late_max_us: micros(late.max()),
        realtime: snapshot.realtime,
        violations: violations(&testbed.pairs, snapshot).0,
    }
}
