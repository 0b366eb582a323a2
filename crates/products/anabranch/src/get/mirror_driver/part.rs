//! Decides which intact blocks of the part file count. Earlier transfers, or earlier attempts of this one,
//! left them there.
//!
//! * If hashes of the parts are known, or if the subscriber is the pool: all of them.
//! * If only a hash of the whole file is known and mirrors are tried together: all blocks except those that
//!   mirrors of other variants delivered.
//! * If only a hash of the whole file is known and a mirror is tried alone: the blocks that it delivered of
//!   the version that it has now.
//! * If no hash is known: the blocks that the present mirrors delivered of the versions that they have now.
//!   These blocks are compared as if they arrived now.

use anabranch_algo::Time;
use anabranch_http::client::FetchError;
use anabranch_mirror::range_scheduler::MirrorId;
use anabranch_mirror::verified_pool::{Check, VerifiedPool};
use anabranch_mmtp::bitmap::Bitmap;
use anabranch_mmtp::id::BLOCK_BYTES;
use anabranch_mmtp::subscriber::Subscriber;

use super::{Found, MirrorDriver, MirrorState, PoolState};
use crate::event::Observer;
use crate::get::sink::Here;
use crate::target::Records;
use crate::{Error, Result};

/// The reason for not asking a mirror whose file an earlier transfer found to be wrong.
const REFUTED_EARLIER: &str =
    "an earlier run had all of it, and it is not what is wanted (remove the part to have it asked again)";
/// The reason for not asking a mirror whose version has changed since the part file was begun.
const CHANGED_EARLIER: &str = "it had another ETag or date when the part was begun";

impl MirrorDriver {
    /// Begins to fetch the content from mirrors alone. Returns which blocks of the part file count.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if an earlier transfer found that these mirrors
    /// together have another file.
    pub(in crate::get) fn want(&mut self, here: Here<'_>) -> Result<Bitmap> {
        let PoolState::Check(check) = &mut self.pool else { return Ok(here.there) };
        let check = std::mem::replace(check, Check::Nothing);
        let records = here.records.filter(|_| check == Check::Nothing);
        let counts = match &records {
            Some(records) => self.what_counts(records, &here.there)?,
            None => here.there,
        };
        let mut plain = self.pool_of(check, |block| counts.contains(block))?;
        if let Some(records) = records.filter(|_| self.mirrors.len() > 1) {
            self.compare_what_is_here(&mut plain, &records, &counts);
        }
        self.pool = PoolState::Plain(plain);
        Ok(counts)
    }

    /// Returns a pool of the blocks that are missing.
    pub(super) fn pool_of(&self, check: Check, have: impl Fn(u64) -> bool) -> Result<Box<VerifiedPool>> {
        let mut plain = VerifiedPool::new(self.config.length, check, have)
            .map_err(|e| Error::usage(e.to_string()).because(e))?;
        plain.seed(self.seed);
        plain.set_horizon(self.horizon);
        if self.config.judged {
            plain.judged_as_a_whole();
        }
        for (mirror, state) in (0..).zip(&self.mirrors) {
            let leads = self.network.routes.iter().any(|route| route.mirror == mirror);
            if leads && state.status.out.is_none() && state.mirror.ranges {
                plain.mirror_joins(mirror, !state.mirror.introduced);
            }
        }
        Ok(Box::new(plain))
    }

    /// Returns which of the blocks in the part file count, and sets which mirrors are not asked. Fails if an
    /// earlier transfer found that these mirrors together have another file.
    fn what_counts(&mut self, records: &Records<'_>, there: &Bitmap) -> Result<Bitmap> {
        let of = |state: &MirrorState| records.number_of(state.mirror.url.as_str());
        self.numbers = self.mirrors.iter().map(of).collect();
        let all = || (0..).zip(&self.mirrors);
        let those = |is: &dyn Fn(&str) -> bool| -> Vec<MirrorId> {
            all().filter(|(_, state)| is(state.mirror.url.as_str())).map(|(mirror, _)| mirror).collect()
        };
        let (is_alone, judged) = (self.config.is_alone, self.config.judged);
        let mut counts = Bitmap::new(self.blocks());
        let here = (0..self.blocks()).filter(|block| there.contains(*block));
        if judged {
            let (refuted, tried) =
                (those(&|url| records.is_refuted(url)), those(&|url| records.was_tried_alone(url)));
            let are_all = refuted.len() == self.mirrors.len();
            if are_all && self.config.has_others {
                self.found = Some(Found::Wrong);
                return Err(Error::corrupt(format!("{}: {REFUTED_EARLIER}", self.names(&refuted))));
            }
            if !are_all {
                let error = || FetchError::NotTheFile(REFUTED_EARLIER.to_owned());
                self.unwanted = refuted.into_iter().map(|mirror| (mirror, error())).collect();
            }
            let tried = tried.into_iter().find(|mirror| !self.unwanted.iter().any(|(out, _)| out == mirror));
            if let Some(mirror) = tried.filter(|_| !is_alone && self.mirrors.len() > 1) {
                (self.found, self.tried_before) = (Some(Found::Wrong), Some(mirror));
                return Err(Error::corrupt("an earlier run had all of it, and it was wrong"));
            }
        } else {
            let changed = those(&|url| records.has_changed(url));
            let error = || FetchError::Changed(CHANGED_EARLIER.to_owned());
            self.unwanted = changed.into_iter().map(|mirror| (mirror, error())).collect();
        }
        let others: Vec<u8> = self.config.others.iter().filter_map(|url| records.number_of(url)).collect();
        let mine: Vec<u8> = self.numbers.iter().flatten().copied().collect();
        self.is_pure = true;
        for block in here {
            let mark = records.mark(block);
            let is_mine = mine.contains(&mark);
            if is_mine || judged && !is_alone && !others.contains(&mark) {
                counts.insert(block);
                self.is_pure &= is_mine;
            }
        }
        Ok(counts)
    }

    /// Lets the pool compare the counted blocks of the part file as if they arrived now.
    fn compare_what_is_here(&self, plain: &mut VerifiedPool, records: &Records<'_>, counts: &Bitmap) {
        for block in (0..self.blocks()).filter(|block| counts.contains(*block)) {
            let mark = records.mark(block);
            if let Some(mirror) = self.numbers.iter().position(|number| *number == Some(mark)) {
                plain.brought_before(mirror as MirrorId, block, || records.cv(block));
            }
        }
    }

    /// Returns the number of blocks of the content.
    const fn blocks(&self) -> u64 {
        self.config.length.div_ceil(BLOCK_BYTES as u64)
    }

    /// Gives up the mirrors that earlier transfers found to be of no use.
    pub(in crate::get) fn leave_out_unwanted(
        &mut self,
        now: Time,
        subscriber: &mut Subscriber,
        observer: &mut Observer<'_>,
    ) {
        for (mirror, error) in std::mem::take(&mut self.unwanted) {
            self.out(mirror, &error, subscriber, observer);
            self.no_more(now, mirror, subscriber);
        }
    }

    /// Returns the mark of a block that this mirror delivers: 0 if its version has changed or has no number.
    pub(super) fn mark_of(&self, mirror: MirrorId) -> u8 {
        let number = self.numbers.get(usize::from(mirror)).copied().flatten();
        number.filter(|_| !self.has_changed(mirror)).unwrap_or(0)
    }
}
