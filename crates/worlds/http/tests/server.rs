//! Tests the server with clients that are slow on purpose, and with a slow disk.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use anabranch_http::server::{
    CONNECTIONS_MAX, ContentProvider, PathLookup, Resource, ResourceRequest, RunningServer, Server,
    Unavailable,
};
use socket2::{Domain, SockAddr, Socket, Type};

const CONTENT: &[u8] = b"what is served";
/// A length that the buffers of both sides together cannot hold.
const LONG: u64 = 64 << 20;

/// Whether the disk answers, and how many reads wait for it.
#[derive(Default)]
struct Disk {
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

/// Serves `/f`, a file; `/long`, zeros; and `/stuck`, a file on a disk that answers only when it is told to.
struct Files(Arc<Disk>);

impl ContentProvider for Files {
    type Content = String;

    fn find(&self, request: &ResourceRequest<'_>) -> PathLookup<String> {
        let name = String::from_utf8(request.path.names.concat()).expect("ASCII");
        let length = if name == "long" { LONG } else { CONTENT.len() as u64 };
        let media_type = "application/octet-stream";
        PathLookup::Found(Resource {
            content: name,
            length,
            etag: None,
            media_type: media_type.into(),
            links: Vec::new(),
            fields: Vec::new(),
        })
    }

    fn check(&self, _: &String) -> Result<(), Unavailable> {
        Ok(())
    }

    fn read(&self, name: &String, offset: u64, out: &mut [u8]) -> Result<(), Unavailable> {
        if name == "stuck" {
            let mut state = self.0.state.lock().expect("a lock");
            state.1 += 1;
            self.0.changed.notify_all();
            drop(self.0.changed.wait_while(state, |(answers, _)| !*answers).expect("a lock"));
        }
        match name == "long" {
            true => out.fill(0),
            false => out.copy_from_slice(&CONTENT[offset as usize..][..out.len()]),
        }
        Ok(())
    }
}

fn start() -> (RunningServer, SocketAddr, Arc<Disk>) {
    let server = Server::bind(&[SocketAddr::from(([127, 0, 0, 1], 0))]).expect("a socket");
    let (address, disk) = (server.addresses()[0], Arc::<Disk>::default());
    (server.start(Files(Arc::clone(&disk))).expect("a thread"), address, disk)
}

/// Connects as a client that takes in few bytes at once.
fn connect(address: SocketAddr) -> TcpStream {
    connect_from([127, 0, 0, 1], address)
}

/// Connects from this address as a client that takes in few bytes at once.
fn connect_from(host: [u8; 4], address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4_096).expect("an option");
    socket.bind(&SockAddr::from(SocketAddr::from((host, 0)))).expect("an address");
    socket.connect(&SockAddr::from(address)).expect("a connection");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    socket.into()
}

fn ask(stream: &mut TcpStream, path: &str) -> std::io::Result<()> {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").as_bytes())
}

/// Returns the answer to a well-behaved client: its status and its body.
fn get(address: SocketAddr, path: &str) -> (String, Vec<u8>) {
    answer(connect(address), path)
}

/// Asks for `path` on a connection and returns the status and the body of the answer.
fn answer(mut stream: TcpStream, path: &str) -> (String, Vec<u8>) {
    let mut all = Vec::new();
    // A reset counts as an answer too, though a bad one.
    let _ = ask(&mut stream, path).and_then(|()| stream.read_to_end(&mut all).map(drop));
    let end = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(all.len());
    let status = all[..end].split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    (String::from_utf8_lossy(status).into_owned(), all.get(end + 4..).unwrap_or_default().to_vec())
}

fn served() -> (String, Vec<u8>) {
    ("200".to_owned(), CONTENT.to_vec())
}

#[test]
fn a_disk_that_does_not_answer_keeps_nobody_else_waiting() {
    let (server, address, disk) = start();
    let stuck: Vec<_> = (0..3).map(|_| thread::spawn(move || get(address, "/stuck"))).collect();
    let state = disk.state.lock().expect("a lock");
    drop(disk.changed.wait_while(state, |(_, waiting)| *waiting < stuck.len()).expect("a lock"));
    assert_eq!(get(address, "/f"), served(), "while others wait for the disk");
    disk.state.lock().expect("a lock").0 = true;
    disk.changed.notify_all();
    for client in stuck {
        assert_eq!(client.join().expect("an answer"), served());
    }
    assert_eq!(server.counters().requests, 4);
}

#[test]
fn many_that_send_their_heads_slowly_keep_nobody_out() {
    let (server, address, _disk) = start();
    let mut slow: Vec<TcpStream> = Vec::new();
    for n in 0..3 * CONNECTIONS_MAX / 2 {
        let mut stream = connect(address);
        let _ = stream.write_all(b"GET /f HTTP/1.1\r\nHost:");
        slow.push(stream);
        if n % 50 == 0 {
            assert_eq!(get(address, "/f"), served(), "beside {n}");
        }
    }
    for _ in 0..50 {
        assert_eq!(get(address, "/f"), served());
    }
    let counters = server.counters();
    assert!(counters.connections as usize <= CONNECTIONS_MAX + 8, "{counters:?}");
    assert_eq!(counters.turned_away, 0);
}

/// Opens as many connections as the server takes, each with a long answer under way.
fn take_all_places(server: &RunningServer, address: SocketAddr) -> Vec<TcpStream> {
    let mut all: Vec<TcpStream> = Vec::new();
    while all.len() < CONNECTIONS_MAX {
        let mut stream = connect(address);
        ask(&mut stream, "/long").expect("sent");
        all.push(stream);
        // The server counts requests as it accepts them.
        while (server.counters().requests as usize) < all.len() {
            thread::sleep(Duration::from_millis(1));
        }
    }
    all
}

#[test]
fn one_host_that_has_all_places_keeps_no_other_out() {
    let (server, address, _disk) = start();
    let _all = take_all_places(&server, address);
    for _ in 0..20 {
        assert_eq!(answer(connect_from([127, 0, 0, 2], address), "/f"), served());
    }
}

#[test]
fn many_that_read_their_answers_slowly_lose_their_places() {
    let (server, address, _disk) = start();
    let _slow = take_all_places(&server, address);
    // At first the server cannot know that the clients are slow. Then it finds out about one after the other.
    let get_a_place = || {
        let mut waited_s = 0;
        while get(address, "/f") != served() {
            assert!(waited_s < 60, "they hold their places for ever");
            thread::sleep(Duration::from_secs(1));
            waited_s += 1;
        }
    };
    get_a_place();
    // A client that reads keeps its connection.
    let mut reader = connect(address);
    ask(&mut reader, "/long").expect("sent");
    let (mut buffer, mut bytes) = (vec![0; 1 << 16], 0);
    for _ in 0..20 * CONNECTIONS_MAX {
        bytes += reader.read(&mut buffer).expect("it goes on");
    }
    assert!(bytes > 0);
    get_a_place();
}
