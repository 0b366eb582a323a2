//! Runs the process that holds a setup; other processes find it and talk to it through this module.
//!
//! The holder listens on a socket with an abstract name, which is in no file system (unix(7)). The socket
//! ends with the process, as does everything else that the process holds. So no file can be out of date,
//! however the process ends.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

use anabranch_algo::Time;
use anabranch_net::{Clock, Interest, Poller};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use super::plain_name::is_plain;
use super::{Kind, State};
use crate::exit::{Failure, Outcome};
use crate::signals::stop_signals;

/// The largest size of a scenario or domain, and of an answer, in bytes.
const MESSAGE_BYTES_MAX: u64 = 64 << 20;
/// The largest size of a request, in bytes.
const REQUEST_BYTES_MAX: u64 = 256;
/// The longest time for which the other side may be silent.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Represents a setup in its holder.
pub(crate) trait Held: Sized {
    /// The state that it reports.
    type State: State;

    /// Returns the present state.
    fn state(&mut self) -> Self::State;

    /// Carries out a [`Request::Order`].
    ///
    /// # Errors
    /// If the order cannot be carried out; the error is a sentence.
    fn order(&mut self, order: &str) -> Result<(), String>;

    /// Takes the setup down, and returns its last state.
    fn end(self) -> Self::State;
}

/// Carries the message of the holder to the command that started it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Started<S> {
    Ready(S),
    Failed(String),
}

/// Returns the beginning of the sockets' names for a kind.
fn prefix(kind: Kind) -> String {
    format!("anabranch/{}/", kind.command())
}

fn address(kind: Kind, name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(prefix(kind) + name)
}

/// Lists the setups of a kind that are up: this user's, and those of other users with their user ids.
#[derive(Debug, Default)]
pub(crate) struct Ups {
    pub(crate) own: Vec<String>,
    pub(crate) others: Vec<(String, u32)>,
}

/// Finds all setups of a kind that are up.
pub(crate) fn ups(kind: Kind) -> Ups {
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let before = format!(" @{}", prefix(kind));
    let name = |line: &str| Some(line.split_once(&before)?.1.to_owned());
    // Any process may listen under any name, so only plain names are accepted.
    let mut names: Vec<String> = sockets.lines().filter_map(name).filter(|name| is_plain(name)).collect();
    names.sort_unstable();
    names.dedup();
    let mut ups = Ups::default();
    for name in names {
        // A connection also has its listener's name, and may outlive the listener by a moment.
        let Ok((stream, uid)) = connect(kind, &name) else { continue };
        if uid != nix::unistd::geteuid().as_raw() {
            ups.others.push((name, uid));
        } else if exchange::<IgnoredAny>(stream, Request::State).is_ok() {
            ups.own.push(name);
        }
    }
    ups
}

/// Connects to a holder. Returns the connection and the user id of the holder.
fn connect(kind: Kind, name: &str) -> io::Result<(UnixStream, u32)> {
    let stream = UnixStream::connect_addr(&address(kind, name)?)?;
    let peer = getsockopt(&stream, PeerCredentials)?;
    Ok((stream, peer.uid()))
}

/// Lists the requests to a holder. The answer to each is a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request<'a> {
    State,
    /// Take the setup down. The answer is its last state.
    Down,
    /// Carry out an order that only some kinds know. The answer is the state after it.
    Order(&'a str),
}

impl<'a> Request<'a> {
    const fn words(self) -> &'a str {
        match self {
            Self::State => "state",
            Self::Down => "down",
            Self::Order(order) => order,
        }
    }

    fn parse(words: &'a str) -> Self {
        match words {
            "state" => Self::State,
            "down" => Self::Down,
            order => Self::Order(order),
        }
    }
}

/// Sends a request to a holder and returns the answer, which after [`Request::Down`] comes when the setup is
/// down.
pub(crate) fn send_request<S: State>(name: &str, request: Request<'_>) -> io::Result<S> {
    let (stream, uid) = connect(S::KIND, name)?;
    if uid != nix::unistd::geteuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to somebody else"));
    }
    exchange(stream, request)
}

