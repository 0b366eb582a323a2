//! Tests of a client with several servers, with real sockets.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

use anabranch_net::Clock;
use anabranch_proxy::client;
use anabranch_proxy::config;
use anabranch_proxy::control::{Command, ControlError};
use anabranch_proxy::keys::{Clients, KeyPair, Pairing};
use anabranch_proxy::policy::Policy;
use anabranch_proxy::server::{self, Admission};
use anabranch_proxy::status::{ServerState, Snapshot, control};
use anabranch_proxy::trunk::Destination;
use anabranch_proxy::{Door, Event, Status};
use tempfile::TempDir;

use crate::bench::{LONG, Role, origin, socks_at};

/// A server with a key of its own.
struct Server {
    dir: TempDir,
    pair: KeyPair,
    address: SocketAddr,
    role: Option<Role>,
    others: Vec<Destination>,
}

impl Server {
    fn new() -> Self {
        Self::naming(Vec::new())
    }

    fn naming(others: Vec<Destination>) -> Self {
        let (dir, pair) = (tempfile::tempdir().unwrap(), KeyPair::generate().unwrap());
        let mut made = Self { dir, pair, address: "127.0.0.1:0".parse().unwrap(), role: None, others };
        made.start();
        made
    }

    fn list(&self) -> PathBuf {
        self.dir.path().join("clients.toml")
    }

    fn start(&mut self) {
        let mut options =
            server::Options::new(Admission::Keys { pair: self.pair.clone(), clients: self.list() });
        options.listen = self.address;
        options.policy = Policy::new(&["127.0.0.0/8".parse().unwrap()], &[]);
        options.capacity = Some(1_000);
        options.others.clone_from(&self.others);
        let running = server::start(options).unwrap();
        self.address = running.address(Door::Trunks).unwrap();
        self.role = Some(Role::new(running));
    }

    fn stop(&mut self) {
        self.role.take().unwrap().stop();
    }

    fn status(&self) -> Status {
        self.role.as_ref().unwrap().status.clone()
    }

    /// Lets a client in, and returns its pairing.
    fn pair(&self) -> Pairing {
        let pairing = Pairing::new(self.pair.public()).unwrap();
        let name = pairing.client.public().to_string().replace(|c: char| !c.is_ascii_alphanumeric(), "");
        Clients::append(&self.list(), &name[..20], pairing.client.public()).unwrap();
        pairing
    }

    fn name(&self) -> Destination {
        Destination::from_ip(self.address.ip(), self.address.port()).unwrap()
    }
}

/// Starts a client of these servers with these keys. Returns it with its SOCKS5 address.
fn client(servers: Vec<Destination>, pairings: Vec<Pairing>) -> (Role, SocketAddr) {
    let mut options = client::Options::new(servers[0].clone(), None);
    (options.servers, options.pairings) = (servers.into_iter().map(Into::into).collect(), pairings);
    options.doors = vec![(Door::Socks, "127.0.0.1:0".parse().unwrap())];
    let running = client::start(options).unwrap();
    let socks = running.address(Door::Socks).unwrap();
    (Role::new(running), socks)
}

fn client_of(servers: &[&Server]) -> (Role, SocketAddr) {
    client(servers.iter().map(|s| s.name()).collect(), servers.iter().map(|s| s.pair()).collect())
}

/// An origin that answers with what it got, at all addresses of the loopback network.
fn echo() -> u16 {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let (mut stream, mut bytes) = (stream, [0; 64]);
                while let Ok(n @ 1..) = stream.read(&mut bytes) {
                    let _ = stream.write_all(&bytes[..n]);
                }
            });
        }
    });
    port
}

/// Opens a connection through the client to a host of the loopback network, and waits for an answer.
fn ask(socks: SocketAddr, host: u16, port: u16) -> std::io::Result<TcpStream> {
    let [high, low] = host.to_be_bytes();
    let to = SocketAddr::from(([127, 1, high, low], port));
    let mut stream = socks_at(socks, to).unwrap();
    stream.write_all(b"hello")?;
    stream.read_exact(&mut [0; 5])?;
    Ok(stream)
}

