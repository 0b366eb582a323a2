//! Turns errors of machines into exit statuses and advice.

use anabranch_machines::Error;

use crate::exit::{Code, Failure};

/// Returns the failure of a command.
pub(super) fn failure(error: Error) -> Failure {
    let code = match &error {
        Error::Usage(_) | Error::NotFound(_) => Code::Usage,
        Error::Unreachable(_) => Code::Unreachable,
        Error::Kernel(_) => Code::Kernel,
        Error::Never(_) => Code::Unmet,
        Error::Interrupted => Code::Interrupted,
        Error::Refused(_) | Error::Failed(_) => Code::Other,
    };
    let text = error.to_string();
    let advice = match error {
        Error::Never(_) => {
            ": --max-pause, --auto-converge or --post-copy let it end, each at a price (see --help); \
                            --anyway begins as it is"
        }
        Error::Interrupted => ": the machine runs here, as before",
        _ => "",
    };
    Failure::new(code, text + advice)
}
