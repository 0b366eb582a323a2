//! Draws random values.

use anabranch_algo::control::{ALGORITHMS, Algorithm, SLOW_STARTS};
use anabranch_algo::{Span, Time};
use anabranch_sim::Rng;

/// Returns one of the values.
pub(super) fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len() as u64) as usize]
}

/// Returns a value up to `most` with probability `p`, else zero.
pub(super) fn often(rng: &mut Rng, p: f64, most: f64) -> f64 {
    if rng.chance(p) { rng.unit() * most } else { 0.0 }
}

/// Returns a number from 1 to `most`, small numbers more often.
pub(super) fn few(rng: &mut Rng, most: u64) -> u64 {
    let most = 1 + rng.below(most);
    1 + rng.below(most)
}

/// Returns a length of time up to `span`.
pub(super) fn within(rng: &mut Rng, span: Span) -> Span {
    Span::from_nanos(rng.below(span.as_nanos().saturating_add(1)))
}

/// Returns a time from `from` to `to`.
pub(super) fn between(rng: &mut Rng, from: Time, to: Time) -> Time {
    from + within(rng, to.since(from))
}

/// Returns a controller and its name, sometimes with the slow start of another controller.
pub(super) fn controller(rng: &mut Rng) -> (String, Algorithm) {
    let entry = ALGORITHMS[rng.below(ALGORITHMS.len() as u64) as usize];
    let start = SLOW_STARTS[rng.below(SLOW_STARTS.len() as u64) as usize].name;
    let is_given = rng.chance(0.3) && entry.slow_start.is_some();
    let name = if is_given { format!("{}+{start}", entry.name) } else { entry.name.to_owned() };
    let control = Algorithm::by_name(&name).expect("a rule goes with any slow start");
    (name, control)
}
