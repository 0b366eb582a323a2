//! Limits the time for which samples of other mirrors are awaited, if no hash tells which bytes are right.

use anabranch_algo::{Span, Time};
use anabranch_mirror::range_scheduler::{MirrorId, State};
use anabranch_mirror::variants::Patience;

use super::{MirrorDriver, PoolState};
use crate::event::Observer;

/// The longest wait for samples, in multiples of the silence that one mirror is allowed.
const TIMES: u64 = 10;

impl MirrorDriver {
    /// Limits the wait for samples. If only samples are missing, or mirrors are known to differ, leaves out
    /// the mirrors that stay silent for the usual time, and after [`TIMES`] times as long all mirrors.
    pub(super) fn wait_for_samples(&mut self, now: Time, observer: &mut Observer<'_>) {
        let PoolState::Plain(plain) = &self.pool else { return };
        if self.config.judged || !(plain.only_samples_left() || plain.is_disputed()) {
            self.waiting = None;
            return;
        }
        let silence = Patience::of_turn(0).silence;
        let waited = now.since(*self.waiting.get_or_insert(now));
        let is_only_waiting = plain.only_samples_left();
        if waited < silence && self.machine.has_usable_connection() {
            return;
        }
        let is_over = waited >= silence.times(TIMES) || !self.machine.has_usable_connection();
        let all = (0..).zip(&self.mirrors).map(|(mirror, _)| mirror);
        let silent: Vec<MirrorId> =
            all.filter(|mirror| is_over || !self.answers(*mirror, now, silence)).collect();
        let PoolState::Plain(plain) = &mut self.pool else { return };
        silent.into_iter().for_each(|mirror| plain.mirror_gone(mirror));
        let is_settled = is_only_waiting && !plain.only_samples_left();
        if is_settled && !std::mem::replace(&mut self.has_warned, true) {
            observer.warning("not all parts could be compared between mirrors: too few of them answer");
        }
    }

    /// Returns whether a mirror has an open connection on which bytes arrived less than `silence` ago.
    fn answers(&self, mirror: MirrorId, now: Time, silence: Span) -> bool {
        self.machine.connections().any(|one| {
            let is_open = matches!(one.state, State::Open | State::Opening);
            one.mirror == mirror && is_open && now.since(one.heard_at) < silence
        })
    }

    /// Returns the time at which the wait for samples is to be checked again.
    pub(super) fn look_again_at(&self, now: Time) -> Time {
        if self.waiting.is_some() { now + Span::from_secs(1) } else { Time::NEVER }
    }
}
