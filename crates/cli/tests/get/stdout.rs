//! `get --output -`: writes one file in order into a pipe, and ends when the reader does.

use std::fs;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use crate::common::{Server, anabranch, noise, wait_until};
use crate::peers::site::Site;
use anabranch_mmtp::uri::Uri;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sha2::{Digest as _, Sha256};

/// Makes a `get` to standard output that runs in `dir`, where nothing is to be left.
fn get(names: &[&str], dir: &Path) -> Command {
    let mut command = anabranch();
    command.current_dir(dir).arg("get").args(names).args(["--output", "-"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn output(mut command: Command) -> Output {
    command.output().expect("it runs")
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Serves a file of `content` by both protocols.
fn serve(dir: &Path, content: &[u8]) -> Server {
    fs::write(dir.join("f.bin"), content).expect("a file");
    fs::create_dir(dir.join("to")).expect("a directory");
    Server::start_at(&dir.join("f.bin"), "127.0.0.1:0", &["--http", "127.0.0.1:0"])
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).expect("a directory").next().is_none()
}

#[test]
fn it_has_the_bytes_and_leaves_nothing_else() {
    let dir = tempfile::tempdir().expect("a directory");
    let (to, content) = (dir.path().join("to"), noise(45_000_001));
    let server = serve(dir.path(), &content);
    let (uri, url) = (server.uri(), server.offers[0]["http"][0].as_str().expect("a URL").to_owned());
    for names in [vec![&*uri], vec![&*url], vec![&*uri, &*url]] {
        let output = output(get(&names, &to));
        assert!(output.status.success(), "{}", err(&output));
        assert!(Sha256::digest(&output.stdout) == Sha256::digest(&content), "other bytes");
        // With the URL alone, only the server vouches for the file.
        let verdict = if names == [&*url] { "UNVERIFIED, but as 127.0.0.1:" } else { "verified" };
        let says = format!("standard output: 45.0 MB {verdict}");
        assert!(err(&output).contains(&says), "{}", err(&output));
        assert!(is_empty(&to));
    }
}

#[test]
fn it_goes_on_in_order_when_its_source_goes_away_and_a_mirror_is_left() {
    let dir = tempfile::tempdir().expect("a directory");
    let content = noise(12_000_000);
    fs::write(dir.path().join("f.bin"), &content).expect("a file");
    fs::create_dir(dir.path().join("to")).expect("a directory");
    let server = Server::start_at(&dir.path().join("f.bin"), "127.0.0.1:0", &["--limit", "3M"]);
    let site = Site::slow(&content, 3_000_000);
    let mut uri: Uri = server.uri().parse().expect("a URI");
    uri.mirrors = vec![site.url()];
    let mut child = get(&[&uri.to_string()], &dir.path().join("to")).spawn().expect("it runs");
    let mut pipe = child.stdout.take().expect("a pipe");
    let mut all = vec![0; 3_000_000];
    pipe.read_exact(&mut all).expect("the beginning");
    drop(server);
    pipe.read_to_end(&mut all).expect("the rest");
    let output = child.wait_with_output().expect("its end");
    assert!(output.status.success(), "{}", err(&output));
    assert!(all == content, "other bytes");
    assert!(err(&output).contains("mirrors alone go on"), "{}", err(&output));
}

#[test]
fn a_tar_is_unpacked_while_it_comes() {
    let dir = tempfile::tempdir().expect("a directory");
    let (to, album) = (dir.path().join("to"), dir.path().join("album"));
    fs::create_dir(&album).expect("a directory");
    for name in ["one", "two", "three"] {
        fs::write(album.join(name), noise(5_000_000 + name.len())).expect("a file");
    }
    let tar = Command::new("tar").current_dir(dir.path()).args(["cf", "made.tar", "album"]).status();
    assert!(tar.expect("tar").success());
    let server = serve(dir.path(), &fs::read(dir.path().join("made.tar")).expect("a file"));
    let mut source = get(&[&server.uri(), "--quiet"], &to).spawn().expect("it runs");
    let mut tar = Command::new("tar");
    let tar = tar.current_dir(&to).args(["xv"]).stdin(source.stdout.take().expect("a pipe")).output();
    let listed = String::from_utf8(tar.expect("tar").stdout).expect("UTF-8");
    assert!(source.wait().expect("its end").success());
    assert_eq!(listed.lines().count(), 4, "{listed}");
    for name in ["one", "two", "three"] {
        let unpacked = fs::read(to.join("album").join(name)).expect("a file");
        assert!(unpacked == fs::read(album.join(name)).expect("a file"), "{name}");
    }
}

#[test]
fn a_pipe_that_is_closed_ends_it_quietly() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = serve(dir.path(), &noise(45_000_000));
    let mut child = get(&[&server.uri()], &dir.path().join("to")).spawn().expect("it runs");
    let mut pipe = child.stdout.take().expect("a pipe");
    pipe.read_exact(&mut [0; 100_000]).expect("the beginning");
    drop(pipe);
    let output = child.wait_with_output().expect("its end");
    // A shell shows this as 141, as for any other program.
    assert_eq!(output.status.signal(), Some(Signal::SIGPIPE as i32), "{}", err(&output));
    let said = err(&output);
    assert!(!said.contains("panic") && !said.contains("anabranch: "), "{said}");
}

#[test]
fn ctrl_c_ends_it_though_nobody_takes_what_has_come() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = serve(dir.path(), &noise(45_000_000));
    let mut child = get(&[&server.uri()], &dir.path().join("to")).spawn().expect("it runs");
    let mut pipe = child.stdout.take().expect("a pipe");
    pipe.read_exact(&mut [0; 100_000]).expect("the beginning");
    thread::sleep(Duration::from_millis(200));
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).expect("a signal");
    wait_until(20, || child.try_wait().expect("a status").is_some());
    let output = child.wait_with_output().expect("its end");
    assert_eq!(output.status.code(), Some(130), "{}", err(&output));
    assert!(!err(&output).contains("resumes"), "it does not: {}", err(&output));
    drop(pipe);
}

