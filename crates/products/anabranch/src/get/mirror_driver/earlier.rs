//! What earlier transfers left. Where no hash is known it is compared; who lied then is not asked, nor who
//! had another version then. Where a hash of the whole is known, who was refuted then is not asked.

use std::collections::{BTreeMap, BTreeSet};

use anabranch_algo::Time;
use anabranch_http::client::FetchError;
use anabranch_mirror::range_scheduler::{Input, MirrorId};
use anabranch_mirror::url::Url;
use anabranch_mirror::verified_pool::{Earlier as _, Event, MirrorsOfNow, VerifiedPool};
use anabranch_mmtp::id::BLOCK_BYTES;
use anabranch_mmtp::subscriber::Subscriber;

use super::{MirrorDriver, MirrorState, PoolEvent, PoolState, Unwanted, sources};
use crate::Result;
use crate::event::Observer;
use crate::get::pool::with_pool;
use crate::get::sink::Here;
use crate::target::journal::{banned_clue, passing_number, url_clue};
use crate::target::{LeftIn, Refuted};

/// Why a mirror is struck off that is asked for nothing.
const LIED_EARLIER: &str = "struck off earlier: wrong bytes (remove the part to have it asked again)";

/// Why a mirror is not asked again for what it does not have.
const REFUTED_EARLIER: &str =
    "an earlier run had all of it, and it is not what is wanted (remove the part to have it asked again)";

/// What has changed about it.
const CHANGED_EARLIER: &str = "it had another ETag or date when the part was begun";

impl MirrorDriver {
    /// A pool takes up what earlier transfers left. Where a hash of the whole is known that decides, also
    /// about who lied; what a mirror brought of the version that it has now is its own still.
    pub(super) fn take_up(&mut self, plain: &mut VerifiedPool, here: &Here<'_>) {
        let Some(left) = here.left.as_ref().filter(|_| plain.only_compares()) else { return };
        if self.is_whole_known {
            let blocks = self.length.div_ceil(BLOCK_BYTES as u64);
            // If the whole is wrong, a single mirror is tried alone, too: what was left may be of another, or
            // of another file that it had then.
            if plain.blocks_left() < blocks && !self.judged {
                self.judged = true;
                plain.judged_as_a_whole();
            }
            // Others than those with a name or a clue may be of another mirror in another transfer.
            let mut bringers = BTreeMap::new();
            for ((mirror, state), numbers) in (0..).zip(&self.mirrors).zip(&self.numbers) {
                // Who was found wrong before goes by what it brought since.
                let in_doubt = left.refuted(state.mirror.url.as_str()).is_none();
                let others = numbers.url.iter().chain(&numbers.before);
                bringers.extend(others.map(|number| (*number, (mirror, in_doubt))));
                bringers.extend(numbers.version.map(|number| (number, (mirror, false))));
            }
            for block in (0..blocks).filter(|block| (here.has)(*block)) {
                if let Some((mirror, in_doubt)) = bringers.get(&left.bringer(block))
                    && let Some(cv) = left.cv(block)
                {
                    plain.brought_before(*mirror, block, &cv);
                    if *in_doubt {
                        plain.may_have_changed(*mirror);
                    }
                }
            }
            if self.judged {
                let was_tried =
                    |(_, state): &(MirrorId, &MirrorState)| left.left.was_tried(state.mirror.url.as_str());
                if let Some((mirror, _)) = (0..).zip(&self.mirrors).find(was_tried) {
                    plain.tried_before(mirror);
                }
                self.leave_out_refuted(plain, left);
            }
            return;
        }
        let why = |url: &str| match left.left.banned.contains(&banned_clue(url)) {
            true => Some(Unwanted::Liar),
            false => left.left.changed.contains(&url_clue(url)).then_some(Unwanted::Changed),
        };
        let all = || (0..).zip(&self.mirrors).map(|(mirror, state)| (mirror, why(state.mirror.url.as_str())));
        let unwanted = all().filter_map(|(mirror, why)| Some((mirror, why?))).collect();
        let asked: BTreeSet<MirrorId> =
            all().filter(|(_, why)| why.is_none()).map(|(mirror, _)| mirror).collect();
        self.unwanted = unwanted;
        // One that is alone as it was before has nothing to compare it with.
        let voices = match asked.len() {
            ..=1 => usize::from(left.left.lacks_mirrors),
            _ => 2,
        };
        let is_new = |mirror: &MirrorId| {
            let state = self.mirrors.get(usize::from(*mirror));
            state.is_some_and(|state| left.left.is_new(state.mirror.url.as_str()))
        };
        let newcomers = asked.iter().copied().filter(is_new).collect();
        plain.take_up(left, MirrorsOfNow { asked, voices, newcomers });
    }

