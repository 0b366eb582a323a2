//! Generates the load of `bench/forwarders.py`: packets that go through a forwarder, in a closed loop.
//!
//! * `forwarder_load relay LISTEN OUT TO` is a bare relay: it sends the packets that come to LISTEN unchanged
//!   from OUT to TO.
//! * `forwarder_load forward DOMAIN` forwards at the node `r` of a domain, as `anabranch forward` does.
//! * `forwarder_load frames DOMAIN HOP TRAIN BYTES WINDOW SECONDS` sends frames from the host `a` of a domain
//!   to its host `b`, TRAIN in a call (UDP GSO), by way of HOP: the address of a forwarder or a relay.
//! * `forwarder_load ndn HOP LISTEN BYTES WINDOW SECONDS` sends Interests of NDN (packet format 0.3) to the
//!   forwarder at HOP, which has a route for /anabranch to LISTEN, and answers them there with Data.
//!
//! BYTES is the size of a frame or of a Data packet; at most WINDOW packets are in flight. The program prints
//! `begins` when the measurement begins, and at its end `ends PACKETS LOST`: the numbers of packets that
//! arrived and that did not.

use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::str::FromStr;

use anabranch::{Control, Stop};
use anabranch_algo::{Span, Time};
use anabranch_net::{Clock, Datagrams, Interest, Poller, Received, RecvBuffers, Udp};
use anabranch_network::{self as network, Place};
use anabranch_overlay::frame;
use anabranch_topology::plan::Policy;

/// The time before the measurement.
const WARM_UP: Span = Span::from_secs(1);
/// The time without any arrival after which the packets in flight count as lost.
const LOST_AFTER: Span = Span::from_millis(50);
/// The UDP port of the sink.
const SINK_PORT: u16 = 9_000;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["relay", listen, out, to] => relay(listen.parse()?, out.parse()?, to.parse()?),
        ["forward", domain] => forward(domain),
        ["frames", domain, hop, ref rest @ ..] => frames(domain, hop.parse()?, numbers(rest)?),
        ["ndn", hop, listen, ref rest @ ..] => ndn(hop.parse()?, listen.parse()?, numbers(rest)?),
        _ => Err("expected relay, frames or ndn, and what they take: see the source".into()),
    }
}

fn numbers<const N: usize>(args: &[&str]) -> Result<[usize; N]> {
    let numbers: Vec<usize> =
        args.iter().map(|arg| usize::from_str(arg)).collect::<std::result::Result<_, _>>()?;
    numbers.try_into().map_err(|_| format!("expected {N} numbers at the end").into())
}

fn relay(listen: SocketAddr, out: SocketAddr, to: SocketAddr) -> Result<()> {
    let (udp, out) = (Udp::listen(listen)?, Udp::listen(out)?);
    let mut buffers = RecvBuffers::new();
    let mut poller = Poller::new(Clock::start());
    loop {
        poller.wait([(udp.as_fd(), Interest::Read)], Time::NEVER)?;
        udp.recv(&mut buffers, |received| send(&out, to, received.bytes, received.stride))?;
    }
}

fn forward(file: &str) -> Result<()> {
    let place = Place::new(Path::new(file), Some("r"))?;
    network::forward(&place, None, &Stop::new()?, &mut |_| Control::Continue)?;
    Ok(())
}

/// Sends datagrams of `stride` bytes. Those that the system does not take are lost.
fn send(udp: &Udp, to: SocketAddr, bytes: &[u8], stride: usize) {
    for some in bytes.chunks(udp.max_segments(stride) * stride.max(1)) {
        let segment = (some.len() > stride).then_some(stride);
        udp.send(&Datagrams { to: Some(to), from_ip: None, bytes: some, segment, ecn: false, dscp: 0 });
    }
}

/// A closed loop with a fixed number of packets in flight.
struct Loop {
    window: usize,
    seconds: u64,
}

