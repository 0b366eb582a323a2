//! Runs `anabranch minicache`: a content cache in one file. The crate `anabranch-minicache` does the work.

pub mod args;
mod failure;
mod serve;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use anabranch_cache::digest::HashKind;
use anabranch_minicache::image::{Damage, Described, Image, ImageError, Use, Writer};
use anabranch_minicache::layout::{Entry, Layout, Text};
use anabranch_mmtp::uri::Uri;
use serde::Serialize;

use crate::exit::{Code, Failure, Outcome};
use crate::json::{self, End};
use crate::names::show;
use crate::stdout;
use crate::view::printable;
use args::{Add, Check, Ls, Make, Minicache, MinicacheCommand, Rm};
use failure::failure;

/// The bytes of a file that are read at once.
const READ_BYTES: usize = 256 << 10;

/// Runs a command of `anabranch minicache`.
///
/// # Errors
/// 2 if the command line makes no sense or the file is no image, 3 if an object is not there, 5 if the
/// image is damaged, 6 if it cannot be written, 1 if it is in use or cannot be served.
pub fn minicache(args: &Minicache) -> Outcome {
    match &args.command {
        MinicacheCommand::Make(args) => make(args),
        MinicacheCommand::Add(args) => json::end(args.json, add(args)),
        MinicacheCommand::Rm(args) => remove(args),
        MinicacheCommand::Ls(args) => list(args),
        MinicacheCommand::Check(args) => check(args),
        MinicacheCommand::Serve(args) => serve::serve(args),
    }
}

fn open(path: &Path, purpose: Use) -> Outcome<Image> {
    Image::open(path, purpose).map_err(|error| failure(path, &error))
}

fn make(args: &Make) -> Outcome {
    let layout = Layout::of_size(args.entries, args.chunk, args.size);
    let layout = layout.map_err(|e| Failure::usage(format!("{}: {e}", show(&args.image))))?;
    Image::create(&args.image, layout).map(drop).map_err(|error| failure(&args.image, &error))
}

/// An object, as a line of JSON.
#[derive(Serialize)]
struct ObjectLine<'a> {
    digest: String,
    root: String,
    /// The URI by which `get` fetches it from a source that offers it by mmTP.
    uri: String,
    length: u64,
    media_type: &'a str,
    label: &'a str,
}

impl<'a> ObjectLine<'a> {
    fn of(entry: &'a Entry) -> Self {
        Self {
            digest: entry.digest.to_string(),
            root: entry.id.to_string(),
            uri: Uri::new(entry.id).to_string(),
            length: entry.id.length,
            media_type: entry.media_type.as_str(),
            label: entry.label.as_str(),
        }
    }
}

fn add(args: &Add) -> Outcome {
    let media_type = Text::new(&args.media_type).filter(|_| {
        let fits = |c: u8| c.is_ascii_graphic() || c == b' ';
        args.media_type.bytes().all(fits)
    });
    let media_type =
        media_type.ok_or_else(|| Failure::usage("a media type has up to 48 characters of ASCII"))?;
    let image = Arc::new(open(&args.image, Use::Write)?);
    for path in &args.files {
        let slot = add_file(&image, &args.image, path, media_type)?;
        let Some(entry) = image.table().entry(slot) else { continue };
        match args.json {
            true => json::put("object", &ObjectLine::of(&entry)),
            false => stdout::line(format!("{}  {}", entry.digest, printable(entry.label.as_str()))),
        }
    }
    Ok(())
}

fn add_file(image: &Arc<Image>, of: &Path, path: &Path, media_type: Text) -> Outcome<u32> {
    let unread = |e: std::io::Error| Failure::usage(format!("cannot read {}: {e}", show(path))).at(path);
    let mut file = File::open(path).map_err(unread)?;
    let metadata = file.metadata().map_err(unread)?;
    if !metadata.is_file() {
        return Err(Failure::usage(format!("{} is no plain file", show(path))).at(path));
    }
    let wrong = |error: ImageError| match error {
        ImageError::Wrong(why) => {
            Failure::other(format!("{} changed while it was read: {why}", show(path))).at(path)
        }
        error => failure(of, &error),
    };
    let mut writer = Writer::begin(image, metadata.len(), HashKind::Sha256, false).map_err(wrong)?;
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let read = file.read(&mut buffer).map_err(unread)?;
        if read == 0 {
            break;
        }
        writer.write(&buffer[..read]).map_err(wrong)?;
    }
    let label = path.file_name().map(|name| Text::cut(&name.to_string_lossy())).unwrap_or_default();
    writer.finish(None, Described { media_type, label }).map_err(wrong)
}

