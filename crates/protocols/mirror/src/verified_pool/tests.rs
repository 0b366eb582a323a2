mod earlier;

use anabranch_mmtp::tree::block_cv;

use super::*;
use crate::digests::PieceHashes;

fn block(n: u64) -> Vec<u8> {
    (0..BLOCK).map(|i| (i * 31 + n * 7) as u8).collect()
}

fn bring_all(pool: &mut VerifiedPool, mirror: MirrorId, blocks: Range<u64>) {
    for g in blocks {
        pool.deliver(mirror, g, &block(g));
    }
}

fn wrong(n: u64) -> Vec<u8> {
    let mut bytes = block(n);
    bytes[77] ^= 4;
    bytes
}

fn verified(events: &[Event]) -> Vec<u64> {
    events
        .iter()
        .filter_map(|e| if let Event::Verified { block, .. } = e { Some(*block) } else { None })
        .collect()
}

fn leaves(blocks: u64) -> Check {
    Check::Leaves((0..blocks).map(|g| block_cv(g, &block(g))).collect())
}

fn pieces(blocks: u64, per_piece: u64) -> Check {
    let all: Vec<u8> = (0..blocks).flat_map(block).collect();
    let bytes = per_piece * BLOCK;
    let sha256 = all.chunks(bytes as usize).map(|piece| {
        use sha2::Digest as _;
        sha2::Sha256::digest(piece).into()
    });
    Check::Pieces { bytes, hashes: PieceHashes::Sha256(sha256.collect()) }
}

#[test]
fn what_is_here_is_not_fetched() {
    let mut pool = VerifiedPool::new(10 * BLOCK, leaves(10), |g| g != 3 && g != 7).expect("it fits");
    assert_eq!((pool.idle(), pool.blocks_left()), (2, 2));
    assert_eq!(pool.take(0, 64), Some(3..4));
    assert_eq!(pool.take(0, 64), Some(7..8));
    assert_eq!(pool.take(0, 64), None);
    pool.release(0..10);
    assert_eq!(pool.idle(), 2, "what is here does not come back");
    bring_all(&mut pool, 0, 0..10);
    let events: Vec<_> = pool.events().collect();
    assert_eq!(verified(&events), [3, 7]);
    assert_eq!(events.last(), Some(&Event::Complete));
    for length in [0, 10 * BLOCK] {
        let mut pool = VerifiedPool::new(length, leaves(length / BLOCK), |_| true).expect("it fits");
        assert_eq!(pool.events().collect::<Vec<_>>(), [Event::Complete], "{length}");
    }
}

#[test]
fn checks_that_do_not_fit_are_refused() {
    let bad = |length, check| VerifiedPool::new(length, check, |_| false).err();
    assert_eq!(bad(10 * BLOCK, leaves(9)), Some(CheckError::Count { hashes: 9, expected: 10 }));
    assert_eq!(bad(10 * BLOCK + 1, pieces(10, 2)), Some(CheckError::Count { hashes: 5, expected: 6 }));
    for bytes in [0, 1_000, PIECE_BYTES_MAX + BLOCK] {
        let check = Check::Pieces { bytes, hashes: PieceHashes::Sha256(Vec::new()) };
        assert_eq!(bad(10, check), Some(CheckError::PieceLength(bytes)));
    }
    assert_eq!(bad(LENGTH_MAX + 1, Check::Nothing), Some(CheckError::TooLong));
}

#[test]
fn a_wrong_leaf_names_its_mirror() {
    let mut pool = VerifiedPool::new(4 * BLOCK, leaves(4), |_| false).expect("it fits");
    assert_eq!(pool.take(5, 64), Some(0..4));
    pool.deliver(5, 0, &block(0));
    pool.deliver(5, 1, &wrong(1));
    pool.deliver(5, 2, &block(2));
    let events: Vec<_> = pool.events().collect();
    assert_eq!(verified(&events), [0], "nothing is taken from a liar");
    assert_eq!(events.last(), Some(&Event::Banned { mirror: 5, block: 1 }));
    assert_eq!(pool.take(5, 64), None);
    pool.release(1..4);
    assert_eq!(pool.take(6, 64), Some(1..4));
    bring_all(&mut pool, 6, 1..4);
    assert_eq!(pool.events().last(), Some(Event::Complete));
}

#[test]
fn the_hash_of_a_single_block_is_the_root() {
    let bytes = b"short";
    let root = *blake3::hash(bytes).as_bytes();
    let mut pool = VerifiedPool::new(5, Check::Leaves(vec![root]), |_| false).expect("it fits");
    pool.deliver(0, 0, bytes);
    let verified = Event::Verified { mirror: 0, block: 0, bytes: bytes.to_vec(), cv: root };
    assert_eq!(pool.events().collect::<Vec<_>>(), [verified, Event::Complete]);
}

#[test]
fn a_wrong_piece_of_one_mirror_names_it() {
    let mut pool = VerifiedPool::new(8 * BLOCK, pieces(8, 4), |_| false).expect("it fits");
    assert_eq!(pool.take(1, 4), Some(0..4));
    assert_eq!(pool.take(2, 4), Some(4..8));
    bring_all(&mut pool, 1, 0..3);
    assert_eq!(pool.events().count(), 0, "held until it is whole");
    pool.deliver(1, 3, &wrong(3));
    assert_eq!(pool.events().collect::<Vec<_>>(), [Event::Banned { mirror: 1, block: 0 }]);
    bring_all(&mut pool, 2, 4..8);
    assert_eq!(verified(&pool.events().collect::<Vec<_>>()), [4, 5, 6, 7]);
    assert_eq!(pool.take(2, 64), Some(0..4));
    bring_all(&mut pool, 2, 0..4);
    let events: Vec<_> = pool.events().collect();
    assert_eq!(verified(&events), [0, 1, 2, 3]);
    assert_eq!(events.last(), Some(&Event::Complete));
}