fn wait(status: &Status, is: impl Fn(&Snapshot) -> bool) -> Snapshot {
    let begin = Clock::start();
    loop {
        let all = status.snapshot();
        if is(&all) {
            return all;
        }
        assert!(elapsed(begin) < LONG, "{all:#?}");
        sleep(Duration::from_millis(20));
    }
}

fn elapsed(begin: Clock) -> Duration {
    Duration::from_nanos(begin.now().as_nanos())
}

/// Whether so many servers are up and seen to be near.
fn are_up(count: usize) -> impl Fn(&Snapshot) -> bool {
    let is_near = |us: u64| us < 4_000;
    move |all| {
        let up = all
            .several
            .servers
            .iter()
            .filter(|s| s.state == ServerState::Up && s.rtt_us.is_some_and(is_near));
        up.count() == count
    }
}

/// Returns the state of a server; `None` while the client begins.
fn state(all: &Snapshot, server: usize) -> Option<ServerState> {
    all.several.servers.get(server).map(|server| server.state)
}

fn drain(rate: f64) -> Command {
    Command::Drain { rate: Some(rate), within_s: None, to: None }
}

#[test]
fn connections_are_spread_and_go_elsewhere_when_a_server_ends() {
    let mut servers = [Server::new(), Server::new(), Server::new()];
    let (client, socks) = client_of(&servers.each_ref());
    let port = echo();
    wait(&client.status, are_up(3));
    let open: Vec<TcpStream> = (0..60).map(|host| ask(socks, host, port).unwrap()).collect();
    let counts = servers.each_ref().map(|s| s.status().snapshot().open_connections);
    assert_eq!(counts.iter().sum::<u64>(), 60);
    assert!(
        counts.iter().all(|count| *count >= 5),
        "{counts:?} {:#?}",
        client.status.snapshot().several.servers
    );
    // A second connection to a host goes where the first one went.
    let again: Vec<TcpStream> = (0..60).map(|host| ask(socks, host, port).unwrap()).collect();
    assert_eq!(servers.each_ref().map(|s| s.status().snapshot().open_connections), counts.map(|n| 2 * n));
    drop((open, again));
    servers[1].stop();
    let begin = Clock::start();
    let _open: Vec<TcpStream> = (0..60).map(|host| ask(socks, host, port).unwrap()).collect();
    let counts = [0, 2].map(|n: usize| servers[n].status().snapshot().open_connections);
    println!("60 connections after the end of a server: {:?}", elapsed(begin));
    assert!(counts.iter().all(|count| *count >= 15), "{counts:?}");
    let all = wait(&client.status, |all| state(all, 1) == Some(ServerState::Down));
    assert_eq!(all.several.servers[0].capacity, Some(1_000));
    assert!(all.several.servers[0].rtt_us.is_some() && all.several.server.unwrap().contains(", "));
}

