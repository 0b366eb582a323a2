//! Holds the inputs of the study, which a TOML file may set.
//!
//! Numbers that the paper prints are the defaults. It does not print the exponent of Zipf's law, the mean of
//! the Poisson distribution of qualities, or what a player buffers: those are marked as free.

use serde::Deserialize;

use crate::generate::Size;

/// The rates of the six qualities, Mbit/s: 360p, 480p, 720p, 1080p, 2K, 4K (000 §3.4.1.1).
pub const QUALITIES_MBITS: [f64; 6] = [1.0, 2.5, 5.0, 8.0, 10.0, 20.0];

/// The capacities of lines, Mbit/s.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Capacities {
    /// Between two transit networks.
    pub core_mbits: f64,
    /// Between a leaf and its provider.
    pub leaf_mbits: f64,
    /// Of one viewer.
    pub user_mbits: f64,
}

impl Default for Capacities {
    fn default() -> Self {
        Self { core_mbits: 40_000.0, leaf_mbits: 10_000.0, user_mbits: 25.0 }
    }
}

/// What is watched, and by how many.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Demand {
    /// Channels, each with one origin server.
    pub channels: usize,
    /// Exponent of Zipf's law of the channels' popularity. Free.
    pub zipf: f64,
    /// Exponent of Zipf's law of the access networks' viewers; 0: all have as many. Free.
    pub access_zipf: f64,
    /// Mean of the Poisson distribution of the quality's index, of which 5 and more are 4K. Free.
    pub quality_mean: f64,
    /// Streams at the beginning and at the end.
    pub streams_least: usize,
    /// Streams in the middle.
    pub streams_most: usize,
    /// Requests a second at the beginning, until there are `streams_least`.
    pub first_per_s: f64,
    /// Simulated time, minutes.
    pub minutes: f64,
    /// Shortest, most frequent and longest time for which a viewer watches, minutes (triangular).
    pub watch_minutes: (f64, f64, f64),
}

impl Default for Demand {
    fn default() -> Self {
        Self {
            channels: 200,
            zipf: 1.25,
            access_zipf: 0.0,
            quality_mean: 2.0,
            streams_least: 100_000,
            streams_most: 160_000,
            first_per_s: 6_670.0,
            minutes: 5.0,
            watch_minutes: (1.0, 30.0, 60.0),
        }
    }
}

/// How a player buffers.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Player {
    /// Seconds of video in the buffer when playback starts, and when it resumes. Free.
    pub start_s: f64,
    /// Most seconds of video in the buffer; a cache keeps as much of each channel. Free.
    pub buffer_s: f64,
}

impl Default for Player {
    fn default() -> Self {
        Self { start_s: 10.0, buffer_s: 30.0 }
    }
}

/// How caches come and go.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Caches {
    /// Time from the request that misses until a cache serves, seconds: of the comparison with traditional
    /// caches.
    pub boot_s: f64,
    /// Boot times that are compared with each other, seconds.
    pub boots_s: Vec<f64>,
    /// Fractions of access networks that have a traditional cache, percent.
    pub deployed_percent: Vec<u32>,
    /// Time without a viewer after which an ephemeral cache is shut down, seconds.
    pub idle_s: f64,
}

impl Default for Caches {
    fn default() -> Self {
        Self {
            boot_s: 0.1,
            boots_s: vec![0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0],
            deployed_percent: vec![20, 40, 60, 80, 100],
            idle_s: 60.0,
        }
    }
}

/// All inputs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Plan {
    /// Size of the graph, unless a file has one.
    pub network: Size,
    /// Capacities of lines.
    pub capacities: Capacities,
    /// What is watched.
    pub demand: Demand,
    /// How players buffer.
    pub player: Player,
    /// How caches come and go.
    pub caches: Caches,
}

