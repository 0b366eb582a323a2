//! `anabranch mirror-list`: what makes a file on plain web servers verifiable, written and shown.
//!
//! `docs/mirrors.md` has the formats; [`mirror::metalink`] and [`mirror::leaf_list`] read and write them.

mod directory;
mod hash;
mod show;

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use algo::Span;
use clap::{Args, Subcommand, ValueHint};
use mirror::leaf_list::{self, LEAVES_MAX, LeafList};
use mirror::metalink::{self, Hashes, MIRRORS_MAX, Metalink, Mirror, PIECES_MAX, Pieces, is_safe_name};
use mirror::url::{Url, encode_component};
use mmtp::id::{BLOCK_BYTES, LENGTH_MAX};
use net::Clock;

use crate::catalog::Stamp;
use crate::exit::{Code, Failure, Outcome};
use crate::host::stop_signals;
use crate::names::show as shown;
use crate::view::{Lines, bytes, duration};
use hash::{Hashed, Hashing};

/// Bytes of a piece unless told otherwise, or the file is so long that there would be too many.
const PIECE_BYTES: u64 = 1 << 20;
/// Piece hashes that are written at most: a Metalink of 11 MB.
const PIECES_MADE_MAX: u64 = PIECES_MAX as u64 / 2;
/// Progress is shown when it takes longer than this.
const PROGRESS_AFTER: Span = Span::from_secs(1);

/// What `--help` says of it.
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
    #[arg(required = true, value_name = "URL", value_hint = ValueHint::Url, value_parser = mirror_url)]
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

fn mirror_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|e| e.to_string())?;
    match url.has_credentials() {
        true => Err("the user name and password in it would be published".into()),
        false => Ok(url),
    }
}

/// Parses a size: a whole number with an optional unit, `k M G` (1000) or `Ki Mi Gi` (1024), of bytes.
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
    match bytes {
        0 => Err("expected 16Ki or more".into()),
        n if n % BLOCK_BYTES as u64 != 0 => Err("expected a multiple of 16Ki, such as 256Ki or 1Mi".into()),
        n if n > LENGTH_MAX => Err("longer than any file".into()),
        n => Ok(n),
    }
}

/// Runs it.
///
/// # Errors
/// As [`exit`](crate::exit) has it: 2 if what was given makes no sense or is not there, 1 if reading it fails
/// on the way, 6 if something cannot be written or is there already.
pub fn mirror_list(args: &MirrorList) -> Outcome {
    match &args.command {
        Command::Make(args) => make(args),
        Command::Show(args) => show::show(args),
    }
}

/// Where things go, worked out before the file is read.
struct Plan {
    name: String,
    mirrors: Vec<Mirror>,
    metalink: PathBuf,
    leaves: PathBuf,
}

impl Plan {
    fn of(args: &Make) -> Outcome<Self> {
        let named = args.file.file_name().and_then(|name| name.to_str()).filter(|name| is_safe_name(name));
        let name = named.ok_or_else(|| {
            let file = shown(&args.file);
            Failure::usage(format!(
                "a Metalink cannot name {file}: expected a name in UTF-8 without controls"
            ))
        })?;
        let directory = args.output.as_deref().or(args.file.parent()).unwrap_or(Path::new(""));
        let at = |suffix: &str| directory.join(format!("{name}{suffix}"));
        Ok(Self {
            name: name.to_owned(),
            mirrors: mirrors(&args.urls, name)?,
            metalink: at(".meta4"),
            leaves: at(leaf_list::SUFFIX),
        })
    }
}

/// The mirrors in the order given, each once.
fn mirrors(urls: &[Url], name: &str) -> Outcome<Vec<Mirror>> {
    let mut mirrors: Vec<Mirror> = Vec::new();
    for url in urls {
        let url = match url.path().ends_with('/') && !url.has_query() {
            true => url.join(&encode_component(name)).map_err(|e| Failure::usage(format!("{url}: {e}")))?,
            false => url.clone(),
        };
        if mirrors.iter().all(|mirror| mirror.url != url) {
            mirrors.push(Mirror { url, priority: mirrors.len() as u32 + 1, location: None });
        }
    }
    match mirrors.len() {
        0..=MIRRORS_MAX => Ok(mirrors),
        n => Err(Failure::usage(format!("{n} mirrors, expected at most {MIRRORS_MAX}"))),
    }
}

