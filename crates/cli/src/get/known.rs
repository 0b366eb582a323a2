//! URLs whose content was learnt in an earlier transfer, with the validator that they had then: trust on
//! first use. A URL that has the same strong validator and the same length has the same content, or lies.
//!
//! One JSON object a line in `urls.jsonl` below the user's cache directory; whatever is no such line is
//! ignored.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

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

/// The content that this URL had when it had this strong validator and this length.
pub(super) fn recall(url: &str, validator: &str, length: u64) -> Option<ContentId> {
    let file = BufReader::new(File::open(path()?).ok()?);
    let lines = file.lines().take(2 * LINES_MAX).map_while(Result::ok);
    let mut fits = lines.filter_map(|line| {
        let line: Line = serde_json::from_str(&line).ok()?;
        let same = line.url == url && line.validator == validator && line.length == length;
        Some(ContentId { root: parse_root(&line.root).ok()?, length }).filter(|_| same)
    });
    // The last word counts.
    let first = fits.next()?;
    Some(fits.last().unwrap_or(first))
}

/// Remembers it. That this fails is no reason for a transfer to fail.
pub(super) fn remember(url: &str, validator: &str, id: ContentId) {
    let line = Line {
        url: url.to_owned(),
        validator: validator.to_owned(),
        length: id.length,
        root: id.to_string(),
    };
    let (Some(path), Ok(mut text)) = (path(), serde_json::to_string(&line)) else { return };
    text.push('\n');
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

/// Keeps the last [`LINES_MAX`] lines once there are twice as many.
fn prune(path: &std::path::Path) {
    let Ok(text) = fs::read_to_string(path) else { return };
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() >= 2 * LINES_MAX {
        let mut kept = lines[lines.len() - LINES_MAX..].join("\n");
        kept.push('\n');
        let new = path.with_extension("new");
        let _ = fs::write(&new, kept).and_then(|()| fs::rename(&new, path));
    }
}

fn path() -> Option<PathBuf> {
    Some(cache::directory()?.join("urls.jsonl"))
}
