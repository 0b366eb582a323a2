//! A content that only mirrors have: which groups are missing, and whether what comes is right.
//!
//! What is right is known in one of three ways ([`Check`]):
//! * **Leaves**: the hash of every group. A wrong one names its mirror at once.
//! * **Pieces**: a SHA-256 over some megabytes, as Metalink has them (RFC 5854 section 4.2.15). The groups
//!   of a piece are held until all are here. If they are wrong and all from one mirror, it has lied; if from
//!   several, the piece is fetched again from one alone, and the comparison names who lied.
//! * **Nothing**: groups are right until another mirror says otherwise; see `plain/cross.rs`. A mirror that
//!   turns out to be the odd one of three has all its groups [taken back](Event::Revoked). Two that differ
//!   cannot be told apart, and the transfer has to be given up.
//!
//! Groups that a caller has already are left out. Nothing is kept of a group that was reported but whether
//! it is here and, without hashes, who brought it: two bits and a byte of 16 KiB.

mod cross;
mod pieces;
mod talk;

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use mmtp::ContentId;
use mmtp::bitmap::Bitmap;
use mmtp::id::{GROUP_BYTES, LENGTH_MAX};
use mmtp::idle::Idle;
use mmtp::tree::{self, Cv};

use crate::plan::{MirrorId, Pool};
use cross::{Cross, Found};
use pieces::{Held, Piece, Pieces};

pub use cross::{CHECK_EVERY_GROUPS, CHECKS_MAX};
pub use pieces::{OPEN_BYTES, OPEN_BYTES_MAX, PIECE_BYTES_MAX};
pub use talk::{BadCheck, Check, Event};

const GROUP: u64 = GROUP_BYTES as u64;

enum Mode {
    Leaves(Vec<Cv>),
    Pieces(Pieces),
    Nothing(Cross),
}

/// The pool; see the [module](self).
pub struct Plain {
    id: ContentId,
    mode: Mode,
    idle: Idle,
    done: Bitmap,
    left: u64,
    struck: BTreeSet<MirrorId>,
    /// Mirrors that have been heard of and may still bring something.
    mirrors: BTreeSet<MirrorId>,
    complete: bool,
    disagreed: bool,
    events: VecDeque<Event>,
}

impl Plain {
    /// A content of `length` bytes, of which `have` says which groups are here already.
    ///
    /// # Errors
    /// If `check` is not one of such a content.
    pub fn new(length: u64, check: Check, have: impl Fn(u64) -> bool) -> Result<Self, BadCheck> {
        if length > LENGTH_MAX {
            return Err(BadCheck::TooLong);
        }
        // The root is not known here; only the length is looked at.
        let id = ContentId { root: [0; 32], length };
        let groups = id.groups();
        let expect = |hashes: usize, expected: u64| match hashes as u64 {
            hashes if hashes == expected => Ok(()),
            hashes => Err(BadCheck::Count { hashes, expected }),
        };
        let mode = match check {
            Check::Leaves(leaves) => {
                expect(leaves.len(), groups)?;
                Mode::Leaves(leaves)
            }
            Check::Pieces { bytes, sha256 } => {
                if bytes == 0 || bytes % GROUP != 0 || bytes > PIECE_BYTES_MAX {
                    return Err(BadCheck::PieceLength(bytes));
                }
                expect(sha256.len(), length.div_ceil(bytes))?;
                Mode::Pieces(Pieces::new(bytes / GROUP, groups, sha256))
            }
            Check::Nothing => Mode::Nothing(Cross::new(groups)),
        };
        let mut new = Self {
            id,
            mode,
            idle: Idle::default(),
            done: Bitmap::new(groups),
            left: groups,
            struck: BTreeSet::new(),
            mirrors: BTreeSet::new(),
            complete: false,
            disagreed: false,
            events: VecDeque::new(),
        };
        let (mut first, mut whole) = (0, 0..0);
        for group in 0..groups {
            let here = match &new.mode {
                // A piece is hashed as a whole: of one that is not all here, all is missing.
                Mode::Pieces(pieces) => {
                    let piece = pieces.groups_of(pieces.piece_of(group));
                    if piece.start == group && piece.clone().all(&have) {
                        whole = piece;
                    }
                    whole.contains(&group)
                }
                _ => have(group),
            };
            if here {
                new.idle.put(first..group);
                first = group + 1;
                new.mark(group);
                if let Mode::Nothing(cross) = &mut new.mode {
                    cross.had(group);
                }
            }
        }
        new.idle.put(first..groups);
        new.settle();
        Ok(new)
    }

    /// What decides, without hashes, which groups are compared between mirrors: something that none of them
    /// can guess. It is to be told before anything comes.
    pub const fn seed(&mut self, seed: [u8; 32]) {
        if let Mode::Nothing(cross) = &mut self.mode {
            cross.seed(seed);
        }
    }

    /// What has happened since this was asked last.
    pub fn events(&mut self) -> impl Iterator<Item = Event> {
        self.events.drain(..)
    }

