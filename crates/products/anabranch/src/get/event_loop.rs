//! The one event loop of a transfer.
//!
//! A transfer is a sequence of a few [`Stage`]s: names are looked up, HTTP servers are asked what they have
//! ([`discovery`](super::discovery)), and contents are fetched from all mirrors and sources that have them
//! ([`content_fetch`](super::content_fetch)), or many small files at once
//! ([`small_files`](super::small_files)). A stage is a state machine: the loop tells it what has arrived and
//! polls it, and the stage says what it wants and until when it waits. A stage has no loop, no clock and no
//! poller of its own.
//!
//! The [`EventLoop`] has all three, for the whole transfer. In each turn it polls the stage; checks the
//! links, whether anybody still answers, and whether progress is due; waits; checks whether the caller has
//! stopped the transfer; and hands over what has arrived. No other code does any of this. The loop acts on a
//! [`World`], the real one or a simulated one.

use anabranch_algo::{Span, Time};
use anabranch_http::client::Event;
use anabranch_mirror::variants::Patience;

use super::idle_timeout::{IdleTimer, SlowTimer};
use super::link_policy::{Carried, LinkPolicy, Links};
use super::world::{Arrival, SocketId, World};
use crate::event::Observer;
use crate::{Error, Progress, Result};

/// How often links are checked while a stage lacks one, even if no change was reported.
const REFRESH_EVERY: Span = Span::from_secs(1);
/// If the sockets were last read longer ago than this, they are read before a stage looks at its timers.
const STALE_AFTER: Span = Span::from_millis(5);
/// The longest wait. A message of another thread or a parent's stop flag is seen within this time.
const TICK: Span = Span::from_millis(100);

/// What a stage may use while it works.
pub(super) struct Context<'a, 'o> {
    pub(super) world: &'a mut dyn World,
    pub(super) observer: &'a mut Observer<'o>,
    /// How long a silence may last.
    pub(super) timeout: Span,
    /// After this time the sockets should be read before any timer is looked at.
    stale_at: Time,
}

impl Context<'_, '_> {
    pub(super) fn now(&self) -> Time {
        self.world.now()
    }

    /// Whether work has taken so long that the sockets must be read before any timer is looked at, so that a
    /// slow disk is not taken for a silent network. Always false when the stage is polled directly after such
    /// a read.
    pub(super) fn is_stale(&self) -> bool {
        self.now() > self.stale_at
    }
}

/// What a stage wants next.
pub(super) enum Poll {
    /// To be told what arrives, and to be polled then, or at this time at the latest.
    Wait(Time),
    /// To be told at once what has arrived, and to be polled again.
    Read,
    /// To be polled again at once.
    Again,
    /// Nothing: the stage is over.
    Done,
}

/// The signs that the mirrors or sources of a stage still answer.
pub(super) struct Liveness {
    /// The kind of peer that should answer, for the message that none does: "source", "mirror".
    pub(super) who: &'static str,
    /// A count that grows while any peer answers.
    pub(super) heard: u64,
    /// Whether the stage did not listen, so that no peer counts as silent.
    pub(super) busy: bool,
}

/// For most stages, what becomes of the bytes that have arrived if the transfer ends early.
pub(super) const RESUMES: &str = "what arrived is kept, and the same `Get` resumes";

/// A part of a transfer; see the [module](self).
pub(super) trait Stage {
    /// Does what the stage can do and returns what it wants next.
    ///
    /// # Errors
    /// The error with which the transfer fails.
    fn poll(&mut self, cx: &mut Context<'_, '_>) -> Result<Poll>;

    /// Handles events of HTTP servers.
    ///
    /// # Errors
    /// The error with which the transfer fails.
    fn on_http(&mut self, cx: &mut Context<'_, '_>, events: &mut Vec<Event>) -> Result<()> {
        let _ = (cx, events);
        Ok(())
    }

    /// Handles what has arrived over a UDP socket.
    fn on_udp(&mut self, now: Time, socket: SocketId, arrival: Arrival<'_>, observer: &mut Observer<'_>) {
        let _ = (now, socket, arrival, observer);
    }

    /// Handles a possible change of interfaces, addresses or routes.
    fn on_links(&mut self, cx: &mut Context<'_, '_>) {
        let _ = cx;
    }

