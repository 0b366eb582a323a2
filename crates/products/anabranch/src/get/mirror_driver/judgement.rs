//! Where no hash of the parts is known: how long comparisons with other mirrors are waited for, and which
//! mirror is tried alone.

use std::collections::BTreeSet;

use anabranch_algo::{Rate, Span, Time};
use anabranch_mirror::range_scheduler::{ConnectionReport, MirrorId, State, TRICKLE};
use anabranch_mirror::verified_pool::{VerifiedPool, Wrong};

use super::comparison::{Alone, COMPARE_FOR, place_of};
use super::{Context, MirrorDriver, MirrorState, PoolEvent, PoolState};
use crate::event::Observer;
use crate::get::server_status::none_left;
use crate::{Error, Result};

/// After so long no comparison is waited for any more.
const COMPARE_MAX: Span = Span::from_secs(30);
/// A mirror that is tried alone and brings nothing for so long is not waited for if there is another.
const ALONE_FOR: Span = Span::from_secs(10);
/// One that has brought nothing since its turn began is waited for [`COMPARE_FOR`], and one that has brought
/// nothing in this transfer for so long; twice as long each time that it is its turn again.
const UNHEARD_FOR: Span = Span::from_secs(1);
/// Those that have not been tried come before one that is so many times slower.
const SLOWER: u64 = 8;

impl MirrorDriver {
    /// When only comparisons are missing: what only mirrors could compare that have failed is given up at
    /// once where one is left, and what only silent ones could, after a while. The others make the rest.
    pub(super) fn compare(&mut self, now: Time, observer: &mut Observer<'_>) {
        let PoolState::Plain(plain) = &self.pool else { return };
        let is_disputed = plain.is_disputed() && !self.judged;
        if !plain.only_checks_left() {
            (self.comparison.waiting, self.comparison.lone) = (None, None);
            self.settle_dispute(now, is_disputed);
            return;
        }
        let (since, from) = *self.comparison.waiting.get_or_insert((now, now));
        // The hash of the whole says more than comparisons do.
        let is_over = self.judged || !self.machine.has_usable_connection() || now.since(since) >= COMPARE_MAX;
        let is_late = now.since(from) >= COMPARE_FOR;
        // Where mirrors differ, who is only slow is waited for.
        let awaited = match is_over {
            true => BTreeSet::new(),
            false => self.that_answer(now, is_late && !is_disputed),
        };
        let is_new = awaited.len() < 2 && self.comparison.lone.as_ref() != Some(&awaited);
        if !is_over && !is_late && !is_new {
            return;
        }
        if is_late {
            self.comparison.waiting = Some((since, now));
        }
        self.comparison.lone = Some(awaited.clone());
        let PoolState::Plain(plain) = &mut self.pool else { return };
        if plain.waive(|mirror| awaited.contains(&mirror))
            && !self.judged
            && !std::mem::replace(&mut self.comparison.reported, true)
        {
            observer.warning(
                "UNVERIFIED: not all parts could be compared between mirrors: too few of them answer",
            );
        }
    }

    /// Where mirrors are known to differ while parts are missing, who does not answer is not waited for for
    /// ever: what comes meanwhile may be in vain.
    fn settle_dispute(&mut self, now: Time, is_disputed: bool) {
        if !is_disputed {
            self.comparison.disputed = None;
            return;
        }
        let since = *self.comparison.disputed.get_or_insert(now);
        if now.since(since) >= COMPARE_MAX {
            self.comparison.disputed = None;
            let answer = self.that_answer(now, true);
            if let PoolState::Plain(plain) = &mut self.pool {
                plain.waive(|mirror| answer.contains(&mirror));
            }
        }
    }