#[test]
fn a_wrong_piece_of_several_comes_again_from_one() {
    let mut pool = VerifiedPool::new(4 * BLOCK, pieces(4, 4), |_| false).expect("it fits");
    assert_eq!(pool.take(1, 2), Some(0..2));
    assert_eq!(pool.take(2, 2), Some(2..4));
    bring_all(&mut pool, 1, 0..2);
    pool.deliver(2, 2, &wrong(2));
    assert!(!pool.is_wanted(0) && pool.is_wanted(3));
    bring_all(&mut pool, 2, 3..4);
    assert_eq!(pool.events().count(), 0, "nobody is named yet");
    assert_eq!(pool.idle(), 4);
    assert_eq!(pool.take(1, 1), Some(0..4), "all of it by one");
    assert_eq!((pool.idle(), pool.take(2, 1)), (0, None));
    assert!(pool.is_wanted_from(1, 0) && !pool.is_wanted_from(2, 0));
    bring_all(&mut pool, 2, 0..4);
    // It fails halfway: it begins anew.
    bring_all(&mut pool, 1, 0..2);
    pool.release(2..4);
    assert_eq!(pool.take(3, 1), Some(0..4));
    bring_all(&mut pool, 3, 0..4);
    let events: Vec<_> = pool.events().collect();
    assert_eq!(verified(&events), [0, 1, 2, 3]);
    assert!(events.contains(&Event::Banned { mirror: 2, block: 2 }), "{events:?}");
}

/// One piece, of which 0 has brought a half, and 1 the other one, wrong: now it has to come from one alone.
fn mixed() -> VerifiedPool {
    let mut pool = VerifiedPool::new(4 * BLOCK, pieces(4, 4), |_| false).expect("it fits");
    assert_eq!((pool.take(0, 2), pool.take(1, 2)), (Some(0..2), Some(2..4)));
    bring(&mut pool, &[1], 0, 0..2);
    bring(&mut pool, &[1], 1, 2..4);
    pool
}

/// A piece that has to come from one mirror alone, which breaks off each time before it is whole.
#[test]
fn who_breaks_off_goes_on_with_its_own_part_of_a_piece() {
    let mut pool = mixed();
    // Each brings some of it.
    for (mirror, blocks) in [(0, 0..2), (1, 0..1), (0, 2..3)] {
        let taken = pool.take(mirror, 64).expect("the piece");
        assert_eq!(taken, blocks.start..4, "{mirror}");
        bring(&mut pool, &[1], mirror, blocks.clone());
        pool.release(blocks.end..4);
    }
    assert_eq!(pool.take(0, 64), Some(3..4));
    bring(&mut pool, &[1], 0, 3..4);
    let said: Vec<_> = pool.events().collect();
    assert_eq!(verified(&said), [0, 1, 2, 3]);
    assert!(
        said.contains(&Event::Banned { mirror: 1, block: 2 }) && said.contains(&Event::Complete),
        "{said:?}"
    );
}

/// Who trickles does not take a piece again while another sends everything.
#[test]
fn who_has_just_not_brought_a_piece_leaves_it_to_one_that_sends_all() {
    let mut pool = mixed();
    assert_eq!(pool.take(0, 64), Some(0..4));
    bring(&mut pool, &[1], 0, 0..1);
    pool.release(1..4);
    pool.begin_whole(2);
    assert_eq!(pool.take(0, 64), None);
    bring(&mut pool, &[1], 2, 0..4);
    assert!(pool.events().any(|event| event == Event::Complete));
}

/// Many that break off in the longest of pieces: what is kept of them does not add up.
#[test]
fn what_is_kept_of_pieces_that_break_off_is_bounded() {
    let per_piece = PIECE_BYTES_MAX / BLOCK;
    let check = Check::Pieces { bytes: PIECE_BYTES_MAX, hashes: PieceHashes::Sha256(vec![[0; 32]]) };
    let mut pool = VerifiedPool::new(PIECE_BYTES_MAX, check, |_| false).expect("it fits");
    assert_eq!((pool.take(0, per_piece / 2), pool.take(1, per_piece)).0, Some(0..per_piece / 2));
    bring_all(&mut pool, 0, 0..per_piece / 2);
    bring_all(&mut pool, 1, per_piece / 2..per_piece);
    for mirror in 2..20 {
        assert_eq!(pool.take(mirror, per_piece), Some(0..per_piece));
        bring_all(&mut pool, mirror, 0..1);
        pool.release(1..per_piece);
    }
    let Mode::Pieces(pieces) = &pool.mode else { panic!("pieces") };
    assert!(pieces.kept() as u64 * PIECE_BYTES_MAX <= OPEN_BYTES_MAX, "{}", pieces.kept());
}

/// A piece is hashed in order, whatever comes first; what a liar brought of it leaves no trace in its hash.
#[test]
fn a_liar_leaves_no_trace_in_pieces_that_are_not_whole() {
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2], [2, 3, 0, 1]] {
        for theirs in 0..16_u64 {
            let mut pool = VerifiedPool::new(8 * BLOCK, pieces(8, 4), |_| false).expect("it fits");
            assert_eq!(pool.take(1, 8), Some(0..8));
            let of_liar = |block: u64| theirs >> block & 1 == 1;
            for block_number in order.into_iter().filter(|block| *block != 3) {
                let liar = of_liar(block_number);
                let bytes = if liar { wrong(block_number) } else { block(block_number) };
                pool.deliver(if liar { 1 } else { 2 }, block_number, &bytes);
            }
            for block_number in 4..8 {
                pool.deliver(1, block_number, &wrong(block_number));
            }
            assert_eq!(pool.events().collect::<Vec<_>>(), [Event::Banned { mirror: 1, block: 4 }]);
            for block_number in order {
                if block_number == 3 || of_liar(block_number) {
                    assert!(pool.is_wanted_from(2, block_number), "{block_number} is missing again");
                    pool.deliver(2, block_number, &block(block_number));
                }
            }
            let events: Vec<_> = pool.events().collect();
            assert_eq!(verified(&events), [0, 1, 2, 3], "{order:?} {theirs:b}");
            assert_eq!(events.len(), 4, "nobody else is blamed: {events:?}");
        }
    }
}

