//! Decides which links are dead. The input is what each link has moved; the output are the links to probe and
//! to close.
//!
//! A link that moves bytes is alive. If a link should move bytes and does not for [`SILENCE`] or four round
//! trips, it is probed. A link that has been quiet while others are busy is probed too. It is closed if the
//! probe has no answer, still no bytes have come, and another link is known to be alive; the last link is
//! never closed. A closed link is probed until it answers.
//!
//! Delay before closing is costly: the kernel later sends again all that a connection has not had
//! acknowledged as a whole, including the bytes that other links delivered in the meantime.

use anabranch_algo::{Span, Time};

/// The shortest silence that makes a link suspect.
const SILENCE: Span = Span::from_millis(100);
/// The number of round trips of silence that makes a link suspect.
const SILENCE_RTTS: u64 = 4;
/// The time during which an answered probe clears a link of suspicion, unless four round trips are longer.
/// While a link is suspect, the others are probed too, unless they have shown life within this time.
const ANSWER_AGE: Span = Span::from_millis(250);
/// More bytes than this in one step are a flow, whose end is suspicious: 40 kB per second.
const FLOW_BYTES: u64 = 2_048;
/// The time after which the end of a flow is no longer suspicious, because the flow may be over.
const FLOW_AGE: Span = Span::from_secs(2);
/// The time between two probes of a quiet link while others are busy.
const QUIET: Span = Span::from_secs(2);
/// The time between two probes of a dead link.
const DEAD_PAUSE: Span = Span::from_millis(400);
/// The time for which a sign of life counts when another link is to be closed.
const PROOF_AGE: Span = Span::from_millis(1_500);

/// The time without progress after which the kernel retransmits at ever longer intervals, so that new
/// subflows are faster.
const STUCK_AFTER: Span = Span::from_secs(1);

/// The state of a link's subflows, for all trunks together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// The bytes received, and the sent bytes that were acknowledged, since the client began.
    pub(crate) moved_bytes: u64,
    /// Whether sent bytes are not acknowledged yet.
    pub(crate) is_waiting: bool,
    /// The longest smoothed round-trip time of the subflows that last moved bytes.
    pub(crate) rtt: Span,
    /// Whether the interface exists and is up.
    pub(crate) is_up: bool,
}

/// An action that the caller is to carry out, with the link's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Probe the server over this link.
    Probe(usize),
    /// Take this dead link away.
    Close(usize),
    /// Use this link again, because it answers.
    Open(usize),
    /// Renew this link's subflows. It answers again but was not taken away, because there was no other link.
    /// TCP would wait as long again as the silence lasted before its next retransmission (RFC 6298).
    Renew(usize),
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    is_dead: bool,
    is_forbidden: bool,
    is_probed: bool,
    /// Whether the result of the probe that is under way must be ignored.
    ignores_probe: bool,
    sample: Sample,
    /// When the link last moved bytes, and when it last moved many.
    progress: Option<Time>,
    flow: Option<Time>,
    /// When the link last showed that it is alive.
    alive: Option<Time>,
    /// When the last probe began, when one was last answered, and when the last one failed.
    probed: Option<Time>,
    answered: Option<Time>,
    failed: Option<Time>,
}

/// The states of the links, by their index in a list.
#[derive(Debug)]
pub(crate) struct Liveness {
    links: Vec<State>,
}

fn within(now: Time, then: Option<Time>, span: Span) -> bool {
    then.is_some_and(|then| now.since(then) <= span)
}

impl Liveness {
    /// Creates the states. `is_dead` marks the links that the kernel has no endpoint for.
    pub(crate) fn new(is_dead: &[bool]) -> Self {
        Self { links: is_dead.iter().map(|dead| State { is_dead: *dead, ..State::default() }).collect() }
    }

    #[cfg(test)]
    fn is_dead(&self, link: usize) -> bool {
        self.links[link].is_dead
    }

    /// Returns for each link whether its last probe had no answer and no bytes have come over it since. The
    /// last link is not dead then, because it is never closed.
    pub(crate) fn unanswered(&self) -> Vec<bool> {
        self.links.iter().map(|link| link.failed.is_some()).collect()
    }

    /// Sets whether the link must not be used at all. A link that may be used again counts as dead until it
    /// answers.
    pub(crate) fn forbid(&mut self, link: usize, is_forbidden: bool) {
        let link = &mut self.links[link];
        link.is_forbidden = is_forbidden;
        if is_forbidden {
            (link.is_dead, link.flow) = (true, None);
        }
    }

