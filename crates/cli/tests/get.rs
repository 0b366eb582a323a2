//! Whole transfers between processes, and everything that can go wrong with one.

mod common;

use std::collections::HashSet;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anabranch::target::journal;
use common::relay::Relay;
use common::{Server, anabranch, noise, wait_until};
use mmtp::ContentId;
use mmtp::uri::Uri;
use mmtp::wire::{self, Packet, RangeKind};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// The name of a content and nothing else: no sources.
fn bare(content: &[u8]) -> String {
    Uri::new(ContentId::of(content)).to_string()
}

fn get(uri: &str, output: &Path, more: &[&str]) -> Command {
    let mut command = anabranch();
    command.args(["get", uri, "--json", "--output"]).arg(output).args(more);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Ends within two minutes, whatever happens.
fn run(mut command: Command) -> Output {
    let child = command.spawn().expect("a process");
    let pid = Pid::from_raw(child.id() as i32);
    let done = Arc::new(Mutex::new(false));
    let watched = Arc::clone(&done);
    thread::spawn(move || {
        for _ in 0..1_200 {
            thread::sleep(Duration::from_millis(100));
            if *watched.lock().expect("a lock") {
                return;
            }
        }
        let _ = kill(pid, Signal::SIGKILL);
    });
    let output = child.wait_with_output().expect("its end");
    *done.lock().expect("a lock") = true;
    output
}

fn code(output: &Output) -> Option<i32> {
    if output.status.code() != Some(0) {
        eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    }
    output.status.code()
}

fn summary(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().expect("a summary");
    let value: Value = serde_json::from_str(last).expect("JSON");
    assert_eq!(value["event"], "summary", "{text}");
    value
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a directory");
    let mut names: Vec<_> =
        entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A directory with a file to serve and an empty directory to fetch into.
struct Ground {
    dir: tempfile::TempDir,
    content: Vec<u8>,
}

impl Ground {
    fn new(len: usize) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let content = noise(len);
        fs::write(dir.path().join("source"), &content).expect("a file");
        fs::create_dir(dir.path().join("to")).expect("a directory");
        Self { dir, content }
    }
    fn source(&self) -> std::path::PathBuf {
        self.dir.path().join("source")
    }
    fn to(&self) -> std::path::PathBuf {
        self.dir.path().join("to")
    }
    fn target(&self) -> std::path::PathBuf {
        self.to().join("f")
    }
    fn assert_arrived(&self) {
        assert!(fs::read(self.target()).expect("a file") == self.content, "other bytes");
        assert_eq!(names(&self.to()), ["f"]);
    }
}

#[test]
fn three_sources_one_file() {
    let ground = Ground::new(30_000_000);
    // None can bring all of it before the others have answered.
    let servers = [(); 3].map(|()| Server::start_at(&ground.source(), "127.0.0.1:0", &["--limit", "100M"]));
    let from: Vec<String> = servers.iter().map(|s| format!("--from={}", s.address)).collect();
    let from: Vec<&str> = from.iter().map(String::as_str).collect();
    let output = run(get(&bare(&ground.content), &ground.target(), &from));
    assert_eq!(code(&output), Some(0));
    ground.assert_arrived();
    let summary = summary(&output);
    assert_eq!(summary["complete"], true);
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
        let from = servers.each_ref().map(|s| format!("--from={}", s.address));
        let [a, b, c] = from.each_ref().map(String::as_str);
        let options = ["--via=lo", "--force", groups, a, b, c];
        let output = run(get(&bare(&ground.content), &ground.target(), &options));
        assert_eq!(code(&output), Some(0));
        ground.assert_arrived();
        let summary = summary(&output);
        let rows = summary["last"]["paths"].as_array().expect("rows").iter();
        let found: Vec<_> = rows.map(|row| row["group"].as_u64()).collect();
        assert_eq!(found, wanted.map(Some), "{groups}");
        let told = String::from_utf8_lossy(&output.stdout).contains("line 3 names a source");
        assert_eq!(told, groups.ends_with("/groups"), "{groups}");
    }
}