    /// Groups that are not verified.
    #[must_use]
    pub const fn groups_left(&self) -> u64 {
        self.left
    }

    /// Whether every group is here and only comparisons are missing, which take another mirror to make.
    #[must_use]
    pub const fn only_checks_left(&self) -> bool {
        self.left == 0 && !self.complete && !self.disagreed
    }

    /// Whether nothing but comparisons tells what is right.
    #[must_use]
    pub const fn only_compares(&self) -> bool {
        matches!(self.mode, Mode::Nothing(_))
    }

    /// Does without the comparisons that are missing, because no other mirror answers. Mirrors that have
    /// been found to differ do so for good.
    pub fn waive(&mut self) {
        if let Mode::Nothing(cross) = &mut self.mode {
            cross.waive();
        }
        self.mirrors.clear();
        self.judge_again();
        self.settle();
    }

    /// A mirror is not used any more, for another reason than a lie: it cannot decide anything.
    pub fn gone(&mut self, mirror: MirrorId) {
        self.mirrors.remove(&mirror);
        self.judge_again();
        self.settle();
    }

    fn is_done(&self, group: u64) -> bool {
        self.done.contains(group)
    }

    fn mark(&mut self, group: u64) {
        let new = self.done.insert(group);
        debug_assert!(new, "group {group} verified twice");
        self.left -= u64::from(new);
    }

    fn verified(&mut self, group: u64, bytes: Vec<u8>, cv: Cv) {
        self.mark(group);
        self.idle.remove(group);
        self.events.push_back(Event::Verified { group, bytes, cv });
    }

    /// The hash that proves a group: of a content of one group, the root itself.
    fn cv_of(&self, group: u64, bytes: &[u8]) -> Cv {
        if self.id.groups() == 1 { *blake3::hash(bytes).as_bytes() } else { tree::group_cv(group, bytes) }
    }

    /// These groups are missing and nobody has been asked for them; those that are here are left out.
    fn reopen(&mut self, groups: Range<u64>) {
        let mut first = groups.start;
        for group in groups.clone() {
            let here =
                self.is_done(group) || matches!(&self.mode, Mode::Pieces(pieces) if pieces.holds(group));
            if here {
                self.idle.put(first..group);
                first = group + 1;
            }
        }
        self.idle.put(first..groups.end);
    }

    /// A mirror has lied: what it brought and nobody vouches for is missing again.
    fn strike(&mut self, mirror: MirrorId, group: u64) {
        if !self.struck.insert(mirror) {
            return;
        }
        self.mirrors.remove(&mirror);
        self.events.push_back(Event::Liar { mirror, group });
        match &mut self.mode {
            Mode::Leaves(_) => {}
            Mode::Pieces(pieces) => {
                for group in pieces.disown(mirror) {
                    self.idle.put(group..group + 1);
                }
            }
            Mode::Nothing(cross) => {
                let again = cross.strike(mirror);
                for run in again.chunk_by(|a, b| a + 1 == *b) {
                    let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
                    self.revoke(*first..last + 1);
                }
                self.judge_again();
            }
        }
    }

    fn revoke(&mut self, groups: Range<u64>) {
        for group in groups.clone() {
            self.left += u64::from(self.done.remove(group));
        }
        self.idle.put(groups.clone());
        self.events.push_back(Event::Revoked { groups });
    }

    fn judge_again(&mut self) {
        if let Mode::Nothing(cross) = &mut self.mode {
            for (group, found) in cross.judge_again(&self.mirrors) {
                self.found(group, found);
            }
        }
    }

    fn found(&mut self, group: u64, found: Found) {
        match found {
            Found::Nothing => {}
            Found::Odd(mirror) => self.strike(mirror, group),
            Found::Differ(mirrors) => {
                if !std::mem::replace(&mut self.disagreed, true) {
                    self.events.push_back(Event::Disagree { mirrors, group });
                }
            }
        }
    }

    fn settle(&mut self) {
        let settled = self.left == 0
            && match &self.mode {
                Mode::Nothing(cross) => cross.is_settled() && !self.disagreed,
                _ => true,
            };
        if settled && !self.complete {
            self.complete = true;
            self.events.push_back(Event::Complete);
        }
    }

    fn bring_to_piece(&mut self, mirror: MirrorId, group: u64, bytes: &[u8], cv: Cv) {
        let Mode::Pieces(pieces) = &mut self.mode else { return };
        if !pieces.hold(group, Held { mirror, cv, bytes: bytes.to_vec() }) {
            // No room: somebody brings it again when there is.
            self.put_back(group..group + 1);
            return;
        }
        self.idle.remove(group);
        match pieces.judge(group) {
            None => {}
            Some(Piece::Right(held, liars)) => {
                for (group, held) in held {
                    self.verified(group, held.bytes, held.cv);
                }
                for (mirror, group) in liars {
                    self.strike(mirror, group);
                }
            }
            // What has to come from one mirror alone is not idle: `take` looks there first.
            Some(Piece::Lie(liar)) => {
                let first = pieces.groups_of(pieces.piece_of(group)).start;
                self.strike(liar, first);
            }
            Some(Piece::Mixed) => {}
        }
    }
}

