//! Directories with files whose names look like the parts of other files.

use std::fs;
use std::path::PathBuf;

use crate::common::fetch::{Ground, fetch, run, spawn, tree};
use crate::common::{Server, noise, wait_until};
use anabranch::on_disk::{PART_PREFIX, journal};
use nix::sys::signal::Signal;

/// Makes a directory to serve, with every name that could collide with `NAME.part` and `NAME.part.journal`.
fn album(ground: &Ground) -> PathBuf {
    let root = ground.dir.path().join("album");
    fs::create_dir_all(root.join("z.part")).expect("directories");
    for (name, len) in [
        ("x", 3_000_000),
        ("x.part", 0),
        ("x.part.journal", 40_000),
        ("y", 2_000_000),
        ("y.part", 1_900_000),
        ("z", 700_000),
        ("z.part/z", 500),
    ] {
        fs::write(root.join(name), noise(len)).expect("a file");
    }
    root
}

#[test]
fn files_named_like_parts_arrive_as_they_are() {
    let ground = Ground::new(1);
    let root = album(&ground);
    let server = Server::start(&root);
    for more in [&[][..], &["--force"]] {
        let to = ground.to().join(format!("copy{}", more.len()));
        let mut command = fetch(server.uri(), &to);
        command.args(more);
        run(command).expect(0);
        assert!(tree(&to) == tree(&root), "{more:?}: {:?}", tree(&to).keys());
    }
}

#[test]
fn a_directory_with_such_files_resumes_after_a_kill() {
    let ground = Ground::new(1);
    let root = album(&ground);
    let server = Server::start_at(&root, "127.0.0.1:0", &["--limit=3M"]);
    let to = ground.to().join("copy");
    let command = || {
        let mut command = fetch(server.uri(), &to);
        command.arg("--json");
        command
    };
    let running = spawn(command());
    let recorded = || {
        let Ok(entries) = fs::read_dir(&to) else { return 0 };
        let names = entries.filter_map(|e| Some(e.ok()?.file_name().to_string_lossy().into_owned()));
        let journals = names.filter(|n| n.starts_with(PART_PREFIX) && n.ends_with(".journal"));
        journals
            .filter_map(|n| journal::parse(&fs::read(to.join(n)).ok()?).ok())
            .map(|(_, blocks)| blocks.len())
            .sum()
    };
    wait_until(30, || recorded() >= 40);
    running.signal(Signal::SIGKILL);
    assert_eq!(running.end().code, None);
    assert!(!to.join("x").exists());
    let done = run(command()).expect(0);
    assert!(done.summary()["last"]["resumed_bytes"].as_u64() >= Some(30 * 16_384), "{}", done.out);
    assert!(tree(&to) == tree(&root), "{:?}", tree(&to).keys());
}

#[test]
fn of_a_directory_that_has_not_wholly_arrived_the_whole_files_are_offered() {
    let ground = Ground::new(1);
    let root = ground.dir.path().join("album");
    fs::create_dir(&root).expect("a directory");
    fs::write(root.join(format!("{PART_PREFIX}0123")), b"half").expect("a file");
    fs::write(root.join("whole"), b"whole").expect("a file");
    let server = Server::start(&root);
    let to = ground.to().join("copy");
    run(fetch(server.uri(), &to)).expect(0);
    assert_eq!(fs::read(to.join("whole")).expect("it arrived"), b"whole");
    assert_eq!(fs::read_dir(&to).expect("a directory").count(), 1, "what is half is not offered");
}
