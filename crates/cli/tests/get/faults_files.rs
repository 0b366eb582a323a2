//! Unusual names, directories and targets: everything that is served arrives unchanged, and a target that
//! cannot be written is left as it was.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use crate::common::disk::Tmpfs;
use crate::common::fetch::{Ground, fetch, names, run, skipped, spawn, tree};
use crate::common::{Server, anabranch, noise};
use crate::peers::hostile::{Hostile, Mode};

#[test]
fn files_of_0_and_1_bytes_and_around_a_block_arrive_under_any_name() {
    let ground = Ground::new(1);
    let long = vec![b'n'; 255];
    // This name has 255 bytes, of two-byte characters and a one-byte character, so that no cut in half is
    // valid.
    let accents = format!("{}x", "é".repeat(127)).into_bytes();
    let names: [(&[u8], usize); 9] = [
        (b"nothing", 0),
        (b"one", 1),
        (b"two words and a trailing space ", 16_383),
        (b"a new\nline", 16_384),
        (b"no UTF-8 \xff\xfe", 16_385),
        (b"-o", 5),
        (b"100% sure?a=b&c#d", 6),
        (&long, 1_048_577),
        (&accents, 7),
    ];
    for (name, len) in names {
        let name = OsStr::from_bytes(name);
        let path = ground.dir.path().join(name);
        fs::write(&path, noise(len)).expect("a file");
        let server = Server::start(&path);
        // The name is in the URI.
        run(fetch(server.uri(), &ground.to())).expect(0);
        assert!(fs::read(ground.to().join(name)).expect("a file") == noise(len), "{}", name.display());
        // If neither the URI nor the command line has a name, the source is asked for it.
        let uri = server.uri();
        let bare: Vec<&str> = uri.split('&').filter(|part| !part.starts_with("name=")).collect();
        let elsewhere = ground.dir.path().join(format!("elsewhere {len}"));
        fs::create_dir(&elsewhere).expect("a directory");
        let mut command = anabranch();
        command.arg("get").arg(bare.join("&")).current_dir(&elsewhere);
        run(command).expect(0);
        assert!(fs::read(elsewhere.join(name)).expect("a file") == noise(len), "{}", name.display());
    }
    assert_eq!(fs::read_dir(ground.to()).expect("a directory").count(), names.len());
}

#[test]
fn a_directory_arrives_with_all_its_files_and_what_links_out_of_it_is_not_served() {
    let ground = Ground::new(1);
    let root = ground.dir.path().join("album");
    fs::create_dir_all(root.join("deep/er/still")).expect("directories");
    fs::create_dir_all(root.join("nobody here")).expect("directories");
    let files: [(&[u8], usize); 8] = [
        (b"one", 40_000),
        (b"the same", 40_000),
        (b"deep/the same once more", 40_000),
        (b"deep/empty", 0),
        (b"deep/er/run", 3_000_000),
        (b"deep/er/still/\xff\n", 1),
        (b".hidden", 17),
        (b"name\\with 'quotes\"", 16_384),
    ];
    for (name, len) in files {
        fs::write(root.join(OsStr::from_bytes(name)), noise(len)).expect("a file");
    }
    fs::set_permissions(root.join("deep/er/run"), fs::Permissions::from_mode(0o755)).expect("a mode");
    let wanted = tree(&root);
    // A link to a file inside counts as that file. Links that leave the directory are left out, as are
    // dangling and circular links.
    fs::write(ground.dir.path().join("secret"), noise(31_337)).expect("a file");
    symlink("deep/er/run", root.join("inside")).expect("a link");
    symlink("../secret", root.join("outside")).expect("a link");
    symlink("/etc", root.join("far outside")).expect("a link");
    symlink("nowhere", root.join("dangling")).expect("a link");
    symlink(".", root.join("deep/round")).expect("a link");
    let server = Server::start(&root);
    let secret = anabranch_mmtp::ContentId::of(&noise(31_337));
    assert!(server.offers.iter().all(|offer| offer["content"] != secret.to_string()));

    let to = ground.to().join("copy");
    run(fetch(server.uri(), &to)).expect(0);
    let mut arrived = tree(&to);
    let inside = arrived.remove(OsStr::new("inside")).expect("the file that a link inside leads to");
    assert!(inside == (noise(3_000_000), true));
    assert!(arrived == wanted, "{:?} instead of {:?}", arrived.keys(), wanted.keys());
    // The secret cannot be fetched by its hash either.
    let uri = anabranch_mmtp::uri::Uri::new(secret).to_string();
    let mut stolen = fetch(uri, &ground.to().join("stolen"));
    stolen.arg(format!("--from={}", server.address));
    run(stolen).expect(3);
}

