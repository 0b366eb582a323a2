//! Transfers that arrive one after the other.

use serde::{Deserialize, Serialize};

use super::units::{Duration, SizeSpec};

/// Transfers of a flow that arrive at random times, each as a flow of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arrivals {
    /// The mean time between two arrivals. The times are exponential, so the arrivals are a Poisson process.
    pub every: Duration,
    /// How sizes are drawn.
    #[serde(default)]
    pub sizes: Sizes,
    /// Of `pareto`: its shape, above 1. The less it is, the more of the bytes are in few transfers.
    #[serde(default = "heavy")]
    pub shape: f64,
    /// Of `pareto`: the largest size; default: none.
    pub most: Option<SizeSpec>,
    /// Of `list`: the sizes, each as likely as the others.
    #[serde(default)]
    pub list: Vec<SizeSpec>,
}

fn heavy() -> f64 {
    1.5
}

/// How the sizes of transfers are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sizes {
    /// All have the flow's `size`.
    #[default]
    Fixed,
    /// Exponential with this mean.
    Exponential,
    /// Pareto with this mean, bounded by `most` if there is one.
    Pareto,
    /// One of `list`.
    List,
}
