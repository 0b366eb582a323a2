//! From frames to instances and back: a machine without a socket and a clock. An instance is found by its MAC
//! or address in a hash table, so nothing here takes longer when there are more of them, except a list of
//! all.

use std::collections::{HashMap, VecDeque};
use std::net::Ipv4Addr;

use anabranch_algo::Time;
use anabranch_function::abi::{Answer, PACKET_BYTES_MAX, Side, Verdict};

use crate::error::{Error, Result};
use crate::frame::{ARP, Arp, HEADER_BYTES, Header, IPV4, Mac};
use crate::neighbours::Neighbours;
use crate::spec::{Place, Spec};

/// The most packets that wait while an instance stands still.
pub const WAITING_MAX: usize = 4_096;
/// Both sides.
pub const SIDES: [Side; 2] = [Side::Inside, Side::Outside];
/// The shortest IPv4 header, bytes.
const IP_BYTES_MIN: usize = 20;

/// A function that runs: what the plane needs of it.
pub trait Handle: Send {
    /// Hands it the packet in the first `len` bytes of `place`, which it may change.
    ///
    /// # Errors
    /// How it failed; it is not called again.
    fn packet(
        &mut self,
        now_ms: u64,
        from: Side,
        place: &mut [u8; PACKET_BYTES_MAX],
        len: usize,
    ) -> std::result::Result<Answer, String>;

    /// Returns what it says that it has done: lines `NAME NUMBER`.
    ///
    /// # Errors
    /// `Failed`, with how it failed.
    fn report(&mut self) -> Result<String>;

    /// Returns a copy of its state.
    ///
    /// # Errors
    /// `Failed` if there is none.
    fn state(&mut self) -> Result<Vec<u8>>;
}

/// What is to become of a frame, by what sends it: the side, and the frame.
pub type Sink<'a> = &'a mut dyn FnMut(Side, &[u8]);

/// What an instance does with packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// They go through its function.
    Runs,
    /// They wait.
    Still,
    /// They wait to be sent after the function, which is at another host.
    Away,
    /// They are dropped, as its function has failed in this way.
    Failed(String),
}

/// What happened to packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// They came for the instance.
    pub came: u64,
    /// They were sent on.
    pub passed: u64,
    /// They were answered.
    pub replied: u64,
    /// The function dropped them.
    pub dropped: u64,
    /// They were dropped by the host: malformed, without a next hop, too old, or too many waited.
    pub lost: u64,
}

/// What can be seen of an instance.
#[derive(Clone, Debug)]
pub struct Look {
    /// What it is made of.
    pub spec: Spec,
    /// What it does.
    pub phase: Phase,
    /// What happened to its packets.
    pub counters: Counters,
    /// How long it has run, at all hosts, milliseconds.
    pub age_ms: u64,
}

struct Entry {
    spec: Spec,
    handle: Box<dyn Handle>,
    phase: Phase,
    waiting: VecDeque<(Side, Vec<u8>)>,
    counters: Counters,
    /// Its time was `base_ms` when it was added.
    base_ms: u64,
    added: Time,
}

impl Entry {
    /// Has a frame wait, if there is room.
    fn wait(&mut self, side: Side, frame: &[u8]) {
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back((side, frame.to_vec()));
        } else {
            self.counters.came += 1;
            self.counters.lost += 1;
        }
    }

    fn age_ms(&self, now: Time) -> u64 {
        self.base_ms + now.since(self.added).as_millis()
    }
}

/// The instances of a host, and the neighbours at both sides.
pub struct Plane {
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
    by_name: HashMap<String, usize>,
    by_mac: HashMap<Mac, usize>,
    by_address: [HashMap<Ipv4Addr, usize>; 2],
    neighbours: [Neighbours; 2],
    /// Frames that were for no instance.
    unclaimed: u64,
    /// A frame that is being made.
    frame: Box<[u8; HEADER_BYTES + PACKET_BYTES_MAX]>,
    place: Box<[u8; PACKET_BYTES_MAX]>,
}

impl Default for Plane {
    fn default() -> Self {
        Self::new()
    }
}

