//! A source of the demonstration: a process that runs `anabranch serve`.

use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anabranch_algo::Rate;
use anabranch_mmtp::uri::Uri;

use crate::exit::{Failure, Outcome};

/// The file that all of them offer, in the directory that they run in.
pub(super) const FILE: &str = "film.bin";
/// A free port of the loopback interface.
const ANY_PORT: &str = "127.0.0.1:0";

/// What a source is to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) name: &'static str,
    /// Its limit, Mbit/s.
    mbit: u64,
    /// Whether the file is taken from it by HTTP instead of mmTP.
    by_http: bool,
}

/// The sources, the fastest first.
pub(super) const SOURCES: [Spec; 3] = [
    Spec { name: "fast", mbit: 40, by_http: false },
    Spec { name: "middle", mbit: 25, by_http: true },
    Spec { name: "slow", mbit: 10, by_http: false },
];

impl Spec {
    pub(super) const fn rate(&self) -> Rate {
        Rate::from_bits(self.mbit * 1_000_000)
    }
}

/// `fast (40 Mbit/s, mmTP)`
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = if self.by_http { "HTTP" } else { "mmTP" };
        write!(f, "{} ({} Mbit/s, {protocol})", self.name, self.mbit)
    }
}

/// A source that runs, or has been killed. Dropping it ends its process.
#[derive(Debug)]
pub(super) struct SourceProcess {
    pub(super) spec: Spec,
    dir: PathBuf,
    child: Child,
    /// Where it listens for mmTP: `ADDR:PORT`.
    udp: String,
    /// The URL of the file, if it is taken by HTTP.
    url: Option<String>,
}

impl SourceProcess {
    /// Starts a process that offers the file in `dir` on free ports.
    pub(super) fn spawn(spec: &Spec, dir: &Path) -> io::Result<Self> {
        let url = spec.by_http.then(|| format!("http://{ANY_PORT}/"));
        let child = spawn(&arguments(spec, ANY_PORT, url.as_deref().map(host_port)), dir)?;
        Ok(Self { spec: *spec, dir: dir.to_owned(), child, udp: ANY_PORT.to_owned(), url })
    }

    /// Waits until it says what it offers, which it does once it serves; from then on its ports are known.
    pub(super) fn wait_until_it_serves(&mut self) -> Outcome {
        let mut lines = self.child.stdout.take().map(BufReader::new).into_iter().flat_map(BufReader::lines);
        let uri = lines.next().and_then(Result::ok).and_then(|line| line.parse::<Uri>().ok());
        let url = if self.spec.by_http { lines.next().and_then(Result::ok) } else { None };
        match uri.and_then(|uri| uri.from.into_iter().next()) {
            Some(udp) if url.is_some() == self.spec.by_http => {
                (self.udp, self.url) = (udp, url);
                Ok(())
            }
            _ => {
                let (name, why) = (self.spec.name, self.last_words());
                Err(Failure::other(format!("the source {name} does not serve: {why}")))
            }
        }
    }

    /// Why it has ended, as it says itself.
    fn last_words(&mut self) -> String {
        self.kill();
        let mut text = String::new();
        let _ = self.child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut text));
        text.lines().last().unwrap_or("it does not say why").trim_start_matches("anabranch: ").to_owned()
    }

    /// Kills it at once (SIGKILL): it cannot take leave of anybody.
    pub(super) fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again by the same command, and waits until it serves.
    pub(super) fn start_again(&mut self) -> Outcome {
        let failed = |e| Failure::other(format!("cannot start a source: {e}"));
        self.child = spawn(&self.arguments(), &self.dir).map_err(failed)?;
        self.wait_until_it_serves()
    }

    /// The number of its process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The URL of its file, if it is taken by HTTP.
    pub(super) fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    /// Where the file is taken from, `ADDR:PORT`, as [`anabranch::PathProgress`] has it.
    pub(super) fn place(&self) -> &str {
        self.url.as_deref().map_or(&self.udp, host_port)
    }

    /// The command that it runs, in the demonstration's directory.
    pub(super) fn command(&self) -> String {
        format!("anabranch {}", self.arguments().join(" "))
    }

    fn arguments(&self) -> Vec<String> {
        arguments(&self.spec, &self.udp, self.url.as_deref().map(host_port))
    }
}

impl Drop for SourceProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What stands between the slashes of a URL.
fn host_port(url: &str) -> &str {
    url.split('/').nth(2).unwrap_or(url)
}

/// The arguments that make `anabranch` a source which listens at `udp`, and at `http` if there is one.
fn arguments(spec: &Spec, udp: &str, http: Option<&str>) -> Vec<String> {
    let mut arguments = ["serve", FILE, "--limit", &format!("{}Mbit", spec.mbit)].map(str::to_owned).to_vec();
    arguments.extend(["--listen".to_owned(), udp.to_owned()]);
    arguments.extend(http.into_iter().flat_map(|http| ["--http".to_owned(), http.to_owned()]));
    arguments
}

/// Starts this program with these arguments. It keeps the hashes for its next start in `dir`, as it does
/// elsewhere in the user's cache.
fn spawn(arguments: &[String], dir: &Path) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments).current_dir(dir).env("XDG_CACHE_HOME", dir.join("cache"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    #[cfg(target_os = "linux")]
    anabranch_net::end_with_parent(&mut command);
    command.spawn()
}
