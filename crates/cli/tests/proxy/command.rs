//! Tests of `anabranch proxy`: a server and a client as a user starts them, with a program that speaks
//! SOCKS5.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const LONG: Duration = Duration::from_secs(30);

fn anabranch(args: &[&str], state: &Path) -> Command {
    let mut command = Command::new(crate::common::program());
    command.env("STATE_DIRECTORY", state).env("RUNTIME_DIRECTORY", state.join("run"));
    command.args(args).stderr(Stdio::inherit());
    command
}

/// A running role, and its first address.
struct Role {
    child: Child,
    lines: Box<dyn Iterator<Item = String>>,
    address: String,
}

impl Role {
    fn start(args: &[&str], state: &Path) -> Self {
        let mut child = anabranch(args, state).arg("--json").stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let first: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
        assert_eq!(first["event"], "listening", "{first}");
        let address = first["address"].as_str().unwrap().to_owned();
        Self { child, lines: Box::new(lines), address }
    }

    /// Waits until the role reports a connection that has ended.
    fn wait_for_connection(&mut self) {
        assert!(self.lines.any(|line| line.contains("\"event\":\"connection\"")));
    }

    /// Ends the role as Ctrl-C does. Returns its last line of output.
    fn end(mut self) -> Value {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
        let last = (&mut self.lines).last().unwrap();
        assert!(self.child.wait().unwrap().success());
        serde_json::from_str(&last).unwrap()
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1_000]);
            stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello").unwrap();
        }
    });
    address
}

/// Returns the answer of an origin through SOCKS5 at this address.
fn fetch(socks: &str, origin: SocketAddr) -> String {
    let SocketAddr::V4(to) = origin else { panic!() };
    let mut stream = TcpStream::connect(socks).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(&[5, 1, 0]).unwrap();
    stream.read_exact(&mut [0; 2]).unwrap();
    let request = [&[5, 1, 0, 1], &to.ip().octets()[..], &to.port().to_be_bytes()].concat();
    stream.write_all(&request).unwrap();
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[..2], [5, 0]);
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_client_is_paired_while_the_server_runs_and_a_program_reaches_its_origin() {
    let state = tempfile::tempdir().unwrap();
    let state = state.path();
    let mut server =
        Role::start(&["proxy", "server", "--listen", "127.0.0.1:0", "--allow", "127.0.0.0/8"], state);
    let paired = anabranch(&["proxy", "pair", "--name", "laptop"], state).output().unwrap();
    assert!(paired.status.success());
    let line = state.join("laptop.pair");
    anabranch_net::testing::write_secret(&line, &paired.stdout).unwrap();
    let mut again = anabranch(&["proxy", "pair", "--name", "laptop"], state);
    let again = again.stderr(Stdio::piped()).output().unwrap();
    assert_eq!(again.status.code(), Some(2), "the name is taken");
    let says = String::from_utf8_lossy(&again.stderr);
    assert!(says.contains("take it off first (anabranch proxy remove laptop)"), "{says}");

    let line = line.to_str().unwrap();
    let args =
        ["proxy", "client", "--server", &server.address, "--pair-file", line, "--listen", "127.0.0.1:0"];
    let mut client = Role::start(&args, state);
    assert!(fetch(&client.address, origin()).ends_with("hello"));
    client.wait_for_connection();
    server.wait_for_connection();
    let summary = client.end();
    assert_eq!((&summary["event"], &summary["exit"]), (&"summary".into(), &0.into()), "{summary}");
    assert_eq!(summary["connections"], 1, "{summary}");
    assert_eq!(server.end()["received_bytes"], 24);
}

/// Programs that speak SOCKS4A, SOCKS5 and HTTP find the client at one port.
#[test]
fn one_port_takes_every_program_and_a_client_is_taken_off() {
    let state = tempfile::tempdir().unwrap();
    let state = state.path();
    let args = ["proxy", "server", "--listen", "127.0.0.1:0", "--allow", "127.0.0.0/8"];
    let server = Role::start(&args, state);
    let paired = anabranch(&["proxy", "pair", "--name", "laptop"], state).output().unwrap();
    let line = state.join("laptop.pair");
    anabranch_net::testing::write_secret(&line, &paired.stdout).unwrap();
    let line = line.to_str().unwrap();
    let args =
        ["proxy", "client", "--server", &server.address, "--pair-file", line, "--listen", "127.0.0.1:0"];
    let client = Role::start(&args, state);
    assert!(fetch(&client.address, origin()).ends_with("hello"));
    let says = |hello: Vec<u8>| {
        let mut stream = TcpStream::connect(&client.address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(&hello).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        // A connection of a client that was taken off is reset.
        stream.read_to_end(&mut answer).map(|_| String::from_utf8_lossy(&answer).into_owned())
    };
    let socks4 = [&[4, 1][..], &origin().port().to_be_bytes(), &[127, 0, 0, 1, 0]].concat();
    let answer = says(socks4.clone()).unwrap();
    assert!(answer.starts_with("\0Z") && answer.ends_with("hello"), "{answer}");
    let answer = says(format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin()).into_bytes()).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"), "{answer}");

    let remove = || {
        let mut command = anabranch(&["proxy", "remove", "laptop"], state);
        command.stderr(Stdio::piped()).output().unwrap()
    };
    assert!(remove().status.success());
    let again = remove();
    let why = String::from_utf8_lossy(&again.stderr);
    assert!(again.status.code() == Some(2) && why.contains("the list is empty"), "{why}");
    // The server reads the list again within a second, and ends what the client has.
    let is_off = || !says(socks4.clone()).is_ok_and(|answer| answer.ends_with("hello"));
    let tries = (0..100).find(|_| {
        thread::sleep(Duration::from_millis(50));
        is_off()
    });
    assert!(tries.is_some(), "it is still let in");
}

