//! A radio fades while a download runs over it and over another uplink: with the daemon, which sees the
//! signal, and with the kernel alone. The links are emulated; the signal is a script, because no kernel here
//! has 802.11.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use anabranch_algo::wifi::Reading;
use anabranch_algo::{Rate, Span, Time};
use anabranch_emulator::{Emulator, EmulatorHandle, IpPacket};
use anabranch_kernel::uplinks;
use anabranch_net::netlink::{EndpointFlags, Netlink, PathManager, Route};
use anabranch_net::{Clock, Namespace, Tun, testing};
use anabranch_sim::{LinkChange, LinkConfig, LinkId};
use anabranch_uplinks::Policy;
use anabranch_uplinks::radio::Radio;
use socket2::{Domain, Protocol, Type};

use crate::mptcp_network::{FAR, in_own_thread, ip};
use crate::running::{End, beside};

const MPTCP: i32 = 262;
const RATE: Rate = Rate::from_bits(20_000_000);
/// Each way.
const DELAY: Span = Span::from_millis(15);
/// The signal begins to fall after [`STEADY`], by [`FALL_DB`] a second.
const STEADY: Span = Span::from_millis(800);
const FALL_DB: f64 = 15.0;
const BEGIN_DBM: f64 = -60.0;
/// From the first to the second, the loss rises from nothing to all.
const LOSSY_DBM: (f64, f64) = (-82.0, -92.0);
/// The download.
const LASTS: Span = Span::from_millis(4_000);

/// The signal of one radio, as a script sets it.
struct Script(Arc<AtomicI32>);

impl Radio for Script {
    fn read(&mut self, name: &str, _index: u32) -> Option<Reading> {
        let dbm = self.0.load(Ordering::SeqCst);
        (name == "wifi").then(|| Reading { signal_dbm: Some(dbm as i8), ..Reading::default() })
    }
}

/// Two hosts with two emulated links, of which the near one has entered this thread.
struct Bed {
    far: Namespace,
    emulator: EmulatorHandle,
    /// Both ways over the radio.
    radio: [LinkId; 2],
}

impl Bed {
    fn new() -> Self {
        let (near, far) = (Namespace::new().unwrap(), Namespace::new().unwrap());
        let mut links = anabranch_sim::Net::<IpPacket>::new(7);
        let mut all = Vec::new();
        for _ in 0..4 {
            all.push(links.link("link", LinkConfig::new(RATE, DELAY).queue_packets(60)));
        }
        let routes: Vec<_> = all.iter().map(|link| links.route(&[*link])).collect();
        let mut emulator = Emulator::new(links);
        for (n, name) in ["wifi", "cell"].into_iter().enumerate() {
            let a = emulator.add_port(Tun::new(&near, name, 1_500, false).unwrap());
            let b = emulator.add_port(Tun::new(&far, name, 1_500, false).unwrap());
            emulator.connect(a, b, routes[2 * n], None);
            emulator.connect(b, a, routes[2 * n + 1], None);
        }
        for (namespace, host) in [(&far, 2), (&near, 1)] {
            namespace.enter().unwrap();
            let netlink = Netlink::open().unwrap();
            netlink.set_link(netlink.index("lo").unwrap(), Some(true), None).unwrap();
            for (n, name) in ["wifi", "cell"].into_iter().enumerate() {
                let device = netlink.index(name).unwrap();
                netlink.set_link(device, Some(true), None).unwrap();
                netlink.add_address(device, ip(&format!("10.{}.0.{host}", n + 1)), 24).unwrap();
                let gateway = Some(ip(&format!("10.{}.0.2", n + 1)));
                let metric = 100 * (n as u32 + 1);
                let route = Route { device: Some(device), metric, gateway, ..Route::to(ip("0.0.0.0"), 0) };
                if host == 1 {
                    netlink.add_route(&route).unwrap();
                } else if n == 0 {
                    netlink.add_address(netlink.index("lo").unwrap(), ip(FAR), 32).unwrap();
                }
            }
        }
        Self { far, emulator: emulator.start().unwrap(), radio: [all[0], all[1]] }
    }

