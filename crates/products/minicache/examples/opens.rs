//! Measures opens by name: `cargo run --release -p anabranch-minicache --example opens [DIRECTORY]`.
//!
//! A full table of 65,536 objects is opened by all its names in random order. An open finds the entry,
//! compares the whole name, and returns length and place. With `pin` it is also kept from being removed and
//! released again, as each answer does. Rates are of processor time, so that a busy machine disturbs them
//! less. Beside it, open(2) and close(2) of as many files in DIRECTORY, best a tmpfs such as `/dev/shm`.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::thread;

use anabranch_cache::digest::Digest;
use anabranch_minicache::disk::Disk;
use anabranch_minicache::layout::{ENTRIES, Entry, Layout, Text};
use anabranch_minicache::name::Name;
use anabranch_minicache::table::Table;
use anabranch_mmtp::ContentId;
use nix::time::{ClockId, clock_gettime};

/// How often all names are opened in one run, and the runs whose median counts.
const ROUNDS: usize = 20;
const RUNS: usize = 9;

/// A full table that is made as it is read.
struct Full(Layout);

fn hash(number: u32) -> [u8; 32] {
    *blake3::hash(&number.to_le_bytes()).as_bytes()
}

fn entry(number: u32) -> Entry {
    Entry {
        generation: u64::from(number) + 1,
        id: ContentId { root: hash(number), length: 1_000 },
        digest: Digest::Sha256(hash(!number)),
        first_chunk: u64::from(number),
        media_type: Text::default(),
        label: Text::default(),
    }
}

impl Disk for Full {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let first = (offset - self.0.entry_at(0)) as usize / 256;
        for (number, bytes) in (first as u32..).zip(out.as_chunks_mut::<256>().0) {
            *bytes = entry(number).encode();
        }
        Ok(())
    }
    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns all numbers below `count` in random order.
fn shuffled(count: u32) -> Vec<u32> {
    let mut all: Vec<u32> = (0..count).collect();
    all.sort_by_key(|number| hash(number ^ 0x5555_5555));
    all
}

/// Returns the processor time that this thread has had, in nanoseconds: others on the machine do not count.
fn thread_nanos() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has it");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

/// Returns the median, over all runs, of opens a second of processor time, those of all threads added.
fn measure(threads: usize, names: usize, round: impl Fn() + Sync) -> f64 {
    let run = || {
        let began = thread_nanos();
        (0..ROUNDS).for_each(|_| round());
        (ROUNDS * names) as f64 / ((thread_nanos() - began) as f64 / 1e9)
    };
    let mut rates: Vec<f64> = (0..RUNS)
        .map(|_| {
            thread::scope(|scope| {
                let all: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
                all.into_iter().map(|thread| thread.join().expect("it counts")).sum()
            })
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    rates[RUNS / 2]
}

fn main() -> io::Result<()> {
    let layout = Layout::new(ENTRIES, 65_536, u64::from(ENTRIES)).map_err(io::Error::other)?;
    let table = Table::read(&Full(layout), layout)?;
    let order = shuffled(ENTRIES);
    let kinds = |at: usize| -> Vec<Name> { order.iter().map(|number| entry(*number).names()[at]).collect() };
    let mut out = io::stdout().lock();
    writeln!(out, "| opens of {ENTRIES} objects, random order | million a second |\n| --- | --- |")?;
    for (what, names) in [("BLAKE3", kinds(0)), ("SHA-256", kinds(1))] {
        for threads in [1, 2] {
            let find = || {
                for name in &names {
                    assert!(black_box(table.find(name)).is_some());
                }
            };
            let rate = measure(threads, names.len(), find) / 1e6;
            writeln!(out, "| by {what}, {threads} threads | {rate:.1} |")?;
        }
        let pin = || {
            for name in &names {
                let found = table.find(name).expect("it is there");
                assert!(table.pin(&found));
                table.unpin(black_box(found).slot);
            }
        };
        writeln!(out, "| by {what} with `pin`, 1 thread | {:.1} |", measure(1, names.len(), pin) / 1e6)?;
    }
    if let Some(directory) = std::env::args_os().nth(1) {
        let directory = Path::new(&directory).join(format!("opens-{}", std::process::id()));
        fs::create_dir(&directory)?;
        let paths: Vec<PathBuf> =
            order.iter().map(|number| directory.join(Name::Root(hash(*number)).to_string())).collect();
        paths.iter().try_for_each(|path| File::create(path).map(drop))?;
        let began = thread_nanos();
        paths.iter().try_for_each(|path| File::open(path).map(drop))?;
        let seconds = (thread_nanos() - began) as f64 / 1e9;
        fs::remove_dir_all(&directory)?;
        writeln!(
            out,
            "| open(2) and close(2) of files, 1 thread | {:.2} |",
            paths.len() as f64 / seconds / 1e6
        )?;
    }
    Ok(())
}
