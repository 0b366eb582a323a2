//! The end of a command: exit codes that scripts can use, and errors that say what to do next.

use std::fmt;
use std::fmt::Write as _;

use anabranch::ErrorPlace;
use serde::Serialize;

use crate::hints::with_options;

/// The reason why a command failed; the number is the process's exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Code {
    /// An error that has no code of its own.
    Other = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// Every source that answered said that it does not have this content.
    NotFound = 3,
    /// No source answered for `--timeout` seconds.
    Unreachable = 4,
    /// The content is not the right one: sources were banned for wrong bytes, mirrors differ, or the whole
    /// has another hash.
    Corrupt = 5,
    /// The target of the file cannot be written.
    Target = 6,
    /// An experiment's condition was not met, or a value is not where its scenario expects it.
    Unmet = 7,
    /// The kernel cannot do it, or does not allow it.
    Kernel = 8,
    /// HTTP servers refuse the request: a name and a password are missing or wrong (401, 403, 407).
    Refused = 9,
    /// Ctrl-C, SIGTERM or SIGHUP.
    Interrupted = 130,
}

impl Code {
    /// Returns the code of a library error that has this exit status.
    const fn of(exit_status: u8) -> Self {
        match exit_status {
            2 => Self::Usage,
            3 => Self::NotFound,
            4 => Self::Unreachable,
            5 => Self::Corrupt,
            6 => Self::Target,
            9 => Self::Refused,
            130 => Self::Interrupted,
            _ => Self::Other,
        }
    }
}

/// The codes and their meanings, as `--help` and the manual page show them.
pub const CODES: &[(u8, &str)] = &[
    (0, "done: all of it is here, verified as was said (UNVERIFIED: not at all); of lab: all as expected"),
    (Code::Other as u8, "an error that none of the following describes"),
    (
        Code::Usage as u8,
        "wrong usage: an option, address, URI or scenario makes no sense, or a file is missing",
    ),
    (Code::NotFound as u8, "no source has this content"),
    (
        Code::Unreachable as u8,
        "no source reachable or in order (5xx), or --timeout passed (what arrived is kept)",
    ),
    (
        Code::Corrupt as u8,
        "wrong bytes came, or servers differ; what one has or only they call wrong is NAME.unverified; of \
         trace: the capture is damaged",
    ),
    (Code::Target as u8, "target: disk full, not writable, exists already, or in use by another get"),
    (Code::Unmet as u8, "lab: a condition was not met, or a value is not where the scenario expects it"),
    (Code::Kernel as u8, "the kernel cannot do it or does not allow it; the message says what it takes"),
    (Code::Refused as u8, "HTTP servers refuse it (401, 403, 407): a name and password are missing or wrong"),
    (Code::Interrupted as u8, "interrupted (what arrived is kept; the same command resumes)"),
];

/// Returns the codes and their meanings as text, one per line.
#[must_use]
pub fn help() -> String {
    let mut text = String::from("Exit status:\n");
    for (code, meaning) in CODES {
        let _ = writeln!(text, "  {code:>3}  {meaning}");
    }
    text
}

/// An error for the person at the terminal: an exit code, and a message that says what to do next.
#[derive(Debug)]
pub struct Failure {
    /// The exit status.
    pub code: Code,
    /// One or two sentences, without a final newline.
    pub message: String,
    /// The URL, path or address that the error is about, if there is exactly one.
    pub place: Option<ErrorPlace>,
}

/// The result of every command.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// Makes a failure with `code`.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), place: None }
    }
    /// Makes a failure of the target: exit status 6.
    pub fn target(message: impl Into<String>) -> Self {
        Self::new(Code::Target, message)
    }
    /// Makes a failure without a code of its own: exit status 1.
    pub fn other(message: impl Into<String>) -> Self {
        Self::new(Code::Other, message)
    }
    /// Makes a failure of wrong usage: exit status 2.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::Usage, message)
    }

    /// Returns the failure with the place that it is about.
    #[must_use]
    pub fn at(self, place: impl Into<ErrorPlace>) -> Self {
        Self { place: Some(place.into()), ..self }
    }

    /// Returns the lines to print: one, or as many as the message has for an error of the kernel.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let text = format!("anabranch: {self}");
        if self.code == Code::Kernel { text.lines().map(str::to_owned).collect() } else { vec![text] }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<anabranch::Error> for Failure {
    fn from(error: anabranch::Error) -> Self {
        let code = Code::of(error.exit_status());
        Self { place: error.place().cloned(), ..Self::new(code, with_options(error.message())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_documented_once() {
        let mut numbers: Vec<u8> = CODES.iter().map(|c| c.0).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 130]);
        numbers.dedup();
        assert_eq!(numbers.len(), CODES.len());
        assert!(help().contains("  130  interrupted"));
    }

    #[test]
    fn errors_of_the_library_have_their_numbers() {
        use anabranch::{Error, ErrorKind};
        let kinds = [
            ErrorKind::Usage,
            ErrorKind::NotFound,
            ErrorKind::Unreachable,
            ErrorKind::Corrupt,
            ErrorKind::Target,
            ErrorKind::Refused,
            ErrorKind::Interrupted,
            ErrorKind::System,
        ];
        for kind in kinds {
            assert_eq!(Failure::from(Error::new(kind, "x")).code as u8, kind.exit_status());
        }
    }
}
