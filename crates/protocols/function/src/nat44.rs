//! Network address translation between IPv4 and IPv4 with port blocks: each user has a block of ports of the
//! one outside address, so that a log has one line for each user, not one for each flow (RFC 6888, REQ-14;
//! RFC 7422). A mapping serves all destinations and is found by its port alone (RFC 4787, REQ-1: endpoint
//! independent). Errors of ICMP are translated with the packet in them (RFC 5508, section 4). Which block a
//! user has depends on the seed.
//!
//! Not here: hairpinning (RFC 4787, REQ-9), and fragments, which are dropped.

use crate::abi::{Side, Verdict};
use crate::flow::Address;
use crate::function::{About, Function};
use crate::packet::{End, Ends, Packet};
use crate::report::Report;
use crate::settings::{Wrong, number_within};
use crate::table::{Key as _, Plain};

/// The most users at once, each with a block.
const USERS: usize = 256;
/// The most ports of a block.
const PORTS: usize = 64;
/// The first port: the lower ones belong to services (RFC 6056, section 3.2).
const FIRST_PORT: usize = 1_024;
/// How long a mapping may be silent, unless set, milliseconds (RFC 4787, REQ-5: at least two minutes).
const IDLE_MS: u64 = 300_000;

/// A user's port that has a port outside.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Mapping {
    /// When the user sent by it, milliseconds; 0 if it was never used.
    used_ms: u64,
    port: u16,
    protocol: u16,
    reserved: u32,
}

/// A user and its block.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct User {
    /// When it sent, milliseconds; 0 if the block was never used.
    used_ms: u64,
    address: u32,
    reserved: u32,
    mappings: [Mapping; PORTS],
}

const NO_MAPPING: Mapping = Mapping { used_ms: 0, port: 0, protocol: 0, reserved: 0 };
const NO_USER: User = User { used_ms: 0, address: 0, reserved: 0, mappings: [NO_MAPPING; PORTS] };

/// A NAT.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Nat44 {
    outside: u32,
    reserved: u32,
    /// The ports of a block; 0 for [`PORTS`].
    block: u64,
    /// How long a mapping may be silent, milliseconds; 0 for [`IDLE_MS`].
    idle_ms: u64,
    passed: u64,
    dropped: u64,
    out_of_ports: u64,
    out_of_blocks: u64,
    users: [User; USERS],
}

#[expect(unsafe_code, reason = "a NAT is integers")]
// SAFETY: it consists of numbers and arrays of them.
unsafe impl Plain for Nat44 {}

impl Nat44 {
    const fn idle_ms(&self) -> u64 {
        if self.idle_ms == 0 { IDLE_MS } else { self.idle_ms }
    }

    const fn block(&self) -> usize {
        if self.block == 0 { PORTS } else { self.block as usize }
    }

    fn is_idle(&self, used_ms: u64, now_ms: u64) -> bool {
        used_ms == 0 || now_ms.saturating_sub(used_ms) > self.idle_ms()
    }

    /// Returns the place of a user, which is taken if the user is new.
    fn user(&mut self, about: About, address: u32) -> Option<usize> {
        let start = Address(address).mix(about.seed) as usize % USERS;
        let mut free = None;
        for place in (start..USERS).chain(0..start) {
            let user = &self.users[place];
            if user.used_ms != 0 && user.address == address {
                return Some(place);
            }
            if self.is_idle(user.used_ms, about.now_ms) {
                free = free.or(Some(place));
            }
            if user.used_ms == 0 {
                break;
            }
        }
        let place = free?;
        self.users[place] = User { address, used_ms: about.now_ms, ..NO_USER };
        Some(place)
    }

    /// Returns the port outside of a user's port, with a new mapping if it has none.
    fn port_outside(&mut self, about: About, ends: &Ends) -> Option<u16> {
        let Some(user) = self.user(about, ends.from.address) else {
            self.out_of_blocks += 1;
            return None;
        };
        let (block, protocol) = (self.block(), u16::from(ends.protocol));
        let start = usize::from(ends.from.port) % block;
        let mut free = None;
        let mut found = None;
        for place in (start..block).chain(0..start) {
            let mapping = &self.users[user].mappings[place];
            if mapping.used_ms != 0 && (mapping.port, mapping.protocol) == (ends.from.port, protocol) {
                found = Some(place);
                break;
            }
            if self.is_idle(mapping.used_ms, about.now_ms) {
                free = free.or(Some(place));
            }
            if mapping.used_ms == 0 {
                break;
            }
        }
        let Some(place) = found.or(free) else {
            self.out_of_ports += 1;
            return None;
        };
        self.users[user].used_ms = about.now_ms;
        let mapping = Mapping { used_ms: about.now_ms, port: ends.from.port, protocol, reserved: 0 };
        self.users[user].mappings[place] = mapping;
        Some((FIRST_PORT + user * block + place) as u16)
    }

