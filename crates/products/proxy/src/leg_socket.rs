//! Sends a leg's packets with few system calls.

use std::net::SocketAddr;

use anabranch_algo::Time;
use anabranch_net::udp::SEND_BYTES_MAX;

use crate::leg::Leg;

/// Takes all packets that a leg has to send. Passes them to `send` in runs of equally long packets for one
/// path: the path, the address, the bytes and the length of a packet. `buffer` is only used for its memory.
pub(crate) fn transmit_all(
    leg: &mut Leg,
    now: Time,
    buffer: &mut Vec<u8>,
    mut send: impl FnMut(u8, SocketAddr, &[u8], usize),
) {
    buffer.clear();
    // The path, the address and the packet length of the run at the start of the buffer.
    let mut run: Option<(u8, SocketAddr, usize)> = None;
    while let Some(next) = leg.poll_transmit(now, buffer) {
        let before = buffer.len() - next.bytes;
        let joins = run.is_some_and(|(path, to, size)| {
            let is_alike = (path, to) == (next.path, next.to) && next.bytes <= size;
            is_alike && before.is_multiple_of(size) && buffer.len() <= SEND_BYTES_MAX
        });
        if !joins {
            if let Some((path, to, size)) = run {
                send(path, to, &buffer[..before], size);
            }
            buffer.drain(..before);
            run = Some((next.path, next.to, next.bytes));
        }
    }
    if let Some((path, to, size)) = run {
        send(path, to, buffer, size);
    }
}
