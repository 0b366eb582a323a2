//! Runs `anabranch get` as a process, reads its output while it runs, and makes the files it works on.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anabranch::on_disk::journal;
use anabranch_mirror::leaf_list::LeafList;
use anabranch_mmtp::ContentId;
use anabranch_mmtp::id::BLOCK_BYTES;
use anabranch_mmtp::tree::block_cv;
use anabranch_mmtp::uri::Uri;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{anabranch, noise, wait_or_say, wait_until};
pub(crate) use anabranch_net::testing::{refused, skip as skipped};

/// Longer than any of these transfers takes on a busy machine, in seconds.
const END_S: u64 = 60;

/// A content to serve, and an empty directory for it to arrive in.
pub(crate) struct Ground {
    /// The directory that contains everything.
    pub(crate) dir: tempfile::TempDir,
    /// The bytes of the content.
    pub(crate) content: Vec<u8>,
}

impl Ground {
    /// Makes a content of `len` bytes and the directories.
    pub(crate) fn new(len: usize) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let content = noise(len);
        fs::write(dir.path().join("source"), &content).expect("a file");
        fs::create_dir(dir.path().join("to")).expect("a directory");
        Self { dir, content }
    }

    /// Returns the path of the file to serve.
    pub(crate) fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    /// Returns the directory that contains only fetched files.
    pub(crate) fn to(&self) -> PathBuf {
        self.dir.path().join("to")
    }

    /// Returns the path where the content is to arrive.
    pub(crate) fn target(&self) -> PathBuf {
        self.to().join("f")
    }

    /// Makes a `get` of these names to the target.
    pub(crate) fn get_named(&self, names: &[impl AsRef<OsStr>], more: &[&str]) -> Command {
        let mut command = anabranch();
        command.arg("get").args(names).arg("--output").arg(self.target()).args(more);
        command
    }

    /// Makes a `get` of the content from these sources to the target, with `--json`.
    pub(crate) fn get(&self, from: &[SocketAddr], more: &[&str]) -> Command {
        let mut command = self.get_for_people(from, more);
        command.arg("--json");
        command
    }

    /// Makes a `get` of the content from these sources to the target, without `--json`.
    pub(crate) fn get_for_people(&self, from: &[SocketAddr], more: &[&str]) -> Command {
        // The URI contains the hash alone, without sources.
        let mut command = fetch(Uri::new(ContentId::of(&self.content)).to_string(), &self.target());
        for source in from {
            command.arg(format!("--from={source}"));
        }
        command.args(more);
        command
    }

    /// Returns the blocks that the journal records.
    pub(crate) fn recorded(&self) -> BTreeSet<u64> {
        match journal::parse(&fs::read(self.to().join("f.part.journal")).unwrap_or_default()) {
            Ok((id, blocks)) => {
                assert_eq!(id, ContentId::of(&self.content));
                blocks.into_iter().map(|(block, _)| block).collect()
            }
            Err(journal::Unreadable::Blank) => BTreeSet::new(),
            Err(e) => panic!("the journal: {e}"),
        }
    }

    /// Waits until the journal records at least this many blocks.
    pub(crate) fn wait_recorded(&self, blocks: usize) {
        let says = || format!("{blocks} blocks, but {} in {:?}", self.recorded().len(), names(&self.to()));
        wait_or_say(END_S, || self.recorded().len() >= blocks, says);
    }

    /// Fails unless the file is complete and the directory contains nothing else.
    pub(crate) fn assert_arrived(&self) {
        assert!(fs::read(self.target()).expect("a file") == self.content, "other bytes arrived");
        assert_eq!(names(&self.to()), ["f"]);
    }

    /// Fails unless a part and its journal are left, and nothing has the final name.
    pub(crate) fn assert_part(&self) {
        assert_eq!(names(&self.to()), ["f.part", "f.part.journal"]);
    }
}

/// Returns the names in a directory, sorted.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a directory");
    let mut names: Vec<_> =
        entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Returns all files below a directory: path, bytes, and whether the file is executable. Does not follow
/// links.
pub(crate) fn tree(dir: &Path) -> BTreeMap<OsString, (Vec<u8>, bool)> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(at) = waiting.pop() {
        for entry in fs::read_dir(at).expect("a directory") {
            let path = entry.expect("an entry").path();
            let meta = fs::symlink_metadata(&path).expect("an entry");
            if meta.is_dir() {
                waiting.push(path);
            } else {
                assert!(meta.is_file(), "{}", path.display());
                let name = path.strip_prefix(dir).expect("below").as_os_str().to_owned();
                found.insert(name, (fs::read(&path).expect("a file"), meta.mode() & 0o111 != 0));
            }
        }
    }
    found
}

/// Returns the option that gives the SHA-256 of a content.
pub(crate) fn checksum(content: &[u8]) -> String {
    format!("--checksum=sha-256={}", data_encoding::HEXLOWER.encode(&Sha256::digest(content)))
}

/// Returns the leaf list of a content.
pub(crate) fn leaf_list(content: &[u8]) -> Vec<u8> {
    let cvs = (0..).zip(content.chunks(BLOCK_BYTES)).map(|(n, block)| block_cv(n, block)).collect();
    LeafList::new(ContentId::of(content), cvs).expect("its leaves").encode()
}

/// Makes a `get` of `uri` to `output`.
pub(crate) fn fetch(uri: impl AsRef<OsStr>, output: &Path) -> Command {
    let mut command = anabranch();
    command.arg("get").arg(uri).arg("--output").arg(output);
    command
}

/// A running command, and its output so far.
pub(crate) struct Running {
    child: Child,
    out: Stream,
    err: Stream,
}

