//! A chat: small messages, each of which the server returns.

use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;

use anabranch_algo::Span;
use anabranch_net::Clock;

use super::dial::Dial;
use super::{Values, add_latencies};

/// The bytes of a message.
const MESSAGE_BYTES: usize = 48;
/// The time between the beginnings of two messages.
const EVERY: Span = Span::from_millis(100);

/// Chats for `seconds`. A message waits for the echo of the one before.
///
/// # Errors
/// If the connection breaks, or if an echo is not what was sent.
pub fn chat(dial: Dial, server: SocketAddr, seconds: f64) -> io::Result<Values> {
    let mut stream = dial.connect(server)?;
    let (clock, mut latencies_ms) = (Clock::start(), Vec::new());
    let end = Span::from_nanos((seconds * 1e9) as u64);
    loop {
        let begin = clock.now();
        if begin.since(anabranch_algo::Time::ZERO) >= end {
            break;
        }
        let message = [latencies_ms.len() as u8; MESSAGE_BYTES];
        let mut echo = [0; MESSAGE_BYTES];
        stream.write_all(&message)?;
        stream.read_exact(&mut echo)?;
        if echo != message {
            return Err(io::Error::other("the echo is not what was sent"));
        }
        latencies_ms.push(clock.now().since(begin).as_nanos() as f64 / 1e6);
        clock.sleep_until(begin + EVERY);
    }
    let mut values = Values::new();
    values.insert("messages".into(), latencies_ms.len() as f64);
    add_latencies(&mut values, &mut latencies_ms);
    Ok(values)
}
