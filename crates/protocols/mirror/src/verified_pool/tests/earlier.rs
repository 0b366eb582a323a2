//! What earlier transfers left, where no hash is known.

use super::*;

const REGION: u64 = CHECK_EVERY_BLOCKS;

/// What was left: who brought each block, and who of them lied.
struct Left {
    bringer: fn(u64) -> u8,
    compared: Range<u64>,
    liar: Option<u8>,
}

impl Earlier for Left {
    fn bringer(&self, block: u64) -> u8 {
        (self.bringer)(block)
    }

    fn is_compared(&self, block: u64) -> bool {
        self.compared.contains(&block)
    }

    fn cv(&self, number: u64) -> Option<ChainingValue> {
        let lies = self.liar == Some(self.bringer(number));
        Some(block_cv(number, &if lies { wrong(number) } else { block(number) }))
    }
}

/// These mirrors, each of which may have brought what was left.
fn of_now(mirrors: Range<MirrorId>, voices: usize) -> MirrorsOfNow {
    MirrorsOfNow { asked: mirrors.collect(), voices, newcomers: BTreeSet::new() }
}

/// A pool of three regions, of which the first `here` blocks are here.
fn resumed(here: u64, left: &Left, mirrors: Range<MirrorId>, voices: usize) -> VerifiedPool {
    let have = |block| block < here;
    let mut pool = VerifiedPool::new(3 * REGION * BLOCK, Check::Nothing, have).expect("it fits");
    pool.seed([7; 32]);
    pool.take_up(left, of_now(mirrors, voices));
    pool
}

/// Lets these mirrors bring what they are asked for; what is said beside the blocks, and what came.
fn run(pool: &mut VerifiedPool, mirrors: Range<MirrorId>, liars: &[MirrorId]) -> (Vec<Event>, Vec<u64>) {
    let (mut said, mut came) = (Vec::new(), Vec::new());
    loop {
        let mut asked = false;
        for mirror in mirrors.clone() {
            if let Some(blocks) = pool.take(mirror, 100) {
                asked = true;
                bring(pool, liars, mirror, blocks.clone());
                pool.release(blocks);
            }
        }
        for event in pool.events() {
            match event {
                Event::Verified { block, .. } => came.push(block),
                event => said.push(event),
            }
        }
        if !asked {
            return (said, came);
        }
    }
}

/// The second of two mirrors lied before an interruption, in the second region.
const LIED: Left = Left { bringer: |block| 1 + u8::from(block >= REGION), compared: 0..0, liar: Some(2) };

#[test]
fn what_a_mirror_left_that_lied_comes_again_though_it_takes_no_part() {
    for mirrors in [0..1, 0..2, 0..3] {
        let here = REGION + 500;
        let mut pool = resumed(here, &LIED, mirrors.clone(), mirrors.len().min(2));
        let (said, came) = run(&mut pool, mirrors.clone(), &[]);
        let revoked = Event::Revoked { blocks: REGION..here };
        assert!(matches!(said[0], Event::EarlierDropped { block } if (REGION..here).contains(&block)));
        assert_eq!(said[1..], [revoked, Event::Complete], "{mirrors:?}");
        assert!((REGION..3 * REGION).all(|block| came.contains(&block)));
        assert!(!came.contains(&0), "what is right stays");
        // A single mirror may have brought it itself: the next transfer compares it again.
        let compared = pool.compared();
        assert_eq!(compared.contains(&(0..REGION)), mirrors != (0..1), "{mirrors:?}: {compared:?}");
    }
}

#[test]
fn what_nobody_else_can_have_brought_is_compared_where_there_is_another() {
    let left = Left { bringer: |_| 9, compared: 0..0, liar: Some(9) };
    let mut pool = resumed(2 * REGION, &left, 0..1, 0);
    assert_eq!(run(&mut pool, 0..1, &[]).0, [Event::Complete], "with itself there is nothing to compare");
    assert_eq!(pool.compared(), []);
    let mut pool = resumed(2 * REGION, &left, 0..2, 2);
    let (said, _) = run(&mut pool, 0..2, &[]);
    assert!(said.contains(&Event::Revoked { blocks: 0..2 * REGION }), "{said:?}");
    assert_eq!(said.last(), Some(&Event::Complete));
}

#[test]
fn what_was_compared_is_not_compared_again() {
    let left = Left { compared: 0..REGION, liar: None, ..LIED };
    let mut pool = resumed(2 * REGION, &left, 0..1, 1);
    let taken = pool.take(0, 64).expect("a comparison");
    assert!(taken.start >= REGION && taken.end <= 2 * REGION, "{taken:?}");
    // All of a mirror that lied in one place comes again, though that was compared.
    let left = Left { bringer: |_| 5, compared: 0..REGION, liar: Some(5) };
    let mut pool = resumed(2 * REGION, &left, 0..1, 1);
    let (said, _) = run(&mut pool, 0..1, &[]);
    assert!(said.contains(&Event::Revoked { blocks: 0..2 * REGION }), "{said:?}");
}

