//! The client's trunks: keeps the wanted number of trunks, and opens each stream on the best.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anabranch_algo::{Span, Time};
use anabranch_net::{Clock, Resolver};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::client::carriers::Carriers;
use crate::event::{Event, Reports};
use crate::links::racing::race;
use crate::links::watch::{Links, Watched};
use crate::pool::{Limits, Load, choose, surplus, wants_warm};
use crate::relay::Ending;
use crate::socket::{Connection, SocketOptions, why_single_path};
use crate::tls::{ClientTls, TlsError, leg_secret};
use crate::traffic::{Counted, Traffic};
use crate::trunk::{Destination, GoAwayReason, Host, Reason, Settings, Side, Transport};
use crate::trunk_socket::TrunkSocket;
use crate::trunk_task::{End, Stream, TrunkHandle, start};

/// The longest time that a program waits for a trunk if there is none.
const PROGRAM_WAITS: Duration = Duration::from_secs(15);
/// The longest time that the server may take to send HELLO.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after the first failed attempt, and the longest pause after later ones.
const RETRY_FIRST: Span = Span::from_millis(100);
const RETRY_LAST: Span = Span::from_secs(2);
/// A trunk that has owed an answer for this time is not asked for a leg.
const ANSWERS: Span = Span::from_secs(2);
/// The time between two checks whether a trunk may go or seems to be dead.
const TICK: Duration = Duration::from_secs(1);

/// A trunk on which a leg can be requested.
pub(super) struct LegSource {
    pub(super) trunk: TrunkHandle,
    /// The server's end of the trunk.
    pub(super) server: SocketAddr,
    /// The secret for the leg's keys; `None` on an unencrypted trunk.
    pub(super) secret: Option<[u8; 32]>,
}

/// The settings and services with which trunks are made.
#[derive(Debug)]
pub(super) struct Making {
    pub(super) server: Destination,
    /// The TLS settings; `None` for unencrypted trunks.
    pub(super) tls: Option<ClientTls>,
    pub(super) socket: SocketOptions,
    pub(super) limits: Limits,
    pub(super) resolver: Resolver,
    pub(super) links: Links,
    pub(super) traffic: Traffic,
    pub(super) carriers: Carriers,
}

/// The reason why there is no trunk.
#[derive(Debug)]
struct NoTrunk {
    peer: Option<SocketAddr>,
    why: String,
    /// Whether every further attempt fails in the same way, until the configuration of an end changes.
    is_refused: bool,
}

impl NoTrunk {
    fn new(peer: Option<SocketAddr>, why: impl ToString) -> Self {
        Self { peer, why: why.to_string(), is_refused: false }
    }
}

/// A new trunk, its secret for legs, its far end, the transport that each end sees, and the handles that
/// watch and count its subflows.
type Made = (
    TrunkHandle,
    Option<[u8; 32]>,
    SocketAddr,
    Transport,
    Transport,
    (Option<Arc<Watched>>, Option<Counted>),
);

#[derive(Debug)]
struct Member {
    trunk: TrunkHandle,
    server: SocketAddr,
    /// The secret from which a leg's keys are derived; `None` on an unencrypted trunk.
    secret: Option<[u8; 32]>,
    /// When the trunk's last stream ended; [`Time::NEVER`] while it has streams.
    idle_since: Time,
    /// Watches the trunk's subflows.
    watched: Option<Arc<Watched>>,
}

impl Member {
    fn is_lame(&self) -> bool {
        self.watched.as_ref().is_some_and(|watched| watched.is_lame())
    }
}

#[derive(Debug, Default)]
struct State {
    members: Vec<Member>,
    /// The number of attempts that are under way.
    opening: usize,
    /// Whether one more trunk is wanted than are kept ready.
    wants_another: bool,
    /// The number of attempts that failed in a row, the last failure, and the earliest time of the next
    /// attempt.
    failures: u32,
    last_failure: Option<NoTrunk>,
    not_before: Time,
}

impl State {
    fn loads(&self) -> Vec<Load> {
        self.members.iter().map(|member| member.trunk.load()).collect()
    }
}

/// The client's trunks. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Trunks {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    making: Making,
    state: Mutex<State>,
    clock: Clock,
    reports: Reports,
    /// Wakes the task that keeps the trunks.
    work: Notify,
    /// Changes whenever those who wait for a trunk should look again.
    news: watch::Sender<u64>,
}

