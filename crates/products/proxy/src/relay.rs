//! Bytes between a TCP connection and a stream of a trunk, in both directions until both have ended.
//!
//! *Half-closes* pass: the end of one direction is the end of that one only. *Backpressure* goes from end to
//! end: nothing is read from the connection before the stream has room, nothing from the stream before the
//! connection takes bytes, and credit comes back only then. *Errors*: a connection that fails resets the
//! stream; a stream that is reset resets the connection. What was sent to its end still arrives.

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

/// What a program still sends is read for so long after the last word to it: a connection that is closed
/// while something is unread is reset, and that would take the word away.
const LINGERING: Duration = Duration::from_secs(1);

/// A program asks for more behind its request, so it takes the answer for whole, and the connection for one
/// that goes on. If nothing has come of the origin for so long then, the connection is ended.
const QUIET: Duration = Duration::from_millis(200);

/// A TCP connection that is reset when it is dropped, unless it has ended in order: nobody is to take a part
/// for the whole.
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

    /// The address that the other side knows.
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Where the program wanted to go before it was redirected here.
    pub(crate) fn redirected_from(&self) -> io::Result<Destination> {
        redirect::destination(&self.tcp, self.tcp.local_addr()?)
    }

    /// Some bytes, 64 KiB at most; none at the end.
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

    /// Its two directions, for who reads and writes at a time.
    pub(crate) fn halves(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        self.tcp.split()
    }

    /// Waits until it is reset while nobody reads or writes.
    pub(crate) async fn failed(&self) -> io::Error {
        failed(&self.tcp).await
    }

    /// Writes the last word, and ends in order.
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

/// Says that no more bytes follow.
fn finish(tcp: &TcpStream) -> io::Result<()> {
    SockRef::from(tcp).shutdown(Shutdown::Write)
}

async fn failed(tcp: &TcpStream) -> io::Error {
    let _ = tcp.ready(Interest::ERROR).await;
    tcp.take_error().ok().flatten().unwrap_or_else(|| io::ErrorKind::ConnectionReset.into())
}

/// Why bytes do not go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    /// The other end of the trunk has reset the stream, or the trunk is gone.
    #[error("{0}")]
    Stream(Reason),
    /// The connection was reset, or has failed.
    #[error("{0}")]
    Tcp(io::Error),
    /// The end of a request cannot be found.
    #[error(transparent)]
    Body(#[from] Malformed),
}

impl Broken {
    /// The reason of the wire format.
    pub(crate) const fn reason(&self) -> Reason {
        match self {
            Self::Stream(reason) => *reason,
            Self::Tcp(_) | Self::Body(_) => Reason::NoInterest,
        }
    }

    /// Whether the connection was reset after its last byte had come: Linux says so by another error.
    fn is_after_end(&self) -> bool {
        matches!(self, Self::Tcp(e) if e.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Why something did not end in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) reason: Reason,
    /// In words that say more, where there are some.
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

/// What went between the two.
#[derive(Debug)]
pub(crate) struct Relayed {
    /// How it ended.
    pub(crate) end: Result<(), Broken>,
    /// The connection, which is reset when it is dropped if it did not get all.
    pub(crate) leg: TcpLeg,
}

/// What a program has sent behind its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    Nothing,
    /// Another one, when the answer had begun.
    Request,
}

/// How one direction has ended.
type Ended = Result<(), Broken>;

/// Moves bytes until both directions have ended. Of those from the connection only `body` is for the stream.
/// `flow` counts them, and says how fast they may come.
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
                // All that the other end sent is here: it is passed on, to its end.
                Some(broken @ Broken::Stream(_))
                    if is_sound && down.is_none() && stream.is_all_received() =>
                {
                    up = Some(Err(broken));
                }
                // It had said its last word before it was reset: that is passed on, to its end.
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
    // A stream that was written to its end is only released: those bytes arrive, and the rest is reset.
    if let Err(broken) = &end
        && !is_all_sent
    {
        stream.reset(broken.reason());
    }
    drop(stream);
    Relayed { end, leg }
}

/// From the connection to the stream.
///
/// An origin that does not end the connection behind its answer leaves the program in the belief that it may
/// ask for more. What it asks for is not passed on: it is for whatever origin.
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

/// From the stream to the connection.
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

/// Waits until nothing has passed for [`QUIET`].
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

/// Waits for what nobody notices who waits for something else.
async fn breaks(tcp: &TcpStream, stream: &Stream) -> Broken {
    tokio::select! {
        reason = stream.peer_reset() => Broken::Stream(reason),
        e = failed(tcp) => Broken::Tcp(e),
    }
}
