//! A flow between its two hosts over real sockets that are kept busy.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use anabranch_algo::{Span, Time};
use anabranch_net::Interest;
use anabranch_net::netlink::{SockDiag, TcpState};
use nix::errno::Errno;
use socket2::{Domain, Protocol, Socket, Type};

use super::kernel_name;
use super::testbed::HostPair;
use crate::observations::{FlowEnd, Transfer};
use crate::run::flow_instances::FlowInstance;

/// Port on which every receiver listens, each in a namespace of its own.
const PORT: u16 = 5_001;
/// Bytes written or read by one call.
const CHUNK_BYTES: usize = 128 << 10;
/// Most chunks that one socket may read or write before others have their turn.
const CHUNKS_MAX: usize = 64;
/// Age at which a flow must have a subflow on each path: enough for a handshake that is lost once.
const JOIN_MAX: Span = Span::from_secs(3);

/// A buffer for bytes to send and for bytes received.
pub(super) struct Chunk(Box<[u8]>);

impl Chunk {
    pub(super) fn new() -> Self {
        Self(vec![0; CHUNK_BYTES].into_boxed_slice())
    }
}

/// The state of a flow's life cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    Connecting,
    Sending,
    /// All bytes are written, but not all are received.
    Draining,
    Over,
}

/// The counters of a path.
#[derive(Clone, Debug, Default)]
struct Path {
    /// Time at which the path's subflow was first seen.
    joined: Option<Time>,
    srtt: Span,
    cwnd: u32,
    /// Bytes that were acknowledged on the path.
    bytes: u64,
}

/// A flow between two hosts; see the [module](self).
pub(super) struct SocketFlow {
    name: String,
    congestion: String,
    phase: Phase,
    start: Time,
    stop: Option<Time>,
    /// Bytes still to be written; `None` for a transfer without end.
    left: Option<u64>,
    size: Option<u64>,
    tx: Option<Socket>,
    listener: Socket,
    rx: Option<Socket>,
    to: SocketAddr,
    diag: SockDiag,
    began: Option<Time>,
    ended: Option<Time>,
    /// Time at which the flow stopped, if that was before the end of the run.
    over: Option<Time>,
    received: u64,
    paths: Vec<Path>,
    /// Errors of the sockets.
    violations: Vec<String>,
}

/// The action for a descriptor that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Accept,
    Receive,
    Send,
}

