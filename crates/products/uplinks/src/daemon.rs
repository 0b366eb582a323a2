//! The loop: waits for the kernel, asks the [`Decider`], and has the kernel told.
//!
//! The loop is one thread, which works in the network namespace that it was started in. It wakes when
//! rtnetlink reports a change, when somebody asks for the status, when a link has settled, ten times a second
//! if there is a radio, and every three seconds to see what else has changed, and whether there is a radio
//! now.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use anabranch_algo::{Machine as _, Output, Span, Time};
use anabranch_kernel::uplinks::{
    self, PROGRAM_STATE_DIR, PROGRAM_TABLE_BASE, Plan, Program, Session, Survey, survey,
};
use anabranch_net::netlink::{PathManager, SockDiag, TcpState};
use anabranch_net::{Clock, Interest, NetworkMonitor, Poller};

use crate::decide::{Decider, Input, State, Wanted};
use crate::managers::{self, USER_MANAGER};
use crate::mend::{Count, Mender};
use crate::policy::Policy;
use crate::radio::{KernelRadio, Radio};
use crate::status::{self, LinkStatus, Server, Snapshot};
use crate::{Error, Result};

/// The time between two looks at what nothing reports: endpoints that another program removed.
const LOOK_EVERY: Span = Span::from_secs(3);
/// The time between two readings of radios.
const RADIO_EVERY: Span = Span::from_millis(100);
/// The time after which a change that the kernel refused is tried again.
const RETRY_AFTER: Span = Span::from_secs(1);

/// The options of a daemon.
pub struct Options {
    /// What the user wants.
    pub policy: Policy,
    /// The routing table of the first uplink.
    pub table_base: u32,
    /// The directory of the journal and the socket.
    pub state_dir: PathBuf,
    /// The radios; `None` asks the kernel's nl80211.
    pub radio: Option<Box<dyn Radio>>,
}

impl Options {
    /// Returns the options of a daemon with this policy, with the directory and the tables that programs
    /// have.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self { policy, table_base: PROGRAM_TABLE_BASE, state_dir: PROGRAM_STATE_DIR.into(), radio: None }
    }

    fn for_session(&self, wanted: &Wanted) -> uplinks::Options {
        uplinks::Options {
            backup: wanted.backup.clone(),
            table_base: self.table_base,
            state_dir: self.state_dir.clone(),
            program: Some(program(wanted, &Wanted::default(), &self.policy)),
            ..uplinks::Options::for_program(wanted.interfaces.clone(), Vec::new())
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("policy", &self.policy).finish_non_exhaustive()
    }
}

/// Says what the session is to do for `wanted`, after `before` was done.
fn program(wanted: &Wanted, before: &Wanted, policy: &Policy) -> Program {
    let has_returned =
        |(ip, returns): &(&IpAddr, &u64)| before.returns.get(ip).is_some_and(|earlier| earlier != *returns);
    Program {
        renewed: wanted.returns.iter().filter(has_returned).map(|(ip, _)| *ip).collect(),
        servers: Vec::new(),
        without: wanted.without.clone(),
        ids: wanted.ids.clone(),
        // What works may be lost before the kernel is told. Only the decider knows whether another works.
        kept: wanted.ids.keys().chain(&wanted.kept).copied().collect(),
        fullmesh: policy.fullmesh,
        leaves_others: true,
    }
}

/// Something that the daemon reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The kernel's configuration was changed: the changes, as arguments of `ip`.
    Changed(Vec<String>),
    /// An interface has another state, and why.
    Link {
        /// The interface.
        name: String,
        /// What becomes of it now.
        state: State,
        /// Why.
        why: String,
    },
    /// Something that the user should know.
    Notice(String),
}

/// What the user was told.
#[derive(Debug, Default)]
struct Said {
    notes: Vec<String>,
    /// What is tried again, until it succeeds.
    failing: Option<String>,
    told: BTreeSet<String>,
}

impl Said {
    fn tell_once(&mut self, text: String, events: &mut Vec<Event>) {
        if self.is_new(&text) {
            self.notes.push(text.clone());
            events.push(Event::Notice(text));
        }
    }

