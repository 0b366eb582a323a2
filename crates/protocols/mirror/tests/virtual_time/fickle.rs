//! Tests of mirrors whose behaviour changes, beside a steady one. The fast mirrors begin to trickle, pause,
//! break off, report that they are busy, or die, at any time. A download takes little more time than from the
//! steady mirror alone.

use anabranch_algo::{Span, SplitMix64, Time};
use anabranch_mirror::verified_pool::Check;
use proptest::prelude::*;

use crate::range_scheduler::{content, fetch, leaves};
use crate::simulated_mirrors::{Link, mbit, secs};

/// The time that a download may take beyond that of the steady mirror. A mirror is known to trickle by the
/// average of ten seconds, and the pool waits five seconds for comparisons.
const FIND_OUT: Span = Span::from_secs(17);

/// Creates a mirror that changes up to four times: it trickles, is slow, is fast, or is silent for a while or
/// for good.
fn fickle(mirror: u8, luck: &mut SplitMix64) -> Link {
    let fast = [mbit(20), mbit(100), mbit(1_000)][luck.below(3) as usize];
    let mut link = Link::new(mirror, fast, [1, 20, 100][luck.below(3) as usize]);
    (link.ranges, link.pipelines) = (luck.below(4) > 0, luck.below(3) > 0);
    (link.misfortunes, link.good_from) = (luck.below(2) * luck.below(60), secs(10_000));
    let mut at = Time::ZERO;
    for _ in 0..luck.below(5) {
        at += Span::from_millis(1 + luck.below(4_000));
        match luck.below(5) {
            0 => link.changes.push((at, 1 + luck.below(2_000))),
            1 => link.changes.push((at, 20_000 + luck.below(200_000))),
            2 => link.changes.push((at, fast)),
            3 => {
                let until = at + Span::from_millis(100 + luck.below(8_000));
                link.silent.push(at..until);
                at = until;
            }
            _ => {
                link.silent.push(at..secs(10_000));
                break;
            }
        }
    }
    link
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 200, ..ProptestConfig::with_cases(100) })]

    #[test]
    fn they_cost_little(
        (seed, count, place) in (any::<u64>(), 1_u8..4, 0_usize..4),
        (rate, rtt_ms) in (prop_oneof![Just(8_u64), Just(32), Just(200)], prop_oneof![Just(1_u64), Just(40)]),
        (has_leaves, pipelines, length) in (any::<bool>(), any::<bool>(), 100_000_usize..20_000_000),
    ) {
        let mut luck = SplitMix64(!seed);
        let mut links: Vec<Link> = (1..=count).map(|mirror| fickle(mirror, &mut luck)).collect();
        let steady = Link { pipelines, ..Link::new(0, mbit(rate), rtt_ms) };
        links.insert(place.min(links.len()), steady);
        let content = content(length);
        let check = if has_leaves { leaves(&content) } else { Check::Nothing };
        let outcome = fetch(&content, check, &links, seed);
        let took = outcome.complete.expect("complete").since(Time::ZERO);
        prop_assert!(outcome.file == content && outcome.liars.is_empty());
        let alone = Span::from_millis(length as u64 * 1_000 / mbit(rate));
        prop_assert!(took <= alone.times(5).over(4) + FIND_OUT, "{took:?}, alone {alone:?}");
    }
}

/// The steady mirror has delivered everything else. Of the two other mirrors, which both trickle, one fetches
/// a copy of blocks that the other still has.
#[test]
fn a_copy_that_trickles_is_made_again() {
    let mut links = [Link::new(0, mbit(8), 1), Link::new(1, mbit(1_000), 1), Link::new(2, mbit(100), 1)];
    let millis = |millis| Time::ZERO + Span::from_millis(millis);
    links[0].pipelines = false;
    (links[1].misfortunes, links[1].good_from) = (55, secs(10_000));
    links[1].changes = vec![(millis(412), 129_395), (millis(4_149), 548)];
    (links[2].misfortunes, links[2].good_from) = (1, secs(10_000));
    links[2].silent = vec![millis(808)..millis(4_155)];
    links[2].changes = vec![(millis(111), 877), (millis(6_099), 1_287)];
    let content = content(9_921_913);
    let mut worst = Span::ZERO;
    for seed in (0..200).chain([1_228_535_416_443_787_916]) {
        let outcome = fetch(&content, leaves(&content), &links, seed);
        worst = worst.max(outcome.complete.expect("complete").since(Time::ZERO));
        assert!(outcome.file == content);
    }
    assert!(worst < Span::from_secs(13), "{worst:?}");
}
