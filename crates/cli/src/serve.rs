//! `anabranch serve`: offers files and directories until Ctrl-C.
//!
//! First the sockets are bound, so that a port in use is noticed before anything is hashed; then the catalog
//! is built; then each socket gets a thread, HTTP another, and this one prints counters.

mod counts;
mod http;
mod limit;
mod socket;

use std::io::{self, IsTerminal as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use algo::Span;
use net::{Clock, Interest, Poller, RecvBuffers, RecvOutcome, Udp, WakeReceiver};
use serde::Serialize;

use crate::args::{PORT, Serve};
use crate::catalog::{Builder, Catalog};
use crate::exit::{Failure, Outcome};
use crate::host::{secret, stop_signals};
use crate::names::{hidden_warning, show};
use crate::view::{Lines, bytes, duration, rate};
use anabranch_http::server::{RunningServer, Server};
use counts::Counts;
use http::Offers;
use limit::Limit;
use socket::{Shared, Socket};

/// Sources that a URI names at most; a host may have many addresses.
const FROM_MAX: usize = 8;
/// Between two reports.
const REPORT: Span = Span::from_secs(1);
/// Reports between two plain lines where there is no terminal.
const PLAIN_EVERY: u64 = 60;

/// Serves what `args` say.
///
/// # Errors
/// If a socket cannot be bound or a path not be read.
pub fn serve(args: &Serve) -> Outcome {
    let clock = Clock::start();
    let (wake, stop) = stop_signals().map_err(system)?;
    let sockets = listen(&args.listen)?;
    let http = http::listen(&args.http)?;
    let Some(catalog) = build(args, clock, &stop)? else { return Ok(()) };
    let catalog = Arc::new(catalog);
    let limit = Arc::new(Limit::new(args.limit));
    let addresses: Vec<SocketAddr> = sockets.iter().map(Udp::local_addr).collect();
    let from = reachable(&addresses);
    // Before anybody is told the address.
    drop_stale(&sockets);
    let http = http.map(|server| (server, Offers::new(&catalog, &limit, clock, addresses.clone())));
    announce(args, &catalog, &addresses, &from, http.as_ref());
    // Those who came while files were being hashed have waited.
    let mut http = http.map(|(server, offers)| server.start(offers)).transpose().map_err(system)?;

    let shared = Shared { catalog: &catalog, clock, limit: &limit, stop: &stop };
    let secret = secret()?;
    let all: Vec<Mutex<Counts>> = sockets.iter().map(|_| Mutex::default()).collect();
    let wakes =
        sockets.iter().map(|_| WakeReceiver::new()).collect::<io::Result<Vec<_>>>().map_err(system)?;
    let main = wake.waker();
    thread::scope(|scope| {
        let threads: Vec<_> = sockets
            .iter()
            .zip(&all)
            .zip(&wakes)
            .map(|((udp, counts), woken)| {
                let (socket, main, stop) = (Socket::new(&shared, udp, secret), main.clone(), &stop);
                scope.spawn(move || {
                    socket.run(woken, counts).inspect_err(|_| {
                        stop.store(true, Ordering::Relaxed);
                        main.wake();
                    })
                })
            })
            .collect();
        let start = clock.now();
        report(args, clock, &wake, &stop, || sum(&all, http.as_ref()));
        stop.store(true, Ordering::Relaxed);
        http.iter_mut().for_each(RunningServer::stop);
        wakes.iter().for_each(|wake| wake.waker().wake());
        for (thread, udp) in threads.into_iter().zip(&sockets) {
            if let Ok(Err(e)) = thread.join() {
                return Err(Failure::other(format!("the socket {} failed: {e}", udp.local_addr())));
            }
        }
        totals(args, clock.now().since(start), &sum(&all, http.as_ref()));
        Ok(())
    })
}

fn system(error: io::Error) -> Failure {
    Failure::other(format!("the system does not play along: {error}"))
}

/// Binds what was asked for; by default the usual port of every address, without IPv6 where there is none.
fn listen(addresses: &[SocketAddr]) -> Outcome<Vec<Udp>> {
    let refused = |e: io::Error| {
        Failure::other(match e.kind() {
            io::ErrorKind::AddrInUse => {
                format!("{e}: is another source running? Choose another port with --listen ADDR:PORT")
            }
            io::ErrorKind::AddrNotAvailable => format!("{e}: this machine has no such address"),
            io::ErrorKind::PermissionDenied => format!("{e}: ports below 1024 need privileges"),
            _ => e.to_string(),
        })
    };
    if !addresses.is_empty() {
        return addresses.iter().map(|address| Udp::listen(*address).map_err(refused)).collect();
    }
    let v4 = Udp::listen((Ipv4Addr::UNSPECIFIED, PORT).into()).map_err(refused)?;
    match Udp::listen((Ipv6Addr::UNSPECIFIED, PORT).into()) {
        Ok(v6) => Ok(vec![v4, v6]),
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => Err(refused(e)),
        Err(_) => Ok(vec![v4]),
    }
}

/// Hashes, with progress; `None` if it was interrupted.
fn build(args: &Serve, clock: Clock, stop: &Arc<AtomicBool>) -> Outcome<Option<Catalog>> {
    let builder = if args.no_cache { Builder::default() } else { Builder::cached() };
    let quiet = args.quiet || args.json;
    let mut lines = Lines::default();
    let (result, warnings) = thread::scope(|scope| {
        let worker = scope.spawn(|| builder.build(&args.paths));
        let start = clock.now();
        // Short naps at first: most catalogs are ready at once.
        let mut nap = Span::from_millis(1);
        while !worker.is_finished() {
            clock.sleep_until(clock.now() + nap);
            nap = nap.times(2).min(Span::from_millis(100));
            builder.stop.store(stop.load(Ordering::Relaxed), Ordering::Relaxed);
            let passed = clock.now().since(start);
            if !quiet && passed > Span::from_millis(300) {
                lines.draw(&[progress(&builder, passed)]);
            }
        }
        lines.draw(&[]);
        let result = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (result, builder.warnings())
    });
    for warning in warnings {
        eprintln!("anabranch: {warning}");
    }
    if stop.load(Ordering::Relaxed) { Ok(None) } else { result.map(Some) }
}

fn progress(builder: &Builder, passed: Span) -> String {
    let total = builder.total_bytes.load(Ordering::Relaxed);
    let done = builder.hashed_bytes.load(Ordering::Relaxed);
    let pace = algo::Rate::of(done, passed).as_bytes();
    let mut line = format!("hashing: {} of {}  {}/s", bytes(done), bytes(total), bytes(pace));
    if pace > 0 {
        line += &format!("  {} left", duration(total.saturating_sub(done) as f64 / pace as f64));
    }
    line
}

/// Addresses under which receivers may reach these sockets: for a wildcard, those of this machine that are of
/// use outside; for a machine without any, loopback.
fn reachable(sockets: &[SocketAddr]) -> Vec<String> {
    let interfaces = net::interfaces().unwrap_or_default();
    let mut from = Vec::new();
    let mut loopback = Vec::new();
    for local in sockets {
        if !local.ip().is_unspecified() {
            from.push(local.to_string());
            continue;
        }
        for interface in interfaces.iter().filter(|interface| interface.up) {
            for ip in interface.addresses.iter().filter(|ip| ip.is_ipv4() == local.is_ipv4()) {
                let text = SocketAddr::new(*ip, local.port()).to_string();
                if interface.loopback || ip.is_loopback() {
                    loopback.push(text);
                } else if !is_link_local(ip) {
                    from.push(text);
                }
            }
        }
    }
    if from.is_empty() {
        from = loopback;
    }
    from.truncate(FROM_MAX);
    from
}

const fn is_link_local(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event<'a> {
    Offer {
        uri: String,
        content: String,
        length: u64,
        path: String,
        collection: bool,
        /// Where the same is by HTTP.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        http: Vec<String>,
    },
    Listening {
        addresses: Vec<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        http: Vec<String>,
    },
    Counters(&'a Counts),
    Totals(&'a Counts),
}

/// One line on standard output, flushed. A reader that has gone away does not end the service.
fn say(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn say_json(event: &Event<'_>) {
    if let Ok(text) = serde_json::to_string(event) {
        say(&text);
    }
}

fn announce(
    args: &Serve,
    catalog: &Catalog,
    sockets: &[SocketAddr],
    from: &[String],
    http: Option<&(Server, Offers)>,
) {
    if from.iter().all(|from| is_loopback(from)) && sockets.iter().any(|socket| socket.ip().is_unspecified())
    {
        eprintln!(
            "anabranch: no interface but loopback is up: the URIs name this machine's own addresses; \
             name one with --listen, or give receivers --from"
        );
    }
    for group in catalog.offers().chunk_by(|a, b| a.named == b.named).filter(|_| http.is_some()) {
        // A directory comes after its files.
        let Some((directory, files)) = group.split_last().filter(|(last, _)| last.collection) else {
            continue;
        };
        let files = files.iter().map(|offer| &offer.relative[..]);
        if let Some(warning) = hidden_warning(&directory.path, files) {
            eprintln!("anabranch: {warning}");
        }
    }
    // People get one URL for each --http.
    let by_http = http.map_or(&[][..], |(server, _)| server.addresses());
    let hosts: Vec<Vec<String>> = by_http.iter().map(|address| reachable(&[*address])).collect();
    let each = if args.json { FROM_MAX } else { 1 };
    let hosts: Vec<&String> = hosts.iter().flat_map(|hosts| hosts.iter().take(each)).collect();
    // A directory before what is in it: most want the whole.
    let whole = catalog.offers().iter().filter(|offer| offer.collection);
    let files = catalog.offers().iter().filter(|offer| !offer.collection);
    let mut example = None;
    for offer in whole.chain(files) {
        let uri = offer.uri(from).to_string();
        let urls = |(_, offers): &(_, Offers)| {
            hosts.iter().map(|host| offers.url(offer.index(), host)).collect::<Vec<String>>()
        };
        let http = http.map(urls).unwrap_or_default();
        if args.json {
            say_json(&Event::Offer {
                uri,
                content: offer.id.to_string(),
                length: offer.id.length,
                path: show(&offer.path),
                collection: offer.collection,
                http,
            });
        } else {
            say(&uri);
            http.iter().for_each(|url| say(url));
            example = example.or(http.into_iter().next().filter(|_| !offer.collection));
        }
    }
    let text = |addresses: &[SocketAddr]| addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>();
    let (addresses, http) = (text(sockets), text(by_http));
    if args.json {
        say_json(&Event::Listening { addresses, http });
    } else if !args.quiet {
        let what = match catalog.offers().len() {
            1 => "1 offer".into(),
            n => format!("{n} offers"),
        };
        let by_http = match http.is_empty() {
            true => String::new(),
            false => format!(", by HTTP at {}", http.join(" and ")),
        };
        eprintln!("{what} at {}{by_http}; Ctrl-C ends it", addresses.join(" and "));
        eprintln!("Fetch with: anabranch get 'URI' (in quotes: it contains & and ?)");
        if let Some(url) = example {
            eprintln!("        or: curl -O {url}");
        }
    }
}

fn is_loopback(address: &str) -> bool {
    address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback())
}

/// Drops what came in while files were being hashed: whoever asked has given up or will ask again.
fn drop_stale(sockets: &[Udp]) {
    let mut buffers = RecvBuffers::new();
    for udp in sockets {
        for _ in 0..1_000 {
            if !matches!(udp.recv(&mut buffers, |_| ()), Ok(RecvOutcome::Received { .. })) {
                break;
            }
        }
    }
}

/// Prints counters until the stop flag is set.
fn report(args: &Serve, clock: Clock, wake: &WakeReceiver, stop: &AtomicBool, sum: impl Fn() -> Counts) {
    let mut poller = Poller::new(clock);
    let mut lines = Lines::default();
    let terminal = io::stderr().is_terminal();
    let start = clock.now();
    let (mut last, mut last_at) = (Counts::default(), start);
    let mut next = start + REPORT;
    let mut turn = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        if poller.wait([(wake.as_fd(), Interest::Read)], next).is_err() {
            clock.sleep_until(next);
        }
        wake.drain();
        let now = clock.now();
        if now < next {
            continue;
        }
        next = now + REPORT;
        turn += 1;
        let counts = sum();
        let pace = algo::Rate::of(counts.all_bytes() - last.all_bytes(), now.since(last_at)).as_bytes();
        if args.json {
            say_json(&Event::Counters(&counts));
        } else if !args.quiet && terminal {
            lines.draw(&picture(&counts, pace));
        } else if !args.quiet && turn.is_multiple_of(PLAIN_EVERY) && counts.all_requests() > 0 {
            picture(&counts, pace).iter().for_each(|line| lines.print(line));
        }
        (last, last_at) = (counts, now);
    }
    lines.draw(&[]);
}

/// The counters of all sockets and of HTTP together.
fn sum(all: &[Mutex<Counts>], http: Option<&RunningServer>) -> Counts {
    let mut sum = Counts::default();
    if let Some(http) = http {
        sum.set_http(&http.counters());
    }
    for counts in all {
        sum.add(&counts.lock().unwrap_or_else(PoisonError::into_inner));
    }
    sum
}

/// What was sent in all, once every socket has ended.
fn totals(args: &Serve, passed: Span, counts: &Counts) {
    if args.json {
        say_json(&Event::Totals(counts));
    } else if !args.quiet {
        let mut lines = Lines::default();
        let passed = passed.as_millis() as f64 / 1e3;
        lines.print(&format!(
            "sent {} in {} packets for {} requests in {}",
            bytes(counts.sent_bytes),
            counts.sent_packets,
            counts.requests,
            duration(passed)
        ));
        if counts.http_requests > 0 {
            let sent = bytes(counts.http_bytes);
            lines.print(&format!("sent {sent} for {} requests by HTTP", counts.http_requests));
        }
        let troubles = counts.troubles();
        if !troubles.is_empty() {
            lines.print(&troubles);
        }
    }
}

fn picture(counts: &Counts, pace: u64) -> Vec<String> {
    let mut line = format!(
        "{}  {} sent  {} requests  {} in the last minute",
        rate(pace),
        bytes(counts.all_bytes()),
        counts.all_requests(),
        match counts.peers {
            1 => "1 address".into(),
            n => format!("{n} addresses"),
        }
    );
    match counts.http_connections {
        0 => {}
        1 => line += ", 1 HTTP connection",
        n => line += &format!(", {n} HTTP connections"),
    }
    let mut lines = vec![line];
    let troubles = counts.troubles();
    if !troubles.is_empty() {
        lines.push(troubles);
    }
    lines
}
