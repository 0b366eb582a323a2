//! A process that is killed while it writes objects leaves whole ones only.

use std::env;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anabranch_cache::store::{Key, Meta, Store, Writer};
use tempfile::TempDir;

use crate::bed::bytes;

/// The variable that makes the test below a writer in this directory.
const DIRECTORY: &str = "ANABRANCH_CACHE_TEST_DIRECTORY";
const OBJECTS: u64 = 10_000;

fn key(number: u64) -> Key {
    Key::of_url(&format!("http://a.example/{number}"))
}

fn body(number: u64) -> Vec<u8> {
    bytes(1 + (number as usize * 7_919) % 90_000, number as u8)
}

fn put(store: &Store, number: u64) {
    let mut writer = Writer::begin(store).unwrap();
    body(number).chunks(10_000).for_each(|part| writer.write(part).unwrap());
    writer.finish(&key(number), &Meta::default()).unwrap();
}

/// Writes objects until it is killed, if it is told where.
#[test]
fn writer() {
    let Some(directory) = env::var_os(DIRECTORY) else { return };
    let store = Store::open(Path::new(&directory), 1 << 30).unwrap();
    for number in store.counters().objects..OBJECTS {
        put(&store, number);
    }
}

#[test]
fn a_killed_process_leaves_whole_objects_and_no_others() {
    let dir = TempDir::new().unwrap();
    let mut before = 0;
    for round in 1..=12 {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "kills::writer"])
            .env(DIRECTORY, dir.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // It is killed at another moment of its work each time.
        let objects = || {
            let directories = std::fs::read_dir(dir.path().join("objects")).into_iter().flatten().flatten();
            directories.map(|entry| std::fs::read_dir(entry.path()).unwrap().count() as u64).sum::<u64>()
        };
        while objects() < before + 3 {
            thread::sleep(Duration::from_millis(2));
        }
        thread::sleep(Duration::from_micros(1_300 * round));
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9), "it still wrote");
        let store = Store::open(dir.path(), 1 << 30).unwrap();
        let objects = store.counters().objects;
        assert!(objects >= before, "no whole object was lost");
        before = objects;
        for number in 0..objects {
            let object = store.get(&key(number)).expect("they were written in this order");
            let mut out = vec![0; object.length() as usize];
            object.read_at(0, &mut out).unwrap();
            assert!(out == body(number), "object {number}");
        }
        assert_eq!(std::fs::read_dir(dir.path().join("incoming")).unwrap().count(), 0);
    }
}
