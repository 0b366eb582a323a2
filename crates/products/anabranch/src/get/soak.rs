//! Runs whole transfers in simulated worlds, with mirrors, sources, links and disks that fail, and with
//! kills. It checks three promises: a file under its final name is right; every run ends; and once the
//! weather is fair, the same command completes the file. A seed decides everything. `anabranch soak` runs
//! this for each of its seeds.

mod natures;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use anabranch_algo::control::{ALGORITHMS, Algorithm};
use anabranch_algo::{Span, Time};
use anabranch_mirror::digests::Digests;
use anabranch_mirror::leaf_list::LeafList;
use anabranch_mirror::url::Url;
use anabranch_mmtp::ContentId;
use anabranch_mmtp::id::BLOCK_BYTES;
use anabranch_mmtp::tree::block_cv;
use anabranch_mmtp::uri::Uri;
use sha2::{Digest as _, Sha256};

use super::event_loop::EventLoop;
use super::fetch::fetch_named;
use super::groups::Groups;
use super::history::History;
use super::link_policy::Links;
use super::locators::Locators;
use super::request::Request;
use super::testing::{Rng, SimWorld, Weather, files, restore, run_dir};
use super::world::World as _;
use crate::error::ErrorKind;
use crate::event::Observer;
use crate::target::{Output, Room};
use crate::{Control, Result, Stop};
use natures::{Nature, servers};

/// The largest number of runs in bad weather, before the last run.
const RUNS_MAX: u64 = 3;
/// A run that is killed is killed within this time, milliseconds.
const KILL_WITHIN_MS: u64 = 3_000;
/// The time after which the HTTP client gives up a silent server.
const SILENCE: Span = Span::from_secs(30);
/// The file name of a history.
const HISTORY: &str = "urls.jsonl";

/// What the command is told of the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Its id: sources can be asked, and every block is verified.
    Id,
    /// The SHA-256 of the whole content.
    Sha256,
    /// No hash.
    Nothing,
}

/// The outcome of the runs of one seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SoakRun {
    /// A sentence that describes the world of the seed.
    pub description: String,
    /// The virtual time that all runs took together.
    pub virtual_time: Span,
    /// The bytes of answers that came over the links.
    pub bytes: u64,
    /// The error of each run; `None` if it succeeded.
    ends: Vec<Option<ErrorKind>>,
    /// The number of kills that left a part behind.
    parts_left: usize,
    /// The number of runs that ran out of disk.
    filled: usize,
}

/// One command: its names, the destination, and the content of the world.
struct Command {
    known: Known,
    locators: Locators,
    request: Request,
    content: Rc<Vec<u8>>,
    leaves: Rc<Vec<u8>>,
    dir: PathBuf,
    /// The room that is left on its file system.
    room: Arc<Room>,
}

/// The outcome of a run.
struct Ended {
    result: Result<()>,
    /// The bytes that came over each link.
    came: Vec<u64>,
    /// The virtual time that the run took.
    after: Span,
    /// Whether the run was killed. The directory is then as it was at that moment.
    is_killed: bool,
    /// Whether the file system was full.
    had_no_room: bool,
}

impl Ended {
    /// Checks that a full file system was reported, unless the run ended for another reason before.
    fn check_room(&self, natures: &[Nature]) {
        let Some(error) = self.result.as_ref().err().filter(|_| self.had_no_room) else {
            return assert!(!self.had_no_room || self.is_killed, "all is well though the disk was full");
        };
        match error.kind() {
            ErrorKind::Target => {
                assert!(error.to_string().contains("the disk is full: make room"), "{error}");
            }
            ErrorKind::Corrupt => assert!(natures.contains(&Nature::Liar), "nobody lied: {error}"),
            kind => assert_eq!(kind, ErrorKind::Interrupted, "{error}"),
        }
    }
}