#[test]
fn small_files_and_odd_names() {
    let dir = tempfile::tempdir().expect("a directory");
    let to = dir.path().join("to");
    fs::create_dir(&to).expect("a directory");
    for (name, len) in [
        (&b"empty"[..], 0),
        (b"two words", 1),
        (b"new\nline", 16_384),
        (b"\xff\xfe", 16_385),
        (&[b'n'; 255], 9),
    ] {
        let path = dir.path().join(std::ffi::OsStr::from_bytes(name));
        fs::write(&path, noise(len)).expect("a file");
        let server = Server::start(&path);
        assert_eq!(code(&run(get(&server.uri(), &to, &[]))), Some(0));
        let arrived = fs::read(to.join(std::ffi::OsStr::from_bytes(name))).expect("a file");
        assert!(arrived == noise(len));
    }
    assert_eq!(names(&to).len(), 5);
}

#[test]
fn a_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().join("album");
    fs::create_dir_all(root.join("sub/deep")).expect("directories");
    let files = [("one", 40_000), ("sub/two words", 0), ("sub/deep/run", 3_000_000), ("same", 40_000)];
    for (name, len) in files {
        fs::write(root.join(name), noise(len)).expect("a file");
    }
    fs::set_permissions(root.join("sub/deep/run"), fs::Permissions::from_mode(0o755)).expect("a mode");
    let server = Server::start(&root);
    let here = dir.path().join("here");
    fs::create_dir(&here).expect("a directory");
    let to = here.join("album");
    for _ in 0..2 {
        // The second time all is there already.
        let mut command = anabranch();
        command.args(["get", &server.uri(), "--quiet"]).current_dir(&here);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        assert_eq!(code(&run(command)), Some(0));
        for (name, len) in files {
            assert!(fs::read(to.join(name)).expect("a file") == noise(len), "{name}");
        }
    }
    let mode = |name| fs::metadata(to.join(name)).expect("a file").mode() & 0o111;
    assert!(mode("sub/deep/run") != 0 && mode("one") == 0);
    assert_eq!(names(&to), ["one", "same", "sub"]);
}

#[test]
fn a_five_gigabyte_hole() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("sparse");
    fs::File::create(&path).and_then(|file| file.set_len(5 << 30)).expect("a file");
    let server = Server::start(&path);
    let to = dir.path().join("arrived");
    assert_eq!(code(&run(get(&server.uri(), &to, &[]))), Some(0));
    let meta = fs::metadata(&to).expect("a file");
    assert_eq!(meta.len(), 5 << 30);
    assert!(meta.blocks() < 2_048, "{} blocks", meta.blocks());
}

#[test]
fn a_source_dies_and_returns_and_another_lies() {
    let ground = Ground::new(12_000_000);
    let limit = ["--limit", "2M"];
    let steady = Server::start_at(&ground.source(), "127.0.0.1:0", &limit);
    let dying = Server::start_at(&ground.source(), "127.0.0.1:0", &limit);
    let honest = Server::start_at(&ground.source(), "127.0.0.1:0", &limit);
    let liar = Relay::liar(honest.address, 40);
    let address = dying.address;
    let from = [steady.address, address, liar.address].map(|a| format!("--from={a}"));
    let from = from.each_ref().map(String::as_str);
    let mut command = get(&bare(&ground.content), &ground.target(), &from);
    let running = thread::spawn(move || {
        run({
            command.arg("--disjoint");
            command
        })
    });
    thread::sleep(Duration::from_millis(700));
    drop(dying);
    thread::sleep(Duration::from_millis(900));
    let back = Server::start_at(&ground.source(), &address.to_string(), &limit);
    let output = running.join().expect("an end");
    assert_eq!(code(&output), Some(0));
    ground.assert_arrived();
    let summary = summary(&output);
    let banned = summary["struck_off"].as_array().expect("a list");
    assert_eq!(banned.len(), 1, "{summary}");
    assert!(banned[0]["source"].as_str().expect("a source").contains(&liar.address.to_string()), "{summary}");
    assert!(back.end()["sent_bytes"].as_u64() > Some(100_000), "the one that came back is used again");
}

