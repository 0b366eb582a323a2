//! Chooses which of the files that the mirrors have is the wanted one.
//!
//! Mirrors are grouped into *variants*: a variant is a set of mirrors whose files no evidence tells apart.
//! The [`Evidence`] that is known before the file is fetched makes the first variants; later evidence only
//! splits a variant. A file is built from the blocks of one variant:
//!
//! * Where a hash of the file is known, variants are tried one after the other, the one with the most votes
//!   first. The mirrors of a [wrong](Variants::wrong) variant are then each tried alone. A variant that does
//!   not arrive completely is [put back](Variants::put_back) behind the others, and its [`Patience`] is
//!   doubled.
//! * Where no hash is known, the origins that the user named vote ([`Ballot`]): the variant of more than half
//!   of them is the wanted one. Without such a majority the transfer fails.

mod ballot;

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use anabranch_algo::{Rate, Span};
use anabranch_mmtp::tree::ChainingValue;

use crate::range_scheduler::MirrorId;

pub use ballot::Ballot;

/// The properties of a mirror's file that are known before the file is fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The length of the file in bytes (`Content-Length` or `Content-Range`: RFC 9110 sections 8.6 and 14.4);
    /// `None` if the server does not say it.
    pub length: Option<u64>,
    /// A hash of the first bytes of the file; `None` if they have not arrived.
    pub opening: Option<[u8; 32]>,
    /// Whether the mirror casts the vote of its origin.
    pub has_vote: bool,
    /// Whether the server answers range requests (RFC 9110 section 14).
    pub ranges: bool,
}

/// A set of mirrors whose files no evidence tells apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// The length of the file in bytes; `None` if only a complete response shows it. The variant then has a
    /// single mirror.
    pub length: Option<u64>,
    /// The mirrors of this variant, in the order in which they were given.
    pub mirrors: Vec<MirrorId>,
    /// Whether the only mirror of this variant is tried alone, because the file that was put together from
    /// several mirrors was wrong. Then only blocks from this mirror count.
    pub is_alone: bool,
    /// How many of the mirrors cast the vote of their origin.
    votes: usize,
    opening: Option<[u8; 32]>,
    /// Whether at least one of the servers answers range requests.
    ranges: bool,
    /// How often this variant was put back or, when tried alone, was wrong.
    turn: u32,
}

impl Variant {
    /// Returns this variant with the length that has become known.
    #[must_use]
    pub fn of_length(self, length: u64) -> Self {
        Self { length: Some(length), ..self }
    }

    /// Returns how long to wait for this variant while other variants remain to be tried.
    #[must_use]
    pub fn patience(&self) -> Patience {
        Patience::of_turn(self.turn)
    }

    /// Whether this is the variant's last turn. It is if the silence that the variant is allowed has reached
    /// `timeout`, the time-out of the transfer, and it was put back at least `TURNS_MIN` times: by then the
    /// required rate is so low that hardly any mirror falls below it.
    #[must_use]
    pub fn is_last_turn(&self, timeout: Span) -> bool {
        self.turn >= TURNS_MIN && self.patience().silence >= timeout
    }
}

/// A silent or slow variant is put back at least this many times before it is given up.
const TURNS_MIN: u32 = 4;

/// How long to wait for a variant while other variants remain to be tried. Each time the variant is put back,
/// all times double and the required rate is halved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// The variant gives way if no byte arrives for this long.
    pub silence: Span,
    /// The variant gives way if it delivers less than this rate.
    pub slow: Rate,
    /// The time over which the rate is measured before it is compared with `slow`.
    pub slow_for: Span,
    /// The variant gives way if its remaining bytes would take longer than this.
    pub rest: Span,
    /// A variant of unknown length gives way if it has not ended after this time.
    pub endless: Span,
}

impl Patience {
    /// Returns the patience with a variant that was put back `turn` times.
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

/// The blocks in which mirrors differ, each with the mirrors that delivered it and their chaining values.
pub type Differences = BTreeMap<u64, Vec<(MirrorId, ChainingValue)>>;

/// The variants that remain to be tried; see the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Variants {
    queue: VecDeque<Variant>,
    /// The mirrors whose whole file arrived and was wrong, each with the length of that file.
    refuted: BTreeMap<MirrorId, Option<u64>>,
}

impl Variants {
    /// Sorts all mirrors into variants and orders the variants: known lengths before unknown ones, then most
    /// votes first, then variants with a server that answers range requests, then the shortest first. A
    /// mirror whose first bytes are unknown joins the first variant of its length.
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

    /// Returns the variants in the order in which they are tried.
    pub fn iter(&self) -> impl Iterator<Item = &Variant> {
        self.queue.iter()
    }

    /// Whether no variant is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Removes the next variant and returns it.
    pub fn take(&mut self) -> Option<Variant> {
        self.queue.pop_front()
    }

    /// Keeps the variants for which `is` returns true and drops the others.
    pub fn retain(&mut self, is: impl FnMut(&Variant) -> bool) {
        self.queue.retain(is);
    }

    /// Sorts the variants by `key`, so that the variant with the least key is tried first.
    pub fn sort_by_key<K: Ord>(&mut self, key: impl FnMut(&Variant) -> K) {
        self.queue.make_contiguous().sort_by_key(key);
    }

    /// Puts a variant that was taken but not tried back to the front: it is the next again.
    pub fn push_front(&mut self, variant: Variant) {
        self.queue.push_front(variant);
    }

    /// Queues a variant again that did not arrive completely: behind the others and with doubled patience.
    pub fn put_back(&mut self, variant: Variant) {
        self.queue.push_back(Variant { turn: variant.turn + 1, ..variant });
    }

    /// Records that a whole variant arrived and was wrong.
    ///
    /// If the variant has one mirror and every block came from it (`is_pure`), this refutes that mirror.
    /// Otherwise this queues each mirror of the variant to be tried alone: the mirror with the greatest
    /// `rank` first and, among equals, the mirror that was named last. A mirror is tried alone at most twice.
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

    /// Splits a variant whose mirrors have different bytes into groups of mirrors that do not contradict
    /// each other, and queues the groups in front: the largest first and, among equals, the group whose
    /// first mirror was named last.
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
            // No mirror contradicts another, so one mirror now sends other bytes than it sent before.
            return self.wrong(variant, false, |_| 0);
        }
        parts.sort_by_key(|part| part.mirrors.len());
        parts.into_iter().for_each(|part| self.queue.push_front(part));
    }

    /// Returns the queued mirrors whose files have the length of the variant `than` but other first bytes.
    pub fn that_begin_otherwise(&self, than: &Variant) -> impl Iterator<Item = MirrorId> {
        let is_other = move |one: &&Variant| {
            one.length == than.length && one.opening.zip(than.opening).is_some_and(|(one, than)| one != than)
        };
        self.queue.iter().filter(is_other).flat_map(|one| one.mirrors.iter().copied())
    }

    /// Returns the mirrors whose whole file arrived and was wrong, each with the length of that file.
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

/// Whether both mirrors have reported a chaining value and the two values differ.
fn contradict(said: &[(MirrorId, ChainingValue)], one: MirrorId, other: MirrorId) -> bool {
    let of = |mirror| said.iter().find(|(by, _)| *by == mirror).map(|(_, cv)| cv);
    of(one).zip(of(other)).is_some_and(|(one, other)| one != other)
}

/// Returns the mirrors with a wrong chaining value for some block, each with the first such block. `right`
/// returns the right chaining value of a block, if it is known.
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