/// Bytes of a piece of a file of `length`.
fn piece_bytes(asked: Option<u64>, length: u64) -> Outcome<u64> {
    let fits = |bytes: u64| Pieces::count(length, bytes) <= PIECES_MADE_MAX;
    let mut fitting = PIECE_BYTES;
    while !fits(fitting) {
        fitting *= 2;
    }
    match asked {
        Some(bytes) if !fits(bytes) => Err(Failure::usage(format!(
            "--piece-size: {} pieces are too many for a Metalink, try {}Mi",
            Pieces::count(length, bytes),
            fitting >> 20
        ))),
        Some(bytes) => Ok(bytes),
        None => Ok(fitting),
    }
}

fn make(args: &Make) -> Outcome {
    if args.file.is_dir() {
        return directory::make(args, |work| watched(args, work.length, &work.done, |stop| work.run(stop))?);
    }
    let plan = Plan::of(args)?;
    for path in [&plan.metalink, &plan.leaves] {
        if !args.force && path.symlink_metadata().is_ok() {
            return Err(exists(path));
        }
    }
    let unreadable = |e: io::Error| Failure::other(format!("cannot read {}: {e}", shown(&args.file)));
    let file = open(&args.file)?;
    if !file.metadata().is_ok_and(|meta| meta.is_file()) {
        return Err(Failure::usage(format!("cannot read {}: not a regular file", shown(&args.file))));
    }
    let stamp = Stamp::of(&file).map_err(unreadable)?;
    if stamp.length > LENGTH_MAX {
        return Err(unreadable(io::Error::other("longer than 64 TiB")));
    }
    let bytes = piece_bytes(args.piece_size, stamp.length)?;
    let hashed = hash_watched(args, &file, stamp.length, bytes)?.map_err(unreadable)?;
    if Stamp::of(&file).map_err(unreadable)? != stamp {
        return Err(unreadable(io::Error::other("it changed while it was being hashed")));
    }
    write_all(args, &plan, hashed, bytes)
}

/// Opens a file that was named.
fn open(path: &Path) -> Outcome<File> {
    File::open(path).map_err(|e| Failure::usage(format!("cannot read {}: {e}", shown(path))))
}

/// Hashes a file in a thread.
fn hash_watched(args: &Make, file: &File, length: u64, piece_bytes: u64) -> Outcome<io::Result<Hashed>> {
    let done = AtomicU64::new(0);
    watched(args, length, &done, |stop| Hashing { file, length, piece_bytes, done: &done, stop }.run())
}

