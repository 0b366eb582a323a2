//! Measures the cost of a forwarder with open and with keyed identifiers, and with marked packets: packets
//! per second of one core, compared with a bare relay.
//!
//! ```text
//! cargo run --release -p anabranch-network --example forwarding
//! ```
//!
//! A sender floods frames over loopback, single or in trains that the kernel splits (UDP GSO). The forwarder
//! or the relay sends them on to a sink. The result is the number of packets that it sent, divided by the CPU
//! time of its thread. The relay reads and sends the same trains unchanged.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use anabranch::network::MemberKey;
use anabranch::{Control, Stop};
use anabranch_algo::{Span, Time};
use anabranch_net::{Datagrams, RecvBuffers, Udp};
use anabranch_network::{self as network, Place, ServiceEvent};
use anabranch_overlay::dscp::Dscp;
use anabranch_overlay::frame;
use anabranch_overlay::seal::Sealer;
use anabranch_topology::plan::Policy;
use nix::time::{ClockId, clock_gettime};

const DOMAIN: &str = r#"
name = "bench"
class.c.dscp = 10
forwarders = ["r"]
[rendezvous]
node = "b"
port = 9001
[topology]
node = "b"
port = 9002
[[line]]
between = ["a", "r"]
addresses = ["127.91.200.1", "127.91.200.2"]
[[line]]
between = ["r", "b"]
addresses = ["127.91.200.3", "127.91.200.4"]
"#;

/// The bytes of a frame: an mmTP packet of cut 12 with its header.
const FRAME: usize = 1_424;
const SINK_PORT: u16 = 9_000;
const RELAY_PORT: u16 = 7_799;
const SECONDS: u64 = 3;

fn ip(host: u8) -> IpAddr {
    IpAddr::from([127, 91, 200, host])
}

/// Returns the CPU time of this thread.
fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock").into()
}

/// Floods `to` with trains of frames for [`SECONDS`].
fn flood(frame: &[u8], train: usize, to: SocketAddr) {
    let udp = Udp::listen(SocketAddr::new(ip(1), 40_000)).expect("a socket");
    let bytes = frame.repeat(train);
    let segment = (train > 1).then_some(frame.len());
    let end = cpu_end();
    while !end.load(Ordering::Relaxed) {
        let _ =
            udp.send(&Datagrams { to: Some(to), from_ip: None, bytes: &bytes, segment, ecn: false, dscp: 0 });
    }
}

/// Returns a flag that is set after [`SECONDS`].
fn cpu_end() -> Arc<AtomicBool> {
    let end = Arc::new(AtomicBool::new(false));
    let its = Arc::clone(&end);
    thread::spawn(move || {
        thread::sleep(Duration::from_secs(SECONDS));
        its.store(true, Ordering::Relaxed);
    });
    end
}

/// Starts a thread that receives and discards datagrams until `end` is set.
fn sink(end: &Arc<AtomicBool>) -> thread::JoinHandle<()> {
    let (end, udp) = (Arc::clone(end), Udp::listen(SocketAddr::new(ip(4), SINK_PORT)).expect("a socket"));
    thread::spawn(move || {
        let mut buffers = RecvBuffers::new();
        while !end.load(Ordering::Relaxed) {
            if !matches!(udp.recv(&mut buffers, |_| {}), Ok(anabranch_net::RecvOutcome::Received { .. })) {
                thread::sleep(Duration::from_micros(200));
            }
        }
    })
}

/// Measures packets per second of CPU time through the forwarder.
fn forwarder(place: &Place, frame: &[u8], train: usize) -> f64 {
    let (stop, end) = (Stop::new().expect("a stop"), Arc::new(AtomicBool::new(false)));
    let (place, its) = (place.clone(), stop.clone());
    let ready = Arc::new(AtomicBool::new(false));
    let listens = Arc::clone(&ready);
    let thread = thread::spawn(move || {
        let stats = network::forward(&place, None, &its, &mut |event| {
            if let ServiceEvent::Listening(_) = event {
                listens.store(true, Ordering::Relaxed);
            }
            Control::Continue
        });
        stats.expect("it forwards").forwarded as f64 / cpu().as_secs_f64()
    });
    while !ready.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(1));
    }
    let sink = sink(&end);
    flood(frame, train, SocketAddr::new(ip(2), 7_700));
    stop.stop();
    let rate = thread.join().expect("no panic");
    end.store(true, Ordering::Relaxed);
    sink.join().expect("no panic");
    rate
}

