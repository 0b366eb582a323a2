//! A world in virtual time: sources that are there or not, behind links with loss; mirrors that answer, are
//! slow, fall silent, break off, lie or are overloaded; links that come and go; names that take their time; a
//! clock that leaps; a caller who stops. All of it by a seed.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anabranch_algo::{Span, Time};
use anabranch_http::client::{
    Event, FetchError, FetchId, FetchRequest, Head, METADATA_BYTES, RequestKind, RouteId,
};
use anabranch_mirror::url::Url;
use anabranch_net::{Egress, WakeReceiver, Waker};

use super::disk::{Files, files};
use super::sim_source::SimSource;
use crate::get::world::{Arrival, OpenSocket, SocketId, World};
use crate::{Result, Stop};

/// Bytes of one piece of a body.
const PIECE_BYTES: u64 = 32 << 10;
/// What each link carries, bytes a second, and what waits at its far end at most.
const RATE_BYTES: u64 = 2_000_000;
const QUEUE: Span = Span::from_millis(150);
/// When the HTTP client gives up a server that says nothing.
const SILENCE: Span = Span::from_secs(30);
/// A file system that fills up has at most so many bytes more left than the content is long.
const SLACK_BYTES: u64 = 16 << 10;
/// Waits of one run: more are taken for a loop without end.
const WAITS_MAX: u64 = 200_000;

/// Numbers by a seed (SplitMix64).
pub(super) struct Rng(pub(super) u64);

impl Rng {
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    /// True once in `n` times.
    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn millis(&mut self, from: u64, to: u64) -> Span {
        Span::from_millis(from + self.below(to - from))
    }
}

/// What a mirror is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nature {
    /// It answers rightly and at once.
    Good,
    /// It falls silent, breaks off, or answers that it cannot now, some of the time.
    Faulty,
    /// Like that, and some of its bytes are wrong.
    Liar,
    /// It does not have the file.
    Empty,
    /// It takes connections and says nothing.
    #[cfg(test)]
    Mute,
}

/// What comes of one fetch, and when.
struct Coming {
    at: Time,
    id: FetchId,
    /// The link that it comes over; none: it comes in any case.
    link: Option<usize>,
    event: Event,
}

/// A datagram under way to here.
struct Packet {
    at: Time,
    socket: SocketId,
    bytes: Vec<u8>,
}

/// A UDP socket.
#[derive(Clone, Copy)]
struct SimSocket {
    link: usize,
    /// Its other end.
    source: usize,
}

/// See the [module](self).
pub(super) struct SimWorld {
    now: Time,
    rng: Rng,
    stop: Stop,
    wake: WakeReceiver,
    content: Rc<Vec<u8>>,
    leaves: Rc<Vec<u8>>,
    /// By their numbers, which are in their names.
    natures: Vec<Nature>,
    links: Vec<Egress>,
    up: Vec<bool>,
    /// When the next link comes or goes, when the caller stops, when the clock leaps.
    flap_at: Time,
    stop_at: Time,
    leap_at: Time,
    /// When it is killed, and the directory that it writes to then.
    kill: Option<(Time, PathBuf)>,
    /// What was in that directory when it was killed.
    pub(super) left: Option<Files>,
    /// The bytes that the target's file system has left; none: as many as are wanted.
    pub(super) room: Option<u64>,
    changed: bool,
    /// When each name is known.
    names: BTreeMap<String, Time>,
    coming: Vec<Coming>,
    /// Until when a route is busy with what was asked before.
    busy: BTreeMap<RouteId, Time>,
    /// By their numbers; none: nobody listens there.
    sources: Vec<Option<SimSource>>,
    /// None: a number that is free.
    sockets: Vec<Option<SimSocket>>,
    packets: Vec<Packet>,
    /// Until when each link is busy with packets.
    sending: Vec<Time>,
    /// How often it was waited for.
    pub(super) waits: u64,
    /// Body bytes that came over each link.
    pub(super) came: Vec<u64>,
}