impl Trunks {
    pub(super) fn new(making: Making, reports: Reports) -> Self {
        let (clock, news) = (Clock::start(), watch::Sender::new(0));
        let (state, work) = (Mutex::default(), Notify::new());
        Self { shared: Arc::new(Shared { making, state, clock, reports, work, news }) }
    }

    /// Opens a stream. Waits for a trunk if there is none.
    pub(super) async fn open(&self, to: &Destination, wants_reply: bool) -> Result<Stream, Ending> {
        let mut news = self.shared.news.subscribe();
        let opening = async {
            loop {
                if let Some(stream) = self.shared.open_now(to, wants_reply)? {
                    return Ok(stream);
                }
                // `changed` fails only if the sender is gone, and `self` holds the sender.
                let _ = news.changed().await;
            }
        };
        timeout(PROGRAM_WAITS, opening).await.unwrap_or_else(|_| Err(self.shared.no_stream()))
    }

    /// Keeps as many trunks as are wanted. Never returns.
    pub(super) async fn keep(&self) {
        let mut tasks = JoinSet::new();
        loop {
            let pause = self.shared.tend(&mut tasks);
            tokio::select! {
                () = self.shared.work.notified() => {}
                () = self.shared.making.links.lames() => {}
                () = sleep(pause) => {}
                Some(_) = tasks.join_next() => {}
            }
        }
    }

    /// Returns the server's addresses. Repeats the lookup until it succeeds.
    pub(super) async fn server_addresses(&self) -> Vec<SocketAddr> {
        loop {
            match self.shared.addresses().await {
                Ok(found) => return found,
                Err(_) => sleep(TICK).await,
            }
        }
    }

    /// Returns a trunk that answers. Waits for one if there is none.
    pub(super) async fn leg_source(&self) -> LegSource {
        let mut news = self.shared.news.subscribe();
        loop {
            if let Some(source) = self.shared.leg_source() {
                return source;
            }
            // A trunk that is silent may answer again later.
            let _ = timeout(TICK, news.changed()).await;
        }
    }

    /// Whether there is a trunk that answers.
    pub(super) fn answers(&self) -> bool {
        self.shared.leg_source().is_some()
    }

    /// Whether bytes move on any trunk.
    pub(super) fn is_moving(&self) -> bool {
        self.shared.lock().loads().iter().any(|load| load.moving_streams > 0)
    }

