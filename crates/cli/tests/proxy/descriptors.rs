//! Tests of `anabranch proxy` when it runs out of descriptors: it reports that, keeps its connections, and
//! continues when some are free again.
#![cfg(target_os = "linux")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use crate::common::wait_until;
use crate::roles::{
    LONG, Role, client_command, connect_to, echo, echoes, limited, origin, own, server_command, v4,
};
use nix::sys::signal::Signal;

/// The limit on descriptors of the role under test.
const DESCRIPTORS: u32 = 128;
/// A number of connections that is above what the limit allows.
const TOO_MANY: usize = 200;
/// The time without an answer after which a connection counts as not served.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns those of the connections that echo now.
fn alive(streams: Vec<TcpStream>) -> Vec<TcpStream> {
    let keeps = |stream: &mut TcpStream| {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        echoes(stream)
    };
    streams.into_iter().filter_map(|mut stream| keeps(&mut stream).then_some(stream)).collect()
}

/// Returns the processor time that a role takes in a second without requests.
fn idle_cpu(role: &Role) -> Duration {
    let before = role.cpu();
    sleep(Duration::from_secs(1));
    role.cpu() - before
}

fn is_quiet(role: &Role) {
    let cpu = idle_cpu(role);
    println!("{cpu:?} of a processor in a second without descriptors");
    assert!(cpu < Duration::from_millis(150), "it turns in circles: {cpu:?}");
}

#[test]
fn a_server_without_descriptors_refuses_what_is_new_and_serves_again_when_some_are_free() {
    let _few = anabranch_net::testing::among_few();
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let server = Role::start(&mut limited(&server_command(place, &[]), DESCRIPTORS), 1);
    let to = server.address("trunks").to_owned();
    let client = Role::start(&mut client_command(place, &to, &[]), 1);
    let (socks, origin) = (client.address("socks"), origin(echo));
    let mut first = connect_to(socks, origin);
    assert!(echoes(&mut first));

    let all: Vec<_> = (0..TOO_MANY).map(|_| connect_to(socks, origin)).collect();
    let kept = alive(all);
    println!("{} of {TOO_MANY} with {DESCRIPTORS} descriptors", kept.len());
    assert!((20..DESCRIPTORS as usize).contains(&kept.len()), "{}", kept.len());
    is_quiet(&server);
    assert_eq!(server.notices("descriptors"), 1, "it is said once: {:?}", server.said("notice"));
    // The refused programs' reports name the busy server as the reason.
    let refused = server.said("connection");
    let busy = refused
        .iter()
        .filter(|line| line["error"].as_str().is_some_and(|why| why.contains("descriptors")))
        .count();
    assert!(busy >= TOO_MANY - kept.len(), "{busy}: {:?}", refused.last());

    // Another client is admitted.
    let other = Role::start(&mut client_command(place, &to, &[]), 1);
    // The other client has two trunks before descriptors are counted, and keeps them.
    wait_until(10, || other.said("trunk").len() >= 2);
    let trunks = other.said("trunk");
    assert!(trunks.iter().all(|trunk| trunk["up"].as_bool().unwrap()), "{trunks:?}");
    assert!(echoes(&mut first), "those that are there go on");
    let mut kept = alive(kept);
    let count = kept.len();
    let open = || std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count();
    let before = open();
    // The freed descriptors are for eight streams and for the trunks that the other client opens for them.
    kept.truncate(count - 20);
    wait_until(10, || open() + 20 <= before);
    for client in [&client, &other] {
        let again: Vec<_> = (0..4).map(|_| connect_to(client.address("socks"), origin)).collect();
        assert_eq!(alive(again).len(), 4, "new ones are served");
    }
    assert_eq!(alive(kept).len(), count - 20);
}

#[test]
fn a_client_without_descriptors_lets_programs_wait_and_outlives_a_restart_of_its_server() {
    let _few = anabranch_net::testing::among_few();
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let mut server = Role::start(&mut server_command(place, &[]), 1);
    let to = server.address("trunks").to_owned();
    let client = Role::start(&mut limited(&client_command(place, &to, &[]), DESCRIPTORS), 1);
    let (socks, origin) = (client.address("socks"), origin(echo));
    let mut kept: Vec<TcpStream> = Vec::new();
    // A waiting program has only the kernel's connection, and gets no answer.
    let (mut waiting, mut is_full) = (Vec::new(), false);
    for _ in 0..TOO_MANY {
        if is_full {
            waiting.push(TcpStream::connect(socks).unwrap());
            continue;
        }
        match ask_within(socks, origin) {
            Some(stream) => kept.push(stream),
            None => is_full = true,
        }
    }
    println!("{} of {TOO_MANY} with {DESCRIPTORS} descriptors", kept.len());
    assert!((20..DESCRIPTORS as usize).contains(&kept.len()), "{}", kept.len());
    is_quiet(&client);
    assert_eq!(client.notices("descriptors"), 1, "it is said once: {:?}", client.said("notice"));
    let mut kept = alive(kept);
    let count = kept.len();

    // Waiting programs are served as soon as others end.
    kept.truncate(count - 4);
    for stream in &mut waiting[..3] {
        assert!(greets(stream), "it has waited long enough");
    }
    assert_eq!(alive(kept).len(), count - 4);
    drop(waiting);

    // Programs do not take the descriptors that a new trunk needs.
    let held: Vec<_> = (0..TOO_MANY).map(|_| TcpStream::connect(socks).unwrap()).collect();
    sleep(Duration::from_millis(500));
    let port = to.rsplit(':').next().unwrap();
    server.signal(Signal::SIGKILL);
    wait_until(10, || client.said("trunk").iter().any(|line| line["up"] == false));
    let up = |client: &Role| client.said("trunk").iter().filter(|line| line["up"] == true).count();
    let before = up(&client);
    let server = Role::start(&mut server_at(place, port), 1);
    wait_until(10, || up(&client) > before);
    drop(held);
    sleep(Duration::from_millis(300));
    assert!(echoes(&mut connect_to(socks, origin)));
    drop(server);
}

/// Returns the command of the same server at this port.
fn server_at(place: &Path, port: &str) -> Command {
    let listen = format!("127.0.0.1:{port}");
    let args = ["proxy", "server", "--plain", "--from", "127.0.0.0/8", "--listen", &listen, "--json"];
    own(place, &[&args[..], &["--allow", "127.0.0.1"]].concat())
}

/// Opens a connection that echoes. Returns `None` if that takes too long.
fn ask_within(socks: &str, origin: SocketAddr) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(socks).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&[5, 1, 0, 5, 1, 0]).unwrap();
    stream.write_all(&v4(origin)).unwrap();
    stream.write_all(&origin.port().to_be_bytes()).unwrap();
    stream.read_exact(&mut [0; 12]).ok()?;
    echoes(&mut stream).then_some(stream)
}

/// Whether a program that has only connected gets an answer.
fn greets(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(&[5, 1, 0]).unwrap();
    stream.read_exact(&mut [0; 2]).is_ok()
}
