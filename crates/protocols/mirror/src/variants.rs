//! Which of the files that mirrors have is the one that is wanted.
//!
//! Mirrors fall into *variants*: classes that no evidence tells apart. What is known before anything is
//! fetched ([`Evidence`]) makes the first classes; after that evidence only ever splits one. A file is made
//! of one variant:
//!
//! * Where a hash tells what is right, variants are tried one after the other, the one that most origins have
//!   first. One that is [wrong](Variants::wrong) falls into its mirrors, each of which is tried alone; one
//!   that does not come to its end is [put back](Variants::put_back) behind the others, and has twice the
//!   [`Patience`] then.
//! * Where no hash does, the origins that the user named vote ([`Ballot`]): the variant that more than half
//!   of them have is it, or nothing is.

mod ballot;

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use anabranch_algo::{Rate, Span};
use anabranch_mmtp::tree::ChainingValue;

use crate::range_scheduler::MirrorId;

pub use ballot::Ballot;

/// What is known of a mirror's file before it is fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Its bytes (`Content-Length`, `Content-Range`: RFC 9110 sections 8.6 and 14.4); none if the server does
    /// not say it.
    pub length: Option<u64>,
    /// A hash of its first bytes; none if they have not come.
    pub opening: Option<[u8; 32]>,
    /// Whether the mirror has the vote of its origin.
    pub has_vote: bool,
    /// Whether the server sends parts (RFC 9110 section 14).
    pub ranges: bool,
}

/// Mirrors whose files no evidence tells apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Bytes of the file; none if only a whole answer tells, which then comes from the only mirror.
    pub length: Option<u64>,
    /// Its mirrors, in the order in which they were given.
    pub mirrors: Vec<MirrorId>,
    /// Whether its only mirror is tried alone because the file that several mirrors brought together was
    /// wrong. Then only blocks from this mirror count.
    pub is_alone: bool,
    /// How many of its mirrors have the vote of their origin.
    votes: usize,
    opening: Option<[u8; 32]>,
    /// Whether one of its servers sends parts.
    ranges: bool,
    /// How often it was put back.
    turn: u32,
}

impl Variant {
    /// The same variant, with the length that is known now.
    #[must_use]
    pub fn of_length(self, length: u64) -> Self {
        Self { length: Some(length), ..self }
    }

    /// How long it is waited for while there are others to try.
    #[must_use]
    pub fn patience(&self) -> Patience {
        Patience::of_turn(self.turn)
    }

    /// Whether this is the variant's last turn: its allowed silence has reached the time-out of the transfer,
    /// and it has been put back so often that hardly any rate is still too slow.
    #[must_use]
    pub fn is_last_turn(&self, timeout: Span) -> bool {
        self.turn >= TURNS_MIN && self.patience().silence >= timeout
    }
}

/// A silent or slow variant is put back at least this many times before it is given up.
const TURNS_MIN: u32 = 4;

/// How long a variant is waited for while other variants remain to be tried. Each time it is put back, all
/// times double and the required rate is halved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Without a byte for so long it gives way.
    pub silence: Span,
    /// It gives way if it brings less than this.
    pub slow: Rate,
    /// The time over which the rate is measured that is compared with the field `slow`.
    pub slow_for: Span,
    /// The variant gives way if its remaining bytes would take longer than this.
    pub rest: Span,
    /// It gives way if it has not ended by then, where its length is not known.
    pub endless: Span,
}

impl Patience {
    /// The patience of a variant that has been put back so often.
    #[must_use]
    pub fn of_turn(turn: u32) -> Self {
        let times = 2_u64.saturating_pow(turn);
        Self {
            silence: Span::from_secs(3).times(times),
            slow: Rate::from_bytes((16 << 10) / times),
            slow_for: Span::from_secs(10).times(times),
            rest: Span::from_secs(3_600).times(times),
            endless: Span::from_secs(60).times(times),
        }
    }
}

/// The blocks in which two mirrors differ, with the chaining value that each mirror has.
pub type Differences = BTreeMap<u64, Vec<(MirrorId, ChainingValue)>>;

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Variants {
    queue: VecDeque<Variant>,
    /// Mirrors whose whole file was there and was wrong, each with its length.
    refuted: BTreeMap<MirrorId, Option<u64>>,
}

