//! Runs a row: one command several times in one directory, in virtual time.

use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use anabranch_algo::{Span, Time};
use anabranch_http::client::testing::Reply;
use anabranch_mirror::leaf_list::{LeafList, SUFFIX};
use anabranch_mirror::metalink::{File, Hashes, Metalink, Mirror as Place, Pieces};
use anabranch_mirror::url::Url;
use anabranch_mmtp::ContentId;
use anabranch_mmtp::id::BLOCK_BYTES;
use anabranch_mmtp::tree::block_cv;
use anabranch_mmtp::uri::Uri;
use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::mirrors::{FILE, content, every_content, tree};
use super::row::{Happens, Knows, Row};
use crate::event::Observer;
use crate::get::fetch::fetch_in;
use crate::get::reassembly_buffer;
use crate::get::selection::Selection;
use crate::get::testing::{Mirror, Servers, SimWorld, Weather, files, restore, run_dir};
use crate::get::world::World as _;
use crate::target::Room;
use crate::{Checksum, Control, Event, Get, Report, Result, Stop};

/// The length of a piece in bytes, where hashes of pieces are known.
const PIECE_BYTES: u64 = 256 << 10;

/// Holds the outcome of a run.
pub(super) struct Ended {
    pub(super) result: Result<Report>,
    /// The bytes that arrived.
    pub(super) came: u64,
    pub(super) after: Span,
    /// Whether the run was killed. The directory is then as it was at that moment.
    pub(super) is_killed: bool,
    /// All messages to the user, with the bans and their reasons.
    pub(super) said: String,
    pub(super) banned: Vec<String>,
    /// Two consecutive reports of progress of which the second has less; `None` if progress never fell.
    pub(super) falls: Option<(Step, Step)>,
}

/// Returns the host of the mirror with this number.
pub(super) fn host(number: usize) -> String {
    format!("{}.test", char::from(b'a' + number as u8))
}

/// Holds a directory and the mirrors for the runs of a command.
pub(super) struct Ground {
    pub(super) dir: tempfile::TempDir,
    servers: Servers,
    knows: Knows,
    content: Bytes,
    called: &'static str,
    /// Whether the file is read in order. The bytes that are handed over are then written under its name.
    pub(super) in_order: bool,
}

impl Ground {
    pub(super) fn new(mirrors: Vec<Mirror>, knows: Knows, content: Bytes, called: &'static str) -> Self {
        let dir = run_dir();
        fs::create_dir(dir.path().join("to")).expect("a directory");
        let (suffix, beside) = match knows {
            Knows::Leaves => (SUFFIX, leaf_list(&content)),
            Knows::Beside => {
                let file = described(called, &content, &Servers::new());
                (".meta4", Metalink { files: vec![file] }.emit().expect("a Metalink").into_bytes())
            }
            _ => ("", Vec::new()),
        };
        let beside = Bytes::from(beside);
        let with_beside = |mirror: Mirror| {
            let beside = beside.clone();
            mirror.but(move |asked, reply| {
                let is_asked =
                    !beside.is_empty() && reply.status == 404 && asked.request.path.ends_with(suffix);
                if is_asked { Reply { delay: reply.delay, ..Reply::new(200, beside.clone()) } } else { reply }
            })
        };
        let servers =
            mirrors.into_iter().enumerate().map(|(n, mirror)| (host(n), Rc::new(with_beside(mirror))));
        Self { servers: servers.collect(), dir, knows, content, called, in_order: false }
    }

    pub(super) fn to(&self) -> std::path::PathBuf {
        self.dir.path().join("to")
    }

    fn get(&self) -> Result<Get> {
        let urls: Vec<String> =
            self.servers.keys().map(|host| format!("http://{host}/{}", self.called)).collect();
        let id = Uri::new(ContentId::of(&self.content)).to_string();
        let list = self.dir.path().join("list.meta4");
        match self.knows {
            Knows::Nothing | Knows::Beside => Get::new(urls),
            Knows::Sha256 => {
                Ok(Get::new(urls)?.checksum(Checksum::sha256(Sha256::digest(&self.content).into())))
            }
            Knows::Blake3 | Knows::Leaves => Get::new([id].into_iter().chain(urls)),
            Knows::Length => {
                let file = described(self.called, &self.content, &self.servers);
                write(&list, vec![File { hashes: Hashes::default(), pieces: None, ..file }]);
                Get::new([list.to_string_lossy()])
            }
            Knows::Pieces => {
                let file = File {
                    pieces: Some(pieces(&self.content)),
                    ..described(self.called, &self.content, &self.servers)
                };
                write(&list, vec![File { hashes: Hashes::default(), ..file }]);
                Get::new([list.to_string_lossy()])
            }
            Knows::Directory => {
                let files = tree().into_iter().map(|(name, bytes)| File {
                    name: name.trim_start_matches("d/").to_owned(),
                    ..described(name, &bytes, &self.servers)
                });
                write(&list, files.collect());
                Get::new([list.to_string_lossy()])
            }
        }
    }

