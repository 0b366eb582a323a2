//! A thread that serves: it waits for its connections, and gives each its turn.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;

use anabranch_algo::fair_share::{FairShare, Place, Yields, host_of};
use anabranch_algo::{Span, Time};
use anabranch_net::WakeReceiver;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::answer::bad;
use super::connection::{Connection, Turn, Wants};
use super::count::Count;
use super::fill::Mailbox;
use super::site::Site;

/// The most connections of a server, all threads together. A further one replaces an idle one, or one of a
/// host that has more; if there is none, it is refused with 503.
const CONNECTIONS_MAX: usize = 4_096;
/// The most events that are taken at once.
const EVENTS_MAX: usize = 256;
/// The most connections that are accepted at once.
const ACCEPTS_MAX: usize = 64;
/// How often connections that are late are looked for.
const SWEEP_EVERY: Span = Span::from_secs(1);
const SWEEP_MS: u16 = 1_000;
/// The tokens of what is no connection.
const LISTENER: u64 = u64::MAX;
const WAKE: u64 = u64::MAX - 1;

/// A thread's connections.
pub(super) struct Worker {
    site: Arc<Site>,
    socket: TcpListener,
    wake: WakeReceiver,
    mailbox: Arc<Mailbox>,
    epoll: Epoll,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    share: FairShare<IpAddr>,
    /// The connection of each place.
    places: BTreeMap<Place, usize>,
    serial: u64,
    buffer: Vec<u8>,
    /// A descriptor that is given up to accept, and refuse, a connection when no other one is left.
    spare: Option<File>,
    /// Whether the socket is out of the set, since not even that descriptor is left.
    is_deaf: bool,
}

/// Opens a descriptor that only keeps its number from others.
fn spare() -> io::Result<File> {
    File::open("/dev/null")
}

/// Whether the process or the system has no descriptor left.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| code == Errno::EMFILE as i32 || code == Errno::ENFILE as i32)
}

fn flags(wants: Wants) -> EpollFlags {
    match wants {
        Wants::Read => EpollFlags::EPOLLIN,
        Wants::Write => EpollFlags::EPOLLOUT,
        Wants::Object | Wants::End => EpollFlags::empty(),
    }
}

/// The event of the socket that listens: one thread is woken for a connection, not all.
fn listens() -> EpollEvent {
    EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE, LISTENER)
}

