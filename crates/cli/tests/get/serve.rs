//! The source as receivers, scripts and strangers see it.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;
use std::time::Duration;

use crate::common::{Server, anabranch, noise, serve_for_people};
use anabranch_mmtp::collection::Collection;
use anabranch_mmtp::uri::Uri;
use anabranch_mmtp::wire::{self, Cookie, Packet, Range, RangeKind, Reason};
use anabranch_mmtp::{ChunksPerBlock, ContentId};
use assert_cmd::assert::OutputAssertExt as _;

/// The bytes of a packet in addition to its UDP payload, over IPv4.
const IP_UDP_HEADERS: usize = 28;

/// The simplest receiver.
struct Client {
    socket: UdpSocket,
    cookie: Option<Cookie>,
    tag: u64,
}

impl Client {
    fn new(server: &Server) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.connect(server.address).expect("connected");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        Self { socket, cookie: None, tag: 0 }
    }

    /// Sends a request. Passes every answer with its tag to `each`, until that returns true or no more
    /// answers come.
    fn ask(&mut self, id: &ContentId, ranges: &[Range], mut each: impl FnMut(&Packet<'_>) -> bool) -> bool {
        self.tag += 1;
        let mut request = Vec::new();
        wire::emit_request(&mut request, self.tag, self.cookie.as_ref(), false, id, ranges);
        self.socket.send(&request).expect("sent");
        let mut buffer = vec![0; 1 << 16];
        while let Ok(len) = self.socket.recv(&mut buffer) {
            let packet = wire::parse(&buffer[..len]).expect("a packet");
            if let Packet::Cookie { cookie, .. } = packet {
                self.cookie = Some(cookie);
            }
            if packet.tag() == self.tag && each(&packet) {
                return true;
            }
        }
        false
    }

    /// Makes a client with a proven address. The source has read and answered all earlier packets of others
    /// by then.
    fn proven(server: &Server, id: &ContentId) -> Self {
        let mut client = Self::new(server);
        let range = Range { kind: RangeKind::Meta, first: 0, count: 1 };
        // After many packets, there may have been no room for the request.
        client.socket.set_read_timeout(Some(Duration::from_millis(500))).expect("a timeout");
        let is_cookie = |packet: &Packet<'_>| matches!(packet, Packet::Cookie { .. });
        assert!((0..40).any(|_| client.ask(id, &[range], is_cookie)) && client.cookie.is_some());
        client.socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        client
    }

    /// Fetches the whole content, chunk by chunk; if the source refuses, returns the reason.
    fn fetch(&mut self, id: &ContentId) -> Result<Vec<u8>, Reason> {
        self.fetch_watched(id, || {})
    }

    /// Fetches like [`fetch`](Self::fetch), and calls `each` after each request whose chunks have all
    /// arrived.
    fn fetch_watched(&mut self, id: &ContentId, mut each: impl FnMut()) -> Result<Vec<u8>, Reason> {
        let cut = ChunksPerBlock::new(12).expect("a cut");
        let mut bytes = Vec::new();
        let chunks = id.chunks(cut);
        for first in (0..chunks).step_by(32) {
            let count = (chunks - first).min(32) as u16;
            let mut left = count;
            let mut refused = None;
            let range = Range { kind: RangeKind::Data(cut), first, count };
            let done = self.ask(id, &[range], |packet| match packet {
                Packet::Data(data) => {
                    let (block, offset, len) = id.chunk_extent(data.chunk, cut).expect("a chunk");
                    assert_eq!(data.payload.len(), id.chunk_wire_len(data.chunk, cut).expect("a chunk"));
                    assert_eq!(bytes.len(), block as usize * 16_384 + offset, "loopback keeps the order");
                    bytes.extend_from_slice(&data.payload[..len]);
                    left -= 1;
                    left == 0
                }
                Packet::Refuse { reason, .. } => {
                    refused = Some(*reason);
                    true
                }
                _ => false,
            });
            if let Some(reason) = refused {
                return Err(reason);
            }
            assert!(done, "chunks from {first} on are missing");
            each();
        }
        Ok(bytes)
    }
}

