//! Who may run a machine that moves: two records, one on the disk of each host, and the rules between them.
//!
//! ```text
//!  source                                        destination
//!  (none)   it runs here                         (none)
//!    │ before anything is sent                     │ prepare
//!    ▼                                             ▼
//!  moving   it runs here                         waiting   it never runs ── abort, a lost connection,
//!    │ it stands still, all of it is there         │ resume                a restart of the agent ─▶ refused
//!    ▼                                             ▼
//!  given    it runs neither here nor, yet, there   starting  QEMU is told to run it ── it certainly does
//!    │                                             │                                  not ─▶ refused
//!    │                                             │ it was seen to run
//!    │                                             ▼
//!    │ the word "running"                        running   it runs here
//!    ▼
//!  gone     (the word "refused" instead leads back to "none")
//! ```
//!
//! Each arrow is on the disk before anybody acts on it. *Resume* is said only by a source that is in `given`,
//! so the two never run at once, whatever is killed, lost or said twice. The word "running" is said only when
//! the machine has run there, and nothing is said in `starting`: a source that hears "running" ends its own.
//! A source in `given` continues only if the destination says that it has refused, and a destination that has
//! refused never runs that machine: so one of the two runs it as soon as both have spoken with each other. A
//! move that a destination does not know is refused, so the record goes with its QEMU. `tests` walks through
//! all states.

use serde::{Deserialize, Serialize};

/// What the source of a move has written. Nothing is written of a machine that does not move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Departure {
    /// The machine runs here, and a move is under way.
    Moving,
    /// The machine stands still here, and may run at the destination.
    Given,
    /// The machine runs at the destination.
    Gone,
}

/// What the destination of a move has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrival {
    /// The machine's state comes in; it does not run.
    Waiting,
    /// QEMU is told to run the machine, and it may run here.
    Starting,
    /// The machine runs here: it was seen to.
    Running,
    /// The machine does not run here, and never will by this move.
    Refused,
}

/// What a source asks of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Asked {
    /// To run the machine. Only a source in [`Departure::Given`] asks it.
    Resume,
    /// To give the machine up.
    Abort,
}

/// What a source does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The machine runs on here; the record is removed.
    Stay,
    /// The machine runs there; the one here ends.
    Leave,
    /// The destination has to be asked first.
    Ask,
}

/// Decides what the source does, by its record and the destination's word if there is one.
#[must_use]
pub const fn next(departure: Departure, word: Option<Arrival>) -> Next {
    match (departure, word) {
        (Departure::Gone, _) | (Departure::Given, Some(Arrival::Running)) => Next::Leave,
        (Departure::Moving, _) | (Departure::Given, Some(Arrival::Refused)) => Next::Stay,
        (Departure::Given, Some(Arrival::Waiting | Arrival::Starting) | None) => Next::Ask,
    }
}

/// What is known of a machine after QEMU was told to run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It runs, or did.
    Ran,
    /// It does not run, and has left nothing that another start would disagree with.
    Never,
    /// QEMU does not say.
    Unknown,
}

/// Returns what a destination in [`Arrival::Starting`] writes.
#[must_use]
pub const fn started(start: Start) -> Arrival {
    match start {
        Start::Ran => Arrival::Running,
        Start::Never => Arrival::Refused,
        Start::Unknown => Arrival::Starting,
    }
}

/// Returns what the destination has written after it was asked. `is_whole` tells whether all that the machine
/// needs to run is here. A move that the destination does not know, it refuses for ever.
#[must_use]
pub const fn answer(arrival: Option<Arrival>, asked: Asked, is_whole: bool) -> Arrival {
    match (arrival, asked) {
        (Some(Arrival::Running), _) => Arrival::Running,
        (Some(Arrival::Starting), _) => Arrival::Starting,
        (Some(Arrival::Waiting), Asked::Resume) if is_whole => Arrival::Starting,
        (Some(Arrival::Waiting), Asked::Resume) => Arrival::Waiting,
        (Some(Arrival::Waiting), Asked::Abort) | (Some(Arrival::Refused) | None, _) => Arrival::Refused,
    }
}

/// What the source of a protection has written: its machine is copied to a *shadow*, the disks of a machine
/// that waits at another host in [`Arrival::Waiting`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Guarded {
    /// The first copy is not complete, and the shadow cannot be used.
    Copying,
    /// What the guest writes follows.
    Following,
    /// The machine is about to be given to the host of its shadow, by the rules of a move.
    Leaving,
    /// The machine was taken over by the host of its shadow. It does not run here, and its disks here are
    /// never used again.
    Lost,
}