    /// The mirrors that can be asked for a part and are waited for. `is_late`: who is slow is not.
    fn that_answer(&self, now: Time, is_late: bool) -> BTreeSet<MirrorId> {
        self.mirrors_that(|one| {
            let has_failed = matches!(one.state, State::Failing | State::Down | State::Closed);
            let answers = match one.state {
                State::Opening => one.counters.stalls + one.counters.failures == 0,
                state => state == State::Open && one.rate.is_none_or(|rate| rate >= TRICKLE),
            };
            // One that was silent before is not waited for anew.
            let is_silent = is_late || one.heard_at > Time::ZERO && now.since(one.heard_at) >= COMPARE_FOR;
            one.ranges && !has_failed && (answers || !is_silent)
        })
    }

    /// Tells the pool which mirrors are asked sooner or later, and which cannot be asked for any part.
    pub(super) fn expect(&self, plain: &mut VerifiedPool) {
        let voters = (0..)
            .zip(&self.mirrors)
            .filter(|(_, state)| !state.mirror.introduced && state.status.out.is_none());
        let leads = |mirror: MirrorId| self.routes.iter().any(|route| route.mirror == mirror);
        let voters = voters.filter(|(mirror, _)| leads(*mirror));
        let (with, without): (Vec<_>, Vec<_>) = voters.partition(|(_, state)| state.mirror.ranges);
        plain.expect(with.into_iter().map(|(mirror, _)| mirror));
        plain.set_mute(without.into_iter().map(|(mirror, _)| mirror));
    }

    /// The mirrors of which a connection is like this.
    fn mirrors_that(&self, is: impl Fn(&ConnectionReport) -> bool) -> BTreeSet<MirrorId> {
        self.machine.connections().filter(is).map(|connection| connection.mirror).collect()
    }

    /// The file of a mirror has changed in the midst: once the whole is wrong, what it brought before is
    /// fetched again, of a single mirror too.
    pub(super) fn on_change(&mut self, mirror: MirrorId) {
        let PoolState::Plain(plain) = &mut self.pool else { return };
        if self.judged {
            plain.may_have_changed(mirror);
        } else if self.kept {
            // What came so far is nobody's then.
            self.judged = true;
            plain.judged_as_a_whole();
        }
    }

    /// All that is here is wrong: the next mirror is tried alone, or if there is none, that is said. Returns
    /// whether one is.
    pub(super) fn on_wrong(
        &mut self,
        cx: &mut Context<'_, '_>,
        each: &mut impl FnMut(PoolEvent, &mut Context<'_, '_>) -> Result<bool>,
    ) -> Result<bool> {
        let PoolState::Plain(plain) = &mut self.pool else { return Ok(false) };
        let alone = plain.alone();
        let wrong = plain.whole_is_wrong();
        for Wrong { mirror, is_refuted } in &wrong {
            let url =
                self.mirrors.get(usize::from(*mirror)).map(|state| state.mirror.url.as_str().to_owned());
            if let Some(url) = url {
                each(PoolEvent::Refuted { url, version: *is_refuted }, cx)?;
            }
        }
        // What those left that do not answer is not given up for the word of one other, and nothing is said
        // of their file.
        let has_of_others = plain.has_of_others();
        let untried = self.untried().count();
        if !self.unheard.is_empty() && (untried == 0 || untried == 1 && has_of_others) {
            return Err(Error::corrupt(format!(
                "what has come is not the file that is wanted, and {} could not be asked: what came is kept, \
                 and the same request asks again; leave out who does not answer to have the others decide",
                self.unheard.join(" and ")
            )));
        }
        match alone {
            _ if self.mirrors.len() < 2 => {}
            None => cx.observer.notice("the whole of what came is wrong: each mirror is tried alone"),
            Some(mirror) if wrong.contains(&Wrong { mirror, is_refuted: false }) => {
                cx.observer.notice(&format!(
                    "{}: tried alone, and what it has brought is not it; as some of that may be of an older \
                     file, it is tried once more after the others",
                    self.name(mirror)
                ));
            }
            Some(mirror) => {
                cx.observer.notice(&format!("{}: tried alone, and it does not have it", self.name(mirror)));
            }
        }
        if !self.try_next(cx.now(), cx.observer) {
            let differ = self.differ();
            each(PoolEvent::Wrong { differ, advice: self.advice(differ) }, cx)?;
            return Ok(false);
        }
        if self.mirrors.len() == 1 && self.is_wanting() {
            let which = match self.mirrors.first().is_some_and(|state| state.changed.is_some()) {
                true => "came of it before the file changed",
                false => "an earlier run left of it",
            };
            cx.observer.notice(&format!(
                "the whole is wrong: what {which} is fetched again, for it may be of another file"
            ));
        }
        Ok(true)
    }

