//! The commands of a test: the profile's program, the server, the proxy, the captures.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use anabranch_lab::scenario::SizeSpec;

use crate::origin::{ECHO_PORT, HTTP_PORT, UDP_ECHO_PORT};
use crate::profile::{Kind, Profile};
use crate::schedule::Test;
use crate::setting::Transport;
use crate::sites;

/// The bytes of a download or an upload that does not say how many.
const BYTES: u64 = 20_000_000;
/// The seconds of a chat, a call or a film that does not say how many.
const SECONDS: f64 = 6.0;
/// The rate of a video that does not say which, bytes a second: 2.5 Mbit/s.
const VIDEO_BYTES_PER_S: u64 = 312_500;
/// The bytes of each packet that a capture has: all headers with all options.
const SNAP_BYTES: &str = "128";
/// Variables of this process's environment that would lead programs to another proxy.
const PROXIES: [&str; 8] = [
    "http_proxy",
    "https_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "no_proxy",
    "NO_PROXY",
];

/// The programs that a run needs.
#[derive(Clone, Debug)]
pub struct Programs {
    /// This program: `anabranch-lab`.
    pub own: PathBuf,
    /// The proxy's program, if it is installed.
    pub proxy: Option<PathBuf>,
}

/// A profile's program in a test.
pub(super) struct Client<'a> {
    pub(super) programs: &'a Programs,
    pub(super) profile: &'a Profile,
    pub(super) test: &'a Test,
    /// The server's address.
    pub(super) server: IpAddr,
    /// Where the proxy listens.
    pub(super) socks: Option<SocketAddr>,
    /// A directory of the test's own.
    pub(super) dir: &'a Path,
}

/// Returns whether a program is on `PATH`.
pub(super) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Returns the number of bytes that a profile moves.
pub(super) const fn bytes(profile: &Profile) -> u64 {
    match profile.bytes {
        Some(SizeSpec::Bytes(bytes)) => bytes,
        Some(SizeSpec::Packets(packets)) => packets * 1_500,
        Some(SizeSpec::Time(_)) | None => BYTES,
    }
}

impl Client<'_> {
    /// Returns what the test needs that is not installed.
    pub(super) fn missing(&self) -> Option<String> {
        let kind = self.profile.kind(&self.test.profile);
        let is_own = matches!(kind, Kind::Chat | Kind::Video | Kind::Call);
        let wants_wrapper = self.test.transport == Transport::Mptcp && !is_own;
        let needed = kind.program().into_iter().chain(wants_wrapper.then_some("mptcpize"));
        let missing = needed.into_iter().find(|program| !is_installed(program));
        let proxy = self.test.transport.is_proxy() && self.programs.proxy.is_none();
        missing.or_else(|| proxy.then_some("anabranch-proxy")).map(|program| format!("no {program}"))
    }

    /// Returns the command of the program.
    pub(super) fn command(&self) -> Command {
        let kind = self.profile.kind(&self.test.profile);
        let mut command = match kind {
            Kind::Chat => self.own("chat", ECHO_PORT),
            Kind::Video => self.own("video", HTTP_PORT),
            Kind::Call => self.own("call", UDP_ECHO_PORT),
            _ => self.wrapped(&self.script(kind)),
        };
        self.environment(&mut command);
        command
    }

    /// Returns the command that runs beside the program on the server, if there is one.
    pub(super) fn beside(&self) -> Option<Command> {
        let mut command = self.wrapped(self.profile.server.as_ref()?);
        self.environment(&mut command);
        Some(command)
    }

    fn environment(&self, command: &mut Command) {
        for name in PROXIES {
            command.env_remove(name);
        }
        command.env("ANABRANCH_PEER", self.server.to_string()).env("ANABRANCH_URL", self.url());
        command.current_dir(self.dir).env("HOME", self.dir).env("GIT_TERMINAL_PROMPT", "0");
        if let Some(socks) = self.socks {
            let url = format!("socks5h://{socks}");
            command.env("ALL_PROXY", &url).env("all_proxy", &url).env("ANABRANCH_SOCKS", socks.to_string());
        }
    }

    fn url(&self) -> String {
        format!("http://{}", SocketAddr::new(self.server, HTTP_PORT))
    }

    fn wrapped(&self, script: &str) -> Command {
        let mut command = Command::new("sh");
        if self.test.transport == Transport::Mptcp {
            command = Command::new("mptcpize");
            command.args(["run", "sh"]);
        }
        command.args(["-c", script]);
        command
    }

    fn script(&self, kind: Kind) -> String {
        let (curl, url) = ("curl -sS -f -o /dev/null", self.url());
        match kind {
            Kind::Web => {
                let site = (self.test.repetition - 1) % sites::SITES;
                let last = sites::objects(site).len() - 1;
                format!(
                    "{curl} {url}/site/{site}/0 && \
                     exec {curl} --parallel --parallel-max 6 '{url}/site/{site}/[1-{last}]'"
                )
            }
            Kind::Download => format!("exec {curl} {url}/bytes/{}", bytes(self.profile)),
            Kind::Upload => format!("exec {curl} -T ../upload {url}/upload"),
            Kind::Git => format!("exec git clone -q {url}/files/repository.git clone"),
            Kind::Chat | Kind::Video | Kind::Call => String::new(),
            Kind::Command => self.profile.command.clone().unwrap_or_default(),
        }
    }

    /// Returns the command of a client that is part of this program.
    fn own(&self, name: &str, port: u16) -> Command {
        let mut command = Command::new(&self.programs.own);
        command.args(["lab", "drive-part", name, "--at", &SocketAddr::new(self.server, port).to_string()]);
        command.args(["--seconds", &self.profile.seconds.unwrap_or(SECONDS).to_string()]);
        let rate = self
            .profile
            .rate
            .map_or(VIDEO_BYTES_PER_S, |rate| rate.rate(1_500).bytes_in(anabranch_algo::Span::from_secs(1)));
        command.args(["--bytes-per-s", &rate.to_string()]);
        if self.test.transport == Transport::Mptcp {
            command.arg("--mptcp");
        }
        if let Some(socks) = self.socks {
            command.args(["--socks", &socks.to_string()]);
        }
        command
    }
}

/// Returns the command of the server.
pub(super) fn origin(programs: &Programs, server: IpAddr, files: &Path) -> Command {
    let mut command = Command::new(&programs.own);
    command.args(["lab", "drive-part", "serve", "--at", &SocketAddr::new(server, HTTP_PORT).to_string()]);
    command.arg("--files").arg(files);
    command
}

/// Returns a command of the proxy with its state in `state`.
pub(super) fn proxy(program: &Path, state: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.arg("proxy").args(arguments).current_dir(state);
    command.env("STATE_DIRECTORY", state).env("RUNTIME_DIRECTORY", state.join("run"));
    for name in PROXIES {
        command.env_remove(name);
    }
    command
}

/// Returns the command that captures what a host sends to others and receives from them.
pub(super) fn capture(server: IpAddr, file: &Path) -> Command {
    let mut filter = "tcp and not net 127.0.0.0/8".to_owned();
    // What the proxy's server says to the web server beside it is not on a link.
    let _ = write!(filter, " and not (src host {server} and dst host {server})");
    let mut command = Command::new("tcpdump");
    command.args(["-i", "any", "-n", "-s", SNAP_BYTES, "-B", "8192", "--immediate-mode", "-U", "-Z", "root"]);
    command.arg("-w").arg(file).arg(filter);
    command
}
