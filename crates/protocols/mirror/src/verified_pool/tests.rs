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
    // Mirror 1 breaks off halfway, so mirror 3 begins the piece anew.
    bring_all(&mut pool, 1, 0..2);
    pool.release(2..4);
    assert_eq!(pool.take(3, 1), Some(0..4));
    bring_all(&mut pool, 3, 0..4);
    let events: Vec<_> = pool.events().collect();
    assert_eq!(verified(&events), [0, 1, 2, 3]);
    assert!(events.contains(&Event::Banned { mirror: 2, block: 2 }), "{events:?}");
}

/// Creates a pool with one piece: mirror 0 has delivered the first half, and mirror 1 the second half, which
/// is wrong. One mirror alone now has to deliver the piece.
fn mixed() -> VerifiedPool {
    let mut pool = VerifiedPool::new(4 * BLOCK, pieces(4, 4), |_| false).expect("it fits");
    assert_eq!((pool.take(0, 2), pool.take(1, 2)), (Some(0..2), Some(2..4)));
    bring(&mut pool, &[1], 0, 0..2);
    bring(&mut pool, &[1], 1, 2..4);
    pool
}

/// A single mirror has to deliver a piece, but each mirror breaks off before the piece is complete.
#[test]
fn who_breaks_off_goes_on_with_its_own_part_of_a_piece() {
    let mut pool = mixed();
    // Each mirror delivers a part of the piece.
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

/// A trickling mirror is not assigned the piece again while another mirror sends the whole file.
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

/// Many mirrors break off in pieces of the largest size. The memory for their partial pieces stays bounded.
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

/// A piece is hashed in the order of its blocks, whichever arrive first. Blocks from a liar do not remain in
/// the hash.
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
fn nothing_is_taken_beyond_the_horizon() {
    for check in [leaves(10), Check::Nothing] {
        let mut pool = VerifiedPool::new(10 * BLOCK, check, |g| g == 1).expect("it fits");
        pool.set_horizon(4);
        assert_eq!((pool.idle(), pool.blocks_left()), (3, 9));
        assert_eq!((pool.take(0, 64), pool.take(0, 64), pool.take(0, 64)), (Some(0..1), Some(2..4), None));
        pool.release(2..4);
        pool.set_horizon(6);
        assert_eq!((pool.idle(), pool.take(0, 64)), (4, Some(2..6)));
        // A block that arrives unasked is accepted.
        assert!(pool.is_wanted(9));
        pool.set_horizon(u64::MAX);
        assert_eq!((pool.idle(), pool.take(0, 64), pool.idle()), (4, Some(6..10), 0));
    }
    // A piece is requested to its end, because it is verified as a whole.
    let mut pool = VerifiedPool::new(10 * BLOCK, pieces(10, 4), |_| false).expect("it fits");
    pool.set_horizon(5);
    assert_eq!((pool.idle(), pool.take(0, 64), pool.take(0, 64)), (8, Some(0..8), None));
    pool.set_horizon(100);
    assert_eq!(pool.take(0, 64), Some(8..10));
}

fn bring(pool: &mut VerifiedPool, liars: &[MirrorId], mirror: MirrorId, blocks: Range<u64>) {
    for number in blocks {
        let bytes = if liars.contains(&mirror) { wrong(number) } else { block(number) };
        pool.deliver(mirror, number, &bytes);
    }
}

/// Creates a pool for a content without hashes of its parts, with mirrors that each have a vote.
fn compared(blocks: u64, mirrors: Range<MirrorId>) -> VerifiedPool {
    let mut pool = VerifiedPool::new(blocks * BLOCK, Check::Nothing, |_| false).expect("it fits");
    mirrors.for_each(|mirror| pool.mirror_joins(mirror, true));
    pool
}

/// Lets each mirror take blocks and deliver them, in turn, until no mirror can take any. The liars deliver
/// other bytes from the second block on.
fn bring_in_turns(pool: &mut VerifiedPool, liars: &[MirrorId], mirrors: Range<MirrorId>) -> Vec<Event> {
    while mirrors.clone().fold(false, |any, mirror| {
        let taken = pool.take(mirror, 4);
        taken.clone().into_iter().for_each(|blocks| bring(pool, liars, mirror, blocks));
        any || taken.is_some()
    }) {}
    pool.events().filter(|event| !matches!(event, Event::Verified { .. })).collect()
}

#[test]
fn the_first_block_of_each_mirror_and_those_that_the_seed_chooses_are_samples() {
    let blocks = 16 * SAMPLE_OF;
    let mut pool = compared(blocks, 0..2);
    pool.seed([7; 32]);
    let Mode::Nothing(sampling) = &pool.mode else { panic!("samples") };
    let chosen = (0..blocks).filter(|block| sampling.is_chosen(*block)).count() as u64;
    assert!((8..=24).contains(&chosen), "{chosen} of {blocks}");
    assert_eq!(
        (pool.take(0, blocks / 2), pool.take(1, blocks)),
        (Some(0..blocks / 2), Some(blocks / 2..blocks))
    );
    bring_all(&mut pool, 0, 0..blocks / 2);
    bring_all(&mut pool, 1, blocks / 2..blocks);
    assert!(pool.only_samples_left());
    let mut again = 0;
    for mirror in [0, 1] {
        while let Some(sample) = pool.take(mirror, 64) {
            again += sample.end - sample.start;
            bring_all(&mut pool, mirror, sample);
        }
    }
    assert!((chosen..=chosen + 1).contains(&again), "{again} for {chosen}");
    assert_eq!(pool.events().last(), Some(Event::Complete));
}

#[test]
fn a_mirror_that_is_alone_is_compared_with_none() {
    let mut pool = compared(9, 0..1);
    assert_eq!(bring_in_turns(&mut pool, &[], 0..1), [Event::Complete]);
}

#[test]
fn two_that_differ_end_it_and_of_three_the_odd_one_is_banned() {
    let mut pool = compared(64, 0..2);
    let said = bring_in_turns(&mut pool, &[1], 0..2);
    assert!(matches!(&said[..], [Event::Split { mirrors, .. }] if mirrors.len() == 2), "{said:?}");
    assert_eq!((pool.take(0, 1), pool.is_wanted(63), pool.differences().len()), (None, false, 1));
    for liar in 0..3 {
        let mut pool = compared(64, 0..3);
        let said = bring_in_turns(&mut pool, &[liar], 0..3);
        assert!(matches!(said[0], Event::Banned { mirror, .. } if mirror == liar), "{said:?}");
        assert!(said[1..].iter().all(|event| matches!(event, Event::Revoked { .. } | Event::Complete)));
        assert_eq!(said.last(), Some(&Event::Complete));
    }
}

#[test]
fn two_of_four_decide_nothing_and_one_that_is_gone_has_no_vote() {
    let said = bring_in_turns(&mut compared(64, 0..4), &[1, 3], 0..4);
    assert!(matches!(&said[..], [Event::Split { .. }]), "{said:?}");
    let mut pool = compared(64, 0..3);
    let said = bring_in_turns(&mut pool, &[1], 0..2);
    assert_eq!(said, [], "the third one is waited for");
    assert!(pool.is_disputed());
    pool.mirror_gone(2);
    let said: Vec<_> = pool.events().collect();
    assert!(matches!(&said[..], [Event::Split { .. }]), "{said:?}");
}

#[test]
fn a_hash_of_the_whole_lets_two_of_three_go_on_and_waits_for_no_sample() {
    let mut pool = compared(64, 0..5);
    pool.judged_as_a_whole();
    let said = bring_in_turns(&mut pool, &[1], 0..3);
    assert!(matches!(said[0], Event::Banned { mirror: 1, .. }), "{said:?}");
    assert_eq!(said.last(), Some(&Event::Complete), "two others have not said anything");
}

#[test]
fn a_mirror_that_the_user_did_not_name_has_no_vote() {
    let mut pool = compared(64, 0..1);
    (1..4).for_each(|mirror| pool.mirror_joins(mirror, false));
    let said = bring_in_turns(&mut pool, &[1, 2, 3], 0..4);
    let banned = said.iter().filter(|event| matches!(event, Event::Banned { mirror: 1.., .. }));
    assert_eq!(banned.count(), 3, "{said:?}");
    assert_eq!(said.last(), Some(&Event::Complete));
}

#[test]
fn what_came_in_an_earlier_transfer_is_compared_as_if_it_came_now() {
    let mut pool = VerifiedPool::new(64 * BLOCK, Check::Nothing, |block| block < 32).expect("it fits");
    (0..2).for_each(|mirror| pool.mirror_joins(mirror, true));
    (0..32).for_each(|number| pool.brought_before(1, number, || Some(block_cv(number, &wrong(number)))));
    let said = bring_in_turns(&mut pool, &[], 0..1);
    assert!(matches!(&said[..], [Event::Split { .. }]), "{said:?}");
}

#[test]
fn a_sample_that_no_mirror_can_bring_is_not_waited_for() {
    let mut pool = compared(8, 0..2);
    assert_eq!((pool.take(0, 4), pool.take(1, 4)), (Some(0..4), Some(4..8)));
    bring_all(&mut pool, 0, 0..4);
    bring_all(&mut pool, 1, 4..8);
    assert!(pool.only_samples_left() && pool.idle() > 0);
    assert_eq!((pool.take(1, 9), pool.take(0, 9)), (None, Some(4..5)));
    pool.release(4..5);
    assert_eq!(pool.idle(), 1, "it can be asked for again");
    pool.mirror_gone(0);
    assert_eq!(pool.events().last(), Some(Event::Complete));
}