#[test]
fn open_pieces_are_bounded() {
    let per_piece = PIECE_BYTES_MAX / BLOCK;
    let hashes = PieceHashes::Sha256(vec![[0; 32]; 100]);
    let check = Check::Pieces { bytes: PIECE_BYTES_MAX, hashes };
    let mut pool = VerifiedPool::new(100 * PIECE_BYTES_MAX, check, |_| false).expect("it fits");
    for mirror in 0..2 {
        assert_eq!(pool.take(mirror, 1).map(|r| r.end - r.start), Some(1));
        pool.idle.take(0..per_piece * (u64::from(mirror) + 1), u64::MAX);
    }
    assert_eq!(pool.take(2, 64), None, "until a piece is whole");
    pool.release(per_piece + 5..per_piece + 6);
    assert_eq!(pool.take(2, 64), Some(per_piece + 5..per_piece + 6), "what has been begun goes on");
    for far in [10, 11, 12, 13] {
        pool.deliver(1, far * per_piece, &block(0));
    }
    let open = OPEN_BYTES_MAX / PIECE_BYTES_MAX;
    assert_eq!((10..14).filter(|far| !pool.is_wanted(far * per_piece)).count() as u64, open - 2);
}

#[test]
fn mirrors_are_compared_where_ranges_meet() {
    let blocks = 4_096;
    let mut pool = VerifiedPool::new(blocks * BLOCK, Check::Nothing, |_| false).expect("it fits");
    // One with which none of these is compared, but where ranges meet.
    let chooses_none = |pool: &VerifiedPool, among: Range<u64>| {
        let Mode::Nothing(cross) = &pool.mode else { return false };
        !among.into_iter().any(|block| cross.is_chosen(block))
    };
    let seeds = (0..=u8::MAX).map(|seed| [seed; 32]);
    let seed = seeds.into_iter().find(|seed| {
        pool.seed(*seed);
        chooses_none(&pool, 2_048..3_072)
    });
    pool.seed(seed.expect("a seed"));
    assert_eq!(pool.take(0, 1_024), Some(0..1_024));
    assert_eq!(pool.take(1, 1_024), Some(1_024..2_048));
    bring_all(&mut pool, 0, 0..1_024);
    bring_all(&mut pool, 1, 1_024..1_600);
    assert_eq!(pool.take(0, 64), Some(1_024..1_025), "the first of the second mirror");
    assert!(pool.is_wanted(1_024) && !pool.is_wanted_from(1, 1_024));
    pool.deliver(0, 1_024, &block(1_024));
    assert!(!pool.is_wanted(1_024));
    bring_all(&mut pool, 1, 1_600..2_048);
    compare_all(&mut pool, 1, 0..1_024);
    compare_all(&mut pool, 0, 1_024..2_048);
    assert_eq!(pool.take(1, 1_024), Some(2_048..3_072), "its own came before");
    bring_all(&mut pool, 1, 2_048..3_071);
    let before = verified(&pool.events().collect::<Vec<_>>()).len();
    assert_eq!(before, 3_071);
    assert_eq!(pool.take(0, 1_024), Some(3_071..4_096), "the last one before it costs no request");
    bring_all(&mut pool, 0, 3_072..4_096);
    pool.release(3_071..3_072);
    assert_eq!(pool.take(0, 64), Some(3_071..3_072));
    bring_all(&mut pool, 0, 3_071..3_072);
    assert!(pool.only_checks_left(), "that one now waits for the other mirror");
    compare_one(&mut pool, 1, 3_071..3_072);
    assert!(pool.events().all(|event| event != Event::Complete));
    compare_all(&mut pool, 1, 3_072..4_096);
    assert_eq!(pool.events().last(), Some(Event::Complete));
}

/// `mirror` makes the comparisons that wait for it; there are some, all in `blocks`.
fn compare_all(pool: &mut VerifiedPool, mirror: MirrorId, blocks: Range<u64>) {
    let waits = |pool: &VerifiedPool| pool.idle_for(mirror) > pool.idle.len_below(u64::MAX);
    assert!(waits(pool), "{blocks:?}");
    while waits(pool) {
        compare_one(pool, mirror, blocks.clone());
    }
}

/// `mirror` is asked for one of `blocks` once more, and brings it.
fn compare_one(pool: &mut VerifiedPool, mirror: MirrorId, blocks: Range<u64>) {
    let taken = pool.take(mirror, 64).expect("a comparison waits");
    assert!(blocks.contains(&taken.start) && taken.end == taken.start + 1, "{taken:?}");
    bring_all(pool, mirror, taken);
}

