//! A client and a server over UDP on loopback, without privilege.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anabranch_mptcp_udp::{Client, Connection, Host, Link, Port, config};
use anabranch_net::Egress;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UdpSocket;
use tokio::time::{sleep, timeout};

const LONG: Duration = Duration::from_secs(10);

/// Starts a server on a free port. Datagrams without a segment are counted.
fn server() -> (Host, SocketAddr, tokio::sync::mpsc::UnboundedReceiver<usize>) {
    let port = Arc::new(Port::bind("127.0.0.1:0".parse().unwrap()).unwrap());
    let host = Host::new(config(), [2; 32], Arc::<Port>::clone(&port));
    let address = port.local_addr();
    host.listen(address.port());
    let (tell, told) = tokio::sync::mpsc::unbounded_channel();
    let (runs, receives) = (host.clone(), host.clone());
    tokio::spawn(async move { runs.run().await });
    tokio::spawn(async move {
        let other = |received: &anabranch_net::Received<'_>| {
            let _ = tell.send(received.bytes.len());
        };
        port.receive(&receives, other).await;
    });
    (host, address, told)
}

/// Starts a client with a link at each of the addresses 127.0.0.1, 127.0.0.2 and so on.
fn client(links: u8) -> Client {
    let link = |n| Link { egress: Egress::of_address([127, 0, 0, n].into()), is_backup: false };
    let client = Client::new(config(), &(1..=links).map(link).collect::<Vec<_>>(), [1; 32]).unwrap();
    let host = client.host().clone();
    tokio::spawn(async move { host.run().await });
    client
}

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9e37_79b9).wrapping_add(seed) >> 8) as u8).collect()
}

/// Waits until a connection has this number of subflows.
async fn has_subflows(connection: &Connection, count: usize) {
    let up = || connection.subflows().iter().filter(|subflow| subflow.is_up).count();
    while up() != count {
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_has_a_subflow_for_each_link_and_carries_both_directions() {
    let (host, address, _told) = server();
    let client = client(2);
    let connecting = timeout(LONG, client.connect(0, address));
    let (near, far) = tokio::join!(connecting, timeout(LONG, host.accept()));
    let (mut near, mut far) = (near.unwrap().unwrap(), far.unwrap());
    // Further subflows are made once each end has seen that options of the other one pass.
    let mut greeting = [0; 5];
    near.write_all(b"hello").await.unwrap();
    far.read_exact(&mut greeting).await.unwrap();
    far.write_all(&greeting).await.unwrap();
    near.read_exact(&mut greeting).await.unwrap();
    timeout(LONG, has_subflows(&near, 2)).await.unwrap();
    let own: Vec<_> = near.subflows().iter().map(|subflow| subflow.local.ip().to_string()).collect();
    assert_eq!(own, ["127.0.0.1", "127.0.0.2"]);
    let (up, down) = (pattern(3_000_000, 1), pattern(5_000_000, 2));
    let exchange = |connection: Connection, out: Vec<u8>| async move {
        let (mut reader, mut writer) = tokio::io::split(connection);
        let writing = tokio::spawn(async move {
            writer.write_all(&out).await.unwrap();
            writer.shutdown().await.unwrap();
            writer
        });
        let mut read = Vec::new();
        reader.read_to_end(&mut read).await.unwrap();
        drop(writing.await.unwrap());
        read
    };
    let (near, far) = tokio::join!(
        tokio::spawn(timeout(LONG, exchange(near, up.clone()))),
        tokio::spawn(timeout(LONG, exchange(far, down.clone())))
    );
    assert!(near.unwrap().unwrap() == down && far.unwrap().unwrap() == up);
}

#[tokio::test]
async fn a_program_that_goes_is_seen_and_one_that_writes_too_much_waits() {
    let (host, address, _told) = server();
    let client = client(1);
    let (near, far) = tokio::join!(client.connect(0, address), host.accept());
    let (mut near, mut far) = (near.unwrap(), far);
    // Nobody reads, so the windows fill.
    let block = vec![7; 1 << 20];
    let written = timeout(Duration::from_millis(500), async {
        loop {
            near.write_all(&block).await.unwrap();
        }
    });
    assert!(written.await.is_err(), "the writer waits");
    let mut some = vec![0; 1 << 20];
    far.read_exact(&mut some).await.unwrap();
    assert!(some == block);
    drop(near);
    // What was written comes, and then the end.
    let mut rest = Vec::new();
    timeout(LONG, far.read_to_end(&mut rest)).await.unwrap().unwrap();
    assert!(rest.len() > 1 << 20 && rest.iter().all(|byte| *byte == 7));
}

#[tokio::test]
async fn nobody_there_is_no_connection_and_other_datagrams_are_handed_on() {
    let (_host, address, mut told) = server();
    let stranger = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    stranger.send_to(b"hello", address).await.unwrap();
    assert_eq!(timeout(LONG, told.recv()).await.unwrap(), Some(5));
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let client = client(1);
    let connected =
        timeout(Duration::from_millis(300), client.connect(0, silent.local_addr().unwrap())).await;
    assert!(connected.is_err(), "no answer");
}

/// Returns a datagram with a segment of these flags, without options.
fn datagram(flags: u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    (bytes[0], bytes[12], bytes[13]) = (0x51, 5 << 4, flags);
    bytes
}

#[tokio::test]
async fn an_address_that_has_proven_nothing_gets_fewer_bytes_than_came_from_it() {
    let (host, address, _told) = server();
    let stranger = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    stranger.connect(address).await.unwrap();
    let mut buffer = [0; 2_048];
    // A SYN that is too short has no answer; one that is long enough has a short one, again and again.
    stranger.send(&datagram(2, 1_000)).await.unwrap();
    assert!(timeout(Duration::from_millis(100), stranger.recv(&mut buffer)).await.is_err());
    stranger.send(&datagram(2, 1_352)).await.unwrap();
    let mut got = 0;
    while let Ok(len) = timeout(Duration::from_millis(1_200), stranger.recv(&mut buffer)).await {
        got += len.unwrap();
        if got > 60 {
            break;
        }
    }
    // With the headers of IP and UDP, 13 such answers are fewer bytes than the SYN.
    assert!((40..100).contains(&got), "{got} bytes");
    // A segment of no connection is answered by a reset, which is no longer.
    let other = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    other.connect(address).await.unwrap();
    other.send(&datagram(16, 20)).await.unwrap();
    assert_eq!(timeout(LONG, other.recv(&mut buffer)).await.unwrap().unwrap(), 20);
    assert_eq!(host.displaced(address.port()), 0);
}
