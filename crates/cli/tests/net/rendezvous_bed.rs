//! Runs a rendezvous as a process. The test plays the forwarder beside it, so that only the test renews
//! publications.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anabranch_algo::Time;
use anabranch_mmtp::ContentId;
use anabranch_overlay::call::{Call, Reach};
use anabranch_overlay::domain::Domain;
use anabranch_overlay::frame::{self, Frame};
use anabranch_overlay::message::listing::{PageRequest, Position};
use anabranch_overlay::message::{Body, Message, Wanted};
use anabranch_overlay::publication::{Key, Publication, ScopeKey, SignedPublication};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::anabranch;

/// The UDP port of a domain's forwarders.
const FORWARDERS: u16 = 7_700;

/// The forwarder beside a rendezvous, and the host `a`.
pub(crate) struct Bed {
    dir: tempfile::TempDir,
    key: ScopeKey,
    domain: Domain,
    reach: Reach,
    /// The socket of the forwarder.
    pub(crate) socket: UdpSocket,
    pub(crate) calls: u64,
}

/// A running rendezvous.
pub(crate) struct Running {
    pub(crate) child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    pub(crate) fn next(&mut self) -> Value {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}"))
    }

    /// Waits for the next notice.
    pub(crate) fn notice(&mut self) -> String {
        loop {
            let line = self.next();
            assert_ne!(line["event"], "summary", "{line}");
            if line["event"] == "notice" {
                return line["text"].as_str().expect("text").to_owned();
            }
        }
    }

    /// Waits for the next statistics of its state in a server.
    pub(crate) fn shared_state(&mut self) -> Value {
        loop {
            let line = self.next();
            assert_ne!(line["event"], "summary", "{line}");
            if line["event"] == "stats" {
                return line["shared_state"].clone();
            }
        }
    }

    pub(crate) fn killed(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Ends the rendezvous by SIGTERM. Returns its summary.
    pub(crate) fn ended(mut self) -> Value {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM).expect("it runs");
        self.summary()
    }

    pub(crate) fn summary(&mut self) -> Value {
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
    /// Makes a domain whose addresses are 127.92.`number`.*.
    pub(crate) fn new(number: u8) -> Self {
        Self::at(number, "rv")
    }

    /// Makes the same domain twice. The files differ only in the node of the rendezvous.
    pub(crate) fn pair(number: u8) -> [Self; 2] {
        ["rv", "rv2"].map(|node| Self::at(number, node))
    }

    fn at(number: u8, rendezvous: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let key = ScopeKey::new([number; 32]).expect("a key");
        let text = format!(
            "name = \"small\"\nforwarders = [\"r\"]\n[rendezvous]\nnode = \"{rendezvous}\"\n\
             [topology]\nnode = \"rv\"\n[scopes]\nfilms = \"{}\"\n[[line]]\nbetween = [\"r\", \"a\"]\n\
             addresses = [\"127.92.{number}.1\", \"127.92.{number}.2\"]\n\
             [[line]]\nbetween = [\"r\", \"rv\"]\n\
             addresses = [\"127.92.{number}.3\", \"127.92.{number}.4\"]\n\
             [[line]]\nbetween = [\"r\", \"rv2\"]\n\
             addresses = [\"127.92.{number}.5\", \"127.92.{number}.6\"]\n",
            key.public()
        );
        fs::write(dir.path().join("net.toml"), &text).expect("written");
        let domain = anabranch_overlay::domain_file::read(&text).expect("a domain");
        let (own, its) = if rendezvous == "rv" { (3, 4) } else { (5, 6) };
        let socket = UdpSocket::bind(format!("127.92.{number}.{own}:{FORWARDERS}")).expect("a socket");
        socket.connect(format!("127.92.{number}.{its}:{}", domain.rendezvous.port)).expect("connected");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
        let reach = Reach::new(&domain, domain.graph.by_name("a").expect("a host"), domain.rendezvous);
        Self { dir, key, domain, reach, socket, calls: 0 }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn command(&self, domain: &str, state: impl AsRef<OsStr>) -> Command {
        let node = &self.domain.graph.node(self.domain.rendezvous.node).name;
        let mut command = anabranch();
        command.args(["rendezvous", "--json", "--node", node, "--domain"]).arg(self.path(domain));
        command.arg("--state").arg(state.as_ref()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts a rendezvous. Returns it with the notice about its state.
    pub(crate) fn start(&self, state: impl AsRef<OsStr>) -> (Running, String) {
        Self::run(self.command("net.toml", state))
    }

    /// Runs a command of a rendezvous. Returns it with the notice about its state.
    pub(crate) fn run(mut command: Command) -> (Running, String) {
        let mut child = command.spawn().expect("it runs");
        let out = BufReader::new(child.stdout.take().expect("its output"));
        let mut running = Running { child, out };
        assert_eq!(running.next()["event"], "listening");
        let notice = running.next();
        assert_eq!(notice["event"], "notice");
        (running, notice["text"].as_str().expect("text").to_owned())
    }

    pub(crate) fn signed(&self, name: u32, issued: Time, lease_s: u32) -> SignedPublication {
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
        self.sign(publication)
    }

    pub(crate) fn sign(&self, publication: Publication) -> SignedPublication {
        self.key.sign("small", publication)
    }

    pub(crate) fn send(&mut self, body: Body) -> u64 {
        self.calls += 1;
        let message = Message { call: self.calls, body };
        let sent = Call::new(&message, 5_000, Time::ZERO).poll(Time::ZERO, &self.reach).expect("a way");
        self.socket.send(&sent.frame).expect("sent");
        self.calls
    }

    pub(crate) fn receive(&self) -> Option<Message> {
        let mut buffer = [0; 2_000];
        let bytes = self.socket.recv(&mut buffer).ok()?;
        let Ok(Frame::Routed(routed)) = frame::parse(&buffer[..bytes]) else { panic!("a frame") };
        Some(Message::parse(routed.payload).expect("a message"))
    }

    pub(crate) fn ask(&mut self, body: Body) -> Body {
        let call = self.send(body);
        loop {
            let answer = self.receive().expect("an answer");
            if answer.call == call {
                return answer.body;
            }
        }
    }

    pub(crate) fn publish(&mut self, signed: SignedPublication) -> Body {
        self.ask(Body::Publish(signed))
    }

    pub(crate) fn is_found(&mut self, name: u32) -> bool {
        self.found(name).len() == 1
    }

    /// Asks for one page after the other. Returns the publications of a scope, or of all, by their names.
    pub(crate) fn listed(&mut self, scope: Option<&str>) -> Vec<Publication> {
        let scope = scope.map(|scope| scope.parse().expect("a scope"));
        let (mut all, mut from) = (BTreeMap::new(), Position::default());
        loop {
            let page = match self.ask(Body::List(PageRequest { scope: scope.clone(), from })) {
                Body::Listed(page) => page,
                other => panic!("{other:?}"),
            };
            let told = page.publications.into_iter().map(|signed| signed.publication);
            all.extend(told.map(|it| (Key::of(&it), it)));
            match page.next {
                Some(next) => from = next,
                None => return all.into_values().collect(),
            }
        }
    }

    pub(crate) fn found(&mut self, name: u32) -> Vec<Publication> {
        match self.ask(look_up(name)) {
            Body::Match { publications, .. } => publications.into_iter().map(|it| it.publication).collect(),
            other => panic!("{other:?}"),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "publications have dates")]
pub(crate) fn now() -> Time {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    Time::from_nanos(since.as_nanos() as u64)
}

pub(crate) fn look_up(name: u32) -> Body {
    Body::Lookup(Wanted::Name(format!("films/{name}").parse().expect("a name")))
}
