//! Turns errors of functions into exit statuses.

use anabranch_operator::Error;

use crate::exit::{Code, Failure};

/// Returns the failure of a command.
pub(super) fn failure(error: Error) -> Failure {
    let code = match &error {
        Error::Usage(_) | Error::NotFound(_) => Code::Usage,
        Error::Unreachable(_) => Code::Unreachable,
        Error::Kernel(_) => Code::Kernel,
        Error::Refused(_) | Error::Failed(_) => Code::Other,
    };
    Failure::new(code, error.to_string())
}