impl Plane {
    /// Makes a plane without instances.
    #[must_use]
    pub fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            by_name: HashMap::new(),
            by_mac: HashMap::new(),
            by_address: Default::default(),
            neighbours: Default::default(),
            unclaimed: 0,
            frame: Box::new([0; HEADER_BYTES + PACKET_BYTES_MAX]),
            place: Box::new([0; PACKET_BYTES_MAX]),
        }
    }

    /// Returns how many instances there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Returns whether there is no instance.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Returns how many frames were for no instance.
    #[must_use]
    pub const fn unclaimed(&self) -> u64 {
        self.unclaimed
    }

    /// Checks that an instance could be added.
    ///
    /// # Errors
    /// `Refused` if its name, its MAC or an address is taken.
    pub fn check(&self, spec: &Spec) -> Result {
        let taken = |what: String| Err(Error::Refused(format!("{what} is taken by another instance")));
        if self.by_name.contains_key(&spec.name) {
            return taken(format!("the name {}", spec.name));
        }
        if self.by_mac.contains_key(&spec.mac) {
            return taken(format!("the MAC {}", spec.mac));
        }
        for side in SIDES {
            let Some(place) = spec.place(side) else { continue };
            if self.by_address[side as usize].contains_key(&place.address) {
                return taken(format!("the address {}", place.address));
            }
        }
        Ok(())
    }

    /// Adds an instance whose time is `age_ms` now, and tells its neighbours where it is; or with `is_still`,
    /// it stands still, and nothing is told.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn add(
        &mut self,
        now: Time,
        spec: &Spec,
        handle: Box<dyn Handle>,
        age_ms: u64,
        is_still: bool,
        send: Sink<'_>,
    ) -> Result {
        self.check(spec)?;
        let entry = Entry {
            spec: spec.clone(),
            handle,
            phase: if is_still { Phase::Still } else { Phase::Runs },
            waiting: VecDeque::new(),
            counters: Counters::default(),
            base_ms: age_ms,
            added: now,
        };
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.entries.push(None);
                self.entries.len() - 1
            }
        };
        self.entries[index] = Some(entry);
        self.by_name.insert(spec.name.clone(), index);
        self.by_mac.insert(spec.mac, index);
        for side in SIDES {
            if let Some(place) = spec.place(side) {
                self.by_address[side as usize].insert(place.address, index);
            }
        }
        if !is_still {
            self.announce(&spec.name, send);
        }
        Ok(())
    }

    /// Removes an instance, with the packets that wait for it. Returns whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        let Some(index) = self.by_name.remove(name) else { return false };
        let Some(entry) = self.entries[index].take() else { return false };
        self.free.push(index);
        self.by_mac.remove(&entry.spec.mac);
        for side in SIDES {
            if let Some(place) = entry.spec.place(side) {
                self.by_address[side as usize].remove(&place.address);
            }
        }
        true
    }

    fn entry(&mut self, name: &str) -> Result<&mut Entry> {
        let index = self.by_name.get(name).copied();
        let entry = index.and_then(|index| self.entries[index].as_mut());
        entry.ok_or_else(|| Error::NotFound(format!("there is no instance `{}` here", name.escape_default())))
    }

    /// Tells the neighbours of an instance where it is (gratuitous ARP, RFC 5227, section 3).
    pub fn announce(&mut self, name: &str, send: Sink<'_>) {
        let Ok(entry) = self.entry(name) else { return };
        for side in SIDES {
            if let Some(Place { address, .. }) = entry.spec.place(side) {
                send(side, &Arp::request(entry.spec.mac, address, address).to_frame(Mac::BROADCAST));
            }
        }
    }

    /// Looks at an instance.
    ///
    /// # Errors
    /// `NotFound` if there is none of this name.
    pub fn look(&mut self, now: Time, name: &str) -> Result<Look> {
        let entry = self.entry(name)?;
        Ok(look(entry, now))
    }

    /// Looks at all instances, by name.
    #[must_use]
    pub fn look_at_all(&self, now: Time) -> Vec<Look> {
        let mut all: Vec<Look> = self.entries.iter().flatten().map(|entry| look(entry, now)).collect();
        all.sort_by(|one, other| one.spec.name.cmp(&other.spec.name));
        all
    }

    /// Asks an instance what it has done.
    ///
    /// # Errors
    /// `NotFound`; `Failed` if it has failed, or does now.
    pub fn report(&mut self, name: &str) -> Result<String> {
        let entry = self.entry(name)?;
        if let Phase::Failed(how) = &entry.phase {
            return Err(Error::Failed(how.clone()));
        }
        let report = entry.handle.report();
        if let Err(e) = &report {
            entry.phase = Phase::Failed(e.to_string());
        }
        report
    }

    /// Returns the state of an instance, which runs on.
    ///
    /// # Errors
    /// `NotFound`; `Refused` if it has failed.
    pub fn state(&mut self, name: &str) -> Result<Vec<u8>> {
        let entry = self.entry(name)?;
        match &entry.phase {
            Phase::Failed(how) => Err(Error::Refused(format!("{name} has failed: {how}"))),
            _ => entry.handle.state(),
        }
    }

    /// Has an instance stand still: its packets wait from now on. Returns its state and its time.
    ///
    /// # Errors
    /// `NotFound`; `Refused` if it stands still already or has failed.
    pub fn hold(&mut self, now: Time, name: &str) -> Result<(Vec<u8>, u64)> {
        let entry = self.entry(name)?;
        match &entry.phase {
            Phase::Runs => {}
            Phase::Still | Phase::Away => {
                return Err(Error::Refused(format!("{name} is on its way already")));
            }
            Phase::Failed(how) => return Err(Error::Refused(format!("{name} has failed: {how}"))),
        }
        let state = entry.handle.state()?;
        entry.phase = Phase::Still;
        Ok((state, entry.age_ms(now)))
    }

    /// Has an instance that stands still run on; the packets that waited go through it first.
    ///
    /// # Errors
    /// `NotFound` if there is none of this name.
    pub fn go_on(&mut self, now: Time, name: &str, send: Sink<'_>) -> Result {
        let entry = self.entry(name)?;
        if entry.phase != Phase::Still {
            return Ok(());
        }
        entry.phase = Phase::Runs;
        for (side, frame) in std::mem::take(&mut entry.waiting) {
            self.handle(now, side, &frame, send);
        }
        Ok(())
    }

    /// Notes that an instance that stands still runs elsewhere: its packets wait to be taken there.
    ///
    /// # Errors
    /// `NotFound` if there is none of this name.
    pub fn leave(&mut self, name: &str) -> Result {
        self.entry(name)?.phase = Phase::Away;
        Ok(())
    }

    /// Takes the frames that wait, in their order.
    ///
    /// # Errors
    /// `NotFound` if there is none of this name.
    pub fn take_waiting(&mut self, name: &str) -> Result<Vec<(Side, Vec<u8>)>> {
        Ok(self.entry(name)?.waiting.drain(..).collect())
    }

    /// Handles a frame that came at a side.
    pub fn handle(&mut self, now: Time, side: Side, frame: &[u8], send: Sink<'_>) {
        let Some(header) = Header::parse(frame) else {
            self.unclaimed += 1;
            return;
        };
        match header.ethertype {
            ARP => self.arp(now, side, frame, send),
            IPV4 => match self.by_mac.get(&header.to).copied() {
                Some(index) => self.packet(now, side, header.from, index, frame, send),
                None => self.unclaimed += 1,
            },
            _ => self.unclaimed += 1,
        }
    }

    fn arp(&mut self, now: Time, side: Side, frame: &[u8], send: Sink<'_>) {
        let Some(arp) = Arp::parse(frame) else {
            self.unclaimed += 1;
            return;
        };
        let own = &self.by_address[side as usize];
        let index = own.get(&arp.target).copied();
        let entry = index.and_then(|index| self.entries[index].as_mut());
        match entry {
            // Two answers would have bridges send packets to and fro: the host that runs it answers.
            Some(entry) if [Phase::Still, Phase::Away].contains(&entry.phase) => {
                entry.wait(side, frame);
                return;
            }
            Some(entry) if arp.is_request => {
                let answer = Arp {
                    is_request: false,
                    mac: entry.spec.mac,
                    sender: arp.target,
                    target_mac: arp.mac,
                    target: arp.sender,
                };
                send(side, &answer.to_frame(arp.mac));
            }
            _ => {}
        }
        // An instance here is no neighbour, whatever somebody says of its address.
        let is_neighbour =
            !arp.sender.is_unspecified() && !self.by_address[side as usize].contains_key(&arp.sender);
        if is_neighbour {
            let frames = self.neighbours[side as usize].learn(now, arp.sender, arp.mac, index.is_some());
            frames.iter().for_each(|frame| send(side, frame));
        }
    }

    fn packet(&mut self, now: Time, side: Side, from: Mac, index: usize, frame: &[u8], send: Sink<'_>) {
        let Some(entry) = self.entries[index].as_mut() else { return };
        entry.counters.came += 1;
        // Ethernet pads short frames: the packet says how long it is.
        let body = &frame[HEADER_BYTES..];
        let len = body.get(2..4).map_or(0, |len| usize::from(u16::from_be_bytes([len[0], len[1]])));
        let is_whole = (IP_BYTES_MIN..=body.len().min(PACKET_BYTES_MAX)).contains(&len);
        if !is_whole || entry.spec.place(side).is_none() {
            entry.counters.lost += 1;
            return;
        }
        match entry.phase {
            Phase::Runs => {}
            Phase::Failed(_) => {
                entry.counters.lost += 1;
                return;
            }
            Phase::Still | Phase::Away => {
                // It comes again, and is counted then.
                entry.counters.came -= 1;
                entry.wait(side, frame);
                return;
            }
        }
        self.place[..len].copy_from_slice(&body[..len]);
        let age_ms = entry.age_ms(now);
        match entry.handle.packet(age_ms, side, &mut self.place, len) {
            Err(how) => {
                entry.phase = Phase::Failed(how);
                entry.counters.lost += 1;
            }
            Ok(Answer { verdict: Verdict::Drop, .. }) => entry.counters.dropped += 1,
            Ok(Answer { verdict: Verdict::Reply, len }) => {
                entry.counters.replied += 1;
                let header = Header { to: from, from: entry.spec.mac, ethertype: IPV4 };
                send(side, self.framed(header, usize::from(len)));
            }
            Ok(Answer { verdict: Verdict::Pass, len }) => self.pass(now, side, index, usize::from(len), send),
        }
    }

    /// Makes the frame of a packet of this length.
    fn framed(&mut self, header: Header, len: usize) -> &mut [u8] {
        let frame = &mut self.frame[..HEADER_BYTES + len];
        header.write(frame);
        frame[HEADER_BYTES..].copy_from_slice(&self.place[..len]);
        frame
    }

    /// Sends the packet that a function has passed to its next hop.
    fn pass(&mut self, now: Time, side: Side, index: usize, len: usize, send: Sink<'_>) {
        let Some(entry) = self.entries[index].as_mut() else { return };
        let out = if entry.spec.outside.is_some() { side.other() } else { side };
        let next = next_hop(&entry.spec, out, &self.place[..len]);
        let Some(next) = next.filter(|_| spend_hop(&mut self.place[..len])) else {
            entry.counters.lost += 1;
            return;
        };
        let frame = &mut self.frame[..HEADER_BYTES + len];
        frame[HEADER_BYTES..].copy_from_slice(&self.place[..len]);
        let mac = entry.spec.mac;
        Header { to: Mac([0; 6]), from: mac, ethertype: IPV4 }.write(frame);
        let fate = self.neighbours[out as usize].send(now, next, frame);
        if fate.asks
            && let Some(own) = entry.spec.place(out)
        {
            send(out, &Arp::request(mac, own.address, next).to_frame(Mac::BROADCAST));
        }
        if fate.is_dropped {
            entry.counters.lost += 1;
            return;
        }
        entry.counters.passed += 1;
        if let Some(to) = fate.to {
            frame[..6].copy_from_slice(&to.0);
            send(out, frame);
        }
    }
}