impl SocketFlow {
    /// Opens the flow's sockets in its hosts; none is connected yet.
    pub(super) fn new(instance: &FlowInstance<'_>, pair: &HostPair, size: Option<u64>) -> io::Result<Self> {
        let several = instance.flow.paths.len() > 1;
        let congestion = kernel_name(instance.controller).unwrap_or_else(|| instance.controller.into());
        let socket = || -> io::Result<Socket> {
            let protocol = if several { Protocol::MPTCP } else { Protocol::TCP };
            let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(protocol))?;
            socket.set_nonblocking(true)?;
            // However this process ends, no socket must stay behind to send the rest.
            socket.set_linger(Some(Duration::ZERO))?;
            let said = |e: io::Error| io::Error::new(e.kind(), format!("controller `{congestion}`: {e}"));
            socket.set_tcp_congestion(congestion.as_bytes()).map_err(said)?;
            Ok(socket)
        };
        let to = SocketAddr::new(pair.receiver(), PORT);
        let listener = pair.rx.run(|| {
            let listener = socket()?;
            listener.bind(&to.into())?;
            listener.listen(1)?;
            Ok::<_, io::Error>(listener)
        })??;
        let (tx, diag) = pair.tx.run(|| {
            let tx = socket()?;
            tx.bind(&SocketAddr::new(pair.sender(0), 0).into())?;
            Ok::<_, io::Error>((tx, SockDiag::open()?))
        })??;
        Ok(Self {
            name: instance.name.clone(),
            congestion,
            phase: Phase::Waiting,
            start: instance.start,
            stop: instance.flow.stop.map(|stop| stop.time()),
            left: size,
            size,
            tx: Some(tx),
            listener,
            rx: None,
            to,
            diag,
            began: None,
            ended: None,
            over: None,
            received: 0,
            paths: vec![Path::default(); instance.flow.paths.len()],
            violations: Vec::new(),
        })
    }

    /// Returns the time at which the flow next has to act by the clock.
    pub(super) fn next(&self) -> Time {
        match self.phase {
            Phase::Waiting => self.start,
            Phase::Over => Time::NEVER,
            _ => self.stop.unwrap_or(Time::NEVER),
        }
    }

    /// Starts or stops the flow if its time has come.
    pub(super) fn tick(&mut self, now: Time) {
        if self.next() > now {
            return;
        }
        if self.phase != Phase::Waiting {
            // The bytes in flight are of no use any more.
            self.close(now);
            return;
        }
        self.phase = Phase::Connecting;
        self.began = Some(now);
        let Some(tx) = &self.tx else { return };
        match tx.connect(&self.to.into()) {
            Err(e) if e.raw_os_error() != Some(Errno::EINPROGRESS as i32) => self.fail(now, &e),
            _ => {}
        }
    }

    fn close(&mut self, now: Time) {
        (self.phase, self.tx, self.rx) = (Phase::Over, None, None);
        self.over = Some(now);
    }

    fn fail(&mut self, now: Time, error: &io::Error) {
        if self.phase == Phase::Connecting {
            self.began = None;
        }
        self.violations.push(format!("flow {}: its connection broke: {error}", self.name));
        self.close(now);
    }

    /// Returns the descriptors to wait for.
    pub(super) fn wants(&self) -> impl Iterator<Item = (Role, BorrowedFd<'_>, Interest)> {
        let live = self.phase != Phase::Waiting && self.phase != Phase::Over;
        let accept =
            (live && self.rx.is_none()).then(|| (Role::Accept, self.listener.as_fd(), Interest::Read));
        let receive = self.rx.as_ref().map(|rx| (Role::Receive, rx.as_fd(), Interest::Read));
        let sends = matches!(self.phase, Phase::Connecting | Phase::Sending);
        let send = self.tx.as_ref().filter(|_| sends);
        let send = send.map(|tx| (Role::Send, tx.as_fd(), Interest::ReadWrite));
        [accept, receive, send].into_iter().flatten()
    }

    /// Serves a socket that is ready for the action `role`.
    pub(super) fn serve(&mut self, now: Time, role: Role, chunk: &mut Chunk) {
        let done = match role {
            Role::Accept => self.accept(),
            Role::Receive => self.receive(now, chunk),
            Role::Send => self.send(chunk),
        };
        match done {
            Err(e) if !is_transient(&e) => self.fail(now, &e),
            _ => {}
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        let (rx, _) = self.listener.accept()?;
        rx.set_nonblocking(true)?;
        rx.set_linger(Some(Duration::ZERO))?;
        self.rx = Some(rx);
        Ok(())
    }

    fn receive(&mut self, now: Time, chunk: &mut Chunk) -> io::Result<()> {
        let Some(rx) = &mut self.rx else { return Ok(()) };
        for _ in 0..CHUNKS_MAX {
            let bytes = rx.read(&mut chunk.0)?;
            self.received += bytes as u64;
            if self.size.is_some_and(|size| self.received >= size) {
                self.ended = self.ended.or(Some(now));
            }
            if bytes == 0 {
                if self.size.is_none_or(|size| self.received < size) {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the sender closed it"));
                }
                self.close(now);
                return Ok(());
            }
        }
        Ok(())
    }

    fn send(&mut self, chunk: &Chunk) -> io::Result<()> {
        let Some(tx) = &mut self.tx else { return Ok(()) };
        if self.phase == Phase::Connecting {
            if let Some(error) = tx.take_error()? {
                return Err(error);
            }
            tx.peer_addr()?;
            self.phase = Phase::Sending;
        }
        for _ in 0..CHUNKS_MAX {
            let most = self.left.map_or(CHUNK_BYTES, |left| usize::try_from(left).unwrap_or(CHUNK_BYTES));
            if most == 0 {
                tx.shutdown(Shutdown::Write)?;
                self.phase = Phase::Draining;
                return Ok(());
            }
            let bytes = tx.write(&chunk.0[..most.min(CHUNK_BYTES)])?;
            self.left = self.left.map(|left| left - bytes as u64);
        }
        Ok(())
    }

    /// Reads the kernel's counters of the flow's subflows.
    pub(super) fn poll_subflows(&mut self, now: Time, pair: &HostPair) {
        for socket in self.diag.tcp(TcpState::LIVE).unwrap_or_default() {
            let on = (0..self.paths.len()).find(|p| pair.sender(*p) == socket.local.ip());
            let (Some(p), Some(info)) = (on, socket.info) else { continue };
            if socket.remote != self.to || socket.state == TcpState::SynSent {
                continue;
            }
            let several = self.paths.len() > 1;
            let path = &mut self.paths[p];
            (path.srtt, path.cwnd) = (Span::from_micros(info.rtt_us.into()), info.cwnd);
            path.bytes = path.bytes.max(info.bytes_acked);
            if path.joined.is_some() {
                continue;
            }
            path.joined = Some(now);
            let congestion = socket.congestion.unwrap_or_default();
            if congestion != self.congestion {
                let wanted = &self.congestion;
                let name = &self.name;
                self.violations
                    .push(format!("flow {name}, path {p}: has controller `{congestion}`, not `{wanted}`"));
            }
            if several && socket.subflow.is_none() {
                self.violations
                    .push(format!("flow {}, path {p}: is plain TCP, no subflow of MPTCP", self.name));
            }
        }
        if let [path] = &mut self.paths[..] {
            path.bytes = self.received;
        }
    }

    /// Returns the bytes that the receiver has read.
    pub(super) const fn total(&self) -> u64 {
        self.received
    }

    /// Returns the bytes that were acknowledged on each path. The kernel may send some bytes on two paths,
    /// and delivers bytes in order only.
    pub(super) fn bytes(&self) -> Vec<u64> {
        self.paths.iter().map(|path| path.bytes).collect()
    }

    /// Returns the window of each path, packets.
    pub(super) fn cwnds(&self) -> Vec<f32> {
        self.paths.iter().map(|path| path.cwnd as f32).collect()
    }

    /// Returns the state of the flow at the end of the run.
    pub(super) fn end(&self, pair: &HostPair) -> FlowEnd {
        let srtts = self.paths.iter().map(|path| path.srtt).collect();
        let began = self.began.filter(|_| self.phase != Phase::Connecting);
        let transfers = began.map(|began| Transfer { began, ended: self.ended }).into_iter().collect();
        FlowEnd { transfers, srtts, timeouts: timeouts(pair).unwrap_or(0), reductions: None }
    }

    /// Returns the errors of the flow, including subflows that joined late or never. `counted` is the time
    /// at which counting begins.
    pub(super) fn violations(&self, now: Time, counted: Time) -> Vec<String> {
        let mut violations = self.violations.clone();
        let Some(began) = self.began else { return violations };
        let due = counted.max(began + JOIN_MAX);
        if self.over.unwrap_or(now) < began + JOIN_MAX {
            return violations;
        }
        for (p, path) in self.paths.iter().enumerate() {
            if path.joined.is_none_or(|joined| joined > due) {
                violations.push(format!("flow {}, path {p}: its subflow was not there in time", self.name));
            }
        }
        violations
    }
}

/// Whether the operation may succeed later.
fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Returns the timeouts of all sockets of the sending host (`TCPTimeouts` of its `/proc/net/netstat`).
fn timeouts(pair: &HostPair) -> Option<u64> {
    let text = pair.tx.run(|| std::fs::read_to_string("/proc/thread-self/net/netstat")).ok()?.ok()?;
    counter(&text, "TcpExt:", "TCPTimeouts")
}

/// Returns a counter of `/proc/net/netstat`, which has a line of names and then a line of numbers.
fn counter(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(group));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let place = names.split_whitespace().position(|word| word == name)?;
    numbers.split_whitespace().nth(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read() {
        let text = "TcpExt: A TCPTimeouts B\nTcpExt: 1 23 4\nIpExt: X\nIpExt: 9\n";
        assert_eq!(counter(text, "TcpExt:", "TCPTimeouts"), Some(23));
        assert_eq!(counter(text, "IpExt:", "X"), Some(9));
        assert_eq!(counter(text, "TcpExt:", "C"), None);
        assert_eq!(counter("TcpExt: A", "TcpExt:", "A"), None);
    }
}