#[test]
fn a_directory_that_is_interrupted_resumes_and_fetches_what_is_there_no_more() {
    let ground = Ground::new(1);
    let root = ground.dir.path().join("album");
    fs::create_dir_all(root.join("b")).expect("directories");
    for (name, len) in [("a", 300_000), ("b/c", 3_000_000), ("d", 1_000_000)] {
        fs::write(root.join(name), noise(len)).expect("a file");
    }
    let server = Server::start_at(&root, "127.0.0.1:0", &["--limit=3M"]);
    let to = ground.to().join("copy");
    let command = || {
        let mut command = fetch(server.uri(), &to);
        command.arg("--json");
        command
    };
    let running = spawn(command());
    // The smallest file is there; the largest cannot be there yet.
    crate::common::wait_until(30, || to.join("a").exists());
    running.signal(nix::sys::signal::Signal::SIGKILL);
    assert_eq!(running.end().code, None);
    assert!(!to.join("b/c").exists());
    let done = run(command()).expect(0);
    assert!(done.summary()["last"]["resumed_bytes"].as_u64() >= Some(300_000), "{}", done.out);
    assert!(tree(&to) == tree(&root));
    let again = run(command()).expect(0);
    assert_eq!(again.summary()["last"]["resumed_bytes"], 4_300_000);
}

#[test]
fn an_existing_file_is_never_overwritten_unless_forced() {
    let ground = Ground::new(300_000);
    let server = Server::start(&ground.source());
    let from = [server.address];
    fs::write(ground.target(), b"precious").expect("a file");
    let done = run(ground.get(&from, &[])).expect(6);
    assert!(done.err.contains("--force"), "{}", done.err);
    assert_eq!(fs::read(ground.target()).expect("a file"), b"precious");
    assert_eq!(names(&ground.to()), ["f"], "and nothing is left beside it");
    run(ground.get(&from, &["--force"])).expect(0);
    ground.assert_arrived();
    // A target with the same content is no error, and nothing is fetched.
    let sent = server.end()["sent_bytes"].as_u64();
    assert!(sent < Some(400_000), "{sent:?}");
    run(ground.get(&from, &["--timeout=1"])).expect(0);
}

#[test]
fn a_file_that_appears_while_it_is_fetched_is_not_overwritten() {
    let ground = Ground::new(3_000_000);
    let server = Server::start_at(&ground.source(), "127.0.0.1:0", &["--limit=4M"]);
    let running = spawn(ground.get(&[server.address], &[]));
    ground.wait_recorded(30);
    fs::write(ground.target(), b"precious").expect("a file");
    running.end().expect(6);
    assert_eq!(fs::read(ground.target()).expect("a file"), b"precious");
    // The fetched bytes are kept, and get the name when it is free again.
    fs::remove_file(ground.target()).expect("removed");
    let done = run(ground.get(&[server.address], &[])).expect(0);
    assert_eq!(done.summary()["last"]["resumed_bytes"], 3_000_000);
    ground.assert_arrived();
}

#[test]
fn a_target_that_is_a_directory_or_in_none_is_refused() {
    let ground = Ground::new(20_000);
    let server = Server::start(&ground.source());
    // A directory has the name of the file.
    fs::create_dir(ground.to().join("source")).expect("a directory");
    let done = run(fetch(server.uri(), &ground.to())).expect(6);
    assert!(done.err.contains("is a directory"), "{}", done.err);
    let done = run(fetch(server.uri(), &ground.to().join("none/f"))).expect(6);
    assert!(done.err.contains("none"), "{}", done.err);
    run(fetch(server.uri(), Path::new("/dev/null"))).expect(6);
    assert_eq!(names(&ground.to()), ["source"]);
    // A name with a slash at its end becomes a directory, if one can be made there.
    let done = run(fetch(server.uri(), Path::new("/dev/null/none/"))).expect(6);
    assert!(done.err.contains("cannot make the directory"), "{}", done.err);
    run(fetch(server.uri(), &ground.to().join("none/"))).expect(0);
    assert_eq!(names(&ground.to().join("none")), ["source"]);
}