    /// Closes all trunks.
    pub(super) fn close(&self) {
        for member in &self.shared.lock().members {
            member.trunk.close();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leg_source(&self) -> Option<LegSource> {
        let state = self.lock();
        let answers = |load: &Load| load.takes_streams && load.unanswered < ANSWERS;
        let (member, _) = state.members.iter().zip(state.loads()).find(|(_, load)| answers(load))?;
        let (trunk, server, secret) = (member.trunk.clone(), member.server, member.secret);
        Some(LegSource { trunk, server, secret })
    }

    /// Opens a stream on the best trunk. Returns `None` if no trunk can take it yet.
    fn open_now(&self, to: &Destination, wants_reply: bool) -> Result<Option<Stream>, Ending> {
        let mut state = self.lock();
        let mut loads = state.loads();
        loop {
            let choice = choose(&self.making.limits, &loads, state.opening);
            if choice.opens_another && !std::mem::replace(&mut state.wants_another, true) {
                self.work.notify_one();
            }
            let Some(place) = choice.trunk else { break };
            match state.members[place].trunk.open(to.clone(), wants_reply) {
                Ok(stream) => {
                    state.members[place].idle_since = Time::NEVER;
                    return Ok(Some(stream));
                }
                // The trunk ended a moment ago.
                Err(_) => loads[place].takes_streams = false,
            }
        }
        let is_refused = state.last_failure.as_ref().is_some_and(|failure| failure.is_refused);
        drop(state);
        if is_refused { Err(self.no_stream()) } else { Ok(None) }
    }

    fn no_stream(&self) -> Ending {
        let state = self.lock();
        let (reason, why) = match &state.last_failure {
            Some(failure) => (Reason::TrunkGone, failure.why.clone()),
            None if state.members.is_empty() => (Reason::TrunkGone, "the server does not answer".to_owned()),
            None => (Reason::Busy, "all trunks have as many streams as the server allows".to_owned()),
        };
        Ending { reason, why: Some(why) }
    }

    /// Starts and ends trunks as needed. Returns the time until the next call.
    fn tend(self: &Arc<Self>, tasks: &mut JoinSet<()>) -> Duration {
        let (now, limits) = (self.clock.now(), &self.making.limits);
        let mut state = self.lock();
        state.members.retain(|member| member.trunk.load().takes_streams);
        // A trunk that has lost a link takes no new streams, and ends with its last one.
        for member in state.members.extract_if(.., |member| member.is_lame()) {
            member.trunk.go_away(GoAwayReason::Ends);
        }
        self.making.links.note_full(state.members.iter().any(|member| member.trunk.is_full()));
        let loads = state.loads();
        for (member, load) in state.members.iter_mut().zip(&loads) {
            member.idle_since = match load.open_streams {
                0 => member.idle_since.min(now),
                _ => Time::NEVER,
            };
        }
        let idle: Vec<Time> = state.members.iter().map(|member| member.idle_since).collect();
        if let Some(place) = surplus(limits, now, &loads, &idle) {
            state.members.remove(place).trunk.go_away(GoAwayReason::Ends);
        }
        let wanted = |state: &State| state.wants_another || wants_warm(limits, &loads, state.opening);
        if now < state.not_before {
            let pause = Duration::from_nanos(state.not_before.since(now).as_nanos());
            return if wanted(&state) { pause.min(TICK) } else { TICK };
        }
        // After a failure, only one attempt runs at a time.
        while wanted(&state) && (state.failures == 0 || state.opening == 0) {
            state.wants_another = false;
            state.opening += 1;
            tasks.spawn(Arc::clone(self).attempt());
        }
        TICK
    }

    /// Makes one more trunk, and drives it until it ends.
    async fn attempt(self: Arc<Self>) {
        let (trunk, secret, peer, own, theirs, (watched, counted)) = match self.make().await {
            Ok(made) => made,
            Err(failure) => return self.note_failure(failure),
        };
        {
            let mut state = self.lock();
            state.opening -= 1;
            (state.failures, state.last_failure) = (0, None);
            let idle_since = self.clock.now();
            let watched = watched.clone();
            state.members.push(Member { trunk: trunk.clone(), server: peer, secret, idle_since, watched });
        }
        let note = why_single_path(own, theirs).or_else(|| self.making.carriers.says());
        self.reports.put(Event::TrunkUp { peer, client: None, transport: own, note });
        self.tell();
        let doomed = async {
            match &watched {
                Some(watched) => watched.is_doomed().await,
                None => std::future::pending().await,
            }
        };
        let why = tokio::select! {
            end = trunk.ended() => end.to_string(),
            () = doomed => {
                trunk.close();
                trunk.ended().await;
                "a link that it uses may carry no more".to_owned()
            }
        };
        let lost_streams = trunk.lost_streams();
        drop((watched, counted));
        self.reports.put(Event::TrunkDown { peer: Some(peer), client: None, why, lost_streams });
        self.work.notify_one();
    }

    fn note_failure(&self, failure: NoTrunk) {
        let mut state = self.lock();
        state.opening -= 1;
        let pause = RETRY_FIRST.times(1 << state.failures.min(10)).min(RETRY_LAST);
        state.not_before = self.clock.now() + pause;
        state.failures += 1;
        // A repeated failure with the same reason is not reported again.
        if state.last_failure.as_ref().is_none_or(|last| last.why != failure.why) {
            let (peer, why) = (failure.peer, failure.why.clone());
            self.reports.put(Event::TrunkDown { peer, client: None, why, lost_streams: 0 });
        }
        state.last_failure = Some(failure);
        drop(state);
        self.tell();
    }

    fn tell(&self) {
        self.news.send_modify(|count| *count += 1);
        self.work.notify_one();
    }

    /// Makes a trunk over the kernel's MPTCP or over UDP. If the kernel's connection has one path, UDP is
    /// tried, too.
    async fn make(&self) -> Result<Made, NoTrunk> {
        let carriers = &self.making.carriers;
        let mut failure = None;
        if carriers.is_udp() {
            match self.make_in_udp().await {
                Err(failed) if !failed.is_refused && !carriers.is_only_udp() => failure = Some(failed.why),
                made => return made,
            }
        }
        let (Connection { stream, transport }, peer) = self.connect().await?;
        // Without an answer over TCP either, the failure says nothing of UDP.
        failure.into_iter().for_each(|why| carriers.udp_failed(why));
        let watched = self.making.links.watch(&stream).map(Arc::new);
        let made = self.make_of(TrunkSocket::Kernel(stream), transport, peer, watched).await?;
        let (trunk, .., own, theirs, _) = &made;
        let tries_udp = why_single_path(*own, *theirs).is_some_and(|why| carriers.has_one_path(why));
        if tries_udp {
            match self.make_in_udp().await {
                Ok(better) => {
                    trunk.close();
                    return Ok(better);
                }
                Err(failed) => carriers.udp_failed(failed.why),
            }
        }
        Ok(made)
    }

    /// Makes a trunk over UDP.
    async fn make_in_udp(&self) -> Result<Made, NoTrunk> {
        let carriers = &self.making.carriers;
        let addresses = self.addresses().await?;
        let order = self.making.links.order();
        let connected = carriers.connect_udp(&addresses, order.first()).await;
        let connection = connected.map_err(|failed| self.unreached(failed))?;
        let peer = connection.peer_addr();
        let made = self.make_of(TrunkSocket::Udp(connection), Transport::Udp, peer, None).await?;
        carriers.udp_works();
        Ok(made)
    }

    /// Returns the failure of a trunk to whose server there was no connection. The server's name may have
    /// other addresses now.
    fn unreached(&self, (address, why): (Option<SocketAddr>, String)) -> NoTrunk {
        if let Host::Name(name) = self.making.server.host() {
            self.making.resolver.distrust(name);
        }
        NoTrunk::new(address, why)
    }

    /// Makes a trunk of a connection.
    async fn make_of(
        &self,
        socket: TrunkSocket,
        transport: Transport,
        peer: SocketAddr,
        watched: Option<Arc<Watched>>,
    ) -> Result<Made, NoTrunk> {
        let counted = self.making.traffic.watch(&socket, transport);
        let failed = |e: TlsError| {
            let is_refused = matches!(e, TlsError::WrongKey(_) | TlsError::Alpn);
            NoTrunk { is_refused, ..NoTrunk::new(Some(peer), e) }
        };
        let (trunk, secret) = match &self.making.tls {
            Some(tls) => {
                let stream = tls.connect(socket).await.map_err(failed)?;
                let secret = leg_secret(stream.get_ref().1);
                (begin(stream, transport), secret)
            }
            None => (begin(socket, transport), None),
        };
        match timeout(HELLO_TIMEOUT, trunk.hello()).await {
            Ok(Ok(theirs)) => {
                counted.iter().for_each(|counted| counted.carries(&trunk, None));
                Ok((trunk, secret, peer, transport, theirs, (watched, counted)))
            }
            Ok(Err(end)) => {
                let is_refused = matches!(end, End::UnknownKey | End::Protocol(_));
                Err(NoTrunk { is_refused, ..NoTrunk::new(Some(peer), end) })
            }
            Err(_) => Err(NoTrunk::new(Some(peer), "the server does not say HELLO")),
        }
    }

    /// Looks up the server's addresses.
    async fn addresses(&self) -> Result<Vec<SocketAddr>, NoTrunk> {
        let server = &self.making.server;
        match server.host() {
            Host::Ip(ip) => Ok(vec![SocketAddr::new(*ip, server.port())]),
            Host::Name(name) => {
                let found = self.making.resolver.resolve(name).await;
                let found =
                    found.map_err(|e| NoTrunk::new(None, format!("the server's name {name}: {e}")))?;
                Ok(found.iter().map(|address| SocketAddr::new(address.ip(), server.port())).collect())
            }
        }
    }

    async fn connect(&self) -> Result<(Connection, SocketAddr), NoTrunk> {
        let addresses = self.addresses().await?;
        let order = self.making.links.order();
        if order.is_empty() {
            return Err(NoTrunk::new(None, "every link has carried what it may"));
        }
        let raced = race(&addresses, &order, &self.making.socket).await;
        raced.map_err(|failed| self.unreached(failed))
    }
}

fn begin<S>(connection: S, transport: Transport) -> TrunkHandle
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (trunk, task) = start(connection, Side::Client, Settings { transport, ..Settings::default() });
    tokio::spawn(task);
    trunk
}
