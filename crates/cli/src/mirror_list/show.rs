//! What a Metalink says, for people and for programs.

use std::fmt::Write as _;
use std::io::{self, Read as _};
use std::path::Path;

use mirror::metalink::{File, METALINK_MAX, Metalink, PRIORITY_LAST};
use mmtp::uri::{URI_MAX, Uri};
use serde::Serialize;

use super::{Make, Show, open};
use crate::exit::{Failure, Outcome};
use crate::man::print;
use crate::names::show as shown;
use crate::view::bytes;

/// A file of a Metalink as JSON.
#[derive(Debug, Serialize)]
struct Described {
    name: String,
    size: Option<u64>,
    /// What `get` takes, if the content's name and size are known.
    uri: Option<String>,
    sha256: Option<String>,
    sha512: Option<String>,
    blake3: Option<String>,
    piece_bytes: Option<u64>,
    pieces: usize,
    ignored_pieces: Vec<String>,
    leaves: Option<String>,
    mirrors: Vec<Place>,
    ignored_mirrors: u32,
}

#[derive(Debug, Serialize)]
struct Place {
    url: String,
    /// `None` if it is not said.
    priority: Option<u32>,
    location: Option<String>,
}

/// What `make` has done, as JSON.
#[derive(Debug, Serialize)]
struct Made<'a> {
    event: &'static str,
    metalink: String,
    leaf_list: Option<String>,
    #[serde(flatten)]
    file: &'a Described,
}

/// What `make` has done of a directory, as JSON.
#[derive(Debug, Serialize)]
struct MadeDirectory {
    event: &'static str,
    metalink: String,
    files: usize,
    bytes: u64,
}

/// What `show` has read, as JSON.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    event: &'static str,
    #[serde(flatten)]
    file: &'a Described,
}

impl Described {
    fn of(file: &File) -> Self {
        Self {
            name: file.name.clone(),
            size: file.size,
            uri: uri(file).map(|uri| uri.to_string()),
            sha256: file.hashes.sha256.as_ref().map(|hash| hex(hash)),
            sha512: file.hashes.sha512.as_ref().map(|hash| hex(hash)),
            blake3: file.hashes.blake3.as_ref().map(|hash| hex(hash)),
            piece_bytes: file.pieces.as_ref().map(|pieces| pieces.bytes),
            pieces: file.pieces.as_ref().map_or(0, |pieces| pieces.sha256.len()),
            ignored_pieces: file.ignored_pieces.clone(),
            leaves: file.leaves.clone(),
            mirrors: file
                .mirrors
                .iter()
                .map(|mirror| Place {
                    url: mirror.url.to_string(),
                    priority: (mirror.priority < PRIORITY_LAST).then_some(mirror.priority),
                    location: mirror.location.clone(),
                })
                .collect(),
            ignored_mirrors: file.ignored_mirrors,
        }
    }
}

/// The URI of a file whose content is known, with as many of its mirrors as it can hold.
fn uri(file: &File) -> Option<Uri> {
    let mut uri = Uri {
        name: Some(file.file_name().as_bytes().to_vec()),
        // Those that need a password are nobody else's.
        mirrors: file
            .mirrors
            .iter()
            .filter(|m| !m.url.has_credentials())
            .map(|m| m.url.to_string())
            .collect(),
        ..Uri::new(file.content()?)
    };
    while uri.to_string().len() > URI_MAX && uri.mirrors.pop().is_some() {}
    Some(uri)
}

