//! Defines the tasks of which a plan consists.

use std::sync::Arc;

use crate::World;
use crate::scenario::Scenario;

/// One run to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// World in which it runs.
    pub world: World,
    /// Index of its variant in the plan.
    pub variant: usize,
    /// Scenario of the variant.
    pub scenario: Arc<Scenario>,
    /// The controller under comparison.
    pub controller: String,
    /// The seed.
    pub seed: u64,
}
