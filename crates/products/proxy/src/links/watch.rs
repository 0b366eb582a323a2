//! The links in the world: gives the kernel its endpoints, watches each link, takes a dead link away and puts
//! it back.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anabranch_algo::{Span, Time};
use anabranch_house::links::{Book, CapsError, Change, Price, Usage};
use anabranch_kernel::uplinks::{Program, Session};
use anabranch_net::netlink::{Endpoint, Netlink, PathManager};
use anabranch_net::{Clock, NetworkMonitor, interfaces};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;

use crate::event::{Event, Reports};
use crate::links::liveness::{Action, Liveness, Sample};
use crate::links::meter::Meter;
use crate::links::probe::probe;
use crate::links::{Via, kernel_paths};

/// The time between two checks of each link.
const STEP: Duration = Duration::from_millis(50);
/// The time between two checks whether links have other addresses.
const FOLLOW_STEP: Duration = Duration::from_millis(200);
/// The time after which a probe has failed, unless four round trips are longer.
const PROBE_TIMEOUT: Duration = Duration::from_millis(300);
const PROBE_RTTS: u32 = 4;
/// The time that a new subflow has to come up, plus a few round trips, before the removal of the other links
/// is repeated over it.
const JOINS_WITHIN: Span = Span::from_millis(250);
const JOINS_WITHIN_RTTS: u64 = 4;
/// The time that the kernel has to close the subflows of a spent link.
const CLOSES_WITHIN: Span = Span::from_millis(300);

/// The state of the links. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Links {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    via: Vec<Via>,
    clock: Clock,
    state: Mutex<State>,
    /// The kernel's endpoints. They have a lock of their own, because it is held while the kernel works.
    session: Mutex<Option<Session>>,
    /// The caps; `None` if no link has one.
    book: Mutex<Option<Book>>,
    /// Wakes trunks that may have to end.
    news: Notify,
    /// Wakes the task that keeps the trunks, because a trunk has lost a link for good.
    lamed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The sockets of the trunks.
    trunks: BTreeMap<u64, OwnedFd>,
    next: u64,
    dead: Vec<bool>,
    /// Whether each link does not answer. This includes the last link, which is never dead.
    unanswered: Vec<bool>,
    /// Whether each link has used up its cap.
    spent: Vec<bool>,
    usage: Vec<Usage>,
    /// Whether any trunk is full, and the decision which links carry data then.
    is_full: bool,
    price: Price,
    /// The indices of links that carry data only while no other can.
    backups: Vec<usize>,
    /// The endpoints that were taken from the kernel, by their link.
    taken: BTreeMap<usize, Vec<Endpoint>>,
    /// The trunks that have lost a link for good, and the trunks that use a link that they must not use.
    lame: BTreeSet<u64>,
    doomed: BTreeSet<u64>,
}

impl State {
    /// Returns for each link whether it cannot be used, because it is dead or spent.
    fn out(&self) -> Vec<bool> {
        self.dead.iter().zip(&self.spent).map(|(dead, spent)| *dead || *spent).collect()
    }

    /// Returns the endpoints that were taken from the kernel, of the links that cannot be used now.
    fn taken_and_out(&self) -> Vec<Endpoint> {
        let out = self.out();
        let of_out = self.taken.iter().filter(|(link, _)| out[**link]);
        of_out.flat_map(|(_, endpoints)| endpoints).copied().collect()
    }
}

/// A trunk that is watched until this is dropped.
#[derive(Debug)]
pub(crate) struct Watched {
    links: Links,
    number: u64,
}

impl Watched {
    /// Whether the trunk has lost a working link, which a new trunk would use.
    pub(crate) fn is_lame(&self) -> bool {
        self.links.lock().lame.contains(&self.number)
    }

    /// Waits until the trunk has to end because it uses a link that must carry no more.
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
    /// Creates the state of the links. `state_dir` is the directory for the counts of caps.
    ///
    /// # Errors
    /// If a link has a cap that cannot be kept.
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