/// Reads a Metalink and tells what is in it.
pub(super) fn show(args: &Show) -> Outcome {
    let name = shown(&args.file);
    let lower = name.to_ascii_lowercase();
    if lower.starts_with("http://") || lower.starts_with("https://") {
        return Err(Failure::usage(format!(
            "a Metalink is shown from a file: download {name} first, with curl -LO; anabranch get takes the \
             URL itself"
        )));
    }
    let file = open(&args.file)?;
    if file.metadata().is_ok_and(|meta| meta.is_dir()) {
        return Err(Failure::usage(format!("{name} is a directory")));
    }
    let unreadable = |e: io::Error| Failure::other(format!("cannot read {name}: {e}"));
    let mut contents = Vec::new();
    file.take(METALINK_MAX as u64 + 1).read_to_end(&mut contents).map_err(unreadable)?;
    if contents.len() > METALINK_MAX {
        return Err(Failure::usage(format!(
            "{name} is no Metalink of use: it is longer than the {METALINK_MAX} bytes that are read"
        )));
    }
    let metalink = Metalink::parse(&contents)
        .map_err(|bad| Failure::usage(format!("{name} is no Metalink of use: {bad}")))?;
    let mut out = String::new();
    for file in &metalink.files {
        let described = Described::of(file);
        match args.json {
            true => out += &json(&Shown { event: "file", file: &described })?,
            false => tell(&mut out, &described),
        }
    }
    print(out.as_bytes())
}

/// Tells what was made: the URI on standard output, the rest beside it.
pub(super) fn made(args: &Make, file: &File, metalink: &Path, leaves: Option<&Path>) -> Outcome {
    let described = Described::of(file);
    if args.json {
        let leaf_list = leaves.map(|path| path.to_string_lossy().into_owned());
        let metalink = metalink.to_string_lossy().into_owned();
        return print(
            json(&Made { event: "mirror-list", metalink, leaf_list, file: &described })?.as_bytes(),
        );
    }
    let uri = uri(file).ok_or_else(|| Failure::other("no content to name"))?;
    if uri.mirrors.len() < file.mirrors.len() {
        let (some, all) = (uri.mirrors.len(), file.mirrors.len());
        eprintln!("anabranch: the URI has room for {some} of the {all} mirrors; the Metalink has all");
    }
    if !args.quiet {
        for path in [Some(metalink), leaves].into_iter().flatten() {
            eprintln!("wrote {}", shown(path));
        }
    }
    print(format!("{uri}\n").as_bytes())
}

/// The same of a directory: on standard output, where its Metalink is.
pub(super) fn made_directory(args: &Make, files: &[File], length: u64, metalink: &Path) -> Outcome {
    let path = metalink.to_string_lossy().into_owned();
    if args.json {
        let made = MadeDirectory { event: "mirror-list", metalink: path, files: files.len(), bytes: length };
        return print(json(&made)?.as_bytes());
    }
    if !args.quiet {
        eprintln!("wrote {}: {} files, {}", shown(metalink), files.len(), bytes(length));
    }
    print(format!("{path}\n").as_bytes())
}

fn json(object: &impl Serialize) -> Outcome<String> {
    let line = serde_json::to_string(object).map_err(|e| Failure::other(format!("cannot report: {e}")))?;
    Ok(line + "\n")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A file for people.
fn tell(out: &mut String, file: &Described) {
    let _ = writeln!(out, "{}", shown(&file.name));
    let mut line = |key: &str, value: &str| {
        let _ = writeln!(out, "  {key:<8} {value}");
    };
    match file.size {
        Some(size) if size < 1_000 => line("size", &format!("{size} bytes")),
        Some(size) => line("size", &format!("{size} bytes ({})", bytes(size))),
        None => line("size", "not said"),
    }
    let hashes = [("blake3", &file.blake3), ("sha-256", &file.sha256), ("sha-512", &file.sha512)];
    for (kind, hash) in hashes {
        if let Some(hash) = hash {
            line(kind, hash);
        }
    }
    match file.piece_bytes {
        Some(bytes) => line("pieces", &format!("{} of {bytes} bytes, sha-256", file.pieces)),
        None if file.ignored_pieces.is_empty() => line("pieces", "none"),
        None => line("pieces", &format!("none of use, only {}", shown(file.ignored_pieces.join(", ")))),
    }
    if let Some(leaves) = &file.leaves {
        line("leaves", &shown(leaves));
    }
    for Place { url, priority, location } in &file.mirrors {
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