impl Command {
    /// Makes a random command. If `remembers`, it has a history in the directory of the file.
    fn new(
        rng: &mut Rng,
        known: Known,
        remembers: bool,
        (mirrors, sources): (usize, usize),
        to: &Path,
    ) -> Self {
        let length = 1 + rng.below(60 * BLOCK_BYTES as u64);
        let content: Vec<u8> = (0..length).map(|_| rng.below(256) as u8).collect();
        let id = ContentId::of(&content);
        let cvs = content.chunks(BLOCK_BYTES).zip(0..).map(|(bytes, block)| block_cv(block, bytes));
        // A content of one block has no leaf list.
        let leaves = LeafList::new(id, cvs.collect()).map_or_else(Vec::new, |list| list.encode());
        let urls = (0..mirrors).map(|n| Url::parse(&format!("http://m{n}/f")).expect("a URL")).collect();
        let uri = (known == Known::Id).then(|| Uri::new(id));
        let locators = Locators { uri, urls, ..Locators::default() };
        let room = Arc::<Room>::default();
        let request = Request {
            history: History(remembers.then(|| to.to_owned())),
            from: (1..=sources).map(|port| format!("s:{port}").parse().expect("a source")).collect(),
            output: Output::Path(to.join("f")),
            reader: None,
            algorithm: Algorithm::by_name(ALGORITHMS[rng.below(3) as usize].name).expect("its name"),
            groups: Groups::All,
            timeout: Span::from_secs(60),
            force: false,
            digests: Digests {
                sha256: (known == Known::Sha256).then(|| Sha256::digest(&content).into()),
                ..Digests::default()
            },
            links: Links::default(),
            adopts: false,
            listed_name: None,
            keyring: None,
            http: anabranch_http::client::Options::default(),
            room: Some(Arc::clone(&room)),
        };
        let (content, leaves) = (Rc::new(content), Rc::new(leaves));
        Self { known, locators, request, content, leaves, dir: to.to_owned(), room }
    }

    /// Returns whether the command can tell an existing file from another one of its length. It can if it
    /// knows an id or a hash, remembers the file, or servers have a leaf list, which a content of one block
    /// does not have.
    fn can_tell(&self) -> bool {
        self.known != Known::Nothing || self.request.history.0.is_some() || !self.leaves.is_empty()
    }

    /// Runs the command in this weather, until it ends or is killed.
    fn run(&self, seed: u64, weather: Weather, natures: &[Nature], sources: &[bool]) -> Ended {
        let stop = Stop::new().expect("descriptors");
        self.room.set(weather.room);
        let servers = servers(seed, natures, &self.content, &self.leaves);
        let there = (sources, &self.content);
        let mut world = SimWorld::new(seed, weather, stop.clone(), (servers, SILENCE), there);
        let mut listener = |_| Control::Continue;
        let mut observer = Observer::new(&mut listener, stop, Span::from_millis(200));
        let mut events = EventLoop::new(&mut world, &mut observer, self.request.timeout);
        let outcome = fetch_named(&self.request, self.locators.clone(), &mut events);
        let result = outcome.and_then(|outcome| outcome.result);
        if let Some(files) = &world.left {
            restore(&self.dir, files);
        }
        let after = world.now().since(Time::ZERO);
        let had_no_room = self.room.ran_out();
        Ended { result, after, is_killed: world.left.is_some(), had_no_room, came: world.came }
    }

    /// Makes bad weather, in which the command is perhaps killed.
    fn foul(&self, rng: &mut Rng) -> Weather {
        let kill = rng.one_in(3).then(|| self.killed_at(Span::from_millis(rng.below(KILL_WITHIN_MS))).kill);
        let foul = Weather::foul(rng.below(u64::MAX), self.content.len() as u64);
        Weather { kill: kill.flatten(), ..foul }
    }

    /// Makes fair weather in which the command is killed (SIGKILL) after `after`, unless it ends before.
    fn killed_at(&self, after: Span) -> Weather {
        Weather { kill: Some((Time::ZERO + after, self.dir.clone())), ..Weather::default() }
    }
}

