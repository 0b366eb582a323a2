//! The links in the world: the kernel is told of them, each is watched, a dead one is taken away and put
//! back.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anabranch_algo::{Span, Time};
use anabranch_kernel::uplinks::{Program, Session};
use anabranch_net::netlink::{Netlink, PathManager};
use anabranch_net::{Clock, NetworkMonitor, interfaces};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;

use crate::event::{Event, Reports};
use crate::links::book::{Book, CapsError};
use crate::links::caps::{Change, Usage};
use crate::links::liveness::{Action, Liveness, Sample};
use crate::links::meter::Meter;
use crate::links::price::Price;
use crate::links::probe::probe;
use crate::links::{Via, kernel_paths};

/// How often each link is looked at.
const STEP: Duration = Duration::from_millis(50);
/// A probe has failed after so long, or four round trips.
const PROBE_TIMEOUT: Duration = Duration::from_millis(300);
const PROBE_RTTS: u32 = 4;
/// The kernel may take so long to close the subflows of a link that is spent.
const CLOSES_WITHIN: Span = Span::from_millis(300);

/// What is known of the links. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Links {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    via: Vec<Via>,
    clock: Clock,
    state: Mutex<State>,
    /// Apart, since it is held while the kernel works.
    session: Mutex<Option<Session>>,
    /// The caps; `None`: no link has one.
    book: Mutex<Option<Book>>,
    /// Wakes trunks that may have to end.
    news: Notify,
    /// Wakes whoever keeps the trunks: one has lost a link for good.
    lamed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The sockets of trunks.
    trunks: BTreeMap<u64, OwnedFd>,
    next: u64,
    dead: Vec<bool>,
    /// Links that do not answer: the last one too, which is never dead.
    unanswered: Vec<bool>,
    /// Links that have carried what they may.
    spent: Vec<bool>,
    usage: Vec<Usage>,
    /// Whether some trunk is full; what that means for the links.
    is_full: bool,
    price: Price,
    /// The places of links that carry data only while no other can.
    backups: Vec<usize>,
    /// Trunks that have lost a link for good; those that use one that they must not.
    lame: BTreeSet<u64>,
    doomed: BTreeSet<u64>,
}

impl State {
    /// Whether each link cannot be used: it is dead or spent.
    fn out(&self) -> Vec<bool> {
        self.dead.iter().zip(&self.spent).map(|(dead, spent)| *dead || *spent).collect()
    }
}

/// A trunk that is watched, until this is dropped.
#[derive(Debug)]
pub(crate) struct Watched {
    links: Links,
    number: u64,
}

impl Watched {
    /// Whether the trunk has lost a link that works: a new one would use it.
    pub(crate) fn is_lame(&self) -> bool {
        self.links.lock().lame.contains(&self.number)
    }

    /// Waits until the trunk has to end, since it uses a link that must carry no more.
    pub(crate) async fn is_doomed(&self) {
        loop {
            let news = self.links.shared.news.notified();
            if self.links.lock().doomed.contains(&self.number) {
                return;
            }
            news.await;
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut state = self.links.lock();
        state.trunks.remove(&self.number);
        state.lame.remove(&self.number);
        state.doomed.remove(&self.number);
    }
}

impl Links {
    /// `state_dir`: where the counts of caps are kept.
    ///
    /// # Errors
    /// A link has a cap, and it cannot be kept.
    pub(crate) fn new(via: Vec<Via>, state_dir: Option<&Path>) -> Result<Self, CapsError> {
        let book = Book::open(&via, state_dir)?;
        let state = State { dead: vec![false; via.len()], spent: vec![false; via.len()], ..State::default() };
        let (state, session) = (Mutex::new(state), Mutex::default());
        let (clock, news, lamed, book) = (Clock::start(), Notify::new(), Notify::new(), Mutex::new(book));
        let links = Self { shared: Arc::new(Shared { via, clock, state, session, book, news, lamed }) };
        links.take_usage();
        Ok(links)
    }

    fn book(&self) -> MutexGuard<'_, Option<Book>> {
        self.shared.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes what the book says.
    fn take_usage(&self) {
        let Some(usage) = self.book().as_ref().map(Book::usage) else { return };
        let is_spent = |link: &Via| usage.iter().any(|of| of.link == link.name && of.is_spent);
        let spent = self.shared.via.iter().map(is_spent).collect();
        let mut state = self.lock();
        (state.spent, state.usage) = (spent, usage);
    }

    /// What each link with a cap has carried.
    pub(crate) fn usage(&self) -> Vec<Usage> {
        self.lock().usage.clone()
    }