/// What the source of a protection does when it has heard of its shadow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The shadow waits: it goes on.
    Go,
    /// The shadow runs, or may: the machine here is ended at once.
    Fence,
    /// There is no shadow any more, and there will be none without a new first copy. The machine runs on.
    Unprotected,
}

/// Decides what the source of a protection does when it has heard the word of the other host; `None` if that
/// does not know the shadow.
///
/// A person commands a failover at the host of the shadow. That host writes [`Arrival::Starting`] and does
/// not ask the source, because the source may be dead. If the source lives, two guests run until it hears of
/// the failover; then its own guest ends. A source that has written [`Guarded::Lost`] never runs the machine
/// again. A source that has heard nothing shows a lag that grows.
#[must_use]
pub const fn heard(word: Option<Arrival>) -> Heard {
    match word {
        Some(Arrival::Waiting) => Heard::Go,
        Some(Arrival::Starting | Arrival::Running) => Heard::Fence,
        Some(Arrival::Refused) | None => Heard::Unprotected,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A move as a whole: both records, both guests, and what is on its way.
    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct World {
        departure: Option<Departure>,
        arrival: Option<Arrival>,
        runs_here: bool,
        runs_there: bool,
        /// Whether all of the machine's state has arrived.
        is_whole: bool,
        /// The mover was killed, and recovery has not begun.
        is_dead: bool,
        asked: BTreeSet<Asked>,
        words: BTreeSet<Arrival>,
        /// The source has asked the destination to prepare, which may hear it late.
        is_wanted: bool,
        prepared: bool,
        is_over: bool,
    }

    impl World {
        fn start() -> Self {
            Self {
                departure: None,
                arrival: None,
                runs_here: true,
                runs_there: false,
                is_whole: false,
                is_dead: false,
                asked: BTreeSet::new(),
                words: BTreeSet::new(),
                is_wanted: false,
                prepared: false,
                is_over: false,
            }
        }

        fn with(&self, change: impl FnOnce(&mut Self)) -> Self {
            let mut next = self.clone();
            change(&mut next);
            next
        }

        /// All that can happen next. Messages stay on their way after they arrived: they may come twice, late
        /// or never.
        fn steps(&self) -> Vec<Self> {
            let mut all = Vec::new();
            if !self.is_over {
                self.mover(&mut all);
            }
            if self.is_wanted && !self.prepared {
                all.push(self.with(|w| {
                    w.prepared = true;
                    w.arrival = Some(Arrival::Waiting);
                }));
            }
            self.agent(&mut all);
            for asked in &self.asked {
                let arrival = answer(self.arrival, *asked, self.is_whole);
                all.push(self.with(|w| {
                    // What is not known is refused, and nothing is written.
                    w.arrival = w.arrival.map(|_| arrival);
                    // In `starting`, the answer comes with a later step, or never.
                    w.words.extend((arrival != Arrival::Starting).then_some(arrival));
                }));
            }
            all
        }

        fn agent(&self, all: &mut Vec<Self>) {
            match self.arrival {
                // The agent gives up by itself, at a restart for instance.
                Some(Arrival::Waiting) => all.push(self.with(|w| w.arrival = Some(Arrival::Refused))),
                // The record goes after QEMU's end.
                Some(Arrival::Refused) => all.push(self.with(|w| w.arrival = None)),
                // QEMU's `cont` works or fails, and the agent may be killed before and after it. Who comes
                // next, a request or a restart, looks at QEMU.
                Some(Arrival::Starting) => {
                    all.push(self.with(|w| w.arrival = Some(started(Start::Unknown))));
                    all.push(self.with(|w| w.runs_there = true));
                    if self.runs_there {
                        all.push(self.with(|w| w.arrival = Some(started(Start::Ran))));
                    } else {
                        all.push(self.with(|w| w.arrival = Some(started(Start::Never))));
                    }
                }
                Some(Arrival::Running) | None => {}
            }
        }

        fn mover(&self, all: &mut Vec<Self>) {
            if !self.is_dead {
                all.push(self.with(|w| w.is_dead = true));
            }
            match self.departure {
                None if !self.is_dead => all.push(self.with(|w| w.departure = Some(Departure::Moving))),
                None => {}
                Some(Departure::Moving) => {
                    if !self.is_wanted && !self.is_dead {
                        all.push(self.with(|w| w.is_wanted = true));
                    }
                    // QEMU completes by itself, whether the mover lives or not, while the other end is there.
                    if self.arrival == Some(Arrival::Waiting) && self.runs_here {
                        all.push(self.with(|w| {
                            w.is_whole = true;
                            w.runs_here = false;
                        }));
                    }
                    if self.is_whole && !self.is_dead {
                        all.push(self.with(|w| w.departure = Some(Departure::Given)));
                    }
                    // Recovery, or a user who changes his mind.
                    all.push(self.with(|w| {
                        assert_eq!(next(Departure::Moving, None), Next::Stay);
                        w.departure = None;
                        w.runs_here = true;
                        w.asked.insert(Asked::Abort);
                        w.is_over = true;
                    }));
                }
                Some(Departure::Given) => {
                    for asked in [Asked::Resume, Asked::Abort] {
                        all.push(self.with(|w| {
                            w.asked.insert(asked);
                        }));
                    }
                    for word in &self.words {
                        match next(Departure::Given, Some(*word)) {
                            Next::Stay => all.push(self.with(|w| {
                                w.departure = None;
                                w.runs_here = true;
                                w.is_over = true;
                            })),
                            Next::Leave => all.push(self.with(|w| w.departure = Some(Departure::Gone))),
                            Next::Ask => {}
                        }
                    }
                }
                Some(Departure::Gone) => {}
            }
        }
    }

    #[test]
    fn never_do_two_run_and_always_can_one() {
        let (mut seen, mut open) = (BTreeSet::new(), vec![World::start()]);
        let mut edges: Vec<(World, World)> = Vec::new();
        while let Some(world) = open.pop() {
            if !seen.insert(world.clone()) {
                continue;
            }
            assert!(!(world.runs_here && world.runs_there), "{world:?}");
            let may_run = matches!(world.arrival, Some(Arrival::Starting | Arrival::Running));
            assert!(!world.runs_there || may_run, "{world:?}");
            assert!(!world.words.contains(&Arrival::Running) || world.runs_there, "{world:?}");
            for next in world.steps() {
                edges.push((world.clone(), next.clone()));
                open.push(next);
            }
        }
        // From every state, one in which exactly one guest runs and nothing is left to decide can be reached.
        let is_settled = |w: &World| {
            let here = w.runs_here && w.departure.is_none();
            let there = w.runs_there && w.departure == Some(Departure::Gone);
            here != there && w.runs_here != w.runs_there
        };
        let mut good: BTreeSet<World> = seen.iter().filter(|w| is_settled(w)).cloned().collect();
        loop {
            let more: Vec<World> = edges
                .iter()
                .filter(|(from, to)| good.contains(to) && !good.contains(from))
                .map(|(from, _)| from.clone())
                .collect();
            if more.is_empty() {
                break;
            }
            good.extend(more);
        }
        let stuck: Vec<&World> = seen.difference(&good).collect();
        assert!(stuck.is_empty(), "{} of {}: {:?}", stuck.len(), seen.len(), stuck[0]);
        assert!(seen.len() > 50, "{}", seen.len());
    }

    #[test]
    fn a_source_that_has_given_waits_for_a_word() {
        assert_eq!(next(Departure::Given, None), Next::Ask);
        assert_eq!(next(Departure::Given, Some(Arrival::Waiting)), Next::Ask);
        assert_eq!(next(Departure::Gone, None), Next::Leave);
        assert_eq!(answer(None, Asked::Resume, false), Arrival::Refused);
        assert_eq!(answer(Some(Arrival::Refused), Asked::Resume, true), Arrival::Refused);
        assert_eq!(answer(Some(Arrival::Running), Asked::Abort, true), Arrival::Running);
        assert_eq!(answer(Some(Arrival::Starting), Asked::Abort, true), Arrival::Starting);
        assert_eq!(next(Departure::Given, Some(Arrival::Starting)), Next::Ask);
    }

    /// A protection as a whole: the record of each end, both guests, and what was said.
    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct Pair {
        guarded: Option<Guarded>,
        departure: Option<Departure>,
        arrival: Option<Arrival>,
        /// Whether the other host knows that the first copy is complete.
        is_whole: bool,
        runs_here: bool,
        runs_there: bool,
        /// The host of the source has failed, for ever.
        is_dead: bool,
        /// A person has taken the machine over.
        is_taken: bool,
        asked: BTreeSet<Asked>,
        words: BTreeSet<Arrival>,
    }

    impl Pair {
        fn with(&self, change: impl FnOnce(&mut Self)) -> Self {
            let mut next = self.clone();
            change(&mut next);
            next
        }

        /// All that can happen next. A keeper or a command that is killed is one that takes no further step.
        fn steps(&self) -> Vec<Self> {
            let mut all = vec![self.with(|p| p.words.extend(p.arrival))];
            for asked in &self.asked {
                let arrival = answer(self.arrival, *asked, self.is_whole);
                all.push(self.with(|p| {
                    p.arrival = p.arrival.map(|_| arrival);
                    p.words.extend((arrival != Arrival::Starting).then_some(arrival));
                }));
            }
            match self.arrival {
                // The command of a person, which asks no source.
                Some(Arrival::Waiting) => all.push(self.with(|p| {
                    p.arrival = Some(answer(p.arrival, Asked::Resume, p.is_whole));
                    p.is_taken = p.arrival == Some(Arrival::Starting);
                })),
                Some(Arrival::Starting) => all.push(self.with(|p| p.runs_there = true)),
                _ => {}
            }
            if self.arrival == Some(Arrival::Starting) && self.runs_there {
                all.push(self.with(|p| p.arrival = Some(started(Start::Ran))));
            }
            if !self.is_dead {
                self.source(&mut all);
                all.push(self.with(|p| {
                    p.is_dead = true;
                    p.runs_here = false;
                }));
            }
            all
        }

        fn source(&self, all: &mut Vec<Self>) {
            match (self.guarded, self.departure) {
                (Some(Guarded::Copying), _) if self.is_whole => {
                    all.push(self.with(|p| p.guarded = Some(Guarded::Following)));
                }
                (Some(Guarded::Copying), _) => {
                    all.push(self.with(|p| p.is_whole = p.arrival == Some(Arrival::Waiting)));
                }
                (Some(Guarded::Following), _) => {
                    all.push(self.with(|p| p.guarded = Some(Guarded::Leaving)));
                }
                (Some(Guarded::Leaving), None) => all.push(self.with(|p| {
                    p.departure = Some(Departure::Moving);
                    p.runs_here = false;
                })),
                (_, Some(Departure::Moving)) => {
                    all.push(self.with(|p| p.departure = Some(Departure::Given)));
                    all.push(self.with(|p| {
                        (p.departure, p.runs_here) = (None, true);
                        p.asked.insert(Asked::Abort);
                    }));
                }
                (_, Some(Departure::Given)) => {
                    for asked in [Asked::Resume, Asked::Abort] {
                        all.push(self.with(|p| {
                            p.asked.insert(asked);
                        }));
                    }
                    for word in &self.words {
                        match next(Departure::Given, Some(*word)) {
                            Next::Stay => all.push(self.with(|p| {
                                (p.guarded, p.departure, p.runs_here) = (None, None, true);
                            })),
                            Next::Leave => all.push(self.with(|p| p.departure = Some(Departure::Gone))),
                            Next::Ask => {}
                        }
                    }
                }
                _ => {}
            }
            // The keeper hears it, or the answer to a request to give the shadow up says it.
            let hears = self.guarded.is_some() && self.departure.is_none();
            if hears && self.words.iter().any(|word| heard(Some(*word)) == Heard::Fence) {
                all.push(self.with(|p| {
                    p.guarded = Some(Guarded::Lost);
                    p.runs_here = false;
                }));
            }
        }
    }

    #[test]
    fn only_a_failover_lets_two_run_and_then_the_source_ends() {
        let start = Pair {
            guarded: Some(Guarded::Copying),
            departure: None,
            arrival: Some(Arrival::Waiting),
            is_whole: false,
            runs_here: true,
            runs_there: false,
            is_dead: false,
            is_taken: false,
            asked: BTreeSet::new(),
            words: BTreeSet::new(),
        };
        let (mut seen, mut open) = (BTreeSet::new(), vec![start]);
        let mut edges: Vec<(Pair, Pair)> = Vec::new();
        while let Some(pair) = open.pop() {
            if !seen.insert(pair.clone()) {
                continue;
            }
            assert!(!(pair.runs_here && pair.runs_there) || pair.is_taken, "{pair:?}");
            assert!(!pair.runs_there || pair.is_whole, "an incomplete copy runs: {pair:?}");
            assert!(pair.guarded != Some(Guarded::Lost) || !pair.runs_here, "{pair:?}");
            for next in pair.steps() {
                edges.push((pair.clone(), next.clone()));
                open.push(next);
            }
        }
        // One guest alone can run in the end, unless the source is dead and the shadow is not complete, or
        // given up.
        let mut good: BTreeSet<Pair> = seen.iter().filter(|p| p.runs_here != p.runs_there).cloned().collect();
        loop {
            let more: Vec<Pair> = edges
                .iter()
                // It must not take the death of the source.
                .filter(|(a, b)| good.contains(b) && !good.contains(a) && a.is_dead == b.is_dead)
                .map(|(a, _)| a.clone())
                .collect();
            if more.is_empty() {
                break;
            }
            good.extend(more);
        }
        for pair in seen.difference(&good) {
            assert!(
                pair.is_dead && (!pair.is_whole || pair.arrival == Some(Arrival::Refused)),
                "stuck: {pair:?}"
            );
        }
        assert!(seen.len() > 200, "{}", seen.len());
    }
}
