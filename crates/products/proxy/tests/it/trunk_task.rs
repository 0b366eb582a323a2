//! Tests of trunks over real sockets.

use std::time::Duration;

use anabranch_algo::Span;
use anabranch_proxy::trunk::{Destination, GoAwayReason, OpenError, Reason, Settings, Side, Transport};
use anabranch_proxy::trunk_task::{Accepted, End, TrunkHandle, start};
use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(20);

async fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap());
    let (near, far) = tokio::join!(near, listener.accept());
    (near.unwrap(), far.unwrap().0)
}

struct Ends {
    client: TrunkHandle,
    server: TrunkHandle,
    client_task: JoinHandle<End>,
    server_task: JoinHandle<End>,
}

async fn trunk() -> Ends {
    let (near, far) = connection().await;
    let settings = Settings { transport: Transport::Tcp, ..Settings::default() };
    let (client, client_task) = start(near, Side::Client, settings);
    let (server, server_task) = start(far, Side::Server, settings);
    let (client_task, server_task) = (tokio::spawn(client_task), tokio::spawn(server_task));
    Ends { client, server, client_task, server_task }
}

fn to(port: u16) -> Destination {
    format!("origin.example:{port}").parse().unwrap()
}

/// Sends back all bytes of a stream.
async fn echo(accepted: Accepted) {
    while let Ok(Some(bytes)) = accepted.stream.read(64 * 1024).await {
        if accepted.stream.write_all(bytes).await.is_err() {
            return;
        }
    }
    accepted.stream.finish();
}

fn serve(server: TrunkHandle) {
    tokio::spawn(async move {
        while let Some(accepted) = server.accept().await {
            tokio::spawn(echo(accepted));
        }
    });
}