    /// Returns the user's end behind a port outside.
    fn end_inside(&self, now_ms: u64, protocol: u8, port: u16) -> Option<End> {
        let place = usize::from(port).checked_sub(FIRST_PORT)?;
        let user = self.users.get(place / self.block())?;
        let mapping = &user.mappings[place % self.block()];
        let is_right = mapping.protocol == u16::from(protocol) && !self.is_idle(mapping.used_ms, now_ms);
        is_right.then_some(End { address: user.address, port: mapping.port })
    }

    fn translate(&mut self, about: About, packet: &mut Packet<'_>) -> bool {
        if packet.is_fragment() {
            return false;
        }
        match (about.from, packet.ends()) {
            (Side::Inside, Some(ends)) => {
                let port = self.port_outside(about, &ends);
                port.map(|port| packet.set_from(End { address: self.outside, port })).is_some()
            }
            (Side::Outside, Some(ends)) if ends.to.address == self.outside => {
                let end = self.end_inside(about.now_ms, ends.protocol, ends.to.port);
                end.map(|end| packet.set_to(end)).is_some()
            }
            (Side::Outside, None) if packet.destination() == self.outside => {
                // An error about a packet that went out by a port of ours.
                let inner = packet.inner_ends().filter(|inner| inner.from.address == self.outside);
                let end =
                    inner.and_then(|inner| self.end_inside(about.now_ms, inner.protocol, inner.from.port));
                end.map(|end| packet.set_error(end.address, end)).is_some()
            }
            _ => false,
        }
    }
}

impl Function for Nat44 {
    const NEW: Self = Self {
        outside: 0,
        reserved: 0,
        block: 0,
        idle_ms: 0,
        passed: 0,
        dropped: 0,
        out_of_ports: 0,
        out_of_blocks: 0,
        users: [NO_USER; USERS],
    };

    fn set(&mut self, key: &str, value: &str) -> Result<(), Wrong> {
        match key {
            "block" => self.block = number_within(value, 1, PORTS as u64, "1 to 64 ports")?,
            "idle" => self.idle_ms = 1_000 * number_within(value, 1, 86_400, "1 to 86400 seconds")?,
            _ => return Err(Wrong("a NAT has block and idle")),
        }
        Ok(())
    }

    fn begin(&mut self, [_, outside]: [u32; 2]) -> Result<(), Wrong> {
        self.outside = outside;
        if outside == 0 { Err(Wrong("a NAT needs an outside address")) } else { Ok(()) }
    }

    fn packet(&mut self, about: About, packet: &mut Packet<'_>) -> Verdict {
        if self.translate(about, packet) {
            self.passed += 1;
            Verdict::Pass
        } else {
            self.dropped += 1;
            Verdict::Drop
        }
    }