    /// Tries the next mirror alone, where the hash of the whole tells who is right; whether there is one.
    pub(super) fn try_next(&mut self, now: Time, observer: &mut Observer<'_>) -> bool {
        let comes_last = |mirror| self.is_outrun(mirror) || !self.has_ranges(mirror);
        let untried: Vec<(MirrorId, bool)> =
            self.untried().map(|mirror| (mirror, comes_last(mirror))).collect();
        let PoolState::Plain(plain) = &mut self.pool else { return false };
        let next = plain.try_next(untried.into_iter());
        let is_first = next.is_some_and(|mirror| plain.stood_back(mirror) == 0);
        let bytes_of = |mirror| self.brought_from(mirror);
        self.comparison.alone =
            next.map(bytes_of).map(|bytes| Alone { since: now, before: bytes, bytes, at: now });
        if let Some(next) = next.filter(|_| is_first && self.mirrors.len() > 1) {
            observer.notice(&format!("{} is tried alone", self.name(next)));
        }
        next.is_some()
    }

    /// Tries another mirror if the one that is tried alone brings nothing; whether it does.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if that one is out, and none is left.
    pub(super) fn replace_candidate(&mut self, cx: &mut Context<'_, '_>) -> Result<bool> {
        let now = cx.now();
        let PoolState::Plain(plain) = &self.pool else { return Ok(false) };
        let (Some(mirror), Some(alone)) = (plain.alone(), self.comparison.alone) else { return Ok(false) };
        let Alone { since, before, bytes, at } = alone;
        if plain.blocks_left() == 0 {
            self.comparison.alone = None;
            return Ok(false);
        }
        let has_stood_back = plain.stood_back(mirror) > 0;
        let is_out = self.mirrors.get(usize::from(mirror)).is_none_or(|state| state.status.out.is_some());
        let has_others = self.untried().any(|other| other != mirror);
        let brought = self.brought_from(mirror);
        let comes = brought != bytes && !is_out;
        let first = if self.rate_of(mirror).is_some() { COMPARE_FOR } else { UNHEARD_FOR };
        let first = Span::from_nanos(first.as_nanos() << plain.stood_back(mirror).min(5));
        // Another has its turn before all of it is given up.
        let patience = if at == since { first } else { ALONE_FOR };
        let patience = patience.min(Span::from_nanos(cx.timeout.as_nanos() / 2));
        let trickles = Rate::of(brought - before, now.since(since)).as_bytes() < TRICKLE;
        // One that trickles gives way each time that it is its turn.
        let turn = Span::from_nanos(ALONE_FOR.as_nanos() << plain.stood_back(mirror).min(5));
        let is_outrun = trickles || !has_stood_back && self.is_outrun(mirror);
        let is_slow = comes && now.since(since) >= turn && is_outrun;
        let is_silent = !comes && !is_out && now.since(at) >= patience;
        if comes {
            self.comparison.alone = Some(Alone { bytes: brought, at: now, ..alone });
        }
        if is_out && !has_others {
            return Err(self.undecided().unwrap_or_else(|| {
                Error::corrupt(
                    "mirrors have different bytes, each was tried alone, and none has what the hash of the \
                     whole is of: name another",
                )
            }));
        }
        // One that is alone is waited for as long as any other.
        if !(is_out || has_others && (is_slow || is_silent)) {
            return Ok(false);
        }
        if is_slow {
            cx.observer.notice(&format!("{} is slow: the others are tried before it", self.name(mirror)));
        }
        if let PoolState::Plain(plain) = &mut self.pool {
            plain.postpone(mirror);
        }
        Ok(self.try_next(now, cx.observer))
    }

