//! Tests of connections that are reset at any moment: those of programs, those of origins, and those between
//! the two ends of `anabranch proxy`. Nothing may be left of them, and later requests must be served.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, sleep};
use std::time::Duration;

use crate::common::wait_until;
use crate::roles::{
    LONG, Role, client_command, connect_to, echo, echoes, origin, own, reset, server_command, v4,
};

/// The number of times that each state is tried.
const ROUNDS: usize = 4;
/// The descriptors of a trunk: its socket, and the copy by which it is measured.
const DESCRIPTORS_OF_TRUNK: usize = 2;
/// The bytes after which a transfer is in its middle.
const MIDDLE: usize = 256 * 1024;

/// Returns the number of a role's descriptors without those of its trunks.
fn descriptors(role: &Role, place: &Path) -> usize {
    let trunks = role.status(place)["trunks"].as_array().unwrap().len();
    role.descriptors().saturating_sub(trunks * DESCRIPTORS_OF_TRUNK)
}

/// A server and a client that have served a connection, and their numbers of descriptors after it.
struct Pair<'a> {
    place: &'a Path,
    server: Role,
    client: Role,
    echo: SocketAddr,
    before: [usize; 2],
}

impl<'a> Pair<'a> {
    fn new(place: &'a Path) -> Self {
        let server = Role::start(&mut server_command(place, &[]), 1);
        let to = server.address("trunks").to_owned();
        let client = Role::start(&mut client_command(place, &to, &["--http", "127.0.0.1:0"]), 2);
        let echo = origin(echo);
        let mut pair = Self { place, server, client, echo, before: [usize::MAX; 2] };
        assert!(echoes(&mut pair.connect(echo)));
        wait_until(10, || pair.client.status(place)["trunks"].as_array().unwrap().len() >= 2);
        pair.is_all_gone();
        pair.before = [&pair.server, &pair.client].map(|role| descriptors(role, place));
        pair
    }

    fn connect(&self, to: SocketAddr) -> TcpStream {
        connect_to(self.client.address("socks"), to)
    }

    fn is_all_gone(&self) {
        let mut seen = Vec::new();
        for _ in 0..200 {
            let of = |role: &Role| role.status(self.place)["open_connections"].as_u64().unwrap();
            let open = [of(&self.server), of(&self.client)];
            let held = [&self.server, &self.client].map(|role| descriptors(role, self.place));
            if open == [0, 0] && held.iter().zip(self.before).all(|(held, before)| *held <= before) {
                return;
            }
            seen = vec![open.map(|n| n as usize), held, self.before];
            sleep(Duration::from_millis(50));
        }
        panic!("open at server and client, descriptors now and before: {seen:?}");
    }

    /// Runs `what` several times. Then asserts that nothing is left and that the next connection is served.
    fn try_all(&self, name: &str, what: impl Fn()) {
        (0..ROUNDS).for_each(|_| what());
        assert!(echoes(&mut self.connect(self.echo)), "after {name}");
        self.is_all_gone();
        println!("{name}: nothing is left");
    }
}

/// Reads this many bytes, or fewer if the connection ends. Returns how many it read.
fn read_some(stream: &mut TcpStream, bytes: usize) -> usize {
    std::io::copy(&mut stream.take(bytes as u64), &mut std::io::sink()).unwrap_or(0) as usize
}

/// Sends until the connection ends.
fn floods(mut stream: TcpStream) {
    let block = [7; 64 * 1024];
    while stream.write_all(&block).is_ok() {}
}

/// Sends everything and ends its direction, then reads all that arrives.
fn says_first(mut stream: TcpStream) {
    let _ = stream.write_all(b"all");
    let _ = stream.shutdown(Shutdown::Write);
    let _ = std::io::copy(&mut stream, &mut std::io::sink());
}

/// Reads everything to its end, sends half of an answer, and waits.
fn takes_first(mut stream: TcpStream) {
    let _ = std::io::copy(&mut stream, &mut std::io::sink());
    let _ = stream.write_all(b"half");
    let _ = stream.set_read_timeout(Some(LONG));
    sleep(Duration::from_secs(2));
}