    /// Returns the ends of a connection from near to far. The listener must live: joins come to it.
    fn connect(&self) -> (TcpStream, TcpStream, socket2::Socket) {
        let new = || socket2::Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::from(MPTCP))).unwrap();
        let listen = || {
            let listener = new();
            listener.bind(&std::net::SocketAddr::new(ip(FAR), 0).into()).unwrap();
            listener.listen(1).unwrap();
            listener
        };
        let listener = self.far.run(listen).unwrap();
        let near = new();
        near.connect(&listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        (near.into(), far.into(), listener)
    }

    /// Downloads while the radio fades. Returns the longest time in which no byte came, and the bytes.
    fn download(&self, signal: &AtomicI32) -> (Span, u64) {
        let (mut near, mut far, _listener) = self.connect();
        near.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        far.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
        let (stopped, clock) = (AtomicBool::new(false), Clock::start());
        let stop = &stopped;
        std::thread::scope(|scope| {
            let is_written = |far: &mut TcpStream| far.write_all(&[7; 16_384]).is_ok();
            scope.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    if !is_written(&mut far) {
                        break;
                    }
                }
            });
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    let fallen = clock.now().since(Time::ZERO + STEADY).as_nanos() as f64 / 1e9 * FALL_DB;
                    let dbm = (BEGIN_DBM - fallen).max(-100.0);
                    signal.store(dbm as i32, Ordering::SeqCst);
                    let loss = ((LOSSY_DBM.0 - dbm) / (LOSSY_DBM.0 - LOSSY_DBM.1)).clamp(0.0, 1.0);
                    self.radio.iter().for_each(|link| self.emulator.command(*link, LinkChange::Loss(loss)));
                    clock.sleep_until(clock.now() + Span::from_millis(20));
                }
            });
            let (mut buffer, mut sum, mut last, mut longest) = (vec![0; 65_536], 0, clock.now(), Span::ZERO);
            while clock.now() < Time::ZERO + LASTS {
                match near.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(n) => {
                        // The start is not what is measured.
                        if clock.now() > Time::ZERO + Span::from_millis(500) {
                            longest = longest.max(clock.now().since(last));
                        }
                        (sum, last) = (sum + n as u64, clock.now());
                    }
                    Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                    Err(e) => panic!("{e}"),
                }
            }
            stop.store(true, Ordering::SeqCst);
            (longest.max(clock.now().since(last)), sum)
        })
    }
}

fn with_the_daemon() -> (Span, u64) {
    let (bed, dir) = (Bed::new(), tempfile::tempdir().unwrap());
    let signal = Arc::new(AtomicI32::new(BEGIN_DBM as i32));
    let radio = Box::new(Script(Arc::clone(&signal)));
    beside(dir.path(), Policy::default(), Some(radio), End::PutBack, |daemon| {
        let measured = bed.download(&signal);
        let all = PathManager::open().unwrap().endpoints().unwrap();
        let is_backup = all.iter().find(|e| e.ip == ip("10.1.0.1")).unwrap().flags.has(EndpointFlags::BACKUP);
        assert!(is_backup, "{:#?}", daemon.snapshot());
        measured
    })
}

fn with_the_kernel_alone() -> (Span, u64) {
    let (bed, dir) = (Bed::new(), tempfile::tempdir().unwrap());
    let names = ["wifi", "cell"].map(str::to_owned).to_vec();
    let options = uplinks::Options { state_dir: dir.path().into(), ..uplinks::Options::new(names) };
    uplinks::setup(&options).unwrap();
    bed.download(&AtomicI32::new(0))
}

#[test]
fn a_fading_radio_is_left_before_it_stalls() {
    if !testing::is_privileged()
        || PathManager::open().is_err()
        || !std::path::Path::new("/dev/net/tun").exists()
    {
        return testing::refused_device("a fading radio: it takes root, /dev/net/tun and MPTCP");
    }
    let _few = testing::among_few();
    let (mut daemon, mut alone) = ((Span::ZERO, 0), (Span::ZERO, 0));
    std::thread::scope(|scope| {
        scope.spawn(|| in_own_thread(|| daemon = with_the_daemon()));
        in_own_thread(|| alone = with_the_kernel_alone());
    });
    println!(
        "a radio that fades at {FALL_DB} dB a second: with the daemon, no byte for {} ms at most, {} kB; \
         the kernel alone: {} ms, {} kB",
        daemon.0.as_millis(),
        daemon.1 / 1_000,
        alone.0.as_millis(),
        alone.1 / 1_000
    );
    assert!(daemon.0 <= Span::from_millis(300), "{daemon:?}");
}
