//! The client's trunks to one server: keeps the wanted number of trunks, and opens each stream on the best.

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
use crate::client::keyring::Keyring;
use crate::event::{Event, Reports};
use crate::links::racing::race;
use crate::links::watch::{Links, Watched};
use crate::pool::servers::ServerView;
use crate::pool::{Limits, Load, choose, surplus, wants_warm};
use crate::relay::Ending;
use crate::socket::{Connection, SocketOptions, why_single_path};
use crate::tls::{TlsError, leg_secret};
use crate::traffic::{Counted, Traffic};
use crate::trunk::{Destination, GoAwayReason, Host, Reason, Settings, Side, Transport};
use crate::trunk_socket::TrunkSocket;
use crate::trunk_task::{End, Stream, TrunkHandle, start};

/// The longest time that the server may take to send HELLO.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after the first failed attempt, and the longest pause after later ones.
const RETRY_FIRST: Span = Span::from_millis(100);
const RETRY_LAST: Span = Span::from_secs(2);
/// The pause after a server went away, which doubles if it goes away again as soon as it is asked, and the
/// longest one.
const AWAY_FIRST: Span = Span::from_secs(1);
const AWAY_LAST: Span = Span::from_secs(8);
/// A trunk whose server goes away within this time counts as refused.
const AWAY_AT_ONCE: Span = Span::from_secs(10);
/// The time without an answer, plus two round trips, after which a server seems to be dead while there are
/// others. The trunk's ping follows after half a second.
const SILENT_AFTER: Span = Span::from_millis(750);
const SILENT_RTTS: u64 = 2;
/// The number of measurements of a new trunk's round trip beyond the first one, if there are several servers.
const MEASURED_FIRST: u32 = 3;
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
#[derive(Clone, Debug)]
pub(super) struct Making {
    /// The keys of servers; `None` for unencrypted trunks.
    pub(super) keys: Option<Keyring>,
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
    /// Whether the server has another key that the client knows, so that the next attempt may work.
    has_other_key: bool,
}

impl NoTrunk {
    fn new(peer: Option<SocketAddr>, why: impl ToString) -> Self {
        Self { peer, why: why.to_string(), is_refused: false, has_other_key: false }
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
    began: Time,
    /// The number of round trips that were measured for the choice among servers.
    measured: u32,
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
    /// How often in a row the server went away at once, and why it went last.
    turned_away: u32,
    away: Option<GoAwayReason>,
    /// The servers that this one has named.
    named: Vec<(Destination, bool)>,
}

impl State {
    fn loads(&self) -> Vec<Load> {
        self.members.iter().map(|member| member.trunk.load()).collect()
    }

    /// Removes the trunks that take no streams any more. If the server went away, the next attempt waits.
    fn remove_gone(&mut self, now: Time) {
        let gone: Vec<Member> =
            self.members.extract_if(.., |member| !member.trunk.load().takes_streams).collect();
        for member in &gone {
            self.named.extend(member.trunk.take_named());
        }
        let went = gone.iter().filter_map(|member| Some((member.trunk.peer_goes()?, member.began)));
        if let Some((reason, began)) = went.max_by_key(|(_, began)| *began) {
            let is_at_once = now.since(began) < AWAY_AT_ONCE;
            self.turned_away = if is_at_once { self.turned_away.saturating_add(1) } else { 1 };
            let pause = AWAY_FIRST.times(1 << (self.turned_away - 1).min(10)).min(AWAY_LAST);
            self.not_before = self.not_before.max(now + pause);
            self.away = Some(reason);
        }
        let stays = |member: &Member| now.since(member.began) >= AWAY_AT_ONCE;
        if self.members.iter().any(stays) {
            (self.turned_away, self.away) = (0, None);
        }
    }
}

/// The client's trunks to one server. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Trunks {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    server: Destination,
    making: Making,
    state: Mutex<State>,
    clock: Clock,
    reports: Reports,
    /// Wakes the task that keeps the trunks.
    work: Notify,
    /// Changes whenever those who wait for a trunk should look again. All servers share it.
    news: Arc<watch::Sender<u64>>,
    /// Wakes the task that keeps the servers.
    pool: Arc<Notify>,
}

impl Trunks {
    /// Creates the trunks to a server. `news` and `pool` are those of all servers.
    pub(super) fn new(
        (server, making): (Destination, Making),
        reports: Reports,
        news: Arc<watch::Sender<u64>>,
        pool: Arc<Notify>,
    ) -> Self {
        let (clock, state, work) = (Clock::start(), Mutex::default(), Notify::new());
        Self { shared: Arc::new(Shared { server, making, state, clock, reports, work, news, pool }) }
    }

    /// Returns the server.
    pub(super) fn server(&self) -> &Destination {
        &self.shared.server
    }

