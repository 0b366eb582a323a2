//! Text of servers, lists and file names reaches a terminal only as visible text, but a program exactly.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::fetch::{Done, run};
use crate::common::{Server, anabranch, noise};
use crate::peers::site::{PATH, Reply, Site, honest};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Sets the title, clears the screen as C0 and as C1, and reorders the line.
const EVIL: &str = "a\x1b]0;t\x07\x1b[2J\u{9b}2J\u{202e}b\u{7f}";
/// The control characters of [`EVIL`] that a header field and a file name may contain.
const EVIL_FIELD: &str = "a\u{9b}2J\u{202e}b\u{2067}";
const SHOWN_FIELD: &str = "a\\u{9b}2J\\u{202e}b\\u{2067}";

/// Fails if the text contains characters that control a terminal.
fn assert_clean(text: &str) {
    let acts = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}')
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert!(!text.contains(acts), "{text:?}");
}

fn get(dir: &Path, args: &[&str]) -> Done {
    let mut command = anabranch();
    command.current_dir(dir).arg("get").args(args);
    run(command)
}

#[test]
fn what_is_wrong_with_a_metalink() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = format!(
        "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"f\">\
         </{EVIL}\nanabranch: all is well></metalink>"
    );
    fs::write(dir.path().join("f.meta4"), file).expect("a file");
    for args in [&["get", "f.meta4"][..], &["mirror-list", "show", "f.meta4"]] {
        let mut command = anabranch();
        command.current_dir(dir.path()).args(args);
        let done = run(command).expect(2);
        assert_clean(&done.err);
        let shown = "\\x1b]0;t\\x07\\x1b[2J\\u{9b}2J\\u{202e}b\\x7f\\nanabranch";
        assert!(done.err.contains(shown), "{}", done.err);
        assert_eq!(done.err.lines().count(), 1, "it begins no line of its own: {}", done.err);
    }
    let done = get(dir.path(), &["f.meta4", "--json"]).expect(2);
    assert!(done.summary()["error"].as_str().expect("why").contains(EVIL), "{}", done.out);
}

#[test]
fn what_is_in_a_metalink() {
    let dir = tempfile::tempdir().expect("a directory");
    let name = "a\u{202e}gpj.exe";
    let file = format!(
        "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"{name}\"><size>1</size>\
         <pieces length=\"1\" type=\"{EVIL}\"><hash>00</hash></pieces><url>http://h/x</url></file></metalink>"
    );
    fs::write(dir.path().join("f.meta4"), file).expect("a file");
    let show = |more: &[&str]| {
        let mut command = anabranch();
        command.current_dir(dir.path()).args(["mirror-list", "show", "f.meta4"]).args(more);
        run(command).expect(0).out
    };
    let said = show(&[]);
    assert_clean(&said);
    assert!(said.contains("a\\u{202e}gpj.exe\n") && said.contains("\\x1b]0;t\\x07"), "{said}");
    let shown: Value = serde_json::from_str(&show(&["--json"])).expect("JSON");
    assert_eq!(shown["name"], name);
    assert_eq!(shown["ignored_pieces"][0], EVIL.to_ascii_lowercase());
}

#[test]
fn what_a_server_answers() {
    let dir = tempfile::tempdir().expect("a directory");
    let content = noise(100_000);
    let coded = Site::new(&content, |_, reply| reply.with("content-encoding", EVIL_FIELD));
    let done = get(dir.path(), &[&coded.url()]).expect(3);
    assert_clean(&done.err);
    assert!(done.err.contains(SHOWN_FIELD), "{}", done.err);
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
    let done = get(dir.path(), &[&coded.url(), "--json"]).expect(3);
    assert!(done.summary()["error"].as_str().expect("why").contains(EVIL_FIELD), "{}", done.out);
    assert_clean(&done.err);
    for before in ["http://", "//", "/", ""] {
        let location = format!("{before}{EVIL_FIELD}");
        let leads = Site::new(&content, move |_, _| Reply::new(302, b"").with("location", location.clone()));
        assert_clean(&get(dir.path(), &[&leads.url()]).expect(3).err);
    }
    // A URL encodes the name here.
    let there = content.clone();
    let named = Site::answering(move |request| match request.path.ends_with(".exe") {
        true => honest(request, &there, "\"v\""),
        false => Reply::new(404, b""),
    });
    let url = named.url().replace(PATH, "/a%E2%80%AEgpj.exe");
    let done = get(dir.path(), &[&url]).expect(0);
    assert_clean(&done.err);
    assert!(done.err.contains("\na\\u{202e}gpj.exe: 100.0 kB"), "{}", done.err);
    let done = get(dir.path(), &[&url, "--json", "--force"]).expect(0);
    assert_eq!(done.summary()["target"], "a\u{202e}gpj.exe");
}

#[test]
fn what_is_served() {
    let dir = tempfile::tempdir().expect("a directory");
    let name = format!("{EVIL}\n.bin");
    fs::write(dir.path().join(&name), noise(1_000)).expect("a file");
    symlink("/etc/hostname", dir.path().join(format!("{EVIL}-link"))).expect("a link");
    let server = Server::start(dir.path());
    let paths: Vec<&str> = server.offers.iter().filter_map(|offer| offer["path"].as_str()).collect();
    assert!(paths.iter().any(|path| path.ends_with(&name)), "{paths:?}");
    drop(server);
    let mut command = anabranch();
    command.args(["serve", "--no-cache", "--listen", "127.0.0.1:0"]).arg(dir.path());
    let said = until_it_listens(command);
    assert_clean(&said);
    assert!(said.contains("\\x1b]0;t\\x07"), "{said}");
}

/// A terminal that cannot move its cursor gets lines without control sequences.
#[test]
fn what_a_dumb_terminal_gets() {
    let dir = tempfile::tempdir().expect("a directory");
    let slow = Site::slow(&noise(300_000), 200_000);
    let shown = |term: &str| {
        let line = format!("{} get {} --force", crate::common::program(), slow.url());
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).current_dir(dir.path()).stdin(Stdio::null());
        let done = command.env("TERM", term).env("XDG_CACHE_HOME", "/dev/null").output().expect("script(1)");
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).expect("UTF-8").replace("\r\n", "\n")
    };
    assert!(shown("xterm").contains('\x1b'), "it is a terminal");
    assert_clean(&shown("dumb"));
}

/// Returns the standard error of `serve` until it says how to fetch.
fn until_it_listens(mut command: Command) -> String {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("a source");
    let mut said = String::new();
    let mut err = BufReader::new(child.stderr.take().expect("its errors"));
    while !said.contains("Fetch with") && err.read_line(&mut said).expect("UTF-8") > 0 {}
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).expect("a signal");
    child.wait().expect("its end");
    said
}
