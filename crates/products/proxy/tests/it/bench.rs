//! A server and a client for tests, and functions with which tests use them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use anabranch_net::Resolver;
use anabranch_proxy::client;
use anabranch_proxy::keys::{Clients, KeyPair, Pairing, PublicKey};
use anabranch_proxy::policy::Policy;
use anabranch_proxy::server::{self, Admission};
use anabranch_proxy::trunk::Destination;
use anabranch_proxy::{Door, Event, Finished, Reloader, Running, Status, Stop};
use tempfile::TempDir;

/// Longer than any step takes, also on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Runs a role on a thread, so that its events can be read elsewhere.
pub(crate) struct Role {
    stop: Stop,
    reloader: Reloader,
    pub(crate) status: Status,
    events: Mutex<Receiver<Event>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Role {
    pub(crate) fn new(mut running: Running) -> Self {
        let (stop, reloader, status) = (running.stop(), running.reloader(), running.status());
        let (sender, events) = channel();
        let thread = thread::spawn(move || {
            while let Some(event) = running.wait_event() {
                let _ = sender.send(event);
            }
        });
        Self { stop, reloader, status, events: Mutex::new(events), thread: Some(thread) }
    }

    pub(crate) fn stop(&mut self) {
        self.stop.stop();
        self.thread.take().into_iter().for_each(|thread| thread.join().unwrap());
    }

    pub(crate) fn event<T>(&self, of: impl Fn(&Event) -> Option<T>) -> T {
        let events = self.events.lock().unwrap();
        loop {
            if let Some(found) = of(&events.recv_timeout(LONG).unwrap()) {
                return found;
            }
        }
    }
}

/// A client, and its server, which connects to 127.0.0.0/8 and public networks only.
pub(crate) struct Bench {
    dir: TempDir,
    pair: KeyPair,
    /// The options of the server, with its port, and those of the client.
    options: (server::Options, client::Options),
    address: SocketAddr,
    socks: SocketAddr,
    http: SocketAddr,
    server: Option<Role>,
    client: Role,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::tuned(|_, _| {})
    }

    pub(crate) fn strict() -> Self {
        Self::tuned(|_, client| client.is_strict = true)
    }

    /// Starts a bench with changed options.
    pub(crate) fn tuned(tune: impl Fn(&mut server::Options, &mut client::Options) + 'static) -> Self {
        Self::with(None, Box::new(tune))
    }

    /// Starts a bench without keys, for clients in this network.
    pub(crate) fn plain(network: &str) -> Self {
        Self::with(Some(network), Box::new(|_, _| {}))
    }

