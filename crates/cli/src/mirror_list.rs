//! `anabranch mirror-list`: writes and shows the files that make a file on plain web servers verifiable.

mod show;

use std::path::PathBuf;

use anabranch::mirror_list::{MirrorList as List, Url, check_piece_bytes, parse_url};
use anabranch::{Control, Event};
use clap::{Args, Subcommand, ValueHint};

use crate::exit::Outcome;
use crate::hash_line;
use crate::hints::with_options;
use crate::signals::stop_on_signals;
use crate::view::{Lines, say};

/// The long help of the command.
const LONG: &str = "Make plain web servers sources that need no trust.\n\n\
    `make` reads a file and writes two small ones to put beside it: NAME.meta4, a Metalink (RFC 5854) \
    with its hashes, the hashes of its pieces and the URLs of its mirrors, which aria2 and others read \
    too; and NAME.b3leaves, the hash of every 16 KiB, with which any server that has the bytes is as \
    good as `anabranch serve`. Of a directory it writes one Metalink with all its files. `show` tells what \
    a Metalink says.";

/// Make plain web servers sources that need no trust: hashes and mirrors of a file as a Metalink
#[derive(Args, Clone, Debug)]
#[command(
    long_about = LONG,
    after_help = "Examples:\n  \
        anabranch mirror-list make film.mkv https://a.example/film.mkv https://b.example/pub/\n  \
        anabranch mirror-list make album/ https://a.example/album/ https://b.example/pub/album/\n  \
        anabranch mirror-list show film.mkv.meta4",
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct MirrorList {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands of `mirror-list`.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Write the Metalink and the leaf list of a file, or the Metalink of a directory
    #[command(
        long_about = "Write the Metalink and the leaf list of a file, or the Metalink of a directory.\n\n\
        Reads FILE once and writes FILE.meta4 and FILE.b3leaves beside it. Put all three on the mirrors, in \
        one directory. Prints a URI that has the content's hash and the same mirrors.\n\n\
        Of a directory it writes DIR.meta4 beside it, which describes every file below it by name, size and \
        hashes (longer ones by those of their pieces too), and prints where that is. Symbolic links are \
        followed only within DIR. A Metalink does not say which files are executable."
    )]
    Make(Make),
    /// Say what a Metalink names
    #[command(long_about = "Say what a Metalink names: files, hashes, mirrors.\n\n\
        Reads version 4 (RFC 5854, .meta4) and the older version 3 (.metalink). What get has no use for is \
        counted and not shown: mirrors by other protocols, piece hashes of other kinds than sha-256.")]
    Show(Show),
}

/// Options of `mirror-list make`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
        anabranch mirror-list make film.mkv https://a.example/film.mkv https://b.example/pub/\n  \
        anabranch mirror-list make --output /srv/www --force film.mkv https://a.example/film.mkv\n  \
        anabranch mirror-list make album/ https://a.example/album/ https://b.example/pub/album/\n  \
        anabranch get \"$(anabranch mirror-list make --quiet film.mkv https://a.example/)\"")]
pub struct Make {
    /// The file or the directory, as it is on the mirrors
    #[arg(value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
    pub file: PathBuf,

    /// Where it is, the best place first: URLs of http or https. Of a file, one that ends in a slash is a
    /// directory with the file in it; of a directory, it is the directory itself, and may have no query
    #[arg(required = true, value_name = "URL", value_hint = ValueHint::Url, value_parser = parse_url)]
    pub urls: Vec<Url>,

    /// Write into this directory instead of that of FILE, or of the one DIR is in
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub output: Option<PathBuf>,

    /// Bytes of a piece in the Metalink (256Ki, 4Mi), a multiple of 16Ki. Without this option: 1Mi, more if
    /// FILE is longer than 128 GiB
    #[arg(long, value_name = "SIZE", value_parser = piece_size)]
    pub piece_size: Option<u64>,

    /// Overwrite what an earlier run has written
    #[arg(long)]
    pub force: bool,

    /// Report on standard output as JSON: one object
    #[arg(long)]
    pub json: bool,

    /// The URI and warnings only
    #[arg(short, long)]
    pub quiet: bool,
}

/// Options of `mirror-list show`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
        anabranch mirror-list show film.mkv.meta4\n  \
        anabranch mirror-list show --json film.mkv.meta4 | jq -r .uri")]
pub struct Show {
    /// The Metalink
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    /// Report on standard output as JSON, one object a file
    #[arg(long)]
    pub json: bool,
}

/// Parses a number of bytes: a whole number with an optional unit, `k M G` (1000) or `Ki Mi Gi` (1024).
fn piece_size(text: &str) -> Result<u64, String> {
    let text = text.trim().trim_end_matches('B');
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale: u64 = match unit.trim() {
        "" => 1,
        "k" | "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        other => return Err(format!("unknown unit '{other}': use k, M, G, Ki, Mi, Gi")),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(scale));
    let bytes = bytes.ok_or_else(|| format!("'{number}' is no number of that kind"))?;
    check_piece_bytes(bytes)
}

/// Runs a command of `anabranch mirror-list`.
///
/// # Errors
/// With the exit status of [`exit`](crate::exit): 2 if an argument makes no sense or a file does not exist, 1
/// if reading fails, 6 if a file cannot be written or exists already.
pub fn mirror_list(args: &MirrorList) -> Outcome {
    match &args.command {
        Command::Make(args) => make(args),
        Command::Show(args) => show::show(args),
    }
}

fn make(args: &Make) -> Outcome {
    let mut make = List::make(&args.file).overwrite(args.force).stopped_by(&stop_on_signals()?);
    for url in &args.urls {
        make = make.url(url.as_str())?;
    }
    if let Some(directory) = &args.output {
        make = make.output(directory);
    }
    if let Some(bytes) = args.piece_size {
        make = make.piece_bytes(bytes)?;
    }
    let mut lines = Lines::default();
    let made = make.run(|event| {
        match event {
            Event::Hashing(progress) if !args.quiet && !args.json => hash_line::draw(&mut lines, &progress),
            Event::Notice(notice) => {
                lines.draw(&[]);
                say(&format!("anabranch: {}", with_options(&notice)));
            }
            _ => {}
        }
        Control::Continue
    });
    lines.draw(&[]);
    show::made(args, &made?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_pieces() {
        assert_eq!(piece_size("16Ki"), Ok(16_384));
        assert_eq!(piece_size("1Mi"), Ok(1 << 20));
        assert_eq!(piece_size("1 MiB"), Ok(1 << 20));
        assert_eq!(piece_size("262144"), Ok(262_144));
        for bad in ["", "0", "Mi", "1.5Mi", "1000", "1M", "15Ki", "x", "-16Ki", "16Ti", "99999999999999Gi"] {
            assert!(piece_size(bad).is_err(), "{bad}");
        }
    }
}