fn remove(args: &Rm) -> Outcome {
    let image = open(&args.image, Use::Write)?;
    for name in &args.names {
        let Some(found) = image.table().find(name) else {
            let says = format!("{} does not have {name}", show(&args.image));
            return Err(Failure::new(Code::NotFound, says).at(&*args.image));
        };
        image.remove(found.slot).map_err(|error| failure(&args.image, &error))?;
    }
    Ok(())
}

/// The end of a list: the room of the image.
#[derive(Serialize)]
struct RoomLine {
    objects: u64,
    entries: u64,
    used_bytes: u64,
    capacity_bytes: u64,
    #[serde(flatten)]
    end: End,
}

fn list(args: &Ls) -> Outcome {
    let image = open(&args.image, Use::Read).inspect_err(|failure| {
        if args.json {
            json::put("summary", &End::new(Some(failure)));
        }
    })?;
    for (_, entry) in image.table().entries() {
        match args.json {
            true => json::put("object", &ObjectLine::of(&entry)),
            false => {
                let (digest, length) = (entry.digest, entry.id.length);
                stdout::line(format!("{digest}  {length:>14}  {}", printable(entry.label.as_str())));
            }
        }
    }
    if args.json {
        let (room, chunk) = (image.room(), u64::from(image.layout().chunk_bytes()));
        json::put(
            "summary",
            &RoomLine {
                objects: room.objects,
                entries: room.entries,
                used_bytes: room.used_chunks * chunk,
                capacity_bytes: room.chunks * chunk,
                end: End::new(None),
            },
        );
    }
    Ok(())
}

/// Damage, as a line of JSON.
#[derive(Serialize)]
struct DamageLine {
    slot: u32,
    /// The object, if it is known.
    digest: Option<String>,
    text: String,
}

/// The end of a check.
#[derive(Serialize)]
struct CheckedLine {
    objects: u64,
    checked_bytes: u64,
    damaged: u64,
    #[serde(flatten)]
    end: End,
}

fn check(args: &Check) -> Outcome {
    let image = open(&args.image, Use::Read).inspect_err(|failure| {
        if args.json {
            json::put("summary", &End::new(Some(failure)));
        }
    })?;
    let checked = image.check(|damage| {
        let line = damage_line(&damage);
        match (args.json, &line.digest) {
            (true, _) => json::put("damage", &line),
            (false, Some(digest)) => stdout::line(format!("{digest}: {}", line.text)),
            (false, None) => stdout::line(format!("slot {}: {}", line.slot, line.text)),
        }
    });
    let outcome = match checked.damaged {
        0 => Ok(()),
        damaged => {
            let says = format!("{}: {damaged} damaged", show(&args.image));
            Err(Failure::new(Code::Corrupt, says).at(&*args.image))
        }
    };
    if args.json {
        json::put(
            "summary",
            &CheckedLine {
                objects: checked.objects,
                checked_bytes: checked.bytes,
                damaged: checked.damaged,
                end: End::new(outcome.as_ref().err()),
            },
        );
    } else if outcome.is_ok() {
        stdout::line(format!(
            "{} objects, {} bytes: all as they were written",
            checked.objects, checked.bytes
        ));
    }
    outcome
}

fn damage_line(damage: &Damage) -> DamageLine {
    let of = |slot: u32, entry: &Entry, text: String| DamageLine {
        slot,
        digest: Some(entry.digest.to_string()),
        text,
    };
    match damage {
        Damage::Entry(slot) => {
            let text = "its entry is torn, and counts as empty".to_owned();
            DamageLine { slot: *slot, digest: None, text }
        }
        Damage::Hidden(slot, entry) => of(*slot, entry, "it is not found by its names".to_owned()),
        Damage::Shared(slot, entry) => of(*slot, entry, "it shares chunks with another object".to_owned()),
        Damage::Object(slot, entry, error) => of(*slot, entry, error.to_string()),
    }
}
