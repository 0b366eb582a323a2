//! Defines the outcomes of transfers: the report, and whether the transfer succeeded.

use crate::{Report, Result};

/// Holds the outcome of the transfer of a whole request.
pub(super) struct Outcome {
    pub(super) report: Report,
    pub(super) result: Result<()>,
}

/// Holds the outcome of the transfer of one file.
pub(super) struct FileOutcome {
    /// The report, without the file's path.
    pub(super) report: Report,
    pub(super) result: Result<()>,
}