#[test]
fn what_is_compared_in_a_transfer_is_told() {
    let mut pool = VerifiedPool::new(3 * REGION * BLOCK, Check::Nothing, |_| false).expect("it fits");
    pool.seed([7; 32]);
    let mut told = Vec::new();
    while !pool.complete {
        for mirror in 0..2 {
            if let Some(blocks) = pool.take(mirror, 100) {
                bring_all(&mut pool, mirror, blocks);
            }
            told.extend(pool.compared());
        }
    }
    told.sort_by_key(|blocks| blocks.start);
    told.dedup();
    assert_eq!(told, [0, 1, 2].map(|number| number * REGION..(number + 1) * REGION));
    // A mirror alone is compared with nobody, and what is given up is not told.
    let mut pool = VerifiedPool::new(3 * REGION * BLOCK, Check::Nothing, |_| false).expect("it fits");
    pool.take(1, REGION);
    bring_all(&mut pool, 0, 0..3 * REGION);
    assert!(pool.compared().is_empty() && pool.waive(|_| false));
    assert!(pool.complete && pool.compared().is_empty());
}

/// It may have brought it, and agrees with itself.
#[test]
fn who_lied_before_and_lies_now_does_not_vouch_for_itself() {
    let mut pool = resumed(2 * REGION, &LIED, 0..2, 2);
    let (said, _) = run(&mut pool, 0..2, &[1]);
    assert!(matches!(&said[..], [Event::Conflict { mirrors, .. }] if mirrors.len() == 2), "{said:?}");
    // Nor where it is there first.
    let mut pool = resumed(2 * REGION, &LIED, 0..2, 2);
    for _ in 0..9 {
        pool.take(1, 9).into_iter().for_each(|blocks| bring(&mut pool, &[1], 1, blocks));
    }
    let (said, _) = run(&mut pool, 0..2, &[1]);
    assert!(matches!(said.last(), Some(Event::Conflict { .. })), "{said:?}");
    // Of three it is the odd one, and nobody knows what else is its own.
    let mut pool = resumed(2 * REGION, &LIED, 0..3, 2);
    let (said, _) = run(&mut pool, 0..3, &[1]);
    assert!(matches!(said[0], Event::Banned { mirror: 1, .. }), "{said:?}");
    let revoked = |block: u64| {
        said.iter().any(|event| matches!(event, Event::Revoked { blocks } if blocks.contains(&block)))
    };
    assert!((0..2 * REGION).all(revoked), "{said:?}");
    assert_eq!(said.last(), Some(&Event::Complete));
}

/// All of it was here when it was interrupted: it is not complete before it is compared, or nobody can.
#[test]
fn what_is_here_as_a_whole_is_compared_before_it_is_complete() {
    let whole = |voices| {
        let mut pool = VerifiedPool::new(2 * REGION * BLOCK, Check::Nothing, |_| true).expect("it fits");
        pool.take_up(&LIED, of_now(0..2, voices));
        pool
    };
    assert_eq!(whole(0).events().last(), Some(Event::Complete));
    let mut pool = whole(1);
    assert!(pool.only_checks_left() && pool.events().count() == 0 && pool.idle_for(0) > 0);
    assert!(!pool.waive(|mirror| mirror == 0), "it has not been asked yet");
    assert_eq!(run(&mut pool, 0..1, &[]).1, (REGION..2 * REGION).collect::<Vec<_>>());
    // A difference counts, though the other one that was to say something falls silent.
    let mut pool = whole(2);
    let taken = [1, 0].map(|mirror| pool.take(mirror, 1).expect("a comparison"));
    bring(&mut pool, &[1], 1, taken[0].clone());
    assert_eq!(pool.events().count(), 0);
    pool.waive(|mirror| mirror == 1);
    assert!(matches!(pool.events().next(), Some(Event::EarlierDropped { block }) if block < REGION));
    // One that has the same may have brought it: it is waited for another, unless none answers.
    let mut pool = whole(2);
    assert_eq!(
        run(&mut pool, 1..2, &[1]).0,
        [],
        "nothing comes again for the word of one while another may speak"
    );
    assert!(!pool.complete && !pool.waive(|mirror| mirror < 2));
    assert!(pool.waive(|mirror| mirror == 1) && pool.compared().is_empty());
    let (said, came) = run(&mut pool, 1..2, &[1]);
    assert!(matches!(said[0], Event::EarlierDropped { block } if block < REGION), "{said:?}");
    assert_eq!((said.last(), came.len() as u64), (Some(&Event::Complete), REGION), "from the liar");
}

