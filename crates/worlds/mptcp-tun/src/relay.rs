//! Connects one connection with two files.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;

use anabranch_algo::{Span, Time};
use anabranch_mptcp::{ConnectionEvent, ConnectionId};

use crate::host::TunHost;

/// The most bytes that are moved at once.
const BUFFER_BYTES: usize = 65_536;

/// The other end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// This end connects to the address.
    Connect(SocketAddr),
    /// This end accepts the first connection to the port.
    Listen(u16),
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(remote) => write!(f, "{remote}"),
            Self::Listen(port) => write!(f, "port {port}"),
        }
    }
}

/// An event of the relayed connection.
pub type RelayEvent = ConnectionEvent;

/// The totals of a finished relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayTotals {
    /// Bytes that were read from the input.
    pub sent_bytes: u64,
    /// Bytes that were written to the output.
    pub received_bytes: u64,
    /// Subflows that came up.
    pub subflows: u32,
    /// Whether the connection was Multipath TCP to the end.
    pub multipath: bool,
}

/// Sends the bytes of `input` and writes the received bytes to `output`, until both ends have finished. The
/// end of `input` finishes this end.
///
/// # Errors
/// If a file fails, if no address fits the peer, or if the connection is refused, reset or times out.
pub fn relay(
    host: &mut TunHost,
    peer: Peer,
    input: &mut (impl Read + AsFd),
    output: &mut impl Write,
    mut on_event: impl FnMut(&RelayEvent),
) -> io::Result<RelayTotals> {
    let mut connection = match peer {
        Peer::Connect(remote) => {
            let refused = || io::Error::new(io::ErrorKind::AddrNotAvailable, format!("no link to {remote}"));
            Some(host.connect(None, remote).ok_or_else(refused)?)
        }
        Peer::Listen(port) => {
            host.listen(port);
            None
        }
    };
    let mut totals = RelayTotals::default();
    let mut buffer = vec![0; BUFFER_BYTES];
    let (mut input_ended, mut events) = (false, Vec::new());
    loop {
        let wants_input = connection.is_some_and(|id| host.stack().writable(id) > 0) && !input_ended;
        let source = wants_input.then(|| input.as_fd());
        let is_ready = host.turn(source, Time::NEVER, |event| events.push(event))?;
        for (id, event) in events.drain(..) {
            if note(&mut connection, &mut totals, id, event) {
                on_event(&event);
            }
            if let (ConnectionEvent::Closed { error: Some(error) }, true) = (event, connection == Some(id)) {
                return Err(io::Error::new(error.io_kind(), format!("{peer}: {error}")));
            }
            if let (ConnectionEvent::Closed { error: None }, true) = (event, connection == Some(id)) {
                totals.received_bytes += drain(host, id, &mut buffer, output)?;
                return linger(host, totals);
            }
        }
        let Some(id) = connection else { continue };
        if is_ready {
            let room = usize::try_from(host.stack().writable(id)).unwrap_or(BUFFER_BYTES);
            let count = input.read(&mut buffer[..room.min(BUFFER_BYTES)])?;
            totals.sent_bytes += host.stack().write(id, &buffer[..count]) as u64;
            if count == 0 {
                input_ended = true;
                host.stack().finish(id);
            }
        }
        totals.received_bytes += drain(host, id, &mut buffer, output)?;
    }
}

/// Records an event and returns whether it belongs to the relayed connection.
fn note(
    connection: &mut Option<ConnectionId>,
    totals: &mut RelayTotals,
    id: ConnectionId,
    event: ConnectionEvent,
) -> bool {
    if matches!(event, ConnectionEvent::Established { .. }) {
        connection.get_or_insert(id);
    }
    if *connection != Some(id) {
        return false;
    }
    match event {
        ConnectionEvent::Established { multipath } => totals.multipath = multipath,
        ConnectionEvent::FellBack => totals.multipath = false,
        ConnectionEvent::SubflowUp { .. } => totals.subflows += 1,
        _ => {}
    }
    true
}

/// Writes the bytes that have arrived to `output` and returns their number.
fn drain(
    host: &mut TunHost,
    id: ConnectionId,
    buffer: &mut [u8],
    output: &mut impl Write,
) -> io::Result<u64> {
    let mut total = 0;
    loop {
        let count = host.stack().read(id, buffer);
        if count == 0 {
            return if total > 0 { output.flush().map(|()| total) } else { Ok(0) };
        }
        output.write_all(&buffer[..count])?;
        total += count as u64;
    }
}

/// Sends the last acknowledgements. A peer that has not received them asks again within this time.
fn linger(host: &mut TunHost, totals: RelayTotals) -> io::Result<RelayTotals> {
    let end = host.now() + Span::from_millis(300);
    while host.now() < end && host.stack().connection_count() > 0 {
        host.turn(None, end, |_| {})?;
    }
    Ok(totals)
}