/// A server is drained, stopped and started again, while a program opens connections without a pause.
#[test]
fn a_drain_and_a_restart_lose_no_new_connection() {
    let mut servers = [Server::new(), Server::new()];
    let (client, socks) = client_of(&servers.each_ref());
    let port = echo();
    wait(&client.status, are_up(2));
    let (is_over, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let program = {
        let (is_over, made) = (Arc::clone(&is_over), Arc::clone(&made));
        thread::spawn(move || {
            let mut host = 0_u16;
            while !is_over.load(Ordering::Relaxed) {
                host = host.wrapping_add(1);
                let mut stream = ask(socks, host, port).unwrap();
                // The connection is used for a while after it was opened.
                stream.write_all(b"again").unwrap();
                stream.read_exact(&mut [0; 5]).unwrap();
                made.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let made_more = |by: u32| {
        let (begin, wanted) = (Clock::start(), made.load(Ordering::Relaxed) + by);
        while made.load(Ordering::Relaxed) < wanted {
            assert!(elapsed(begin) < LONG && !program.is_finished(), "the program has stopped");
            sleep(Duration::from_millis(10));
        }
    };
    made_more(20);
    let status = servers[0].status();
    let begun = status.control(drain(10.0)).unwrap().unwrap();
    assert_eq!((begun.state.as_str(), begun.clients), ("running", 1));
    let all = wait(&status, |all| all.several.drain.as_ref().is_some_and(|drain| drain.state == "ended"));
    assert_eq!(
        all.several.drain.map(|drain| (drain.told, drain.present, drain.open_connections)),
        Some((1, 0, 0))
    );
    wait(&client.status, |all| state(all, 0) == Some(ServerState::Drains));
    made_more(20);
    servers[0].stop();
    made_more(20);
    servers[0].start();
    wait(&client.status, are_up(2));
    made_more(100);
    assert!(servers[0].status().snapshot().totals.connections > 0, "it is used again");
    is_over.store(true, Ordering::Relaxed);
    program.join().expect("no connection was lost");
}

#[test]
fn a_drain_keeps_what_is_open_and_turns_away_what_comes() {
    let servers = [Server::new(), Server::new()];
    let (client, socks) = client_of(&servers.each_ref());
    let port = echo();
    wait(&client.status, are_up(2));
    let mut open: Vec<TcpStream> = (0..20).map(|host| ask(socks, host, port).unwrap()).collect();
    let status = servers[0].status();
    let before = status.snapshot().open_connections;
    assert!(before > 0);
    let to = servers[1].name().to_string();
    let command = Command::Drain { rate: Some(5.0), within_s: Some(60.0), to: Some(to.clone()) };
    status.control(command).unwrap();
    let all = wait(&status, |all| all.several.drain.as_ref().is_some_and(|drain| drain.told == 1));
    assert_eq!(all.several.drain.unwrap().to, Some(to));
    wait(&client.status, |all| state(all, 0) == Some(ServerState::Drains));
    open.iter_mut().for_each(|stream| {
        stream.write_all(b"hello").unwrap();
        stream.read_exact(&mut [0; 5]).unwrap();
    });
    let others = servers[1].status().snapshot().open_connections;
    let more: Vec<TcpStream> = (0..20).map(|host| ask(socks, host, port).unwrap()).collect();
    assert_eq!(servers[1].status().snapshot().open_connections, others + 20);
    assert_eq!(status.snapshot().open_connections, before);
    // A client that comes now is turned away, until the drain is cancelled.
    let (late, late_socks) = client_of(&[&servers[0]]);
    wait(&late.status, |all| state(all, 0) == Some(ServerState::Drains));
    drop((open, more));
    wait(&status, |all| all.several.drain.as_ref().is_some_and(|drain| drain.present == 0));
    status.control(Command::Cancel).unwrap();
    assert_eq!(status.snapshot().several.drain, None);
    ask(late_socks, 1, port).unwrap();
}

/// A client does not storm a server that sends it away as soon as it comes.
#[test]
fn a_server_that_goes_away_at_once_is_asked_seldom() {
    let server = Server::new();
    let status = server.status();
    status.control(drain(1.0)).unwrap();
    let (client, socks) = client_of(&[&server]);
    let port = echo();
    sleep(Duration::from_millis(2_500));
    let begin = Clock::start();
    let seen = wait(&client.status, |all| state(all, 0) == Some(ServerState::Drains));
    assert!(seen.several.servers[0].why.as_ref().unwrap().contains("drains"), "{seen:?}");
    let downs = Arc::new(AtomicU32::new(0));
    status.control(Command::Cancel).unwrap();
    ask(socks, 0, port).unwrap();
    println!("a connection {:?} after the end of the drain", elapsed(begin));
    // Each attempt that was sent away is reported once.
    client.event(|event| {
        match event {
            Event::TrunkDown { .. } => _ = downs.fetch_add(1, Ordering::Relaxed),
            Event::Finished(_) => return Some(()),
            _ => {}
        }
        None
    });
    // Two trunks are wanted: pairs after 0, 1, 3 and 7 s.
    assert!(downs.load(Ordering::Relaxed) <= 8, "{downs:?}");
}

#[test]
fn a_poisoned_list_names_servers_in_vain() {
    let (known, stranger) = (Server::new(), Server::new());
    let names = vec![stranger.name(), known.name(), "127.0.0.1:1".parse().unwrap()];
    let first = Server::naming(names);
    let (client, socks) = client(vec![first.name()], vec![first.pair(), known.pair()]);
    let port = echo();
    let text = client.event(|event| match event {
        Event::Notice(text) if text.contains("shows no key") => Some(text.clone()),
        _ => None,
    });
    assert!(text.starts_with(&stranger.name().to_string()), "{text}");
    let all = wait(&client.status, |all| are_up(2)(all) && all.several.servers.len() == 3);
    assert!(all.several.servers.iter().all(|server| server.name != stranger.name().to_string()), "{all:?}");
    assert!(all.several.servers.iter().skip(1).all(|server| server.is_named_by_server));
    let _open: Vec<TcpStream> = (0..30).map(|host| ask(socks, host, port).unwrap()).collect();
    assert!(known.status().snapshot().open_connections > 0, "the second key fits");
    assert_eq!(stranger.status().snapshot().trunks.len(), 0);
}

#[test]
fn a_program_is_run_when_the_load_passes_a_threshold() {
    let dir = tempfile::tempdir().unwrap();
    let (script, said) = (dir.path().join("scale.sh"), dir.path().join("said"));
    std::fs::write(&script, format!("#!/bin/sh\necho \"$@\" >> {}\n", said.display())).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700)).unwrap();
    let text = format!(
        "listen = \"127.0.0.1:0\"\nplain = true\nfrom = [\"127.0.0.0/8\"]\nallow = [\"127.0.0.0/8\"]\n\
         capacity = 10\nscale-run = \"{}\"\nscale-above = 50\nscale-every = \"1 s\"\n",
        script.display()
    );
    let settings = config::parse::<config::Server>(&text).unwrap();
    let wrong = config::Server { scale_below: Some(50), ..settings.clone() };
    assert!(wrong.options().unwrap_err().to_string().contains("less than `scale-above`"));
    let running = server::start(settings.options().unwrap()).unwrap();
    let name = running.address(Door::Trunks).unwrap().to_string().parse().unwrap();
    let server = Role::new(running);
    let (_client, socks) = client(vec![name], Vec::new());
    let port = echo();
    let says = |wanted: &str| {
        let begin = Clock::start();
        while !std::fs::read_to_string(&said).unwrap_or_default().lines().any(|line| line == wanted) {
            assert!(elapsed(begin) < LONG, "{:?}", std::fs::read_to_string(&said));
            sleep(Duration::from_millis(50));
        }
    };
    let open: Vec<TcpStream> = (0..6).map(|host| ask(socks, host, port).unwrap()).collect();
    says("above 6 10");
    drop(open);
    says("below 0 10");
    assert_eq!(server.status.snapshot().several.load.map(|load| load.capacity), Some(10));
}

#[test]
fn names_of_dns_are_read_and_need_keys() {
    let settings = |text: &str| config::parse::<config::Client>(text).and_then(|all| all.options());
    let name = "server = [\"a.example\", \"srv:proxy.example.\"]\n";
    let named = settings(&format!("{name}plain = true\n")).unwrap().servers;
    assert_eq!(
        named.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["a.example:26228", "srv:proxy.example"]
    );
    for wrong in ["srv:", "srv:a b", "srv:a..b", "srv:a.example:5"] {
        let error = settings(&format!("server = \"{wrong}\"\nplain = true\n")).unwrap_err().to_string();
        assert!(error.contains("no name in DNS"), "{error}");
    }
    let mut options = client::Options { servers: named, ..client::Options::default() };
    options.doors = vec![(Door::Socks, "127.0.0.1:0".parse().unwrap())];
    let error = client::start(options).unwrap_err().to_string();
    assert!(error.contains("DNS must not name servers"), "{error}");
}

/// A way to a server that can be cut without a word.
fn forwarder(to: SocketAddr) -> (SocketAddr, Arc<AtomicBool>) {
    let is_cut = Arc::new(AtomicBool::new(false));
    let cut = Arc::clone(&is_cut);
    let address = origin(move |from| {
        let to = TcpStream::connect(to).unwrap();
        let (mut one, mut other) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        let copy = |cut: Arc<AtomicBool>, from: &mut TcpStream, to: &mut TcpStream| {
            let mut bytes = [0; 65_536];
            while let Ok(n @ 1..) = from.read(&mut bytes) {
                while cut.load(Ordering::Relaxed) {
                    sleep(Duration::from_millis(20));
                }
                if to.write_all(&bytes[..n]).is_err() {
                    break;
                }
            }
        };
        let back = Arc::clone(&cut);
        thread::spawn(move || copy(back, &mut other, &mut one));
        let (mut from, mut to) = (from, to);
        copy(Arc::clone(&cut), &mut from, &mut to);
    });
    (address, is_cut)
}

#[test]
fn a_server_that_is_silent_gets_no_new_connection_after_a_second() {
    let servers = [Server::new(), Server::new()];
    let (way, is_cut) = forwarder(servers[0].address);
    let pairings = servers.each_ref().map(|server| server.pair()).to_vec();
    let (client, socks) = client(vec![way.to_string().parse().unwrap(), servers[1].name()], pairings);
    let port = echo();
    wait(&client.status, are_up(2));
    let open: Vec<TcpStream> = (0..30).map(|host| ask(socks, host, port).unwrap()).collect();
    assert!(servers[0].status().snapshot().open_connections > 0);
    is_cut.store(true, Ordering::Relaxed);
    // The connection of a host that the silent server had waits; it shows that the server is silent.
    let stuck: Vec<TcpStream> = (0..30)
        .map(|host| {
            let mut stream = socks_at(socks, SocketAddr::from(([127, 1, 0, host], port))).unwrap();
            stream.write_all(b"hello").unwrap();
            stream
        })
        .collect();
    let begin = Clock::start();
    wait(&client.status, |all| state(all, 0) == Some(ServerState::Silent));
    println!("silent after {:?}", elapsed(begin));
    let before = servers[1].status().snapshot().open_connections;
    let again: Vec<TcpStream> = (0..30).map(|host| ask(socks, host, port).unwrap()).collect();
    assert_eq!(servers[1].status().snapshot().open_connections, before + 30);
    is_cut.store(false, Ordering::Relaxed);
    // What waited goes on.
    for mut stream in stuck {
        stream.read_exact(&mut [0; 5]).unwrap();
    }
    drop((open, again));
}

#[test]
fn commands_that_make_no_sense_change_nothing() {
    let server = Server::new();
    let (status, dir) = (server.status(), tempfile::tempdir().unwrap());
    let _socket = control::listen(&status, dir.path()).unwrap();
    let (_, path) = control::sockets(dir.path()).remove(0);
    let of = |rate, within_s, to: Option<&str>| Command::Drain { rate, within_s, to: to.map(str::to_owned) };
    for (command, says) in [
        (of(Some(0.0), None, None), "would ever go"),
        (of(Some(-1.0), None, None), "would ever go"),
        (of(None, Some(-5.0), None), "over already"),
        (of(None, Some(0.0), None), "over already"),
        (of(None, Some(1e12), None), "a year"),
        (of(None, None, Some("no name:x")), "no server"),
        (Command::Pause, "does not drain"),
        (Command::Cancel, "does not drain"),
    ] {
        let error = control::give(&path, &command).unwrap_err();
        assert!(matches!(&error, ControlError::Refused(why) if why.contains(says)), "{command:?}: {error}");
        assert_eq!(status.snapshot().several.drain, None);
    }
    let begun = control::give(&path, &of(None, Some(5.0), None)).unwrap().unwrap();
    assert_eq!((begun.clients, begun.state.as_str()), (0, "ended"));
    control::give(&path, &Command::Pause).unwrap();
    control::give(&path, &Command::Resume).unwrap();
    assert_eq!(control::give(&path, &Command::Cancel).unwrap(), None);
    let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    stream.write_all(b"{\"drain\": 5}").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("no command"), "{answer}");
    let (client, _) = client_of(&[&server]);
    assert!(matches!(client.status.control(Command::Pause), Err(ControlError::NotServer)));
}