    /// Tells once that something failed; the notes have it until [`succeeded`](Self::succeeded).
    fn failed(&mut self, text: String, events: &mut Vec<Event>) {
        if self.is_new(&text) {
            events.push(Event::Notice(text.clone()));
        }
        self.failing = Some(text);
    }

    fn succeeded(&mut self) {
        self.failing = None;
    }

    fn is_new(&mut self, text: &str) -> bool {
        /// The most texts that are remembered.
        const TOLD_MAX: usize = 100;
        self.told.len() < TOLD_MAX && self.told.insert(text.to_owned())
    }

    fn notes(&self) -> Vec<String> {
        self.notes.iter().chain(&self.failing).cloned().collect()
    }
}

/// The daemon. Dropping it puts everything back.
pub struct Daemon {
    options: Options,
    clock: Clock,
    decider: Decider,
    session: Session,
    /// What was done last.
    applied: Wanted,
    monitor: NetworkMonitor,
    server: Server,
    radio: Box<dyn Radio>,
    mender: Mender,
    changes: u64,
    said: Said,
    states: Vec<(String, State)>,
    look_at: Time,
    radio_at: Time,
    begun: Vec<Event>,
}

impl fmt::Debug for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Daemon").field("decider", &self.decider).finish_non_exhaustive()
    }
}

/// Returns what a daemon would change now, and changes nothing.
///
/// # Errors
/// As [`Daemon::begin`].
pub fn preview(options: &Options) -> Result<Plan> {
    let (_, wanted) = first_look(options)?;
    Ok(uplinks::plan(&options.for_session(&wanted))?)
}

/// Puts back what a killed daemon left behind. Returns what was done; `None` if there was nothing.
///
/// # Errors
/// If a daemon or another program is at work in this namespace, or the kernel refuses.
pub fn clean(state_dir: &Path) -> Result<Option<Plan>> {
    Ok(Session::clean_up(state_dir)?)
}

fn first_look(options: &Options) -> Result<(Decider, Wanted)> {
    options.policy.check().map_err(Error::Links)?;
    let mut decider = Decider::new(options.policy.clone());
    decider.take_over(uplinks::made(&options.state_dir)?);
    decider.handle(Time::ZERO, Input::Network(&survey()?));
    let wanted = decider.wanted().clone();
    Ok((decider, wanted))
}

/// Returns what a daemon has done that began with `wanted`. Endpoints that an earlier daemon left while no
/// uplink worked count as lost: they are made anew when their uplinks come back.
fn begun_with(mut wanted: Wanted) -> Wanted {
    wanted.returns.extend(wanted.kept.iter().map(|ip| (*ip, u64::MAX)));
    wanted
}

impl Daemon {
    /// Sets up the uplinks that there are now in the calling thread's network namespace, and takes over what
    /// a killed daemon left.
    ///
    /// # Errors
    /// If the policy makes no sense, the privilege is missing, the kernel has no MPTCP, another daemon is at
    /// work, or a routing table is in use.
    pub fn begin(mut options: Options) -> Result<Self> {
        let clock = Clock::start();
        // What changes from now on is reported.
        let monitor = NetworkMonitor::new().map_err(|e| Error::System("follow the network", e))?;
        let (decider, wanted) = first_look(&options)?;
        let (session, plan) = Session::begin(options.for_session(&wanted))?;
        let socket = status::socket(&options.state_dir).and_then(Server::listen);
        let server = socket.map_err(|e| Error::System("listen for `status`", e))?;
        let radio = options.radio.take().unwrap_or_else(|| Box::new(KernelRadio::open()));
        let mut daemon = Self {
            options,
            clock,
            decider,
            session,
            applied: begun_with(wanted),
            monitor,
            server,
            radio,
            mender: Mender::default(),
            changes: 0,
            said: Said::default(),
            states: Vec::new(),
            look_at: Time::ZERO,
            radio_at: Time::ZERO,
            begun: Vec::new(),
        };
        let mut begun = Vec::new();
        managers::running().into_iter().for_each(|note| daemon.said.tell_once(note, &mut begun));
        daemon.note(&plan, &mut begun);
        daemon.begun = begun;
        Ok(daemon)
    }