    /// Notes that the link's address is gone: the link counts as dead until it answers with another address.
    /// Returns `false` if it was dead already.
    pub(crate) fn lose(&mut self, link: usize) -> bool {
        let link = &mut self.links[link];
        // The link is probed at once. The answer to a probe that is under way would be for the old address.
        (link.flow, link.probed) = (None, None);
        link.ignores_probe = link.is_probed;
        !std::mem::replace(&mut link.is_dead, true)
    }

    /// Notes that the link could not be opened, so that it is probed again after a while.
    pub(crate) fn not_opened(&mut self, link: usize) {
        self.links[link].is_dead = true;
    }

    /// Takes the present sample of each link, and returns the actions that follow.
    pub(crate) fn step(&mut self, now: Time, samples: &[Sample]) -> Vec<Action> {
        let mut actions = Vec::new();
        for (n, (link, sample)) in self.links.iter_mut().zip(samples).enumerate() {
            // The count can decrease, because a trunk that is gone is not counted any more.
            let moved = sample.moved_bytes.saturating_sub(link.sample.moved_bytes);
            if moved > 0 {
                // These may be the first bytes of a new trunk, which do not help the other trunks.
                if link.ends_silence(now) && sample.is_waiting && !link.is_dead && !link.is_forbidden {
                    actions.push(Action::Renew(n));
                }
                (link.progress, link.alive) = (Some(now), Some(now));
            }
            if moved > FLOW_BYTES {
                link.flow = Some(now);
            }
            link.sample = *sample;
        }
        for n in 0..self.links.len() {
            let others = self.links.iter().enumerate().filter(|(other, _)| *other != n);
            let mut others = others.filter(|(_, other)| !other.is_dead && other.sample.is_up);
            let is_proven = others.any(|(_, other)| within(now, other.alive, PROOF_AGE));
            let link = &mut self.links[n];
            if !link.is_dead && is_proven && (within(now, link.failed, PROOF_AGE) || !link.sample.is_up) {
                (link.is_dead, link.flow) = (true, None);
                actions.push(Action::Close(n));
            }
        }
        let is_busy = self.links.iter().any(|link| {
            let waits = link.sample.is_waiting && !link.is_dead;
            waits || within(now, link.progress, QUIET)
        });
        let suspects: Vec<bool> =
            self.links.iter().map(|link| !link.is_dead && link.is_suspect(now)).collect();
        let any_suspect = suspects.contains(&true);
        for (n, link) in self.links.iter_mut().enumerate() {
            let wants = match link.is_dead {
                true => !within(now, link.probed, DEAD_PAUSE) && link.sample.is_up && !link.is_forbidden,
                // The other links are probed too: one of them must be known to be alive.
                false if any_suspect => suspects[n] || !within(now, link.alive, ANSWER_AGE),
                false => is_busy && !within(now, link.alive, QUIET),
            };
            if wants && !link.is_probed {
                (link.is_probed, link.probed) = (true, Some(now));
                actions.push(Action::Probe(n));
            }
        }
        actions
    }

    /// Takes the result of a probe.
    pub(crate) fn on_probe(&mut self, now: Time, link: usize, is_answered: bool) -> Option<Action> {
        let state = &mut self.links[link];
        state.is_probed = false;
        if std::mem::take(&mut state.ignores_probe) {
            return None;
        }
        if is_answered {
            let was_silent = state.ends_silence(now);
            state.alive = Some(now);
            // Bytes in flight have the full time from now on.
            (state.progress, state.answered) = (Some(now), Some(now));
            if state.is_forbidden {
                return None;
            }
            if std::mem::take(&mut state.is_dead) {
                return Some(Action::Open(link));
            }
            return (was_silent && state.sample.is_waiting).then_some(Action::Renew(link));
        }
        // Bytes that came in the meantime prove more than the failed probe.
        let came = state.progress.is_some_and(|progress| Some(progress) > state.probed);
        state.failed = (!came).then_some(now);
        None
    }
}

impl State {
    /// Notes a sign of life. Returns whether the link was silent so long that the bytes in flight are stuck.
    fn ends_silence(&mut self, now: Time) -> bool {
        self.failed.take().is_some() && !within(now, self.progress, STUCK_AFTER)
    }