/// Measures packets per second of CPU time through a bare relay.
fn relay(frame: &[u8], train: usize) -> f64 {
    let end = Arc::new(AtomicBool::new(false));
    let its = Arc::clone(&end);
    let udp = Udp::listen(SocketAddr::new(ip(2), RELAY_PORT)).expect("a socket");
    let out = Udp::listen(SocketAddr::new(ip(3), RELAY_PORT)).expect("a socket");
    let count = Arc::new(AtomicU64::new(0));
    let sent = Arc::clone(&count);
    let thread = thread::spawn(move || {
        let mut buffers = RecvBuffers::new();
        let to = Some(SocketAddr::new(ip(4), SINK_PORT));
        while !its.load(Ordering::Relaxed) {
            let outcome = udp.recv(&mut buffers, |received| {
                let packets = received.datagrams().len();
                let bytes = &*received.bytes;
                let segment = (packets > 1).then_some(received.stride);
                let _ = out.send(&Datagrams { to, from_ip: None, bytes, segment, ecn: false, dscp: 0 });
                sent.fetch_add(packets as u64, Ordering::Relaxed);
            });
            if !matches!(outcome, Ok(anabranch_net::RecvOutcome::Received { .. })) {
                thread::sleep(Duration::from_micros(200));
            }
        }
        cpu()
    });
    let sink = sink(&end);
    flood(frame, train, SocketAddr::new(ip(2), RELAY_PORT));
    end.store(true, Ordering::Relaxed);
    let cpu = thread.join().expect("no panic");
    sink.join().expect("no panic");
    count.load(Ordering::Relaxed) as f64 / cpu.as_secs_f64()
}

/// Makes the forwarder of the domain, with open or keyed identifiers, and a frame that goes through it,
/// marked with `mark`.
fn forwarder_and_frame(dir: &Path, keyed: bool, mark: u8) -> (Place, Vec<u8>) {
    let (file, key_file) = (dir.join("bench.toml"), dir.join("r.key"));
    let kind = if keyed { "identifiers = \"keyed\"" } else { "" };
    std::fs::write(&file, [kind, DOMAIN].concat()).expect("written");
    let place = Place::new(&file, Some("r")).expect("a node");
    let domain = place.domain();
    let node = |name: &str| domain.graph.by_name(name).expect("a node");
    let mut way = domain.plan(node("a"), &[node("b")], 1, Policy::Shortest, |_| true).remove(0).way;
    let mut with_key = None;
    if keyed {
        let services = network::new_services_key().expect("random numbers");
        let own = MemberKey::of_forwarder(&services, node("r"));
        anabranch_net::testing::write_secret(&key_file, own.secret_text(domain)).expect("written");
        #[expect(clippy::disallowed_methods, reason = "epochs have dates")]
        let now = UNIX_EPOCH.elapsed().expect("a date").as_secs();
        let sealer = Sealer::new(Arc::clone(domain), services);
        way = sealer.way(&way.links, Time::ZERO + Span::from_secs(now)).expect("it fits");
        with_key = Some(place.clone().with_key(&key_file).expect("a key"));
    }
    let mark = Dscp::new(mark).expect("one");
    let mut frame = frame::marked(frame::header(&way.there, SINK_PORT), mark).0.to_vec();
    frame.resize(FRAME, 7);
    (with_key.unwrap_or(place), frame)
}

fn main() {
    let dir = tempfile::tempdir().expect("a directory");
    let kinds = [(false, 0), (true, 0), (false, 10)];
    let kinds = kinds.map(|(keyed, mark)| forwarder_and_frame(dir.path(), keyed, mark));
    println!("packets of {FRAME} bytes a second of one core");
    print!("{:<16} {:>10}", "", "relay");
    ["open", "keyed", "marked"].iter().for_each(|kind| print!(" {kind:>10} {:>6}", "ratio"));
    println!();
    let rows = [("one by one", 1), ("in trains of 4", 4), ("in trains of 16", 16), ("in trains of 44", 44)];
    for (name, train) in rows {
        // Relay and forwarder run one after the other, three times, so that other load on the machine affects
        // both.
        let (mut best_relay, mut best) = (0.0_f64, [0.0_f64; 3]);
        for _ in 0..3 {
            best_relay = best_relay.max(relay(&kinds[0].1, train));
            for (best, (place, frame)) in best.iter_mut().zip(&kinds) {
                *best = best.max(forwarder(place, frame, train));
            }
        }
        print!("{name:<16} {best_relay:>10.0}");
        best.iter().for_each(|rate| print!(" {rate:>10.0} {:>6.2}", rate / best_relay));
        println!();
    }
}
