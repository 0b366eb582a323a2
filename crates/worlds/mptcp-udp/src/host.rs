//! A stack in the runtime: its settings, its timer, and how connections begin.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use anabranch_algo::control::Algorithm;
use anabranch_algo::{Machine as _, Span};
use anabranch_mptcp::datagram::UDP_HEADER_BYTES;
use anabranch_mptcp::{Config, Input, Seed, Segment, Stack, TcpConfig};
use tokio::time::timeout;

use crate::connection::Connection;
use crate::shared::{End, Shared};
use crate::wire::Wire;

/// The largest IP packet, bytes. Tunnels and mobile networks carry it.
const PACKET_BYTES: u16 = 1_400;
/// The silence after which an idle subflow is probed, so that NATs do not forget it (RFC 4787, REQ-5: two
/// minutes at least; many take 30 s).
const KEEPALIVE: Span = Span::from_secs(20);
/// A subflow's addresses are used once, so old segments meet no new subflow.
const TIME_WAIT: Span = Span::from_secs(10);
/// The retransmissions without an answer after which a subflow is given up, which take 73 s.
/// [`datagram`](anabranch_mptcp::datagram) says why it must not be more.
const RETRIES_MAX: u32 = 12;
/// How long after its end a subflow is made again.
const REJOIN_AFTER: Span = Span::from_secs(1);
/// Returns the settings of a stack in UDP. The client adds its addresses.
#[must_use]
pub fn config() -> Config {
    let tcp = TcpConfig {
        mtu_bytes: PACKET_BYTES - UDP_HEADER_BYTES,
        keepalive: Some(KEEPALIVE),
        time_wait: TIME_WAIT,
        retries_max: RETRIES_MAX,
        ..TcpConfig::default()
    };
    // Nothing paces the segments, so slow start ends when the queue grows, before it overflows.
    let congestion_control = Algorithm::by_name("cubic-coupled+hystart").expect("in the table");
    Config { tcp, rejoin_after: Some(REJOIN_AFTER), congestion_control, ..Config::default() }
}

/// A host: a stack with its timer. Clones are the same host. A task must [run](Host::run) it.
#[derive(Clone, Debug)]
pub struct Host {
    pub(crate) shared: Arc<Shared>,
}

impl Host {
    /// Creates a host whose datagrams `wire` sends. `seed` must be random and secret.
    #[must_use]
    pub fn new(config: Config, seed: Seed, wire: Arc<dyn Wire>) -> Self {
        Self { shared: Arc::new(Shared::new(Stack::new(config, seed), wire)) }
    }

    /// Accepts connections at `port` from now on.
    pub fn listen(&self, port: u16) {
        self.shared.with(|state, _| state.stack.listen(port));
    }

    /// Handles segments that have arrived.
    pub fn handle(&self, segments: &[Segment]) {
        if segments.is_empty() {
            return;
        }
        self.shared.with(|state, now| {
            segments.iter().for_each(|segment| state.stack.handle(now, Input::Segment(segment)));
        });
    }

    /// Sends what is due by time. Never returns; dropping the future stops the host.
    pub async fn run(&self) {
        loop {
            let wait = {
                let mut state = self.shared.lock();
                state.timer_at = state.wake_at.min(state.sweep_at);
                state.timer_at.since(self.shared.clock.now())
            };
            let _ = timeout(Duration::from_nanos(wait.as_nanos()), self.shared.timer.notified()).await;
            self.shared.with(|state, now| state.sweep(now, &*self.shared.wire));
        }
    }

    /// Begins a connection, first from `local` and then, if that is not answered, from the other addresses.
    ///
    /// # Errors
    /// If the peer refuses the connection or does not answer.
    pub async fn connect(&self, local: IpAddr, remote: SocketAddr) -> io::Result<Connection> {
        let id = self.shared.with(|state, now| {
            let id = state.stack.connect(now, local, remote)?;
            state.ends.insert(id, End::default());
            Some(id)
        });
        let none = || io::Error::new(io::ErrorKind::AddrNotAvailable, "all ports are in use");
        // Dropping the connection ends the attempt.
        let connection = Connection::new(Arc::clone(&self.shared), id.ok_or_else(none)?, remote);
        poll_fn(|cx| connection.poll_established(cx)).await?;
        Ok(connection)
    }

    /// Waits for the next connection that a peer begins.
    pub async fn accept(&self) -> Connection {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    fn poll_accept(&self, cx: &Context<'_>) -> Poll<Connection> {
        let mut state = self.shared.lock();
        match state.accepted.pop_front() {
            Some((id, peer)) => Poll::Ready(Connection::new(Arc::clone(&self.shared), id, peer)),
            None => {
                state.acceptor = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Returns how many half-open connections of `port` gave way to others.
    #[must_use]
    pub fn displaced(&self, port: u16) -> u64 {
        self.shared.lock().stack.displaced(port)
    }
}