impl Loop {
    /// Runs the loop. `send` sends at most the given number of packets and returns how many it sent.
    /// `receive` gets the index of a socket and the packets that came there, and returns how many packets
    /// have completed their way.
    fn run(
        &self,
        sockets: &[&Udp],
        mut send: impl FnMut(usize) -> usize,
        mut receive: impl FnMut(usize, &Received<'_>) -> usize,
    ) -> Result<()> {
        let clock = Clock::start();
        let (mut poller, mut buffers) = (Poller::new(clock), RecvBuffers::new());
        let (mut under_way, mut heard, mut counts) = (0, clock.now(), false);
        let (mut arrived, mut lost) = (0, 0);
        let end = clock.now() + WARM_UP + Span::from_secs(self.seconds);
        while clock.now() < end {
            if !counts && clock.now() + Span::from_secs(self.seconds) >= end {
                counts = true;
                (arrived, lost) = (0, 0);
                println!("begins");
            }
            under_way += send(self.window - under_way);
            let set = sockets.iter().map(|udp| (udp.as_fd(), Interest::Read));
            poller.wait(set, clock.now() + Span::from_millis(1))?;
            let mut came = 0;
            for (place, udp) in sockets.iter().enumerate() {
                if poller.ready(place).read {
                    udp.recv(&mut buffers, |received| came += receive(place, &received))?;
                }
            }
            if came > 0 {
                heard = clock.now();
            } else if clock.now().since(heard) >= LOST_AFTER {
                (lost, under_way, heard) = (lost + under_way, 0, clock.now());
            }
            arrived += came;
            // A packet that was counted as lost may still arrive.
            under_way -= came.min(under_way);
        }
        println!("ends {arrived} {lost}");
        Ok(())
    }
}

fn frames(file: &str, hop: SocketAddr, numbers: [usize; 4]) -> Result<()> {
    let [train, bytes, window, seconds] = numbers;
    let place = Place::new(Path::new(file), Some("a"))?;
    let domain = place.domain();
    let to = domain.graph.by_name("b").ok_or("no host b")?;
    let found = domain.plan(place.node(), &[to], 1, Policy::Shortest, |_| true);
    let links = &found.first().ok_or("no way from a to b")?.way;
    let mut frame = frame::header(&links.there, SINK_PORT).0.to_vec();
    frame.resize(bytes, 7);
    let (from, _) = domain.first_hop(&links.links).ok_or("no forwarder beside a")?;
    let last = *links.links.last().ok_or("no link")?;
    let source = Udp::listen(SocketAddr::new(from, 40_000))?;
    let sink = Udp::listen(SocketAddr::new(domain.address_there(last).0, SINK_PORT))?;
    let batch = frame.repeat(train);
    let flow = Loop { window, seconds: seconds as u64 };
    let sent = |room: usize| {
        let trains = room / train;
        (0..trains).for_each(|_| send(&source, hop, &batch, bytes));
        trains * train
    };
    flow.run(&[&sink], sent, |_, received| received.datagrams().len())
}

/// The types of NDN's packet format 0.3 and of NDNLPv2.
mod tlv {
    pub(super) const INTEREST: u8 = 0x05;
    pub(super) const DATA: u8 = 0x06;
    pub(super) const NAME: u8 = 0x07;
    pub(super) const GENERIC: u8 = 0x08;
    pub(super) const NONCE: u8 = 0x0a;
    pub(super) const CONTENT: u8 = 0x15;
    pub(super) const SIGNATURE_INFO: u8 = 0x16;
    pub(super) const SIGNATURE_VALUE: u8 = 0x17;
    pub(super) const SIGNATURE_TYPE: u8 = 0x1b;
    pub(super) const FRAGMENT: u8 = 0x50;
    pub(super) const PIT_TOKEN: u8 = 0x62;
    pub(super) const LP_PACKET: u8 = 0x64;

    pub(super) fn block(kind: u8, value: &[u8]) -> Vec<u8> {
        let mut block = vec![kind];
        match u16::try_from(value.len()).expect("a small block") {
            short @ ..253 => block.push(short as u8),
            long => {
                block.push(253);
                block.extend(long.to_be_bytes());
            }
        }
        block.extend(value);
        block
    }

    /// A block as a view of its bytes.
    pub(super) struct Block<'a> {
        /// The type. Types of several bytes are none of those that are looked for.
        pub(super) kind: u64,
        pub(super) value: &'a [u8],
        pub(super) whole: &'a [u8],
    }