#[test]
fn a_program_may_reset_its_connection_in_every_state() {
    let place = tempfile::tempdir().unwrap();
    let pair = Pair::new(place.path());
    let (socks, http) = (pair.client.address("socks"), pair.client.address("http"));
    let after = |address: &str, words: &[&[u8]]| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        for word in words {
            stream.write_all(word).unwrap();
        }
        stream
    };
    let request = [&[5, 1, 0], &v4(pair.echo)[..], &pair.echo.port().to_be_bytes()].concat();
    let (greeting, part) = (&[5_u8, 1, 0][..], &request[..5]);
    let get = format!("GET http://{}/ HTTP/1.1\r\nHost: x\r\n\r\n", pair.echo);
    let connect = format!("CONNECT {} HTTP/1.1\r\n\r\n", pair.echo);
    for (name, address, words) in [
        ("no word", socks, &[][..]),
        ("half a greeting", socks, &[&[5_u8][..]]),
        ("the greeting", socks, &[greeting]),
        ("half a request", socks, &[greeting, part]),
        ("the request", socks, &[greeting, &request]),
        ("the request and the first bytes", socks, &[greeting, &request, b"first"]),
        ("UDP ASSOCIATE", socks, &[greeting, &[5, 3, 0, 1, 0, 0, 0, 0, 0, 0]]),
        ("half a head", http, &[b"CONNECT 127.0.0.1:"]),
        ("CONNECT", http, &[connect.as_bytes()]),
        ("GET", http, &[get.as_bytes()]),
    ] {
        pair.try_all(name, || reset(after(address, words)));
        // The reset comes once more after the bytes were read.
        pair.try_all(name, || {
            let stream = after(address, words);
            sleep(Duration::from_millis(50));
            reset(stream);
        });
    }
    let (flood, deaf) = (origin(floods), origin(|_stream| sleep(Duration::from_secs(1))));
    pair.try_all("a part of a download", || {
        let mut stream = pair.connect(flood);
        assert_eq!(read_some(&mut stream, MIDDLE), MIDDLE);
        reset(stream);
    });
    pair.try_all("a part of an upload", || {
        let mut stream = pair.connect(pair.echo);
        stream.write_all(&[7; MIDDLE]).unwrap();
        reset(stream);
    });
    pair.try_all("an upload that the origin does not take", || {
        let mut stream = pair.connect(deaf);
        stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        while stream.write_all(&[7; MIDDLE]).is_ok() {}
        reset(stream);
    });
    let takes = origin(takes_first);
    pair.try_all("its own end", || {
        let mut stream = pair.connect(takes);
        stream.write_all(&[7; MIDDLE]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_some(&mut stream, 4), 4);
        reset(stream);
    });
    let says = origin(says_first);
    pair.try_all("the origin's end", || {
        let mut stream = pair.connect(says);
        assert_eq!(read_some(&mut stream, 16), 3);
        reset(stream);
    });
}