    /// Whether the link at this place must carry no more.
    pub(crate) fn is_spent(&self, link: usize) -> bool {
        self.lock().spent.get(link).copied().unwrap_or(false)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a trunk. `None` if there are no links, or no descriptors left.
    pub(crate) fn watch(&self, stream: &TcpStream) -> Option<Watched> {
        if self.shared.via.is_empty() {
            return None;
        }
        let fd = stream.as_fd().try_clone_to_owned().ok()?;
        let mut state = self.lock();
        state.next += 1;
        let number = state.next;
        state.trunks.insert(number, fd);
        Some(Watched { links: self.clone(), number })
    }

    /// The links as the user named them, but as backups if they are so now for what they cost; and whether
    /// each does not answer.
    pub(crate) fn named(&self) -> Vec<(Via, bool)> {
        let state = self.lock();
        let is_backup = |n: usize, link: &Via| link.is_backup || state.backups.contains(&n);
        let is_silent = |n: usize| state.dead[n] || state.unanswered.get(n) == Some(&true);
        let as_now =
            |(n, link): (usize, &Via)| (Via { is_backup: is_backup(n, link), ..link.clone() }, is_silent(n));
        self.shared.via.iter().enumerate().map(as_now).collect()
    }

    /// Notes which links do not answer; whether none does, which was not so before.
    fn note_unanswered(&self, unanswered: Vec<bool>) -> bool {
        let mut state = self.lock();
        let all =
            |of: &[bool]| !of.is_empty() && of.iter().zip(state.out()).all(|(silent, out)| *silent || out);
        let is_new = all(&unanswered) && !all(&state.unanswered);
        state.unanswered = unanswered;
        is_new
    }

    /// Whether some trunk has more to carry than the links take.
    pub(crate) fn note_full(&self, is_full: bool) {
        self.lock().is_full = is_full;
    }

    /// Decides anew which links carry data only while no other can; whether that has changed.
    fn decide_price(&self) -> bool {
        let now = self.shared.clock.now();
        let mut state = self.lock();
        let (out, is_full) = (state.out(), state.is_full);
        let new = state.price.step(now, &self.shared.via, &out, is_full);
        let is_new = state.backups != new;
        state.backups = new;
        is_new
    }

    fn backups(&self) -> Vec<String> {
        self.lock().backups.iter().map(|n| self.shared.via[*n].name.clone()).collect()
    }

    /// Over what a trunk is to begin: those that live first, then backups last, then what costs more. None if
    /// all must carry no more.
    pub(crate) fn order(&self) -> Vec<Option<String>> {
        if self.shared.via.is_empty() {
            return vec![None];
        }
        let state = self.lock();
        let all = self.shared.via.iter().zip(&state.dead).zip(&state.spent);
        let mut sorted: Vec<_> = all.filter(|(_, spent)| !**spent).map(|(link, _)| link).collect();
        sorted.sort_by_key(|(link, is_dead)| (**is_dead, link.is_backup, link.cost));
        sorted.into_iter().map(|(link, _)| Some(link.name.clone())).collect()
    }

    /// Tells the kernel, and watches from then on. Ends only if caps cannot be kept.
    pub(crate) async fn manage(&self, servers: Vec<SocketAddr>, reports: Reports) {
        let ips: Vec<IpAddr> = servers.iter().map(SocketAddr::ip).collect();
        let (links, said) = (self.clone(), reports.clone());
        self.decide_price();
        let (backup, program) = (self.backups(), self.program(ips.clone()));
        let begin = spawn_blocking(move || {
            let begun = kernel_paths::begin(&links.shared.via, backup, program, &said);
            let is_there = begun.is_some();
            *links.session() = begun;
            is_there
        });
        let is_told = begin.await.unwrap_or(false);
        let has_caps = self.book().is_some();
        if has_caps && !is_told {
            let why = "the caps of links cannot be kept, for the kernel is not told of them by this client";
            return reports.put(Event::Notice(why.to_owned()));
        }
        if is_told && (has_caps || self.shared.via.len() > 1) {
            self.tend(&servers, &ips, &reports).await;
        }
        std::future::pending::<()>().await;
    }

    /// What the kernel is to know of the program.
    fn program(&self, servers: Vec<IpAddr>) -> Program {
        let out = self.lock().out();
        let without = self.shared.via.iter().zip(out).filter(|(_, is_out)| *is_out);
        Program { servers, without: without.map(|(link, _)| link.name.clone()).collect() }
    }

    /// Puts back what the kernel was told; that takes milliseconds.
    pub(crate) async fn end(&self, reports: &Reports) {
        let (links, reports) = (self.clone(), reports.clone());
        let ending = move || {
            drop(links.session().take());
            // The last bytes too.
            if let Some(mut book) = links.book().take() {
                book.step(Time::NEVER, &reports);
                book.save(&reports);
            }
        };
        let _ = spawn_blocking(ending).await;
    }

    fn session(&self) -> MutexGuard<'_, Option<Session>> {
        self.shared.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn tend(&self, servers: &[SocketAddr], ips: &[IpAddr], reports: &Reports) {
        let clock = self.shared.clock;
        let mut liveness = Liveness::new(&kernel_paths::unknown(&self.shared.via));
        let mut monitor = NetworkMonitor::new().ok();
        let mut places = self.places();
        let mut probes = JoinSet::new();
        let (mut meter, mut is_told) = (Meter::new(places.len()), false);
        let mut spent_at = vec![None; places.len()];
        self.forbid_spent(&mut liveness, &mut spent_at);
        loop {
            if monitor.as_mut().is_some_and(|monitor| monitor.changed(clock.now())) {
                let before = std::mem::replace(&mut places, self.places());
                for link in kernel_paths::moved(&before, &places) {
                    // Its subflows have nowhere to be answered. It is put back when the server answers over
                    // it, so when there are routes again.
                    if liveness.lose(link) {
                        self.lock().dead[link] = true;
                        self.close(link).await;
                        let name = &self.shared.via[link].name;
                        reports.put(Event::Notice(format!("the link {name} has another address")));
                    }
                }
            }
            for change in self.count(reports) {
                if let Change::Spent(link) = change {
                    self.close(link).await;
                }
            }
            self.forbid_spent(&mut liveness, &mut spent_at);
            if self.decide_price()
                && let Err(e) = self.update(ips).await
            {
                reports.put(Event::Notice(format!("the kernel is not told which links cost less: {e}")));
            }
            let samples = self.samples(&mut meter, clock.now(), &places);
            self.doom(&meter, &spent_at);
            self.note_lame(&meter.lame(clock.now()), &mut is_told, reports);
            let mut actions = Vec::new();
            while let Some(Ok((link, is_answered))) = probes.try_join_next() {
                actions.extend(liveness.on_probe(clock.now(), link, is_answered));
            }
            actions.extend(liveness.step(clock.now(), &samples));
            if self.note_unanswered(liveness.unanswered()) {
                reports.put(Event::Notice("no answer of the server over any link: waiting".to_owned()));
            }
            for action in actions {
                match action {
                    Action::Probe(link) => {
                        let (name, servers) = (self.shared.via[link].name.clone(), servers.to_vec());
                        let rtt = Duration::from_nanos(samples[link].rtt.as_nanos());
                        let limit = PROBE_TIMEOUT.max(rtt * PROBE_RTTS);
                        probes.spawn(async move { (link, probe(&name, &servers, limit).await) });
                    }
                    Action::Close(link) => {
                        self.lock().dead[link] = true;
                        self.close(link).await;
                        let name = &self.shared.via[link].name;
                        let says = format!(
                            "no answer of the server over the link {name}: it is left out until there is one"
                        );
                        reports.put(Event::Notice(says));
                    }
                    Action::Renew(link) | Action::Open(link) => {
                        if action == Action::Renew(link) {
                            self.close(link).await;
                        }
                        if !self.open(link, ips, reports).await {
                            liveness.not_opened(link);
                        }
                        places = self.places();
                    }
                }
            }
            sleep(STEP).await;
        }
    }

    /// The addresses of each link; none if it is down.
    fn places(&self) -> Vec<Vec<IpAddr>> {
        let all = interfaces().unwrap_or_default();
        let of = |link: &Via| {
            let found = all.iter().find(|interface| interface.name == link.name && interface.up);
            found.map(|interface| interface.addresses.clone()).unwrap_or_default()
        };
        self.shared.via.iter().map(of).collect()
    }

    /// Counts what links with caps carry, and says what changes.
    fn count(&self, reports: &Reports) -> Vec<Change> {
        let now = self.shared.clock.now();
        let Some(changes) = self.book().as_mut().map(|book| book.step(now, reports)) else {
            return Vec::new();
        };
        self.take_usage();
        for change in &changes {
            let (Change::Spent(n) | Change::Renewed(n)) = change;
            let name = &self.shared.via[*n].name;
            let Some(usage) = self.lock().usage.iter().find(|usage| usage.link == *name).cloned() else {
                continue;
            };
            let Usage { bytes, cap, .. } = usage;
            reports.put(Event::Notice(match change {
                Change::Spent(_) => {
                    format!(
                        "the link {name} has carried {bytes} bytes, of {cap}: it waits for the next period"
                    )
                }
                Change::Renewed(_) => format!("the link {name} is used again: it may carry {cap}"),
            }));
        }
        changes
    }

    /// A link that is spent is none, until it is not: then it is asked whether it answers.
    fn forbid_spent(&self, liveness: &mut Liveness, spent_at: &mut [Option<Time>]) {
        let spent = self.lock().spent.clone();
        for (n, is_spent) in spent.into_iter().enumerate() {
            liveness.forbid(n, is_spent);
            spent_at[n] = is_spent.then(|| spent_at[n].unwrap_or_else(|| self.shared.clock.now()));
        }
    }

    /// Trunks that use a spent link all the same, for the kernel cannot take it away from them, have to end;
    /// and all, if there is no other.
    fn doom(&self, meter: &Meter, spent_at: &[Option<Time>]) {
        let now = self.shared.clock.now();
        let is_late = |at: &Option<Time>| at.is_some_and(|at| now.since(at) > CLOSES_WITHIN);
        let mut doomed: Vec<u64> = spent_at
            .iter()
            .enumerate()
            .filter(|(_, at)| is_late(at))
            .flat_map(|(n, _)| meter.over(n))
            .collect();
        let mut state = self.lock();
        if spent_at.iter().all(is_late) {
            // They have nothing to wait for.
            doomed.extend(state.trunks.keys());
        }
        if !doomed.is_empty() {
            state.doomed.extend(doomed);
            drop(state);
            self.shared.news.notify_waiters();
        }
    }

    fn samples(&self, meter: &mut Meter, now: Time, places: &[Vec<IpAddr>]) -> Vec<Sample> {
        let state = self.lock();
        let says = |(number, fd): (&u64, &OwnedFd)| Some((*number, kernel_paths::subflows_of(fd)?));
        let trunks: Vec<_> = state.trunks.iter().filter_map(says).collect();
        let out = state.out();
        drop(state);
        meter.measure(now, places, &out, &trunks)
    }

    /// Trunks that have lost a link are to be replaced.
    fn note_lame(&self, lame: &[(u64, usize)], is_told: &mut bool, reports: &Reports) {
        let mut state = self.lock();
        for (trunk, link) in lame {
            if !state.trunks.contains_key(trunk) || !state.lame.insert(*trunk) {
                continue;
            }
            self.shared.lamed.notify_one();
            if !std::mem::replace(is_told, true) {
                let name = &self.shared.via[*link].name;
                reports.put(Event::Notice(format!(
                    "connections to the server do not use {name}, which works: new ones replace them. The \
                     limit at the server may be too low: ip mptcp limits set subflows 8"
                )));
            }
        }
    }

    /// Waits until one more trunk has lost a link for good.
    pub(crate) async fn lames(&self) {
        self.shared.lamed.notified().await;
    }

    /// Takes a link away: the kernel closes its subflows, tells the server, and both send what was under way
    /// over the others.
    async fn close(&self, link: usize) {
        let of = self.shared.via[link].name.clone();
        let closing = move || {
            let index = Netlink::open().and_then(|netlink| netlink.index(&of)).ok();
            let Ok(manager) = PathManager::open() else { return };
            let all = manager.endpoints().unwrap_or_default();
            for endpoint in all.iter().filter(|endpoint| index.is_some() && endpoint.device == index) {
                // Gone already: good.
                let _ = manager.del_endpoint(endpoint);
            }
        };
        let _ = spawn_blocking(closing).await;
    }

    /// Puts a link back: the kernel opens subflows over it, also of trunks that are there. Whether it has: a
    /// link with a new address may have no route yet, though the server answers over it.
    async fn open(&self, link: usize, ips: &[IpAddr], reports: &Reports) -> bool {
        let name = &self.shared.via[link].name;
        self.lock().dead[link] = false;
        self.decide_price();
        let updated = self.update(ips).await;
        let is_known = !kernel_paths::unknown(&self.shared.via[link..=link])[0];
        self.lock().dead[link] = !is_known;
        match updated {
            Ok(()) if is_known => reports.put(Event::Notice(format!("the link {name} works again"))),
            Ok(()) => {}
            Err(e) => reports.put(Event::Notice(format!("the link {name} works again, but: {e}"))),
        }
        is_known
    }

    /// Tells the kernel which links are used, and how.
    async fn update(&self, ips: &[IpAddr]) -> anabranch_kernel::uplinks::Result<()> {
        let (links, program, backup) = (self.clone(), self.program(ips.to_vec()), self.backups());
        let updating = move || {
            let mut session = links.session();
            session.as_mut().map_or(Ok(()), |session| session.update(backup, program).map(drop))
        };
        spawn_blocking(updating).await.unwrap_or(Ok(()))
    }
}
