//! A server and a client, and what tests need to speak to them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use net::Resolver;
use proxy::client;
use proxy::keys::{Clients, KeyPair, Pairing, PublicKey};
use proxy::policy::Policy;
use proxy::server::{self, Admission};
use proxy::trunk::Destination;
use proxy::{Door, Event, Finished, Running, Stop};
use tempfile::TempDir;

/// Longer than anything takes, also on a machine that is busy.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Runs a role; its events can be had elsewhere.
struct Role {
    stop: Stop,
    events: Mutex<Receiver<Event>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Role {
    fn new(mut running: Running) -> Self {
        let stop = running.stop();
        let (sender, events) = channel();
        let thread = thread::spawn(move || {
            while let Some(event) = running.wait_event() {
                let _ = sender.send(event);
            }
        });
        Self { stop, events: Mutex::new(events), thread: Some(thread) }
    }

    fn stop(&mut self) {
        self.stop.stop();
        self.thread.take().into_iter().for_each(|thread| thread.join().unwrap());
    }

    fn event<T>(&self, of: impl Fn(&Event) -> Option<T>) -> T {
        let events = self.events.lock().unwrap();
        loop {
            if let Some(found) = of(&events.recv_timeout(LONG).unwrap()) {
                return found;
            }
        }
    }
}

/// A server for one client, which connects to 127.0.0.0/8 and public networks only, and that client.
pub(crate) struct Bench {
    dir: TempDir,
    pair: KeyPair,
    admission: Admission,
    address: SocketAddr,
    socks: SocketAddr,
    http: SocketAddr,
    server: Option<Role>,
    client: Role,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(None, false)
    }

    pub(crate) fn strict() -> Self {
        Self::with(None, true)
    }

    /// Without keys, for clients in this network.
    pub(crate) fn plain(network: &str) -> Self {
        Self::with(Some(network), false)
    }

    fn with(network: Option<&str>, is_strict: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pair = KeyPair::generate().unwrap();
        let pairing = Pairing::new(pair.public()).unwrap();
        let list = dir.path().join("clients.toml");
        Clients::append(&list, "laptop", pairing.client.public()).unwrap();
        let admission = match network {
            Some(network) => Admission::Networks(vec![network.parse().unwrap()]),
            None => Admission::Keys { pair: pair.clone(), clients: list },
        };
        let server = start_server(&admission, "127.0.0.1:0".parse().unwrap());
        let address = server.address(Door::Trunks).unwrap();
        let to = Destination::from_ip(address.ip(), address.port()).unwrap();
        let mut options = client::Options::new(to, network.is_none().then_some(pairing));
        options.socks = vec!["127.0.0.1:0".parse().unwrap()];
        options.http = options.socks.clone();
        options.is_strict = is_strict;
        let client = client::start(options).unwrap();
        let (socks, http) = (client.address(Door::Socks).unwrap(), client.address(Door::Http).unwrap());
        let (server, client) = (Some(Role::new(server)), Role::new(client));
        Self { dir, pair, admission, address, socks, http, server, client }
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

    /// The list of clients.
    pub(crate) fn list(&self) -> PathBuf {
        Path::join(self.dir.path(), "clients.toml")
    }

    /// The client's next word on a connection that has ended.
    pub(crate) fn finished(&self) -> Finished {
        self.client.event(|event| match event {
            Event::Finished(finished) => Some(finished.clone()),
            _ => None,
        })
    }

    /// The client's next word on a trunk that is there.
    pub(crate) fn trunk_up(&self) -> Event {
        self.client.event(|event| matches!(event, Event::TrunkUp { .. }).then(|| event.clone()))
    }

    pub(crate) fn stop_server(&mut self) {
        self.server.take().unwrap().stop();
    }

    pub(crate) fn start_server(&mut self) {
        self.server = Some(Role::new(start_server(&self.admission, self.address)));
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

fn start_server(admission: &Admission, listen: SocketAddr) -> Running {
    let mut options = server::Options::new(admission.clone());
    options.listen = listen;
    options.policy = Policy::new(&["127.0.0.0/8".parse().unwrap()], &[]);
    options.resolver = Resolver::new(|_| Ok(vec!["127.0.0.1:0".parse().unwrap()]));
    server::start(options).unwrap()
}

/// A server of one sort of connection.
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

/// An address where nobody listens.
pub(crate) fn refused_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Bytes that differ from place to place.
pub(crate) fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251 * seed + at / 65_521) as u8).collect()
}

/// A connection through the client to an address.
pub(crate) fn socks(bench: &Bench, to: SocketAddr) -> TcpStream {
    socks_at(bench.socks(), to).unwrap()
}

/// The same at another client; the error is SOCKS's.
pub(crate) fn socks_at(at: SocketAddr, to: SocketAddr) -> Result<TcpStream, u8> {
    let SocketAddr::V4(v4) = to else { panic!("IPv4") };
    connect(at, &[&[1], &v4.ip().octets()[..]].concat(), to.port())
}

/// The same to what SOCKS calls a destination: kind and address.
pub(crate) fn socks_to(bench: &Bench, to: &[u8], port: u16) -> Result<TcpStream, u8> {
    connect(bench.socks(), to, port)
}

fn connect(at: SocketAddr, to: &[u8], port: u16) -> Result<TcpStream, u8> {
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