    fn is_suspect(&self, now: Time) -> bool {
        let round_trips = self.sample.rtt.times(SILENCE_RTTS);
        if within(now, self.answered, ANSWER_AGE.max(round_trips)) {
            return false;
        }
        let is_silent = |patience| !within(now, self.progress, patience);
        // An acknowledgement takes round trips, but a flow should not pause, however long they are.
        self.sample.is_waiting && is_silent(SILENCE.max(round_trips))
            || within(now, self.flow, FLOW_AGE.max(round_trips)) && is_silent(SILENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    const fn moved(moved_bytes: u64) -> Sample {
        Sample { moved_bytes, is_waiting: false, rtt: Span::from_millis(20), is_up: true }
    }

    /// Returns a state in which both links move bytes until 1 s.
    fn busy() -> Liveness {
        let mut liveness = Liveness::new(&[false, false]);
        for step in 1..=10_u64 {
            let all = [moved(step * 10_000), moved(step * 10_000)];
            let actions = liveness.step(at(step * 100), &all);
            assert!(actions.is_empty(), "{actions:?}");
        }
        liveness
    }

    #[test]
    fn a_link_that_stops_is_probed_closed_and_opened_again() {
        let mut liveness = busy();
        let mut probed = 0;
        for step in 11..=14_u64 {
            let actions = liveness.step(at(step * 100), &[moved(100_000), moved(step * 10_000)]);
            probed = if actions == [Action::Probe(0)] { step } else { probed };
        }
        assert_eq!(probed, 12, "after a tenth of a second, once");
        assert_eq!(liveness.on_probe(at(1_700), 0, false), None);
        let actions = liveness.step(at(1_700), &[moved(100_000), moved(170_000)]);
        assert_eq!(actions, [Action::Close(0), Action::Probe(0)]);
        assert!(liveness.is_dead(0));
        assert_eq!(liveness.on_probe(at(2_000), 0, false), None);
        assert_eq!(liveness.step(at(2_050), &[moved(100_000), moved(205_000)]), []);
        assert_eq!(liveness.step(at(2_150), &[moved(100_000), moved(215_000)]), [Action::Probe(0)]);
        assert_eq!(liveness.on_probe(at(2_170), 0, true), Some(Action::Open(0)));
        assert!(!liveness.is_dead(0));
    }

    #[test]
    fn a_flow_that_is_over_costs_few_probes() {
        let mut liveness = busy();
        let mut probed = Vec::new();
        for millis in (1_050..=6_000).step_by(50) {
            for action in liveness.step(at(millis), &[moved(100_000), moved(100_000)]) {
                let Action::Probe(link) = action else { panic!("{action:?}") };
                assert_eq!(liveness.on_probe(at(millis + 20), link, true), None);
                probed.extend((link == 0).then_some(millis));
            }
        }
        // Probes go on until the flow's end is 2 s old.
        assert_eq!(probed, [1_150, 1_450, 1_750, 2_050, 2_350, 2_650, 2_950]);
    }

    #[test]
    fn the_last_link_is_never_closed_and_bytes_say_more_than_a_probe() {
        let mut liveness = busy();
        let both = [Sample { is_waiting: true, ..moved(100_000) }; 2];
        assert_eq!(liveness.step(at(1_400), &both), [Action::Probe(0), Action::Probe(1)]);
        for link in [0, 1] {
            assert_eq!(liveness.on_probe(at(1_900), link, false), None);
        }
        for millis in [3_000, 9_000, 60_000] {
            let actions = liveness.step(at(millis), &both);
            assert!(actions.iter().all(|action| matches!(action, Action::Probe(_))), "{actions:?}");
            actions.iter().for_each(|action| {
                let Action::Probe(link) = action else { return };
                assert_eq!(liveness.on_probe(at(millis + 400), *link, false), None);
            });
        }
        assert_eq!(liveness.unanswered(), [true, true]);
        // One link answers: its subflows are renewed, and the other link is closed.
        assert_eq!(liveness.step(at(61_000), &both).len(), 2);
        assert_eq!(liveness.on_probe(at(61_020), 1, true), Some(Action::Renew(1)));
        assert_eq!(liveness.unanswered(), [true, false]);
        assert_eq!(liveness.on_probe(at(61_400), 0, false), None);
        assert_eq!(liveness.step(at(61_400), &both), [Action::Close(0), Action::Probe(1)]);

        // The subflows are also renewed if the first bytes over a link are those of a trunk that has just
        // begun.
        let mut liveness = busy();
        assert_eq!(liveness.step(at(1_400), &both).len(), 2);
        [0, 1].iter().for_each(|link| assert_eq!(liveness.on_probe(at(1_900), *link, false), None));
        let begun = [both[0], Sample { is_waiting: true, ..moved(100_500) }];
        assert!(liveness.step(at(9_000), &begun).contains(&Action::Renew(1)));
        let goes_on = [both[0], Sample { is_waiting: true, ..moved(101_000) }];
        assert!(!liveness.step(at(9_050), &goes_on).contains(&Action::Renew(1)));

        // With a long queue, the probe is late but data arrives.
        let mut liveness = busy();
        let late = [moved(100_000), moved(130_000)];
        assert_eq!(liveness.step(at(1_400), &late), [Action::Probe(0)]);
        assert_eq!(liveness.step(at(1_500), &[moved(120_000), moved(150_000)]), []);
        assert_eq!(liveness.on_probe(at(1_900), 0, false), None);
        assert_eq!(liveness.step(at(1_900), &[moved(130_000), moved(190_000)]), []);
    }

    #[test]
    fn a_link_that_must_not_be_used_is_not_even_asked() {
        let mut liveness = busy();
        liveness.forbid(0, true);
        for step in 11..=40_u64 {
            let actions = liveness.step(at(step * 100), &[moved(100_000), moved(step * 10_000)]);
            assert!(actions.is_empty(), "{actions:?}");
        }
        // A probe that was under way is answered.
        assert_eq!(liveness.on_probe(at(4_000), 0, true), None);
        assert!(liveness.is_dead(0));
        liveness.forbid(0, false);
        assert_eq!(liveness.step(at(4_100), &[moved(100_000), moved(410_000)]), [Action::Probe(0)]);
        assert_eq!(liveness.on_probe(at(4_120), 0, true), Some(Action::Open(0)));
    }

    #[test]
    fn a_link_whose_address_is_gone_is_asked_at_once_and_opened_when_it_answers() {
        let mut liveness = busy();
        assert!(liveness.lose(0) && !liveness.lose(0));
        assert_eq!(liveness.step(at(1_050), &[moved(100_000), moved(105_000)]), [Action::Probe(0)]);
        assert_eq!(liveness.on_probe(at(1_060), 0, false), None, "there is no route yet");
        assert_eq!(liveness.step(at(1_450), &[moved(100_000), moved(145_000)]), []);
        assert_eq!(liveness.step(at(1_500), &[moved(100_000), moved(150_000)]), [Action::Probe(0)]);
        assert_eq!(liveness.on_probe(at(1_520), 0, true), Some(Action::Open(0)));
        // The link could not be opened, because its route was not there yet.
        liveness.not_opened(0);
        assert_eq!(liveness.step(at(1_550), &[moved(100_000), moved(155_000)]), []);
        assert_eq!(liveness.step(at(1_950), &[moved(100_000), moved(195_000)]), [Action::Probe(0)]);
        // The link was probed just before its address was lost.
        let mut liveness = busy();
        liveness.forbid(0, true);
        liveness.forbid(0, false);
        assert_eq!(liveness.step(at(1_050), &[moved(100_000), moved(105_000)]), [Action::Probe(0)]);
        liveness.lose(0);
        assert_eq!(liveness.on_probe(at(1_060), 0, true), None, "the old address was asked");
        assert_eq!(liveness.step(at(1_100), &[moved(100_000), moved(110_000)]), [Action::Probe(0)]);
    }

    #[test]
    fn an_interface_that_goes_down_is_closed_at_once_and_quiet_ones_are_asked() {
        let mut liveness = busy();
        let gone = [Sample { is_up: false, ..moved(100_000) }, moved(110_000)];
        assert_eq!(liveness.step(at(1_100), &gone), [Action::Close(0)]);
        let mut liveness = busy();
        for step in 11..=29_u64 {
            let actions = liveness.step(at(step * 100), &[moved(100_000 + step), moved(100_000)]);
            actions.iter().for_each(|action| {
                assert_eq!(*action, Action::Probe(1));
                assert_eq!(liveness.on_probe(at(step * 100 + 20), 1, true), None);
            });
        }
    }
}