fn id(server: &Server) -> ContentId {
    server.uri().parse::<Uri>().expect("a URI").id
}

#[test]
fn every_byte_is_the_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("a file");
    for len in [0, 1, 16_384, 16_385, 300_000] {
        fs::write(&path, noise(len)).expect("a file");
        let server = Server::start(&path);
        let id = id(&server);
        assert_eq!(id, ContentId::of(&noise(len)));
        assert!(Client::proven(&server, &id).fetch(&id).expect("content") == noise(len), "{len}");
        assert_eq!(server.end()["unknown"], 0);
    }
}

#[test]
fn odd_names_are_in_the_uri() {
    let dir = tempfile::tempdir().expect("a directory");
    for name in [&b"two words"[..], b"new\nline", b"\xff\xfe", &[b'n'; 255], b"&from=x", b"%00"] {
        let path = dir.path().join(std::ffi::OsStr::from_bytes(name));
        fs::write(&path, b"content").expect("a file");
        let server = Server::start(&path);
        let uri: Uri = server.uri().parse().expect("a URI");
        assert_eq!(uri.name.as_deref(), Some(name));
        assert_eq!(uri.from, [server.address.to_string()]);
    }
}

#[test]
fn a_directory_and_each_of_its_files_have_a_uri() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().join("album");
    fs::create_dir_all(root.join("sub")).expect("directories");
    fs::write(root.join("one"), noise(20_000)).expect("a file");
    fs::write(root.join("sub/two"), noise(5)).expect("a file");
    std::os::unix::fs::symlink("/etc/passwd", root.join("out")).expect("a link");
    let server = Server::start(&root);
    assert_eq!(server.offers.len(), 3);
    let uri: Uri = server.uri().parse().expect("a URI");
    assert!(uri.collection && uri.name.as_deref() == Some(b"album"));
    let mut client = Client::proven(&server, &uri.id);
    let manifest = client.fetch(&uri.id).expect("a manifest");
    let collection = Collection::parse(&manifest).expect("a collection");
    assert_eq!(collection.entries().len(), 2);
    for entry in collection.entries() {
        assert_eq!(ContentId::of(&client.fetch(&entry.id).expect("content")), entry.id);
    }
}

#[test]
fn uris_are_lines_on_standard_output_and_that_of_the_argument_is_the_last() {
    let dir = tempfile::tempdir().expect("a directory");
    for name in 0..30 {
        fs::write(dir.path().join(name.to_string()), name.to_string()).expect("a file");
    }
    let said = serve_for_people(dir.path(), &[]);
    let (out, told) = (said.out, said.err);
    let uri: Uri = out.trim_end().parse().expect("one URI");
    assert!(uri.collection, "{out}");
    assert!(told.contains("1 path and 30 files in it at 127") && told.contains("--list-files"), "{told}");
    let out = serve_for_people(dir.path(), &["--list-files"]).out;
    let uris: Vec<Uri> = out.lines().map(|line| line.parse().expect("a URI")).collect();
    assert_eq!(uris.len(), 31, "{out}");
    assert_eq!(uris.last().map(|last| last.id), Some(uri.id), "the directory's");
}