fn look(entry: &Entry, now: Time) -> Look {
    Look {
        spec: entry.spec.clone(),
        phase: entry.phase.clone(),
        counters: entry.counters,
        age_ms: entry.age_ms(now),
    }
}

/// Returns the neighbour to which a packet goes that leaves at a side.
fn next_hop(spec: &Spec, out: Side, packet: &[u8]) -> Option<Ipv4Addr> {
    let to = packet.get(16..20)?;
    let to = Ipv4Addr::new(to[0], to[1], to[2], to[3]);
    let place = spec.place(out)?;
    let is_own = to == place.address || to == spec.inside.address;
    if is_own || to.is_multicast() || to.is_broadcast() || to.is_unspecified() {
        return None;
    }
    match out {
        _ if place.contains(to) => Some(to),
        Side::Outside => spec.gateway,
        Side::Inside => None,
    }
}

/// Lowers the time to live of a packet by one, and its checksum with it (RFC 1141). Returns whether it may go
/// on.
fn spend_hop(packet: &mut [u8]) -> bool {
    if packet.len() < IP_BYTES_MIN || packet[8] <= 1 {
        return false;
    }
    packet[8] -= 1;
    let sum = u32::from(u16::from_be_bytes([packet[10], packet[11]])) + 0x100;
    let sum = (sum + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    true
}

#[cfg(test)]
mod tests;
