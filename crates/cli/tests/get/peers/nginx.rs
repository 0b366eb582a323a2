//! Real nginx without privileges: several servers in one process, which ends when dropped.

use std::fmt::Write as _;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::fetch::skipped;
use crate::common::wait_until;

/// The number of nginx processes started.
static STARTED: AtomicUsize = AtomicUsize::new(0);

/// A line for a server's block that makes the server log its answers by connection.
pub(crate) const LOGGED: &str = "access_log connections.log connections;";

/// A running nginx. Each of its servers has its own directory and address.
pub(crate) struct Nginx {
    child: Child,
    dir: tempfile::TempDir,
    /// The address at which each server listens.
    pub(crate) addresses: Vec<SocketAddr>,
}

impl Nginx {
    /// Starts a server for each of `servers`, which are further lines for its block. If that is impossible,
    /// prints why.
    pub(crate) fn start(test: &str, servers: &[&str]) -> Option<Self> {
        Self::start_as(test, "", servers)
    }

    /// Starts a server by TLS at 127.0.0.2, with the certificate `cert.pem` and the key `key.pem` in text
    /// form.
    pub(crate) fn start_tls(test: &str, cert: &str, key: &str) -> Option<Self> {
        Self::start_secure(test, " ssl", cert, key, "")
    }

    /// Starts a server by TLS and HTTP/2 at 127.0.0.2, with `more` in the server's block.
    pub(crate) fn start_h2(test: &str, cert: &str, key: &str, more: &str) -> Option<Self> {
        Self::start_secure(test, " ssl http2", cert, key, more)
    }

    fn start_secure(test: &str, kind: &str, cert: &str, key: &str, more: &str) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a directory");
        let (at_cert, at_key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
        fs::write(&at_cert, cert).and_then(|()| fs::write(&at_key, key)).expect("files");
        let tls = format!(
            "ssl_certificate {};\nssl_certificate_key {};\n{more}",
            at_cert.display(),
            at_key.display()
        );
        let new = Self::start_as(test, kind, &[&tls]);
        // nginx has read the files by now.
        drop(dir);
        new
    }

    fn start_as(test: &str, kind: &str, servers: &[&str]) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a directory");
        let at = dir.path().display();
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let mut addresses: Vec<SocketAddr> = Vec::new();
        let mut blocks = String::new();
        for (i, more) in servers.iter().enumerate() {
            // Each run uses other addresses, because a port that is free now may be taken when nginx starts.
            let (a, b) = if kind.is_empty() { (std::process::id() % 250, number % 250) } else { (0, 0) };
            let free = TcpListener::bind((format!("127.{a}.{b}.{}", i + 2), 0)).expect("a free port");
            let address = free.local_addr().expect("an address");
            fs::create_dir(dir.path().join(i.to_string())).expect("a directory");
            let _ = write!(blocks, "server {{ listen {address}{kind}; root {at}/{i};\n{more}\n}}\n");
            addresses.push(address);
        }
        // As root, nginx would switch to another user, who may not read the directory.
        let user = if nix::unistd::geteuid().is_root() { "user root;" } else { "" };
        let temp: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|name| format!("{name}_temp_path {at}/{name};\n"))
            .collect();
        let conf = format!(
            "{user} daemon off; master_process off; pid {at}/pid; error_log {at}/error.log;\n\
             events {{ worker_connections 256; }}\n\
             http {{ access_log {at}/access.log; default_type application/octet-stream;\n{temp}\
             limit_req_zone $server_addr zone=slow:1m rate=50r/s;\n\
             log_format connections '$connection $request_uri';\n{blocks}}}\n"
        );
        fs::write(dir.path().join("conf"), conf).expect("a file");
        let start = |program: &str| {
            let mut command = Command::new(program);
            command.arg("-p").arg(dir.path()).arg("-c").arg(dir.path().join("conf"));
            command.arg("-e").arg(dir.path().join("error.log"));
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
        };
        let child = match start("nginx").or_else(|_| start("/usr/sbin/nginx")) {
            Ok(child) => child,
            Err(e) => {
                skipped(format!("{test}: nginx: {e}"));
                return None;
            }
        };
        let mut new = Self { child, dir, addresses };
        wait_until(20, || {
            let ended = new.child.try_wait().expect("a status").is_some();
            assert!(!ended, "{}", fs::read_to_string(new.dir.path().join("error.log")).unwrap_or_default());
            new.addresses.iter().all(|address| TcpStream::connect(address).is_ok())
        });
        Some(new)
    }

    /// Returns the answers of servers with [`LOGGED`]: the number of the connection, and the requested path.
    /// nginx logs an answer after it has sent it, so this waits for `count` lines.
    pub(crate) fn answered(&self, count: usize) -> Vec<(u64, String)> {
        let read = || fs::read_to_string(self.dir.path().join("connections.log")).unwrap_or_default();
        wait_until(20, || read().lines().count() >= count);
        let line = |line: &str| {
            let (connection, uri) = line.split_once(' ').expect("two words");
            (connection.parse().expect("a number"), uri.to_owned())
        };
        read().lines().map(line).collect()
    }

    /// Returns the directory of a server.
    pub(crate) fn root(&self, server: usize) -> PathBuf {
        self.dir.path().join(server.to_string())
    }

    /// Puts a file into a server's directory.
    pub(crate) fn put(&self, server: usize, name: &str, bytes: &[u8]) {
        fs::write(self.root(server).join(name), bytes).expect("a file");
    }

    /// Returns the URL of a file.
    pub(crate) fn url(&self, server: usize, name: &str) -> String {
        format!("http://{}/{name}", self.addresses[server])
    }

    /// Returns the name of a server in a summary.
    pub(crate) fn name(&self, server: usize) -> String {
        self.addresses[server].to_string()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
