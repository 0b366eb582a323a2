//! The output of `--json`: one object per line on standard output. docs/json.md describes every one of them.

use anabranch::ErrorPlace;
use serde::Serialize;

use crate::exit::{Code, Failure, Outcome};
use crate::stdout;

/// The version of the output, which is in each object. It grows when a field is removed or changes its
/// meaning, not when one is added.
pub const VERSION: u32 = 1;

#[derive(Serialize)]
struct Line<'a, T> {
    version: u32,
    event: &'a str,
    #[serde(flatten)]
    object: &'a T,
}

/// The end of a command: part of every summary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct End {
    /// The exit status.
    pub exit: u8,
    /// The exact error message if `exit` is not 0; otherwise `null`.
    pub error: Option<String>,
    /// The exit status as a word, if it is not 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_kind: Option<Code>,
    /// The URL, path or address that the error is about, if there is exactly one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_at: Option<At>,
}

/// The thing that an error is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum At {
    /// A URL, without secrets.
    Url(String),
    /// A file or a directory.
    Path(String),
    /// A source, a service or a socket.
    Address(String),
}

impl At {
    /// Converts a place of the library; `None` if the place is of a kind that is not known here yet.
    fn of(place: &ErrorPlace) -> Option<Self> {
        match place {
            ErrorPlace::Url(url) => Some(Self::Url(url.clone())),
            ErrorPlace::Path(path) => Some(Self::Path(path.to_string_lossy().into_owned())),
            ErrorPlace::Address(address) => Some(Self::Address(address.clone())),
            _ => None,
        }
    }
}

impl End {
    /// Makes the end of a command that failed with `failure`, or succeeded.
    #[must_use]
    pub fn new(failure: Option<&Failure>) -> Self {
        Self {
            exit: failure.map_or(0, |failure| failure.code as u8),
            error: failure.map(|failure| failure.message.clone()),
            error_kind: failure.map(|failure| failure.code),
            error_at: failure.and_then(|failure| At::of(failure.place.as_ref()?)),
        }
    }
}

/// Returns an object as a line, with its newline.
#[must_use]
pub fn text(event: &str, object: &impl Serialize) -> String {
    // Serializing fails only for a map whose keys are not text.
    serde_json::to_string(&Line { version: VERSION, event, object }).unwrap_or_default() + "\n"
}

/// Prints an object.
pub fn put(event: &str, object: &impl Serialize) {
    stdout::tell(text(event, object));
}

/// Prints the summary of a command that reports nothing but its end, if `wanted`. Returns `outcome`.
///
/// # Errors
/// The error of `outcome`.
pub fn end(wanted: bool, outcome: Outcome) -> Outcome {
    if wanted {
        put("summary", &End::new(outcome.as_ref().err()));
    }
    outcome
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::Path;

    use anabranch::Error;

    use super::*;

    #[test]
    fn each_line_says_what_it_is_and_texts_are_exact() {
        let error = Error::target("\u{9b}2J\u{202e}").at(OsStr::from_bytes(b"a\xff").as_ref() as &Path);
        let line = text("summary", &End::new(Some(&error.into())));
        let end = "\"error_kind\":\"target\",\"error_at\":{\"path\":\"a\u{fffd}\"}}\n";
        let begin = "{\"version\":1,\"event\":\"summary\",\"exit\":6,\"error\":\"\u{9b}2J\u{202e}\",";
        assert_eq!(line, format!("{begin}{end}"));
        let line = text("summary", &End::new(None));
        assert_eq!(line, "{\"version\":1,\"event\":\"summary\",\"exit\":0,\"error\":null}\n");
    }
}
