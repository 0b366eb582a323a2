use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::thread;

use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_tungstenite::tungstenite::{Message, WebSocket, client};

use super::*;
use crate::daemon::{Daemon, Settings};
use crate::destination::Base;
use crate::job::Options;
use crate::origin::Origin;
use crate::token::Token;

/// The longest wait for anything: a machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);
const FAST: u64 = 1 << 40;

/// A daemon behind a server.
struct Bed {
    dir: TempDir,
    daemon: Daemon,
    server: Server,
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.daemon.end(PATIENCE);
    }
}

impl Bed {
    fn new(allows_all_origins: bool) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("state")).expect("made");
        fs::create_dir(dir.path().join("files")).expect("made");
        Self::in_directory(dir, allows_all_origins)
    }

    fn in_directory(dir: TempDir, allows_all_origins: bool) -> Self {
        let base = Base::new(&dir.path().join("files"), false).expect("a directory");
        let state = dir.path().join("state");
        let settings = Settings {
            base,
            state,
            via: Vec::new(),
            counts: None,
            limits: Vec::new(),
            options: Options::new(),
            is_insecure: false,
        };
        let daemon = Daemon::start(settings).expect("a daemon");
        let rpc = Rpc::new(daemon.clone(), Token::new("s").expect("a token"));
        let any = "127.0.0.1:0".parse().expect("an address");
        let server = Server::start(&[any], rpc, allows_all_origins).expect("a server");
        Self { dir, daemon, server }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join("files").join(name)
    }

    /// Sends a request, and returns the head of the answer and its body.
    fn http(&self, head: &str, body: &[u8]) -> (String, String) {
        let mut stream = TcpStream::connect(self.server.addresses()[0]).expect("a connection");
        let head =
            format!("{head}\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).expect("sent");
        // A server that refuses the body may close the connection before it is sent.
        let _ = stream.write_all(body);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8(answer).expect("text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        (head.to_ascii_lowercase(), body.to_owned())
    }

    fn call(&self, method: &str, params: Value) -> Value {
        let Value::Array(mut params) = params else { panic!("a list of parameters") };
        params.insert(0, json!("token:s"));
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let (_, body) = self.http("POST /jsonrpc HTTP/1.1", request.to_string().as_bytes());
        let answer: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(answer.get("error"), None, "{method}");
        answer["result"].clone()
    }

    fn status(&self, gid: &Value) -> Value {
        self.call("aria2.tellStatus", json!([gid]))
    }

    /// Waits until the status of a job is as wanted, and returns it.
    fn wait(&self, gid: &Value, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        for _ in 0..PATIENCE.as_millis() / 20 {
            last = self.status(gid);
            if is(&last) {
                return last;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("not {what}: {last}");
    }

    fn wait_ended(&self, gid: &Value) -> Value {
        self.wait(gid, "at its end", |job| job["status"] == "complete" || job["status"] == "error")
    }

    fn socket(&self) -> WebSocket<TcpStream> {
        let address = self.server.addresses()[0];
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        client(format!("ws://{address}/jsonrpc"), stream).expect("a WebSocket").0
    }
}

fn number(job: &Value, key: &str) -> u64 {
    job[key].as_str().expect("a text").parse().expect("a number")
}

fn noise(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn read(socket: &mut WebSocket<TcpStream>) -> Value {
    loop {
        if let Message::Text(text) = socket.read().expect("a message") {
            return serde_json::from_str(&text).expect("JSON");
        }
    }
}

#[test]
fn two_mirrors_make_one_file_and_listeners_hear_of_it() {
    let bed = Bed::new(false);
    let content = noise(3_000_000);
    let mirrors = [Origin::start(content.clone(), FAST), Origin::start(content.clone(), FAST)];
    let [mut silent, mut socket] = [bed.socket(), bed.socket()];
    let send = |socket: &mut WebSocket<TcpStream>, call: Value| {
        socket.send(Message::text(call.to_string())).expect("sent");
    };
    send(&mut silent, json!({"id": 1, "method": "system.listMethods"}));
    assert_eq!(read(&mut silent)["id"], 1);
    let uris = mirrors.each_ref().map(|mirror| mirror.url("dir/f.iso"));
    send(&mut socket, json!({"id": "a", "method": "aria2.addUri", "params": ["token:s", uris]}));
    let heard: Vec<Value> = (0..3).map(|_| read(&mut socket)).collect();
    let answer = heard.iter().find(|one| one["id"] == "a").expect("the answer");
    let gid = answer["result"].clone();
    let told: Vec<&Value> = heard.iter().filter(|one| one.get("id").is_none()).collect();
    assert_eq!(told[0]["method"], "aria2.onDownloadStart");
    assert_eq!(
        (&told[1]["method"], &told[1]["params"]),
        (&json!("aria2.onDownloadComplete"), &json!([{"gid": gid}]))
    );
    let job = bed.status(&gid);
    assert_eq!((&job["status"], &job["errorCode"]), (&json!("complete"), &json!("0")));
    assert_eq!((&job["totalLength"], &job["completedLength"]), (&json!("3000000"), &json!("3000000")));
    assert_eq!((&job["numPieces"], &job["bitfield"]), (&json!("3"), &json!("e0")));
    assert_eq!(job["files"][0]["path"], json!(bed.file("f.iso").canonicalize().expect("there")));
    assert!(fs::read(bed.file("f.iso")).expect("a file") == content);
    assert!(mirrors.iter().all(|mirror| mirror.sent.load(Ordering::Relaxed) > 0));
    // Who has not shown the token hears nothing: the next message is the answer to the next call.
    send(&mut silent, json!({"id": 2, "method": "aria2.getVersion", "params": ["token:s"]}));
    assert_eq!(read(&mut silent)["id"], 2);
    // A message that is too long ends the connection.
    socket.send(Message::text("x".repeat(REQUEST_BYTES_MAX + 1))).ok();
    assert!((0..9).any(|_| socket.read().is_err()));
}

#[test]
fn a_job_is_paused_changed_limited_and_resumed() {
    let bed = Bed::new(false);
    let content = noise(2_000_000);
    let origin = Origin::start(content.clone(), 1_000_000);
    let gid = bed.call("aria2.addUri", json!([[origin.url("f")], {"out": "sub/g.bin"}]));
    let some = |job: &Value| number(job, "completedLength") > 900_000 && number(job, "downloadSpeed") > 0;
    let job = bed.wait(&gid, "under way", some);
    assert_eq!((&job["status"], &job["connections"]), (&json!("active"), &json!("1")));
    let servers = bed.call("aria2.getServers", json!([gid]));
    assert_eq!(servers[0]["servers"][0]["uri"], json!(origin.url("f")));
    assert_eq!(bed.call("aria2.getUris", json!([gid]))[0]["status"], "used");
    assert_eq!(bed.call("anabranch.tellPaths", json!([gid]))[0]["state"], "open");
    assert!(number(&bed.call("aria2.getGlobalStat", json!([])), "downloadSpeed") > 0);
    assert_eq!(bed.call("aria2.pause", json!([gid])), gid);
    assert_eq!(bed.status(&gid)["status"], "paused");
    let known = bed.wait(&gid, "kept", |job| number(job, "completedLength") > 0);
    assert!(number(&known, "completedLength") < 2_000_000 && !bed.file("sub/g.bin").exists());
    // A running transfer obeys a new limit of its own, or of all transfers, without a restart.
    bed.call("aria2.changeGlobalOption", json!([{"max-overall-download-limit": "40K"}]));
    bed.call("aria2.changeOption", json!([gid, {"max-download-limit": "20K"}]));
    origin.set_rate(FAST);
    assert_eq!(bed.call("aria2.unpause", json!([gid])), gid);
    bed.wait(&gid, "active", |job| job["status"] == "active" && job["connections"] == "1");
    bed.call("aria2.changeOption", json!([gid, {"max-download-limit": "0"}]));
    assert_eq!(bed.status(&gid)["status"], "active");
    bed.call("aria2.changeGlobalOption", json!([{"max-overall-download-limit": "0"}]));
    let done = bed.wait_ended(&gid);
    assert_eq!(done["status"], "complete", "{done}");
    assert!(fs::read(bed.file("sub/g.bin")).expect("a file") == content);
    let sent = origin.sent.load(Ordering::Relaxed);
    // The old connection had sent some bytes that were never read.
    assert!(sent < 2_000_000 + 800_000, "what had arrived was not fetched again: {sent}");
    assert_eq!(bed.call("aria2.removeDownloadResult", json!([gid])), "OK");
}

#[test]
fn failures_have_codes_and_sentences() {
    let bed = Bed::new(false);
    let origin = Origin::start(noise(50_000), FAST);
    let add = |url: String, options: Value| bed.call("aria2.addUri", json!([[url], options]));
    let wrong = "0".repeat(64);
    fs::write(bed.file("there"), "mine").expect("written");
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr()).expect("a port");
    for (gid, code, why) in [
        (add(origin.url("none"), json!({})), 3, "404"),
        (add(origin.url("f"), json!({"checksum": format!("sha-256={wrong}")})), 32, ""),
        (add(origin.url("there"), json!({})), 13, "allow-overwrite"),
        (add(format!("http://{closed}/f"), json!({})), 6, "refused"),
        (add(origin.url("f"), json!({"interface": "no-such-link0"})), 28, "no-such-link0"),
    ] {
        let job = bed.wait_ended(&gid);
        assert_eq!(job["errorCode"], json!(code.to_string()), "{job}");
        assert!(job["errorMessage"].as_str().expect("a sentence").contains(why), "{job}");
    }
    assert_eq!(fs::read(bed.file("there")).expect("a file"), b"mine");
    let gid = add(origin.url("there"), json!({"allow-overwrite": "true"}));
    assert_eq!(bed.wait_ended(&gid)["status"], "complete");
    assert_eq!(fs::read(bed.file("there")).expect("a file").len(), 50_000);
}

#[test]
fn a_metalink_is_fetched_with_its_hashes() {
    let bed = Bed::new(false);
    let content = noise(400_000);
    let origin = Origin::start(content.clone(), FAST);
    let metalink = format!(
        "<?xml version=\"1.0\"?><metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"m.bin\">\
         <size>400000</size><url>{}</url></file></metalink>",
        origin.url("elsewhere")
    );
    let encoded = data_encoding::BASE64.encode(metalink.as_bytes());
    let gids = bed.call("aria2.addMetalink", json!([encoded]));
    assert_eq!(bed.wait_ended(&gids[0])["status"], "complete");
    assert!(fs::read(bed.file("m.bin")).expect("a file") == content);
    let left: Vec<_> = fs::read_dir(bed.dir.path().join("state")).expect("there").flatten().collect();
    assert!(left.iter().all(|entry| !entry.file_name().to_string_lossy().ends_with(".meta4")), "{left:?}");
}

#[test]
fn the_queue_is_the_same_after_a_restart() {
    let bed = Bed::new(false);
    let origin = Origin::start(noise(5_000_000), 100_000);
    let add = |bed: &Bed, name: &str, options: Value| {
        bed.call("aria2.addUri", json!([[origin.url(name)], options]))
    };
    bed.call("aria2.changeGlobalOption", json!([{"max-concurrent-downloads": "1"}]));
    let gids = [
        add(&bed, "a", json!({})),
        add(&bed, "b", json!({"pause": "true"})),
        add(&bed, "c", json!({"max-download-limit": "9K"})),
        add(&bed, "none", json!({"pause": "true"})),
    ];
    bed.call("aria2.changePosition", json!([gids[2], 0, "POS_SET"]));
    bed.call("aria2.remove", json!([gids[3]]));
    bed.wait(&gids[0], "under way", |job| number(job, "completedLength") > 0);
    bed.daemon.end(PATIENCE);
    let Bed { dir, .. } = &bed;
    let moved = tempfile::tempdir().expect("a directory");
    fs::rename(dir.path().join("state"), moved.path().join("state")).expect("moved");
    fs::rename(dir.path().join("files"), moved.path().join("files")).expect("moved");
    drop(bed);
    let bed = Bed::in_directory(moved, false);
    let order = bed.call("aria2.tellWaiting", json!([0, 9, ["gid", "status"]]));
    // All places are free at the start, so only the paused job waits.
    assert_eq!(order, json!([{"gid": gids[1], "status": "paused"}]));
    let active = bed.call("aria2.tellActive", json!([["gid"]]));
    assert_eq!(active, json!([{"gid": gids[0]}, {"gid": gids[2]}]));
    let options = bed.call("aria2.getOption", json!([gids[2]]));
    assert_eq!(options["max-download-limit"], "9216");
    assert_eq!(bed.status(&gids[3])["status"], "removed");
    assert!(number(&bed.status(&gids[0]), "completedLength") > 0, "what was known is known");
}

#[test]
fn http_is_as_aria2_has_it() {
    let bed = Bed::new(false);
    let call = br#"{"id":1,"method":"system.listMethods"}"#;
    for (head, body, status, has) in [
        ("POST /jsonrpc HTTP/1.1", &call[..], "200", "application/json-rpc"),
        ("POST /jsonrpc HTTP/1.1", b"{", "500", ""),
        ("POST /jsonrpc HTTP/1.1", &[b' '; REQUEST_BYTES_MAX + 1], "413", ""),
        ("GET /jsonrpc?method=system.listMethods&id=1 HTTP/1.1", b"", "200", ""),
        (
            "GET /jsonrpc?method=system.listMethods&id=1&jsoncallback=f HTTP/1.1",
            b"",
            "200",
            "text/javascript",
        ),
        ("GET /jsonrpc HTTP/1.1", b"", "400", ""),
        ("GET / HTTP/1.1", b"", "200", "frame-ancestors 'none'"),
        ("GET /script.js HTTP/1.1", b"", "200", "text/javascript"),
        ("GET /other HTTP/1.1", b"", "404", ""),
        ("POST / HTTP/1.1", b"", "404", ""),
        ("DELETE /jsonrpc HTTP/1.1", b"", "405", "allow: get"),
        ("OPTIONS /jsonrpc HTTP/1.1\r\nOrigin: http://x", b"", "200", ""),
        ("GET /jsonrpc HTTP/1.1\r\nUpgrade: websocket\r\nConnection: upgrade", b"", "400", "version: 13"),
    ] {
        let (answer, _) = bed.http(head, body);
        assert!(
            answer.starts_with(&format!("http/1.1 {status}")) && answer.contains(has),
            "{head}: {answer}"
        );
        assert!(!answer.contains("access-control"), "{head}: {answer}");
    }
    let bed = Bed::new(true);
    let (answer, _) = bed.http("POST /jsonrpc HTTP/1.1\r\nOrigin: http://x", call);
    assert!(answer.contains("access-control-allow-origin: *"), "{answer}");
    let asked =
        "OPTIONS /jsonrpc HTTP/1.1\r\nOrigin: http://x\r\nAccess-Control-Request-Headers: content-type";
    let (answer, _) = bed.http(asked, b"");
    assert!(answer.contains("access-control-allow-headers: content-type"), "{answer}");
    let (answer, body) = bed.http("POST /jsonrpc HTTP/1.1", br#"{"id":1,"method":"aria2.shutdown"}"#);
    assert!(answer.starts_with("http/1.1 400") && body.contains("Unauthorized"), "{body}");
    assert_eq!(bed.call("aria2.shutdown", json!([])), "OK");
    bed.daemon.wait_for_end();
}

#[test]
fn no_bytes_break_the_server() {
    let bed = Bed::new(false);
    proptest!(ProptestConfig::with_cases(30), |(body in prop::collection::vec(any::<u8>(), 0..200))| {
        let (answer, _) = bed.http("POST /jsonrpc HTTP/1.1", &body);
        prop_assert!(answer.starts_with("http/1.1 "), "{}", answer);
        let mut stream = TcpStream::connect(bed.server.addresses()[0]).expect("a connection");
        stream.write_all(&body).expect("sent");
    });
    bed.call("aria2.getVersion", json!([]));
}
