//! A load generator and its origin, for measurements and soaks of proxies (`bench/proxy.py`).
//!
//! `load origin [listen=127.0.0.1:8080] [mptcp]` answers `GET /ID/BYTES` and `POST /ID/BYTES` of HTTP/1.1, on
//! any number of connections. `load get to=ADDR:PORT [more]` sends requests to it in a closed loop, checks
//! every byte, and prints the result as a line of JSON. With `seconds` it also prints `begins` and `ends`
//! when the measurement does, for programs that measure the CPU time of others:
//!
//! * `via=ADDR:PORT` connects by a SOCKS5 proxy; several, separated by `,`, are taken in turn.
//! * `workers=N` requests at a time; `count=N` requests in all, or `seconds=S` after `warm=S`.
//! * `bytes=N` of each answer, or a list separated by `,` to go through; `up` sends them instead.
//! * `keep`: each worker uses one connection. Without it each request has a new one.
//! * `spread=N`: the origin has N addresses from the given one on, and so has this program in 127.0.0.0/8, so
//!   that ports do not run out. On loopback only.
//! * `mptcp`: connects by MPTCP.
//! * `pause=MS`: each worker pauses for MS milliseconds between requests.
//! * `idle`: workers hold their connections after their first request, until standard input ends.
//! * `stall=S`: prints on standard error when nothing has moved on a connection for S seconds, and when it
//!   moves again.
//!
//! A body of identity I has at position P the byte at position (P + 7,919 I) of a fixed noise of 1,000,003
//! bytes, so that lost, doubled or swapped bytes and those of another connection are noticed.

#[path = "load/http.rs"]
mod http;

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anabranch_algo::{Span, SplitMix64, Time};
use anabranch_net::Clock;
use anabranch_proxy::socket::{Listener, SocketOptions, connect};
use http::Http;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The length of the noise in bytes. It is a prime, so that no piece or buffer divides it.
const NOISE_BYTES: usize = 1_000_003;
/// The most bytes that are read or written at once.
const PIECE_BYTES: usize = 256 * 1024;
/// The longest time of a request; a longer one has failed.
const LIMIT: Duration = Duration::from_secs(120);
/// The most bytes of the head of a request or an answer.
const HEAD_BYTES_MAX: usize = 1_024;
/// The most durations that are kept; more are only counted.
const TIMES_MAX: usize = 4_000_000;

/// The noise twice in a row, so that a piece that begins anywhere is one slice.
struct Noise(Vec<u8>);

impl Noise {
    fn new() -> Self {
        let mut rng = SplitMix64(1);
        let once: Vec<u8> = (0..NOISE_BYTES).map(|_| rng.bits() as u8).collect();
        Self([once.as_slice(), &once].concat())
    }

    fn at(&self, identity: u64, place: u64, len: usize) -> &[u8] {
        let from = (place.wrapping_add(identity.wrapping_mul(7_919)) % NOISE_BYTES as u64) as usize;
        &self.0[from..from + len]
    }
}

fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// Parses `GET /ID/BYTES HTTP/1.1`. Returns whether the body is the request's, its identity and its length.
fn parse_request(head: &str) -> Option<(bool, u64, u64)> {
    let mut words = head.split(' ');
    let is_up = match words.next()? {
        "GET" => false,
        "POST" => true,
        _ => return None,
    };
    let (identity, bytes) = words.next()?.strip_prefix('/')?.split_once('/')?;
    Some((is_up, identity.parse().ok()?, bytes.parse().ok()?))
}

async fn answer(stream: TcpStream, noise: Arc<Noise>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut http = Http::new(stream, None);
    while let Some(head) = http.head().await? {
        let (is_up, identity, bytes) = parse_request(&head).ok_or_else(|| wrong(head))?;
        if is_up {
            http.body(&noise, identity, bytes).await?;
        }
        let bytes = if is_up { 0 } else { bytes };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
        http.write(&head, &noise, identity, bytes).await?;
    }
    Ok(())
}

