//! Checks that hold for any set of mirrors. With a hash, the file is right or absent, and it arrives if an
//! honest mirror answers. Without a hash, the file is never a mixture of two contents.

use super::mirrors::FILE;
use super::mirrors::{
    content, gone, having, honest, late_other, longer, mute, one_wrong_byte, other, refusing, shorter,
};
use super::row::Happens::Kill;
use super::row::Knows;
use super::trial::{Ground, is_right_or_absent};
use crate::get::testing::{Mirror, Rng};
use anabranch_algo::Span;

/// The number of sets of mirrors that are tried.
const SETS: u64 = 60;

/// Returns a random mirror.
fn mirror(rng: &mut Rng) -> Mirror {
    let contents = [other(), late_other(), one_wrong_byte(), longer(), shorter()];
    let liar = &contents[rng.below(contents.len() as u64) as usize];
    let mirror = match rng.below(10) {
        0 => mute(),
        1 => gone(),
        2 => refusing(503),
        3 => honest().without_ranges(&content()),
        4 => honest().stalling_after(rng.below(1_000_000)),
        5 => honest().away(0, 1 + rng.below(5)),
        6 => having(liar).without_ranges(liar),
        _ => having(liar),
    };
    mirror.rate([50_000, 300_000, 2_000_000][rng.below(3) as usize]).rtt(1 + rng.below(150))
}

#[test]
fn any_set_of_mirrors() {
    let (mut arrived, mut failed) = (0, 0);
    for seed in 0..SETS {
        let mut rng = Rng::new(seed);
        let mut mirrors: Vec<Mirror> = (0..1 + rng.below(4)).map(|_| mirror(&mut rng)).collect();
        let has_honest = rng.one_in(2);
        if has_honest {
            mirrors.insert(rng.below(mirrors.len() as u64 + 1) as usize, honest());
        }
        let all = [Knows::Nothing, Knows::Sha256, Knows::Blake3, Knows::Leaves, Knows::Pieces];
        let knows = all[rng.below(5) as usize];
        let ground = Ground::new(mirrors, knows, content(), FILE);
        let mut ends = String::new();
        for run in 0..rng.below(3) as usize {
            if ground.to().join(FILE).exists() {
                break;
            }
            let ended = ground.run(rng.below(1 << 32), run, Some(Kill(Span::from_millis(rng.below(3_000)))));
            ends += &format!("{:?}; ", ended.result.map(drop));
            is_right_or_absent(&ground, knows.is_hash()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        }
        if ground.to().join(FILE).exists() {
            continue;
        }
        let ended = ground.run(rng.below(1 << 32), 9, None);
        is_right_or_absent(&ground, knows.is_hash()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let is_there = ground.to().join(FILE).exists();
        assert_eq!(ended.result.is_ok(), is_there, "seed {seed}: {ends}{:?}", ended.result.map(drop));
        assert!(
            is_there || !(has_honest && knows.is_hash()),
            "seed {seed}, {knows:?}: an honest mirror answers: {ends}{:?}",
            ended.result.map(drop)
        );
        (arrived, failed) = (arrived + u64::from(is_there), failed + u64::from(!is_there));
    }
    assert!(arrived > SETS / 4 && failed > SETS / 10, "{arrived} arrived, {failed} did not");
}