impl Pool for Plain {
    fn take(&mut self, mirror: MirrorId, groups: u64) -> Option<Range<u64>> {
        if self.struck.contains(&mirror) || self.complete || self.disagreed {
            return None;
        }
        self.mirrors.insert(mirror);
        match &mut self.mode {
            Mode::Leaves(_) => self.idle.take(0..u64::MAX, groups),
            Mode::Pieces(pieces) => {
                if let Some(piece) = pieces.bind(mirror) {
                    return Some(piece);
                }
                let bounds = if pieces.has_room() {
                    0..u64::MAX
                } else {
                    pieces.begun().find(|piece| self.idle.first_in(piece.clone()).is_some())?
                };
                let first = self.idle.first_in(bounds.clone())?.start;
                // Whole pieces, where it can be.
                let to_end = pieces.groups_of(pieces.piece_of(first)).end - first;
                let per_piece = pieces.per_piece();
                let whole = groups.checked_sub(to_end).map(|more| to_end + more / per_piece * per_piece);
                let taken = self.idle.take(bounds, whole.unwrap_or(groups))?;
                pieces.begin(taken.start);
                Some(taken)
            }
            Mode::Nothing(cross) => {
                cross.joins(mirror);
                if let Some(group) = cross.take(mirror) {
                    return Some(group..group + 1);
                }
                let next = self.idle.first_in(0..u64::MAX)?.start;
                let taken = self.idle.take(0..u64::MAX, groups.min(cross.most_from(next)))?;
                let first = taken.start;
                Some(if cross.took(mirror, first, taken.end) { first - 1 } else { first }..taken.end)
            }
        }
    }

    fn put_back(&mut self, groups: Range<u64>) {
        let groups = groups.start..groups.end.min(self.id.groups());
        if groups.is_empty() {
            return;
        }
        match &mut self.mode {
            Mode::Leaves(_) => self.reopen(groups),
            Mode::Pieces(pieces) => {
                let mut first = groups.start;
                for alone in pieces.unbind(&groups) {
                    if first < alone.start {
                        self.reopen(first..alone.start);
                    }
                    first = first.max(alone.end);
                }
                if first < groups.end {
                    self.reopen(first..groups.end);
                }
            }
            Mode::Nothing(cross) => {
                cross.put_back(groups.start, groups.end);
                self.reopen(groups);
            }
        }
    }

    fn idle(&self) -> u64 {
        self.idle.len()
            + match &self.mode {
                Mode::Leaves(_) => 0,
                Mode::Pieces(pieces) => pieces.unbound(),
                Mode::Nothing(cross) => cross.waiting(),
            }
    }

    fn idle_for(&self, mirror: MirrorId) -> u64 {
        match &self.mode {
            Mode::Nothing(cross) => self.idle.len() + cross.waiting_for(mirror),
            _ => self.idle(),
        }
    }

    fn is_wanted(&self, group: u64) -> bool {
        if group >= self.id.groups() || self.disagreed {
            return false;
        }
        match &self.mode {
            Mode::Leaves(_) => !self.is_done(group),
            Mode::Pieces(pieces) => !self.is_done(group) && !pieces.holds(group),
            Mode::Nothing(cross) => !self.is_done(group) || cross.is_wanted(group),
        }
    }

    fn is_wanted_from(&self, mirror: MirrorId, group: u64) -> bool {
        if self.struck.contains(&mirror) || !self.is_wanted(group) {
            return false;
        }
        match &self.mode {
            Mode::Leaves(_) => true,
            Mode::Pieces(pieces) => pieces.takes(mirror, group),
            Mode::Nothing(cross) => !self.is_done(group) || cross.is_wanted_from(mirror, group),
        }
    }

    fn bring(&mut self, mirror: MirrorId, group: u64, bytes: &[u8]) {
        if !self.is_wanted_from(mirror, group) || bytes.len() != self.id.group_len(group) {
            return;
        }
        self.mirrors.insert(mirror);
        let cv = self.cv_of(group, bytes);
        match &mut self.mode {
            Mode::Leaves(leaves) => {
                let right = usize::try_from(group).ok().and_then(|i| leaves.get(i));
                if right == Some(&cv) {
                    self.verified(group, bytes.to_vec(), cv);
                } else {
                    self.idle.put(group..group + 1);
                    self.strike(mirror, group);
                }
            }
            Mode::Pieces(_) => self.bring_to_piece(mirror, group, bytes, cv),
            Mode::Nothing(cross) => {
                cross.joins(mirror);
                let done = self.done.contains(group);
                if !done {
                    cross.brought(mirror, group, cv);
                }
                let found = cross.compare(mirror, group, cv, &self.mirrors);
                if !done {
                    self.verified(group, bytes.to_vec(), cv);
                }
                self.found(group, found);
            }
        }
        self.settle();
    }
}

#[cfg(test)]
mod tests;
