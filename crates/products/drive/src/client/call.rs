//! A call: packets of voice at a steady pace, each of which the server returns.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};

use anabranch_algo::{Span, Time};
use anabranch_net::Clock;

use super::dial::Dial;
use super::{Values, add_latencies};

/// The bytes of a packet, as 20 ms of G.711 have.
const PACKET_BYTES: usize = 160;
/// The time between two packets.
const EVERY: Span = Span::from_millis(20);
/// The echoes of the last packets may take this long.
const LAST: Span = Span::from_millis(500);

/// Calls for `seconds`.
///
/// # Errors
/// If no datagram can be sent, or none comes back.
pub fn call(dial: Dial, server: SocketAddr, seconds: f64) -> io::Result<Values> {
    let (socket, header, relay) = dial.datagrams(server)?;
    let count = (seconds * 1e9 / EVERY.as_nanos() as f64).ceil().max(1.0) as usize;
    let clock = Clock::start();
    let (mut sent, mut latencies_ms) = (Vec::with_capacity(count), Vec::new());
    let mut heard = vec![false; count];
    while sent.len() < count {
        let begin = clock.now();
        let mut packet = header.clone();
        packet.extend((sent.len() as u32).to_be_bytes());
        packet.resize(header.len() + PACKET_BYTES, 0);
        match socket.send(&packet) {
            // A port that is not open yet, or a link that is down, loses the packet.
            Err(e) if e.kind() != ErrorKind::ConnectionRefused => return Err(e),
            _ => sent.push(begin),
        }
        let next = Time::ZERO + Span::from_nanos(EVERY.as_nanos() * sent.len() as u64);
        listen(&socket, header.len(), &clock, next, |number, now| {
            note(&sent, &mut heard, &mut latencies_ms, number, now);
        });
    }
    listen(&socket, header.len(), &clock, clock.now() + LAST, |number, now| {
        note(&sent, &mut heard, &mut latencies_ms, number, now);
    });
    drop(relay);
    if latencies_ms.is_empty() {
        return Err(io::Error::new(ErrorKind::TimedOut, "no packet of the call came back"));
    }
    let mut values = Values::new();
    values.insert("lost %".into(), 100.0 - latencies_ms.len() as f64 * 100.0 / count as f64);
    add_latencies(&mut values, &mut latencies_ms);
    Ok(values)
}

fn note(sent: &[Time], heard: &mut [bool], latencies_ms: &mut Vec<f64>, number: usize, now: Time) {
    let (Some(begin), Some(heard)) = (sent.get(number), heard.get_mut(number)) else { return };
    if !std::mem::replace(heard, true) {
        latencies_ms.push(now.since(*begin).as_nanos() as f64 / 1e6);
    }
}

/// Hands on the number of each packet that comes before `until`.
fn listen(socket: &UdpSocket, header: usize, clock: &Clock, until: Time, mut each: impl FnMut(usize, Time)) {
    let mut buffer = [0; 2048];
    loop {
        let left = until.since(clock.now());
        if left == Span::ZERO {
            return;
        }
        let _ = socket.set_read_timeout(Some(std::time::Duration::from_nanos(left.as_nanos())));
        let Ok(count) = socket.recv(&mut buffer) else { continue };
        if let Some(Ok(number)) = buffer[..count].get(header..header + 4).map(<[u8; 4]>::try_from) {
            each(u32::from_be_bytes(number) as usize, clock.now());
        }
    }
}
