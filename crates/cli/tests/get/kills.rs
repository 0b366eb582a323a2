//! Receivers that are killed (SIGKILL) again and again at random moments, with all kinds of sources: sources
//! that speak mmTP, mirrors, or both, some of them liars. Only the right bytes ever have the final name, and
//! in the end the file is there.
//!
//! `just long` kills more often.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::common::fetch::{Done, Ground, checksum, run, spawn};
use crate::peers::hostile::{Hostile, Mode};
use crate::peers::site::Site;
use anabranch_mmtp::ContentId;
use anabranch_mmtp::uri::Uri;
use anabranch_net::testing::extent;
use nix::sys::signal::Signal;

/// The rate of each source in bytes per second: two of them take two thirds of a second for a file.
const RATE: u64 = 2_000_000;
/// The longest time from the start of a run to its kill. Some runs are complete before.
const MOMENT_MAX_MS: u64 = 700;

/// The sources of the file, and the known hashes.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Two sources that speak mmTP.
    Sources,
    /// Two mirrors, without a hash.
    Mirrors,
    /// Two mirrors, with the SHA-256 of the whole file.
    MirrorsWithChecksum,
    /// A source, a mirror, and a liar of each kind.
    Mixed,
}

const KINDS: [Kind; 4] = [Kind::Sources, Kind::Mirrors, Kind::MirrorsWithChecksum, Kind::Mixed];

/// A content, and all its sources.
struct World {
    ground: Ground,
    kind: Kind,
    sources: Vec<Hostile>,
    sites: Vec<Site>,
}

impl World {
    fn new(kind: Kind, len: usize) -> Self {
        let ground = Ground::new(len);
        let content = &ground.content;
        let mut wrong = content.clone();
        wrong.iter_mut().step_by(5_000).for_each(|byte| *byte ^= 1);
        let source = || Hostile::paced(content, Mode::Honest, RATE);
        let site = || Site::slow(content, RATE);
        let (sources, sites) = match kind {
            Kind::Sources => (vec![source(), source()], vec![]),
            Kind::Mirrors | Kind::MirrorsWithChecksum => (vec![], vec![site(), site()]),
            Kind::Mixed => (
                vec![source(), Hostile::paced(content, Mode::WrongBytes, RATE)],
                vec![site(), Site::slow(&wrong, RATE)],
            ),
        };
        Self { ground, kind, sources, sites }
    }

    fn get(&self) -> Command {
        let urls: Vec<String> = self.sites.iter().map(Site::url).collect();
        match self.kind {
            Kind::Mirrors => self.ground.get_named(&urls, &["--json"]),
            Kind::MirrorsWithChecksum => {
                self.ground.get_named(&urls, &["--json", &checksum(&self.ground.content)])
            }
            Kind::Sources | Kind::Mixed => {
                let mut uri = Uri::new(ContentId::of(&self.ground.content));
                uri.from = self.sources.iter().map(|source| source.address.to_string()).collect();
                uri.mirrors = urls;
                self.ground.get_named(&[uri.to_string()], &["--json"])
            }
        }
    }

    /// Whether a file has the final name. Fails if its bytes are wrong.
    fn is_whole(&self) -> bool {
        match fs::read(self.ground.target()) {
            Ok(bytes) => {
                assert!(bytes == self.ground.content, "{:?}: wrong bytes have the final name", self.kind);
                true
            }
            Err(_) => false,
        }
    }
}

/// Returns 1 if an earlier run had left bytes of the file, else 0.
fn was_resumed(done: &Done) -> u64 {
    u64::from(done.summary()["last"]["resumed_bytes"].as_u64() > Some(0))
}

#[test]
fn killed_at_any_moment_with_any_sources_the_file_arrives_and_is_right() {
    let wanted = extent(12, 300);
    let mut seed = [0; 8];
    #[expect(clippy::disallowed_methods, reason = "the moments are to be others in each run of the tests")]
    getrandom::fill(&mut seed).expect("randomness");
    println!("seed {seed:?}");
    let mut random = blake3::Hasher::new().update(&seed).finalize_xof();
    let mut below = |max: u64| {
        let mut bytes = [0; 8];
        random.fill(&mut bytes);
        u64::from_le_bytes(bytes) % max
    };
    let (mut kills, mut files, mut resumed) = (0, 0, 0);
    while kills < wanted {
        let kind = KINDS[files % KINDS.len()];
        let world = World::new(kind, 2_000_000 + below(1_000_000) as usize);
        while !world.is_whole() && kills < wanted {
            let mut running = spawn(world.get());
            thread::sleep(Duration::from_micros(below(MOMENT_MAX_MS * 1_000)));
            if running.has_ended() {
                resumed += was_resumed(&running.end().expect(0));
            } else {
                running.signal(Signal::SIGKILL);
                running.end();
                kills += 1;
            }
        }
        if !world.is_whole() {
            resumed += was_resumed(&run(world.get()).expect(0));
        }
        world.ground.assert_arrived();
        files += 1;
    }
    println!("{kills} kills, {files} files, all right; {resumed} of them came in several runs");
    assert!(resumed > 0, "every file came in one run");
}
