//! The agent of another host, as a source sees it.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use anabranch_house::keys::Pairing;
use anabranch_house::tls::{ClientStream, ClientTls};
use anabranch_machines::journal::{Arrival, Asked};
use anabranch_machines::wire::{Lines, MoveId};
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::{Error, Result};
use crate::mover::Destination;
use crate::spec::Spec;
use crate::wire::{ALPN, Ask, FRAMES_MAX, Frame, Told};

/// The longest time until a connection is made.
const CONNECT: Duration = Duration::from_secs(3);
/// The longest time until an answer comes.
const ANSWER: Duration = Duration::from_secs(5);

/// The longest time until an answer comes while packets wait, before the other connection is tried.
const URGENT: Duration = Duration::from_secs(1);

/// How a connection is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Over all paths that the kernel's Multipath TCP has.
    AllPaths,
    /// Over the path that the kernel chooses, by TCP.
    OnePath,
}

/// A connection to an agent.
#[derive(Debug)]
pub struct Remote {
    lines: Lines<ClientStream>,
    peer: SocketAddr,
}

fn ended(e: &io::Error) -> Error {
    Error::Unreachable(format!("the connection to the other host ended: {e}"))
}

fn unexpected(told: &Told) -> Error {
    Error::Failed(format!("the other host answers another question: {told:?}"))
}