#[test]
fn an_origin_may_reset_its_connection_in_every_state() {
    let place = tempfile::tempdir().unwrap();
    let pair = Pair::new(place.path());
    let is_reset = |stream: &mut TcpStream| {
        let end = std::io::copy(stream, &mut std::io::sink()).unwrap_err();
        assert_eq!(end.kind(), ErrorKind::ConnectionReset);
    };
    let at_once = origin(reset);
    pair.try_all("accept", || is_reset(&mut pair.connect(at_once)));
    pair.try_all("accept, with bytes for it under way", || {
        let mut stream = pair.connect(at_once);
        // The kernel reports the reset once: to the write, if it knows by then.
        match stream.write_all(&[7; MIDDLE]) {
            Ok(()) => is_reset(&mut stream),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    });
    let part = origin(|mut stream| {
        stream.write_all(&[7; MIDDLE]).unwrap();
        // The reset waits until the other side has the bytes, because a reset discards unread bytes.
        sleep(Duration::from_millis(200));
        reset(stream);
    });
    pair.try_all("a part of a download", || {
        let mut stream = pair.connect(part);
        assert_eq!(read_some(&mut stream, MIDDLE), MIDDLE);
        is_reset(&mut stream);
    });
    let takes_part = origin(|mut stream| {
        read_some(&mut stream, MIDDLE);
        reset(stream);
    });
    pair.try_all("a part of an upload", || {
        let mut stream = pair.connect(takes_part);
        while stream.write_all(&[7; MIDDLE]).is_ok() {}
        let end = stream.read(&mut [0]);
        assert!(!matches!(end, Ok(1..)), "{end:?}");
    });
    let after_own_end = origin(|mut stream| {
        stream.write_all(b"all").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        read_some(&mut stream, 4);
        reset(stream);
    });
    pair.try_all("its own end", || {
        let mut stream = pair.connect(after_own_end);
        assert_eq!(read_some(&mut stream, 16), 3);
        while stream.write_all(&[7; 1_024]).is_ok() {
            sleep(Duration::from_millis(1));
        }
    });
    let after_our_end = origin(|mut stream| {
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
        reset(stream);
    });
    pair.try_all("the program's end", || {
        let mut stream = pair.connect(after_our_end);
        stream.write_all(b"all").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        is_reset(&mut stream);
    });
}

/// A relay between a client and a server that resets connections.
#[derive(Clone)]
struct Middle {
    address: SocketAddr,
    /// The limits of the next connections: each is reset after this many bytes of the client or of the
    /// server.
    limits: Arc<Mutex<Vec<[usize; 2]>>>,
    /// The number of resets of all connections. A connection that began at a lower number is reset.
    generation: Arc<AtomicUsize>,
    resets: Arc<AtomicUsize>,
}

impl Middle {
    fn new(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (generation, resets) = (Arc::default(), Arc::default());
        let middle = Self { address, limits: Arc::default(), generation, resets };
        let own = middle.clone();
        thread::spawn(move || {
            for front in listener.incoming() {
                let limits = own.limits.lock().unwrap().pop().unwrap_or([usize::MAX; 2]);
                let (front, own) = (front.unwrap(), own.clone());
                thread::spawn(move || own.pass(front, TcpStream::connect(server).unwrap(), limits));
            }
        });
        middle
    }

    /// Passes bytes on until the connection ends or must be reset.
    fn pass(&self, front: TcpStream, back: TcpStream, mut left: [usize; 2]) {
        let born = self.generation.load(Ordering::Relaxed);
        let mut buffer = vec![0; 64 * 1024];
        let is_cut = |left: &[usize; 2]| left.contains(&0) || self.generation.load(Ordering::Relaxed) > born;
        for stream in [&front, &back] {
            stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        }
        while !is_cut(&left) {
            for (way, (mut from, mut to)) in [(&front, &back), (&back, &front)].into_iter().enumerate() {
                let room = buffer.len().min(left[way]);
                match from.read(&mut buffer[..room]) {
                    Ok(n @ 1..) if to.write_all(&buffer[..n]).is_ok() => left[way] -= n,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                    _ if room == 0 => {}
                    _ => return,
                }
            }
        }
        self.resets.fetch_add(1, Ordering::Relaxed);
        [front, back].into_iter().for_each(reset);
    }

    fn reset_all(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    fn resets(&self) -> usize {
        self.resets.load(Ordering::Relaxed)
    }
}

/// Starts a server with keys, and a relay before it.
fn between(place: &Path) -> (Role, Middle) {
    let paired = own(place, &["proxy", "pair"]).output().unwrap();
    anabranch_net::testing::write_secret(&place.join("pair"), paired.stdout).unwrap();
    let server = ["proxy", "server", "--listen", "127.0.0.1:0", "--allow", "127.0.0.1", "--json"];
    let server = Role::start(&mut own(place, &server), 1);
    let middle = Middle::new(server.address("trunks").parse().unwrap());
    (server, middle)
}

/// Starts a paired client of the server at this address.
fn paired(place: &Path, to: SocketAddr) -> Role {
    let (pair, to) = (place.join("pair"), to.to_string());
    let client = ["proxy", "client", "--pair-file", pair.to_str().unwrap(), "--server", &to, "--json"];
    Role::start(&mut own(place, &[&client[..], &["--socks", "127.0.0.1:0"]].concat()), 1)
}

#[test]
fn a_trunk_that_is_reset_during_its_handshake_is_tried_again() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let (server, middle) = between(place);
    let echo = origin(echo);
    // The resets come before any byte, within the first flight of either side, and after it, both of TLS and
    // of the trunk.
    let ups = [0, 1, 100, 250, 400].map(|bytes| [bytes, usize::MAX]);
    let downs = [1, 100, 300].map(|bytes| [usize::MAX, bytes]);
    for limits in ups.into_iter().chain(downs) {
        // Three connections are reset: those of the two trunks that begin together, and one more.
        let before = middle.resets();
        middle.limits.lock().unwrap().extend([limits; 3]);
        let client = paired(place, middle.address);
        let mut stream = connect_to(client.address("socks"), echo);
        assert!(echoes(&mut stream), "the program has waited");
        wait_until(20, || client.status(place)["trunks"].as_array().unwrap().len() >= 2);
        println!("{limits:?}: {} were reset", middle.resets() - before);
        assert_eq!(middle.resets() - before, 3, "a trunk lives longer than {limits:?}");
        drop(stream);
        wait_until(10, || [&server, &client].iter().all(|role| role.status(place)["open_connections"] == 0));
    }
    wait_until(10, || server.status(place)["trunks"].as_array().unwrap().is_empty());
}

#[test]
fn trunks_that_are_reset_idle_or_under_load_leave_nothing_and_new_requests_work() {
    let _few = anabranch_net::testing::among_few();
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let (server, middle) = between(place);
    let client = paired(place, middle.address);
    let (echo, flood) = (origin(echo), origin(floods));
    let (socks, roles) = (client.address("socks"), [&server, &client]);
    let trunks = |role: &Role| role.status(place)["trunks"].as_array().unwrap().len();
    assert!(echoes(&mut connect_to(socks, echo)));
    let is_idle = || roles.iter().all(|role| role.status(place)["open_connections"] == 0);
    wait_until(20, || trunks(&client) == 2 && trunks(&server) == 2 && is_idle());
    let before = roles.map(|role| role.descriptors());
    for is_busy in [false, true, true] {
        let mut streams: Vec<TcpStream> = Vec::new();
        if is_busy {
            streams.extend((0..12).map(|_| connect_to(socks, flood)));
            streams.extend((0..12).map(|_| connect_to(socks, echo)));
            streams[..12].iter_mut().for_each(|stream| assert_eq!(read_some(stream, MIDDLE), MIDDLE));
            streams[12..].iter_mut().for_each(|stream| assert!(echoes(stream)));
        }
        let downs = || client.said("trunk").iter().filter(|line| line["up"] == false).count();
        let (known, there) = (downs(), trunks(&client));
        middle.reset_all();
        for mut stream in streams {
            let end = std::io::copy(&mut stream, &mut std::io::sink()).unwrap_err();
            assert_eq!(end.kind(), ErrorKind::ConnectionReset, "nobody takes a part for the whole");
        }
        // A request on a trunk whose reset is not known yet would be lost with it.
        wait_until(10, || downs() >= known + there);
        let clock = anabranch_net::Clock::start();
        assert!(echoes(&mut connect_to(socks, echo)));
        let took = clock.now().since(anabranch_algo::Time::ZERO);
        println!("busy: {is_busy}; the next request took {took:?}");
        assert!(took < anabranch_algo::Span::from_secs(2), "{took:?}");
        // All trunks were reset, so only the warm ones exist again.
        wait_until(20, || trunks(&client) == 2 && trunks(&server) == 2 && is_idle());
        let mut now = [0; 2];
        wait_until(20, || {
            now = roles.map(|role| role.descriptors());
            now.iter().zip(before).all(|(now, before)| *now <= before)
        });
        println!("descriptors at server and client: {before:?} before, {now:?} after");
    }
}