impl Worker {
    pub(super) fn new(
        site: Arc<Site>,
        socket: TcpListener,
        wake: WakeReceiver,
        threads: usize,
    ) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&socket, listens())?;
        let mailbox = Arc::new(Mailbox::new(wake.waker()));
        epoll.add(wake.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, WAKE))?;
        Ok(Self {
            site,
            socket,
            wake,
            mailbox,
            epoll,
            connections: Vec::new(),
            free: Vec::new(),
            share: FairShare::new((CONNECTIONS_MAX / threads) as u64),
            places: BTreeMap::new(),
            serial: 0,
            buffer: Vec::new(),
            spare: Some(spare()?),
            is_deaf: false,
        })
    }

    /// Serves until the site is stopped.
    pub(super) fn run(mut self) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); EVENTS_MAX];
        let mut sweep_at = self.site.clock.now() + SWEEP_EVERY;
        while !self.site.is_stopped() {
            let count = match self.epoll.wait(&mut events, EpollTimeout::from(SWEEP_MS)) {
                Ok(count) => count,
                Err(Errno::EINTR) => 0,
                Err(error) => return Err(error.into()),
            };
            let now = self.site.clock.now();
            for event in &events[..count] {
                match event.data() {
                    LISTENER => self.accept(now),
                    WAKE => {
                        self.wake.drain();
                        self.deliver(now);
                    }
                    token if self.is_gone(token as usize, event.events()) => self.close(token as usize),
                    token => self.turn(token as usize, now, |connection, turn| connection.go(turn)),
                }
            }
            if now >= sweep_at {
                sweep_at = now + SWEEP_EVERY;
                self.sweep(now);
            }
        }
        Ok(())
    }

    /// Gives a connection its turn.
    fn turn(&mut self, token: usize, now: Time, act: impl FnOnce(&mut Connection, &mut Turn<'_>)) {
        let Some(connection) = self.connections.get_mut(token).and_then(Option::as_mut) else { return };
        let before = connection.wants;
        let (site, mailbox, buffer) = (&self.site, &self.mailbox, &mut self.buffer);
        act(connection, &mut Turn { site, mailbox, token, now, buffer });
        let wants = connection.wants;
        self.share.heard(now, connection.place);
        if wants != before {
            let yields = if connection.is_used() { Yields::IfOverShare } else { Yields::First };
            self.share.set_yields(connection.place, yields);
            let mut event = EpollEvent::new(flags(wants), token as u64);
            if wants == Wants::End || self.epoll.modify(connection.stream(), &mut event).is_err() {
                self.close(token);
            }
        }
    }

    /// Returns whether a client has gone away that waits for an object. Others are found by reading or
    /// writing.
    fn is_gone(&self, token: usize, events: EpollFlags) -> bool {
        let waits = self.connections.get(token).and_then(Option::as_ref);
        events.intersects(EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP)
            && waits.is_some_and(|connection| connection.wants == Wants::Object)
    }

    fn close(&mut self, token: usize) {
        // Closing the socket takes it out of the set.
        if let Some(connection) = self.connections.get_mut(token).and_then(Option::take) {
            self.share.release(connection.place);
            self.places.remove(&connection.place);
            self.free.push(token);
        }
    }

    fn accept(&mut self, now: Time) {
        for _ in 0..ACCEPTS_MAX {
            let (stream, peer) = match self.socket.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if is_out_of_descriptors(&error) && self.accept_to_refuse() => continue,
                // The rest wait in the kernel: for another thread, or until there are descriptors again.
                Err(_) => return,
            };
            let Ok((place, gives_way)) = self.share.ask(now, host_of(peer.ip()), Yields::First) else {
                self.refuse(&stream);
                continue;
            };
            if let Some(token) = gives_way.and_then(|place| self.places.get(&place).copied()) {
                self.close(token);
            }
            self.serial += 1;
            let token = self.free.pop().unwrap_or(self.connections.len());
            let opened = Connection::new(stream, place, self.serial, now).and_then(|connection| {
                self.epoll.add(connection.stream(), EpollEvent::new(flags(Wants::Read), token as u64))?;
                Ok(connection)
            });
            let Ok(connection) = opened else {
                self.share.release(place);
                self.free.push(token);
                continue;
            };
            self.places.insert(place, token);
            if token == self.connections.len() {
                self.connections.push(None);
            }
            self.connections[token] = Some(connection);
            // Its request has often come with it.
            self.turn(token, now, |connection, turn| connection.go(turn));
        }
    }

    /// Accepts a connection in the place of the spare descriptor, and refuses it. Otherwise the socket would
    /// be ready again at once, and the thread would do nothing else. Returns whether that was possible; if
    /// not, the socket is heard again at the next sweep.
    fn accept_to_refuse(&mut self) -> bool {
        let had = self.spare.take().is_some();
        let accepted = self.socket.accept();
        if let Ok((stream, _)) = &accepted {
            self.refuse(stream);
        }
        let is_refused = had && accepted.is_ok();
        drop(accepted);
        self.spare = spare().ok();
        if !self.is_deaf && !is_refused {
            self.is_deaf = self.epoll.delete(&self.socket).is_ok();
        }
        is_refused
    }

    /// Tells a client that there are too many connections.
    fn refuse(&self, stream: &TcpStream) {
        self.site.counters.count(Count::Refused);
        let _ = stream.set_nonblocking(true);
        // It fits into the empty buffer of a new socket.
        let _ = io::Write::write(&mut &*stream, &bad(503, "too many connections"));
    }

    /// Continues the connections whose objects have come.
    fn deliver(&mut self, now: Time) {
        for (token, serial, outcome) in self.mailbox.take() {
            self.turn(token, now, |connection, turn| {
                if connection.serial == serial {
                    connection.fetched(turn, outcome);
                }
            });
        }
    }

    fn sweep(&mut self, now: Time) {
        self.spare = self.spare.take().or_else(|| spare().ok());
        if self.is_deaf && self.spare.is_some() {
            self.is_deaf = self.epoll.add(&self.socket, listens()).is_err();
        }
        for token in 0..self.connections.len() {
            if self.connections[token].as_ref().is_some_and(|connection| connection.is_late(now)) {
                self.close(token);
            }
        }
    }
}
