//! What a plan consists of.

use std::sync::Arc;

use crate::World;
use crate::scenario::Scenario;

/// One run to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Where it runs.
    pub world: World,
    /// Which of the plan's variants.
    pub variant: usize,
    /// Its scenario.
    pub scenario: Arc<Scenario>,
    /// The controller under comparison.
    pub controller: String,
    /// The seed.
    pub seed: u64,
}
