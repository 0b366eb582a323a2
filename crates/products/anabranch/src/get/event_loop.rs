//! The one loop of a transfer.
//!
//! A transfer is a few [`Stage`]s, one after the other: names are looked up, HTTP servers are asked what they
//! have ([`discovery`](super::discovery)), contents come from all who have them
//! ([`content_fetch`](super::content_fetch)) or many small files at once
//! ([`small_files`](super::small_files)). A stage is a state machine: it is told what came, is polled for
//! what it wants, and says until when it waits. It has no loop, no clock, no poller.
//!
//! The [`EventLoop`] is all of these, once for the whole run. One turn: poll the stage; look at the links, at
//! whether anybody still answers, at whether progress is due; wait; look whether the caller has stopped; hand
//! over what came. No other place does any of that. What it does it does to a [`World`], the real one or a
//! simulated one.

use anabranch_algo::{Span, Time};
use anabranch_http::client::Event;
use anabranch_mirror::variants::Patience;

use super::idle_timeout::{IdleTimer, SlowTimer};
use super::world::{Arrival, SocketId, World};
use crate::event::Observer;
use crate::{Error, Progress, Result};

/// How often links are looked at while a stage lacks one, even if nothing told of a change.
const REFRESH_EVERY: Span = Span::from_secs(1);
/// Older than this, what the sockets have is read again before a stage looks at its timers.
const STALE_AFTER: Span = Span::from_millis(5);
/// The longest wait: what another thread or a parent's stop flag says is seen by then.
const TICK: Span = Span::from_millis(100);

/// What a stage may use while it works.
pub(super) struct Context<'a, 'o> {
    pub(super) world: &'a mut dyn World,
    pub(super) observer: &'a mut Observer<'o>,
    /// For how long nothing may be heard.
    pub(super) timeout: Span,
    /// After this time what the sockets have should be read before any timer is looked at.
    stale_at: Time,
}

impl Context<'_, '_> {
    pub(super) fn now(&self) -> Time {
        self.world.now()
    }

    /// Whether work has taken so long that what has arrived meanwhile is to be read before any timer is
    /// looked at: so that a slow disk is not taken for a silent network. Once a turn.
    pub(super) fn is_stale(&self) -> bool {
        self.now() > self.stale_at
    }
}

/// What a stage wants next.
pub(super) enum Poll {
    /// To be told what comes, and polled then, or at this time.
    Wait(Time),
    /// To be told at once what has come, and polled again.
    Read,
    /// To be polled again at once.
    Again,
    /// Nothing: it is over.
    Done,
}

/// Whether anybody answers.
pub(super) struct Liveness {
    /// Who is to answer, as a word of the message that nobody does: "source", "mirror".
    pub(super) who: &'static str,
    /// Counts up while anybody answers.
    pub(super) heard: u64,
    /// The stage did not listen, so nobody counts as silent.
    pub(super) busy: bool,
}

/// What becomes of what has come, mostly.
pub(super) const RESUMES: &str = "what arrived is kept, and the same `Get` resumes";

/// A part of a transfer; see the [module](self).
pub(super) trait Stage {
    /// Does and asks what it can, then says what it wants.
    ///
    /// # Errors
    /// What the transfer fails with.
    fn poll(&mut self, cx: &mut Context<'_, '_>) -> Result<Poll>;

    /// HTTP servers have answered.
    ///
    /// # Errors
    /// What the transfer fails with.
    fn on_http(&mut self, cx: &mut Context<'_, '_>, events: &mut Vec<Event>) -> Result<()> {
        let _ = (cx, events);
        Ok(())
    }

    /// Something came over a UDP socket.
    fn on_udp(&mut self, now: Time, socket: SocketId, arrival: Arrival<'_>, observer: &mut Observer<'_>) {
        let _ = (now, socket, arrival, observer);
    }

    /// Interfaces, addresses or routes may have changed.
    fn on_links(&mut self, cx: &mut Context<'_, '_>) {
        let _ = cx;
    }

    /// Whether some link that the stage had is gone, so that links are looked at every now and then.
    fn lacks_links(&self) -> bool {
        false
    }

    /// Whether the stage can take what HTTP servers send.
    fn listens(&self) -> bool {
        true
    }

    /// What tells whether anybody answers, for the time-out; `None`: the stage has deadlines of its own.
    fn liveness(&mut self) -> Option<Liveness> {
        None
    }

    /// The errors of the servers that answer with nothing else, for the message that nobody has answered.
    fn faults(&self) -> Option<String> {
        None
    }

    /// Nobody has answered for too long, as `why` says: ends the stage, also with `Ok`.
    ///
    /// # Errors
    /// What the transfer fails with.
    fn give_up(&mut self, why: String) -> Result<()> {
        Err(Error::unreachable(why))
    }

    /// How far the stage is, if that is to be shown.
    fn progress(&mut self, now: Time) -> Option<Progress> {
        let _ = now;
        None
    }

    /// What becomes of what has come if the stage ends before all of it has.
    fn interrupted(&self) -> &'static str {
        RESUMES
    }

    /// The stage has ended with `result`; what this method returns is the result that counts.
    ///
    /// # Errors
    /// What the transfer fails with.
    fn finish(&mut self, cx: &mut Context<'_, '_>, result: Result<()>) -> Result<()> {
        let _ = cx;
        result
    }
}

/// See the [module](self).
pub(super) struct EventLoop<'a, 'o> {
    pub(super) world: &'a mut dyn World,
    pub(super) observer: &'a mut Observer<'o>,
    /// Without an answer for so long, a stage is given up.
    timeout: Span,
    /// How long a stage is waited for; none: there is nothing else to try.
    patience: Option<Patience>,
    /// A stage was silent or slow for longer.
    gave_way: bool,
    refresh_at: Time,
    /// When the sockets were last read.
    read_at: Time,
    /// The room for HTTP events; empty between turns.
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
            read_at: now,
            events: Vec::new(),
        }
    }

    /// Runs stages that are waited for no longer than that: one that is silent or slow gives way. Returns
    /// what comes of it, and whether one did: it may be right yet.
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

    /// For how long nothing may be heard if there is nothing else to try.
    pub(super) const fn whole_timeout(&self) -> Span {
        self.timeout
    }

    /// For how long nothing may be heard.
    fn timeout(&self) -> Span {
        self.patience.map_or(self.timeout, |patience| self.timeout.min(patience.silence))
    }

    /// What a stage may use between two runs.
    pub(super) fn context(&mut self) -> Context<'_, 'o> {
        let (timeout, stale_at) = (self.timeout(), Time::NEVER);
        Context { world: &mut *self.world, observer: &mut *self.observer, timeout, stale_at }
    }

    /// Runs a stage to its end.
    ///
    /// # Errors
    /// What the stage fails with; [`ErrorKind::Unreachable`](crate::ErrorKind::Unreachable) if nobody answers
    /// any more, [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) if the caller stops.
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
                    self.look_at_links(now, stage);
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

    /// Tells a stage of links that came or went.
    fn look_at_links(&mut self, now: Time, stage: &mut dyn Stage) {
        let changed = self.world.links_changed();
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
    }

    /// Whether nobody has answered for so long that the stage is over.
    fn is_given_up(
        &mut self,
        now: Time,
        (silence, slow): &mut (IdleTimer, SlowTimer),
        stage: &mut dyn Stage,
    ) -> Result<bool> {
        let Some(Liveness { who, heard, busy }) = stage.liveness() else { return Ok(false) };
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

    /// Hands over what came: over sockets that are known to have something, or over `all`.
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
