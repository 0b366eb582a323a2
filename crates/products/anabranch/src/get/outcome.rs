//! The outcomes of transfers: the report, and whether the transfer succeeded.

use crate::{Report, Result};

/// The outcome of the transfer of everything that was asked for.
pub(super) struct Outcome {
    pub(super) report: Report,
    pub(super) result: Result<()>,
}

/// The outcome of the transfer of one file.
pub(super) struct FileOutcome {
    /// The report, without the file's path.
    pub(super) report: Report,
    pub(super) result: Result<()>,
}
