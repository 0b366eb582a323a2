//! Defines transfers that arrive one after the other.

use serde::{Deserialize, Serialize};

use super::units::{Duration, SizeSpec};

/// Transfers of a flow that arrive at random times, each as a flow of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arrivals {
    /// Mean time between two arrivals. The times are exponential, so the arrivals are a Poisson process.
    pub every: Duration,
    /// Distribution of the sizes.
    #[serde(default)]
    pub sizes: Sizes,
    /// Shape for `pareto`, above 1. The smaller it is, the more of the bytes are in few transfers.
    #[serde(default = "heavy")]
    pub shape: f64,
    /// Largest size for `pareto`; default: no limit.
    pub most: Option<SizeSpec>,
    /// Sizes for `list`, all equally likely.
    #[serde(default)]
    pub list: Vec<SizeSpec>,
}

fn heavy() -> f64 {
    1.5
}

/// The distribution of the sizes of transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sizes {
    /// All transfers have the flow's `size`.
    #[default]
    Fixed,
    /// Exponential sizes with the mean `size`.
    Exponential,
    /// Pareto sizes with the mean `size`, bounded by `most` if given.
    Pareto,
    /// Each size is drawn from `list`.
    List,
}