#[test]
fn without_keys_the_server_says_who_is_believed() {
    let state = tempfile::tempdir().unwrap();
    let state = state.path();
    let wrong = anabranch(&["proxy", "server", "--plain"], state).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2), "--plain wants --from");
    let args = ["proxy", "server", "--plain", "--from", "127.0.0.0/8", "--listen", "127.0.0.1:0"];
    let server = Role::start(&[&args[..], &["--allow", "127.0.0.1"]].concat(), state);
    let args = ["proxy", "client", "--plain", "--server", &server.address, "--socks", "127.0.0.1:0"];
    let client = Role::start(&args, state);
    assert!(fetch(&client.address, origin()).ends_with("hello"));
    let unpaired = anabranch(&["proxy", "client", "--server", &server.address], state).output().unwrap();
    assert_eq!(unpaired.status.code(), Some(2), "no keys, and not --plain");
}

#[test]
fn a_file_has_the_settings_flags_win_and_check_says_what_is_wrong_where() {
    let state = tempfile::tempdir().unwrap();
    let file = state.path().join("server.toml");
    let path = file.to_str().unwrap();
    let check = |args: &[&str]| {
        let output =
            anabranch(&[&["proxy", "server", "--config", path, "--check"], args].concat(), state.path())
                .stderr(Stdio::piped())
                .output()
                .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    std::fs::write(&file, "listen = \"127.0.0.1:1\"\ndeny = [\":25\"]\nmax-rate = \"20Mbit\"\n").unwrap();
    let (code, stdout, _) = check(&["--listen", "127.0.0.1:2"]);
    assert_eq!(code, Some(0));
    for line in ["listen = \"127.0.0.1:2\"", "deny = [\":25\"]", "idle-timeout = \"1 h\""] {
        assert!(stdout.lines().any(|said| said == line), "{line} in {stdout}");
    }
    assert!(!state.path().join("proxy-server.key").exists(), "nothing is made");
    std::fs::write(&file, "\nlitsen = \"127.0.0.1:1\"\n").unwrap();
    let (code, _, stderr) = check(&[]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("server.toml:2: unknown key `litsen`: did you mean `listen`?"), "{stderr}");
}

#[test]
fn sighup_reads_the_file_again_and_a_wrong_one_changes_nothing() {
    let state = tempfile::tempdir().unwrap();
    let state = state.path();
    let file = state.join("server.toml");
    let base = "plain = true\nfrom = \"127.0.0.0/8\"\n";
    std::fs::write(&file, format!("{base}listen = \"127.0.0.1:0\"\nallow = \"127.0.0.1\"\n")).unwrap();
    let mut server = Role::start(&["proxy", "server", "--config", file.to_str().unwrap()], state);
    let args = ["proxy", "client", "--plain", "--server", &server.address, "--socks", "127.0.0.1:0"];
    let client = Role::start(&[&args[..], &["--strict-socks"]].concat(), state);
    let origin = origin();
    assert!(fetch(&client.address, origin).ends_with("hello"));
    let mut reload = |text: &str| {
        std::fs::write(&file, text).unwrap();
        kill(Pid::from_raw(server.child.id().try_into().unwrap()), Signal::SIGHUP).unwrap();
        let mut lines = (&mut server.lines).map(|line| serde_json::from_str::<Value>(&line).unwrap());
        lines.find(|line| line["event"] == "reload").unwrap()
    };
    let said = reload("alow = 1\n");
    assert!(said["error"].as_str().unwrap().contains("did you mean `allow`?"), "{said}");
    assert!(fetch(&client.address, origin).ends_with("hello"), "all is as before");
    let said = reload(&format!("{base}listen = \"127.0.0.1:9\"\n"));
    assert_eq!((&said["live"][0], &said["restart"][0]), (&"allow".into(), &"listen".into()), "{said}");
    let SocketAddr::V4(to) = origin else { panic!() };
    let mut stream = TcpStream::connect(&client.address).unwrap();
    stream.write_all(&[5, 1, 0]).unwrap();
    stream.read_exact(&mut [0; 2]).unwrap();
    stream.write_all(&[&[5, 1, 0, 1], &to.ip().octets()[..], &to.port().to_be_bytes()].concat()).unwrap();
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[1], 2, "denied now");
    assert_eq!(server.end()["exit"], 0);
    client.end();
}
