//! Tests of `anabranch proxy status` and of the page of `--status`, with a server and a client as a user
//! starts them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Output, Stdio};
use std::thread;

use crate::roles::{LONG, Role, client_command, connect, own, server_command};
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

/// The name of a destination that could harm a terminal or a page that shows it.
const HOSTILE: &str = "<b>\"x'&{}<img>";

/// Makes a directory for the state and the sockets of all programs of a test.
fn place() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn status(place: &Path, args: &[&str]) -> Output {
    own(place, &[&["proxy", "status"], args].concat()).stderr(Stdio::piped()).output().unwrap()
}

fn server(place: &Path, more: &[&str], count: usize) -> Role {
    Role::start(&mut server_command(place, more), count)
}

fn client(place: &Path, server: &Role, more: &[&str], count: usize) -> Role {
    Role::start(&mut client_command(place, server.address("trunks"), more), count)
}

/// Starts an origin that sends some bytes and waits.
fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let held: Vec<_> = listener
            .incoming()
            .map(|stream| {
                let mut stream = stream.unwrap();
                stream.write_all(b"hello").unwrap();
                stream
            })
            .collect();
        drop(held);
    });
    address
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn status_finds_what_runs_and_says_so_if_nothing_does() {
    let place = place();
    let place = place.path();
    let none = status(place, &[]);
    assert_eq!(none.status.code(), Some(1));
    assert!(text(&none.stderr).contains("no proxy of this user runs here"), "{none:?}");
    let none = status(place, &["--json"]);
    let summary: Value = serde_json::from_slice(&none.stdout).unwrap();
    assert_eq!((&summary["event"], &summary["exit"]), (&"summary".into(), &1.into()), "{summary}");

    let server = server(place, &[], 1);
    let mut client = client(place, &server, &[], 1);
    let origin = origin();
    let mut stream = connect(client.address("socks"), &[1, 127, 0, 0, 1], origin.port());
    stream.read_exact(&mut [0; 5]).unwrap();
    let all = status(place, &["--json"]);
    assert_eq!(all.status.code(), Some(0), "{all:?}");
    let lines: Vec<Value> =
        text(&all.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3, "two and a summary: {lines:?}");
    let of = |role: &str| lines.iter().find(|line| line["role"] == role).unwrap();
    assert_eq!((&of("client")["event"], &of("client")["version"]), (&"status".into(), &1.into()));
    assert_eq!((&of("client")["pid"], &of("server")["pid"]), (&client.pid().into(), &server.pid().into()));
    for role in ["client", "server"] {
        let connection = &of(role)["connections"][0];
        assert_eq!(connection["destination"], origin.to_string(), "{role}");
        assert_eq!((&connection["received_bytes"], &connection["state"]), (&5.into(), &"open".into()));
    }
    assert_eq!(of("server")["clients"][0]["name"], "127.0.0.1");
    assert_eq!(of("client")["links"][0]["name"], "lo");
    let shown = text(&status(place, &[]).stdout);
    for part in ["client to ", "server, process", "lo ", &origin.to_string(), "connections: 1 open, 0 ended"]
    {
        assert!(shown.contains(part), "{part} in {shown}");
    }

    // A killed role leaves its socket, which `status` ignores.
    client.signal(Signal::SIGKILL);
    let shown = text(&status(place, &[]).stdout);
    assert!(!shown.contains("client to ") && shown.contains("server, process"), "{shown}");
    assert_eq!(std::fs::metadata(place.join("run")).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_hostile_destination_is_harmless_on_a_terminal_and_exact_in_json() {
    let place = place();
    let place = place.path();
    let server = server(place, &[], 1);
    let client = client(place, &server, &[], 1);
    // No resolver knows the name. The client shows it while the server looks it up, and then the error.
    let to = [&[3, u8::try_from(HOSTILE.len()).unwrap()], HOSTILE.as_bytes()].concat();
    let mut stream = connect(client.address("socks"), &to, 80);
    let _ = stream.read(&mut [0]);
    let all = text(&status(place, &["--json"]).stdout);
    let of_client = all.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_client = of_client.into_iter().find(|line| line["role"] == "client").unwrap();
    assert_eq!(of_client["finished"][0]["destination"], format!("{HOSTILE}:80"), "{of_client}");
    assert!(of_client["finished"][0]["error"].is_string());
    let shown = text(&status(place, &[]).stdout);
    assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
}

/// Returns the status and the body of the page's answer.
fn get(address: &str, path: &str, token: Option<&str>) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let field = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n{field}Connection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[test]
fn the_page_wants_the_token_of_a_file_that_stays_the_same() {
    let place = place();
    let place = place.path();
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let server = server(place, &["--status", "127.0.0.1:0"], 2);
        let client = client(place, &server, &["--status", "127.0.0.1:0"], 2);
        for role in [&server, &client] {
            let page = role.address("status");
            let file = role.listening("status")["token_file"].as_str().unwrap();
            assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
            let token = std::fs::read_to_string(file).unwrap();
            assert!(get(page, "/", None).1.contains("<title>anabranch proxy</title>"));
            assert_eq!(get(page, "/metrics", None).0, 401);
            let (code, metrics) = get(page, "/metrics", Some(token.trim()));
            assert_eq!(code, 200);
            anabranch_net::prometheus::check(&metrics);
            tokens.push(token);
        }
    }
    assert_ne!(tokens[0], tokens[1], "each role has its own");
    assert_eq!(tokens[..2], tokens[2..], "a monitor need not be told of a new one");

    std::fs::set_permissions(place.join("proxy-client.token"), std::fs::Permissions::from_mode(0o644))
        .unwrap();
    let server = server(place, &[], 1);
    let to = server.address("trunks");
    let args =
        ["proxy", "client", "--plain", "--server", to, "--status", "127.0.0.1:0", "--socks", "127.0.0.1:0"];
    let refused = own(place, &args).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("other users can read it (mode 644): chmod 600 "), "{refused:?}");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let args = ["proxy", "client", "--plain", "--server", to, "--status", &taken, "--socks", "127.0.0.1:0"];
    std::fs::remove_file(place.join("proxy-client.token")).unwrap();
    let refused = own(place, &args).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains(&format!("listening on {taken}")), "{refused:?}");
}

#[test]
fn a_role_ends_in_order_though_it_shows_itself() {
    let place = place();
    let place = place.path();
    let mut server = server(place, &["--status", "127.0.0.1:0"], 2);
    let mut client = client(place, &server, &["--status", "127.0.0.1:0"], 2);
    // Each has a socket for its status, and the server has one for commands.
    assert_eq!(std::fs::read_dir(place.join("run")).unwrap().count(), 3);
    client.signal(Signal::SIGTERM);
    server.signal(Signal::SIGTERM);
    assert_eq!(std::fs::read_dir(place.join("run")).unwrap().count(), 0, "no socket is left");
}