async fn serve(listen: SocketAddr, is_mptcp: bool) -> io::Result<()> {
    let noise = Arc::new(Noise::new());
    let (mptcp, tcp) = match is_mptcp {
        true => (Some(Listener::bind(listen, &SocketOptions::default())?), None),
        false => (None, Some(anabranch_proxy::socket::listen_tcp(listen)?)),
    };
    println!("listening");
    loop {
        let accepted = match (&mptcp, &tcp) {
            (Some(listener), _) => listener.accept().await.map(|(connection, _)| connection.stream),
            (_, Some(listener)) => listener.accept().await.map(|(stream, _)| stream),
            _ => return Ok(()),
        };
        let Ok(stream) = accepted else {
            sleep(Duration::from_millis(10)).await;
            continue;
        };
        let noise = Arc::clone(&noise);
        tokio::spawn(async move {
            if let Err(e) = answer(stream, noise).await
                && e.kind() == io::ErrorKind::InvalidData
            {
                eprintln!("{e}");
            }
        });
    }
}

/// The requests to make, and how.
#[derive(Clone, Debug)]
struct Plan {
    to: SocketAddr,
    via: Vec<SocketAddr>,
    sizes: Vec<u64>,
    is_up: bool,
    is_kept: bool,
    is_mptcp: bool,
    is_idle: bool,
    spread: u64,
    workers: u64,
    count: u64,
    seconds: u64,
    warm: u64,
    pause: Duration,
    stall: Option<Duration>,
}

/// Returns the address that is `by` higher.
fn moved(mut address: SocketAddr, by: u64) -> SocketAddr {
    if let IpAddr::V4(ip) = address.ip() {
        let number = ip.to_bits().wrapping_add(u32::try_from(by).unwrap_or(0));
        address.set_ip(std::net::Ipv4Addr::from_bits(number).into());
    }
    address
}

impl Plan {
    fn origin(&self, number: u64) -> SocketAddr {
        moved(self.to, number % self.spread)
    }

    async fn tcp(&self, to: SocketAddr, number: u64) -> io::Result<TcpStream> {
        if self.is_mptcp {
            return Ok(connect(to, &SocketOptions::default()).await?.stream);
        }
        let socket = TcpSocket::new_v4()?;
        if self.spread > 1 {
            socket.set_reuseaddr(true)?;
            let own = SocketAddr::from(([127, 0, (number % self.spread) as u8, 1], 0));
            socket.bind(own)?;
        }
        let stream = socket.connect(to).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Opens a connection to the origin, perhaps by SOCKS5, one step after the other as curl does.
    async fn open(&self, number: u64) -> io::Result<Http> {
        let origin = self.origin(number);
        let Some(via) = self.via.get((number % self.via.len().max(1) as u64) as usize) else {
            return Ok(Http::new(self.tcp(origin, number).await?, self.stall));
        };
        let mut stream = self.tcp(*via, number).await?;
        stream.write_all(&[5, 1, 0]).await?;
        let mut answer = [0; 2];
        stream.read_exact(&mut answer).await?;
        let IpAddr::V4(ip) = origin.ip() else { return Err(wrong("an origin without IPv4")) };
        let mut request = vec![5, 1, 0, 1];
        request.extend_from_slice(&ip.octets());
        request.extend_from_slice(&origin.port().to_be_bytes());
        stream.write_all(&request).await?;
        let mut answer = [0; 10];
        stream.read_exact(&mut answer).await?;
        match answer[1] {
            0 => Ok(Http::new(stream, self.stall)),
            code => Err(io::Error::other(format!("SOCKS5 says {code}"))),
        }
    }

    async fn ask(&self, http: &mut Http, noise: &Noise, identity: u64, bytes: u64) -> io::Result<()> {
        let (method, up, down) = if self.is_up { ("POST", bytes, 0) } else { ("GET", 0, bytes) };
        let head = format!("{method} /{identity}/{bytes} HTTP/1.1\r\nHost: origin\r\n\r\n");
        http.write(&head, noise, identity, up).await?;
        let head = http.head().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if !head.starts_with("HTTP/1.1 200") {
            return Err(wrong(head));
        }
        http.body(noise, identity, down).await
    }
}

#[derive(Debug, Default)]
struct Told {
    answered: u64,
    bytes: u64,
    failed: BTreeMap<String, u64>,
    times_us: Vec<u32>,
}

struct Run {
    plan: Plan,
    noise: Noise,
    clock: Clock,
    next: AtomicU64,
    told: Mutex<Told>,
}

impl Run {
    /// Returns when the measurement begins, after the warm-up.
    fn counts_from(&self) -> Time {
        Time::ZERO + Span::from_secs(self.plan.warm)
    }

