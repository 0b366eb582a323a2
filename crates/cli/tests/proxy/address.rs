//! Tests that a link of `anabranch proxy client` may get another address while it stays up, as from DHCP:
//! connections go on, and the link is used again with its new address.
#![cfg(target_os = "linux")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread::{self, sleep};
use std::time::Duration;

use crate::common::netns::Net;
use crate::common::wait_until;
use crate::roles::{LONG, Role, client_command, connect_to, own};
use anabranch_algo::{Span, Time};
use anabranch_net::{Clock, Namespace};

/// The address of the server and of the origin, in a namespace behind both links.
const SERVER: &str = "10.77.255.1";
const OLD: &str = "10.77.1.2";
const NEW: &str = "10.77.1.9";

/// A host with the links `a0` and `b0` to a router, on which the server runs.
struct Hosts {
    net: Net,
    place: tempfile::TempDir,
    server: Role,
    client: Role,
}

fn space(of: &Role) -> Namespace {
    Namespace::open(Path::new(&format!("/proc/{}/ns/net", of.pid()))).unwrap()
}

impl Hosts {
    fn new(name: &str) -> Option<Self> {
        let net = Net::new(name, &["host", "router"])?;
        net.link(1_500, [("host", "a0", &["10.77.0.2/24"]), ("router", "a1", &["10.77.0.1/24"])]);
        net.link(1_500, [("host", "b0", &["10.77.1.2/24"]), ("router", "b1", &["10.77.1.1/24"])]);
        net.ip("router", &format!("addr add {SERVER}/32 dev lo"));
        net.ip("router", "mptcp limits set subflows 8");
        net.ip("host", "route add default via 10.77.0.1 dev a0 metric 100");
        net.ip("host", "route add default via 10.77.1.1 dev b0 metric 200");
        let place = tempfile::tempdir().unwrap();
        let server = ["proxy", "server", "--plain", "--from", "10.77.0.0/16", "--allow", SERVER, "--json"];
        let server = own(place.path(), &[&server[..], &["--listen", "0.0.0.0:0"]].concat());
        let server = Role::start(&mut net.inside("router", &server), 1);
        let port = server.address("trunks").rsplit(':').next().unwrap();
        // The rate is high enough to use both links, and leaves this machine time for other tests.
        let via = ["--via", "a0", "--via", "b0", "--max-rate", "40Mbit"];
        let client = client_command(place.path(), &format!("{SERVER}:{port}"), &via);
        let client = Role::start(&mut net.inside("host", &client), 1);
        let hosts = Self { net, place, server, client };
        hosts.until("both links are used", &|| hosts.subflows(OLD) >= 2 && hosts.subflows("10.77.0.2") >= 2);
        Some(hosts)
    }

    /// Returns how many connections have an established subflow from this address.
    fn subflows(&self, address: &str) -> usize {
        let mut ss = Command::new("ss");
        ss.args(["-tHn", "state", "established", "src", address, "dst", SERVER]);
        let said = self.net.inside("host", &ss).output().unwrap();
        String::from_utf8(said.stdout).unwrap().lines().count()
    }

    /// Waits until `is_so` is true. If that takes too long, fails with a description of the host.
    fn until(&self, what: &str, is_so: &dyn Fn() -> bool) {
        let clock = Clock::start();
        while !is_so() {
            assert!(clock.now() < Time::ZERO + Span::from_secs(20), "{what}: {}", self.describe());
            sleep(Duration::from_millis(10));
        }
    }

    /// Describes the host for a failure's message.
    fn describe(&self) -> String {
        let says = |program: &str, words: &str| {
            let mut command = Command::new(program);
            command.args(words.split(' '));
            let said = self.net.inside("host", &command).output().unwrap();
            String::from_utf8_lossy(&said.stdout).into_owned()
        };
        let (endpoints, routes) = (says("ip", "mptcp endpoint"), says("ip", "route"));
        let (subflows, notices) = (says("ss", "-tnM state all"), self.client.said("notice"));
        format!("{endpoints}\n{routes}\n{subflows}\n{notices:?}")
    }

    fn trunks(&self) -> usize {
        self.client.status(self.place.path())["trunks"].as_array().unwrap().len()
    }

    /// Starts an endless download through the proxy.
    fn download(&self) -> Download {
        let bind = || TcpListener::bind((SERVER, 0)).unwrap();
        let listener = space(&self.server).run(bind).unwrap();
        let origin: SocketAddr = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let block: Vec<u8> = (0..64 * 1024).map(|at: u32| (at % 251) as u8).collect();
            while stream.write_all(&block).is_ok() {}
        });
        let socks = self.client.address("socks");
        let stream = space(&self.client).run(|| connect_to(socks, origin)).unwrap();
        Download::start(stream)
    }
}