#[test]
fn a_directory_that_is_not_writable_is_refused() {
    let ground = Ground::new(20_000);
    let server = Server::start(&ground.source());
    let closed = ground.to().join("closed");
    fs::create_dir(&closed).expect("a directory");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).expect("a mode");
    for open in [ground.dir.path(), &ground.to()] {
        fs::set_permissions(open, fs::Permissions::from_mode(0o755)).expect("a mode");
    }
    let get = fetch(server.uri(), &closed.join("f"));
    let done = if nix::unistd::geteuid().is_root() {
        // Root may write everywhere, so the command runs as another user.
        let mut other = Command::new("setpriv");
        other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        let probe = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .args([get.get_program(), OsStr::new("--version")])
            .output();
        if !probe.is_ok_and(|output| output.status.success()) {
            skipped("nobody else may run the program here");
            return;
        }
        other.arg(get.get_program()).args(get.get_args());
        run(other)
    } else {
        run(get)
    };
    let done = done.expect(6);
    assert!(done.err.contains("ermission"), "{}", done.err);
}

#[test]
fn of_four_gets_at_one_target_one_wins_and_the_others_say_why_not() {
    let ground = Ground::new(3_000_000);
    let server = Server::start_at(&ground.source(), "127.0.0.1:0", &["--limit=2M"]);
    let all = [(); 4].map(|()| spawn(ground.get(&[server.address], &[])));
    let mut lost = 0;
    for running in all {
        let done = running.end();
        if done.code != Some(0) {
            let done = done.expect(6);
            assert!(done.err.contains("another get is writing"), "{}", done.err);
            lost += 1;
        }
    }
    assert_eq!(lost, 3);
    ground.assert_arrived();
}

#[test]
fn a_disk_that_is_full_ends_it_with_status_6_and_more_room_lets_it_go_on() {
    let ground = Ground::new(3_000_000);
    let Some(disk) = Tmpfs::mount(&ground.to(), "1m") else { return };
    let server = Server::start(&ground.source());
    // A transfer without enough space is not even begun.
    let done = run(ground.get(&[server.address], &[])).expect(6);
    assert!(done.err.contains("needs 3.0 MB more") && done.err.contains("1.0 MB free"), "{}", done.err);
    assert!(names(&ground.to()).is_empty(), "{:?}", names(&ground.to()));
    // For a directory, each file may fit although all together do not.
    let album = ground.dir.path().join("album");
    fs::create_dir(&album).expect("a directory");
    ["a", "b"].iter().for_each(|name| fs::write(album.join(name), noise(700_000)).expect("a file"));
    let of_album = Server::start(&album);
    let copy = ground.to().join("copy");
    let done = run(fetch(of_album.uri(), &copy)).expect(6);
    assert!(done.err.contains("needs 1.4 MB more"), "{}", done.err);
    fs::remove_dir(&copy).expect("nothing is in it");
    // There is enough space at first, but then another file takes it.
    disk.resize("16m");
    let paced = Hostile::paced(&ground.content, Mode::Honest, 1_000_000);
    let running = spawn(ground.get(&[paced.address], &[]));
    ground.wait_recorded(20);
    let filler = ground.to().join("filler");
    assert!(fs::write(&filler, vec![1; 16 << 20]).is_err(), "it is full now");
    let done = running.end().expect(6);
    assert!(done.err.contains("full") || done.err.contains("No space left"), "{}", done.err);
    fs::remove_file(&filler).expect("the file");
    ground.assert_part();
    let kept = ground.recorded().len();
    assert!(kept > 10, "{kept} blocks fitted in");
    // A file that is complete needs no space.
    disk.resize("3200k");
    let done = run(ground.get(&[server.address], &[])).expect(0);
    assert_eq!(done.summary()["last"]["resumed_bytes"], kept as u64 * 16_384);
    ground.assert_arrived();
}