async fn read_all(stream: &anabranch_proxy::trunk_task::Stream) -> Result<Vec<u8>, Reason> {
    let mut all = Vec::new();
    while let Some(bytes) = stream.read(usize::MAX).await? {
        all.extend_from_slice(&bytes);
    }
    Ok(all)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_streams_carry_their_bytes_and_the_trunk_ends_with_the_last() {
    let Ends { client, server, client_task, server_task } = trunk().await;
    serve(server);
    assert_eq!(client.hello().await, Ok(Transport::Tcp));
    let exchange = |n: usize| {
        let stream = client.open(to(80), false).unwrap();
        tokio::spawn(async move {
            let len = if n == 0 { 30_000_000 } else { n * 37 % 5_000 };
            let bytes: Bytes = (0..len).map(|at| (at * 7 + n) as u8).collect();
            let write = async {
                stream.write_all(bytes.clone()).await.unwrap();
                stream.finish();
            };
            let ((), read) = tokio::join!(write, read_all(&stream));
            assert!(read.unwrap() == bytes, "stream {n}");
        })
    };
    let exchanges: Vec<_> = (0..500).map(exchange).collect();
    for exchange in exchanges {
        timeout(LONG, exchange).await.unwrap().unwrap();
    }
    assert_eq!(client.load().open_streams, 0);
    drop(client);
    assert_eq!(timeout(LONG, client_task).await.unwrap().unwrap(), End::Closed);
    assert_eq!(timeout(LONG, server_task).await.unwrap().unwrap(), End::Closed);
}

#[tokio::test]
async fn a_client_that_wants_the_servers_word_gets_it_or_the_reason() {
    let Ends { client, server, .. } = trunk().await;
    let (good, bad) = (client.open(to(1), true).unwrap(), client.open(to(2), true).unwrap());
    for _ in 0..2 {
        let accepted = server.accept().await.unwrap();
        assert!(accepted.wants_reply);
        match accepted.destination.port() {
            1 => {
                accepted.stream.confirm("192.0.2.1:1".parse().unwrap());
                tokio::spawn(echo(accepted));
            }
            _ => accepted.stream.reset(Reason::Refused),
        }
    }
    assert_eq!(good.connected().await, Ok("192.0.2.1:1".parse().unwrap()));
    assert_eq!(bad.connected().await, Err(Reason::Refused));
    assert_eq!(bad.read(1).await, Err(Reason::Refused));
    assert_eq!(std::io::Error::from(Reason::Refused).kind(), std::io::ErrorKind::ConnectionRefused);
    // A dropped handle resets its stream, and the other end is told.
    good.write_all("x".into()).await.unwrap();
    assert_eq!(good.read(1).await, Ok(Some("x".into())));
    drop(good);
    let late = client.open(to(3), false).unwrap();
    let accepted = server.accept().await.unwrap();
    drop(late);
    assert_eq!(accepted.stream.read(1).await, Err(Reason::NoInterest));
}

#[tokio::test]
async fn who_waits_for_room_is_woken_as_the_other_end_reads() {
    let Ends { client, server, .. } = trunk().await;
    client.hello().await.unwrap();
    let stream = client.open(to(1), false).unwrap();
    let accepted = server.accept().await.unwrap();
    let mut written = 0;
    while let Ok(room) = timeout(Duration::from_millis(200), stream.room()).await {
        let room = room.unwrap();
        stream.write_all(vec![0; room].into()).await.unwrap();
        written += room;
    }
    assert_eq!(written, 256 * 1024, "the window, not more");
    let (room, first) = tokio::join!(stream.room(), async {
        let mut read = 0;
        while read < 128 * 1024 {
            read += accepted.stream.read(10_000).await.unwrap().unwrap().len();
        }
        read
    });
    assert!(room.unwrap() > 0 && first >= 128 * 1024);
}

#[tokio::test]
async fn a_trunk_that_dies_resets_its_streams() {
    let Ends { client, server, server_task, .. } = trunk().await;
    let stream = client.open(to(1), false).unwrap();
    let accepted = server.accept().await.unwrap();
    accepted.stream.write_all("all".into()).await.unwrap();
    accepted.stream.finish();
    let other = client.open(to(2), false).unwrap();
    let _other = server.accept().await.unwrap();
    // The answer to a ping follows the bytes, so the bytes have arrived.
    while client.load().rtt.is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    // Aborting the task acts as if the process was killed.
    server_task.abort();
    assert_eq!(timeout(LONG, other.read(1)).await.unwrap(), Err(Reason::TrunkGone));
    assert_eq!(accepted.stream.room().await, Err(Reason::TrunkGone));
    assert_eq!(read_all(&stream).await.as_deref(), Ok(&b"all"[..]), "what was whole is");
    assert_eq!(client.ended().await, End::Closed);
    assert_eq!(server.ended().await, End::Ended);
    assert!(server.accept().await.is_none());
    assert_eq!(client.open(to(1), false).unwrap_err(), OpenError::Closing);
}

#[tokio::test]
async fn a_peer_that_falls_silent_is_found_out() {
    let (near, _far) = connection().await;
    let settings = Settings { dead_after: Span::from_millis(1_500), ..Settings::default() };
    let (client, task) = start(near, Side::Client, settings);
    let stream = client.open(to(1), false).unwrap();
    let task = tokio::spawn(task);
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert!(client.load().is_suspect());
    assert_eq!(timeout(LONG, task).await.unwrap().unwrap(), End::Dead);
    assert_eq!(stream.read(1).await, Err(Reason::TrunkGone));
}

#[tokio::test]
async fn nonsense_is_answered_with_the_reason_and_the_end() {
    let (near, mut far) = connection().await;
    let (client, task) = start(near, Side::Client, Settings::default());
    let task = tokio::spawn(task);
    far.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    let End::Protocol(_) = timeout(LONG, task).await.unwrap().unwrap() else { panic!() };
    assert!(client.hello().await.is_err());
    let mut said = Vec::new();
    far.read_to_end(&mut said).await.unwrap();
    assert_eq!(said[said.len() - 9..], [8, 0, 0, 1, 0, 0, 0, 0, GoAwayReason::Protocol as u8]);
}

#[tokio::test]
async fn who_goes_away_lets_what_is_open_end() {
    let Ends { client, server, client_task, server_task } = trunk().await;
    let stream = client.open(to(1), false).unwrap();
    let accepted = server.accept().await.unwrap();
    server.go_away(GoAwayReason::Ends);
    while client.load().takes_streams {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(client.open(to(1), false).unwrap_err(), OpenError::Closing);
    tokio::spawn(echo(accepted));
    stream.write_all("still".into()).await.unwrap();
    stream.finish();
    assert_eq!(read_all(&stream).await.as_deref(), Ok(&b"still"[..]));
    drop(stream);
    assert_eq!(timeout(LONG, client_task).await.unwrap().unwrap(), End::GoAway(GoAwayReason::Ends));
    assert_eq!(timeout(LONG, server_task).await.unwrap().unwrap(), End::Closed);
}