#[test]
fn a_block_that_is_wrong_is_always_noticed() {
    let regions = 5;
    let (good, bad) = (vec![1; BLOCK as usize], vec![2; BLOCK as usize]);
    // How many ranges of how many blocks each of the two brings in a round.
    for rounds in [[(1, 700), (1, 700)], [(1, 4_096), (1, 4_096)], [(40, 64), (1, 4)], [(1, 4), (9, 512)]] {
        for wrong in 0..regions {
            let length = regions * CHECK_EVERY_BLOCKS * BLOCK;
            let mut pool = VerifiedPool::new(length, Check::Nothing, |_| false).expect("it fits");
            pool.seed([wrong as u8; 32]);
            let mut said = Vec::new();
            for _ in 0..2_000 {
                for (mirror, (ranges, blocks)) in (0..).zip(rounds) {
                    let taken: Vec<_> = (0..ranges).filter_map(|_| pool.take(mirror, blocks)).collect();
                    for block in taken.into_iter().flatten() {
                        let lies = mirror == 1 && block / CHECK_EVERY_BLOCKS == wrong;
                        pool.deliver(mirror, block, if lies { &bad } else { &good });
                    }
                }
                said.extend(pool.events().filter(|event| !matches!(event, Event::Verified { .. })));
            }
            assert!(matches!(&said[..], [Event::Conflict { .. }]), "{rounds:?}, region {wrong}: {said:?}");
        }
    }
}

#[test]
fn a_mirror_alone_is_compared_with_nobody_until_another_joins() {
    let blocks = 3 * CHECK_EVERY_BLOCKS;
    let mut pool = VerifiedPool::new(blocks * BLOCK, Check::Nothing, |block| block < 2_000).expect("it fits");
    assert_eq!(pool.take(0, u64::MAX), Some(2_000..blocks));
    bring_all(&mut pool, 0, 2_000..3_000);
    assert_eq!(pool.idle(), 0);
    pool.release(3_000..blocks);
    compare_one(&mut pool, 1, 2_000..2 * CHECK_EVERY_BLOCKS);
    assert_eq!(pool.take(1, u64::MAX), Some(3_000..blocks), "of the last region not all is here");

    let mut pool = VerifiedPool::new(blocks * BLOCK, Check::Nothing, |block| block < 2_000).expect("it fits");
    bring_all(&mut pool, 0, 2_000..blocks);
    assert_eq!(pool.events().last(), Some(Event::Complete));
}

#[test]
fn two_differ_until_a_third_decides() {
    let mut pool = VerifiedPool::new(6 * BLOCK, Check::Nothing, |_| false).expect("it fits");
    for mirror in 0..3 {
        assert_eq!(pool.take(mirror, 2).map(|r| r.end - r.start), Some(2));
    }
    bring_all(&mut pool, 0, 0..2);
    pool.deliver(1, 2, &wrong(2));
    pool.deliver(1, 3, &wrong(3));
    assert_eq!(pool.take(0, 9), Some(2..3));
    pool.deliver(0, 2, &block(2));
    assert_eq!(verified(&pool.events().collect::<Vec<_>>()), [0, 1, 2, 3], "not decided yet");
    assert_eq!(pool.take(2, 9), Some(2..3), "a third one");
    pool.deliver(2, 2, &block(2));
    let events: Vec<_> = pool.events().collect();
    assert_eq!(events, [Event::Banned { mirror: 1, block: 2 }, Event::Revoked { blocks: 2..4 }]);
    assert_eq!(pool.take(0, 9), Some(2..4));
    bring_all(&mut pool, 0, 2..4);
    bring_all(&mut pool, 2, 4..6);
    assert_eq!(pool.events().last(), Some(Event::Complete), "the third one was compared when it decided");
}

#[test]
fn a_comparison_that_nobody_can_make_is_waived() {
    let mut pool = VerifiedPool::new(4 * BLOCK, Check::Nothing, |_| false).expect("it fits");
    for mirror in 0..2 {
        pool.take(mirror, 2);
    }
    bring_all(&mut pool, 0, 0..2);
    bring_all(&mut pool, 1, 2..4);
    assert!(pool.only_checks_left() && pool.events().all(|event| event != Event::Complete));
    assert_eq!((pool.idle(), pool.take(1, 9), pool.take(0, 9)), (1, None, Some(2..3)));
    pool.release(2..3);
    assert_eq!(pool.idle(), 1, "it can be asked for again");
    assert!(!pool.waive(|mirror| mirror == 0), "this one can make it");
    assert!(pool.only_checks_left());
    assert!(pool.waive(|_| false));
    assert_eq!(pool.events().collect::<Vec<_>>(), [Event::Complete]);
    assert!(!pool.only_checks_left());
}

#[test]
fn who_is_gone_decides_nothing() {
    let mut pool = VerifiedPool::new(6 * BLOCK, Check::Nothing, |_| false).expect("it fits");
    for mirror in 0..3 {
        pool.take(mirror, 2);
    }
    bring_all(&mut pool, 0, 0..2);
    pool.deliver(1, 2, &wrong(2));
    pool.take(0, 9);
    pool.deliver(0, 2, &block(2));
    assert!(pool.events().all(|event| matches!(event, Event::Verified { .. })));
    pool.mirror_gone(2);
    let events: Vec<_> = pool.events().collect();
    assert_eq!(events, [Event::Conflict { mirrors: vec![1, 0], block: 2 }]);
    assert_eq!((pool.take(0, 1), pool.is_wanted(3)), (None, false));
}

