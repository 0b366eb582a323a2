//! The drain of a server: its clients are told to go, N a second.
//!
//! The law is [`anabranch_house::drain`]; the users are clients. A client that was told finds no new
//! connection here: its trunks end with their last streams, and a new trunk is told at once. Streams that
//! were opened before the client had read that are still served, so none is lost on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_algo::{Span, Time};
use anabranch_house::drain::{Drain, Phase};
use anabranch_net::Clock;
use tokio::sync::Notify;

use crate::PORT;
use crate::control::{Command, ControlError};
use crate::flows::Flows;
use crate::status::DrainState;
use crate::trunk::{Destination, GoAwayReason};
use crate::trunk_task::TrunkHandle;

/// The trunks of all clients, by client name and trunk number.
pub(super) type Clients = BTreeMap<(String, u64), TrunkHandle>;

#[derive(Debug)]
struct Active {
    law: Drain<String>,
    /// The server that clients are told to go to.
    to: Option<Destination>,
    /// The number of clients at the begin.
    clients: u64,
}

/// The drain of a server, if there is one. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Draining {
    active: Arc<Mutex<Option<Active>>>,
    clients: Arc<Mutex<Clients>>,
    flows: Flows,
    clock: Clock,
    work: Arc<Notify>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Draining {
    pub(super) fn new(clients: Arc<Mutex<Clients>>, flows: Flows) -> Self {
        Self { active: Arc::default(), clients, flows, clock: Clock::start(), work: Arc::default() }
    }

    /// Begins, changes or ends the drain.
    ///
    /// # Errors
    /// If the command makes no sense now.
    pub(super) fn command(&self, command: Command) -> Result<(), ControlError> {
        let now = self.clock.now();
        let present = self.present();
        let mut active = lock(&self.active);
        match (command, &mut *active) {
            (Command::Show, _) => {}
            (Command::Drain { rate, within_s, to }, active) => {
                let named = |to: String| Destination::with_port(&to, PORT).ok_or(ControlError::Server(to));
                let to = to.map(named).transpose()?;
                let until = within_s.map(|seconds| after(now, seconds)).transpose()?;
                let clients = present.len() as u64;
                let law = Drain::new(now, present, Vec::new(), rate, until)?;
                *active = Some(Active { law, to, clients });
            }
            (_, None) => return Err(ControlError::NoDrain),
            (Command::Pause, Some(active)) => active.law.pause(),
            (Command::Resume, Some(active)) => active.law.resume(now),
            (Command::Cancel, active) => *active = None,
        }
        drop(active);
        self.work.notify_one();
        Ok(())
    }

    /// Returns the names of the clients that have trunks.
    fn present(&self) -> BTreeSet<String> {
        lock(&self.clients).keys().map(|(owner, _)| owner.clone()).collect()
    }

    /// Whether new trunks of this client are turned away. If so, also returns where the client is to go.
    pub(super) fn turns_away(&self, owner: &str) -> Option<Option<Destination>> {
        let active = lock(&self.active);
        let active = active.as_ref()?;
        (!active.law.waits(&owner.to_owned())).then(|| active.to.clone())
    }

    /// Tells clients to go when it is their turn. Never returns.
    pub(super) async fn keep(&self) {
        loop {
            let next = self.tell_due();
            let pause = next.since(self.clock.now()).as_nanos();
            let pause = std::time::Duration::from_nanos(pause.min(Span::from_secs(3_600).as_nanos()));
            tokio::select! {
                () = self.work.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Tells the clients whose turn has come. Returns when the next one has its turn.
    fn tell_due(&self) -> Time {
        loop {
            let mut active = lock(&self.active);
            let Some(active) = &mut *active else { return Time::NEVER };
            let now = self.clock.now();
            let Some(one) = active.law.poll(now) else { return active.law.next_at() };
            let to = active.to.clone();
            for ((owner, _), trunk) in &*lock(&self.clients) {
                if *owner == one.user {
                    send_away(trunk, to.as_ref());
                }
            }
        }
    }

    /// Returns the drain for the status.
    pub(super) fn status(&self) -> Option<DrainState> {
        let (now, present) = (self.clock.now(), self.present());
        let connections = self.flows.by_user();
        let active = lock(&self.active);
        let active = active.as_ref()?;
        let law = &active.law;
        let state = match law.phase() {
            Phase::Paused => "paused",
            Phase::Ended => "ended",
            Phase::Running if law.is_empty() && present.is_empty() => "ended",
            Phase::Running => "running",
        };
        Some(DrainState {
            state: state.to_owned(),
            clients: active.clients,
            told: law.moved(),
            waiting: law.waiting() as u64,
            present: present.len() as u64,
            open_connections: present.iter().filter_map(|owner| connections.get(owner)).sum(),
            rate: law.rate(),
            left_s: law.until().map(|until| until.since(now).as_nanos() as f64 / 1e9),
            to: active.to.as_ref().map(ToString::to_string),
        })
    }
}

/// Tells a client that it is to go, and where.
pub(super) fn send_away(trunk: &TrunkHandle, to: Option<&Destination>) {
    to.into_iter().for_each(|to| trunk.name_server(to.clone(), true));
    trunk.go_away(GoAwayReason::Drains);
}

/// Returns the time after this number of seconds.
fn after(now: Time, seconds: f64) -> Result<Time, ControlError> {
    const LONGEST_S: f64 = 366.0 * 86_400.0;
    match seconds {
        0.001..=LONGEST_S => Ok(now + Span::from_millis((seconds * 1e3) as u64)),
        _ if seconds > LONGEST_S => Err(ControlError::TooLong),
        // This includes what is no number.
        _ => Err(ControlError::Drain(anabranch_house::drain::DrainError::Past)),
    }
}