    /// Runs the command; `run` is the number of the run.
    pub(super) fn run(&self, seed: u64, run: usize, happens: Option<Happens>) -> Ended {
        self.servers.values().for_each(|mirror| mirror.begin_run(run));
        let mut weather = Weather { has_second_link: false, ..Weather::default() };
        match happens {
            Some(Happens::Kill(after)) => weather.kill = Some((Time::ZERO + after, self.to())),
            Some(Happens::Stop(after)) => weather.stop_at = Time::ZERO + after,
            Some(Happens::FullDisk(room)) => weather.room = Some(room),
            Some(Happens::Ends(_)) | None => {}
        }
        let (stop, room) = (Stop::new().expect("descriptors"), Arc::<Room>::default());
        room.set(weather.room);
        let output = self.to().join(if self.knows == Knows::Directory { "d" } else { FILE });
        let (request, locators) =
            self.get().and_then(|get| get.to_file(output).request()).expect("a request");
        let (buffer, mut blocks) = reassembly_buffer::pair(stop.clone(), Selection::Whole);
        let end = buffer.end_guard();
        let handed_over = thread::spawn(move || {
            std::iter::from_fn(|| blocks.next()).flat_map(|(_, bytes)| bytes).collect()
        });
        let reader = self.in_order.then_some(buffer);
        let request = crate::get::request::Request { room: Some(room), reader, ..request };
        let idle = Span::from_nanos(request.http.idle_timeout.as_nanos() as u64);
        let sources = Rc::default();
        let mut world =
            SimWorld::new(seed, weather, stop.clone(), (self.servers.clone(), idle), (&[], &sources));
        let (mut said, mut banned) = (String::new(), Vec::new());
        let mut steps = Vec::new();
        let mut listener = |event| {
            match event {
                Event::Progress(progress) => steps.push((progress.done_bytes, progress.total_bytes)),
                Event::Notice(text) | Event::Warning(text) => said += &format!("{text}\n"),
                Event::Banned { source, reason } => {
                    said += &format!("{source}: {reason}\n");
                    banned.push(source);
                }
                Event::Finished(report) => {
                    banned.extend(report.banned.iter().map(|one| one.source.clone()));
                    said.extend(report.banned.iter().map(|one| format!("{}: {}\n", one.source, one.reason)));
                }
                _ => {}
            }
            Control::Continue
        };
        let mut observer = Observer::new(&mut listener, stop, Span::from_millis(200));
        let result = fetch_in(&mut world, &request, locators, &mut observer);
        if let Err(error) = &result {
            said += &error.to_string();
        }
        drop(end);
        let handed_over: Vec<u8> = handed_over.join().expect("what was read");
        if self.in_order && (result.is_ok() || !handed_over.is_empty()) {
            fs::write(self.to().join(FILE), handed_over).expect("a file");
        }
        if let Some(left) = &world.left {
            restore(&self.to(), left);
        }
        // The last progress has the exact number in any case.
        steps.pop();
        let falls = steps.windows(2).map(|pair| (pair[0], pair[1])).find(|(was, is)| goes_back(*was, *is));
        let after = world.now().since(Time::ZERO);
        let is_killed = world.left.is_some();
        Ended { result, came: world.came.iter().sum(), after, is_killed, said, banned, falls }
    }
}

/// The done and the total bytes in a report of progress.
pub(super) type Step = (u64, Option<u64>);

/// Returns whether progress goes backwards. A file that turns out to be shorter keeps its share.
fn goes_back((done_before, total_before): Step, (done, total): Step) -> bool {
    match (total_before, total) {
        (Some(before), Some(total)) if total < before => {
            u128::from(done + 1) * u128::from(before) < u128::from(done_before) * u128::from(total)
        }
        (Some(_), None) => true,
        _ => done < done_before,
    }
}

fn described(path: &str, content: &Bytes, servers: &Servers) -> File {
    let url = |host: &String| Url::parse(&format!("http://{host}/{path}")).expect("a URL");
    let mirrors = servers.keys().map(|host| Place { url: url(host), priority: 1, location: None });
    let digests = anabranch_mirror::digests::Digests::of_sha256(Sha256::digest(content).into());
    File {
        name: FILE.to_owned(),
        size: Some(content.len() as u64),
        hashes: Hashes { digests, blake3: None },
        mirrors: mirrors.collect(),
        ..File::default()
    }
}

fn write(path: &Path, files: Vec<File>) {
    fs::write(path, Metalink { files }.emit().expect("a Metalink")).expect("a file");
}

fn leaf_list(content: &[u8]) -> Vec<u8> {
    let cvs = (0..).zip(content.chunks(BLOCK_BYTES)).map(|(n, block)| block_cv(n, block)).collect();
    LeafList::new(ContentId::of(content), cvs).expect("its leaves").encode()
}

fn pieces(content: &[u8]) -> Pieces {
    let hashes = content.chunks(PIECE_BYTES as usize).map(|piece| Sha256::digest(piece).into()).collect();
    Pieces { bytes: PIECE_BYTES, hashes: anabranch_mirror::digests::PieceHashes::Sha256(hashes) }
}

