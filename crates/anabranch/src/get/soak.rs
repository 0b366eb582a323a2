//! Whole transfers in a simulated world, by seeds: whatever mirrors and links do, a file that has its name is
//! right, every run ends, and once the weather is fair the same command completes what is there.
//!
//! `ANABRANCH_SOAK_SEEDS=100000 cargo test -p anabranch --lib soak` runs more than the usual 300.

mod sim_source;
mod sim_world;

use std::path::Path;
use std::rc::Rc;

use algo::Span;
use algo::control::{ALGORITHMS, Algorithm};
use mirror::digests::Digests;
use mirror::leaf_list::LeafList;
use mirror::url::Url;
use mmtp::ContentId;
use mmtp::id::BLOCK_BYTES;
use mmtp::tree::block_cv;
use mmtp::uri::Uri;

use super::event_loop::EventLoop;
use super::fetch::fetch_named;
use super::groups::Groups;
use super::history::History;
use super::locators::Locators;
use super::request::Request;
use crate::error::ErrorKind;
use crate::event::Observer;
use crate::target::Output;
use crate::{Control, Result, Stop};
use sim_world::{Nature, Rng, SimWorld};

/// Runs in bad weather, before the last.
const RUNS_MAX: u64 = 3;

/// One command: its names, where the file goes, and the world's content.
struct Command {
    locators: Locators,
    request: Request,
    content: Rc<Vec<u8>>,
    leaves: Rc<Vec<u8>>,
}

impl Command {
    fn new(rng: &mut Rng, mirrors: usize, sources: usize, to: &Path) -> Self {
        let length = 1 + rng.below(60 * BLOCK_BYTES as u64);
        let content: Vec<u8> = (0..length).map(|_| rng.below(256) as u8).collect();
        let id = ContentId::of(&content);
        let cvs = content.chunks(BLOCK_BYTES).zip(0..).map(|(bytes, block)| block_cv(block, bytes));
        // A content of one block needs no list.
        let leaves = LeafList::new(id, cvs.collect()).map_or_else(Vec::new, |list| list.encode());
        let urls = (0..mirrors).map(|n| Url::parse(&format!("http://m{n}/f")).expect("a URL")).collect();
        let locators = Locators { uri: Some(Uri::new(id)), urls, ..Locators::default() };
        let request = Request {
            history: History::default(),
            from: (1..=sources).map(|port| format!("s:{port}").parse().expect("a source")).collect(),
            via: Vec::new(),
            output: Output::Path(to.join("f")),
            reader: None,
            algorithm: Algorithm::by_name(ALGORITHMS[rng.below(3) as usize].name).expect("its name"),
            groups: Groups::All,
            timeout: Span::from_secs(60),
            force: false,
            digests: Digests::default(),
            http: anabranch_http::client::Options::default(),
        };
        Self { locators, request, content: Rc::new(content), leaves: Rc::new(leaves) }
    }

    /// Runs it in this weather; returns how it ended, and what came over each link.
    fn run(&self, seed: u64, calm: bool, natures: &[Nature], sources: &[bool]) -> (Result<()>, Vec<u64>) {
        let stop = Stop::new().expect("descriptors");
        let contents = (Rc::clone(&self.content), Rc::clone(&self.leaves));
        let mut world = SimWorld::new(seed, calm, stop.clone(), natures, sources, contents);
        let mut listener = |_| Control::Continue;
        let mut observer = Observer::new(&mut listener, stop, Span::from_millis(200));
        let mut events = EventLoop::new(&mut world, &mut observer, self.request.timeout);
        let outcome = fetch_named(&self.request, self.locators.clone(), &mut events);
        (outcome.and_then(|outcome| outcome.result), world.came)
    }
}

fn natures(rng: &mut Rng) -> Vec<Nature> {
    let all = [Nature::Good, Nature::Faulty, Nature::Liar, Nature::Empty];
    (0..rng.below(4)).map(|_| all[rng.below(4) as usize]).collect()
}

fn is_right(file: &Path, command: &Command) -> bool {
    std::fs::read(file).expect("the file") == *command.content
}

/// Names the seed when a part of the program panics under it.
struct SeedGuard(u64);

impl Drop for SeedGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("that was seed {}", self.0);
        }
    }
}

/// Runs one seed; returns how its runs ended.
fn soak(seed: u64) -> Vec<Option<ErrorKind>> {
    let _guard = SeedGuard(seed);
    let mut rng = Rng(seed);
    let dir = tempfile::tempdir().expect("a directory");
    let natures = natures(&mut rng);
    // Without a mirror there is a source.
    let sources = rng.below(3).max(u64::from(natures.is_empty()));
    let sources: Vec<bool> = (0..sources).map(|_| !rng.one_in(3)).collect();
    let command = Command::new(&mut rng, natures.len(), sources.len(), dir.path());
    let file = dir.path().join("f");
    let mut ends = Vec::new();
    for _ in 0..rng.below(RUNS_MAX + 1) {
        let (result, _) = command.run(rng.below(u64::MAX), false, &natures, &sources);
        // Whatever happens: under its name there is the file, or nothing.
        assert!(file.exists() || result.is_err(), "seed {seed}: nothing arrived");
        if file.exists() {
            assert!(is_right(&file, &command), "seed {seed}: {result:?}, with other bytes");
        }
        ends.push(result.err().map(|error| error.kind()));
    }
    let fair = vec![Nature::Good; natures.len()];
    let there = vec![true; sources.len()];
    let mut fair = || command.run(rng.below(u64::MAX), true, &fair, &there).0;
    let mut result = fair();
    // Of what a liar brought before, it may turn out only at the end that it is wrong: it is removed then.
    let is_removed = |e: &crate::Error| matches!(e.kind(), ErrorKind::Corrupt | ErrorKind::Target);
    if natures.contains(&Nature::Liar) && result.as_ref().is_err_and(is_removed) {
        result = fair();
    }
    result.unwrap_or_else(|e| panic!("seed {seed}: in fair weather: {e}"));
    ends.push(None);
    assert!(is_right(&file, &command), "seed {seed}: other bytes");
    let left: Vec<_> = std::fs::read_dir(dir.path()).expect("a directory").collect();
    assert_eq!(left.len(), 1, "seed {seed}: {left:?}");
    ends
}

#[test]
fn seeded_transfers_end_and_what_arrives_is_right() {
    let mut ends = Vec::new();
    let seeds = std::env::var("ANABRANCH_SOAK_SEEDS").map_or(300, |seeds| seeds.parse().expect("a number"));
    for seed in 0..seeds {
        ends.extend(soak(seed));
    }
    // It proves its own conditions: all kinds of ends were seen.
    let kinds = [ErrorKind::Interrupted, ErrorKind::Unreachable, ErrorKind::NotFound, ErrorKind::Corrupt];
    for kind in kinds {
        assert!(ends.contains(&Some(kind)), "no run ended with {kind:?}: {ends:?}");
    }
}

#[test]
fn both_links_bring_something_and_the_same_seed_the_same() {
    for (mirrors, sources) in [(2, 0), (0, 1), (1, 2)] {
        let came = || {
            let dir = tempfile::tempdir().expect("a directory");
            let command = Command::new(&mut Rng(7), mirrors, sources, dir.path());
            let (natures, there) = (vec![Nature::Good; mirrors], vec![true; sources]);
            let (result, came) = command.run(1, true, &natures, &there);
            result.expect("fair weather");
            came
        };
        let first = came();
        assert!(first.iter().all(|bytes| *bytes > 0), "{first:?}");
        assert_eq!(came(), first, "{mirrors} mirrors, {sources} sources");
    }
}