/// Does `work` in a thread, until it is told to stop, and shows how much of `length` is `done`.
fn watched<T: Send>(
    args: &Make,
    length: u64,
    done: &AtomicU64,
    work: impl FnOnce(&AtomicBool) -> T + Send,
) -> Outcome<T> {
    let (_, stop) = stop_signals().map_err(|e| Failure::other(format!("cannot catch signals: {e}")))?;
    let (clock, cancelled) = (Clock::start(), AtomicBool::new(false));
    let mut lines = Lines::default();
    let result = thread::scope(|scope| {
        let worker = scope.spawn(|| work(&cancelled));
        let start = clock.now();
        // Short naps at first: most files are hashed at once.
        let mut nap = Span::from_millis(1);
        while !worker.is_finished() {
            clock.sleep_until(clock.now() + nap);
            nap = nap.times(2).min(Span::from_millis(100));
            cancelled.store(stop.load(Ordering::Relaxed), Ordering::Relaxed);
            let passed = clock.now().since(start);
            if !args.quiet && !args.json && passed > PROGRESS_AFTER {
                lines.draw(&[progress(done.load(Ordering::Relaxed), length, passed)]);
            }
        }
        lines.draw(&[]);
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    if stop.load(Ordering::Relaxed) {
        return Err(Failure::new(Code::Interrupted, "interrupted while hashing; nothing was written"));
    }
    Ok(result)
}

fn progress(done: u64, total: u64, passed: Span) -> String {
    let seconds = passed.as_nanos() as f64 / 1e9;
    let pace = done as f64 / seconds;
    let left = duration((total - done.min(total)) as f64 / pace);
    format!("hashing: {} of {}  {}/s  {left} left", bytes(done), bytes(total), bytes(pace as u64))
}

fn write_all(args: &Make, plan: &Plan, hashed: Hashed, bytes: u64) -> Outcome {
    let Hashed { id, sha256, pieces, leaves } = hashed;
    let list = if LeafList::encoded_len(id.length) <= LEAVES_MAX as u64 {
        let list =
            LeafList::new(id, leaves).ok_or_else(|| Failure::other("the hashes do not fit together"))?;
        write(&plan.leaves, &list.encode(), args.force)?;
        true
    } else {
        eprintln!("anabranch: too long for a leaf list: the hashes of the pieces have to do");
        false
    };
    let file = metalink::File {
        name: plan.name.clone(),
        size: Some(id.length),
        hashes: Hashes { sha256: Some(sha256), sha512: None, blake3: Some(id.root) },
        pieces: (!pieces.is_empty()).then_some(Pieces { bytes, sha256: pieces }),
        mirrors: plan.mirrors.clone(),
        leaves: list.then(|| leaf_list::reference(&plan.name)),
        ..metalink::File::default()
    };
    let metalink = Metalink { files: vec![file] };
    let text = metalink.emit().map_err(|e| Failure::usage(format!("no Metalink can say this: {e}")))?;
    write(&plan.metalink, text.as_bytes(), args.force)?;
    let leaves = list.then_some(&*plan.leaves);
    show::made(args, &metalink.files[0], &plan.metalink, leaves)
}

/// Puts a whole file in its place, or none.
fn write(path: &Path, contents: &[u8], force: bool) -> Outcome {
    let failed = |e: io::Error| Failure::target(format!("cannot write {}: {e}", shown(path)));
    let temporary = path.with_file_name(format!(".anabranch-mirror-list.{}", std::process::id()));
    // One of a process of the same number that was killed.
    let _ = std::fs::remove_file(&temporary);
    let written = File::create_new(&temporary).and_then(|mut file| {
        file.write_all(contents)?;
        file.sync_all()
    });
    let placed = written.and_then(|()| place(&temporary, path, force));
    if let Err(e) = placed {
        let _ = std::fs::remove_file(&temporary);
        return Err(if e.kind() == io::ErrorKind::AlreadyExists { exists(path) } else { failed(e) });
    }
    Ok(())
}

/// Gives a file its name; without `force` not that of another, even if it appears at this very moment.
fn place(from: &Path, to: &Path, force: bool) -> io::Result<()> {
    if force {
        return std::fs::rename(from, to);
    }
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        use nix::errno::Errno;
        use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
        match renameat2(AT_FDCWD, from, AT_FDCWD, to, RenameFlags::RENAME_NOREPLACE) {
            // A file system that does not know the flag.
            Err(Errno::EINVAL | Errno::ENOSYS) => {}
            other => return Ok(other?),
        }
    }
    std::fs::hard_link(from, to)?;
    std::fs::remove_file(from)
}

fn exists(path: &Path) -> Failure {
    Failure::target(format!("{} exists already: remove it, or say --force to overwrite it", shown(path)))
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
        assert_eq!(piece_bytes(None, 0).unwrap(), PIECE_BYTES);
        assert_eq!(piece_bytes(None, PIECES_MADE_MAX << 20).unwrap(), PIECE_BYTES);
        assert_eq!(piece_bytes(None, (PIECES_MADE_MAX << 20) + 1).unwrap(), 2 * PIECE_BYTES);
        assert_eq!(piece_bytes(Some(16_384), 1 << 30).unwrap(), 16_384);
        let failure = piece_bytes(Some(16_384), 1 << 40).unwrap_err();
        assert!(failure.code == Code::Usage && failure.message.contains("try 8Mi"), "{failure}");
        assert!(piece_bytes(None, LENGTH_MAX).is_ok());
    }

    #[test]
    fn urls_of_mirrors() {
        let of = |urls: &[&str]| {
            let urls: Vec<Url> = urls.iter().map(|url| mirror_url(url).unwrap()).collect();
            let mirrors = mirrors(&urls, "a b").unwrap();
            mirrors.iter().map(|m| format!("{} {}", m.priority, m.url)).collect::<Vec<_>>()
        };
        assert_eq!(of(&["http://h/x", "https://h/pub/"]), ["1 http://h/x", "2 https://h/pub/a%20b"]);
        assert_eq!(of(&["http://h/d/?n=x/"]), ["1 http://h/d/?n=x/"], "it names no directory");
        assert_eq!(of(&["http://h", "http://h/", "http://h/a%20b"]), ["1 http://h/a%20b"]);
        for bad in ["", "x", "ftp://h/x", "http://user:pass@h/x", "file:///x"] {
            assert!(mirror_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_file_in_the_way_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("x");
        write(&path, b"one", false).expect("it is written");
        assert_eq!(write(&path, b"two", false).expect_err("it is there").code, Code::Target);
        assert_eq!(std::fs::read(&path).expect("a file"), b"one");
        write(&path, b"three", true).expect("it is written");
        assert_eq!(std::fs::read(&path).expect("a file"), b"three");
        assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 1);
        let nowhere = dir.path().join("none/x");
        assert_eq!(write(&nowhere, b"x", true).expect_err("no directory").code, Code::Target);
    }

    #[test]
    fn how_far_it_is() {
        let line = progress(1_000_000_000, 4_000_000_000, Span::from_secs(2));
        assert_eq!(line, "hashing: 1.0 GB of 4.0 GB  500.0 MB/s  6 s left");
    }
}
