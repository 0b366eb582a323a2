//! Shows the contents of a Metalink, for people and for programs.

use std::fmt::Write as _;

use anabranch::mirror_list::{ListedFile, ListedMirror, MadeMirrorList, MirrorList};
use serde::Serialize;

use super::{Make, Show};
use crate::exit::{Failure, Outcome};
use crate::json;
use crate::stdout::print;
use crate::view::{bytes, printable, say};

/// The result of `make` for a file, as JSON.
#[derive(Debug, Serialize)]
struct Made<'a> {
    metalink: String,
    leaf_list: Option<String>,
    #[serde(flatten)]
    file: &'a ListedFile,
}

/// The result of `make` for a directory, as JSON.
#[derive(Debug, Serialize)]
struct MadeDirectory {
    metalink: String,
    files: usize,
    bytes: u64,
}

/// Reads a Metalink and prints its contents.
pub(super) fn show(args: &Show) -> Outcome {
    let name = args.file.to_string_lossy();
    let lower = name.to_ascii_lowercase();
    if lower.starts_with("http://") || lower.starts_with("https://") {
        return Err(Failure::usage(format!(
            "a Metalink is shown from a file: download {name} first, with curl -LO; anabranch get takes the \
             URL itself"
        )));
    }
    let mut out = String::new();
    for file in &MirrorList::read(&args.file)?.files {
        match args.json {
            true => out += &json::text("file", file),
            false => tell(&mut out, file),
        }
    }
    print(out.as_bytes())
}

/// Prints the result of `make`. The URI, or the path of a directory's Metalink, goes to standard output; the
/// rest goes to standard error.
pub(super) fn made(args: &Make, made: &MadeMirrorList) -> Outcome {
    let metalink = made.metalink.to_string_lossy().into_owned();
    if made.of_directory {
        return made_directory(args, made, metalink);
    }
    let file = made.list.files.first().ok_or_else(|| Failure::other("no file to name"))?;
    if args.json {
        let leaf_list = made.leaf_list.as_ref().map(|path| path.to_string_lossy().into_owned());
        return print(json::text("mirror-list", &Made { metalink, leaf_list, file }).as_bytes());
    }
    let uri = file.uri.as_ref().ok_or_else(|| Failure::other("no content to name"))?;
    let (some, all) = (file.uri_mirrors, file.mirrors.len());
    if some < all {
        say(&format!("anabranch: the URI has room for {some} of the {all} mirrors; the Metalink has all"));
    }
    if !args.quiet {
        for path in [Some(&made.metalink), made.leaf_list.as_ref()].into_iter().flatten() {
            say(&format!("wrote {}", path.display()));
        }
    }
    print(format!("{uri}\n").as_bytes())
}

fn made_directory(args: &Make, made: &MadeMirrorList, metalink: String) -> Outcome {
    let files = made.list.files.len();
    if args.json {
        let made = MadeDirectory { metalink, files, bytes: made.bytes };
        return print(json::text("mirror-list", &made).as_bytes());
    }
    if !args.quiet {
        say(&format!("wrote {}: {files} files, {}", made.metalink.display(), bytes(made.bytes)));
    }
    print(format!("{metalink}\n").as_bytes())
}

/// Writes the entry of a file for people.
fn tell(out: &mut String, file: &ListedFile) {
    let _ = writeln!(out, "{}", printable(&file.name));
    let mut line = |key: &str, value: &str| {
        let _ = writeln!(out, "  {key:<8} {}", printable(value));
    };
    match file.size {
        Some(size) if size < 1_000 => line("size", &format!("{size} bytes")),
        Some(size) => line("size", &format!("{size} bytes ({})", bytes(size))),
        None => line("size", "not said"),
    }
    let hashes = [
        ("blake3", &file.blake3),
        ("sha-256", &file.sha256),
        ("sha-384", &file.sha384),
        ("sha-512", &file.sha512),
    ];
    for (kind, hash) in hashes {
        if let Some(hash) = hash {
            line(kind, hash);
        }
    }
    if !file.weak_hashes.is_empty() {
        let kinds = file.weak_hashes.join(", ");
        line("weak", &format!("{kinds}: not used, for anybody can make another file with the same"));
    }
    match file.piece_bytes {
        Some(bytes) => {
            let kind = file.piece_kind.unwrap_or_default();
            line("pieces", &format!("{} of {bytes} bytes, {kind}", file.pieces));
        }
        None if file.ignored_pieces.is_empty() => line("pieces", "none"),
        None => line("pieces", &format!("none of use, only {}", file.ignored_pieces.join(", "))),
    }
    if let Some(leaves) = &file.leaves {
        line("leaves", leaves);
    }
    for ListedMirror { url, priority, location, .. } in &file.mirrors {
        let priority = priority.map(|priority| format!("priority {priority}"));
        let more: Vec<String> = priority.into_iter().chain(location.clone()).collect();
        match more.is_empty() {
            true => line("mirror", url),
            false => line("mirror", &format!("{url} ({})", more.join(", "))),
        }
    }
    if file.ignored_mirrors > 0 {
        line("mirrors", &format!("{} more that are not http or https", file.ignored_mirrors));
    }
    if let Some(uri) = &file.uri {
        line("uri", uri);
    }
}
