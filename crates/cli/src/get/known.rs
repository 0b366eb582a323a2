//! URLs whose content was learnt in an earlier transfer, with the validator that they had then: trust on
//! first use. A URL that has the same strong validator and the same length has the same content, or lies.
//! One with a query, a name or a password may be secret, and is not written down.
//!
//! One JSON object a line in `urls.jsonl` below the user's cache directory; whatever is no such line is
//! ignored.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use mirror::url::Url;
use mmtp::ContentId;
use mmtp::id::parse_root;
use serde::{Deserialize, Serialize};

use crate::catalog::cache;

/// Lines that are read, and kept when there are more.
const LINES_MAX: usize = 8_192;

#[derive(Deserialize, Serialize)]
struct Line {
    url: String,
    validator: String,
    length: u64,
    root: String,
}

/// The content that the first known one of these URLs had when it had this strong validator and this length.
pub(super) fn recall<'a>(
    validated: impl Iterator<Item = (&'a Url, &'a str)>,
    length: u64,
) -> Option<(ContentId, &'a Url)> {
    let mut validated = validated.filter(|(url, _)| is_public(url)).peekable();
    validated.peek()?;
    let file = BufReader::new(File::open(path()?).ok()?);
    let lines = file.lines().take(2 * LINES_MAX).map_while(Result::ok);
    let lines = lines.filter_map(|line| serde_json::from_str(&line).ok());
    let lines: Vec<Line> = lines.filter(|line: &Line| line.length == length).collect();
    validated.find_map(|(url, validator)| {
        // The last word counts.
        let mut same = lines.iter().rev().filter(|l| l.url == url.as_str() && l.validator == validator);
        let root = same.find_map(|line| parse_root(&line.root).ok())?;
        Some((ContentId { root, length }, url))
    })
}

/// Remembers URLs, with their strong validators, that have this content. That this fails is no reason for a
/// transfer to fail.
pub(super) fn remember<'a>(validated: impl Iterator<Item = (&'a str, &'a str)>, id: ContentId) {
    let line = |(url, validator): (&str, &str)| {
        let url = Url::parse(url).ok().filter(is_public)?;
        let line = Line {
            url: url.as_str().to_owned(),
            validator: validator.to_owned(),
            length: id.length,
            root: id.to_string(),
        };
        Some(serde_json::to_string(&line).ok()? + "\n")
    };
    let text: String = validated.filter_map(line).collect();
    let Some(path) = path().filter(|_| !text.is_empty()) else { return };
    if let Some(parent) = path.parent() {
        let _ = fs::DirBuilder::new().recursive(true).mode(0o700).create(parent);
    }
    let mut open = OpenOptions::new();
    open.append(true).create(true).mode(0o600);
    let written = open.open(&path).and_then(|mut file| file.write_all(text.as_bytes()));
    if written.is_ok() {
        prune(&path);
    }
}

/// Forgets what was known of this URL: it was wrong.
pub(super) fn forget(url: &Url) {
    let Some(path) = path() else { return };
    let Ok(text) = fs::read_to_string(&path) else { return };
    let is_other = |line: &&str| {
        let line: Result<Line, _> = serde_json::from_str(line);
        line.is_ok_and(|line| line.url != url.as_str())
    };
    replace(&path, text.lines().filter(is_other));
}

/// Keeps the last [`LINES_MAX`] lines once there are twice as many.
fn prune(path: &Path) {
    let Ok(text) = fs::read_to_string(path) else { return };
    let lines = text.lines().count();
    if lines >= 2 * LINES_MAX {
        replace(path, text.lines().skip(lines - LINES_MAX));
    }
}

fn replace<'a>(path: &Path, lines: impl Iterator<Item = &'a str>) {
    let kept: String = lines.flat_map(|line| [line, "\n"]).collect();
    let new = path.with_extension("new");
    // What a crash left there may be of another mode.
    let _ = fs::remove_file(&new);
    let mut open = OpenOptions::new();
    open.write(true).create_new(true).mode(0o600);
    let _ = open
        .open(&new)
        .and_then(|mut file| file.write_all(kept.as_bytes()))
        .and_then(|()| fs::rename(&new, path));
}

fn is_public(url: &Url) -> bool {
    // A Url has no fragment, and in a path a question mark is escaped.
    !url.has_credentials() && !url.as_str().contains('?')
}

fn path() -> Option<PathBuf> {
    Some(cache::directory()?.join("urls.jsonl"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_kept_for_the_owner_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("urls.jsonl");
        fs::write(&path, "old\n".repeat(2 * LINES_MAX - 1) + "new\n").expect("written");
        prune(&path);
        let text = fs::read_to_string(&path).expect("read");
        assert!(text.lines().count() == LINES_MAX && text.ends_with("old\nnew\n"));
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn what_may_be_secret_is_not_written() {
        let url = |text| Url::parse(text).expect("a URL");
        assert!(is_public(&url("https://h/@scope/f")));
        assert!(!is_public(&url("https://h/f?token=1")));
        assert!(!is_public(&url("https://u:p@h/f")) && !is_public(&url("https://u@h/f")));
    }
}