fn exchange<S: DeserializeOwned>(mut stream: UnixStream, request: Request<'_>) -> io::Result<S> {
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    writeln!(stream, "{}", request.words())?;
    let mut text = String::new();
    stream.take(MESSAGE_BYTES_MAX).read_to_string(&mut text)?;
    serde_json::from_str::<Result<S, String>>(&text)?.map_err(io::Error::other)
}

/// Runs the holder process. Reads the description of the setup from standard input, reports whether the setup
/// is up, and serves requests. `start` makes the setup from the description.
///
/// # Errors
/// 1 if its parent is gone or signals cannot be caught.
pub(crate) fn run<H: Held>(name: &str, start: impl FnOnce(&str) -> Result<H, String>) -> Outcome {
    let failed = |e: io::Error| Failure::other(e.to_string());
    // In its own session, the holder gets no Ctrl-C or hangup of a terminal.
    let _ = nix::unistd::setsid();
    let mut started = listen_and_start(name, start);
    let message = match &mut started {
        Ok((_, held)) => Started::Ready(held.state()),
        Err(e) => Started::Failed(e.clone()),
    };
    let mut text = serde_json::to_string(&message).unwrap_or_default();
    text.push('\n');
    let mut out = io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(failed)?;
    // The command that started the holder reports the failure.
    let Ok((listener, held)) = started else { return Ok(()) };
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null").map_err(failed)?;
    nix::unistd::dup2_stdin(&null)
        .and_then(|()| nix::unistd::dup2_stdout(&null))
        .and_then(|()| nix::unistd::dup2_stderr(&null))
        .map_err(|e| failed(e.into()))?;
    serve(listener, held).map_err(failed)
}

fn listen_and_start<H: Held>(
    name: &str,
    start: impl FnOnce(&str) -> Result<H, String>,
) -> Result<(UnixListener, H), String> {
    let kind = H::State::KIND;
    let mut text = String::new();
    let read = io::stdin().take(MESSAGE_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|e| format!("standard input cannot be read: {e}"))?;
    // Listen first: if two holders start at once, the second one finds the address in use.
    let listener = address(kind, name).and_then(|address| UnixListener::bind_addr(&address));
    let listener = listener.map_err(|e| match e.kind() {
        io::ErrorKind::AddrInUse => format!("{name} is up already: anabranch {} down {name}", kind.command()),
        _ => format!("cannot listen as {name}: {e}"),
    })?;
    Ok((listener, start(&text)?))
}

/// Answers requests until a request or a signal ends the holder.
fn serve(listener: UnixListener, mut held: impl Held) -> io::Result<()> {
    let (wake, stop) = stop_signals().map_err(io::Error::other)?;
    let mut poller = Poller::new(Clock::start());
    listener.set_nonblocking(true)?;
    while !stop.load(Ordering::Relaxed) {
        poller.wait([(listener.as_fd(), Interest::Read), (wake.as_fd(), Interest::Read)], Time::NEVER)?;
        let Ok((stream, _)) = listener.accept() else { continue };
        // A client that goes away early does no harm.
        if matches!(answer(&mut held, &stream), Ok(true)) {
            drop(listener);
            // The hosts are gone when the answer arrives, and the connection ends with it.
            return send(&stream, &Ok(held.end()));
        }
    }
    held.end();
    Ok(())
}

/// Reads a request and answers it, unless it is [`Request::Down`]. Returns whether it is `Down`.
fn answer<H: Held>(held: &mut H, stream: &UnixStream) -> io::Result<bool> {
    let peer = getsockopt(stream, PeerCredentials)?;
    if peer.uid() != nix::unistd::geteuid().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let mut words = String::new();
    BufReader::new(stream.take(REQUEST_BYTES_MAX)).read_line(&mut words)?;
    let done = match Request::parse(words.trim()) {
        Request::Down => return Ok(true),
        Request::State => Ok(()),
        Request::Order(order) => held.order(order),
    };
    send(stream, &done.map(|()| held.state()))?;
    Ok(false)
}

fn send(mut stream: &UnixStream, answer: &Result<impl Serialize, String>) -> io::Result<()> {
    stream.write_all(serde_json::to_string(answer)?.as_bytes())
}
