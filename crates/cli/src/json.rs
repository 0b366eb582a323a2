//! What `--json` prints: one object a line on standard output. docs/json.md describes every one of them.

use serde::Serialize;

use crate::exit::{Failure, Outcome};
use crate::stdout;

/// The version of what is printed, in each object. It grows when a field goes or comes to mean something
/// else, not when one is added.
pub const VERSION: u32 = 1;

#[derive(Serialize)]
struct Line<'a, T> {
    version: u32,
    event: &'a str,
    #[serde(flatten)]
    object: &'a T,
}

/// How a command ended: part of every summary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct End {
    /// The exit status.
    pub exit: u8,
    /// Why it is not 0, exactly as it came about; `null` if it is.
    pub error: Option<String>,
}

impl End {
    /// With this failure, or well.
    #[must_use]
    pub fn new(failure: Option<&Failure>) -> Self {
        Self {
            exit: failure.map_or(0, |failure| failure.code as u8),
            error: failure.map(|failure| failure.message.clone()),
        }
    }
}

/// An object as a line, with its end.
#[must_use]
pub fn text(event: &str, object: &impl Serialize) -> String {
    // Only what has a map with other keys than text would fail.
    serde_json::to_string(&Line { version: VERSION, event, object }).unwrap_or_default() + "\n"
}

/// Prints an object.
pub fn put(event: &str, object: &impl Serialize) {
    stdout::tell(text(event, object));
}

/// Prints the summary of a command that has no more to tell than how it ended, if `wanted`.
///
/// # Errors
/// What it ended with.
pub fn end(wanted: bool, outcome: Outcome) -> Outcome {
    if wanted {
        put("summary", &End::new(outcome.as_ref().err()));
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_says_what_it_is_and_texts_are_exact() {
        let end = End::new(Some(&Failure::target("\u{9b}2J\u{202e}")));
        let line = text("summary", &end);
        assert_eq!(line, "{\"version\":1,\"event\":\"summary\",\"exit\":6,\"error\":\"\u{9b}2J\u{202e}\"}\n");
        let line = text("summary", &End::new(None));
        assert_eq!(line, "{\"version\":1,\"event\":\"summary\",\"exit\":0,\"error\":null}\n");
    }
}