#[test]
fn the_first_one_is_compared_even_if_the_others_compare_each_other() {
    let mut pool = VerifiedPool::new(6 * BLOCK, Check::Nothing, |_| false).expect("it fits");
    for mirror in 0..3 {
        assert_eq!(pool.take(mirror, 2).map(|r| r.end - r.start), Some(2));
    }
    pool.deliver(0, 0, &wrong(0));
    pool.deliver(0, 1, &wrong(1));
    bring_all(&mut pool, 1, 2..4);
    bring_all(&mut pool, 2, 4..6);
    assert_eq!((pool.take(1, 9), pool.take(2, 9)), (Some(4..5), Some(2..3)));
    pool.deliver(1, 4, &block(4));
    pool.deliver(2, 2, &block(2));
    assert_eq!(pool.take(0, 9), None, "its own");
    assert_eq!(pool.take(1, 9), Some(0..1));
    pool.deliver(1, 0, &block(0));
    assert_eq!(pool.take(2, 9), Some(0..1), "who is right?");
    pool.deliver(2, 0, &block(0));
    let liars: Vec<_> = pool.events().filter(|event| matches!(event, Event::Banned { .. })).collect();
    assert_eq!(liars, [Event::Banned { mirror: 0, block: 0 }]);
    assert_eq!(pool.take(1, 9), Some(0..2));
    bring_all(&mut pool, 1, 0..2);
    assert_eq!(pool.events().last(), Some(Event::Complete));
}

#[test]
fn nothing_is_taken_beyond_the_horizon() {
    for check in [leaves(10), Check::Nothing] {
        let mut pool = VerifiedPool::new(10 * BLOCK, check, |g| g == 1).expect("it fits");
        pool.set_horizon(4);
        assert_eq!((pool.idle(), pool.blocks_left()), (3, 9));
        assert_eq!((pool.take(0, 64), pool.take(0, 64), pool.take(0, 64)), (Some(0..1), Some(2..4), None));
        pool.release(2..4);
        pool.set_horizon(6);
        assert_eq!((pool.idle(), pool.take(0, 64)), (4, Some(2..6)));
        // What is sent unasked is taken.
        assert!(pool.is_wanted(9));
        pool.set_horizon(u64::MAX);
        assert_eq!((pool.idle(), pool.take(0, 64), pool.idle()), (4, Some(6..10), 0));
    }
    // A piece is verified as a whole.
    let mut pool = VerifiedPool::new(10 * BLOCK, pieces(10, 4), |_| false).expect("it fits");
    pool.set_horizon(5);
    assert_eq!((pool.idle(), pool.take(0, 64), pool.take(0, 64)), (8, Some(0..8), None));
    pool.set_horizon(100);
    assert_eq!(pool.take(0, 64), Some(8..10));
}

#[test]
fn a_comparison_that_waited_for_who_is_silent_is_made_by_another() {
    let mut pool = VerifiedPool::new(8 * BLOCK, Check::Nothing, |_| false).expect("it fits");
    assert_eq!((pool.take(0, 4), pool.take(1, 4)), (Some(0..4), Some(4..8)));
    (0..4).for_each(|number| pool.deliver(0, number, &wrong(number)));
    bring_all(&mut pool, 1, 4..8);
    // What the second one brought, only the first could compare.
    assert_eq!(pool.take(1, 9), None);
    assert!(pool.only_checks_left());
    assert!(pool.waive(|mirror| mirror == 1), "that is given up");
    assert!(pool.events().all(|event| event != Event::Complete), "what the first one brought is not");
    let taken = pool.take(1, 9).expect("a block of the first");
    assert!(taken.end <= 4, "{taken:?}");
    bring_all(&mut pool, 1, taken);
    let said: Vec<_> = pool.events().collect();
    assert!(matches!(&said[..], [Event::Conflict { mirrors, .. }] if *mirrors == [0, 1]), "{said:?}");
}

/// Three mirrors, each with two of six blocks; those that lie do so throughout.
fn three(liars: &[MirrorId], prepare: impl FnOnce(&mut VerifiedPool)) -> VerifiedPool {
    each_with_two(3, liars, prepare)
}

/// The same of so many.
fn each_with_two(
    mirrors: MirrorId,
    liars: &[MirrorId],
    prepare: impl FnOnce(&mut VerifiedPool),
) -> VerifiedPool {
    let blocks = 2 * u64::from(mirrors);
    let mut pool = VerifiedPool::new(blocks * BLOCK, Check::Nothing, |_| false).expect("it fits");
    prepare(&mut pool);
    for mirror in 0..mirrors {
        assert_eq!(pool.take(mirror, 2).map(|r| r.end - r.start), Some(2));
    }
    for mirror in 0..mirrors {
        bring(&mut pool, liars, mirror, u64::from(mirror) * 2..u64::from(mirror) * 2 + 2);
    }
    pool
}

fn bring(pool: &mut VerifiedPool, liars: &[MirrorId], mirror: MirrorId, blocks: Range<u64>) {
    for number in blocks {
        let bytes = if liars.contains(&mirror) { wrong(number) } else { block(number) };
        pool.deliver(mirror, number, &bytes);
    }
}

/// Lets all three bring what they are asked for, until nobody is asked for anything.
fn go_on(pool: &mut VerifiedPool, liars: &[MirrorId]) -> Vec<Event> {
    go_on_with(pool, &[0, 1, 2], liars)
}

/// Lets these mirrors bring what they are asked for, in this order, until nobody is asked for anything.
fn go_on_with(pool: &mut VerifiedPool, order: &[MirrorId], liars: &[MirrorId]) -> Vec<Event> {
    let mut said = Vec::new();
    loop {
        let mut asked = false;
        for mirror in order {
            if let Some(blocks) = pool.take(*mirror, 9) {
                asked = true;
                bring(pool, liars, *mirror, blocks.clone());
                // What a mirror does not bring that is banned meanwhile.
                pool.release(blocks);
            }
        }
        said.extend(pool.events().filter(|event| !matches!(event, Event::Verified { .. })));
        if !asked {
            return said;
        }
    }
}