#[derive(Default)]
struct Pace {
    bytes: u64,
    longest: Span,
    is_over: bool,
}

struct Download {
    pace: Arc<Mutex<Pace>>,
    thread: thread::JoinHandle<()>,
}

impl Download {
    fn start(mut stream: TcpStream) -> Self {
        let pace = Arc::<Mutex<Pace>>::default();
        let own = Arc::clone(&pace);
        let thread = thread::spawn(move || {
            stream.set_read_timeout(Some(LONG)).unwrap();
            let (clock, mut buffer, mut at) = (Clock::start(), vec![0; 64 * 1024], 0_usize);
            let mut last: Option<Time> = None;
            loop {
                let n = stream.read(&mut buffer).expect("the download lives");
                assert!(n > 0, "the download ended");
                let is_right =
                    |(place, byte): (usize, &u8)| *byte == ((at + place) % (64 * 1024) % 251) as u8;
                assert!(buffer[..n].iter().enumerate().all(is_right), "the bytes at {at} are others");
                at += n;
                let (now, mut pace) = (clock.now(), own.lock().unwrap());
                pace.longest = pace.longest.max(last.map_or(Span::ZERO, |last| now.since(last)));
                pace.bytes += n as u64;
                last = Some(now);
                if pace.is_over {
                    return;
                }
            }
        });
        Self { pace, thread }
    }

    fn bytes(&self) -> u64 {
        self.pace.lock().unwrap().bytes
    }

    /// Returns the longest time without a byte since this was last called.
    fn stall(&self) -> Span {
        std::mem::replace(&mut self.pace.lock().unwrap().longest, Span::ZERO)
    }

    fn end(self) {
        self.pace.lock().unwrap().is_over = true;
        self.thread.join().expect("every byte came");
    }
}

/// Changes the address by these steps of `ip`. The link must be used with the new address within two seconds.
fn changes(name: &str, steps: &[&str]) {
    let Some(hosts) = Hosts::new(name) else { return };
    let download = hosts.download();
    wait_until(20, || download.bytes() > 2_000_000);
    download.stall();
    for step in steps {
        match step.strip_prefix("wait ") {
            Some(millis) => sleep(Duration::from_millis(millis.parse().unwrap())),
            None => hosts.net.ip("host", step),
        }
    }
    let clock = Clock::start();
    hosts.until("the new address is used", &|| hosts.subflows(NEW) >= hosts.trunks().min(2));
    let took = clock.now().since(Time::ZERO);
    hosts.until("the old address is not used", &|| hosts.subflows(OLD) == 0);
    // The link carries data: the other link is taken down, and the download goes on.
    sleep(Duration::from_millis(500));
    let stall = download.stall();
    println!("used again after {took:?}; the longest wait was {stall:?}");
    assert!(took < Span::from_secs(2) && stall < Span::from_secs(1), "{took:?} {stall:?}");
    hosts.net.ip("host", "link set dev a0 down");
    let before = download.bytes();
    wait_until(10, || download.bytes() > before + 2_000_000);
    let stall = download.stall();
    println!("without the other link nothing came for {stall:?}");
    assert!(stall < Span::from_secs(2), "{stall:?}");
    download.end();
}

#[test]
fn an_address_that_is_replaced_at_once_is_used_within_two_seconds() {
    let _few = anabranch_net::testing::among_few();
    changes(
        "proxy-addr-swap",
        &[
            "addr del 10.77.1.2/24 dev b0",
            "addr add 10.77.1.9/24 dev b0",
            "route add default via 10.77.1.1 dev b0 metric 200",
        ],
    );
}

#[test]
fn an_address_that_comes_after_the_old_one_has_been_gone_is_used_within_two_seconds() {
    let _few = anabranch_net::testing::among_few();
    changes(
        "proxy-addr-late",
        &[
            "addr del 10.77.1.2/24 dev b0",
            "wait 1500",
            "addr add 10.77.1.9/24 dev b0",
            "route add default via 10.77.1.1 dev b0 metric 200",
        ],
    );
}

#[test]
fn an_address_that_comes_before_the_old_one_goes_is_used_within_two_seconds() {
    let _few = anabranch_net::testing::among_few();
    changes(
        "proxy-addr-over",
        &[
            "addr add 10.77.1.9/25 dev b0",
            "wait 500",
            "addr del 10.77.1.2/24 dev b0",
            "route replace default via 10.77.1.1 dev b0 metric 200",
        ],
    );
}