    fn ends_at(&self) -> Time {
        self.counts_from() + Span::from_secs(self.plan.seconds)
    }

    fn note(&self, began: Time, bytes: u64, done: io::Result<()>) {
        let now = self.clock.now();
        let mut told = self.told.lock().expect("no panic");
        if let Err(e) = done {
            *told.failed.entry(e.to_string()).or_default() += 1;
        } else if now >= self.counts_from() && (self.plan.seconds == 0 || now <= self.ends_at()) {
            told.answered += 1;
            told.bytes += bytes;
            if told.times_us.len() < TIMES_MAX {
                told.times_us.push(u32::try_from(now.since(began).as_micros()).unwrap_or(u32::MAX));
            }
        }
    }

    async fn work(&self, worker: u64) {
        let mut kept: Option<Http> = None;
        loop {
            let identity = self.next.fetch_add(1, Ordering::Relaxed);
            let is_over = match self.plan.seconds {
                0 => identity >= self.plan.count,
                _ => self.clock.now() >= self.ends_at(),
            };
            if is_over {
                return;
            }
            let bytes = self.plan.sizes[(identity % self.plan.sizes.len() as u64) as usize];
            // A worker has one local address, so that it does not share ports with others.
            let once = async {
                if kept.is_none() {
                    kept = Some(self.plan.open(worker).await?);
                }
                let http = kept.as_mut().ok_or(io::ErrorKind::NotConnected)?;
                let began = if self.plan.is_kept { self.clock.now() } else { Time::ZERO };
                self.plan.ask(http, &self.noise, identity, bytes).await.map(|()| began)
            };
            let began = self.clock.now();
            let done = timeout(LIMIT, once).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            let is_done = done.is_ok();
            if let (Err(e), Some(_)) = (&done, self.plan.stall) {
                let port = kept.as_ref().map_or(0, |http| http.port);
                eprintln!("port {port}: request {identity} of {bytes} bytes failed: {e}");
            }
            // The time for opening does not count on a connection that is kept.
            let from = done.as_ref().map_or(began, |asked| began.max(*asked));
            self.note(from, bytes, done.map(drop));
            if !self.plan.is_kept || !is_done {
                kept = None;
            }
            if !self.plan.pause.is_zero() || !is_done {
                sleep(self.plan.pause.max(Duration::from_millis(if is_done { 0 } else { 10 }))).await;
            }
        }
    }

    async fn hold(&self, worker: u64) -> Option<Http> {
        let bytes = self.plan.sizes[0];
        let once = async {
            let mut http = self.plan.open(worker).await?;
            self.plan.ask(&mut http, &self.noise, worker, bytes).await?;
            Ok(http)
        };
        let began = self.clock.now();
        let done = timeout(LIMIT, once).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let (http, done) = match done {
            Ok(http) => (Some(http), Ok(())),
            Err(e) => (None, Err(e)),
        };
        self.note(began, bytes, done);
        http
    }

