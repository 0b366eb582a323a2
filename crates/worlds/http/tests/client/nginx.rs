//! Many small files from real nginx, by one route.

use std::collections::HashMap;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anabranch_http::client::RequestKind;

use crate::common::{client, fetch_request, outcomes};

/// A running nginx, gone when dropped.
struct Nginx {
    child: Child,
    dir: tempfile::TempDir,
    address: SocketAddr,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Nginx {
    /// With `more` in its server block; or says in one line why not.
    fn start(more: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().display();
        // What is free now could be taken by another test if it were 127.0.0.1.
        let number = more.len() % 250;
        let free = TcpListener::bind((format!("127.{}.{number}.9", std::process::id() % 250), 0)).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        fs::create_dir(dir.path().join("files")).unwrap();
        // As root it would become somebody else, who may not read the directory.
        let user = if nix::unistd::geteuid().is_root() { "user root;" } else { "" };
        let temp: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|name| format!("{name}_temp_path {at}/{name};\n"))
            .collect();
        let conf = format!(
            "{user} daemon off; master_process off; pid {at}/pid; error_log {at}/error.log;\n\
             events {{ worker_connections 256; }}\n\
             http {{ log_format which '$connection $status'; access_log {at}/access.log which;\n{temp}\
             server {{ listen {address}; root {at}/files; {more} }} }}\n"
        );
        fs::write(dir.path().join("conf"), conf).unwrap();
        let start = |program: &str| {
            let mut command = Command::new(program);
            command.arg("-p").arg(dir.path()).arg("-c").arg(dir.path().join("conf"));
            command.arg("-e").arg(dir.path().join("error.log"));
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
        };
        let child = match start("nginx").or_else(|_| start("/usr/sbin/nginx")) {
            Ok(child) => child,
            Err(e) => {
                anabranch_net::testing::skip(format!("nginx: {e}"));
                return None;
            }
        };
        let new = Self { child, dir, address };
        for _ in 0..400 {
            if TcpStream::connect(address).is_ok() {
                return Some(new);
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("{}", fs::read_to_string(new.dir.path().join("error.log")).unwrap_or_default());
    }
}

/// Content and name of a file.
fn small(number: u64) -> (String, Vec<u8>) {
    let text = format!("file {number} ").repeat((number % 300) as usize + 1);
    (format!("f{number}"), text.into_bytes())
}

/// Fetches 1,000 files at once; how many answers came by each connection.
fn thousand(more: &str) -> Option<Vec<usize>> {
    let nginx = Nginx::start(more)?;
    for number in 0..1000 {
        let (name, bytes) = small(number);
        fs::write(nginx.dir.path().join("files").join(name), bytes).unwrap();
    }
    let mut client = client();
    for number in 0..1000 {
        let (name, bytes) = small(number);
        let length = bytes.len() as u64;
        let url = format!("http://{}/{name}", nginx.address);
        let range = || RequestKind::Range {
            first: 0,
            end: length,
            length,
            validator: None,
            modified: None,
            seen_at: None,
        };
        client.fetch(
            number,
            fetch_request(&url, if number % 2 == 0 { range() } else { RequestKind::Document { max: 4000 } }),
        );
    }
    for (number, (id, bytes)) in outcomes(&mut client, 1000).into_iter().enumerate() {
        assert_eq!(id, number as u64);
        assert!(bytes.unwrap() == small(id).1, "file {id}");
    }
    drop(client);
    // It notes an answer after it has sent it.
    let read = || fs::read_to_string(nginx.dir.path().join("access.log")).unwrap();
    let mut tries = std::iter::repeat_with(|| (thread::sleep(Duration::from_millis(50)), read()).1).take(200);
    let log = tries.find(|log| log.lines().count() >= 1000).unwrap_or_else(read);
    let mut connections: HashMap<&str, usize> = HashMap::new();
    for line in log.lines() {
        *connections.entry(line.split(' ').next().unwrap()).or_default() += 1;
    }
    let mut counts: Vec<usize> = connections.into_values().collect();
    counts.sort_unstable();
    Some(counts)
}

#[test]
fn a_thousand_files_by_one_connection() {
    let Some(counts) = thousand("") else { return };
    assert_eq!(counts, [1000]);
}

#[test]
fn a_thousand_files_with_a_limit_of_requests() {
    let Some(counts) = thousand("keepalive_requests 100;") else { return };
    assert_eq!(counts, [100; 10]);
}
