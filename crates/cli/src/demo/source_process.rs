//! A source of the demonstration: a process that runs `anabranch serve`.

use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anabranch_algo::Rate;
use anabranch_mmtp::uri::Uri;

use crate::exit::{Failure, Outcome};

/// The file that all sources offer, in the directory in which they run.
pub(super) const FILE: &str = "film.bin";
/// The address of the loopback interface with any free port.
const ANY_PORT: &str = "127.0.0.1:0";

/// The settings of a source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) name: &'static str,
    /// The source's limit in Mbit/s.
    mbit: u64,
    /// Whether the file is fetched from the source by HTTP instead of mmTP.
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

/// Writes the source as `fast (40 Mbit/s, mmTP)`.
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = if self.by_http { "HTTP" } else { "mmTP" };
        write!(f, "{} ({} Mbit/s, {protocol})", self.name, self.mbit)
    }
}

/// A source that runs or has been killed. Dropping it ends its process.
#[derive(Debug)]
pub(super) struct SourceProcess {
    pub(super) spec: Spec,
    dir: PathBuf,
    child: Child,
    /// The `ADDR:PORT` at which the source listens for mmTP.
    udp: String,
    /// The URL of the file, if it is fetched by HTTP.
    url: Option<String>,
}

impl SourceProcess {
    /// Starts a process that offers the file in `dir` on free ports.
    pub(super) fn spawn(spec: &Spec, dir: &Path) -> io::Result<Self> {
        let url = spec.by_http.then(|| format!("http://{ANY_PORT}/"));
        let child = spawn(&arguments(spec, ANY_PORT, url.as_deref().map(host_port)), dir)?;
        Ok(Self { spec: *spec, dir: dir.to_owned(), child, udp: ANY_PORT.to_owned(), url })
    }

    /// Waits until the source prints its offer, which it does once it serves. From then on its ports are
    /// known.
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

    /// Ends the source, and returns the last line of its standard error, which says why it failed.
    fn last_words(&mut self) -> String {
        self.kill();
        let mut text = String::new();
        let _ = self.child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut text));
        text.lines().last().unwrap_or("it does not say why").trim_start_matches("anabranch: ").to_owned()
    }

    /// Kills the process at once (SIGKILL), so that it cannot tell its receivers.
    pub(super) fn kill(&mut self) {
        // The process may have ended by itself, so errors are ignored.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts the source again with the same command, and waits until it serves.
    pub(super) fn start_again(&mut self) -> Outcome {
        let failed = |e| Failure::other(format!("cannot start a source: {e}"));
        self.child = spawn(&self.arguments(), &self.dir).map_err(failed)?;
        self.wait_until_it_serves()
    }

    /// Returns the number of the process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the URL of the file, if it is fetched by HTTP.
    pub(super) fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    /// Returns the `ADDR:PORT` from which the file is fetched, as [`anabranch::PathProgress`] has it.
    pub(super) fn place(&self) -> &str {
        self.url.as_deref().map_or(&self.udp, host_port)
    }

    /// Returns the command that the source runs, in the demonstration's directory.
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

/// Returns the host and the port of a URL.
fn host_port(url: &str) -> &str {
    url.split('/').nth(2).unwrap_or(url)
}

/// Returns the arguments that make `anabranch` a source that listens at `udp`, and at `http` if that is
/// given.
fn arguments(spec: &Spec, udp: &str, http: Option<&str>) -> Vec<String> {
    let mut arguments = ["serve", FILE, "--limit", &format!("{}Mbit", spec.mbit)].map(str::to_owned).to_vec();
    arguments.extend(["--listen".to_owned(), udp.to_owned()]);
    arguments.extend(http.into_iter().flat_map(|http| ["--http".to_owned(), http.to_owned()]));
    arguments
}

/// Starts this program with these arguments. It keeps its cache of hashes in `dir` instead of the user's
/// cache.
fn spawn(arguments: &[String], dir: &Path) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments).current_dir(dir).env("XDG_CACHE_HOME", dir.join("cache"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    #[cfg(target_os = "linux")]
    anabranch_net::end_with_parent(&mut command);
    command.spawn()
}