fn natures(rng: &mut Rng, known: Known) -> Vec<Nature> {
    let all = [Nature::Good, Nature::Faulty, Nature::Empty, Nature::Liar];
    // If no hash is known, the bytes of a liar could arrive as the file, so there are no liars.
    let kinds = if known == Known::Nothing { 3 } else { 4 };
    (0..rng.below(4)).map(|_| all[rng.below(kinds) as usize]).collect()
}

fn is_right(file: &Path, command: &Command) -> bool {
    fs::read(file).expect("the file") == *command.content
}

/// Runs the world of a seed. The same seed gives the same outcome.
///
/// # Panics
/// Panics if a promise is broken, or if the directory for temporary files cannot be written.
#[must_use]
pub fn run(seed: u64) -> SoakRun {
    let mut rng = Rng::new(seed);
    let dir = run_dir();
    let known = [Known::Id, Known::Id, Known::Sha256, Known::Nothing][rng.below(4) as usize];
    let mut natures = natures(&mut rng, known);
    if natures.is_empty() && known != Known::Id {
        natures.push(Nature::Faulty);
    }
    // If there is no mirror, there is a source. A source can only be asked if the id is known.
    let sources = rng.below(3).max(u64::from(natures.is_empty()));
    let sources: Vec<bool> = (0..sources).map(|_| !rng.one_in(3)).filter(|_| known == Known::Id).collect();
    let remembers = rng.one_in(2);
    let command = Command::new(&mut rng, known, remembers, (natures.len(), sources.len()), dir.path());
    let file = dir.path().join("f");
    let (mut ends, mut parts_left, mut filled) = (Vec::new(), 0, 0);
    let (mut virtual_time, mut bytes) = (Span::ZERO, 0);
    for _ in 0..rng.below(RUNS_MAX + 1) {
        let weather = command.foul(&mut rng);
        let ended = command.run(rng.below(u64::MAX), weather, &natures, &sources);
        parts_left += usize::from(ended.is_killed && dir.path().join("f.part").exists());
        filled += usize::from(ended.had_no_room);
        ended.check_room(&natures);
        // Whatever happens, the final name has the right file or none.
        assert!(file.exists() || ended.is_killed || ended.result.is_err(), "nothing arrived");
        if file.exists() {
            assert!(is_right(&file, &command), "{:?}, with other bytes", ended.result);
        }
        ends.push(ended.result.err().map(|error| error.kind()));
        virtual_time = virtual_time + ended.after;
        bytes += ended.came.iter().sum::<u64>();
    }
    let fair = vec![Nature::Good; natures.len()];
    let there = vec![true; sources.len()];
    // An existing file is kept if nothing tells whether it is the right one.
    let is_refused = file.exists() && !command.can_tell();
    let mut fair = || command.run(rng.below(u64::MAX), Weather::default(), &fair, &there);
    let mut ended = fair();
    virtual_time = virtual_time + ended.after;
    // Wrong bytes from a liar in an earlier run may be found only at the end. They are removed then, and the
    // next run succeeds.
    let is_removed = |e: &crate::Error| matches!(e.kind(), ErrorKind::Corrupt | ErrorKind::Target);
    if natures.contains(&Nature::Liar) && ended.result.as_ref().is_err_and(is_removed) {
        ended = fair();
        virtual_time = virtual_time + ended.after;
    }
    if is_refused {
        let error = ended.result.expect_err("nothing tells whether that is the file").to_string();
        assert!(error.contains("is there already, and nothing tells"), "in fair weather: {error}");
    } else {
        ended.result.unwrap_or_else(|e| panic!("in fair weather: {e}"));
    }
    ends.push(None);
    assert!(is_right(&file, &command), "other bytes");
    let mut left: Vec<OsString> = files(dir.path()).into_keys().collect();
    left.retain(|name| !remembers || name != HISTORY);
    // This file has the bytes of a liar that was alone, which are kept in case the hash was mistyped.
    let unverified = dir.path().join("f.unverified");
    if natures.contains(&Nature::Liar) && unverified.exists() {
        assert!(!is_right(&unverified, &command), "the file was not accepted");
        left.retain(|name| name != "f.unverified");
    }
    assert_eq!(left, ["f"], "{known:?} {natures:?} {sources:?} {ends:?}");
    let description = format!(
        "a get of {} bytes, known: {known:?}, from mirrors {natures:?} and sources {sources:?}; its runs \
         ended: {ends:?}",
        command.content.len()
    );
    SoakRun { description, virtual_time, bytes, ends, parts_left, filled }
}

