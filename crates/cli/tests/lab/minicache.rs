//! Tests of `anabranch minicache` as people and scripts use it.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::anabranch;

/// Runs the command in a directory; returns its status, standard output and standard error.
fn run(dir: &Path, line: &str) -> (i32, String, String) {
    let output = command(dir, line).output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

fn command(dir: &Path, line: &str) -> Command {
    let mut command = anabranch();
    command.current_dir(dir).arg("minicache").args(line.split(' '));
    command
}

fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn ground() -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("a.txt"), b"hello\n").expect("written");
    assert_eq!(run(dir.path(), "make c.img --size 1M --entries 16"), (0, String::new(), String::new()));
    dir
}

const HELLO: &str = "sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";

#[test]
fn files_go_into_an_image_and_are_listed_checked_and_removed() {
    let dir = ground();
    let run = |line: &str| run(dir.path(), line);
    assert_eq!(run("add c.img a.txt"), (0, format!("{HELLO}  a.txt\n"), String::new()));
    let (status, out, _) = run("add c.img a.txt --json --type text/plain");
    let added = objects(&out);
    assert_eq!((status, &added[0]["digest"], &added[0]["length"]), (0, &HELLO.into(), &6.into()));
    let (status, out, _) = run("ls c.img --json");
    let listed = objects(&out);
    assert_eq!(
        (status, listed.len(), &listed[1]["objects"], &listed[1]["entries"]),
        (0, 2, &1.into(), &16.into())
    );
    assert_eq!(listed[0], added[0], "it is there once");
    assert_eq!(run("check c.img").1, "1 objects, 6 bytes: all as they were written\n");
    assert_eq!(run(&format!("rm c.img {HELLO}")).0, 0);
    assert_eq!(run("ls c.img").1, "");
}

#[test]
fn what_cannot_be_done_is_said_with_its_exit_status() {
    let dir = ground();
    let run = |line: &str| run(dir.path(), line);
    fs::write(dir.path().join("large"), vec![1; 2_000_000]).expect("written");
    for (line, status, says) in [
        ("make c.img --size 1M --entries 16", 6, "exists"),
        ("make d.img --size 1M", 2, "no room for a chunk"),
        ("make d.img --size 1M --entries 17", 2, "a power of two of entries"),
        ("make d.img --size lots", 2, "such as 500M or 10GB"),
        ("add c.img nothing", 2, "cannot read nothing"),
        ("add c.img .", 2, "no plain file"),
        ("add c.img large", 6, "no room for 2000000 bytes"),
        ("add no.img a.txt", 2, "make no.img --size SIZE` makes it"),
        ("ls a.txt", 2, "it is no image"),
        ("rm c.img sha256:00", 2, "expected sha256:HEX"),
        ("serve a.txt", 2, "it is no image"),
        ("serve c.img --origin gopher://h", 1, ""),
    ] {
        // The last one needs the worker alone, whose error is the command's.
        let line = if line.contains("gopher") {
            format!("{line} --no-keeper --listen 127.0.0.1:0")
        } else {
            line.into()
        };
        let (is, out, error) = run(&line);
        assert!(is == status && error.contains(says), "{line}: {is} {out}{error}");
    }
    assert_eq!(run(&format!("rm c.img {HELLO}")).0, 3);
    assert_eq!(run("ls c.img").1, "", "nothing partial is there");
    run("add c.img a.txt");
    let mut bytes = fs::read(dir.path().join("c.img")).expect("an image");
    let at = bytes.windows(6).rposition(|bytes| bytes == b"hello\n").expect("the object");
    bytes[at] = b'j';
    fs::write(dir.path().join("c.img"), bytes).expect("written");
    let (status, out, error) = run("check c.img");
    assert_eq!((status, out), (5, format!("{HELLO}: block 0 is not what was written\n")), "{error}");
    let (status, out, _) = run("check c.img --json");
    let told = objects(&out);
    assert_eq!((status, &told[0]["digest"], &told[1]["damaged"]), (5, &HELLO.into(), &1.into()));
}

#[test]
fn an_origin_that_is_no_url_is_refused_at_once() {
    let dir = ground();
    let (status, out, _) = run(dir.path(), "serve c.img --listen 127.0.0.1:0 --origin nowhere --json");
    assert_eq!((status, &objects(&out)[0]["exit"]), (2, &2.into()));
}

/// A process that ends when this is dropped.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the socket listens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn it_serves_through_the_death_of_its_worker_and_ends_by_a_signal() {
    let dir = ground();
    run(dir.path(), "add c.img a.txt --type text/plain");
    let mut command = command(dir.path(), "serve c.img --listen 127.0.0.1:0 --json");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a cache");
    let mut serving = Serving(child);
    let mut out = BufReader::new(serving.0.stdout.take().expect("its output")).lines();
    let mut next =
        move || -> Value { serde_json::from_str(&out.next().expect("a line").expect("text")).expect("JSON") };
    let listening = next();
    assert_eq!(listening["event"], "listening");
    let address = listening["address"].as_str().expect("an address").to_owned();
    let path = format!("/{HELLO}");
    let answer = get(&address, &path);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nhello\n"), "{answer}");
    let status = |address: &str| -> Value {
        let answer = get(address, "/status");
        serde_json::from_str(answer.split("\r\n\r\n").nth(1).expect("a body")).expect("JSON")
    };
    let first = status(&address);
    let pid = first["pid"].as_i64().expect("a process") as i32;
    assert_ne!(pid, serving.0.id() as i32);
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it lives");
    let notice = next();
    assert!(notice["event"] == "notice" && notice["text"].as_str().unwrap().contains("SIGKILL"), "{notice}");
    assert!(get(&address, &path).ends_with("\r\n\r\nhello\n"));
    let second = status(&address);
    assert_eq!((&second["restarts"], &second["objects"]), (&1.into(), &1.into()));
    kill(Pid::from_raw(serving.0.id() as i32), Signal::SIGTERM).expect("it lives");
    let summary = next();
    assert_eq!((&summary["event"], &summary["exit"]), (&"summary".into(), &0.into()));
    assert!(serving.0.wait().expect("it ends").success());
    assert!(TcpStream::connect(&address).is_err(), "its worker is gone, too");
}
