//! `anabranch demo`: shows the program at work on this machine alone, without a network and without root.
//!
//! Each of three sources is a process that runs `anabranch serve` with its own limit. A [`Get`] of the
//! library takes a file from all of them over the loopback interface. The fastest source is killed in the
//! middle and started again. The time that each source alone would take is computed from its limit.

mod script;
mod source_process;
mod table;

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anabranch::{Event, Get, Report, Stop, Transfer};
use anabranch_mmtp::ContentId;
use anabranch_mmtp::uri::Uri;
use blake3::Hasher;
use serde::Serialize;
use tempfile::TempDir;

use crate::args::Demo;
use crate::exit::{Code, Failure, Outcome};
use crate::json;
use crate::signals::stop_on_signals;
use crate::view::bytes;
use script::Script;
use source_process::{FILE, SOURCES, SourceProcess};
use table::Row;

/// The name of the file that arrives, in the demonstration's directory.
const COPY: &str = "copy.bin";
/// The number of bytes that are made and written at a time.
const PIECE_BYTES: usize = 1 << 20;
/// The time between two checks whether to kill a source or to start it again.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The directory of the demonstration. It is removed when this is dropped.
struct Ground {
    dir: TempDir,
    /// The id of the file that the sources offer.
    id: ContentId,
}

/// The file, as a line of JSON.
#[derive(Serialize)]
struct FileLine {
    path: PathBuf,
    total_bytes: u64,
    /// The BLAKE3 hash of the file, as b3sum prints it.
    root: String,
}

/// Runs the demonstration.
///
/// # Errors
/// If the file did not arrive completely, or on Ctrl-C.
pub fn demo(args: &Demo) -> Outcome {
    json::end(args.json, show(args))
}

fn show(args: &Demo) -> Outcome {
    let stop = stop_on_signals()?;
    let ground = Ground::new(args)?;
    let mut script = Script::new(args.json);
    let shown = run(&ground, &mut script, &stop);
    script.clear();
    if args.keep {
        script.say(&format!("Kept: {}", ground.dir.path().display()));
    }
    match shown {
        // Ctrl-C ends the sources as well, and their end may be noticed first.
        Err(_) if stop.is_stopped() => {
            Err(Failure::new(Code::Interrupted, "interrupted: the sources have been ended"))
        }
        shown => shown,
    }
}

/// Runs the demonstration from the moment when the file exists to the end of the sources.
fn run(ground: &Ground, script: &mut Script, stop: &Stop) -> Outcome {
    ground.describe(script);
    let mut sources = ground.start_sources()?;
    sources.iter().for_each(|source| script.started(source));
    let get = ground.get(&sources, script)?;
    let report = take(get.to_file(ground.copy()).stopped_by(stop).start()?, script, &mut sources)?;
    script.clear();
    let is_right = ground.is_right().map_err(Failure::target)?;
    let length = ground.id.length;
    let rows = Row::all(length, &report.last, &sources, script.kill(), report.complete && is_right);
    table::print(&rows, &ground.root(), script.kill(), script.is_json())?;
    if report.complete && is_right {
        return Ok(());
    }
    Err(Failure::other("the file did not arrive whole: this is a bug, please report it with the seed"))
}

/// Waits for the end of the transfer, and kills and restarts the source meanwhile.
fn take(transfer: Transfer, script: &mut Script, sources: &mut [SourceProcess]) -> Outcome<Report> {
    for event in transfer.events() {
        match event {
            Event::Progress(progress) => script.advance(&progress, sources)?,
            event => script.draw(&event),
        }
    }
    Ok(transfer.wait()?)
}

impl Ground {
    /// Makes a directory, and in it a file whose bytes follow from the seed.
    fn new(args: &Demo) -> Outcome<Self> {
        let failed = |e: io::Error| Failure::target(format!("cannot write the demonstration's file: {e}"));
        let mut builder = tempfile::Builder::new();
        let dir = builder.prefix("anabranch-demo-").disable_cleanup(args.keep).tempdir().map_err(failed)?;
        let id = write_file(&dir.path().join(FILE), args.seed, args.size * 1_000_000).map_err(failed)?;
        Ok(Self { dir, id })
    }

    fn copy(&self) -> PathBuf {
        self.dir.path().join(COPY)
    }

    fn root(&self) -> String {
        blake3::Hash::from_bytes(self.id.root).to_hex().to_string()
    }

    fn describe(&self, script: &mut Script) {
        let (path, length) = (self.dir.path().join(FILE), self.id.length);
        script.say(&format!("A file of {} to fetch, and three sources that have it:", bytes(length)));
        script.say(&format!("  cd {}", self.dir.path().display()));
        script.put("file", &FileLine { path, total_bytes: length, root: self.root() });
    }

    /// Starts all sources at once, and waits until each of them serves.
    fn start_sources(&self) -> Outcome<Vec<SourceProcess>> {
        let started: io::Result<Vec<_>> =
            SOURCES.iter().map(|spec| SourceProcess::spawn(spec, self.dir.path())).collect();
        let mut sources = started.map_err(|e| Failure::other(format!("cannot start a source: {e}")))?;
        sources.iter_mut().try_for_each(SourceProcess::wait_until_it_serves)?;
        Ok(sources)
    }

    /// Makes the [`Get`] that takes the file from all sources, and shows it as a command.
    fn get(&self, sources: &[SourceProcess], script: &mut Script) -> Outcome<Get> {
        let uri = Uri::new(self.id).to_string();
        let urls: Vec<&str> = sources.iter().filter_map(SourceProcess::url).collect();
        let from: Vec<&str> =
            sources.iter().filter(|s| s.url().is_none()).map(SourceProcess::place).collect();
        let options: String = from.iter().map(|place| format!(" --from {place}")).collect();
        script.say("One get takes it from all of them:");
        script.say_command(&format!("anabranch get '{uri}'{options} {} -o {COPY}", urls.join(" ")));
        let get = Get::new([&[uri.as_str()][..], &urls].concat())?.progress_every(LOOK_EVERY);
        Ok(from.into_iter().fold(get, Get::from_source))
    }

    /// Reads the copy from the disk, and returns whether it has the bytes of the file.
    fn is_right(&self) -> Result<bool, String> {
        let hash = || Ok(Hasher::new().update_reader(File::open(self.copy())?)?.finalize());
        let hash: io::Result<blake3::Hash> = hash();
        Ok(hash.map_err(|e| format!("cannot read what came: {e}"))?.as_bytes() == &self.id.root)
    }
}

/// Writes `length` bytes that follow from `seed` alone, and returns their content id.
fn write_file(path: &Path, seed: u64, length: u64) -> io::Result<ContentId> {
    let mut bytes = Hasher::new().update(&seed.to_be_bytes()).finalize_xof().take(length);
    let (mut file, mut hasher, mut piece) = (File::create_new(path)?, Hasher::new(), vec![0; PIECE_BYTES]);
    loop {
        let count = bytes.read(&mut piece)?;
        if count == 0 {
            return Ok(ContentId { root: *hasher.finalize().as_bytes(), length });
        }
        hasher.update(&piece[..count]);
        file.write_all(&piece[..count])?;
    }
}