    /// Works until `stops` says so, which is asked whenever `wake` becomes readable, and reports.
    ///
    /// # Errors
    /// If waiting fails: no memory is left.
    pub fn run(
        &mut self,
        wake: BorrowedFd<'_>,
        stops: &dyn Fn() -> bool,
        report: &mut dyn FnMut(Event),
    ) -> Result<()> {
        let mut poller = Poller::new(self.clock);
        let mut events = std::mem::take(&mut self.begun);
        while !stops() {
            let until = self.step(&mut events);
            events.drain(..).for_each(&mut *report);
            let set = [Some(wake), Some(self.server.fd()), self.monitor.fd()].into_iter().flatten();
            let set = set.map(|fd| (fd, Interest::Read));
            poller.wait(set, until).map_err(|e| Error::System("wait for changes", e))?;
        }
        Ok(())
    }

    /// Ends, puts everything back as it was before, and tells what was done.
    ///
    /// # Errors
    /// If the kernel refuses a change. The next daemon, or [`clean`], does the rest.
    pub fn end(self) -> Result<Option<Plan>> {
        Ok(self.session.end()?)
    }

    /// Ends, and leaves everything in place for the next daemon.
    pub fn leave(self) {
        self.session.leave();
    }

    /// Does what is due, and returns when to come back.
    fn step(&mut self, events: &mut Vec<Event>) -> Time {
        let now = self.clock.now();
        let mut looks = self.monitor.changed(now);
        if now >= self.look_at {
            (looks, self.look_at) = (true, now + LOOK_EVERY);
            self.radio.look();
            if self.radio.is_there() {
                self.radio_at = self.radio_at.min(now);
            }
        }
        if looks {
            match survey() {
                Ok(seen) => {
                    self.say_of(&seen, events);
                    self.decider.handle(now, Input::Network(&seen));
                }
                Err(e) => self.failed(&e.to_string(), events),
            }
        }
        if now >= self.radio_at {
            self.read_radios();
            self.radio_at = if self.radio.is_there() { now + RADIO_EVERY } else { Time::NEVER };
        }
        let now = self.clock.now();
        let settles_at = loop {
            match self.decider.poll(now) {
                Output::Event(_) => looks = true,
                Output::Send(()) => {}
                Output::Wait(until) => break until,
            }
        };
        let anew = self.mend(now);
        // Also if nothing else is wanted: somebody may have removed a route.
        if looks || !anew.is_empty() {
            self.apply(anew, events);
        }
        self.report(events);
        self.server.answer(|| self.snapshot());
        let due = settles_at.min(self.look_at).min(self.radio_at);
        due.min(self.mender.deadline()).min(self.monitor.deadline())
    }

    /// Returns the endpoints that no connection uses though it could.
    fn mend(&mut self, now: Time) -> Vec<IpAddr> {
        if self.mender.deadline() > now {
            return Vec::new();
        }
        let sockets = SockDiag::open().and_then(|sockets| sockets.tcp(TcpState::LIVE)).unwrap_or_default();
        self.mender.check(now, |ip| Count::of(ip, &sockets))
    }

    fn read_radios(&mut self) {
        let now = self.clock.now();
        let present: Vec<(String, u32)> =
            self.decider.present().map(|(name, index)| (name.to_owned(), index)).collect();
        for (name, index) in present {
            if let Some(reading) = self.radio.read(&name, index) {
                self.decider.handle(now, Input::Radio(&name, reading));
            }
        }
    }

    /// Does what is wanted, and makes the endpoints `anew` anew.
    fn apply(&mut self, anew: Vec<IpAddr>, events: &mut Vec<Event>) {
        let wanted = self.decider.wanted().clone();
        let mut program = program(&wanted, &self.applied, &self.options.policy);
        program.renewed.extend(anew);
        match self.session.set(wanted.interfaces.clone(), wanted.backup.clone(), program) {
            Ok(plan) => {
                // An address keeps its count while its uplink is lost.
                let mut returns = std::mem::take(&mut self.applied.returns);
                returns.retain(|ip, _| wanted.kept.contains(ip));
                returns.extend(wanted.returns.clone());
                self.applied = Wanted { returns, ..wanted };
                self.mender.see(self.clock.now(), self.applied.ids.keys().copied());
                self.said.succeeded();
                self.note(&plan, events);
            }
            Err(e) => self.failed(&e.to_string(), events),
        }
    }