/// Checks that the file under its final name, if there is one, may be there.
pub(super) fn is_right_or_absent(ground: &Ground, is_hash: bool) -> Result<(), String> {
    let all = every_content();
    match fs::read(ground.to().join(FILE)) {
        Err(_) => Ok(()),
        Ok(bytes) if bytes == ground.content => Ok(()),
        Ok(bytes) if !is_hash && all.iter().any(|one| *one == bytes) => Ok(()),
        Ok(_) => Err("the file has bytes that it must not have".to_owned()),
    }
}

/// Runs a row and checks it.
///
/// # Errors
/// Returns every promise that does not hold.
pub(super) fn holds(row: &Row, seed: u64) -> Result<(), String> {
    let content = row.arrives.get(FILE).cloned().unwrap_or_else(content);
    let ground = Ground::new((row.mirrors)(), row.knows, content, row.called);
    let ground = Ground { in_order: row.in_order, ..ground };
    let (mut came, mut said, mut banned) = (0, String::new(), Vec::new());
    for (run, happens) in row.runs.iter().enumerate() {
        let ended = ground.run(seed * 1_000 + run as u64, run, Some(*happens));
        check_run(&ground, row, *happens, &ended).map_err(|why| format!("run {run}: {why}"))?;
        if let Some(falls) = ended.falls {
            return Err(format!("run {run}: progress goes backwards: {falls:?}"));
        }
        came += ended.came;
        said += &ended.said;
        banned.extend(ended.banned);
    }
    let last = ground.run(seed * 1_000 + 999, row.runs.len(), None);
    came += last.came;
    said += &last.said;
    banned.extend(last.banned);
    let status = last.result.as_ref().map_or_else(crate::Error::exit_status, |_| 0);
    let length: u64 = match row.knows {
        Knows::Directory => tree().values().map(|bytes| bytes.len() as u64).sum(),
        _ => ground.content.len() as u64,
    };
    eprintln!(
        "{}: status {status}, {:.2} x, {:.1} s, banned {banned:?}, said {said}",
        row.name,
        came as f64 / length.max(1) as f64,
        last.after.as_nanos() as f64 / 1e9
    );
    let mut wrong = Vec::new();
    wrong.extend(last.falls.map(|falls| format!("progress goes backwards: {falls:?}")));
    if status != row.exit_status {
        wrong.push(format!("exit status {status} instead of {}", row.exit_status));
    }
    wrong.extend(is_right_or_absent(&ground, row.knows.is_hash()).err());
    let mut there = files(&ground.to());
    for (name, bytes) in &row.arrives {
        match there.remove(std::ffi::OsStr::new(name)) {
            Some(found) if found == *bytes => {}
            Some(_) => wrong.push(format!("{name} has other bytes")),
            None => wrong.push(format!("{name} is not there")),
        }
    }
    if there.contains_key(std::ffi::OsStr::new(FILE)) {
        wrong.push("there is a file".to_owned());
    }
    // This file has the bytes of a mirror that was alone, which are kept in case the hash was mistyped.
    there.remove(std::ffi::OsStr::new("f.bin.unverified"));
    if status == 0 && !there.is_empty() {
        wrong.push(format!("there is more: {:?}", there.keys()));
    }
    let names = row.named.iter().map(|name| format!("{name}.test"));
    wrong.extend(names.filter(|name| !said.contains(name)).map(|name| format!("{name} is not named")));
    let liars: Vec<String> =
        row.named.iter().chain(row.may_name).map(|name| format!("{name}.test")).collect();
    let blamed = banned.iter().filter(|one| liars.iter().all(|name| !one.contains(name)));
    wrong.extend(blamed.map(|one| format!("{one} is blamed")));
    if came * 100 > row.percent * length.max(1) {
        wrong.push(format!("{came} bytes came, of {length}"));
    }
    if last.after > row.within {
        wrong.push(format!("it took {}", last.after));
    }
    if wrong.is_empty() { Ok(()) } else { Err(format!("{}; said: {said}", wrong.join("; "))) }
}

/// Checks a run that is not the last one.
fn check_run(ground: &Ground, row: &Row, happens: Happens, ended: &Ended) -> Result<(), String> {
    is_right_or_absent(ground, row.knows.is_hash())?;
    let status = ended.result.as_ref().map_or_else(crate::Error::exit_status, |_| 0);
    let is_so = match happens {
        Happens::Kill(_) => ended.is_killed,
        Happens::Stop(_) => status == 130,
        Happens::FullDisk(_) => status == 6,
        Happens::Ends(wanted) => status == wanted,
    };
    if !is_so {
        return Err(format!("exit status {status} where it {happens:?}: {}", ended.said));
    }
    let has_part = files(&ground.to()).keys().any(|name| name.to_string_lossy().contains("part"));
    match matches!(happens, Happens::Ends(_)) || has_part || ground.to().join("d").exists() {
        true => Ok(()),
        false => Err("nothing is left".to_owned()),
    }
}
