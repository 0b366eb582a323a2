//! The world in virtual time.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::rc::Rc;

use anabranch_algo::{Span, Time};
use anabranch_http::client::{Event, FetchId, FetchRequest, RouteId};
use anabranch_net::{Clock, Egress, Interest, Poller, WakeReceiver, Waker};

use super::datagrams::Datagrams;
use super::disk::{Files, files};
use super::mirror::Servers;
use super::mirrors::Mirrors;
use super::rng::Rng;
use super::weather::Weather;
use crate::get::world::{Arrival, Held, Hold, OpenSocket, SocketId, World, hold_of};
use crate::{Result, Stop};

/// The largest number of waits in a run; more are taken for an endless loop.
const WAITS_MAX: u64 = 200_000;

/// The real time for which threads are waited for, if nothing else happens.
const THREADS_FOR: Span = Span::from_millis(5);
/// The real time for which threads are waited for before a kill. It is long enough that they have written all
/// they had to write, however busy this machine is.
const THREADS_BEFORE_KILL: Span = Span::from_millis(50);

/// The world in virtual time, as a [`World`].
pub(in crate::get) struct SimWorld {
    now: Time,
    rng: Rng,
    stop: Stop,
    wake: WakeReceiver,
    /// Whether threads, which live in real time, may be at work: those that give files their final names.
    has_threads: Cell<bool>,
    host: Host,
    weather: Weather,
    /// The time at which the look-up of each name ends.
    names: BTreeMap<String, Time>,
    mirrors: Mirrors,
    datagrams: Datagrams,
    /// The files of the directory at the moment of the kill.
    pub(in crate::get) left: Option<Files>,
    waits: u64,
    /// The bytes that came over each link: of bodies of documents and ranges, and of datagrams.
    pub(in crate::get) came: Vec<u64>,
}

/// The links of the simulated host.
struct Host {
    links: Vec<Egress>,
    up: Vec<bool>,
    /// Whether a link has come or gone since the transfer last looked.
    has_changed: bool,
    held: Held,
}

impl SimWorld {
    /// Makes a world. `servers` are the mirrors by their hosts, and `idle` is how long the HTTP client waits
    /// for a silent one. `sources` says for each source of `content` whether it is there.
    pub(in crate::get) fn new(
        seed: u64,
        weather: Weather,
        stop: Stop,
        (servers, idle): (Servers, Span),
        (sources, content): (&[bool], &Rc<Vec<u8>>),
    ) -> Self {
        // All of 127/8 is local on every host.
        let links = ["127.0.0.1", "127.0.0.2"].map(|text| Egress::parse(text).expect("a local address"));
        let up = vec![true, weather.has_second_link];
        let host = Host { links: links.to_vec(), up, has_changed: false, held: Held::new() };
        Self {
            now: Time::ZERO,
            rng: Rng::new(seed),
            stop,
            wake: WakeReceiver::new().expect("descriptors"),
            has_threads: Cell::new(false),
            weather,
            names: BTreeMap::new(),
            mirrors: Mirrors::new(servers, idle),
            datagrams: Datagrams::new(sources, content, links.len()),
            left: None,
            waits: 0,
            came: vec![0; links.len()],
            host,
        }
    }

    /// Returns whether a thread ends the wait within this real time.
    fn is_woken(&self, within: Span) -> bool {
        if !self.has_threads.get() {
            return false;
        }
        let clock = Clock::start();
        let wake = [(self.wake.as_fd(), Interest::Read)];
        let waited = Poller::new(clock).wait(wake, clock.now() + within);
        waited.is_ok() && self.wake.drain()
    }

    /// Takes a random link down, or up if it is down.
    fn flap(&mut self) {
        let link = self.rng.below(self.host.links.len() as u64) as usize;
        self.weather.flap_at = self.now + self.rng.millis(50, 5_000);
        self.set_up(link, !self.host.up[link]);
    }

    fn set_up(&mut self, link: usize, is_up: bool) {
        self.host.up[link] = is_up;
        self.host.has_changed = true;
        if !is_up {
            self.datagrams.lose(link);
            self.mirrors.lose(self.now, link);
        }
    }

    /// Lets the time pass up to `until`, and does what the weather has for that time.
    fn pass(&mut self, until: Time) {
        self.now = self.now.max(until);
        if self.now >= self.weather.flap_at {
            self.flap();
        }
        while let Some((link, is_up)) = self.weather.change(self.now) {
            self.set_up(link, is_up);
        }
        if let Some(leap) = self.weather.leap(self.now, &mut self.rng) {
            self.now += leap;
        }
        if let Some(dir) = self.weather.killed(self.now) {
            while self.is_woken(THREADS_BEFORE_KILL) {}
            // The files that are there now are those that the kill leaves. The run is then stopped, as it is
            // no process that could be killed.
            self.left = Some(files(&dir));
            self.stop.stop();
        }
        if self.weather.stops(self.now) {
            self.stop.stop();
        }
    }
}