#[test]
fn strangers_and_noise_are_counted_and_survived() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    fs::write(&path, noise(300_000)).expect("a file");
    let server = Server::start(&path);
    let known = id(&server);
    let mut client = Client::new(&server);
    let meta = Range { kind: RangeKind::Meta, first: 0, count: 1 };
    let unknown = ContentId::of(b"something else");
    let refused =
        |want| move |packet: &Packet<'_>| matches!(packet, Packet::Refuse { reason, .. } if *reason == want);
    assert!(client.ask(&unknown, &[meta], refused(Reason::Unknown)));
    // The right root with another length is no known content either.
    assert!(client.ask(&ContentId { length: 5, ..known }, &[meta], refused(Reason::Unknown)));
    let mut client = Client::proven(&server, &known);
    let cut = ChunksPerBlock::new(12).expect("a cut");
    let beyond = Range { kind: RangeKind::Data(cut), first: known.chunks(cut), count: 1 };
    assert!(client.ask(&known, &[beyond], |packet| matches!(packet, Packet::Refuse { .. })));
    // These packets are invalid, among them every prefix of a valid one.
    let mut good = Vec::new();
    wire::emit_request(&mut good, 9, None, false, &known, &[meta]);
    for len in 1..good.len() {
        client.socket.send(&good[..len]).expect("sent");
    }
    for n in 0..2_000 {
        client.socket.send(&noise(n % 1_400 + 1)).expect("sent");
    }
    client.socket.send(&vec![1; 65_507]).expect("sent");
    let mut version = good.clone();
    version[0] = 99;
    client.socket.send(&version).expect("sent");
    // The source still works.
    let mut client = Client::proven(&server, &known);
    assert!(client.fetch(&known).expect("content") == noise(300_000));
    let totals = server.end();
    assert_eq!(totals["unknown"], 2, "{totals}");
    assert!(totals["bad"].as_u64() >= Some(1), "{totals}");
    assert!(totals["malformed"]["truncated"].as_u64() > Some(10), "{totals}");
    assert!(totals["malformed"]["unknown-version"].as_u64() > Some(10), "{totals}");
}

#[test]
fn an_unproven_address_gets_three_times_its_bytes_at_most() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    fs::write(&path, noise(300_000)).expect("a file");
    let server = Server::start(&path);
    let known = id(&server);
    let cut = RangeKind::Data(ChunksPerBlock::new(12).expect("a cut"));
    for (kind, count) in [(cut, 64), (RangeKind::Hashes { level: 0 }, 1), (RangeKind::Meta, 1)] {
        let mut request = Vec::new();
        wire::emit_request(&mut request, 1, None, false, &known, &[Range { kind, first: 0, count }; 64]);
        let client = Client::new(&server);
        client.socket.send(&request).expect("sent");
        let mut buffer = vec![0; 1 << 16];
        let mut received = IP_UDP_HEADERS + client.socket.recv(&mut buffer).expect("an answer");
        // Once a later request has been answered, all earlier answers are here.
        Client::proven(&server, &known);
        client.socket.set_nonblocking(true).expect("an option");
        while let Ok(len) = client.socket.recv(&mut buffer) {
            received += IP_UDP_HEADERS + len;
        }
        let sent = IP_UDP_HEADERS + request.len();
        assert!(received <= 3 * sent, "{received} bytes for {sent}: {kind:?}");
    }
}

#[test]
fn a_file_that_changes_is_refused_not_sent_wrong() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    fs::write(&path, noise(300_000)).expect("a file");
    let server = Server::start(&path);
    let known = id(&server);
    let mut client = Client::proven(&server, &known);
    assert!(client.fetch(&known).is_ok());
    std::thread::sleep(Duration::from_millis(20));
    fs::write(&path, noise(300_001)).expect("overwritten");
    assert_eq!(client.fetch(&known), Err(Reason::Changed));
    assert!(server.end()["changed"].as_u64() > Some(0));
}