    /// Whether a link that the stage had is gone, so that links must be checked regularly.
    fn lacks_links(&self) -> bool {
        false
    }

    /// Whether the stage can take what HTTP servers send.
    fn listens(&self) -> bool {
        true
    }

    /// Returns the signs of life for the timeout; `None` if the stage has deadlines of its own.
    fn liveness(&mut self) -> Option<Liveness> {
        None
    }

    /// Returns the errors of servers that send only errors. The message about a silent transfer names them.
    fn faults(&self) -> Option<String> {
        None
    }

    /// Ends the stage after a silence that was too long; `why` describes it. The stage may still succeed.
    ///
    /// # Errors
    /// The error with which the transfer fails.
    fn give_up(&mut self, why: String) -> Result<()> {
        Err(Error::unreachable(why))
    }

    /// Returns the bytes that have arrived over each local end; `None` if no data is expected now.
    fn carried(&self) -> Option<Carried> {
        None
    }

    /// Returns how far the stage is, if that is to be shown.
    fn progress(&mut self, now: Time) -> Option<Progress> {
        let _ = now;
        None
    }

    /// Returns what becomes of the bytes that have arrived if the stage ends early.
    fn interrupted(&self) -> &'static str {
        RESUMES
    }

    /// Finishes a stage that has ended with `result`; returns the result that counts.
    ///
    /// # Errors
    /// The error with which the transfer fails.
    fn finish(&mut self, cx: &mut Context<'_, '_>, result: Result<()>) -> Result<()> {
        let _ = cx;
        result
    }
}

/// Runs the stages of a transfer; see the [module](self).
pub(super) struct EventLoop<'a, 'o> {
    pub(super) world: &'a mut dyn World,
    pub(super) observer: &'a mut Observer<'o>,
    /// How long a silence may last before a stage is given up.
    timeout: Span,
    /// How long a silent or slow stage is waited for; `None` if there is nothing else to try.
    patience: Option<Patience>,
    /// Whether a stage was given up because it was silent or slow for longer than `patience`.
    gave_way: bool,
    refresh_at: Time,
    /// The conditions of the links; `None` if they have none.
    links: Option<LinkPolicy>,
    /// Whether the stage did not listen in the last turn, so that no link counts as silent or full.
    is_busy: bool,
    /// When the sockets were last read.
    read_at: Time,
    /// A buffer for HTTP events; empty between turns.
    events: Vec<Event>,
}

impl<'a, 'o> EventLoop<'a, 'o> {
    pub(super) fn new(world: &'a mut dyn World, observer: &'a mut Observer<'o>, timeout: Span) -> Self {
        let now = world.now();
        Self {
            world,
            observer,
            timeout,
            patience: None,
            gave_way: false,
            refresh_at: now + REFRESH_EVERY,
            links: None,
            is_busy: false,
            read_at: now,
            events: Vec::new(),
        }
    }

    /// Keeps the conditions of these links from now on.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if a cap cannot be kept;
    /// [`ErrorKind::Unreachable`](crate::ErrorKind::Unreachable) if every link has carried its cap.
    pub(super) fn with_links(mut self, links: &Links) -> Result<Self> {
        self.links = LinkPolicy::open(links)?;
        if let Some(links) = &mut self.links {
            links.look(self.world.now(), None, self.world, self.observer)?;
        }
        Ok(self)
    }

    /// Calls `run` with this patience for its stages: a silent or slow stage is given up earlier. Returns the
    /// result of `run`, and whether a stage was given up, although its mirrors may be right.
    pub(super) fn with_patience<T>(
        &mut self,
        patience: Option<Patience>,
        run: impl FnOnce(&mut Self) -> T,
    ) -> (T, bool) {
        (self.patience, self.gave_way) = (patience, false);
        let result = run(self);
        self.patience = None;
        (result, self.gave_way)
    }

    /// Returns how long a silence may last if there is nothing else to try.
    pub(super) const fn whole_timeout(&self) -> Span {
        self.timeout
    }

    /// Returns how long a silence may last with the present patience.
    fn timeout(&self) -> Span {
        self.patience.map_or(self.timeout, |patience| self.timeout.min(patience.silence))
    }

    /// Returns what a stage may use between two runs.
    pub(super) fn context(&mut self) -> Context<'_, 'o> {
        let (timeout, stale_at) = (self.timeout(), Time::NEVER);
        Context { world: &mut *self.world, observer: &mut *self.observer, timeout, stale_at }
    }

