//! Two agents in network namespaces, with bridges between them, a user and a server: packets go through a
//! real function while it moves over real connections.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anabranch_algo::{Span, Time};
use anabranch_house::keys::{Clients, Pairing};
use anabranch_machines::store::{Host, Store};
use anabranch_net::{Clock, Namespace, testing};
use anabranch_operator::agent::{Agent, Backend, Settings};
use anabranch_operator::control::{Ask, Client, Told};
use anabranch_operator::event::Event;
use anabranch_operator::{Error, functions, wasm};
use tempfile::TempDir;

use super::modules::are_built;

/// The namespaces: a switch, a user, a server, and two hosts.
struct Bed {
    spaces: [Namespace; 5],
    dir: TempDir,
}

const SWITCH: usize = 0;
const USER: usize = 1;
const SERVER: usize = 2;
const HOSTS: [usize; 2] = [3, 4];

fn ip(space: &Namespace, line: &str) {
    let run = || Command::new("ip").args(line.split(' ')).output();
    let output = space.run(run).unwrap().expect("iproute2");
    assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Puts a cable from a namespace into a bridge of the switch.
fn plug(bed: &Bed, at: usize, device: &str, bridge: &str) {
    use std::os::fd::AsFd as _;
    let peer = format!("{bridge}{at}");
    let make = || {
        let netlink = anabranch_net::netlink::Netlink::open()?;
        netlink.add_veth(&peer, device, Some(bed.spaces[at].as_fd()))
    };
    bed.spaces[SWITCH].run(make).unwrap().unwrap();
    ip(&bed.spaces[SWITCH], &format!("link set {peer} master {bridge} up"));
    ip(&bed.spaces[at], &format!("link set {device} up"));
}

impl Bed {
    fn new() -> Option<Self> {
        if !are_built() {
            return None;
        }
        let spaces: Result<Vec<Namespace>, _> = (0..5).map(|_| Namespace::new()).collect();
        let spaces = match spaces {
            Ok(spaces) => spaces,
            Err(e) => {
                testing::refused(e);
                return None;
            }
        };
        if Command::new("ip").arg("-V").output().is_err() {
            testing::skip("moves of functions need iproute2");
            return None;
        }
        let bed = Self { spaces: spaces.try_into().unwrap(), dir: tempfile::tempdir().unwrap() };
        for bridge in ["in", "out"] {
            ip(&bed.spaces[SWITCH], &format!("link add {bridge} type bridge"));
            ip(&bed.spaces[SWITCH], &format!("link set {bridge} up"));
            for host in HOSTS {
                plug(&bed, host, bridge, bridge);
                ip(&bed.spaces[host], &format!("link add br-{bridge} type bridge"));
                ip(&bed.spaces[host], &format!("link set {bridge} master br-{bridge}"));
                ip(&bed.spaces[host], &format!("link set br-{bridge} up"));
            }
        }
        for (at, bridge, address, others, gateway) in [
            (USER, "in", "10.1.0.9/24", "10.2.0.0/24", "10.1.0.1"),
            (SERVER, "out", "10.2.0.9/24", "10.1.0.0/24", "10.2.0.1"),
        ] {
            plug(&bed, at, "e0", bridge);
            ip(&bed.spaces[at], &format!("addr add {address} dev e0"));
            ip(&bed.spaces[at], &format!("route add {others} via {gateway}"));
        }
        // The hosts speak with each other over two links.
        for link in 1..=2 {
            use std::os::fd::AsFd as _;
            let name = format!("up{link}");
            let make = || {
                let netlink = anabranch_net::netlink::Netlink::open()?;
                netlink.add_veth(&name, &name, Some(bed.spaces[HOSTS[1]].as_fd()))
            };
            bed.spaces[HOSTS[0]].run(make).unwrap().unwrap();
            for (n, host) in HOSTS.into_iter().enumerate() {
                ip(&bed.spaces[host], &format!("addr add 10.77.{link}.{}/24 dev {name}", n + 1));
                ip(&bed.spaces[host], &format!("link set {name} up"));
            }
        }
        bed.pair();
        Some(bed)
    }

    fn store(&self, host: usize) -> Store {
        Store::open(&self.dir.path().join(["a", "b"][host])).unwrap()
    }

    /// Pairs each host with the other one.
    fn pair(&self) {
        for (host, other) in [(0, 1), (1, 0)] {
            let theirs = self.store(other);
            let pairing = Pairing::new(theirs.key().unwrap().public()).unwrap();
            Clients::append(&theirs.clients_file(), ["a", "b"][host], pairing.client.public()).unwrap();
            let host_of = Host { address: format!("10.77.1.{}", other + 1), line: pairing.to_line() };
            self.store(host).set_host(["a", "b"][other], &host_of).unwrap();
        }
    }

    fn agent(&self, host: usize) -> (Agent, Receiver<Event>) {
        let settings = Settings {
            inside: "fn-in@br-in".parse().unwrap(),
            outside: Some("fn-out@br-out".parse().unwrap()),
            backend: Backend::Redb,
            wasm: wasm::Settings { instances_max: 16, ..wasm::Settings::default() },
            listen: vec![SocketAddr::from(([0, 0, 0, 0], 26_231))],
            addresses: (1..=2).map(|link| [10, 77, link, host as u8 + 1].into()).collect(),
        };
        let (events, happens) = channel();
        let store = self.store(host);
        // Threads that an agent starts are in the namespace of the one that starts it.
        let agent = self.spaces[HOSTS[host]].run(|| Agent::start(&store, &settings, events));
        (agent.unwrap().unwrap(), happens)
    }

    fn ask(&self, host: usize, ask: &Ask, module: &[u8]) -> Result<Told, Error> {
        Client::connect(self.store(host).dir())?.ask(ask, module)
    }

    fn run(&self, name: &str, function: &str) -> Result<Told, Error> {
        let module = functions::find(function).unwrap();
        let ask = Ask::Run {
            name: name.into(),
            function: function.into(),
            module_bytes: module.len(),
            settings: vec![],
            inside: "10.1.0.1/24".parse().unwrap(),
            outside: Some("10.2.0.1/24".parse().unwrap()),
            gateway: None,
        };
        self.ask(0, &ask, module)
    }

    fn go(&self, from: usize, to: &str, via: &[&str]) -> Result<Told, Error> {
        let via = via.iter().map(ToString::to_string).collect();
        self.ask(from, &Ask::Move { name: "n".into(), to: to.into(), via }, &[])
    }
}

/// What became of the packets of a user.
#[derive(Default)]
struct Traffic {
    sent: AtomicU64,
    /// The packets that came back, and when.
    came: Mutex<Vec<(u64, Time)>>,
    is_over: AtomicBool,
}

/// Has the server send back what comes, and the user send so many packets a second.
fn traffic(bed: &Bed, rate: u64, clock: Clock) -> (Arc<Traffic>, Vec<thread::JoinHandle<()>>) {
    let traffic = Arc::<Traffic>::default();
    let socket = |at: usize, address: &str| {
        let socket = bed.spaces[at].run(|| UdpSocket::bind(address)).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        socket
    };
    let server = socket(SERVER, "10.2.0.9:7");
    let user = Arc::new(socket(USER, "10.1.0.9:5000"));
    user.connect("10.2.0.9:7").unwrap();
    let theirs = Arc::clone(&traffic);
    let echo = thread::spawn(move || {
        let mut bytes = [0; 64];
        while !theirs.is_over.load(Ordering::SeqCst) {
            if let Ok((len, from)) = server.recv_from(&mut bytes) {
                let _ = server.send_to(&bytes[..len], from);
            }
        }
    });
    let (theirs, socket) = (Arc::clone(&traffic), Arc::clone(&user));
    let hear = thread::spawn(move || {
        let mut bytes = [0; 64];
        while !theirs.is_over.load(Ordering::SeqCst) {
            match socket.recv(&mut bytes) {
                Ok(8) => {
                    let mut number = [0; 8];
                    number.copy_from_slice(&bytes[..8]);
                    theirs.came.lock().unwrap().push((u64::from_le_bytes(number), clock.now()));
                }
                Err(e) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&e.kind()) => {}
                other => panic!("{other:?}"),
            }
        }
    });
    let theirs = Arc::clone(&traffic);
    let send = thread::spawn(move || {
        let begin = clock.now();
        while !theirs.is_over.load(Ordering::SeqCst) {
            let number = theirs.sent.load(Ordering::SeqCst);
            clock.sleep_until(begin + Span::from_nanos(number * 1_000_000_000 / rate));
            user.send(&number.to_le_bytes()).unwrap();
            theirs.sent.store(number + 1, Ordering::SeqCst);
        }
    });
    (traffic, vec![echo, hear, send])
}