    /// What each mirror's file begins with tells apart those that differ from the start, before anything is
    /// fetched, and also those that cannot be asked for a part.
    pub(super) fn compare_openings(&self, plain: &mut VerifiedPool) {
        let is_asked = |mirror: &MirrorId| self.unwanted.iter().all(|(unwanted, _)| unwanted != mirror);
        let all = (0..).zip(&self.mirrors).filter(|(mirror, _)| is_asked(mirror));
        plain.compare_openings(all.map(|(mirror, state)| (mirror, state.mirror.opening)));
    }

    /// Mirrors of which all was wrong in an earlier transfer are not asked, or come last if they may have
    /// another file now; unless that is all of them.
    fn leave_out_refuted(&mut self, plain: &mut VerifiedPool, left: &LeftIn<'_>) {
        let refuted = |(mirror, state): (MirrorId, &MirrorState)| {
            Some((mirror, left.refuted(state.mirror.url.as_str())?))
        };
        let refuted: Vec<(MirrorId, Refuted)> = (0..).zip(&self.mirrors).filter_map(refuted).collect();
        if refuted.iter().filter(|(_, what)| *what == Refuted::Now).count() == self.mirrors.len() {
            return;
        }
        for (mirror, what) in refuted {
            match what {
                Refuted::Now => {
                    plain.refuted_before(mirror);
                    self.unwanted.push((mirror, Unwanted::Refuted));
                }
                Refuted::Then => plain.postpone(mirror),
            }
        }
    }

    /// Mirrors differ, and nothing tells who is right. What earlier transfers left stays if it is of one of
    /// them at most; `each` is told what does not. Returns what is to be said of what stays.
    pub(super) fn keep_earlier(
        &mut self,
        differ: &[MirrorId],
        mut each: impl FnMut(PoolEvent) -> Result<bool>,
    ) -> Result<String> {
        // No other pool says that mirrors differ.
        let PoolState::Plain(plain) = &mut self.pool else { return Ok(String::new()) };
        if !plain.keep_earlier(differ) {
            each(PoolEvent::Disagree { earlier_stays: false })?;
            return Ok("what had arrived is removed, for nobody can tell which of it is right".to_owned());
        }
        let with = differ.iter().copied().find(|mirror| !plain.is_newcomer(*mirror));
        for event in plain.events().collect::<Vec<_>>() {
            if let Event::Revoked { blocks } = event {
                each(PoolEvent::Revoked(blocks))?;
            }
        }
        each(PoolEvent::Disagree { earlier_stays: true })?;
        let with =
            with.map_or_else(String::new, |mirror| format!("; {} alone goes on with it", self.name(mirror)));
        Ok(format!("what came now is removed, and what an earlier run left stays{with}"))
    }

    /// Gives those up that lied in an earlier transfer, or had another version. Returns the liars' URLs.
    pub(in crate::get) fn strike_off(
        &mut self,
        now: Time,
        subscriber: &mut Subscriber,
        observer: &mut Observer<'_>,
    ) -> Vec<Url> {
        let mut liars = Vec::new();
        for (mirror, why) in std::mem::take(&mut self.unwanted) {
            match why {
                Unwanted::Liar => {
                    observer.banned(self.name(mirror), LIED_EARLIER);
                    if let Some(state) = self.mirrors.get_mut(usize::from(mirror)) {
                        state.status.ban(LIED_EARLIER.to_owned());
                        liars.push(state.mirror.url.clone());
                    }
                }
                Unwanted::Changed => {
                    let error = FetchError::Changed(CHANGED_EARLIER.to_owned());
                    self.out(mirror, &error, subscriber, observer);
                }
                Unwanted::Refuted => {
                    let error = FetchError::NotTheFile(REFUTED_EARLIER.to_owned());
                    self.out(mirror, &error, subscriber, observer);
                }
            }
            if let PoolState::Plain(plain) = &mut self.pool {
                plain.mirror_gone(mirror);
            }
            let Self { machine, mirrors, pool, .. } = self;
            with_pool(pool, machine, sources(mirrors), subscriber, |machine, pool| {
                machine.handle(now, Input::Banned { mirror }, pool);
            });
        }
        liars
    }

    /// What the journal is told of a block that this mirror brought.
    pub(super) fn mark_of(&self, mirror: MirrorId) -> u8 {
        let at = usize::from(mirror);
        let Some((numbers, state)) = self.numbers.get(at).zip(self.mirrors.get(at)) else { return 0 };
        let of_version = numbers.version.filter(|_| state.changed.is_none());
        let number = of_version.or(numbers.url);
        number.unwrap_or_else(|| passing_number(self.seed[0].wrapping_add(mirror)))
    }
}