    /// Returns the state on which the choice among servers is based. `id` is the server's number.
    pub(super) fn view(&self, id: u64) -> ServerView {
        let state = self.shared.lock();
        let open: Vec<(Option<Span>, Load)> = state
            .members
            .iter()
            .map(|member| (member.trunk.shortest_rtt(), member.trunk.load()))
            .filter(|(_, load)| load.has_room())
            .collect();
        let is_silent = |(_, load): &(_, Load)| {
            load.unanswered > SILENT_AFTER + load.rtt.unwrap_or(Span::ZERO).times(SILENT_RTTS)
        };
        ServerView {
            id,
            is_open: !open.is_empty(),
            is_suspect: open.iter().all(is_silent),
            // A first measurement often includes the end of the handshake.
            rtt: open.iter().filter_map(|(shortest, _)| *shortest).min(),
            load: state.members.iter().rev().find_map(|member| member.trunk.announced()),
        }
    }

    /// Measures the round trips of new trunks a few times.
    pub(super) fn measure(&self) {
        for member in &mut self.shared.lock().members {
            if member.measured < MEASURED_FIRST {
                member.measured += 1;
                member.trunk.measure();
            }
        }
    }

    /// Returns why the server takes no connections: why it went away, or the last failure.
    pub(super) fn says(&self) -> (Option<GoAwayReason>, Option<String>) {
        let state = self.shared.lock();
        (state.away, state.last_failure.as_ref().map(|failure| failure.why.clone()))
    }

    /// Whether every attempt is refused, because the keys do not fit.
    pub(super) fn is_refused(&self) -> bool {
        let state = self.shared.lock();
        state.members.is_empty() && state.last_failure.as_ref().is_some_and(|failure| failure.is_refused)
    }

    /// Returns the servers that this one has named since the last call, and whether the client is to go
    /// there.
    pub(super) fn take_named(&self) -> Vec<(Destination, bool)> {
        let mut state = self.shared.lock();
        let mut named = std::mem::take(&mut state.named);
        named.extend(state.members.iter().flat_map(|member| member.trunk.take_named()));
        named
    }

    /// Whether any trunk is full.
    pub(super) fn is_full(&self) -> bool {
        self.shared.lock().members.iter().any(|member| member.trunk.is_full())
    }

    /// Opens a stream on the best trunk. Returns `None` if no trunk can take it yet.
    pub(super) fn open_now(&self, to: &Destination, wants_reply: bool) -> Result<Option<Stream>, Ending> {
        self.shared.open_now(to, wants_reply)
    }

    /// Returns the reason why there is no stream.
    pub(super) fn no_stream(&self) -> Ending {
        self.shared.no_stream()
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

    /// Looks up the server's addresses. Returns none if that fails.
    pub(super) async fn server_addresses(&self) -> Vec<SocketAddr> {
        self.shared.addresses().await.unwrap_or_default()
    }

    /// Returns a trunk that answers, if there is one.
    pub(super) fn leg_source(&self) -> Option<LegSource> {
        self.shared.leg_source()
    }

    /// Tells the server that the client goes away; trunks end with their last streams.
    pub(super) fn leave(&self) {
        for member in std::mem::take(&mut self.shared.lock().members) {
            member.trunk.go_away(GoAwayReason::Ends);
        }
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
        state.remove_gone(now);
        // A trunk that has lost a link takes no new streams, and ends with its last one.
        for member in state.members.extract_if(.., |member| member.is_lame()) {
            member.trunk.go_away(GoAwayReason::Ends);
        }
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
        let made = match self.make().await {
            Err(failure) if failure.has_other_key => self.make().await,
            made => made,
        };
        let (trunk, secret, peer, own, theirs, (watched, counted)) = match made {
            Ok(made) => made,
            Err(failure) => return self.note_failure(failure),
        };
        trunk.tell_news(Arc::clone(&self.pool));
        {
            let mut state = self.lock();
            state.opening -= 1;
            (state.failures, state.last_failure) = (0, None);
            let idle_since = self.clock.now();
            let watched = watched.clone();
            state.members.push(Member {
                trunk: trunk.clone(),
                server: peer,
                secret,
                idle_since,
                began: idle_since,
                measured: 0,
                watched,
            });
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
        if let Host::Name(name) = self.server.host() {
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
            let shown = if let TlsError::WrongKey(wrong) = &e { wrong.shown } else { None };
            let knows = |keys: &Keyring| shown.is_some_and(|key| keys.turn_to(key));
            let has_other_key = self.making.keys.as_ref().is_some_and(knows);
            let is_refused = !has_other_key && matches!(e, TlsError::WrongKey(_) | TlsError::Alpn);
            NoTrunk { is_refused, has_other_key, ..NoTrunk::new(Some(peer), e) }
        };
        let (trunk, secret) = match &self.making.keys {
            Some(keys) => {
                let stream = keys.tls().connect(socket).await.map_err(failed)?;
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
        let server = &self.server;
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
