//! Whole transfers between processes. Transfers in which something goes wrong are in `faults*.rs`.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use crate::common::disk::Roomy;
use crate::common::fetch::{Ground, fetch, names, run};
use crate::common::{Server, anabranch, noise};
use crate::peers::relay::Relay;

#[test]
fn three_sources_one_file() {
    let ground = Ground::new(30_000_000);
    // Two servers would need three seconds, in which the third one also answers.
    let servers = [(); 3].map(|()| Server::start_at(&ground.source(), "127.0.0.1:0", &["--limit", "5M"]));
    let done = run(ground.get(&servers.each_ref().map(|s| s.address), &[])).expect(0);
    ground.assert_arrived();
    assert_eq!(done.summary()["complete"], true);
    for server in servers {
        let totals = server.end();
        assert!(totals["sent_bytes"].as_u64() > Some(1_000_000), "each has its share: {totals}");
    }
}

#[test]
fn paths_are_in_the_groups_they_were_given() {
    let ground = Ground::new(3_000_000);
    let servers = [(); 3].map(|()| Server::start(&ground.source()));
    let file = ground.dir.path().join("groups");
    let text = format!("{} left\n{} lo right # by name\n", servers[1].address, servers[0].address);
    fs::write(&file, text + "192.0.2.1 left\n").expect("a file");
    let as_file = file.to_str().expect("UTF-8");
    for (groups, wanted) in [
        ("--groups=all", [0, 0, 0]),
        ("--groups=auto", [0, 0, 0]),
        ("--groups=none", [0, 1, 2]),
        ("--disjoint", [0, 1, 2]),
        (&format!("--groups={as_file}"), [2, 1, 0]),
    ] {
        let from = servers.each_ref().map(|s| s.address);
        let done = run(ground.get(&from, &["--via=lo", "--force", groups])).expect(0);
        ground.assert_arrived();
        let summary = done.summary();
        let rows = summary["last"]["paths"].as_array().expect("rows").iter();
        let found: Vec<_> = rows.map(|row| row["group"].as_u64()).collect();
        assert_eq!(found, wanted.map(Some), "{groups}");
        assert_eq!(done.out.contains("line 3 names a source"), groups.ends_with("/groups"), "{groups}");
    }
}

#[test]
fn a_directory_gets_its_name_and_is_there_the_second_time() {
    let ground = Ground::new(1);
    let root = ground.dir.path().join("album");
    fs::create_dir_all(root.join("sub/deep")).expect("directories");
    let files = [("one", 40_000), ("sub/two words", 0), ("sub/deep/run", 3_000_000), ("same", 40_000)];
    for (name, len) in files {
        fs::write(root.join(name), noise(len)).expect("a file");
    }
    let server = Server::start(&root);
    for _ in 0..2 {
        let mut command = anabranch();
        command.args(["get", &server.uri(), "--quiet"]).current_dir(ground.to());
        run(command).expect(0);
        for (name, len) in files {
            assert!(fs::read(ground.to().join("album").join(name)).expect("a file") == noise(len), "{name}");
        }
    }
    assert_eq!(names(&ground.to().join("album")), ["one", "same", "sub"]);
}

#[test]
fn a_five_gigabyte_hole() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("sparse");
    fs::File::create(&path).and_then(|file| file.set_len(5 << 30)).expect("a file");
    let server = Server::start(&path);
    // The check for free space ignores the holes of the file.
    let Some(room) = Roomy::new(5 << 30) else { return };
    let to = room.path().join("arrived");
    // `run` is not used here, because its time limit is too short for this on a busy machine.
    let output = fetch(server.uri(), &to).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let meta = fs::metadata(&to).expect("a file");
    assert_eq!(meta.len(), 5 << 30);
    assert!(meta.blocks() < 2_048, "{} blocks", meta.blocks());
}

#[test]
fn nobody_answers() {
    let ground = Ground::new(100_000);
    // The first address is a closed port; the second is for documentation, and no route leads to it.
    for source in ["127.0.0.1:9", "[2001:db8::1]:9"] {
        let from = source.parse().expect("an address");
        run(ground.get(&[from], &["--timeout", "1"])).expect(4);
    }
}

#[test]
fn everybody_lies() {
    let ground = Ground::new(1_000_000);
    let server = Server::start(&ground.source());
    let liars = [Relay::liar(server.address, 3), Relay::liar(server.address, 5)];
    let from = liars.each_ref().map(|liar| liar.address);
    let done = run(ground.get(&from, &["--timeout", "20"])).expect(5);
    assert_eq!(done.banned().len(), 2);
    assert!(!ground.target().exists());
}

#[test]
fn targets_that_do_not_take_it() {
    let ground = Ground::new(3_000_000);
    let server = Server::start(&ground.source());
    run(fetch(server.uri(), Path::new("/proc/f"))).expect(6);
    // With a limit on file sizes, the bytes that fit are kept; with a higher limit, the transfer resumes.
    let get = fetch(server.uri(), &ground.target());
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 2000; exec \"$0\" \"$@\""]).arg(get.get_program()).args(get.get_args());
    run(limited).expect(6);
    ground.assert_part();
    run(get).expect(0);
    ground.assert_arrived();
}
