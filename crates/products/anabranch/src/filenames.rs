//! File names: names from outside are never trusted, and none is printed raw.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use anabranch_mmtp::collection::is_file_name;

use crate::terminal;

/// Makes a name from the network or from a URL a single harmless path component, or refuses it.
///
/// It refuses an empty name, one longer than [`COMPONENT_MAX`](anabranch_mmtp::collection::COMPONENT_MAX)
/// bytes, `.` and `..`, and one with a `/` or a NUL byte. Everything else is a file name on this system:
/// spaces, newlines, bytes that are not UTF-8, and a leading dot (a directory that is fetched whole may well
/// hold a `.gitignore`).
///
/// # Errors
/// Returns a sentence that says what is wrong with the name.
pub(crate) fn component(name: &[u8]) -> Result<OsString, String> {
    if is_file_name(name) {
        return Ok(OsString::from_vec(name.to_vec()));
    }
    Err(format!("the name '{}' {}", show(OsStr::from_bytes(name)), why_none(name)))
}

/// Returns a clause that says why the name is not a file name.
fn why_none(name: &[u8]) -> &'static str {
    match name {
        b"" => "is empty",
        b"." | b".." => "is a directory",
        _ if name.contains(&b'/') => "contains a slash",
        _ if name.contains(&0) => "contains a NUL byte",
        _ => "is longer than 255 bytes",
    }
}

/// Returns why a file here may not have a name that another person or server chose, or `None` if it may.
/// Hidden names are refused, because some programs obey files by their names.
pub(crate) fn refusal(name: &[u8]) -> Option<&'static str> {
    if !is_file_name(name) {
        return Some(why_none(name));
    }
    name.starts_with(b".").then_some("is hidden, and some programs obey such files")
}

/// Returns `name` in a form that can stand in a sentence: as [`terminal::printable`] has it, but with bytes
/// that are not UTF-8 as `\xff`, and a backslash as `\\`. So no two names look the same.
#[must_use]
pub fn show(name: impl AsRef<OsStr>) -> String {
    let mut shown = String::new();
    for part in name.as_ref().as_bytes().utf8_chunks() {
        for char in part.valid().chars() {
            match char {
                '\\' => shown.push_str("\\\\"),
                c => terminal::push(&mut shown, c),
            }
        }
        for byte in part.invalid() {
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

/// Returns a path for a report: unchanged except for bytes that are not UTF-8.
pub(crate) fn lossy(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The number of texts that are named if there are many.
const NAMED_MAX: usize = 5;

/// Joins the first few of these texts for a sentence: `a, b, …`.
pub(crate) fn first_few(texts: impl IntoIterator<Item = String>, between: &str) -> String {
    let mut few: Vec<String> = texts.into_iter().take(NAMED_MAX + 1).collect();
    if few.len() > NAMED_MAX {
        few[NAMED_MAX] = "…".into();
    }
    few.join(between)
}

/// Returns a warning for a publisher if there are hidden files among these paths below a directory.
pub(crate) fn hidden_warning<'a>(directory: &Path, paths: impl Iterator<Item = &'a [u8]>) -> Option<String> {
    let is_hidden = |path: &&[u8]| path.split(|byte| *byte == b'/').any(|part| part.starts_with(b"."));
    let mut hidden = paths.filter(is_hidden);
    let first = hidden.next()?;
    let others = match hidden.count() {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    Some(format!(
        "{} has hidden files ({}{others}): get refuses a Metalink with such names if it is named by its URL, \
         for a server may not choose them; who trusts you can download it and fetch it by its file name",
        show(directory),
        show(OsStr::from_bytes(first))
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_leave_their_directory_are_refused() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"/etc/passwd", b"../x", b"a\0b", b"/"] {
            assert!(component(bad).is_err(), "{bad:?}");
        }
        assert!(component(&[b'a'; 256]).is_err());
    }

    #[test]
    fn odd_names_are_kept() {
        for good in
            [&b"a"[..], b"...", b"..a", b".hidden", b"two words", b"new\nline", b"\xff\xfe", &[b'a'; 255]]
        {
            assert_eq!(component(good).expect("a file name").as_bytes(), good);
        }
    }

    #[test]
    fn shown_names_cannot_drive_the_terminal() {
        assert_eq!(show(OsStr::from_bytes(b"a b\n\x1b[2J\xff\\")), "a b\\n\\x1b[2J\\xff\\\\");
        assert_eq!(show("naïve \u{202e}txt"), "naïve \\u{202e}txt");
        assert!(!show("\u{9b}31m").contains('\u{9b}'));
    }
}