/// Prints the seed when a test panics.
#[cfg(test)]
struct SeedGuard(u64);

#[cfg(test)]
impl Drop for SeedGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("that was seed {}", self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeded_transfers_end_and_what_arrives_is_right() {
        let (mut ends, mut parts_left, mut filled) = (Vec::new(), 0, 0);
        for seed in 0..300 {
            let _guard = SeedGuard(seed);
            let run = run(seed);
            ends.extend(run.ends);
            parts_left += run.parts_left;
            filled += run.filled;
        }
        // The test checks that it covers all kinds of ends.
        let kinds = [ErrorKind::Interrupted, ErrorKind::Unreachable, ErrorKind::NotFound, ErrorKind::Corrupt];
        for kind in kinds {
            assert!(ends.contains(&Some(kind)), "no run ended with {kind:?}: {ends:?}");
        }
        assert!(parts_left > 10, "only {parts_left} kills left a part");
        assert!(filled > 10, "only {filled} runs had no room");
    }

    /// In this seed, the name of a silent server was looked up to ask it over another link while the clock
    /// leapt past the end. The loop once spun without a pause until the name was known.
    #[test]
    fn nobody_waits_for_a_name_after_the_end() {
        let _guard = SeedGuard(500_122);
        let _ = run(500_122);
    }

    #[test]
    fn the_same_seed_gives_the_same() {
        for seed in 0..20 {
            assert_eq!(run(seed), run(seed), "seed {seed}");
        }
    }

    /// A file without any hash is not replaced. Only a command with a history knows that it fetched this
    /// file.
    #[test]
    fn what_came_without_a_hash_is_known_again_only_by_who_remembers_it() {
        for remembers in [false, true] {
            let dir = run_dir();
            let of = |seed| Command::new(&mut Rng::new(seed), Known::Nothing, remembers, (2, 0), dir.path());
            let command = (0..).map(of).find(|command| command.leaves.is_empty()).expect("a short one");
            let run = |seed| command.run(seed, Weather::default(), &[Nature::Good; 2], &[]).result;
            run(1).expect("fair weather");
            let again = run(2);
            assert_eq!(
                again.as_ref().err().map(crate::Error::kind),
                match remembers {
                    true => None,
                    false => Some(ErrorKind::Target),
                }
            );
            assert!(command.can_tell() == remembers && is_right(&dir.path().join("f"), &command));
        }
    }

    /// The run is killed while it waits for the second mirror's answer, to compare it with the bytes of the
    /// first. The next run has nothing to fetch.
    #[test]
    fn what_an_earlier_run_brought_whole_is_remembered() {
        let is_killed = |seed: u64| {
            let dir = run_dir();
            let command = Command::new(&mut Rng::new(seed), Known::Nothing, true, (2, 0), dir.path());
            if !command.leaves.is_empty() {
                return false;
            }
            let weather = command.killed_at(Span::from_millis(500));
            let is_killed = command.run(seed, weather, &[Nature::Good, Nature::Faulty], &[]).is_killed;
            let fair = || command.run(seed, Weather::default(), &[Nature::Good; 2], &[]).result;
            fair().expect("fair weather");
            fair().unwrap_or_else(|e| panic!("seed {seed}: it is not known again: {e}"));
            is_killed && dir.path().join("f").exists()
        };
        assert!((0..20_000).filter(|seed| is_killed(*seed)).take(40).count() == 40, "too few were killed");
    }

    #[test]
    fn a_kill_leaves_what_was_there_then() {
        // The run is killed in the middle. It leaves a part, with which the next run resumes.
        let dir = run_dir();
        let command = Command::new(&mut Rng::new(7), Known::Id, false, (2, 0), dir.path());
        let (natures, there) = ([Nature::Good; 2], []);
        let whole = command.run(1, Weather::default(), &natures, &there).after;
        fs::remove_file(dir.path().join("f")).expect("it arrived");
        let weather = command.killed_at(Span::from_nanos(whole.as_nanos() / 4 * 3));
        let ended = command.run(1, weather, &natures, &there);
        let left: Vec<OsString> = files(dir.path()).into_keys().collect();
        assert!(ended.is_killed && left == ["f.part", "f.part.journal"], "{left:?}");
        command.run(2, Weather::default(), &natures, &there).result.expect("fair weather");
        assert!(is_right(&dir.path().join("f"), &command));
    }

    /// However much room there is, a full disk is reported, and no part of the file has the final name. With
    /// room again, the next run resumes.
    #[test]
    fn a_full_disk_is_told_and_what_arrived_is_gone_on_with() {
        let (natures, there) = ([Nature::Good; 2], [true]);
        for known in [Known::Id, Known::Sha256, Known::Nothing] {
            let sources = &there[..usize::from(known == Known::Id)];
            for tenths in 0..10 {
                let dir = run_dir();
                let command = Command::new(&mut Rng::new(7), known, false, (2, sources.len()), dir.path());
                let length = command.content.len() as u64;
                let ended = command.run(
                    1,
                    Weather { room: Some(length * tenths / 10), ..Weather::default() },
                    &natures,
                    sources,
                );
                let error = ended.result.expect_err("no room");
                assert!(ended.had_no_room && error.kind() == ErrorKind::Target, "{error}");
                let says = "the disk is full: make room and run the same `Get` again, what arrived is kept";
                assert!(error.to_string().contains(says), "{error}");
                assert!(!dir.path().join("f").exists());
                let ended = command.run(2, Weather::default(), &natures, sources);
                ended.result.expect("there is room again");
                assert!(is_right(&dir.path().join("f"), &command));
                // The next run does not fetch again the bytes that had arrived.
                let came: u64 = ended.came.iter().sum();
                assert!(tenths < 5 || came < length, "{came} of {length} bytes, {tenths} tenths were here");
            }
        }
    }

    /// A mirror that takes connections and never answers delays the others by little.
    #[test]
    fn a_mute_mirror_costs_about_a_second() {
        for natures in [[Nature::Good, Nature::Mute], [Nature::Mute, Nature::Good]] {
            let after = |natures: &[Nature]| {
                let dir = run_dir();
                let command =
                    Command::new(&mut Rng::new(7), Known::Sha256, false, (natures.len(), 0), dir.path());
                let ended = command.run(1, Weather::default(), natures, &[]);
                ended.result.expect("one mirror is enough");
                ended.after
            };
            let (alone, beside) = (after(&[Nature::Good]), after(&natures));
            assert!(beside < alone + Span::from_millis(1_500), "{beside} beside it, {alone} without it");
        }
    }

    #[test]
    fn both_links_bring_something_and_the_same_seed_the_same() {
        for (mirrors, sources) in [(2, 0), (0, 1), (1, 2)] {
            let came = || {
                let dir = run_dir();
                let command =
                    Command::new(&mut Rng::new(7), Known::Id, false, (mirrors, sources), dir.path());
                let (natures, there) = (vec![Nature::Good; mirrors], vec![true; sources]);
                let ended = command.run(1, Weather::default(), &natures, &there);
                ended.result.expect("fair weather");
                ended.came
            };
            let first = came();
            assert!(first.iter().all(|bytes| *bytes > 0), "{first:?}");
            assert_eq!(came(), first, "{mirrors} mirrors, {sources} sources");
        }
    }
}