impl Variants {
    /// Sorts all mirrors into variants and puts these in order: known lengths before unknown ones, then most
    /// votes first, then those with a server that sends ranges, then the shortest. A mirror whose first bytes
    /// are unknown joins the first variant of its length.
    pub fn new(all: impl IntoIterator<Item = (MirrorId, Evidence)>) -> Self {
        let mut variants: Vec<Variant> = Vec::new();
        let (known, open): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|(_, evidence)| evidence.length.is_some() && evidence.opening.is_some());
        let rank = |variant: &Variant| {
            (variant.length.is_none(), Reverse(variant.votes), !variant.ranges, variant.length)
        };
        for (mirror, evidence) in known {
            let is_its = |variant: &&mut Variant| {
                (variant.length, variant.opening) == (evidence.length, evidence.opening)
            };
            match variants.iter_mut().find(is_its) {
                Some(variant) => variant.add(mirror, evidence),
                None => variants.push(Variant::of(mirror, evidence)),
            }
        }
        variants.sort_by_key(rank);
        for (mirror, evidence) in open {
            let is_its =
                |variant: &&mut Variant| evidence.length.is_some() && variant.length == evidence.length;
            match variants.iter_mut().find(is_its) {
                Some(variant) => variant.add(mirror, evidence),
                None => variants.push(Variant::of(mirror, evidence)),
            }
        }
        variants.iter_mut().for_each(|variant| variant.mirrors.sort_unstable());
        variants.sort_by_key(rank);
        Self { queue: variants.into(), refuted: BTreeMap::new() }
    }

    /// The variants, in the order in which they are tried.
    pub fn iter(&self) -> impl Iterator<Item = &Variant> {
        self.queue.iter()
    }

    /// Whether none is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Takes the next variant.
    pub fn take(&mut self) -> Option<Variant> {
        self.queue.pop_front()
    }

    /// Drops the variants that `is` does not hold for.
    pub fn retain(&mut self, is: impl FnMut(&Variant) -> bool) {
        self.queue.retain(is);
    }

    /// Tries the variants with the least key first.
    pub fn sort_by_key<K: Ord>(&mut self, key: impl FnMut(&Variant) -> K) {
        self.queue.make_contiguous().sort_by_key(key);
    }

    /// A variant that was taken and not tried is the next again.
    pub fn push_front(&mut self, variant: Variant) {
        self.queue.push_front(variant);
    }

    /// A variant did not come to its end: it comes again after the others.
    pub fn put_back(&mut self, variant: Variant) {
        self.queue.push_back(Variant { turn: variant.turn + 1, ..variant });
    }

    /// Reports that all of a variant arrived and was wrong. If every block came from its only mirror
    /// (`is_pure`), that mirror is refuted. Otherwise each of its mirrors is queued to be tried alone, the
    /// one of the greatest `rank` first and, of equals, the one that was named last. A mirror that has been
    /// tried alone twice is not queued again.
    pub fn wrong<K: Ord>(&mut self, variant: Variant, is_pure: bool, rank: impl Fn(MirrorId) -> K) {
        if let ([mirror], true) = (&variant.mirrors[..], is_pure) {
            self.refuted.insert(*mirror, variant.length);
            return;
        }
        if variant.is_alone && variant.turn > 0 {
            return;
        }
        let mut mirrors = variant.mirrors.clone();
        mirrors.sort_by_key(|mirror| Reverse((rank(*mirror), *mirror)));
        let alone = mirrors.into_iter().map(|mirror| Variant {
            mirrors: vec![mirror],
            is_alone: true,
            turn: u32::from(variant.is_alone),
            ..variant.clone()
        });
        self.queue.extend(alone);
    }

    /// Mirrors of a variant have different bytes: it falls into those that have the same. The largest part
    /// comes first; of equal parts the one that was named last.
    pub fn differ(&mut self, variant: Variant, differences: &Differences) {
        let mut parts: Vec<Variant> = Vec::new();
        for mirror in &variant.mirrors {
            let may_be = |other: MirrorId| !differences.values().any(|said| contradict(said, *mirror, other));
            match parts.iter_mut().find(|part| part.mirrors.iter().all(|other| may_be(*other))) {
                Some(part) => part.mirrors.push(*mirror),
                None => parts.push(Variant { mirrors: vec![*mirror], ..variant.clone() }),
            }
        }
        if parts.len() < 2 {
            // A mirror has something else than it had before.
            return self.wrong(variant, false, |_| 0);
        }
        parts.sort_by_key(|part| part.mirrors.len());
        parts.into_iter().for_each(|part| self.queue.push_front(part));
    }

    /// The mirrors that are left of the same length as this variant, and begin otherwise.
    pub fn that_begin_otherwise(&self, than: &Variant) -> impl Iterator<Item = MirrorId> {
        let is_other = move |one: &&Variant| {
            one.length == than.length && one.opening.zip(than.opening).is_some_and(|(one, than)| one != than)
        };
        self.queue.iter().filter(is_other).flat_map(|one| one.mirrors.iter().copied())
    }

    /// The mirrors whose whole file was there and was wrong, each with the length of that.
    pub fn refuted(&self) -> impl Iterator<Item = (MirrorId, Option<u64>)> {
        self.refuted.iter().map(|(mirror, length)| (*mirror, *length))
    }
}

impl Variant {
    fn of(mirror: MirrorId, evidence: Evidence) -> Self {
        let Evidence { length, opening, has_vote, ranges } = evidence;
        Self {
            length,
            mirrors: vec![mirror],
            is_alone: false,
            votes: usize::from(has_vote),
            opening,
            ranges,
            turn: 0,
        }
    }