#[test]
fn what_cannot_be_written_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let content = noise(100_000);
    let server = serve(dir.path(), &content);
    let to = dir.path().join("to");
    let json = output(get(&[&server.uri(), "--json"], &to));
    assert_eq!(json.status.code(), Some(2));
    assert!(json.stdout.is_empty() && err(&json).contains("both write to standard output"), "{}", err(&json));
    // The whole file comes, but it is not the requested one: a script can see that.
    let wrong = format!("--checksum=sha-256={}", "0".repeat(64));
    let wrong = output(get(&[&server.uri(), &wrong], &to));
    assert_eq!((wrong.status.code(), wrong.stdout.len()), (Some(5), content.len()), "{}", err(&wrong));
    drop(server);
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).expect("a directory");
    fs::write(tree.join("a"), "a").expect("a file");
    let server = Server::start(&tree);
    let directory = output(get(&[&server.uri()], &to));
    assert_eq!(directory.status.code(), Some(2), "{}", err(&directory));
    assert!(err(&directory).contains("--output DIR") && is_empty(&to), "{}", err(&directory));
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
    let mut command = get(&[server.offers[1]["uri"].as_str().expect("a URI")], &to);
    command.stdout(full);
    let full = output(command);
    assert_eq!(full.status.code(), Some(6), "{}", err(&full));
}

/// No file is left that could show later that nothing vouched for it.
#[test]
fn what_nobody_vouches_for_is_told_even_to_who_wants_errors_only() {
    let dir = tempfile::tempdir().expect("a directory");
    let content = noise(100_000);
    let site = Site::good(&content);
    let output = output(get(&[&site.url(), "--quiet"], dir.path()));
    assert!(output.status.success() && output.stdout == content);
    assert_eq!(err(&output).matches("UNVERIFIED").count(), 1, "{}", err(&output));
}

/// Its own buffer is full then, and nothing is asked of any link.
#[test]
fn a_reader_that_pauses_brings_no_backup_in() {
    let dir = tempfile::tempdir().expect("a directory");
    let (to, content) = (dir.path().join("to"), noise(45_000_001));
    let server = serve(dir.path(), &content);
    let url = server.offers[0]["http"][0].as_str().expect("a URL").to_owned();
    let mut running =
        get(&[&url, "--via", "127.0.0.1", "--via", "127.0.0.2:backup"], &to).spawn().expect("it runs");
    // A link without a byte for three seconds counts as silent if some are expected.
    thread::sleep(Duration::from_secs(4));
    let mut came = Vec::new();
    running.stdout.take().expect("a pipe").read_to_end(&mut came).expect("it is read");
    let output = running.wait_with_output().expect("it ends");
    assert!(output.status.success() && came == content, "{}", err(&output));
    assert!(!err(&output).contains("is used now"), "{}", err(&output));
}