    /// Publishes the usage that the book has counted.
    fn take_usage(&self) {
        let Some(usage) = self.book().as_ref().map(Book::usage) else { return };
        let is_spent = |link: &Via| usage.iter().any(|of| of.link == link.name && of.is_spent);
        let spent = self.shared.via.iter().map(is_spent).collect();
        let mut state = self.lock();
        (state.spent, state.usage) = (spent, usage);
    }

    /// Returns the usage of each link with a cap.
    pub(crate) fn usage(&self) -> Vec<Usage> {
        self.lock().usage.clone()
    }

    /// Whether the link with this index must carry no more.
    pub(crate) fn is_spent(&self, link: usize) -> bool {
        self.lock().spent.get(link).copied().unwrap_or(false)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a trunk. Returns `None` if no links are named, or if no descriptor is left.
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

    /// Returns the links as the user named them, each with whether it does not answer. Links that are backups
    /// now because of their cost are marked as backups.
    pub(crate) fn named(&self) -> Vec<(Via, bool)> {
        let state = self.lock();
        let is_backup = |n: usize, link: &Via| link.is_backup || state.backups.contains(&n);
        let is_silent = |n: usize| state.dead[n] || state.unanswered.get(n) == Some(&true);
        let as_now =
            |(n, link): (usize, &Via)| (Via { is_backup: is_backup(n, link), ..link.clone() }, is_silent(n));
        self.shared.via.iter().enumerate().map(as_now).collect()
    }

    /// Stores which links do not answer. Returns whether no usable link answers now while one did before.
    fn note_unanswered(&self, unanswered: Vec<bool>) -> bool {
        let mut state = self.lock();
        let all =
            |of: &[bool]| !of.is_empty() && of.iter().zip(state.out()).all(|(silent, out)| *silent || out);
        let is_new = all(&unanswered) && !all(&state.unanswered);
        state.unanswered = unanswered;
        is_new
    }

    /// Sets whether any trunk has more bytes to carry than the links take.
    pub(crate) fn note_full(&self, is_full: bool) {
        self.lock().is_full = is_full;
    }

    /// Decides again which links carry data only while no other can. Returns whether that has changed.
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

    /// Returns the links over which a trunk may begin: live links first, then by backup and cost. Spent links
    /// are left out.
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

    /// Sets the kernel's endpoints, and then watches the links. Returns only if caps cannot be kept.
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

    /// Returns what the kernel's path manager needs to know of the program.
    fn program(&self, servers: Vec<IpAddr>) -> Program {
        let out = self.lock().out();
        let without = self.shared.via.iter().zip(out).filter(|(_, is_out)| *is_out);
        Program {
            servers,
            without: without.map(|(link, _)| link.name.clone()).collect(),
            ..Program::default()
        }
    }

    /// Restores the kernel's former endpoints, which takes milliseconds.
    pub(crate) async fn end(&self, reports: &Reports) {
        let (links, reports) = (self.clone(), reports.clone());
        let ending = move || {
            drop(links.session().take());
            // The last bytes are counted too.
            if let Some(mut book) = links.book().take() {
                book.save(links.shared.clock.now(), |why| reports.put(Event::Notice(why)));
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
        let mut repeats_at = Time::NEVER;
        self.forbid_spent(&mut liveness, &mut spent_at);
        loop {
            if monitor.as_mut().is_some_and(|monitor| monitor.changed(clock.now())) {
                let before = std::mem::replace(&mut places, self.places());
                for link in kernel_paths::moved(&before, &places) {
                    self.close_moved(link, &mut liveness, reports).await;
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
                        let joins = JOINS_WITHIN + samples[link].rtt.times(JOINS_WITHIN_RTTS);
                        repeats_at = clock.now() + joins;
                    }
                }
            }
            if clock.now() >= repeats_at {
                repeats_at = Time::NEVER;
                self.repeat_removals().await;
            }
            sleep(STEP).await;
        }
    }

    /// Takes a link away that has another address now: its subflows can get no answers. The link is put back
    /// when the server answers over it, so when there are routes again.
    async fn close_moved(&self, link: usize, liveness: &mut Liveness, reports: &Reports) {
        if liveness.lose(link) {
            self.lock().dead[link] = true;
            self.close(link).await;
            let name = &self.shared.via[link].name;
            reports.put(Event::Notice(format!("the link {name} has another address")));
        }
    }

    /// Calls `renew` with each link whose addresses have changed, or which has come up. Never returns.
    pub(crate) async fn follow(&self, renew: impl Fn(usize)) {
        let Ok(mut monitor) = NetworkMonitor::new() else { return std::future::pending().await };
        let mut before = self.places();
        loop {
            if monitor.changed(self.shared.clock.now()) {
                let now = self.places();
                let changed = now.iter().zip(&before).enumerate();
                let changed = changed.filter(|(_, (now, before))| now != before && !now.is_empty());
                changed.for_each(|(link, _)| renew(link));
                before = now;
            }
            sleep(FOLLOW_STEP).await;
        }
    }

    /// Returns the addresses of each link, none if the link is down.
    fn places(&self) -> Vec<Vec<IpAddr>> {
        let all = interfaces().unwrap_or_default();
        let of = |link: &Via| {
            let found = all.iter().find(|interface| interface.name == link.name && interface.up);
            found.map(|interface| interface.addresses.clone()).unwrap_or_default()
        };
        self.shared.via.iter().map(of).collect()
    }

    /// Counts the bytes of links with caps, reports changes and returns them.
    fn count(&self, reports: &Reports) -> Vec<Change> {
        let now = self.shared.clock.now();
        let notice = |why| reports.put(Event::Notice(why));
        let Some(changes) = self.book().as_mut().map(|book| book.step(now, notice)) else {
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

    /// Forbids spent links, and allows renewed ones, which are then probed.
    fn forbid_spent(&self, liveness: &mut Liveness, spent_at: &mut [Option<Time>]) {
        let spent = self.lock().spent.clone();
        for (n, is_spent) in spent.into_iter().enumerate() {
            liveness.forbid(n, is_spent);
            spent_at[n] = is_spent.then(|| spent_at[n].unwrap_or_else(|| self.shared.clock.now()));
        }
    }

    /// Ends trunks that still use a spent link, because the kernel cannot take it away from them. If all
    /// links are spent, ends all trunks.
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
            // No link is left for these trunks.
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

    /// Marks trunks that have lost a link, so that they are replaced.
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

    /// Waits until another trunk has lost a link for good.
    pub(crate) async fn lames(&self) {
        self.shared.lamed.notified().await;
    }

    /// Takes a link away. The kernel closes its subflows and tells the server; both send the unacknowledged
    /// bytes over the other links.
    async fn close(&self, link: usize) {
        let of = self.shared.via[link].name.clone();
        let closing = move || {
            let index = Netlink::open().and_then(|netlink| netlink.index(&of)).ok();
            let Ok(manager) = PathManager::open() else { return Vec::new() };
            let mut all = manager.endpoints().unwrap_or_default();
            all.retain(|endpoint| index.is_some() && endpoint.device == index);
            for endpoint in &all {
                // If this fails, the endpoint is gone already.
                let _ = manager.del_endpoint(endpoint);
            }
            all
        };
        let taken = spawn_blocking(closing).await.unwrap_or_default();
        if !taken.is_empty() {
            self.lock().taken.insert(link, taken);
        }
    }

    /// Tells the server again that the links that are out are gone. The kernel says so once. If no link
    /// worked then, the server keeps the dead subflows, and sends their bytes again only when their timers
    /// end.
    async fn repeat_removals(&self) {
        let taken = self.lock().taken_and_out();
        if !taken.is_empty() {
            let _ = spawn_blocking(move || kernel_paths::remove_again(&taken)).await;
        }
    }

    /// Puts a link back: the kernel opens subflows over it, also for existing trunks. Returns whether the
    /// kernel has an endpoint: a link with a new address may have no route yet, though the server answers
    /// over it.
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
