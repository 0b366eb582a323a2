//! `anabranch rendezvous --state` as a process: killed, started again, beside another one, on a full disk.
//! The test is the forwarder beside it, so that nothing is renewed but what the test says.
#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use algo::{Span, Time};
use common::anabranch;
use common::disk::Tmpfs;
use mmtp::ContentId;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use overlay::call::{Call, Reach};
use overlay::domain::Domain;
use overlay::frame::{self, Frame};
use overlay::message::{Body, Message, Wanted, refusal};
use overlay::publication::{Publication, Rejection, ScopeKey, SignedPublication};
use serde_json::Value;

/// The UDP port of a domain's forwarders.
const FORWARDERS: u16 = 7_700;

struct Bed {
    dir: tempfile::TempDir,
    key: ScopeKey,
    domain: Domain,
    reach: Reach,
    /// Of the forwarder.
    socket: UdpSocket,
    calls: u64,
}

/// A rendezvous that runs.
struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}"))
    }

    fn killed(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Ends it by SIGTERM; its last words.
    fn ended(mut self) -> Value {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM).expect("it runs");
        self.summary()
    }

    fn summary(&mut self) -> Value {
        loop {
            let line = self.next();
            if line["event"] == "summary" {
                self.child.wait().expect("it ends");
                return line;
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Bed {
    /// A domain whose addresses are 127.92.`number`.*.
    fn new(number: u8) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let key = ScopeKey::new([number; 32]).expect("a key");
        let text = format!(
            "name = \"small\"\nforwarders = [\"r\"]\n[rendezvous]\nnode = \"rv\"\n[topology]\nnode = \"rv\"\n\
             [scopes]\nfilms = \"{}\"\n[[line]]\nbetween = [\"r\", \"a\"]\n\
             addresses = [\"127.92.{number}.1\", \"127.92.{number}.2\"]\n\
             [[line]]\nbetween = [\"r\", \"rv\"]\n\
             addresses = [\"127.92.{number}.3\", \"127.92.{number}.4\"]\n",
            key.public()
        );
        fs::write(dir.path().join("net.toml"), &text).expect("written");
        let domain = overlay::domain_file::read(&text).expect("a domain");
        let socket = UdpSocket::bind(format!("127.92.{number}.3:{FORWARDERS}")).expect("a socket");
        socket.connect(format!("127.92.{number}.4:{}", domain.rendezvous.port)).expect("connected");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
        let reach = Reach::new(&domain, domain.graph.by_name("a").expect("a host"), domain.rendezvous);
        Self { dir, key, domain, reach, socket, calls: 0 }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, domain: &str, state: &Path) -> Command {
        let mut command = anabranch();
        command.args(["rendezvous", "--json", "--node", "rv", "--domain"]).arg(self.path(domain));
        command.arg("--state").arg(state).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts one, and gives what it says of its state.
    fn start(&self, state: &Path) -> (Running, String) {
        let mut child = self.command("net.toml", state).spawn().expect("it runs");
        let out = BufReader::new(child.stdout.take().expect("its output"));
        let mut running = Running { child, out };
        assert_eq!(running.next()["event"], "listening");
        let notice = running.next();
        assert_eq!(notice["event"], "notice");
        (running, notice["text"].as_str().expect("text").to_owned())
    }

    fn signed(&self, name: u32, issued: Time, lease_s: u32) -> SignedPublication {
        let publication = Publication {
            name: format!("films/{name}").parse().expect("a name"),
            content: ContentId { root: [name as u8; 32], length: 20_000 },
            collection: false,
            node: self.domain.graph.by_name("a").expect("a host"),
            port: 26_227,
            version_ms: 1,
            issued_ms: issued.as_nanos() / 1_000_000,
            lease_s,
        };
        self.key.sign("small", publication)
    }

    fn send(&mut self, body: Body) -> u64 {
        self.calls += 1;
        let message = Message { call: self.calls, body };
        let sent = Call::new(&message, 5_000, Time::ZERO).poll(Time::ZERO, &self.reach).expect("a way");
        self.socket.send(&sent.frame).expect("sent");
        self.calls
    }

    fn receive(&self) -> Option<Message> {
        let mut buffer = [0; 2_000];
        let bytes = self.socket.recv(&mut buffer).ok()?;
        let Ok(Frame::Routed(routed)) = frame::parse(&buffer[..bytes]) else { panic!("a frame") };
        Some(Message::parse(routed.payload).expect("a message"))
    }

    fn ask(&mut self, body: Body) -> Body {
        let call = self.send(body);
        loop {
            let answer = self.receive().expect("an answer");
            if answer.call == call {
                return answer.body;
            }
        }
    }

    fn publish(&mut self, signed: SignedPublication) -> Body {
        self.ask(Body::Publish(signed))
    }

    fn is_found(&mut self, name: u32) -> bool {
        let name = format!("films/{name}").parse().expect("a name");
        match self.ask(Body::Lookup(Wanted::Name(name))) {
            Body::Match { publications, .. } => publications.len() == 1,
            other => panic!("{other:?}"),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "publications have dates")]
fn now() -> Time {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    Time::from_nanos(since.as_nanos() as u64)
}

#[test]
fn what_was_published_and_withdrawn_survives_a_kill() {
    let mut bed = Bed::new(1);
    let state = bed.path("state");
    let (mut running, told) = bed.start(&state);
    assert!(told.contains("which has none yet"), "{told}");
    let at = now();
    let all: Vec<_> = (0..100).map(|name| bed.signed(name, at, 600)).collect();
    for signed in &all {
        assert_eq!(bed.publish(signed.clone()), Body::Published);
    }
    let later = at + Span::from_millis(5);
    let (withdrawal, renewed) = (bed.signed(0, later, 0), bed.signed(1, later, 60));
    assert_eq!(bed.publish(withdrawal), Body::Published);
    assert_eq!(bed.publish(renewed), Body::Published);
    running.killed();

    let (running, told) = bed.start(&state);
    assert!(told.starts_with("took back 99 publications from "), "{told}");
    assert!(told.ends_with("remembers 1 that ended; 0 are too old"), "{told}");
    let found: Vec<u32> = (0..100).filter(|name| bed.is_found(*name)).collect();
    assert_eq!(found, (1..100).collect::<Vec<_>>());
    let replayed = Body::Refused { reason: refusal::of(Rejection::Replayed) };
    assert_eq!(bed.publish(all[0].clone()), replayed, "it was withdrawn");
    assert_eq!(bed.publish(all[1].clone()), replayed, "it was followed by another");
    let again = bed.signed(0, at + Span::from_millis(9), 60);
    assert_eq!(bed.publish(again), Body::Published);
    assert!(bed.is_found(0));

    let summary = running.ended();
    let expected = [("taken_back", 99), ("remembered", 1), ("expired", 0), ("foreign", 0), ("commits", 1)];
    let documented = include_str!("../../../docs/json.md");
    for (field, value) in expected {
        assert_eq!(summary["state"][field], value, "{summary}");
        assert!(documented.contains(&format!("`{field}`")), "docs/json.md: no word about {field}");
    }
}

#[test]
fn whatever_was_answered_is_there_however_often_it_is_killed() {
    let mut bed = Bed::new(2);
    let state = bed.path("state");
    let mut answered: Vec<u32> = Vec::new();
    for round in 0..6_u32 {
        let (mut running, _) = bed.start(&state);
        let at = now();
        let names: Vec<u32> = (round * 200..(round + 1) * 200).collect();
        let first = bed.calls + 1;
        for name in &names {
            let signed = bed.signed(*name, at, 600);
            bed.send(Body::Publish(signed));
        }
        // It dies somewhere in the midst of them.
        for _ in 0..=round * 35 {
            let answer = bed.receive().expect("an answer");
            assert_eq!(answer.body, Body::Published);
            answered.push(names[(answer.call - first) as usize]);
        }
        running.killed();
        bed.socket.set_nonblocking(true).expect("set");
        while let Some(answer) = bed.receive() {
            answered.push(names[(answer.call - first) as usize]);
        }
        // What the killed one refused now is an error that the next send would get.
        let _ = bed.socket.take_error();
        bed.socket.set_nonblocking(false).expect("set");
    }
    let (_running, _) = bed.start(&state);
    let missing: Vec<u32> = answered.iter().copied().filter(|name| !bed.is_found(*name)).collect();
    assert!(answered.len() > 200 && missing.is_empty(), "of {}: {missing:?}", answered.len());
}

#[test]
fn two_cannot_have_one_file() {
    let bed = Bed::new(3);
    let text = fs::read_to_string(bed.path("net.toml")).expect("a file");
    fs::write(bed.path("other.toml"), text.replace("[topology]", "port = 7801\n[topology]"))
        .expect("written");
    let state = bed.path("state");
    let (_running, _) = bed.start(&state);
    let output = bed.command("other.toml", &state).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(
        said.contains("is in use by another rendezvous: end that one, or name another file with --state")
    );
}

#[test]
fn another_file_is_refused_before_anything_is_said() {
    let bed = Bed::new(4);
    fs::write(bed.path("letter"), "not to be lost").expect("written");
    let output = bed.command("net.toml", &bed.path("letter")).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("name another file with --state"), "{said}");
    assert_eq!(fs::read_to_string(bed.path("letter")).expect("a file"), "not to be lost");
}

#[test]
fn a_full_disk_ends_it_with_a_word_and_loses_nothing_that_was_answered() {
    let mut bed = Bed::new(5);
    let place = bed.path("disk");
    fs::create_dir(&place).expect("a directory");
    let Some(disk) = Tmpfs::mount(&place, "1m") else { return };
    let state = place.join("state");
    let (mut running, _) = bed.start(&state);
    bed.socket.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
    let at = now();
    let mut answered = Vec::new();
    for name in 0..50_000 {
        let signed = bed.signed(name, at, 600);
        bed.send(Body::Publish(signed));
        match bed.receive() {
            Some(answer) => assert_eq!(answer.body, Body::Published),
            None => break,
        }
        answered.push(name);
    }
    assert!((50..49_999).contains(&answered.len()), "{}", answered.len());
    let summary = running.summary();
    assert_eq!(summary["exit"], 6, "{summary}");
    let mut said = String::new();
    running.child.stderr.take().expect("its errors").read_to_string(&mut said).expect("UTF-8");
    assert!(said.contains("the disk is full: make room and start again"), "{said}");

    disk.resize("40m");
    bed.socket.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
    let _ = bed.socket.take_error();
    let (_running, told) = bed.start(&state);
    let missing: Vec<u32> = answered.iter().copied().filter(|name| !bed.is_found(*name)).collect();
    assert!(missing.is_empty(), "{told}: {missing:?}");
}