/// The reason why a plan is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The file is no TOML, or has a key that no plan has.
    #[error("{0}")]
    Toml(String),
    /// A number is out of its range.
    #[error("{key} = {value}, expected {least} to {most}")]
    Range {
        /// The key.
        key: &'static str,
        /// What it was.
        value: f64,
        /// The least value.
        least: f64,
        /// The greatest value.
        most: f64,
    },
    /// Numbers that must not fall do.
    #[error("{0} must not fall from one number to the next")]
    Order(&'static str),
    /// A list is empty or too long.
    #[error("{0}: expected 1 to {LIST_MAX} numbers")]
    List(&'static str),
}

/// Most boot times, and most fractions.
const LIST_MAX: usize = 20;

impl Plan {
    /// Reads a plan in TOML; what is not in it has its default.
    ///
    /// # Errors
    /// If the text is no plan, or a number is out of its range.
    pub fn read(text: &str) -> Result<Self, PlanError> {
        let plan: Self = toml::from_str(text).map_err(|error| PlanError::Toml(error.to_string()))?;
        plan.check()?;
        Ok(plan)
    }

    /// Checks all numbers.
    ///
    /// # Errors
    /// If one is out of its range.
    pub fn check(&self) -> Result<(), PlanError> {
        let Self { capacities, demand, player, caches, .. } = self;
        let watch = demand.watch_minutes;
        let ranges = [
            ("capacities.core_mbits", capacities.core_mbits, 1.0, 1e9),
            ("capacities.leaf_mbits", capacities.leaf_mbits, 1.0, 1e9),
            ("capacities.user_mbits", capacities.user_mbits, 0.1, 1e6),
            ("demand.channels", demand.channels as f64, 1.0, 2_000.0),
            ("demand.zipf", demand.zipf, 0.0, 5.0),
            ("demand.access_zipf", demand.access_zipf, 0.0, 5.0),
            ("demand.quality_mean", demand.quality_mean, 0.0, 20.0),
            ("demand.streams_least", demand.streams_least as f64, 1.0, 1e6),
            ("demand.streams_most", demand.streams_most as f64, 1.0, 1e6),
            ("demand.first_per_s", demand.first_per_s, 1.0, 1e6),
            ("demand.minutes", demand.minutes, 0.1, 600.0),
            ("demand.watch_minutes[0]", watch.0, 0.01, 600.0),
            ("demand.watch_minutes[1]", watch.1, 0.01, 600.0),
            ("demand.watch_minutes[2]", watch.2, 0.01, 600.0),
            ("player.start_s", player.start_s, 0.1, 600.0),
            ("player.buffer_s", player.buffer_s, 0.1, 600.0),
            ("caches.boot_s", caches.boot_s, 0.0, 3_600.0),
            ("caches.idle_s", caches.idle_s, 0.0, 1e6),
        ];
        let lists = caches.boots_s.iter().map(|boot| ("caches.boots_s", *boot, 0.0, 3_600.0)).chain(
            caches
                .deployed_percent
                .iter()
                .map(|part| ("caches.deployed_percent", f64::from(*part), 0.0, 100.0)),
        );
        for (key, value, least, most) in ranges.into_iter().chain(lists) {
            if !(least..=most).contains(&value) {
                return Err(PlanError::Range { key, value, least, most });
            }
        }
        for (key, a, b) in [
            ("demand.streams_least, streams_most", demand.streams_least as f64, demand.streams_most as f64),
            ("demand.watch_minutes", watch.0, watch.1),
            ("demand.watch_minutes", watch.1, watch.2),
            ("player.start_s, buffer_s", player.start_s, player.buffer_s),
        ] {
            if a > b {
                return Err(PlanError::Order(key));
            }
        }
        for (key, count) in [
            ("caches.boots_s", caches.boots_s.len()),
            ("caches.deployed_percent", caches.deployed_percent.len()),
        ] {
            if !(1..=LIST_MAX).contains(&count) {
                return Err(PlanError::List(key));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_changes_what_it_says() {
        let plan = Plan::read("[demand]\nzipf = 1.1\nwatch_minutes = [1, 2, 3]\n[network]\nlines = 2900\n");
        let plan = plan.expect("a plan");
        assert_eq!((plan.demand.zipf, plan.network.lines, plan.network.access), (1.1, 2_900, 871));
        assert_eq!(plan.demand.watch_minutes, (1.0, 2.0, 3.0));
        assert_eq!(Plan::read(""), Ok(Plan::default()));
    }

    #[test]
    fn errors_name_the_key() {
        for (text, says) in [
            ("zipf = 1", "zipf"),
            ("[demand]\nzipf = 7", "demand.zipf = 7, expected 0 to 5"),
            ("[demand]\nzipf = nan", "demand.zipf"),
            ("[demand]\nstreams_least = 200000", "must not fall"),
            ("[caches]\nboots_s = []", "caches.boots_s: expected 1 to 20"),
            ("[caches]\ndeployed_percent = [120]", "caches.deployed_percent = 120"),
            ("[player]\nstart_s = 40", "player.start_s, buffer_s"),
        ] {
            let error = Plan::read(text).expect_err(text).to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