    fn told(&self) -> String {
        let mut told = self.told.lock().expect("no panic");
        told.times_us.sort_unstable();
        let at = |part: f64| {
            let place = (told.times_us.len() as f64 * part) as usize;
            told.times_us.get(place.min(told.times_us.len().saturating_sub(1))).copied().unwrap_or(0)
        };
        let took = self.clock.now().min(if self.plan.seconds == 0 { Time::NEVER } else { self.ends_at() });
        let took = took.since(self.counts_from()).as_nanos() as f64 / 1e9;
        let failed: Vec<String> = told.failed.iter().map(|(why, n)| format!("\"{why}\": {n}")).collect();
        format!(
            "{{\"answered\": {}, \"bytes\": {}, \"seconds\": {took:.3}, \"p50_us\": {}, \"p90_us\": {}, \
             \"p99_us\": {}, \"max_us\": {}, \"failed\": {{{}}}}}",
            told.answered,
            told.bytes,
            at(0.5),
            at(0.9),
            at(0.99),
            at(1.0),
            failed.join(", ")
        )
    }
}

async fn load(plan: Plan) {
    let clock = Clock::start();
    let run = Run { plan, noise: Noise::new(), clock, next: AtomicU64::new(0), told: Mutex::default() };
    let run = Arc::new(run);
    let workers = run.plan.workers;
    if run.plan.is_idle {
        let mut held = Vec::new();
        let mut tasks = JoinSet::new();
        for worker in 0..workers {
            let run = Arc::clone(&run);
            tasks.spawn(async move { run.hold(worker).await });
            // Only a few connections are opened at a time, because the held connections are measured.
            while tasks.len() >= 64 {
                held.extend(tasks.join_next().await.and_then(Result::ok).flatten());
            }
        }
        while let Some(done) = tasks.join_next().await {
            held.extend(done.ok().flatten());
        }
        println!("{}", run.told());
        io::stdout().flush().expect("written");
        // The only task of this thread is to wait for the end of its input.
        let _ = io::stdin().read_line(&mut String::new());
        return;
    }
    let mut tasks = JoinSet::new();
    for worker in 0..workers {
        let run = Arc::clone(&run);
        tasks.spawn(async move { run.work(worker).await });
    }
    if run.plan.seconds > 0 {
        sleep(Duration::from_secs(run.plan.warm)).await;
        println!("begins");
        sleep(Duration::from_secs(run.plan.seconds)).await;
        println!("ends");
    }
    while tasks.join_next().await.is_some() {}
    println!("{}", run.told());
}

/// The arguments `key=value` and `word`, in any order.
struct Args(BTreeMap<String, String>);

impl Args {
    fn has(&self, word: &str) -> bool {
        self.0.contains_key(word)
    }

    fn get<T: std::str::FromStr>(&self, key: &str, default: T) -> T {
        let Some(value) = self.0.get(key) else { return default };
        value.parse().unwrap_or_else(|_| panic!("{key}={value} makes no sense"))
    }

    fn list<T: std::str::FromStr>(&self, key: &str) -> Vec<T> {
        let values = self.0.get(key).map(String::as_str).unwrap_or_default().split(',');
        let values = values.filter(|value| !value.is_empty());
        values.map(|value| value.parse().unwrap_or_else(|_| panic!("{key}={value} makes no sense"))).collect()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let mut words = std::env::args().skip(1);
    let what = words.next().unwrap_or_default();
    let pair = |word: String| match word.split_once('=') {
        Some((key, value)) => (key.to_owned(), value.to_owned()),
        None => (word, String::new()),
    };
    let args = Args(words.map(pair).collect());
    let local: SocketAddr = "127.0.0.1:8080".parse().expect("an address");
    match what.as_str() {
        "origin" => serve(args.get("listen", local), args.has("mptcp")).await,
        "get" => {
            let sizes: Vec<u64> = args.list("bytes");
            let plan = Plan {
                to: args.get("to", local),
                via: args.list("via"),
                sizes: if sizes.is_empty() { vec![1_000] } else { sizes },
                is_up: args.has("up"),
                is_kept: args.has("keep"),
                is_mptcp: args.has("mptcp"),
                is_idle: args.has("idle"),
                spread: args.get("spread", 1).clamp(1, 200),
                workers: args.get("workers", 1),
                count: args.get("count", 1),
                seconds: args.get("seconds", 0),
                warm: args.get("warm", 0),
                pause: Duration::from_millis(args.get("pause", 0)),
                stall: args.has("stall").then(|| Duration::from_secs(args.get("stall", 10))),
            };
            load(plan).await;
            Ok(())
        }
        _ => Err(wrong("the first word is `origin` or `get`; the file's head says more")),
    }
}