impl Remote {
    /// Connects to an agent at an address.
    ///
    /// # Errors
    /// `Unreachable` if it does not answer; `Refused` if it has another key, or does not know ours.
    pub fn connect(peer: SocketAddr, pairing: &Pairing, way: Way) -> Result<Self> {
        let failed = |e: io::Error| Error::Unreachable(format!("no agent is reached at {peer}: {e}"));
        let domain = Domain::for_address(peer);
        let socket = |protocol| Socket::new(domain, Type::STREAM, Some(protocol));
        let socket = match way {
            Way::AllPaths => socket(Protocol::MPTCP).or_else(|_| socket(Protocol::TCP)),
            Way::OnePath => socket(Protocol::TCP),
        };
        let socket = socket.map_err(failed)?;
        socket.connect_timeout(&peer.into(), CONNECT).map_err(failed)?;
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(ANSWER)).map_err(failed)?;
        stream.set_write_timeout(Some(ANSWER)).map_err(failed)?;
        let tls = ClientTls::new(pairing, ALPN).connect_blocking(stream);
        let stream = tls.map_err(anabranch_machines::Error::from)?;
        Ok(Self { lines: Lines::new(stream), peer })
    }

    /// Connects by the first of these addresses that works.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), for the last one.
    pub fn connect_any(known: SocketAddr, addresses: &[IpAddr], pairing: &Pairing) -> Result<Self> {
        let others = addresses.iter().map(|ip| SocketAddr::new(*ip, known.port()));
        let connect = |at| Self::connect(at, pairing, Way::AllPaths);
        connect(known).or_else(|e| others.filter(|at| *at != known).find_map(|at| connect(at).ok()).ok_or(e))
    }

    /// Returns the address of the agent.
    #[must_use]
    pub const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Returns the addresses by which the host is reached. The address of this connection comes first.
    ///
    /// # Errors
    /// As those of a [`Destination`].
    pub fn addresses(&mut self) -> Result<Vec<IpAddr>> {
        match self.ask(&Ask::Hello, &[])? {
            Told::Hello { mut addresses } => {
                addresses.retain(|ip| *ip != self.peer.ip());
                addresses.insert(0, self.peer.ip());
                Ok(addresses)
            }
            other => Err(unexpected(&other)),
        }
    }

    fn ask(&mut self, ask: &Ask, bytes: &[u8]) -> Result<Told> {
        self.lines.send(ask).and_then(|()| self.lines.send_bytes(bytes)).map_err(|e| ended(&e))?;
        let told = self.lines.receive::<Told>();
        match told.and_then(|told| told.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())) {
            Ok(Told::Refused { text }) => Err(Error::Refused(text)),
            Ok(told) => Ok(told),
            Err(e) if anabranch_house::tls::is_key_unknown(&e) => {
                Err(Error::Refused(anabranch_house::tls::explain(&e)))
            }
            Err(e) => Err(ended(&e)),
        }
    }

    fn done_after(&mut self, ask: &Ask, bytes: &[u8]) -> Result {
        match self.ask(ask, bytes)? {
            Told::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}

impl Destination for Remote {
    fn prepare(&mut self, id: &MoveId, spec: &Spec, module: &[u8]) -> Result {
        match self.ask(&Ask::Have { module: spec.module.clone() }, &[])? {
            Told::Have { is_there: true } => {}
            Told::Have { is_there: false } => {
                self.done_after(&Ask::Module { bytes: module.len() }, module)?;
            }
            other => return Err(unexpected(&other)),
        }
        self.done_after(&Ask::Prepare { id: id.clone(), spec: Box::new(spec.clone()) }, &[])
    }

    fn state(&mut self, id: &MoveId, age_ms: Option<u64>, delta: &[u8]) -> Result {
        self.done_after(&Ask::State { id: id.clone(), age_ms, bytes: delta.len() }, delta)
    }

    fn decide(&mut self, id: &MoveId, asked: Asked) -> Result<Arrival> {
        match self.ask(&Ask::Decide { id: id.clone(), asked }, &[])? {
            Told::Decided { state } => Ok(state),
            other => Err(unexpected(&other)),
        }
    }

    fn frames(&mut self, id: &MoveId, frames: &[Frame]) -> Result {
        for some in frames.chunks(FRAMES_MAX) {
            let heads = some.iter().map(|(side, frame)| (*side as u32, frame.len())).collect();
            let bytes: Vec<u8> = some.iter().flat_map(|(_, frame)| frame.iter().copied()).collect();
            self.done_after(&Ask::Frames { id: id.clone(), frames: heads }, &bytes)?;
        }
        Ok(())
    }

    fn done(&mut self, id: &MoveId) -> Result {
        self.done_after(&Ask::Done { id: id.clone() }, &[])
    }
}

/// Two connections to an agent: one over all paths for what is long, and one of TCP for what packets wait
/// for. Multipath TCP of Linux 6.18 was seen to hold a short message back for 200 ms; TCP was not. If the
/// second connection fails, the first one carries all: every message may come twice.
#[derive(Debug)]
pub struct Pair {
    /// Over all paths.
    pub bulk: Remote,
    /// By TCP; `None` when it has failed.
    pub urgent: Option<Remote>,
}

impl Pair {
    /// Adds the second connection to one over all paths.
    #[must_use]
    pub fn new(bulk: Remote, pairing: &Pairing) -> Self {
        let urgent = Remote::connect(bulk.peer, pairing, Way::OnePath).ok();
        if let Some(urgent) = &urgent {
            let _ = urgent.lines.stream().sock.set_read_timeout(Some(URGENT));
        }
        Self { bulk, urgent }
    }

    fn urgently<R>(&mut self, ask: impl Fn(&mut Remote) -> Result<R>) -> Result<R> {
        if let Some(urgent) = &mut self.urgent {
            match ask(urgent) {
                Err(Error::Unreachable(_)) => self.urgent = None,
                told => return told,
            }
        }
        ask(&mut self.bulk)
    }
}

impl Destination for Pair {
    fn prepare(&mut self, id: &MoveId, spec: &Spec, module: &[u8]) -> Result {
        self.bulk.prepare(id, spec, module)
    }

    fn state(&mut self, id: &MoveId, age_ms: Option<u64>, delta: &[u8]) -> Result {
        match age_ms {
            None => self.bulk.state(id, age_ms, delta),
            Some(_) => self.urgently(|remote| remote.state(id, age_ms, delta)),
        }
    }

    fn decide(&mut self, id: &MoveId, asked: Asked) -> Result<Arrival> {
        self.urgently(|remote| remote.decide(id, asked))
    }

    fn frames(&mut self, id: &MoveId, frames: &[Frame]) -> Result {
        self.urgently(|remote| remote.frames(id, frames))
    }

    fn done(&mut self, id: &MoveId) -> Result {
        self.urgently(|remote| remote.done(id))
    }
}