/// Mirrors that agree decide nothing as long as they are not more than half, whoever speaks first (of very
/// many, as long as they are fewer than four).
#[test]
fn liars_that_agree_are_outvoted_by_more_than_as_many() {
    for (mirrors, liars) in [(3, 1), (5, 2), (7, 3), (10, 2), (10, 3)] {
        for liars_first in [true, false] {
            let liars: Vec<MirrorId> =
                if liars_first { (0..liars).collect() } else { (mirrors - liars..mirrors).collect() };
            let honest = (0..mirrors).filter(|mirror| !liars.contains(mirror));
            let order: Vec<MirrorId> = match liars_first {
                true => (0..mirrors).collect(),
                false => liars.iter().copied().chain(honest).collect(),
            };
            // Each brings some of it, or the liars bring all before anybody else is asked.
            let each = each_with_two(mirrors, &liars, |pool| pool.expect(0..mirrors));
            let mut fast = VerifiedPool::new(9 * BLOCK, Check::Nothing, |_| false).expect("it fits");
            fast.expect(0..mirrors);
            for mut pool in [each, fast] {
                let mut said = go_on_with(&mut pool, &liars, &liars);
                assert!(!pool.complete, "{mirrors} {liars:?}");
                said.extend(go_on_with(&mut pool, &order, &liars));
                let banned: BTreeSet<MirrorId> = said
                    .iter()
                    .filter_map(
                        |event| if let Event::Banned { mirror, .. } = event { Some(*mirror) } else { None },
                    )
                    .collect();
                assert_eq!(banned, liars.iter().copied().collect(), "{mirrors}: {said:?}");
                assert!(said.contains(&Event::Complete) && pool.blocks_left() == 0, "{said:?}");
            }
        }
    }
}

/// What files begin with: who has no part that can be asked for has a vote, and who has not said it counts.
#[test]
fn what_files_begin_with_is_compared_before_anything_comes() {
    let said = |openings: &[Option<u8>], introduced: Range<MirrorId>| {
        let mut pool = VerifiedPool::new(6 * BLOCK, Check::Nothing, |_| false).expect("it fits");
        pool.set_introduced(introduced);
        pool.compare_openings((0..).zip(openings.iter().map(|opening| opening.map(|byte| [byte; 32]))));
        pool.events().collect::<Vec<_>>()
    };
    let banned = |mirror| Event::Banned { mirror, block: 0 };
    assert_eq!(said(&[Some(1), Some(1)], 0..0), []);
    assert_eq!(said(&[Some(1)], 0..0), []);
    assert_eq!(said(&[None, None], 0..0), []);
    assert_eq!(said(&[Some(1), Some(2), Some(1)], 0..0), [banned(1)]);
    assert_eq!(said(&[Some(2), Some(1), Some(2), Some(1), Some(1)], 0..0), [banned(0), banned(2)]);
    assert_eq!(said(&[Some(1), Some(2)], 0..0), [Event::Conflict { mirrors: vec![0, 1], block: 0 }]);
    // Another one may say something yet, or has no vote.
    assert_eq!(said(&[Some(1), Some(2), None], 0..0), []);
    assert_eq!(said(&[Some(1), Some(2), Some(2)], 1..3), [banned(1), banned(2)]);
    assert_eq!(said(&[Some(1), Some(2), Some(1), None], 3..4), [banned(1)]);
}

/// Half of them is not enough, for either side.
#[test]
fn two_and_two_decide_nothing() {
    let mut pool = each_with_two(4, &[1, 3], |pool| pool.expect(0..4));
    let said = go_on_with(&mut pool, &[0, 1, 2, 3], &[1, 3]);
    assert!(matches!(&said[..], [Event::Conflict { mirrors, .. }] if mirrors.len() == 4), "{said:?}");
    // Of those that are left one may.
    let mut pool = each_with_two(4, &[1, 3], |pool| pool.expect(0..4));
    pool.mirror_gone(3);
    let said = go_on_with(&mut pool, &[0, 1, 2], &[1]);
    assert!(matches!(said[0], Event::Banned { mirror: 1, .. }), "{said:?}");
    assert!(said.contains(&Event::Complete), "{said:?}");
}

#[test]
fn whom_somebody_else_than_the_user_names_has_no_vote() {
    // 0 and 2 lie; 2 was introduced, by 0 for all we know.
    let mut pool = three(&[0, 2], |pool| pool.set_introduced([2].into_iter()));
    let said = go_on(&mut pool, &[0, 2]);
    assert!(matches!(&said[..], [.., Event::Conflict { .. }]), "{said:?}");
    assert!(!said.iter().any(|event| matches!(event, Event::Banned { mirror: 1, .. })), "{said:?}");
    // One that is named decides about those that it may have introduced.
    let mut pool = three(&[1, 2], |pool| pool.set_introduced([1, 2].into_iter()));
    let said = go_on(&mut pool, &[1, 2]);
    let banned =
        |mirror| said.iter().any(|event| matches!(event, Event::Banned { mirror: m, .. } if *m == mirror));
    assert!(banned(1) && banned(2) && pool.blocks_left() == 0, "{said:?}");
    // Among themselves they are compared as all others are.
    let mut pool = three(&[1], |pool| pool.set_introduced([0, 1, 2].into_iter()));
    let said = go_on(&mut pool, &[1]);
    assert!(said.iter().any(|event| matches!(event, Event::Banned { mirror: 1, .. })), "{said:?}");
    assert_eq!(said.last(), Some(&Event::Complete));
}