impl World for SimWorld {
    fn now(&self) -> Time {
        self.now
    }

    fn wait(&mut self, until: Time, http: bool) -> io::Result<()> {
        self.waits += 1;
        assert!(self.waits < WAITS_MAX, "it turns and turns");
        let names = self.names.values().copied().filter(|at| *at > self.now);
        let http = if http { self.mirrors.next() } else { Time::NEVER };
        let next = names.chain([http, self.datagrams.next(), self.weather.next()]).fold(until, Time::min);
        assert!(next < Time::NEVER, "nothing would ever end this wait");
        if next < until || !self.is_woken(THREADS_FOR) {
            self.pass(next);
        }
        Ok(())
    }

    fn secret(&mut self) -> Result<[u8; 32]> {
        Ok(std::array::from_fn(|_| self.rng.below(256) as u8))
    }

    fn waker(&self) -> Waker {
        self.has_threads.set(true);
        self.wake.waker()
    }

    fn open_http(&mut self) -> Result<()> {
        Ok(())
    }

    fn is_proxied(&self, _: &str) -> bool {
        false
    }

    fn fetch(&mut self, id: FetchId, request: FetchRequest) {
        let link = if request.via == Egress::any() {
            self.host.up.iter().position(|up| *up)
        } else {
            self.host.links.iter().position(|via| *via == request.via).filter(|link| self.host.up[*link])
        };
        self.mirrors.fetch(self.now, id, request, link);
    }

    fn cancel(&mut self, id: FetchId) {
        self.mirrors.cancel(self.now, id);
    }

    fn window(&mut self, _: RouteId, _: u64) {}

    fn take_http(&mut self, into: &mut Vec<Event>) {
        self.mirrors.take(self.now, &mut self.came, into);
    }

    fn reset_http(&mut self) {
        self.mirrors.reset();
    }

    fn open_udp(&mut self, via: &Egress, peer: SocketAddr) -> io::Result<OpenSocket> {
        let link = self.host.links.iter().position(|link| link == via).filter(|link| self.host.up[*link]);
        Ok(self.datagrams.open(link.ok_or(io::ErrorKind::NetworkDown)?, peer))
    }

    fn close_udp(&mut self, socket: SocketId) {
        self.datagrams.close(socket);
    }

    fn send(&mut self, socket: SocketId, bytes: &[u8]) -> bool {
        match self.datagrams.socket(socket) {
            Some(end) if !self.host.up[end.link] => false,
            _ => self.datagrams.send(self.now, socket, bytes, &mut self.rng),
        }
    }

    fn receive(&mut self, _: bool, each: &mut dyn FnMut(SocketId, Arrival<'_>)) {
        self.datagrams.receive(self.now, &mut self.came, each);
    }

    fn is_bound(&self, socket: SocketId, _: &Egress) -> bool {
        self.datagrams.socket(socket).is_some_and(|end| self.host.up[end.link])
    }

    fn resolve(&mut self, host: &str) -> Option<io::Result<Vec<SocketAddr>>> {
        let (now, after) = (self.now, self.rng.millis(0, 300));
        let known_at = *self.names.entry(host.to_owned()).or_insert(now + after);
        (now >= known_at).then(|| Ok(vec![SocketAddr::from(([10, 0, 0, 1], 0))]))
    }

    fn forget_failures(&mut self) {}

    fn local_ends(&self, _: &[Egress], _: IpAddr) -> io::Result<Vec<Egress>> {
        let up = self.host.links.iter().zip(&self.host.up).filter(|(_, up)| **up);
        Ok(up.map(|(via, _)| via.clone()).collect())
    }

    /// A packet that is sent without a local end reaches every peer of this world.
    fn other_ends(&self, _: IpAddr) -> Vec<Egress> {
        Vec::new()
    }

    /// Each link is an uplink of its own.
    fn uplink(&self, via: &Egress) -> Option<u32> {
        self.host.links.iter().position(|link| link == via).map(|link| link as u32)
    }

    fn exists(&self, via: &Egress) -> bool {
        self.host.links.iter().position(|link| link == via).is_none_or(|link| self.host.up[link])
    }

    fn hold(&mut self, held: Held) {
        self.host.held = held;
    }

    fn held(&self, via: &Egress) -> Option<Hold> {
        hold_of(&self.host.held, via)
    }

    fn links_changed(&mut self) -> bool {
        std::mem::take(&mut self.host.has_changed)
    }
}