#[test]
fn killed_ten_times() {
    let ground = Ground::new(10_000_000);
    let id = ContentId::of(&ground.content);
    let server = Server::start_at(&ground.source(), "127.0.0.1:0", &["--limit", "4M"]);
    // Nobody may ask for a block that the journal had when it began.
    let recorded: Arc<Mutex<HashSet<u64>>> = Arc::default();
    let twice: Arc<Mutex<Vec<u64>>> = Arc::default();
    let (known, asked) = (Arc::clone(&recorded), Arc::clone(&twice));
    let relay = Relay::start(
        server.address,
        Box::new(move |to_source, packet| {
            if let (true, Ok(Packet::Request(request))) = (to_source, wire::parse(packet)) {
                for range in request.ranges {
                    if let RangeKind::Data(cut) = range.kind {
                        let (first, last) = (range.first, range.first + u64::from(range.count) - 1);
                        let blocks = first / u64::from(cut.get())..=last / u64::from(cut.get());
                        let known = known.lock().expect("a lock");
                        asked.lock().expect("a lock").extend(blocks.filter(|g| known.contains(g)));
                    }
                }
            }
        }),
    );
    let from = format!("--from={}", relay.address);
    let journal_path = ground.to().join("f.part.journal");
    let mut most = 0;
    for n in 0..10_u64 {
        let mut child: Child =
            get(&bare(&ground.content), &ground.target(), &[&from]).spawn().expect("a process");
        thread::sleep(Duration::from_millis(60 + n * 37 % 130));
        child.kill().expect("killed");
        child.wait().expect("its end");
        // What it asked for last is still on the way.
        thread::sleep(Duration::from_millis(50));
        assert!(!ground.target().exists());
        let records = journal::parse(&fs::read(&journal_path).unwrap_or_default()).map(|(found, records)| {
            assert_eq!(found, id);
            records.into_iter().map(|(block, _)| block).collect::<HashSet<u64>>()
        });
        let records = records.unwrap_or_default();
        assert!(records.len() >= most, "nothing is forgotten");
        most = records.len();
        *recorded.lock().expect("a lock") = records;
    }
    assert!(most > 0, "it never got anywhere");
    assert_eq!(code(&run(get(&bare(&ground.content), &ground.target(), &[&from]))), Some(0));
    ground.assert_arrived();
    assert!(twice.lock().expect("a lock").is_empty(), "fetched twice: {:?}", twice.lock());
}

#[test]
fn interrupted_and_resumed() {
    let ground = Ground::new(4_000_000);
    let server = Server::start_at(&ground.source(), "127.0.0.1:0", &["--limit", "2M"]);
    let child = get(&server.uri(), &ground.target(), &[]).spawn().expect("a process");
    thread::sleep(Duration::from_millis(800));
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).expect("a signal");
    let output = child.wait_with_output().expect("its end");
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(names(&ground.to()), ["f.part", "f.part.journal"]);
    let output = run(get(&server.uri(), &ground.target(), &[]));
    assert_eq!(code(&output), Some(0));
    assert!(summary(&output)["last"]["resumed_bytes"].as_u64() > Some(100_000));
    ground.assert_arrived();
}

#[test]
fn two_at_once() {
    let ground = Ground::new(4_000_000);
    let server = Server::start_at(&ground.source(), "127.0.0.1:0", &["--limit", "2M"]);
    let mut first = get(&server.uri(), &ground.target(), &[]).spawn().expect("a process");
    wait_until(5, || ground.to().join("f.part").exists());
    let output = run(get(&server.uri(), &ground.target(), &[]));
    assert_eq!(output.status.code(), Some(6));
    assert!(String::from_utf8_lossy(&output.stderr).contains("another get"));
    assert!(first.wait().expect("its end").success());
    ground.assert_arrived();
}

#[test]
fn nobody_has_it() {
    let ground = Ground::new(100_000);
    let server = Server::start(&ground.source());
    let from = format!("--from={}", server.address);
    let output = run(get(&bare(b"something else"), &ground.target(), &[&from, "--timeout", "5"]));
    assert_eq!(output.status.code(), Some(3));
    assert!(!ground.target().exists());
}

#[test]
fn nobody_answers() {
    let ground = Ground::new(100_000);
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let closed = "127.0.0.1:9".parse().expect("an address");
    for address in [silent.local_addr().expect("an address"), closed] {
        let from = format!("--from={address}");
        let output = run(get(&bare(&ground.content), &ground.target(), &[&from, "--timeout", "1"]));
        assert_eq!(output.status.code(), Some(4));
    }
    // A promise that cannot be kept is refused.
    let output = run(get(
        &bare(&ground.content),
        &ground.target(),
        &["--from=127.0.0.1:9", "--via", "no-such-device"],
    ));
    assert!(matches!(output.status.code(), Some(2 | 4)));
    // No route: documentation addresses of IPv6 lead nowhere from a host without IPv6, and nowhere at all
    // else.
    let output =
        run(get(&bare(&ground.content), &ground.target(), &["--from=[2001:db8::1]:9", "--timeout", "1"]));
    assert_eq!(output.status.code(), Some(4));
}