    /// Runs a stage to its end.
    ///
    /// # Errors
    /// The error of the stage; [`ErrorKind::Unreachable`](crate::ErrorKind::Unreachable) if no server answers
    /// any more, [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) if the caller stops the transfer.
    pub(super) fn run(&mut self, stage: &mut dyn Stage) -> Result<()> {
        let result = self.turns(stage);
        let result = stage.finish(&mut self.context(), result);
        self.world.reset_http();
        result
    }

    fn turns(&mut self, stage: &mut dyn Stage) -> Result<()> {
        let now = self.world.now();
        let mut timers = (IdleTimer::new(now), SlowTimer::new(now));
        let mut stale_at = self.read_at + STALE_AFTER;
        loop {
            match stage.poll(&mut Context { stale_at, ..self.context() })? {
                Poll::Done => return Ok(()),
                Poll::Again => stale_at = self.read_at + STALE_AFTER,
                Poll::Read => {
                    self.read(stage, true)?;
                    stale_at = Time::NEVER;
                }
                Poll::Wait(until) => {
                    let now = self.world.now();
                    self.look_at_links(now, stage)?;
                    if self.is_given_up(now, &mut timers, stage)? {
                        return Ok(());
                    }
                    if self.observer.is_due(now)
                        && let Some(progress) = stage.progress(now)
                    {
                        self.observer.progress(now, &progress);
                    }
                    let until = until.min(now + TICK).min(self.refresh_at);
                    let waited = self.world.wait(until, stage.listens());
                    waited.map_err(|e| Error::system(format!("waiting for packets: {e}")).because(e))?;
                    if self.observer.is_stopped() {
                        return Err(Error::interrupted(format!("interrupted; {}", stage.interrupted())));
                    }
                    self.read(stage, false)?;
                    stale_at = self.read_at + STALE_AFTER;
                }
            }
        }
    }

    /// Tells a stage of links that have appeared or gone, or that are held back or no longer.
    fn look_at_links(&mut self, now: Time, stage: &mut dyn Stage) -> Result<()> {
        let mut changed = self.world.links_changed();
        if let Some(links) = self.links.as_mut().filter(|links| links.is_due(now)) {
            let carried = stage.carried().filter(|_| !self.is_busy);
            changed |= links.look(now, carried, self.world, self.observer)?;
        }
        if changed {
            self.world.forget_failures();
        }
        let is_due = now >= self.refresh_at;
        if changed || is_due {
            self.refresh_at = now + REFRESH_EVERY;
        }
        if changed || (is_due && stage.lacks_links()) {
            stage.on_links(&mut self.context());
        }
        Ok(())
    }

    /// Whether the stage is over because the servers were silent or slow for too long.
    fn is_given_up(
        &mut self,
        now: Time,
        (silence, slow): &mut (IdleTimer, SlowTimer),
        stage: &mut dyn Stage,
    ) -> Result<bool> {
        let Some(Liveness { who, heard, busy }) = stage.liveness() else { return Ok(false) };
        self.is_busy = busy;
        if busy {
            silence.heard(now);
            slow.restart(now);
        }
        let timeout = self.timeout();
        let mut why = silence.look(now, heard, timeout, who, || stage.faults(), self.observer);
        if let Some(patience) = self.patience {
            why = why.or_else(|| slow.look(now, patience, || stage.progress(now)));
            self.gave_way = why.is_some();
        }
        match why {
            None => Ok(false),
            Some(why) => stage.give_up(why).map(|()| true),
        }
    }

    /// Hands over what has arrived over HTTP, and over the UDP sockets that are known to be readable or over
    /// `all`.
    fn read(&mut self, stage: &mut dyn Stage, all: bool) -> Result<()> {
        let now = self.world.now();
        self.read_at = now;
        if stage.listens() {
            let mut events = std::mem::take(&mut self.events);
            self.world.take_http(&mut events);
            if !events.is_empty() {
                stage.on_http(&mut self.context(), &mut events)?;
            }
            events.clear();
            self.events = events;
        }
        let observer = &mut *self.observer;
        self.world.receive(all, &mut |socket, arrival| stage.on_udp(now, socket, arrival, observer));
        Ok(())
    }
}
