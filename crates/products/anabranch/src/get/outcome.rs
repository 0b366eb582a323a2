//! How a transfer ended: what is to be told of it, and whether it came about.

use anabranch_mmtp::ContentId;

use crate::{Report, Result};

/// How the transfer of all that was asked for ended.
pub(super) struct Outcome {
    pub(super) report: Report,
    pub(super) result: Result<()>,
}

/// How the transfer of one file ended.
pub(super) struct FileOutcome {
    pub(super) id: ContentId,
    /// Without the file's path.
    pub(super) report: Report,
    pub(super) result: Result<()>,
    /// Whether a server that the user named says that it is another.
    pub(super) has_dissent: bool,
}