#[test]
fn with_a_hash_of_the_whole_the_honest_one_is_found_among_two_that_agree() {
    let mut pool = three(&[0, 2], VerifiedPool::judged_as_a_whole);
    let said = go_on(&mut pool, &[0, 2]);
    assert!(said.iter().any(|event| matches!(event, Event::SetAside { mirror: 1, .. })), "{said:?}");
    assert_eq!(said.last(), Some(&Event::Complete), "as those two have it");
    let mut tried = Vec::new();
    while let Some(mirror) = pool.try_next((0..3).map(|mirror| (mirror, false))) {
        tried.push(mirror);
        assert!(!pool.is_refuted(mirror));
        assert_eq!(pool.alone(), Some(mirror));
        let said = go_on(&mut pool, &[0, 2]);
        assert_eq!(said.last(), Some(&Event::Complete), "{said:?}");
        assert!(!said.iter().any(|event| matches!(event, Event::Banned { .. })), "{said:?}");
        assert!(pool.whole_is_wrong().contains(&Wrong { mirror, is_refuted: true }));
    }
    assert_eq!((tried.len(), tried[2]), (3, 1), "who was set aside comes last");
    pool.whole_is_right();
    let mut named: Vec<_> = pool.events().collect();
    named.sort_by_key(|event| if let Event::Banned { mirror, .. } = event { *mirror } else { 9 });
    assert!(
        matches!(named[..], [Event::Banned { mirror: 0, .. }, Event::Banned { mirror: 2, .. }]),
        "{named:?}"
    );
}

#[test]
fn what_a_candidate_has_brought_already_is_kept() {
    let mut pool = VerifiedPool::new(6 * BLOCK, Check::Nothing, |_| false).expect("it fits");
    pool.judged_as_a_whole();
    assert_eq!((pool.take(0, 3), pool.take(1, 3)), (Some(0..3), Some(3..6)));
    bring_all(&mut pool, 0, 0..3);
    (3..6).for_each(|number| pool.deliver(1, number, &wrong(number)));
    assert_eq!(pool.take(0, 9), Some(3..4), "to compare");
    bring_all(&mut pool, 0, 3..4);
    // One that is not usable any more is not tried.
    assert_eq!(pool.try_next([(0, false)].into_iter()), Some(0));
    // What came before still is of who brought it: it may be told of only now.
    let said: Vec<Event> = pool.events().collect();
    let by = |event: &Event| match event {
        Event::Verified { mirror, block, .. } => Some((*mirror, *block)),
        _ => None,
    };
    let brought = [(0, 0), (0, 1), (0, 2), (1, 3), (1, 4), (1, 5)];
    assert_eq!(said.iter().filter_map(by).collect::<Vec<_>>(), brought);
    assert!(
        matches!(&said[6..], [Event::Conflict { .. }, Event::Shelved { blocks }] if *blocks == (3..6)),
        "{said:?}"
    );
    assert_eq!((pool.idle_for(1), pool.take(1, 9), pool.is_wanted_from(1, 3)), (0, None, false));
    assert_eq!(pool.take(0, 9), Some(3..6));
    bring_all(&mut pool, 0, 3..6);
    assert_eq!(pool.events().last(), Some(Event::Complete));
    pool.whole_is_right();
    assert_eq!(pool.events().collect::<Vec<_>>(), [Event::Banned { mirror: 1, block: 3 }]);
}

/// It costs nothing that one is tried that brings nothing: what it has not replaced counts again when the
/// turn of its bringer comes.
#[test]
fn what_one_that_is_tried_does_not_replace_is_there_still() {
    let mut pool = VerifiedPool::new(6 * BLOCK, Check::Nothing, |block| block < 5).expect("it fits");
    pool.judged_as_a_whole();
    (0..3).for_each(|number| pool.brought_before(0, number, &block_cv(number, &block(number))));
    (3..5).for_each(|number| pool.brought_before(1, number, &block_cv(number, &wrong(number))));
    assert_eq!(pool.try_next([(2, false)].into_iter()), Some(2));
    assert_eq!(pool.events().collect::<Vec<_>>(), [Event::Shelved { blocks: 0..5 }]);
    assert_eq!(pool.take(2, 9), Some(0..6));
    bring_all(&mut pool, 2, 1..2);
    pool.postpone(2);
    // Of a block it has brought what 0 had; of the others nothing.
    let all = || [(0, false), (1, true), (2, false)].into_iter();
    assert_eq!(pool.try_next(all()), Some(0), "before one that is slow");
    let back = |blocks| Event::Restored { blocks };
    let said: Vec<Event> = pool.events().filter(|event| !matches!(event, Event::Verified { .. })).collect();
    assert_eq!(said, [back(0..1), back(2..3)]);
    assert_eq!(pool.blocks_left(), 3);
    pool.release(0..6);
    assert_eq!(pool.take(0, 9), Some(3..6));
    bring_all(&mut pool, 0, 3..6);
    assert_eq!(pool.events().last(), Some(Event::Complete));
    // It is not what is wanted. What 1 had is replaced, so it has to bring all of it.
    assert_eq!(pool.whole_is_wrong(), [Wrong { mirror: 0, is_refuted: true }]);
    assert!(pool.whole_is_wrong().is_empty(), "once");
    assert_eq!(pool.try_next(all()), Some(1), "before one that has stood back");
    assert_eq!((pool.blocks_left(), pool.is_refuted(0)), (6, true));
    pool.postpone(1);
    pool.postpone(1);
    assert_eq!(pool.try_next(all()), Some(2));
    assert_eq!(pool.blocks_left(), 5, "the block that it had brought");
    assert_eq!((pool.stood_back(1), pool.stood_back(0)), (2, 0));
}

