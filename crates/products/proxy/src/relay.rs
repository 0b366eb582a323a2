//! Moves bytes between a TCP connection and a stream of a trunk, in both directions until both have ended.
//!
//! *Half-closes* pass: the end of one direction ends only that direction. *Backpressure* goes from end to
//! end: the connection is read only when the stream has room, the stream is read only when the connection
//! takes bytes, and credit returns only then. *Errors*: a connection that fails resets the stream, and a
//! stream that is reset resets the connection. Bytes of a direction that has ended still arrive.

use std::future::poll_fn;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::{sleep, timeout};

use crate::buffer::{BUFFER_BYTES, poll_read};
use crate::flows::{Early, Flow};
use crate::ingress::{Body, Malformed};
use crate::redirect;
use crate::trunk::{Destination, Reason};
use crate::trunk_task::Stream;

/// The time for which the program's bytes are still read after the last answer to it. A connection that is
/// closed with unread bytes is reset, which would discard the answer.
const LINGERING: Duration = Duration::from_secs(1);

/// The time without bytes from the origin after which the connection is ended, if the program has sent
/// another request. The program then takes the answer for complete and the connection for persistent.
const QUIET: Duration = Duration::from_millis(200);

/// A TCP connection that is reset when this is dropped, unless it has ended in order. So a truncated answer
/// is not taken for a complete one.
#[derive(Debug)]
pub(crate) struct TcpLeg {
    tcp: TcpStream,
    is_whole: bool,
}

impl TcpLeg {
    /// Takes over a connection that was [set up](crate::socket::set_up_leg).
    pub(crate) const fn new(tcp: TcpStream) -> Self {
        Self { tcp, is_whole: false }
    }

    /// Returns the address to which the other side is connected.
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Returns the original destination of a redirected connection.
    pub(crate) fn redirected_from(&self) -> io::Result<Destination> {
        redirect::destination(&self.tcp, self.tcp.local_addr()?)
    }

    /// Reads at most 64 KiB. Returns no bytes at the end.
    pub(crate) async fn read(&mut self) -> io::Result<Bytes> {
        poll_fn(|cx| poll_read(Pin::new(&mut self.tcp), cx, BUFFER_BYTES)).await
    }

    pub(crate) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.tcp.try_write(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.tcp.writable().await?,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Splits the connection, to read and write at the same time.
    pub(crate) fn halves(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        self.tcp.split()
    }

    /// Waits until the connection is reset while it is neither read nor written.
    pub(crate) async fn failed(&self) -> io::Error {
        failed(&self.tcp).await
    }

    /// Writes the last bytes, and ends the connection in order.
    pub(crate) async fn end_with(mut self, last: &[u8]) {
        if self.write_all(last).await.is_ok() && finish(&self.tcp).is_ok() {
            let rest = async { while self.read().await.is_ok_and(|bytes| !bytes.is_empty()) {} };
            let _ = timeout(LINGERING, rest).await;
            self.is_whole = true;
        }
    }
}

impl Drop for TcpLeg {
    fn drop(&mut self) {
        if !self.is_whole {
            let _ = SockRef::from(&self.tcp).set_linger(Some(Duration::ZERO));
        }
    }
}

/// Ends the direction towards the other side.
fn finish(tcp: &TcpStream) -> io::Result<()> {
    SockRef::from(tcp).shutdown(Shutdown::Write)
}

async fn failed(tcp: &TcpStream) -> io::Error {
    let _ = tcp.ready(Interest::ERROR).await;
    tcp.take_error().ok().flatten().unwrap_or_else(|| io::ErrorKind::ConnectionReset.into())
}

/// The reason why bytes cannot be moved further.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    /// The other end of the trunk has reset the stream, or the trunk is gone.
    #[error("{0}")]
    Stream(Reason),
    /// The connection was reset or has failed.
    #[error("{0}")]
    Tcp(io::Error),
    /// The end of a request cannot be found.
    #[error(transparent)]
    Body(#[from] Malformed),
}

impl Broken {
    /// Returns the reason for the wire format.
    pub(crate) const fn reason(&self) -> Reason {
        match self {
            Self::Stream(reason) => *reason,
            Self::Tcp(_) | Self::Body(_) => Reason::NoInterest,
        }
    }