impl SimWorld {
    /// `calm`: links stay, nobody stops, no leap.
    pub(super) fn new(
        seed: u64,
        calm: bool,
        stop: Stop,
        natures: &[Nature],
        sources: &[bool],
        (content, leaves): (Rc<Vec<u8>>, Rc<Vec<u8>>),
    ) -> Self {
        let mut rng = Rng(seed);
        // All of 127/8 is local everywhere.
        let links = ["127.0.0.1", "127.0.0.2"].map(|text| Egress::parse(text).expect("a local address"));
        let mut at = |most_ms: u64, odds: u64| match calm || !rng.one_in(odds) {
            true => Time::NEVER,
            false => Time::ZERO + rng.millis(1, most_ms),
        };
        let (flap_at, stop_at, leap_at) = (at(2_000, 2), at(4_000, 3), at(3_000, 4));
        // By numbers of its own: with a full disk or without, the rest of the world is the same.
        let mut own = Rng(!seed);
        let is_filling = !calm && own.one_in(4);
        let room = is_filling.then(|| own.below(content.len() as u64 + SLACK_BYTES));
        Self {
            now: Time::ZERO,
            up: vec![true, calm || rng.one_in(2)],
            rng,
            stop,
            wake: WakeReceiver::new().expect("descriptors"),
            natures: natures.to_vec(),
            sources: sources.iter().map(|is_there| is_there.then(|| SimSource::new(&content))).collect(),
            content,
            leaves,
            sockets: Vec::new(),
            packets: Vec::new(),
            sending: vec![Time::ZERO; links.len()],
            came: vec![0; links.len()],
            links: links.to_vec(),
            flap_at,
            stop_at,
            leap_at,
            kill: None,
            left: None,
            room,
            changed: false,
            names: BTreeMap::new(),
            coming: Vec::new(),
            busy: BTreeMap::new(),
            waits: 0,
        }
    }

    /// It is killed at `at`: what is in `dir` then is what it leaves. For want of a process it is also
    /// stopped.
    pub(super) fn kill(&mut self, at: Time, dir: &Path) {
        self.kill = Some((at, dir.to_owned()));
    }

    fn put(&mut self, at: Time, id: FetchId, link: Option<usize>, event: Event) {
        self.coming.push(Coming { at, id, link, event });
    }

    fn fail(&mut self, at: Time, id: FetchId, error: FetchError) {
        self.put(at, id, None, Event::Failed { id, error });
    }

    /// The bytes of an answer, a piece after the other; returns when it is over.
    fn body(&mut self, from: Time, id: FetchId, link: usize, nature: Nature, mut bytes: Vec<u8>) -> Time {
        if nature == Nature::Liar && self.rng.one_in(3) && !bytes.is_empty() {
            let at = self.rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1;
        }
        // Of a hundred answers of a faulty mirror some fall silent and some break off.
        let fate = if nature == Nature::Good { 99 } else { self.rng.below(100) };
        let pieces = (bytes.len() as u64).div_ceil(PIECE_BYTES);
        let last = if fate < 15 { self.rng.below(pieces + 1) } else { pieces };
        let pace = self.rng.millis(2, 40);
        let mut at = from;
        for piece in bytes.chunks(PIECE_BYTES as usize).take(last as usize) {
            at += pace;
            let bytes = piece.to_vec().into();
            self.put(at, id, Some(link), Event::Body { id, bytes });
        }
        match fate {
            0..7 => {
                at += SILENCE;
                self.fail(at, id, FetchError::Broken("it stalled".into()));
            }
            7..15 => self.fail(at, id, FetchError::Broken("it broke off".into())),
            _ => self.put(at, id, Some(link), Event::Done { id }),
        }
        at
    }