/// What a mirror left whose whole was found to be wrong then is kept, and does not count; it is not asked.
#[test]
fn who_was_refuted_before_has_no_part_in_it() {
    let mut pool = VerifiedPool::new(4 * BLOCK, Check::Nothing, |_| true).expect("it fits");
    pool.judged_as_a_whole();
    pool.events().for_each(drop);
    (0..2).for_each(|number| pool.brought_before(0, number, &block_cv(number, &wrong(number))));
    (2..4).for_each(|number| pool.brought_before(1, number, &block_cv(number, &block(number))));
    pool.refuted_before(0);
    assert_eq!(pool.events().collect::<Vec<_>>(), [Event::Shelved { blocks: 0..2 }]);
    assert_eq!(pool.take(0, 9), None);
    while let Some(taken) = pool.take(1, 9) {
        bring_all(&mut pool, 1, taken);
    }
    pool.waive(|mirror| mirror == 1);
    let said: Vec<Event> = pool.events().filter(|event| !matches!(event, Event::Verified { .. })).collect();
    assert_eq!(said, [Event::Complete], "it is compared with nobody");
    assert_eq!(pool.whole_is_wrong(), [Wrong { mirror: 1, is_refuted: true }], "all of it");
    assert_eq!(pool.try_next([(0, false), (1, false)].into_iter()), None);
}

/// Nobody can tell that it has the file still of which it brought something: so it has one more turn, after
/// the others.
#[test]
fn who_may_have_had_another_file_is_not_refuted_for_it() {
    let mut pool = VerifiedPool::new(4 * BLOCK, Check::Nothing, |block| block < 3).expect("it fits");
    pool.judged_as_a_whole();
    (0..3).for_each(|number| pool.brought_before(0, number, &block_cv(number, &wrong(number))));
    pool.may_have_changed(0);
    pool.tried_before(0);
    let all = || [(0, true), (1, false)].into_iter();
    assert_eq!(pool.try_next(all()), Some(0), "though it is slow");
    assert_eq!(pool.take(0, 9), Some(3..4));
    bring_all(&mut pool, 0, 3..4);
    assert_eq!(pool.events().last(), Some(Event::Complete));
    assert_eq!(pool.whole_is_wrong(), [Wrong { mirror: 0, is_refuted: false }]);
    assert_eq!(pool.events().collect::<Vec<_>>(), [Event::Revoked { blocks: 0..4 }]);
    assert_eq!((pool.blocks_left(), pool.try_next(all())), (4, Some(1)));
    assert_eq!(pool.take(1, 9), Some(0..4));
    (0..4).for_each(|number| pool.deliver(1, number, &[9; BLOCK as usize]));
    assert_eq!(pool.whole_is_wrong(), [Wrong { mirror: 1, is_refuted: true }]);
    // Now all of it is of one file.
    assert_eq!(pool.try_next(all()), Some(0));
    assert_eq!(pool.take(0, 9), Some(0..4));
    bring_all(&mut pool, 0, 0..4);
    assert_eq!(pool.whole_is_wrong(), [Wrong { mirror: 0, is_refuted: true }]);
    assert_eq!(pool.try_next(all()), None);
}

/// It leaves right what it can foresee, and lies elsewhere.
#[test]
fn who_falls_silent_is_compared_where_it_could_not_foresee_it() {
    let (good, bad) = (vec![1; BLOCK as usize], vec![2; BLOCK as usize]);
    for seed in 0..8 {
        let blocks = 2 * CHECK_EVERY_BLOCKS;
        let mut pool = VerifiedPool::new(blocks * BLOCK, Check::Nothing, |_| false).expect("it fits");
        pool.seed([seed; 32]);
        let mut said = Vec::new();
        for round in 0.. {
            let mut asked = false;
            // The liar brings one range, compares one block, and is not heard of any more.
            for mirror in [0, 1].into_iter().filter(|mirror| *mirror == 1 || round < 2) {
                let Some(taken) = pool.take(mirror, if round == 0 { 300 } else { 64 }) else { continue };
                asked = true;
                for block in taken.clone() {
                    let lies = mirror == 0 && block > taken.start && block + 1 < taken.end;
                    pool.deliver(mirror, block, if lies { &bad } else { &good });
                }
            }
            if round == 2 {
                pool.doubt(0);
            }
            said.extend(pool.events().filter(|event| !matches!(event, Event::Verified { .. })));
            if !asked {
                break;
            }
        }
        pool.waive(|mirror| mirror == 1);
        while let Some(taken) = pool.take(1, 64) {
            taken.for_each(|block| pool.deliver(1, block, &good));
        }
        said.extend(pool.events().filter(|event| !matches!(event, Event::Verified { .. })));
        assert!(matches!(&said[..], [Event::Conflict { .. }]), "{seed}: {said:?}");
    }
}

/// It leaves right what it can foresee, where its ranges begin and end and what it is asked for to compare
/// others, and lies elsewhere; and it never falls silent.
#[test]
fn who_leaves_right_what_it_can_foresee_is_found() {
    let (good, bad) = (vec![1; BLOCK as usize], vec![2; BLOCK as usize]);
    for seed in 0..8 {
        let blocks = 3 * CHECK_EVERY_BLOCKS;
        let mut pool = VerifiedPool::new(blocks * BLOCK, Check::Nothing, |_| false).expect("it fits");
        pool.seed([seed; 32]);
        let mut said = Vec::new();
        loop {
            let mut asked = false;
            // Ranges that meet within each region, so that their ends are compared on the way.
            for mirror in [0, 1] {
                let Some(taken) = pool.take(mirror, 100) else { continue };
                asked = true;
                for block in taken.clone() {
                    let lies = mirror == 0 && block > taken.start + 1 && block + 1 < taken.end;
                    pool.deliver(mirror, block, if lies { &bad } else { &good });
                }
            }
            said.extend(pool.events().filter(|event| !matches!(event, Event::Verified { .. })));
            if !asked {
                break;
            }
        }
        assert!(matches!(&said[..], [Event::Conflict { .. }]), "{seed}: {said:?}");
    }
}