    /// What there is to say where some mirrors were tried alone in vain, and the others cannot be tried. What
    /// came stays: another transfer may try them.
    pub(in crate::get) fn undecided(&self) -> Option<Error> {
        let all = 0..MirrorId::try_from(self.mirrors.len()).unwrap_or(MirrorId::MAX);
        let (tried, others): (Vec<_>, Vec<_>) = all.partition(|mirror| self.is_refuted(*mirror));
        if tried.is_empty() || others.is_empty() {
            return None;
        }
        Some(Error::corrupt(format!(
            "{}, tried alone, {} not the file that is wanted, and {} could not be tried to the end, so \
             nobody can tell whether it is there; what came is kept: the same request tries the rest, and if \
             the hash is mistyped, the right one recognises it",
            self.names(&tried),
            if tried.len() == 1 { "has" } else { "have" },
            self.names(&others)
        )))
    }

    /// The mirrors that may yet be tried alone, or are.
    fn untried(&self) -> impl Iterator<Item = MirrorId> {
        let usable = (0..).zip(&self.mirrors).filter(|(_, state)| state.status.out.is_none());
        // Who does not say that it has what the hash is of is not asked for it.
        let may_have = |name: &String| self.candidates.is_empty() || self.candidates.contains(name);
        let usable = usable.filter(move |(_, state)| may_have(&state.status.name));
        usable.map(|(mirror, _)| mirror).filter(|mirror| !self.is_refuted(*mirror))
    }

    /// Whether all of a mirror is known to be wrong.
    fn is_refuted(&self, mirror: MirrorId) -> bool {
        matches!(&self.pool, PoolState::Plain(plain) if plain.is_refuted(mirror))
    }

    /// Whether a mirror that may yet be tried is much faster than this one. Of one that has not been heard
    /// yet nobody knows: it may be the one that was tried when an earlier transfer was interrupted. What one
    /// promised that has stood back itself does not count.
    fn is_outrun(&self, mirror: MirrorId) -> bool {
        let stood_back =
            |other: &MirrorId| matches!(&self.pool, PoolState::Plain(plain) if plain.stood_back(*other) > 0);
        let others = self.untried().filter(|other| !stood_back(other));
        let fastest = others.filter_map(|other| self.rate_of(other)).max();
        self.rate_of(mirror).zip(fastest).is_some_and(|(rate, fastest)| rate < fastest / SLOWER)
    }

    /// Whether a mirror sends parts, for all that is known. One that does not begins anew after each
    /// interruption.
    fn has_ranges(&self, mirror: MirrorId) -> bool {
        self.machine.connections().all(|connection| connection.mirror != mirror || connection.ranges)
    }

    /// The URL of this mirror, which has brought something, if it is tried alone and that is not recorded.
    pub(super) fn newly_alone(&mut self, mirror: MirrorId) -> Option<String> {
        let is_alone = matches!(&self.pool, PoolState::Plain(plain) if plain.alone() == Some(mirror));
        if !is_alone || self.comparison.on_record == Some(mirror) || !self.has_ranges(mirror) {
            return None;
        }
        self.comparison.on_record = Some(mirror);
        self.mirrors.get(usize::from(mirror)).map(|state| state.mirror.url.as_str().to_owned())
    }

    /// Bytes a second of a mirror over all its routes; none if nothing has come over any.
    fn rate_of(&self, mirror: MirrorId) -> Option<u64> {
        let its = self.machine.connections().filter(|connection| connection.mirror == mirror);
        its.filter_map(|connection| connection.rate).reduce(u64::saturating_add)
    }