/// An output stream of a command, read by a thread.
struct Stream {
    heard: Arc<Mutex<Heard>>,
    reader: Option<JoinHandle<()>>,
}

/// The whole output so far, and the lines of it that are JSON.
#[derive(Default)]
struct Heard {
    text: String,
    events: Vec<Value>,
}

impl Stream {
    fn of(from: impl Read + Send + 'static) -> Self {
        let heard = Arc::<Mutex<Heard>>::default();
        let hears = Arc::clone(&heard);
        let reader = thread::spawn(move || {
            for line in BufReader::new(from).lines() {
                let line = line.expect("UTF-8");
                let mut heard = hears.lock().unwrap_or_else(PoisonError::into_inner);
                heard.events.extend(serde_json::from_str::<Value>(&line).ok());
                heard.text += &line;
                heard.text.push('\n');
            }
        });
        Self { heard, reader: Some(reader) }
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the whole output, once the command has ended.
    fn all(&mut self) -> String {
        self.reader.take().expect("a thread").join().expect("its output");
        self.heard().text.clone()
    }
}

/// The result of a command.
pub(crate) struct Done {
    /// The exit status; `None` if a signal ended the command.
    pub(crate) code: Option<i32>,
    /// Standard output.
    pub(crate) out: String,
    /// Standard error.
    pub(crate) err: String,
}

/// Starts a command.
pub(crate) fn spawn(mut command: Command) -> Running {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a process");
    let out = Stream::of(child.stdout.take().expect("its output"));
    let err = Stream::of(child.stderr.take().expect("its errors"));
    Running { child, out, err }
}

/// Starts a command, and kills it (`kill -9`) once `is_so` returns true.
pub(crate) fn killed_when(command: Command, is_so: impl FnMut() -> bool) {
    let running = spawn(command);
    wait_until(20, is_so);
    running.signal(Signal::SIGKILL);
    let _ = running.end();
}

/// Runs a command to its end.
pub(crate) fn run(command: Command) -> Done {
    spawn(command).end()
}

impl Running {
    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("a signal");
    }

    /// Returns the most memory in bytes that the process has used so far; `None` when it has ended.
    pub(crate) fn peak_bytes(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
    }

    /// Whether the command has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a status").is_some()
    }

    /// Waits until a JSON object on standard output satisfies `is`, and returns it.
    pub(crate) fn wait_event(&self, is: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..END_S * 100 {
            if let Some(found) = self.out.heard().events.iter().find(|event| is(event)) {
                return found.clone();
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("not within {END_S} s:\n{}\n{}", self.out.heard().text, self.err.heard().text);
    }

    /// Waits until the output on either stream contains `text`.
    pub(crate) fn wait_said(&self, text: &str) {
        wait_until(END_S, || [&self.out, &self.err].iter().any(|stream| stream.heard().text.contains(text)));
    }

    /// Waits for a note that contains `text`.
    pub(crate) fn wait_note(&self, text: &str) -> Value {
        self.wait_event(|event| event["note"].as_str().is_some_and(|note| note.contains(text)))
    }

    /// Waits `millis` milliseconds for the end of the command, and then sends the signal.
    pub(crate) fn end_or_interrupt(mut self, millis: u64, signal: Signal) -> Done {
        for _ in 0..millis / 50 {
            if self.has_ended() {
                return self.end();
            }
            thread::sleep(Duration::from_millis(50));
        }
        self.signal(signal);
        self.end()
    }

    /// Waits for the end of the command. If it does not end, kills it and fails with all its output.
    pub(crate) fn end(mut self) -> Done {
        let mut ended = false;
        for _ in 0..END_S * 100 {
            ended = self.has_ended();
            if ended {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        if !ended {
            let _ = self.child.kill();
        }
        let status = self.child.wait().expect("its end");
        let done = Done { code: status.code(), out: self.out.all(), err: self.err.all() };
        assert!(ended, "no end within {END_S} s:\n{}\n{}", done.out, done.err);
        done
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Done {
    /// Fails with all output unless the command ended with this exit status.
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}\n{}", self.out, self.err);
        self
    }

    /// Returns the last JSON object, which must be a summary.
    pub(crate) fn summary(&self) -> Value {
        let last = self.out.lines().last().expect("a summary");
        let value: Value = serde_json::from_str(last).expect("JSON");
        assert_eq!(value["event"], "summary", "{}", self.out);
        value
    }

    /// Returns the banned sources.
    pub(crate) fn banned(&self) -> Vec<String> {
        let summary = self.summary();
        let all = summary["banned"].as_array().expect("a list").iter();
        all.map(|one| one["source"].as_str().expect("a source").to_owned()).collect()
    }

    /// Returns what the summary says would verify the file.
    pub(crate) fn advice(&self) -> String {
        self.summary()["advice"].as_str().unwrap_or_default().to_owned()
    }

    /// Returns all notes, one per line.
    pub(crate) fn notes(&self) -> String {
        let events = self.out.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let notes = events.filter_map(|event| Some(event["note"].as_str()?.to_owned()));
        notes.collect::<Vec<_>>().join("\n")
    }

    /// Returns the number of fresh bytes that came from `source`.
    pub(crate) fn bytes_from(&self, source: SocketAddr) -> u64 {
        let summary = self.summary();
        let rows = summary["last"]["paths"].as_array().expect("paths").iter();
        let name = source.to_string();
        // The name of a mirror is followed by its address.
        let is_its = |row: &str| row.split(' ').next() == Some(&name);
        rows.filter(|row| row["source"].as_str().is_some_and(is_its))
            .map(|row| row["bytes"].as_u64().expect("a number"))
            .sum()
    }
}
