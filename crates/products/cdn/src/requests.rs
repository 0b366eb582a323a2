//! Draws the requests of viewers: when, where, which channel, which quality, and for how long.
//!
//! **Concurrency drives the requests.** The paper prints "at least 100,000 concurrent connections at any one
//! point in time and a peak of 160,000" and "an average rate of 6,670 requests per second" (000 §3.4.1.1).
//! Both cannot be: at the mean viewing time of 30.3 minutes, 6,670 requests a second are 12.1 million
//! streams. So the number of streams is given, from the least over the most in the middle back to the least,
//! and a request comes when there are too few. The paper's rate is that of the beginning: all caches are off,
//! and viewers come at 6,670 a second until there is the least number of streams.
//!
//! A viewer leaves after the time that it draws, whatever it has seen by then. Thus the same requests come
//! under every policy, and policies are compared stream by stream.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::f64::consts::PI;

use anabranch_sim::Rng;

use crate::plan::{Demand, QUALITIES_MBITS};

/// A request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// When it comes, seconds.
    pub at_s: f64,
    /// When the viewer leaves, seconds.
    pub until_s: f64,
    /// The access network, by its place in the list of access networks.
    pub access: u32,
    /// The channel.
    pub channel: u16,
    /// The quality, an index of [`QUALITIES_MBITS`].
    pub quality: u8,
}

/// Draws by a table of cumulated weights.
#[derive(Clone, Debug)]
struct Draw(Vec<f64>);

impl Draw {
    fn new(weights: impl Iterator<Item = f64>) -> Self {
        let mut sum = 0.0;
        Self(weights.map(|weight| (sum += weight, sum).1).collect())
    }

    fn next(&self, rng: &mut Rng) -> usize {
        let all = self.0.last().copied().unwrap_or_default();
        let drawn = rng.unit() * all;
        self.0.partition_point(|sum| *sum <= drawn).min(self.0.len().saturating_sub(1))
    }
}

/// Returns Zipf's weights of ranks 1 to `count`.
fn zipf(count: usize, exponent: f64) -> impl Iterator<Item = f64> {
    (1..=count).map(move |rank| (rank as f64).powf(-exponent))
}

/// Returns the probabilities of the qualities: Poisson's, of which the last takes the rest.
fn qualities(mean: f64) -> impl Iterator<Item = f64> {
    let mut term = (-mean).exp();
    let mut left = 1.0;
    (0..QUALITIES_MBITS.len()).map(move |index| {
        if index + 1 == QUALITIES_MBITS.len() {
            return left;
        }
        let this = term;
        term *= mean / (index + 1) as f64;
        left = f64::max(left - this, 0.0);
        this
    })
}

/// Returns the mean rate of a stream at this mean of the quality's index, Mbit/s.
#[must_use]
pub fn mean_mbits(quality_mean: f64) -> f64 {
    qualities(quality_mean).zip(QUALITIES_MBITS).map(|(part, mbits)| part * mbits).sum()
}

/// Draws from the triangular distribution.
fn triangular((least, mode, most): (f64, f64, f64), rng: &mut Rng) -> f64 {
    let (u, width) = (rng.unit(), most - least);
    if width <= 0.0 {
        return least;
    }
    if u < (mode - least) / width {
        least + (u * width * (mode - least)).sqrt()
    } else {
        most - ((1.0 - u) * width * (most - mode)).sqrt()
    }
}

/// Returns the access networks in the order of their viewers, the most first.
fn order(access: usize, seed: u64) -> Vec<u32> {
    let mut rng = Rng::stream(seed, "viewers");
    let mut order: Vec<u32> = (0..access as u32).collect();
    for place in (1..access).rev() {
        order.swap(place, rng.below(place as u64 + 1) as usize);
    }
    order
}

/// Draws all requests of a run over `access` access networks, in the order in which they come.
#[must_use]
pub fn draw(demand: &Demand, access: usize, seed: u64) -> Vec<Request> {
    let mut rng = Rng::stream(seed, "requests");
    let channels = Draw::new(zipf(demand.channels, demand.zipf));
    let places = Draw::new(zipf(access, demand.access_zipf));
    let order = order(access, seed);
    let qualities = Draw::new(qualities(demand.quality_mean));
    let watch = demand.watch_minutes;
    let mut ends: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
    let mut requests = Vec::new();
    let mut request = |at_s: f64, ends: &mut BinaryHeap<Reverse<u64>>| {
        let until_s = at_s + 60.0 * triangular(watch, &mut rng);
        // Positive numbers are in the order of their bits.
        ends.push(Reverse(until_s.to_bits()));
        requests.push(Request {
            at_s,
            until_s,
            access: order[places.next(&mut rng)],
            channel: channels.next(&mut rng) as u16,
            quality: qualities.next(&mut rng) as u8,
        });
    };
    let first_s = demand.streams_least as f64 / demand.first_per_s;
    let end_s = 60.0 * demand.minutes;
    for number in 0..demand.streams_least {
        let at_s = number as f64 / demand.first_per_s;
        if at_s < end_s {
            request(at_s, &mut ends);
        }
    }
    let rise = (demand.streams_most - demand.streams_least) as f64;
    let mut second = first_s;
    while second < end_s {
        while ends.peek().is_some_and(|end| f64::from_bits(end.0) <= second) {
            ends.pop();
        }
        let part = (second - first_s) / (end_s - first_s);
        let wanted = demand.streams_least as f64 + rise * (PI * part).sin().powi(2);
        let missing = (wanted.round() as usize).saturating_sub(ends.len());
        for number in 0..missing {
            request(second + number as f64 / missing as f64, &mut ends);
        }
        second += 1.0;
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions() {
        let parts: Vec<f64> = qualities(2.0).collect();
        assert!((parts.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert!((parts[0] - 0.1353).abs() < 1e-4 && (parts[5] - 0.0527).abs() < 1e-4, "{parts:?}");
        assert!((mean_mbits(0.0) - 1.0).abs() < 1e-12);
        let mut rng = Rng::new(1);
        let mean = (0..20_000).map(|_| triangular((1.0, 30.0, 60.0), &mut rng)).sum::<f64>() / 20_000.0;
        assert!((mean - 91.0 / 3.0).abs() < 0.4, "{mean}");
        let draw = Draw::new(zipf(3, 1.0));
        let mut hits = [0; 3];
        (0..11_000).for_each(|_| hits[draw.next(&mut rng)] += 1);
        for (hit, expected) in hits.into_iter().zip([6_000, 3_000, 2_000i32]) {
            assert!((hit - expected).abs() < 200, "{hits:?}");
        }
    }

    /// The number of streams follows the demand, and the rate of requests is as the corrected one of the
    /// paper: 55 to 88 a second after the beginning.
    #[test]
    fn concurrency_drives_requests() {
        let demand = Demand { minutes: 60.0, ..Demand::default() };
        let requests = draw(&demand, 871, 3);
        assert_eq!(requests, draw(&demand, 871, 3));
        let active = |s: f64| requests.iter().filter(|it| it.at_s <= s && it.until_s > s).count() as f64;
        assert!((active(5.0) - 33_350.0).abs() < 100.0);
        for (s, expected) in [(16.0, 100_000.0), (1_807.0, 160_000.0), (3_590.0, 100_000.0)] {
            assert!((active(s) / expected - 1.0).abs() < 0.01, "{s}: {}", active(s));
        }
        let later = requests.iter().filter(|it| it.at_s > 600.0).count() as f64 / 3_000.0;
        assert!((40.0..100.0).contains(&later), "{later}");
        assert!(requests.windows(2).all(|two| two[0].at_s <= two[1].at_s));
    }
}