#[test]
fn comparisons_of_what_was_left_are_bounded() {
    let regions = 2 * EARLIER_CHECKS_MAX as u64;
    let mut pool =
        VerifiedPool::new((regions * REGION + 1) * BLOCK, Check::Nothing, |block| block < regions * REGION)
            .expect("it fits");
    pool.take_up(&Left { bringer: |_| 3, compared: 0..0, liar: None }, of_now(0..2, 2));
    let (said, came) = run(&mut pool, 0..2, &[]);
    assert_eq!((said, came), (vec![Event::Complete], vec![regions * REGION]));
    let compared = pool.compared();
    assert!(!compared.is_empty() && compared.len() <= EARLIER_CHECKS_MAX, "{}", compared.len());
    // More mirrors than there are numbers for.
    let mut pool = resumed(3 * REGION, &Left { bringer: |block| block as u8, ..LIED }, 0..2, 2);
    assert_eq!(run(&mut pool, 0..2, &[]).0.last(), Some(&Event::Complete));
}

/// The last of these mirrors is wrong throughout, and was not asked in earlier transfers.
fn with_a_newcomer_that_lies(mirrors: Range<MirrorId>) -> (VerifiedPool, Vec<Event>) {
    let left = Left { liar: None, ..LIED };
    let have = |block| block < 2 * REGION;
    let mut pool = VerifiedPool::new(3 * REGION * BLOCK, Check::Nothing, have).expect("it fits");
    pool.seed([7; 32]);
    let liar = mirrors.end - 1;
    pool.take_up(&left, MirrorsOfNow { newcomers: [liar].into(), ..of_now(mirrors.clone(), 2) });
    let (said, _) = run(&mut pool, mirrors, &[liar]);
    (pool, said)
}

#[test]
fn who_is_new_and_lies_did_not_bring_what_was_there_before() {
    let (_, said) = with_a_newcomer_that_lies(0..3);
    assert!(matches!(said[0], Event::Banned { mirror: 2, .. }), "{said:?}");
    assert!(said.iter().all(|event| match event {
        Event::Revoked { blocks } => blocks.start >= 2 * REGION,
        event => !matches!(event, Event::EarlierDropped { .. }),
    }));
    assert_eq!(said.last(), Some(&Event::Complete));
}

#[test]
fn where_two_differ_what_one_of_them_may_have_left_stays() {
    let (mut pool, said) = with_a_newcomer_that_lies(0..2);
    let Some(Event::Conflict { mirrors, .. }) = said.last() else { panic!("{said:?}") };
    let mut both = mirrors.clone();
    both.sort_unstable();
    assert_eq!(both, [0, 1]);
    let before = pool.blocks_left();
    assert!(pool.keep_earlier(mirrors));
    let events: Vec<Event> = pool.events().collect();
    let revoked = |event: &Event| match event {
        Event::Revoked { blocks } => blocks.start >= 2 * REGION,
        _ => false,
    };
    assert!(events.iter().all(revoked), "{events:?}");
    assert!(before <= REGION && pool.blocks_left() == REGION, "all that came now, and no more");
    assert!(pool.is_newcomer(1) && !pool.is_newcomer(0));
    // If both may have brought it, it may be a mixture; and if nothing was left, nothing stays.
    let mut pool = resumed(2 * REGION, &Left { liar: None, ..LIED }, 0..2, 2);
    let (said, _) = run(&mut pool, 0..2, &[1]);
    assert!(matches!(said.last(), Some(Event::Conflict { .. })) && !pool.keep_earlier(&[0, 1]), "{said:?}");
    let mut pool = resumed(0, &LIED, 0..2, 2);
    run(&mut pool, 0..2, &[1]);
    assert!(!pool.keep_earlier(&[1]));
}

/// A hash of the whole tells who is right. What each of two had brought before is known: they are compared in
/// that first, and seen to differ after one block.
#[test]
fn with_a_hash_of_the_whole_earlier_blocks_of_now_are_compared_first() {
    for bringer in [0, 1] {
        let mut pool =
            VerifiedPool::new(3 * REGION * BLOCK, Check::Nothing, |block| block < 500).expect("it fits");
        pool.judged_as_a_whole();
        let bytes = |number| if bringer == 1 { wrong(number) } else { block(number) };
        (0..500).for_each(|number| pool.brought_before(bringer, number, &block_cv(number, &bytes(number))));
        let other = 1 - bringer;
        assert_eq!(pool.take(other, 100), Some(0..1), "a block that the other one had brought");
        bring(&mut pool, &[1], other, 0..1);
        let said: Vec<Event> = pool.events().collect();
        assert!(matches!(&said[..], [Event::Conflict { mirrors, .. }] if mirrors.len() == 2), "{said:?}");
        // Who has brought most is tried first, and what it had brought stays.
        let next = pool.try_next([(0, false), (1, false)].into_iter());
        assert_eq!((next, pool.events().count(), pool.blocks_left()), (Some(bringer), 0, 3 * REGION - 500));
    }
}