    /// Bytes that have come from a mirror over all its routes.
    fn brought_from(&self, mirror: MirrorId) -> u64 {
        let its = self.machine.connections().filter(|connection| connection.mirror == mirror);
        its.map(|connection| connection.counters.received_bytes).sum()
    }

    /// Whether mirrors were seen to have different bytes.
    pub(super) fn differ(&self) -> bool {
        matches!(&self.pool, PoolState::Plain(plain) if plain.differ())
    }

    /// What to do about a whole that is wrong, where mirrors `differ` or all have the same.
    pub(in crate::get) fn advice(&self, differ: bool) -> &'static str {
        let mut all = (0..).zip(&self.mirrors);
        match (self.judged, self.mirrors.len()) {
            (_, ..=1) => "",
            (true, _)
                if all.any(|(mirror, state)| state.status.out.is_some() && !self.is_refuted(mirror)) =>
            {
                "; each mirror that is of use was tried alone, and none has the right file"
            }
            (true, _) if !differ => "; each mirror was tried alone, and all have the same bytes",
            (true, _) => "; each mirror was tried alone, and none has the right file",
            (false, _) => {
                "; without hashes of its parts nobody can tell who sent the wrong bytes: try each mirror \
                 alone, or ask for a Metalink"
            }
        }
    }

    /// The error if mirrors differ and nothing tells who is right.
    pub(super) fn conflict(&self, mirrors: &[MirrorId], block: u64, why: &str, stays: &str) -> Error {
        let who = format!("{} have different bytes ({})", self.names(mirrors), place_of(block));
        if !self.kept {
            return Error::corrupt(format!(
                "{who}, and they are handed over as they come, before a hash of the whole could tell which \
                 are right: name one of them, or a Metalink, or fetch into a file with `checksum`"
            ));
        }
        Error::corrupt(format!(
            "{who}, and {why} which are right: name one of them, or give `checksum` or a Metalink; {stays}"
        ))
    }

    pub(super) fn names(&self, mirrors: &[MirrorId]) -> String {
        let names: Vec<&str> = mirrors.iter().map(|mirror| self.name(*mirror)).collect();
        names.join(" and ")
    }

    /// Whether mirrors are only compared with each other: no hash of the content is known.
    pub(super) fn is_hashless(&self) -> bool {
        let only_compares = matches!(&self.pool, PoolState::Plain(plain) if plain.only_compares());
        only_compares && !self.is_whole_known
    }

    /// The error when no mirror is left.
    pub(super) fn given_up(&self) -> Error {
        if let Some(undecided) = self.undecided() {
            return undecided;
        }
        let (code, why) = none_left(self.mirrors.iter().map(|state| &state.status));
        let has_brought = self.kept && self.brought().next().is_some();
        let have_changed = self.mirrors.iter().all(|state| state.status.has_changed);
        let advice = match has_brought && self.is_hashless() {
            false if has_brought && have_changed => {
                "what arrived is kept, and is of the file that was there before: the same request fetches \
                 what is there now"
            }
            false if has_brought => "what arrived is kept: name another",
            false => "name another",
            // What another URL has would not be taken for the same.
            true if have_changed => {
                "what arrived is of the version that it had, and no other URL goes on with that without a \
                 hash: remove the part to begin anew"
            }
            true => "what arrived is kept: name another beside",
        };
        code.error(format!("{why}; {advice}"))
    }

    /// The mirrors that brought something, given up or not.
    pub(super) fn brought(&self) -> impl Iterator<Item = &MirrorState> {
        let reports = || self.machine.connections().zip(&self.routes);
        let brought = move |number: usize| {
            reports().any(|(report, route)| usize::from(route.mirror) == number && report.counters.bytes > 0)
        };
        self.mirrors.iter().enumerate().filter(move |(number, _)| brought(*number)).map(|(_, state)| state)
    }
}
