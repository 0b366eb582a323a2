//! The hosts of a test with everything that runs beside the profile's program.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anabranch_algo::Span;
use anabranch_emulator::Snapshot;
use anabranch_lab::linux::testbed::{Testbed, violations};
use anabranch_sim::{LinkChange, LinkId};
use nix::sys::signal::Signal;

use super::commands::{self, Client, Programs};
use super::host::Host;
use super::program::Program;
use crate::network::{self, FLOW, Interface, link_name};
use crate::origin::READY;
use crate::plan::Plan;
use crate::results::Wire;
use crate::schedule::Test;
use crate::setting::Transport;

/// A program beside must be ready within this time.
const READY_MAX: Span = Span::from_secs(15);
/// A capture is written to its end within this time.
const CAPTURE_END: Span = Span::from_secs(3);
/// The port of the proxy's server.
const PROXY_PORT: u16 = 26_228;

/// The files that all tests share.
#[derive(Debug)]
pub(super) struct Files {
    /// What the web server has below `/files/`.
    pub(super) served: PathBuf,
    /// The state of the proxies, with the file `pair`.
    pub(super) proxy: PathBuf,
    /// The directory of the present test.
    pub(super) test: PathBuf,
}

/// The hosts of a test.
#[derive(Debug)]
pub(super) struct Bed {
    // Programs are dropped before their hosts, and those before the namespaces.
    pub(super) origin: Program,
    proxies: Vec<Program>,
    captures: Vec<Program>,
    beside: Option<Program>,
    phone: Host,
    server: Host,
    testbed: Testbed,
    links: BTreeMap<String, LinkId>,
    /// The interfaces that are on, the one with the default route first.
    interfaces: Vec<Interface>,
    pub(super) socks: Option<SocketAddr>,
    /// What is missing without ending the test.
    pub(super) notes: Vec<String>,
}

impl Bed {
    /// Makes the hosts, and starts the server and the captures.
    pub(super) fn new(plan: &Plan, test: &Test, programs: &Programs, files: &Files) -> io::Result<Self> {
        let interfaces = test.interfaces();
        let accesses: Result<Vec<_>, _> =
            interfaces.iter().map(|interface| plan.access(&test.network, *interface)).collect();
        let accesses = accesses.map_err(io::Error::other)?;
        let pairs: Vec<_> = interfaces.iter().copied().zip(&accesses).collect();
        let scenario = network::scenario(&pairs).map_err(io::Error::other)?;
        let testbed = Testbed::new(&scenario, test.seed(plan))?;
        let links = testbed.links().map(|(name, id)| (name.to_owned(), id)).collect();
        let space = |end: &str| {
            testbed.host(&format!("{FLOW}.{end}")).ok_or_else(|| io::Error::other("the host was not made"))
        };
        let (phone, server) = (Host::new(space("tx")?)?, Host::new(space("rx")?)?);
        let at = testbed.pairs[0].receiver();
        let mut notes = Vec::new();
        let captures = captures(&phone, &server, at, &files.test, &mut notes)?;
        let origin = commands::origin(programs, at, &files.served);
        let mut origin = Program::start(&server, "server", origin, &files.test)?;
        let is_ready = |said: &str| said.lines().any(|line| line == READY).then_some(());
        origin.wait_for(READY_MAX, is_ready)?;
        let bed = Self {
            origin,
            proxies: Vec::new(),
            captures,
            beside: None,
            phone,
            server,
            testbed,
            links,
            interfaces,
            socks: None,
            notes,
        };
        Ok(bed)
    }

    /// Returns the server's address.
    pub(super) fn address(&self) -> IpAddr {
        self.testbed.pairs[0].receiver()
    }

    /// Starts the proxy on both hosts.
    pub(super) fn start_proxies(
        &mut self,
        transport: Transport,
        program: &Path,
        files: &Files,
    ) -> io::Result<()> {
        let listen = format!("0.0.0.0:{PROXY_PORT}");
        let server = ["server", "--listen", &listen, "--allow", "10.0.0.0/8", "--json"];
        let command = commands::proxy(program, &files.proxy, &server);
        let mut server = Program::start(&self.server, "proxy-server", command, &files.test)?;
        server.wait_for(READY_MAX, listening)?;
        let to = SocketAddr::new(self.address(), PROXY_PORT).to_string();
        let carrier = if transport == Transport::ProxyUdp { "udp" } else { "kernel" };
        let mut client = vec!["client", "--server", &to, "--pair-file", "pair", "--socks", "127.0.0.1:1080"];
        client.extend(["--json", "--transport", carrier]);
        let vias: Vec<String> = (0..self.interfaces.len()).map(|place| format!("p{place}")).collect();
        vias.iter().for_each(|via| client.extend(["--via", via]));
        let command = commands::proxy(program, &files.proxy, &client);
        let mut client = Program::start(&self.phone, "proxy-client", command, &files.test)?;
        self.socks = Some(client.wait_for(READY_MAX, listening)?);
        self.proxies = vec![client, server];
        Ok(())
    }