    fn report(&self, now_ms: u64, report: &mut Report<'_>) {
        report.number("passed", self.passed);
        report.number("dropped", self.dropped);
        report.number("out_of_ports", self.out_of_ports);
        report.number("out_of_blocks", self.out_of_blocks);
        let users = self.users.iter().filter(|user| !self.is_idle(user.used_ms, now_ms)).count();
        report.number("users", users as u64);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::boxed::Box;
    use std::vec::Vec;

    use super::*;
    use crate::abi::PACKET_BYTES_MAX;
    use crate::function::Instance;
    use crate::packet::{ICMP, TCP, UDP};
    use crate::test_packets::{echo, error_about, is_intact, transport};

    const OUTSIDE: u32 = 0xcb00_7101;
    const SERVER: End = End { address: 0xc000_0201, port: 443 };

    fn user(n: u32, port: u16) -> End {
        End { address: 0x0a01_0002 + n, port }
    }

    fn nat(more: &str) -> Box<Instance<Nat44>> {
        let mut nat = Box::new(Instance::<Nat44>::new());
        let settings = std::format!("inside 10.1.0.1\noutside 203.0.113.1\nseed 77\n{more}");
        nat.start(Box::leak(settings.into_boxed_str())).unwrap();
        nat
    }

    /// Sends a packet, and returns it as it comes out, if it does.
    fn send(nat: &mut Instance<Nat44>, now_ms: u64, from: Side, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut place = [0; PACKET_BYTES_MAX];
        place[..bytes.len()].copy_from_slice(bytes);
        let answer = nat.packet(now_ms, from, &mut place, bytes.len());
        (answer.verdict == Verdict::Pass).then(|| place[..usize::from(answer.len)].to_vec())
    }

    fn ends(bytes: &[u8]) -> Ends {
        Packet::parse(&mut bytes.to_vec()).unwrap().ends().unwrap()
    }

    #[test]
    fn what_goes_out_comes_back() {
        let mut nat = nat("");
        for protocol in [TCP, UDP] {
            let out =
                send(&mut nat, 1, Side::Inside, &transport(protocol, user(0, 5), SERVER, b"q")).unwrap();
            assert!(is_intact(&out));
            let from = ends(&out).from;
            assert_eq!(from.address, OUTSIDE);
            // Another host may answer too: the mapping is independent of the destination.
            for server in [SERVER, End { address: 7, port: 7 }] {
                let back = transport(protocol, server, from, b"a");
                let back = send(&mut nat, 2, Side::Outside, &back).unwrap();
                assert!(is_intact(&back));
                assert_eq!(ends(&back).to, user(0, 5));
            }
            let other = if protocol == TCP { UDP } else { TCP };
            assert!(send(&mut nat, 2, Side::Outside, &transport(other, SERVER, from, b"a")).is_none());
        }
    }

    #[test]
    fn pings_and_errors_are_translated() {
        let mut nat = nat("");
        let out =
            send(&mut nat, 1, Side::Inside, &echo(true, user(0, 0).address, SERVER.address, 9)).unwrap();
        let id = ends(&out).from.port;
        let back = send(&mut nat, 1, Side::Outside, &echo(false, SERVER.address, OUTSIDE, id)).unwrap();
        assert_eq!(ends(&back), Ends { protocol: ICMP, from: End { port: 9, ..SERVER }, to: user(0, 9) });
        let out = send(&mut nat, 1, Side::Inside, &transport(UDP, user(1, 5), SERVER, b"q")).unwrap();
        let error = send(&mut nat, 1, Side::Outside, &error_about(&out, 9)).unwrap();
        assert!(is_intact(&error));
        let packet = &mut error.clone()[..];
        let packet = Packet::parse(packet).unwrap();
        assert_eq!(
            (packet.destination(), packet.inner_ends().unwrap().from),
            (user(1, 5).address, user(1, 5))
        );
    }

    #[test]
    fn a_user_keeps_to_its_block_and_blocks_to_their_users() {
        let mut nat = nat("block 8\nidle 10");
        let mut blocks = Vec::new();
        for n in 0..3 {
            let ports: Vec<u16> = (0..8)
                .map(|port| transport(UDP, user(n, 100 + port), SERVER, b""))
                .map(|bytes| ends(&send(&mut nat, 1, Side::Inside, &bytes).unwrap()).from.port)
                .collect();
            assert!(ports.iter().all(|port| (port - 1_024) / 8 == (ports[0] - 1_024) / 8), "{ports:?}");
            blocks.push((ports[0] - 1_024) / 8);
        }
        blocks.dedup();
        assert_eq!(blocks.len(), 3);
        let more = transport(UDP, user(0, 999), SERVER, b"");
        assert!(send(&mut nat, 2, Side::Inside, &more).is_none(), "it has no port left");
        let again = transport(UDP, user(0, 103), SERVER, b"");
        assert!(send(&mut nat, 2, Side::Inside, &again).is_some(), "what it has goes on");
        assert!(send(&mut nat, 10_003, Side::Inside, &more).is_some(), "idle ports are free again");
    }

    #[test]
    fn the_last_block_is_the_last() {
        let mut nat = nat("idle 10");
        let from = |n: u32| transport(UDP, user(n, 1), SERVER, b"");
        for n in 0..USERS as u32 {
            assert!(send(&mut nat, 1, Side::Inside, &from(n)).is_some(), "{n}");
        }
        assert!(send(&mut nat, 2, Side::Inside, &from(9_999)).is_none());
        assert!(send(&mut nat, 20_000, Side::Inside, &from(9_999)).is_some(), "the others are idle");
        let mut place = [0; 512];
        let len = nat.report(&mut place);
        let text = core::str::from_utf8(&place[..len]).unwrap();
        assert!(text.contains("out_of_blocks 1\nusers 1\n"), "{text}");
    }
}