/// If one file of a directory has changed, only that file is missing, and it is named.
#[test]
fn of_a_directory_all_comes_but_what_has_changed() {
    let dir = tempfile::tempdir().expect("a directory");
    let album = dir.path().join("album");
    fs::create_dir(&album).expect("a directory");
    for name in 0..200 {
        fs::write(album.join(format!("f{name}")), noise(1_000 + name)).expect("a file");
    }
    let server = Server::start(&album);
    std::thread::sleep(Duration::from_millis(20));
    fs::write(album.join("f8"), b"another").expect("overwritten");
    let to = dir.path().join("to");
    for _ in 0..2 {
        let done = crate::common::fetch::run(crate::common::fetch::fetch(server.uri(), &to)).expect(3);
        assert!(done.err.contains("1 of 200 files could not be had"), "{}", done.err);
        assert!(done.err.contains("f8: ") && done.err.contains("changed"), "it is named: {}", done.err);
        let mut names = crate::common::fetch::names(&to);
        names.sort();
        assert_eq!(names.len(), 199, "{names:?}");
        assert!(!names.contains(&"f8".to_owned()), "{names:?}");
        assert!(fs::read(to.join("f199")).expect("a file") == noise(1_199));
    }
}

#[test]
fn the_limit_holds() {
    let _few = anabranch_net::testing::among_few();
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    fs::write(&path, noise(1_500_000)).expect("a file");
    let server = Server::start_at(&path, "127.0.0.1:0", &["--limit", "8Mbit"]);
    let known = id(&server);
    let mut client = Client::proven(&server, &known);
    let clock = anabranch_net::Clock::start();
    let mut times = vec![0.0];
    let fetched = client.fetch_watched(&known, || times.push(clock.now().as_nanos() as f64 / 1e9));
    assert!(fetched.is_ok());
    let took = times[times.len() - 1];
    assert!(took >= 1.4, "1.5 MB at 1 MB/s took {took} s");
    // A machine that stalls makes some steps longer, but not half of them.
    let mut steps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    steps.sort_unstable_by(f64::total_cmp);
    let would_take = steps[steps.len() / 2] * steps.len() as f64;
    assert!(would_take < 3.0, "1.5 MB at 1 MB/s took {took} s, {would_take} s by the median step");
}

#[test]
fn what_cannot_be_served_is_said() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    fs::write(&path, b"x").expect("a file");
    let server = Server::start(&path);
    let taken = server.address.to_string();
    let fail = |args: &[&str], code: i32| {
        let assert = anabranch().arg("serve").args(args).arg("--no-cache").assert().code(code);
        String::from_utf8_lossy(&assert.get_output().stderr).into_owned()
    };
    let path = path.to_str().expect("UTF-8");
    assert!(fail(&[path, "--listen", &taken], 1).contains("--listen"));
    assert!(fail(&[path, "--listen", "192.0.2.1:5"], 1).contains("no such address"));
    assert!(fail(&["/nonexistent", "--listen", "127.0.0.1:0"], 2).contains("/nonexistent"));
    assert!(fail(&["/dev/null", "--listen", "127.0.0.1:0"], 2).contains("neither"));
}

/// `nohup anabranch serve …` goes on when the terminal is gone.
#[test]
fn a_signal_that_was_ignored_from_the_start_stays_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    fs::write(&path, noise(40_000)).expect("a file");
    let program = anabranch().get_program().to_owned();
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(program).arg("serve").arg(&path);
    let server = Server::run({
        command.args(["--json", "--no-cache", "--listen", "127.0.0.1:0"]);
        command
    });
    let status = || fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let ignored = |mask: &str| {
        let status = status();
        let mask = status.lines().find_map(|line| line.strip_prefix(mask)).expect("a mask").trim().to_owned();
        u64::from_str_radix(&mask, 16).expect("hexadecimal") & 1 != 0
    };
    assert!(ignored("SigIgn:") && !ignored("SigCgt:"), "{}", status());
    // Without `nohup`, the end of the terminal ends it in an orderly way. The tests themselves may run with
    // `nohup`.
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP").arg(anabranch().get_program());
    command.args(["serve", "--json", "--no-cache", "--listen", "127.0.0.1:0"]).arg(&path);
    let server = Server::run(command);
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a mask").trim();
    assert!(u64::from_str_radix(caught, 16).expect("hexadecimal") & 1 != 0, "{status}");
}
