//! A video player as of HLS: it fetches segments of two seconds one after the other over a kept connection,
//! while its buffer has room.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use anabranch_algo::{Span, Time};
use anabranch_net::Clock;

use super::Values;
use super::dial::Dial;
use super::player::Player;

/// The length of a segment.
const SEGMENT: Span = Span::from_millis(2_000);
/// The player fetches the next segment while its buffer has at most this.
const ROOM: Span = Span::from_millis(4_000);

/// Plays `seconds` of film of this rate.
///
/// # Errors
/// If the connection breaks, or the server does not have the segment.
pub fn video(dial: Dial, server: SocketAddr, seconds: f64, bytes_per_s: u64) -> io::Result<Values> {
    let clock = Clock::start();
    let mut stream = BufReader::new(dial.connect(server)?);
    let segments = (seconds * 1e9 / SEGMENT.as_nanos() as f64).ceil().max(1.0) as u64;
    let bytes = bytes_per_s * SEGMENT.as_nanos() / 1_000_000_000;
    let mut player = Player::default();
    for _ in 0..segments {
        let now = clock.now();
        player.advance(now);
        if player.buffered() > ROOM {
            clock.sleep_until(now + (player.buffered() - ROOM));
        }
        fetch(&mut stream, server, bytes)?;
        player.segment(clock.now(), SEGMENT);
    }
    // What is in the buffer is played out, without a stall.
    clock.sleep_until(clock.now() + player.buffered());
    let (stalls, stalled) = player.stalls();
    let began = player.began().map_or(0.0, |began| began.since(Time::ZERO).as_nanos() as f64 / 1e9);
    let stalled = stalled.as_nanos() as f64 / 1e9;
    let values = [("start s", began), ("stalls", f64::from(stalls)), ("stalled s", stalled)];
    Ok(values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn fetch(stream: &mut BufReader<TcpStream>, server: SocketAddr, bytes: u64) -> io::Result<()> {
    write!(stream.get_mut(), "GET /bytes/{bytes} HTTP/1.1\r\nhost: {server}\r\n\r\n")?;
    let mut line = String::new();
    stream.read_line(&mut line)?;
    if !line.starts_with("HTTP/1.1 200") {
        return Err(io::Error::other(format!("the server says {:?} of a segment", line.trim_end())));
    }
    while line.trim_end() != "" {
        line.clear();
        stream.read_line(&mut line)?;
    }
    let taken = io::copy(&mut stream.take(bytes), &mut io::sink())?;
    if taken == bytes { Ok(()) } else { Err(io::Error::other("the server ended within a segment")) }
}