    fn with(network: Option<&str>, tune: Tune) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pair = KeyPair::generate().unwrap();
        let pairing = Pairing::new(pair.public()).unwrap();
        let list = dir.path().join("clients.toml");
        Clients::append(&list, "laptop", pairing.client.public()).unwrap();
        let admission = match network {
            Some(network) => Admission::Networks(vec![network.parse().unwrap()]),
            None => Admission::Keys { pair: pair.clone(), clients: list },
        };
        let server_options = |admission: &Admission, listen: SocketAddr, client: &mut client::Options| {
            let mut options = server_options(admission, listen);
            tune(&mut options, client);
            options
        };
        let nowhere = "127.0.0.1:1".parse().unwrap();
        let mut unused = client::Options::new(nowhere, None);
        let listen = "127.0.0.1:0".parse().unwrap();
        let server = server::start(server_options(&admission, listen, &mut unused)).unwrap();
        let address = server.address(Door::Trunks).unwrap();
        let to = Destination::from_ip(address.ip(), address.port()).unwrap();
        let mut options = client::Options::new(to, network.is_none().then_some(pairing));
        options.doors = [Door::Socks, Door::Http].map(|door| (door, "127.0.0.1:0".parse().unwrap())).to_vec();
        let restart = server_options(&admission, address, &mut options);
        let client = client::start(options.clone()).unwrap();
        let (socks, http) = (client.address(Door::Socks).unwrap(), client.address(Door::Http).unwrap());
        let (server, client) = (Some(Role::new(server)), Role::new(client));
        let options = (restart, options);
        Self { dir, pair, options, address, socks, http, server, client }
    }

    /// Starts one more client of the server under this name. Returns it with the address of its SOCKS5
    /// listener.
    pub(crate) fn another_client(&self, name: &str) -> (Running, SocketAddr) {
        let pairing = Pairing::new(self.pair.public()).unwrap();
        Clients::append(&self.list(), name, pairing.client.public()).unwrap();
        let mut options = self.options.1.clone();
        options.pairings = vec![pairing];
        let running = client::start(options).unwrap();
        let socks = running.address(Door::Socks).unwrap();
        (running, socks)
    }

    pub(crate) fn socks(&self) -> SocketAddr {
        self.socks
    }

    pub(crate) fn http(&self) -> SocketAddr {
        self.http
    }

    pub(crate) fn server_address(&self) -> Destination {
        Destination::from_ip(self.address.ip(), self.address.port()).unwrap()
    }

    pub(crate) fn server_key(&self) -> PublicKey {
        self.pair.public()
    }

    /// Returns the path of the list of clients.
    pub(crate) fn list(&self) -> PathBuf {
        Path::join(self.dir.path(), "clients.toml")
    }

    /// Waits for the client's next event about a connection that has ended.
    pub(crate) fn finished(&self) -> Finished {
        self.client.event(|event| match event {
            Event::Finished(finished) => Some(finished.clone()),
            _ => None,
        })
    }

    /// Waits for the client's next event about a connection that has ended. Also returns whether a notice
    /// with these words came before it.
    pub(crate) fn finished_after(&self, words: &str) -> (Finished, bool) {
        let has_come = std::cell::Cell::new(false);
        let finished = self.client.event(|event| match event {
            Event::Finished(finished) => Some(finished.clone()),
            Event::Notice(text) => {
                has_come.set(has_come.get() || text.contains(words));
                None
            }
            _ => None,
        });
        (finished, has_come.get())
    }

    /// Waits for the client's next event about a new trunk.
    pub(crate) fn trunk_up(&self) -> Event {
        self.client.event(|event| matches!(event, Event::TrunkUp { .. }).then(|| event.clone()))
    }

    /// Returns the options with which both roles were started.
    pub(crate) fn options(&self) -> (server::Options, client::Options) {
        self.options.clone()
    }

    /// Gives both roles new options.
    pub(crate) fn reload(&self, server: &server::Options, client: &client::Options) {
        let running = self.server.as_ref().unwrap();
        assert!(running.reloader.reload(client).is_err(), "of another role");
        running.reloader.reload(server).unwrap();
        self.client.reloader.reload(client).unwrap();
    }

    /// Returns the statuses of the server and of the client.
    pub(crate) fn status(&self) -> (Status, Status) {
        (self.server.as_ref().unwrap().status.clone(), self.client.status.clone())
    }

    pub(crate) fn stop_server(&mut self) {
        self.server.take().unwrap().stop();
    }

    pub(crate) fn start_server(&mut self) {
        self.server = Some(Role::new(server::start(self.options.0.clone()).unwrap()));
    }

    pub(crate) fn stop_client(&mut self) {
        self.client.stop();
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.client.stop.stop();
        if let Some(server) = &self.server {
            server.stop.stop();
        }
    }
}

/// Changes the options of a server and of a client.
type Tune = Box<dyn Fn(&mut server::Options, &mut client::Options)>;

fn server_options(admission: &Admission, listen: SocketAddr) -> server::Options {
    let mut options = server::Options::new(admission.clone());
    options.listen = listen;
    options.policy = Policy::new(&["127.0.0.0/8".parse().unwrap()], &[]);
    options.resolver = Resolver::new(|_| Ok(vec!["127.0.0.1:0".parse().unwrap()]));
    options
}

/// Starts an origin that serves each connection by `serve`. Returns its address.
pub(crate) fn origin(serve: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let serve = serve.clone();
            thread::spawn(move || serve(stream.unwrap()));
        }
    });
    address
}

/// Returns an address without a listener.
pub(crate) fn refused_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Returns bytes that differ from position to position.
pub(crate) fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251 * seed + at / 65_521) as u8).collect()
}

/// Connects through the client to an address.
pub(crate) fn socks(bench: &Bench, to: SocketAddr) -> TcpStream {
    socks_at(bench.socks(), to).unwrap()
}

/// Connects through the client at `at` to an address. The error is the reply code of SOCKS.
pub(crate) fn socks_at(at: SocketAddr, to: SocketAddr) -> Result<TcpStream, u8> {
    let SocketAddr::V4(v4) = to else { panic!("IPv4") };
    connect(at, &[&[1], &v4.ip().octets()[..]].concat(), to.port())
}

/// Connects through the client to a destination in the form of SOCKS, kind and address. The error is the
/// reply code of SOCKS.
pub(crate) fn socks_to(bench: &Bench, to: &[u8], port: u16) -> Result<TcpStream, u8> {
    connect(bench.socks(), to, port)
}

/// Connects through the client at `at` to a destination in the form of SOCKS. The error is the reply code of
/// SOCKS.
pub(crate) fn connect(at: SocketAddr, to: &[u8], port: u16) -> Result<TcpStream, u8> {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(&[5, 1, 0]).unwrap();
    let mut answer = [0; 2];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [5, 0]);
    stream.write_all(&[&[5, 1, 0], to, &port.to_be_bytes()[..]].concat()).unwrap();
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).unwrap();
    if reply[1] == 0 { Ok(stream) } else { Err(reply[1]) }
}