    /// Lets the time pass up to `until`, and what is to happen by then.
    fn pass(&mut self, until: Time) {
        self.now = self.now.max(until);
        if self.now >= self.flap_at {
            let link = self.rng.below(self.links.len() as u64) as usize;
            self.up[link] = !self.up[link];
            self.changed = true;
            self.flap_at = self.now + self.rng.millis(50, 5_000);
            if !self.up[link] {
                let gone = self.coming.iter().filter(|coming| coming.link == Some(link));
                let gone: std::collections::BTreeSet<FetchId> = gone.map(|coming| coming.id).collect();
                let is_over = |packet: &Packet| {
                    self.sockets[packet.socket].as_ref().is_none_or(|socket| socket.link == link)
                };
                self.packets.retain(|packet| !is_over(packet));
                self.coming.retain(|coming| !gone.contains(&coming.id));
                for id in gone {
                    self.fail(self.now + SILENCE, id, FetchError::Broken("nothing comes".into()));
                }
            }
        }
        if self.now >= self.leap_at {
            self.leap_at = Time::NEVER;
            self.now += Span::from_secs(5 + self.rng.below(600));
        }
        if let Some((_, dir)) = self.kill.take_if(|(at, _)| self.now >= *at) {
            self.left = Some(files(&dir));
            self.stop.stop();
        }
        if self.now >= self.stop_at {
            self.stop_at = Time::NEVER;
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
        let come = self.coming.iter().filter(|_| http).map(|coming| coming.at);
        let names = self.names.values().copied().filter(|at| *at > self.now);
        let kill_at = self.kill.as_ref().map_or(Time::NEVER, |(at, _)| *at);
        let world = [self.flap_at, self.stop_at, self.leap_at, kill_at];
        let packets = self.packets.iter().map(|packet| packet.at);
        let next = come.chain(names).chain(packets).chain(world).fold(until, Time::min);
        assert!(next < Time::NEVER, "nothing would ever end this wait");
        self.pass(next);
        Ok(())
    }

    fn secret(&mut self) -> Result<[u8; 32]> {
        Ok(std::array::from_fn(|_| self.rng.below(256) as u8))
    }

    fn waker(&self) -> Waker {
        self.wake.waker()
    }

    fn open_http(&mut self) -> Result<()> {
        Ok(())
    }

    fn is_proxied(&self, _: &str) -> bool {
        false
    }

    fn fetch(&mut self, id: FetchId, request: FetchRequest) {
        assert!(self.coming.iter().all(|coming| coming.id != id), "{id} is under way");
        let link = if request.via == Egress::any() {
            self.up.iter().position(|up| *up)
        } else {
            self.links.iter().position(|via| *via == request.via).filter(|link| self.up[*link])
        };
        let from = self.now.max(self.busy.get(&request.route).copied().unwrap_or(Time::ZERO));
        let url = Url::parse(&request.url).expect("a URL");
        let number: usize = url.host().trim_start_matches('m').parse().expect("its number");
        let nature = self.natures[number];
        let Some(link) = link else {
            return self.fail(from + Span::from_millis(1), id, FetchError::Unreachable("no link".into()));
        };
        #[cfg(test)]
        if nature == Nature::Mute {
            return;
        }
        let at = from + self.rng.millis(5, 120);
        if nature != Nature::Good && self.rng.one_in(12) {
            return match self.rng.below(3) {
                0 => self.fail(at, id, FetchError::Busy { retry: None }),
                1 => self.fail(at, id, FetchError::ServerError { status: 500, retry: None }),
                _ => self.fail(at + SILENCE, id, FetchError::Unreachable("no connection".into())),
            };
        }
        let is_leaves = url.path().ends_with(anabranch_mirror::leaf_list::SUFFIX);
        let length = self.content.len() as u64;
        let head = Head {
            url: request.url.clone(),
            status: 206,
            length: Some(length),
            ranges: true,
            // Without one nothing of an unknown content would be resumed.
            etag: Some("\"v1\"".to_owned()),
            nth: 1,
            ..Head::default()
        };
        let head = Event::Head { id, head: Box::new(head) };
        let end = match request.kind {
            _ if nature == Nature::Empty => {
                self.fail(at, id, FetchError::NotFound(404));
                at
            }
            RequestKind::Metadata => {
                self.put(at, id, Some(link), head);
                let bytes = self.content[..self.content.len().min(METADATA_BYTES as usize)].to_vec().into();
                self.put(at, id, Some(link), Event::Opening { id, bytes });
                self.put(at, id, Some(link), Event::Done { id });
                at
            }
            RequestKind::Range { first, end, length: expected, .. } => {
                assert_eq!(expected, length);
                self.put(at, id, Some(link), head);
                let bytes = self.content[first as usize..end as usize].to_vec();
                self.body(at, id, link, nature, bytes)
            }
            RequestKind::Document { max } if is_leaves && self.leaves.len() <= max => {
                self.put(at, id, Some(link), head);
                let bytes = self.leaves.to_vec();
                self.body(at, id, link, nature, bytes)
            }
            RequestKind::Document { .. } => {
                self.fail(at, id, FetchError::NotFound(404));
                at
            }
        };
        self.busy.insert(request.route, end);
    }

    fn cancel(&mut self, id: FetchId) {
        self.coming.retain(|coming| coming.id != id);
    }

    fn window(&mut self, _: RouteId, _: u64) {}

    fn take_http(&mut self, into: &mut Vec<Event>) {
        // In the order of their times; of one time, as they were put.
        self.coming.sort_by_key(|coming| coming.at);
        let due = self.coming.partition_point(|coming| coming.at <= self.now);
        for coming in self.coming.drain(..due) {
            if let (Some(link), Event::Body { bytes, .. }) = (coming.link, &coming.event) {
                self.came[link] += bytes.len() as u64;
            }
            into.push(coming.event);
        }
    }

    fn reset_http(&mut self) {
        self.coming.clear();
        self.busy.clear();
    }

    fn open_udp(&mut self, via: &Egress, peer: SocketAddr) -> io::Result<OpenSocket> {
        let link = self.links.iter().position(|link| link == via).filter(|link| self.up[*link]);
        let link = link.ok_or(io::ErrorKind::NetworkDown)?;
        let id = self.sockets.iter().position(Option::is_none).unwrap_or(self.sockets.len());
        if id == self.sockets.len() {
            self.sockets.push(None);
        }
        self.sockets[id] = Some(SimSocket { link, source: usize::from(peer.port()) - 1 });
        Ok(OpenSocket { id, port: 40_000, payload_max: 1_472, receive_buffer: 4 << 20 })
    }

    fn close_udp(&mut self, socket: SocketId) {
        self.sockets[socket] = None;
        self.packets.retain(|packet| packet.socket != socket);
    }

    fn send(&mut self, socket: SocketId, bytes: &[u8]) -> bool {
        let Some(SimSocket { link, source }) = self.sockets[socket] else { return true };
        let Some(source) = &mut self.sources[source] else { return self.rng.one_in(2) };
        if !self.up[link] {
            return false;
        }
        let there = self.now + Span::from_millis(10 + 25 * link as u64);
        let from = SocketAddr::from(([192, 0, 2, link as u8], 1_000 + socket as u16));
        for bytes in source.answer(there, from, bytes) {
            let starts = self.sending[link].max(there);
            if starts.since(there) > QUEUE || self.rng.one_in(200) {
                continue;
            }
            let lasts = Span::from_nanos(bytes.len() as u64 * 1_000_000_000 / RATE_BYTES);
            self.sending[link] = starts + lasts;
            let at = starts + lasts + Span::from_millis(10 + 25 * link as u64);
            self.packets.push(Packet { at, socket, bytes });
        }
        true
    }

    fn receive(&mut self, _: bool, each: &mut dyn FnMut(SocketId, Arrival<'_>)) {
        self.packets.sort_by_key(|packet| packet.at);
        let due = self.packets.partition_point(|packet| packet.at <= self.now);
        for Packet { socket, bytes, .. } in self.packets.drain(..due) {
            if let Some(SimSocket { link, .. }) = self.sockets[socket] {
                self.came[link] += bytes.len() as u64;
            }
            each(socket, Arrival::Datagrams { bytes: &bytes, stride: bytes.len(), marked: false });
        }
    }

    fn is_bound(&self, socket: SocketId, _: &Egress) -> bool {
        self.sockets[socket].as_ref().is_some_and(|socket| self.up[socket.link])
    }

    fn resolve(&mut self, host: &str) -> Option<io::Result<Vec<SocketAddr>>> {
        let (now, after) = (self.now, self.rng.millis(0, 300));
        let known_at = *self.names.entry(host.to_owned()).or_insert(now + after);
        (now >= known_at).then(|| Ok(vec![SocketAddr::from(([10, 0, 0, 1], 0))]))
    }

    fn forget_failures(&mut self) {}

    fn local_ends(&self, _: &[Egress], _: IpAddr) -> io::Result<Vec<Egress>> {
        let up = self.links.iter().zip(&self.up).filter(|(_, up)| **up);
        Ok(up.map(|(via, _)| via.clone()).collect())
    }

    /// What is sent without a local end reaches everybody there.
    fn other_ends(&self, _: IpAddr) -> Vec<Egress> {
        Vec::new()
    }

    /// Each link is a line.
    fn uplink(&self, via: &Egress) -> Option<u32> {
        self.links.iter().position(|link| link == via).map(|link| link as u32)
    }

    fn is_up(&self, via: &Egress) -> bool {
        self.links.iter().position(|link| link == via).is_none_or(|link| self.up[link])
    }

    fn links_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }
}
