//! Two hosts, joined by virtual cables, in network namespaces without a name that end with the test's thread.
//! Needs root; says so and passes without.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsFd as _;

use anabranch_algo::{Span, Time};
use anabranch_net::netlink::{Netlink, PathManager, Route, SockDiag, TcpSocket, TcpState};
use anabranch_net::{Clock, testing};
use nix::sched::{CloneFlags, setns, unshare};
use socket2::{Domain, Protocol, Type};

/// IPPROTO_MPTCP.
const MPTCP: i32 = 262;

/// The far host's addresses, behind both cables.
pub(crate) const FAR: &str = "10.255.0.1";
pub(crate) const FAR6: &str = "fd77:255::1";

/// Runs a test in a thread of its own, whose namespaces nobody else sees.
pub(crate) fn in_own_thread(test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        if let Err(panic) = scope.spawn(test).join() {
            std::panic::resume_unwind(panic);
        }
    });
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Waits until `done` gives something, for some seconds.
pub(crate) fn until<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let clock = Clock::start();
    loop {
        if let Some(done) = done() {
            return done;
        }
        assert!(clock.now() < Time::ZERO + Span::from_secs(8), "{what}");
        clock.sleep_until(clock.now() + Span::from_millis(10));
    }
}

/// A host with two providers, and one far away.
pub(crate) struct TestNetwork {
    near: File,
    far: File,
}

impl TestNetwork {
    /// Makes them and enters the near one; `None`, with a word why, where that cannot be.
    pub(crate) fn new() -> Option<Self> {
        let (far, near) = (namespace()?, namespace()?);
        let network = Self { near, far };
        network.near();
        if let Err(e) = PathManager::open() {
            testing::skip(e);
            return None;
        }
        let netlink = Netlink::open().unwrap();
        for n in 1..=2_u32 {
            netlink.add_veth(&format!("up{n}"), &format!("far{n}"), Some(network.far.as_fd())).unwrap();
        }
        for n in 1..=2_u32 {
            network.far();
            ready(&format!("far{n}"), n, 2);
            network.near();
            ready(&format!("up{n}"), n, 1);
        }
        network.far();
        let netlink = Netlink::open().unwrap();
        let lo = netlink.index("lo").unwrap();
        netlink.add_address(lo, ip(FAR), 32).unwrap();
        netlink.add_address(lo, ip(FAR6), 128).unwrap();
        network.near();
        let netlink = Netlink::open().unwrap();
        for n in 1..=2_u32 {
            let device = Some(netlink.index(&format!("up{n}")).unwrap());
            let metric = 100 * n;
            let v4 = Route {
                device,
                metric,
                gateway: Some(ip(&format!("10.{n}.0.2"))),
                ..Route::to(ip("0.0.0.0"), 0)
            };
            let v6 = Route { gateway: Some(ip(&format!("fd77:{n}::2"))), ..Route::to(ip("::"), 0) };
            netlink.add_route(&v4).unwrap();
            netlink.add_route(&Route { device, metric, ..v6 }).unwrap();
        }
        // The kernel adds the routes of IPv6 addresses a moment later.
        let settled = || {
            let routes = netlink.routes().unwrap();
            let there =
                |ip: IpAddr, bits| routes.iter().any(|route| route.dst == (ip, bits) && route.table == 255);
            let own = there(ip("fd77:1::1"), 128) && there(ip("fd77:2::1"), 128);
            (own && routes.iter().filter(|r| r.dst.0 == ip("ff00::")).count() == 2).then_some(())
        };
        until("the routes are there", settled);
        Some(network)
    }

    /// From now on this thread is on the near host.
    pub(crate) fn near(&self) {
        setns(&self.near, CloneFlags::CLONE_NEWNET).unwrap();
    }

    /// From now on this thread is on the far host.
    pub(crate) fn far(&self) {
        setns(&self.far, CloneFlags::CLONE_NEWNET).unwrap();
    }

    /// A new MPTCP connection from near to far; the near end, the far end, and the listener: further subflows
    /// come to it, so it must stay.
    pub(crate) fn connect(&self, to: &str) -> (TcpStream, TcpStream, socket2::Socket) {
        self.far();
        let to = SocketAddr::new(ip(to), 0);
        let new = || {
            socket2::Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::from(MPTCP))).unwrap()
        };
        let listener = new();
        listener.bind(&to.into()).unwrap();
        listener.listen(1).unwrap();
        self.near();
        let near = new();
        near.connect(&listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        (near.into(), far.into(), listener)
    }
}

/// A namespace of our own, entered, without delays before IPv6 addresses can be used.
fn namespace() -> Option<File> {
    if let Err(e) = unshare(CloneFlags::CLONE_NEWNET) {
        testing::refused(format!("no network namespace of our own ({e}); run as root"));
        return None;
    }
    let netlink = Netlink::open().unwrap();
    netlink.set_link(netlink.index("lo").unwrap(), Some(true), None).unwrap();
    Some(File::open("/proc/thread-self/ns/net").unwrap())
}

pub(crate) fn ready(name: &str, network: u32, host: u32) {
    let netlink = Netlink::open().unwrap();
    let device = netlink.index(name).unwrap();
    // No link-local address: its routes would come and go while a test compares.
    fs::write(format!("/proc/sys/net/ipv6/conf/{name}/addr_gen_mode"), "1").unwrap();
    netlink.set_link(device, Some(true), None).unwrap();
    netlink.add_address(device, ip(&format!("10.{network}.0.{host}")), 24).unwrap();
    netlink.add_address(device, ip(&format!("fd77:{network}::{host}")), 64).unwrap();
}

/// Sends so many bytes from one end to the other.
pub(crate) fn carry(from: &mut TcpStream, to: &mut TcpStream, bytes: usize) {
    std::thread::scope(|scope| {
        scope.spawn(|| from.write_all(&vec![7; bytes]).unwrap());
        to.read_exact(&mut vec![0; bytes]).unwrap();
    });
}

/// The subflows of this namespace, as soon as there are so many.
pub(crate) fn subflows(count: usize) -> Vec<TcpSocket> {
    let sockets = SockDiag::open().unwrap();
    until("the subflows are there", || {
        let mut all = sockets.tcp(&[TcpState::Established]).unwrap();

        all.retain(|socket| socket.subflow.is_some());
        all.sort_by_key(|socket| socket.local);
        (all.len() == count).then_some(all)
    })
}