    fn add(&mut self, mirror: MirrorId, evidence: Evidence) {
        self.mirrors.push(mirror);
        self.votes += usize::from(evidence.has_vote);
        self.ranges |= evidence.ranges;
    }
}

/// Whether both said what they have, and that is not the same.
fn contradict(said: &[(MirrorId, ChainingValue)], one: MirrorId, other: MirrorId) -> bool {
    let of = |mirror| said.iter().find(|(by, _)| *by == mirror).map(|(_, cv)| cv);
    of(one).zip(of(other)).is_some_and(|(one, other)| one != other)
}

/// The mirrors that have another value of a block than the right file, each with the first such block.
pub fn liars(
    differences: &Differences,
    right: impl Fn(u64) -> Option<ChainingValue>,
) -> BTreeMap<MirrorId, u64> {
    let mut liars = BTreeMap::new();
    for (block, said) in differences {
        let Some(right) = right(*block) else { continue };
        for (mirror, _) in said.iter().filter(|(_, cv)| *cv != right) {
            liars.entry(*mirror).or_insert(*block);
        }
    }
    liars
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(length: u64, opening: u8) -> Evidence {
        let opening = Some([opening; 32]).filter(|_| opening > 0);
        Evidence { length: Some(length).filter(|_| length > 0), opening, has_vote: true, ranges: true }
    }

    fn variants(all: &[(u64, u8)]) -> Variants {
        Variants::new((0..).zip(all.iter().map(|(length, opening)| evidence(*length, *opening))))
    }

    fn tried(mut variants: Variants) -> Vec<Vec<MirrorId>> {
        std::iter::from_fn(|| variants.take()).map(|variant| variant.mirrors).collect()
    }

    #[test]
    fn the_variant_that_most_have_comes_first_and_one_of_unknown_length_last() {
        let all = [(0, 0), (9, 1), (8, 2), (9, 3), (9, 3), (7, 4)];
        assert_eq!(tried(variants(&all)), [vec![3, 4], vec![5], vec![2], vec![1], vec![0]]);
        assert_eq!(tried(variants(&[(9, 0), (9, 1), (9, 1), (9, 2)])), [vec![0, 1, 2], vec![3]]);
        assert_eq!(tried(variants(&[(9, 0), (9, 0)])), [vec![0, 1]], "nothing tells them apart");
    }

    #[test]
    fn a_wrong_variant_falls_into_its_mirrors_and_a_wrong_mirror_is_refuted() {
        let mut all = variants(&[(9, 1), (9, 1), (9, 2)]);
        let first = all.take().expect("a variant");
        all.wrong(first, true, |mirror| mirror);
        let order: Vec<_> = all.iter().map(|variant| (variant.mirrors.clone(), variant.is_alone)).collect();
        assert_eq!(order, [(vec![2], false), (vec![1], true), (vec![0], true)]);
        let one = all.take().expect("a variant");
        all.wrong(one.clone(), false, |mirror| mirror);
        assert_eq!(all.refuted().count(), 0, "something of others was in it");
        all.wrong(one, true, |mirror| mirror);
        assert_eq!(all.refuted().collect::<Vec<_>>(), [(2, Some(9))]);
    }

    #[test]
    fn blocks_split_a_variant_and_tell_who_lied() {
        let mut all = variants(&[(9, 1); 4]);
        let first = all.take().expect("a variant");
        let differences: Differences =
            [(3, vec![(0, [7; 32]), (2, [8; 32]), (3, [7; 32])]), (5, vec![(3, [1; 32]), (0, [1; 32])])]
                .into();
        all.differ(first, &differences);
        assert_eq!(tried(all), [vec![0, 1, 3], vec![2]]);
        assert_eq!(liars(&differences, |_| Some([8; 32])), [(0, 3), (3, 3)].into());
        assert_eq!(liars(&differences, |block| (block == 3).then_some([7; 32])), [(2, 3)].into());
    }

    #[test]
    fn mirrors_that_differ_in_nothing_that_is_known_are_tried_alone_and_then_no_more() {
        let mut all = variants(&[(9, 1); 3]);
        let tried = std::iter::from_fn(|| {
            let variant = all.take()?;
            all.differ(variant.clone(), &Differences::new());
            Some(variant.mirrors)
        });
        let tried: Vec<_> = tried.take(20).collect();
        let twice = [[2], [1], [0]].repeat(2);
        assert!(tried[0] == [0, 1, 2] && tried[1..] == twice, "{tried:?}");
    }

    #[test]
    fn what_is_put_back_has_twice_the_time() {
        let mut all = variants(&[(9, 1), (8, 1)]);
        let first = all.take().expect("a variant");
        all.put_back(first.clone());
        let again = std::iter::from_fn(|| all.take()).last().expect("a variant");
        assert_eq!(again.mirrors, first.mirrors);
        assert_eq!(again.patience().silence, first.patience().silence.times(2));
    }
}