    /// Starts the profile's command on the server, if it has one, and then its program.
    pub(super) fn start_client(&mut self, client: &Client<'_>) -> io::Result<Program> {
        if let Some(command) = client.beside() {
            self.beside = Some(Program::start(&self.server, "beside", command, client.dir)?);
        }
        Program::start(&self.phone, &client.test.profile, client.command(), client.dir)
    }

    /// Takes an interface's links down, or up again.
    pub(super) fn set_up(&self, interface: Interface, up: bool) {
        for down in [false, true] {
            if let Some(link) = self.links.get(&link_name(interface, down)) {
                self.testbed.running.command(*link, LinkChange::Up(up));
            }
        }
    }

    /// Kills the proxy's client.
    pub(super) fn kill_proxy(&mut self) {
        if let Some(client) = self.proxies.first_mut() {
            client.kill();
        }
    }

    /// Returns the programs beside that have ended although they should run.
    pub(super) fn dead(&mut self) -> Vec<String> {
        let programs = std::iter::once(&mut self.origin).chain(&mut self.proxies);
        programs.filter_map(|program| program.ended().map(|status| program.why(status))).collect()
    }

    /// Returns the bytes that the links of each interface have carried.
    pub(super) fn wire(&self, snapshot: &Snapshot) -> BTreeMap<Interface, Wire> {
        let connections = &self.testbed.pairs[0].connections;
        let wire = |(up, down): &(usize, usize)| Wire {
            up_bytes: snapshot.connections[*up].bytes,
            down_bytes: snapshot.connections[*down].bytes,
        };
        self.interfaces.iter().copied().zip(connections.iter().map(wire)).collect()
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.testbed.running.snapshot()
    }

    /// Returns the interface of an address of the phone.
    pub(super) fn interface(&self, address: IpAddr) -> Option<Interface> {
        let pair = &self.testbed.pairs[0];
        let place = (0..self.interfaces.len()).find(|place| pair.sender(*place) == address)?;
        self.interfaces.get(place).copied()
    }

    /// Ends the captures, and says what was wrong with the links or the captures.
    pub(super) fn end_captures(&mut self) -> bool {
        let has_captures = !self.captures.is_empty();
        for mut capture in self.captures.drain(..) {
            capture.stop(Signal::SIGINT, CAPTURE_END);
            let lost = capture.errors();
            let lost = lost.lines().find(|line| line.ends_with("dropped by kernel"));
            if let Some(lost) = lost.filter(|line| !line.starts_with("0 ")) {
                self.notes.push(format!("the capture is not whole: {lost}"));
            }
        }
        let snapshot = self.snapshot();
        self.notes.extend(violations(&self.testbed.pairs, &snapshot).0);
        has_captures
    }
}

/// Returns the files of the captures of the phone and of the server.
pub(super) fn capture_files(dir: &Path) -> [PathBuf; 2] {
    ["phone", "server"].map(|host| dir.join(format!("{host}.pcap")))
}

fn captures(
    phone: &Host,
    server: &Host,
    at: IpAddr,
    dir: &Path,
    notes: &mut Vec<String>,
) -> io::Result<Vec<Program>> {
    if !commands::is_installed("tcpdump") {
        notes.push("no tcpdump: no connections, round trips and reinjections".into());
        return Ok(Vec::new());
    }
    let [at_phone, at_server] = capture_files(dir);
    let mut captures = Vec::new();
    for (host, name, file) in [(phone, "tcpdump-phone", at_phone), (server, "tcpdump-server", at_server)] {
        captures.push(Program::start(host, name, commands::capture(at, &file), dir)?);
    }
    for capture in &mut captures {
        capture.wait_for(READY_MAX, |said| said.contains("listening on").then_some(()))?;
    }
    Ok(captures)
}

/// Reads where a proxy listens from what it prints.
fn listening(said: &str) -> Option<SocketAddr> {
    said.lines().find_map(|line| {
        let value: serde_json::Value = serde_json::from_str(line).ok()?;
        let address = &value["address"];
        address.as_str().or(address[0].as_str())?.parse().ok()
    })
}