    /// Whether the connection was reset after its last byte had arrived. Linux reports that by a different
    /// error.
    fn is_after_end(&self) -> bool {
        matches!(self, Self::Tcp(e) if e.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// The reason why something did not end in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) reason: Reason,
    /// A description, if there is more to say than the reason.
    pub(crate) why: Option<String>,
}

impl From<Early> for Ending {
    fn from(early: Early) -> Self {
        let (reason, why) = match early {
            Early::Idle => (Reason::NoInterest, "nothing moved for too long"),
            Early::GaveWay => (Reason::Busy, "it gave way to another user: too few descriptors are left"),
        };
        Self { reason, why: Some(why.to_owned()) }
    }
}

impl From<Reason> for Ending {
    fn from(reason: Reason) -> Self {
        Self { reason, why: None }
    }
}

impl From<Broken> for Ending {
    fn from(broken: Broken) -> Self {
        let why = match &broken {
            Broken::Stream(_) => None,
            Broken::Tcp(e) => Some(format!("the connection failed: {e}")),
            Broken::Body(e) => Some(e.to_string()),
        };
        Self { reason: broken.reason(), why }
    }
}

/// The result of a relay.
#[derive(Debug)]
pub(crate) struct Relayed {
    /// How the relay ended.
    pub(crate) end: Result<(), Broken>,
    /// The connection. Dropping it resets it if it has not got all bytes.
    pub(crate) leg: TcpLeg,
}

/// The bytes of a program after its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    Nothing,
    /// Another request, sent after the answer had begun.
    Request,
}

/// How one direction has ended.
type Ended = Result<(), Broken>;

/// Moves bytes until both directions have ended. Of the connection's bytes, only `body` is for the stream.
/// `flow` counts the bytes and limits their rate.
pub(crate) async fn relay(mut leg: TcpLeg, stream: Stream, mut body: Body, flow: &Flow) -> Relayed {
    let (mut up, mut down): (Option<Ended>, Option<Ended>) = (None, None);
    let passed = AtomicU64::new(0);
    let mut is_asked_again = false;
    let ended_both = {
        let (mut reading, writing) = leg.halves();
        let mut upward = pin!(send(&mut reading, &stream, &mut body, flow, &passed));
        let mut downward = pin!(receive(&stream, &writing, flow, &passed));
        let mut quiet = pin!(quiet(&passed));
        let mut breaks = pin!(breaks(writing.as_ref(), &stream));
        loop {
            let is_sound = !matches!((&up, &down), (Some(Err(_)), _) | (_, Some(Err(_))));
            let broken = tokio::select! {
                end = &mut upward, if up.is_none() => end.map(|behind| {
                    (up, is_asked_again) = (Some(Ok(())), behind == Behind::Request);
                }).err(),
                end = &mut downward, if down.is_none() => end.map(|()| down = Some(Ok(()))).err(),
                broken = &mut breaks, if is_sound => Some(broken),
                () = &mut quiet, if is_asked_again && down.is_none() => {
                    down = Some(finish(writing.as_ref()).map_err(Broken::Tcp));
                    None
                }
            };
            match broken {
                // The stream was reset after all its bytes had arrived, so they are still passed on to the
                // end.
                Some(broken @ Broken::Stream(_))
                    if is_sound && down.is_none() && stream.is_all_received() =>
                {
                    up = Some(Err(broken));
                }
                // The connection was reset after its last byte had arrived, so the bytes are still passed on
                // to the end.
                Some(broken) if is_sound && up.is_none() && broken.is_after_end() => down = Some(Err(broken)),
                Some(broken) => break Err(broken),
                None => {}
            }
            if up.is_some() && down.is_some() {
                break Ok(());
            }
            if up.is_some() || down.is_some() {
                flow.half_close();
            }
        }
    };
    leg.is_whole = matches!(down, Some(Ok(())));
    let is_all_sent = matches!(up, Some(Ok(())));
    let end = ended_both.and(up.unwrap_or(Ok(()))).and(down.unwrap_or(Ok(())));
    // A stream that was written to its end is only released, so that those bytes arrive and the rest is
    // reset.
    if let Err(broken) = &end
        && !is_all_sent
    {
        stream.reset(broken.reason());
    }
    drop(stream);
    Relayed { end, leg }
}

/// Moves bytes from the connection to the stream.
///
/// If an origin does not end the connection after its answer, the program may send another request on it.
/// That request is not passed on, because it may be for another origin.
async fn send(
    tcp: &mut ReadHalf<'_>,
    stream: &Stream,
    body: &mut Body,
    flow: &Flow,
    passed: &AtomicU64,
) -> Result<Behind, Broken> {
    loop {
        let room = stream.room().await.map_err(Broken::Stream)?.min(flow.piece_from_tcp());
        let read = poll_fn(|cx| poll_read(Pin::new(&mut *tcp), cx, room)).await;
        let mut bytes = read.map_err(Broken::Tcp)?;
        if bytes.is_empty() {
            stream.finish();
            return Ok(Behind::Nothing);
        }
        let behind = bytes.split_off(body.take(&bytes)?);
        let is_request = !behind.iter().all(|byte| matches!(byte, b'\r' | b'\n'));
        if is_request && bytes.is_empty() && passed.load(Ordering::Relaxed) > 0 {
            stream.finish();
            return Ok(Behind::Request);
        }
        let n = bytes.len();
        stream.write_all(bytes).await.map_err(Broken::Stream)?;
        flow.count_from_tcp(n).await;
        tokio::task::consume_budget().await;
    }
}

/// Moves bytes from the stream to the connection.
async fn receive(
    stream: &Stream,
    tcp: &WriteHalf<'_>,
    flow: &Flow,
    passed: &AtomicU64,
) -> Result<(), Broken> {
    loop {
        tcp.writable().await.map_err(Broken::Tcp)?;
        let piece = BUFFER_BYTES.min(flow.piece_to_tcp());
        let Some(mut bytes) = stream.read(piece).await.map_err(Broken::Stream)? else {
            return finish(tcp.as_ref()).map_err(Broken::Tcp);
        };
        while !bytes.is_empty() {
            match tcp.try_write(&bytes) {
                Ok(n) => {
                    bytes.advance(n);
                    passed.fetch_add(n as u64, Ordering::Relaxed);
                    flow.count_to_tcp(n).await;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    tcp.writable().await.map_err(Broken::Tcp)?;
                }
                Err(e) => return Err(Broken::Tcp(e)),
            }
        }
        tokio::task::consume_budget().await;
    }
}

/// Waits until no byte has passed for [`QUIET`].
async fn quiet(passed: &AtomicU64) {
    let mut before = passed.load(Ordering::Relaxed);
    loop {
        sleep(QUIET).await;
        match passed.load(Ordering::Relaxed) {
            now if now == before => return,
            now => before = now,
        }
    }
}

/// Waits until the stream or the connection is reset, which the two directions do not notice while they wait
/// for each other.
async fn breaks(tcp: &TcpStream, stream: &Stream) -> Broken {
    tokio::select! {
        reason = stream.peer_reset() => Broken::Stream(reason),
        e = failed(tcp) => Broken::Tcp(e),
    }
}