fn wait_until(mut done: impl FnMut() -> bool) {
    for _ in 0..600 {
        if done() {
            return;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("it takes too long");
}

#[test]
fn a_function_moves_under_traffic_and_no_packet_is_lost() {
    let _alone = testing::alone();
    let Some(bed) = Bed::new() else { return };
    let (_a, _) = bed.agent(0);
    assert!(matches!(bed.run("n", "nat44"), Ok(Told::Ran { .. })));
    assert!(matches!(bed.run("n", "nat44"), Err(Error::Refused(_))));
    let refused = bed.go(0, "b", &[]).unwrap_err();
    assert!(matches!(refused, Error::Unreachable(_)), "{refused}");
    let (_b, _events) = bed.agent(1);
    assert!(matches!(bed.go(0, "c", &[]), Err(Error::NotFound(_))));
    let refused = bed.go(0, "b", &["usb0"]).unwrap_err();
    assert!(refused.to_string().contains("usb0 does not exist here"), "{refused}");

    let (traffic, threads) = traffic(&bed, 1_000, Clock::start());
    let came = || traffic.came.lock().unwrap().len();
    wait_until(|| came() > 100);
    for (from, to) in [(0, "b"), (1, "a"), (0, "b")] {
        let told = bed.go(from, to, &["up1", "up2"]).unwrap();
        let Told::Moved { state_bytes, links, .. } = told else { panic!("{told:?}") };
        assert!(state_bytes > 100_000 && links.len() == 2, "{state_bytes} {links:?}");
        let before = came();
        wait_until(|| came() > before + 100);
    }
    traffic.is_over.store(true, Ordering::SeqCst);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let came = traffic.came.lock().unwrap();
    let numbers: BTreeSet<u64> = came.iter().map(|(number, _)| *number).collect();
    // The last packets were on their way when all stopped listening.
    let last = *numbers.last().unwrap();
    let lost: Vec<u64> = (0..last).filter(|number| !numbers.contains(number)).collect();
    assert!(lost.iter().all(|number| number + 60 > last), "lost of {last}: {lost:?}");
    assert_eq!(numbers.len(), came.len(), "none came twice");
}
