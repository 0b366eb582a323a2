//! Measures one long stream and many short ones over a trunk on loopback, plain and in TLS: the upper limit
//! of everything that uses trunks. Run it with `cargo run --release -p anabranch-proxy --example
//! trunk_ceiling`.

use anabranch_algo::{Span, Time};
use anabranch_net::Clock;
use anabranch_proxy::keys::{Clients, KeyPair, Pairing};
use anabranch_proxy::socket::{Listener, SocketOptions, connect};
use anabranch_proxy::tls::{ALPN, ClientTls, ServerTls};
use anabranch_proxy::trunk::{Destination, Settings, Side};
use anabranch_proxy::trunk_task::{TrunkHandle, start};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};

const BULK_BYTES: usize = 1 << 30;
const SHORT: usize = 20_000;
const AT_ONCE: usize = 100;

/// Returns the processor time of this process in seconds.
fn cpu_s() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = text.rsplit(')').next().unwrap_or_default();
    let ticks: Vec<f64> = after.split_whitespace().skip(11).take(2).filter_map(|t| t.parse().ok()).collect();
    ticks.iter().sum::<f64>() / 100.0
}

fn seconds(span: Span) -> f64 {
    span.as_nanos() as f64 / 1e9
}

fn begin<S>(connection: S, side: Side) -> TrunkHandle
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (trunk, task) = start(connection, side, Settings::default());
    tokio::spawn(task);
    trunk
}

/// Runs the server's part: answers with a gigabyte at port 1, with a kilobyte at others.
async fn serve(server: TrunkHandle) {
    let block = Bytes::from(vec![7; 256 * 1024]);
    while let Some(accepted) = server.accept().await {
        let block = block.clone();
        tokio::spawn(async move {
            let _ = accepted.stream.read(1_000).await;
            let mut left = if accepted.destination.port() == 1 { BULK_BYTES } else { 1_000 };
            while left > 0 {
                let piece = block.slice(..left.min(block.len()));
                left -= piece.len();
                if accepted.stream.write_all(piece).await.is_err() {
                    return;
                }
            }
            accepted.stream.finish();
        });
    }
}

async fn fetch(trunk: &TrunkHandle, port: u16) -> usize {
    let to: Destination = format!("origin.example:{port}").parse().expect("a destination");
    let stream = trunk.open(to, false).expect("a stream");
    stream.write_all(Bytes::from_static(&[1; 300])).await.expect("a request");
    stream.finish();
    let mut bytes = 0;
    while let Some(piece) = stream.read(256 * 1024).await.expect("bytes") {
        bytes += piece.len();
    }
    bytes
}

async fn measure(name: &str, client: TrunkHandle, server: TrunkHandle) {
    tokio::spawn(serve(server));
    client.hello().await.expect("HELLO");
    let clock = Clock::start();
    let (began, cpu) = (clock.now(), cpu_s());
    assert_eq!(fetch(&client, 1).await, BULK_BYTES);
    let (took, cpu) = (seconds(clock.now().since(began)), cpu_s() - cpu);
    let gigabytes = BULK_BYTES as f64 / 1e9;
    println!("{name}: {:.2} Gbit/s, {:.2} CPU s/GB (both ends)", gigabytes * 8.0 / took, cpu / gigabytes);

    let mut times: Vec<Span> = Vec::new();
    for _ in 0..1_000 {
        let began: Time = clock.now();
        fetch(&client, 2).await;
        times.push(clock.now().since(began));
    }
    times.sort_unstable();
    let (began, cpu) = (clock.now(), cpu_s());
    let worker = |client: TrunkHandle| async move {
        for _ in 0..SHORT / AT_ONCE {
            fetch(&client, 2).await;
        }
    };
    let workers: Vec<_> = (0..AT_ONCE).map(|_| tokio::spawn(worker(client.clone()))).collect();
    for worker in workers {
        worker.await.expect("a worker");
    }
    let (took, cpu) = (seconds(clock.now().since(began)), cpu_s() - cpu);
    println!(
        "{name}: 1 KB: alone p50 {} us, p99 {} us; {AT_ONCE} at once {:.0}/s, {:.1} CPU us each (both ends)",
        times[500].as_micros(),
        times[990].as_micros(),
        SHORT as f64 / took,
        cpu * 1e6 / SHORT as f64
    );
}

#[tokio::main]
async fn main() {
    let listener = Listener::bind("127.0.0.1:0".parse().expect("an address"), &SocketOptions::default())
        .expect("a listener");
    let address = listener.local_addr().expect("an address");
    let server = KeyPair::generate().expect("a key");
    let pairing = Pairing::new(server.public()).expect("a pairing");
    let list = format!("[[client]]\nname = \"c\"\nkey = \"{}\"\n", pairing.client.public());
    let (tls, client_tls) = (
        ServerTls::new(&server, Clients::parse(&list).expect("a list"), ALPN),
        ClientTls::new(&pairing, ALPN),
    );
    for is_tls in [false, true] {
        let options = SocketOptions::default();
        let (near, far) = tokio::join!(connect(address, &options), listener.accept());
        let (near, far) = (near.expect("a connection"), far.expect("a connection").0);
        let transport = near.transport;
        if is_tls {
            let (near, far) = tokio::join!(client_tls.connect(near.stream), tls.accept(far.stream));
            let (near, far) = (near.expect("TLS"), far.expect("TLS").0);
            measure(&format!("{transport:?}, TLS"), begin(near, Side::Client), begin(far, Side::Server))
                .await;
        } else {
            let (near, far) = (begin(near.stream, Side::Client), begin(far.stream, Side::Server));
            measure(&format!("{transport:?}, plain"), near, far).await;
        }
    }
}
