//! Starts a Redis or Valkey for a test.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::common::wait_until;

const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];

/// The server, at a socket in a directory of its own. Its journal is on the disk before it answers.
pub(crate) struct Redis {
    pub(crate) dir: TempDir,
    program: &'static str,
    options: Vec<String>,
    child: Child,
}

impl Redis {
    /// Starts a server with more options. If none is installed, says so and returns `None`.
    pub(crate) fn start(options: &[&str]) -> Option<Self> {
        let is_there = |program: &&str| Command::new(program).arg("--version").output().is_ok();
        let Some(program) = PROGRAMS.into_iter().find(is_there) else {
            anabranch_net::testing::skip("there is no redis-server and no valkey-server");
            return None;
        };
        let dir = tempfile::tempdir().expect("a directory");
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let child = run(program, dir.path(), &options);
        let new = Self { dir, program, options, child };
        new.wait();
        Some(new)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    pub(crate) fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    pub(crate) fn connection(&self) -> Option<redis::Connection> {
        redis::Client::open(format!("unix://{}", self.socket().display())).ok()?.get_connection().ok()
    }

    /// Sends a command and returns the answer.
    pub(crate) fn ask<T: redis::FromRedisValue>(&self, command: &[&[u8]]) -> T {
        let mut all = redis::Cmd::new();
        for word in command {
            all.arg(*word);
        }
        all.query(&mut self.connection().expect("it runs")).expect("an answer")
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.ask(&[b"KEYS", b"*"]);
        keys.sort();
        keys
    }

    fn wait(&self) {
        let answers = || {
            let mut connection = self.connection()?;
            // While it reads its journal, it answers with an error.
            match redis::cmd("PING").query::<String>(&mut connection) {
                // The server runs and wants a password.
                Err(e) => (e.code() == Some("NOAUTH")).then_some(()),
                Ok(_) => Some(()),
            }
        };
        wait_until(20, || answers().is_some());
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).expect("it runs");
    }

    pub(crate) fn killed(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Starts the server again with the data that it has written.
    pub(crate) fn again(&mut self) {
        self.child = run(self.program, self.dir.path(), &self.options);
        self.wait();
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(program: &str, dir: &Path, options: &[String]) -> Child {
    let mut command = Command::new(program);
    command.args(["--port", "0", "--unixsocket", "s", "--save", "", "--appendonly", "yes"]);
    command.args(["--appendfsync", "always", "--dir"]).arg(dir).args(options).current_dir(dir);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs")
}