#[test]
fn everybody_lies() {
    let ground = Ground::new(1_000_000);
    let server = Server::start(&ground.source());
    let liars = [Relay::liar(server.address, 3), Relay::liar(server.address, 5)];
    let from = liars.each_ref().map(|liar| format!("--from={}", liar.address));
    let output = run(get(&bare(&ground.content), &ground.target(), &[&from[0], &from[1], "--timeout", "20"]));
    assert_eq!(output.status.code(), Some(5));
    assert_eq!(summary(&output)["struck_off"].as_array().map(Vec::len), Some(2));
    assert!(!ground.target().exists());
}

/// A source of random bytes, of reflected requests, of packets that are too long, beside an honest one.
#[test]
fn rubbish_does_no_harm() {
    let ground = Ground::new(2_000_000);
    let server = Server::start(&ground.source());
    let mut turn = 0;
    let rubbish = Relay::start(
        server.address,
        Box::new(move |to_source, packet| {
            turn += 1;
            if !to_source {
                match turn % 4 {
                    0 => *packet = noise(turn % 1_400 + 1),
                    1 => packet.extend(noise(turn % 30_000)),
                    2 => packet.truncate(turn % packet.len().max(1)),
                    _ => packet[0] = 77,
                }
            }
        }),
    );
    let from = [server.address, rubbish.address].map(|a| format!("--from={a}"));
    let output = run(get(&bare(&ground.content), &ground.target(), &[&from[0], &from[1]]));
    assert_eq!(code(&output), Some(0));
    ground.assert_arrived();
}

#[test]
fn targets_that_do_not_take_it() {
    let ground = Ground::new(3_000_000);
    let server = Server::start(&ground.source());
    let uri = server.uri();
    fs::write(ground.target(), b"precious").expect("a file");
    assert_eq!(run(get(&uri, &ground.target(), &[])).status.code(), Some(6));
    assert_eq!(fs::read(ground.target()).expect("a file"), b"precious");
    assert_eq!(run(get(&uri, &ground.to().join("none/f"), &[])).status.code(), Some(6));
    assert_eq!(run(get(&uri, Path::new("/proc/f"), &[])).status.code(), Some(6));
    // A limit on the size of files: what fits is kept, and more room lets it go on.
    let limited = ground.to().join("limited");
    let mut shell = anabranch();
    shell = {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "ulimit -f 2000; exec \"$0\" get \"$1\" --output \"$2\"",
            shell.get_program().to_str().expect("UTF-8"),
        ]);
        command.arg(&uri).arg(&limited).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let output = run(shell);
    assert_eq!(output.status.code(), Some(6), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(code(&run(get(&uri, &limited, &[]))), Some(0));
    assert!(fs::read(limited).expect("a file") == ground.content);
    // Force.
    assert_eq!(code(&run(get(&uri, &ground.target(), &["--force"]))), Some(0));
    assert!(fs::read(ground.target()).expect("a file") == ground.content);
}

#[test]
fn a_full_disk() {
    let ground = Ground::new(3_000_000);
    let disk = ground.dir.path().join("disk");
    fs::create_dir(&disk).expect("a directory");
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(&disk).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: mounting a small tmpfs needs root");
        return;
    }
    let server = Server::start(&ground.source());
    let output = run(get(&server.uri(), &disk.join("f"), &[]));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let larger = Command::new("mount").args(["-o", "remount,size=16m"]).arg(&disk).status();
    let resumed = run(get(&server.uri(), &disk.join("f"), &[]));
    let arrived = fs::read(disk.join("f")).unwrap_or_default();
    let _ = Command::new("umount").arg(&disk).status();
    assert_eq!(output.status.code(), Some(6), "{text}");
    assert!(text.contains("full"), "{text}");
    assert!(larger.is_ok_and(|status| status.success()));
    assert_eq!(code(&resumed), Some(0));
    assert!(arrived == ground.content);
}