    /// Returns the first block, and the bytes after it.
    pub(super) fn first(bytes: &[u8]) -> Option<(Block<'_>, &[u8])> {
        let (kind, rest) = number(bytes)?;
        let (length, rest) = number(rest)?;
        let (value, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        Some((Block { kind, value, whole: &bytes[..bytes.len() - after.len()] }, after))
    }

    fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
        let (first, rest) = bytes.split_first()?;
        let more = match first {
            253 => 2,
            254 => 4,
            255 => 8,
            short => return Some((u64::from(*short), rest)),
        };
        let (number, rest) = rest.split_at_checked(more)?;
        Some((number.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)), rest))
    }

    /// Returns the block of this type within a value.
    pub(super) fn find(mut value: &[u8], wanted: u8) -> Option<Block<'_>> {
        while let Some((block, after)) = first(value) {
            if block.kind == u64::from(wanted) {
                return Some(block);
            }
            value = after;
        }
        None
    }
}

/// Makes Interest `number`. All of them have the same size.
fn interest(number: u64) -> Vec<u8> {
    let component = |bytes: &[u8]| tlv::block(tlv::GENERIC, bytes);
    let name = [component(b"anabranch"), component(b"bench"), component(&number.to_be_bytes())].concat();
    let nonce = tlv::block(tlv::NONCE, &(number as u32).to_be_bytes());
    tlv::block(tlv::INTEREST, &[tlv::block(tlv::NAME, &name), nonce].concat())
}

/// Returns the token, the type and the value of a packet of NDN.
fn unwrap(packet: &[u8]) -> Option<(&[u8], u8, &[u8])> {
    let (block, _) = tlv::first(packet)?;
    if block.kind != u64::from(tlv::LP_PACKET) {
        return Some((&[], u8::try_from(block.kind).ok()?, block.value));
    }
    let (inner, _) = tlv::first(tlv::find(block.value, tlv::FRAGMENT)?.value)?;
    let token = tlv::find(block.value, tlv::PIT_TOKEN).map_or(&[][..], |token| token.whole);
    Some((token, u8::try_from(inner.kind).ok()?, inner.value))
}

/// Makes the Data of `bytes` bytes that answers an Interest, with the Interest's token.
fn data(token: &[u8], name: &[u8], bytes: usize) -> Vec<u8> {
    let signature_type = tlv::block(tlv::SIGNATURE_TYPE, &[0]);
    let info = tlv::block(tlv::SIGNATURE_INFO, &signature_type);
    // No node on the way checks the signature.
    let signature = tlv::block(tlv::SIGNATURE_VALUE, &[0; 32]);
    let of = |content: usize| {
        let content = tlv::block(tlv::CONTENT, &vec![7; content]);
        tlv::block(tlv::DATA, &[name, &content, &info, &signature].concat())
    };
    let data = of(bytes.saturating_sub(of(bytes).len() - bytes));
    if token.is_empty() {
        return data;
    }
    tlv::block(tlv::LP_PACKET, &[token, &tlv::block(tlv::FRAGMENT, &data)].concat())
}

fn ndn(hop: SocketAddr, listen: SocketAddr, numbers: [usize; 3]) -> Result<()> {
    let [bytes, window, seconds] = numbers;
    let consumer = Udp::listen(SocketAddr::new(listen.ip(), 0))?;
    let producer = Udp::listen(listen)?;
    let size = interest(0).len();
    let mut next = 1;
    // The forwarder makes a face when a host first sends, and drops packets in the meantime.
    send(&consumer, hop, &interest(0), size);
    Clock::start().sleep_until(Time::ZERO + Span::from_millis(500));
    let flow = Loop { window, seconds: seconds as u64 };
    let sent = |room: usize| {
        let batch: Vec<u8> = (next..next + room as u64).flat_map(interest).collect();
        next += room as u64;
        send(&consumer, hop, &batch, size);
        room
    };
    let mut replies = Vec::new();
    flow.run(&[&consumer, &producer], sent, |place, received| {
        let packets = received.datagrams().filter_map(unwrap);
        if place == 0 {
            return packets.filter(|(_, kind, _)| *kind == tlv::DATA).count();
        }
        replies.clear();
        let mut stride = 0;
        for (token, _, value) in packets.filter(|(_, kind, _)| *kind == tlv::INTEREST) {
            let Some(name) = tlv::find(value, tlv::NAME) else { continue };
            let reply = data(token, name.whole, bytes);
            stride = reply.len();
            replies.extend(reply);
        }
        send(&producer, received.from, &replies, stride);
        0
    })
}