    fn failed(&mut self, why: &str, events: &mut Vec<Event>) {
        self.look_at = self.look_at.min(self.clock.now() + RETRY_AFTER);
        self.said.failed(format!("{why}; it is tried again"), events);
    }

    /// Notes what was done.
    fn note(&mut self, plan: &Plan, events: &mut Vec<Event>) {
        let done = plan.describe();
        if !done.is_empty() {
            self.changes += done.len() as u64;
            events.push(Event::Changed(done));
        }
        // What cannot be used is in the reports already.
        let reports = self.decider.report();
        let is_new = |note: &&String| reports.iter().all(|report| report.why != **note);
        for note in plan.notes().iter().filter(is_new).cloned().collect::<Vec<_>>() {
            self.said.tell_once(note, events);
        }
    }

    fn say_of(&mut self, seen: &Survey, events: &mut Vec<Event>) {
        if seen.user_manager {
            self.said.tell_once(USER_MANAGER.to_owned(), events);
        }
        for link in seen.links.iter().filter(|link| !link.is_line && link.has_default_route) {
            let name = &link.name;
            let is_used = self.options.policy.of(name, false).is_some();
            if !is_used {
                let says = format!(
                    "{name} is a tunnel with a default route: MPTCP connections also use the lines below it, \
                     past the tunnel"
                );
                self.said.tell_once(says, events);
            }
        }
    }

    fn report(&mut self, events: &mut Vec<Event>) {
        let reports = self.decider.report();
        let states: Vec<_> = reports.iter().map(|report| (report.name.clone(), report.state)).collect();
        if states == self.states {
            return;
        }
        let before = std::mem::replace(&mut self.states, states);
        for report in reports {
            let was = before.iter().find(|(name, _)| *name == report.name).map(|(_, state)| *state);
            let is_news = was != Some(report.state) && !(was.is_none() && report.state == State::Ignored);
            if is_news {
                events.push(Event::Link { name: report.name, state: report.state, why: report.why });
            }
        }
    }

    /// Returns the present state.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let endpoints = PathManager::open().and_then(|manager| manager.endpoints()).unwrap_or_default();
        let reports = self.decider.report().into_iter();
        let links = reports.map(|report| LinkStatus::new(report, self.options.table_base, &endpoints));
        Snapshot {
            release: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: self.clock.now().since(Time::ZERO).as_nanos() as f64 / 1e9,
            changes: self.changes,
            links: links.collect(),
            notes: self.said.notes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_said_once_and_noted_until_it_is_over() {
        let (mut said, mut events) = (Said::default(), Vec::new());
        said.tell_once("a tunnel".into(), &mut events);
        for _ in 0..2 {
            said.failed("refused".into(), &mut events);
            said.failed("refused".into(), &mut events);
            assert_eq!(said.notes(), ["a tunnel", "refused"]);
            said.succeeded();
            assert_eq!(said.notes(), ["a tunnel"]);
        }
        assert_eq!(events, ["a tunnel", "refused"].map(|text| Event::Notice(text.into())));
    }

    #[test]
    fn an_endpoint_that_was_left_is_made_anew_when_its_uplink_comes_back() {
        let ip: IpAddr = [10, 1, 0, 1].into();
        let begun = begun_with(Wanted { kept: vec![ip], ..Wanted::default() });
        let wanted = Wanted { returns: [(ip, 0)].into(), ..Wanted::default() };
        assert_eq!(program(&wanted, &begun, &Policy::default()).renewed, [ip]);
        let new = begun_with(Wanted::default());
        assert!(program(&wanted, &new, &Policy::default()).renewed.is_empty());
    }
}
