//! Tests several interfaces and routers, in network namespaces without a name that end with the test's
//! thread. Needs root and iproute2; without them it says so and passes. Nothing outside these namespaces is
//! touched.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::process::Command;

use anabranch_algo::Span;
use anabranch_net::*;
use nix::sched::{CloneFlags, setns, unshare};

struct Space(File);

impl Space {
    fn new() -> Option<Self> {
        if let Err(e) = unshare(CloneFlags::CLONE_NEWNET) {
            testing::refused(format!("no network namespace of our own ({e}); run as root"));
            return None;
        }
        let space = Self(File::open("/proc/thread-self/ns/net").unwrap());
        // Without duplicate address detection IPv6 addresses can be used at once.
        for which in ["all", "default"] {
            std::fs::write(format!("/proc/sys/net/ipv6/conf/{which}/accept_dad"), "0").unwrap();
        }
        space.ip("link set lo up");
        Some(space)
    }

    /// Moves this thread, and the programs that it starts, into the namespace.
    fn enter(&self) {
        setns(&self.0, CloneFlags::CLONE_NEWNET).unwrap();
    }

    fn ip(&self, arguments: &str) {
        self.enter();
        let done =
            Command::new("ip").args(arguments.split_whitespace()).output().expect("iproute2 is installed");
        assert!(done.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// Makes a pair of interfaces, `near` here and `far` there, with network `n` on them: `near` has host
    /// number 1.
    fn cable(&self, near: &str, there: &Self, far: &str, n: u32, mtu: u32) {
        let path = format!("/proc/{}/fd/{}", std::process::id(), there.0.as_raw_fd());
        self.ip(&format!("link add name {near} mtu {mtu} type veth peer name {far} mtu {mtu} netns {path}"));
        for (space, name, host) in [(self, near, 1), (there, far, 2)] {
            space.ip(&format!("addr add 10.77.{n}.{host}/24 dev {name}"));
            space.ip(&format!("addr add fd77:{n}::{host}/64 dev {name} nodad"));
            space.ip(&format!("link set {name} up"));
        }
        self.enter();
        // The kernel reports a moment later that the other end is on.
        let clock = Clock::start();
        while !interfaces().unwrap().iter().any(|interface| interface.name == near && interface.up) {
            assert!(clock.now() < anabranch_algo::Time::ZERO + Span::from_secs(8), "{near} comes up");
            clock.sleep_until(clock.now() + Span::from_millis(5));
        }
    }

    fn packets_sent(&self, name: &str) -> u64 {
        self.enter();
        let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let line = table.lines().find_map(|line| line.trim().strip_prefix(&format!("{name}:"))).unwrap();
        line.split_whitespace().nth(9).unwrap().parse().unwrap()
    }
}

/// Runs a test in a separate thread, whose namespaces no other thread sees.
fn apart(test: impl FnOnce() + Send) {
    testing::side_by_side();
    std::thread::scope(|scope| {
        if let Err(panic) = scope.spawn(test).join() {
            std::panic::resume_unwind(panic);
        }
    });
}

fn receive(udp: &Udp, buffers: &mut RecvBuffers, millis: u64, each: impl FnMut(Received<'_>)) -> RecvOutcome {
    let clock = Clock::start();
    let deadline = clock.now() + Span::from_millis(millis);
    Poller::new(clock).wait([(udp.as_fd(), Interest::Read)], deadline).unwrap();
    udp.recv(buffers, each).unwrap()
}

fn one(bytes: &[u8]) -> Datagrams<'_> {
    Datagrams { to: None, from_ip: None, bytes, segment: None, ecn: false, dscp: 0 }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Makes a host with two providers and one interface that leads nowhere; the source is behind both providers.
fn two_providers() -> Option<(Space, Space)> {
    let far = Space::new()?;
    let near = Space::new()?;
    near.cable("a1", &far, "b1", 1, 1500);
    near.cable("a2", &far, "b2", 2, 1280);
    near.cable("a3", &far, "b3", 3, 1500);
    far.ip("addr add 10.77.99.9/32 dev lo");
    far.ip("addr add fd77:99::9/128 dev lo nodad");
    for (n, metric) in [(1, 100), (2, 200)] {
        near.ip(&format!("route add default via 10.77.{n}.2 dev a{n} metric {metric}"));
        near.ip(&format!("route add default via fd77:{n}::2 dev a{n} metric {metric}"));
    }
    near.enter();
    Some((near, far))
}

#[test]
fn each_provider_is_a_way_and_packets_keep_to_it() {
    apart(|| {
        let Some((near, far)) = two_providers() else { return };
        for (peer, networks, listen) in [
            ("10.77.99.9", ["10.77.1.1", "10.77.2.1"], "0.0.0.0"),
            ("fd77:99::9", ["fd77:1::1", "fd77:2::1"], "::"),
        ] {
            near.enter();
            let egresses = usable_egresses(ip(peer)).unwrap();
            // An unbound socket leaves by the first provider.
            let (own, peer_ip) = (ip(networks[0]), ip(peer));
            assert_eq!(
                egresses.iter().map(|via| via.is_kept_by(own, peer_ip)).collect::<Vec<_>>(),
                [true, false]
            );
            for (via, is_kept) in [("a1", true), ("a2", false), (networks[0], true), (networks[1], false)] {
                assert_eq!(Egress::parse(via).unwrap().is_kept_by(own, peer_ip), is_kept, "{via}");
            }
            // It also leaves by the first provider from the second provider's address, because no rule leads
            // it to the second.
            assert!(!egresses[1].is_kept_by(ip(networks[1]), peer_ip));
            let shown: Vec<_> = egresses.iter().map(Egress::to_string).collect();
            assert_eq!(shown, [format!("{}%a1", networks[0]), format!("{}%a2", networks[1])]);

            far.enter();
            let source = Udp::listen(SocketAddr::new(ip(listen), 0)).unwrap();
            let peer = SocketAddr::new(ip(peer), source.local_addr().port());
            let mut buffers = RecvBuffers::new();
            // By address, by interface and by both, packets always leave by the second provider, which the
            // routes rank last.
            for name in [networks[1], "a2", &shown[1]] {
                near.enter();
                let before = near.packets_sent("a2");
                let subflow = Udp::connect(&Egress::parse(name).unwrap(), peer).unwrap();
                assert_eq!(subflow.local_addr().ip(), ip(networks[1]), "{name}");
                assert!(matches!(subflow.send(&one(b"this way")), SendOutcome::Sent));
                let mut seen = None;
                receive(&source, &mut buffers, 2_000, |r| seen = Some((r.from, r.to_ip)));
                assert_eq!(seen, Some((subflow.local_addr(), Some(peer.ip()))), "{name}");
                assert!(near.packets_sent("a2") > before, "{name}");
            }
            // No route leads through the third interface, and the kernel must not make one up.
            near.enter();
            let error = Udp::connect(&Egress::parse("a3").unwrap(), peer).unwrap_err();
            assert!(error.to_string().contains("no route through a3"), "{error}");
        }
        // A neighbour is reached over its own network only; link-local addresses are for link-local peers.
        near.enter();
        assert_eq!(
            usable_egresses(ip("10.77.3.2")).unwrap().len(),
            3,
            "directly, and by both default routes"
        );
        let neighbour: Vec<_> =
            usable_egresses(ip("fe80::1")).unwrap().iter().map(|egress| egress.address()).collect();
        assert_eq!(neighbour.len(), 3);
        near.ip("link set a1 down");
        assert_eq!(Egress::parse("a1").unwrap_err().kind(), std::io::ErrorKind::NetworkDown);
        assert_eq!(usable_egresses(ip("10.77.99.9")).unwrap().len(), 1);
    });
}

#[test]
fn nothing_is_fragmented_and_offload_survives_what_is_too_big() {
    apart(|| {
        let Some((near, far)) = two_providers() else { return };
        // MTU 1280 less the IP and UDP headers.
        for (peer, listen, most) in [("10.77.99.9", "0.0.0.0", 1_252), ("fd77:99::9", "::", 1_232)] {
            far.enter();
            let source = Udp::listen(SocketAddr::new(ip(listen), 0)).unwrap();
            near.enter();
            let peer = SocketAddr::new(ip(peer), source.local_addr().port());
            let subflow = Udp::connect(&Egress::parse("a2").unwrap(), peer).unwrap();
            let bytes = vec![5; 20_000];
            assert!(matches!(subflow.send(&one(&bytes[..=most])), SendOutcome::TooBig));
            assert!(matches!(subflow.send(&one(&bytes[..most])), SendOutcome::Sent));
            let segments = |segment| Datagrams { segment: Some(segment), ecn: true, ..one(&bytes) };
            assert!(matches!(subflow.send(&segments(most + 1)), SendOutcome::TooBig));
            assert!(subflow.max_segments(most) > 1, "offload is still on");
            assert!(matches!(subflow.send(&segments(most)), SendOutcome::Sent));
            let (mut buffers, mut got) = (RecvBuffers::new(), 0);
            while got < most + bytes.len() {
                let outcome = receive(&source, &mut buffers, 2_000, |r| {
                    assert!(r.datagrams().all(|d| d.len() <= most));
                    got += r.bytes.len();
                });
                assert!(matches!(outcome, RecvOutcome::Received { .. }), "{outcome:?}");
            }
            let quiet = receive(&subflow, &mut buffers, 10, |_| panic!("nobody answered"));
            assert_eq!(quiet, RecvOutcome::WouldBlock, "our own probe is no news");
        }
    });
}

/// The router in the middle has a narrow link behind it.
#[test]
fn a_router_that_finds_it_too_big_is_heard_but_not_obeyed() {
    apart(|| {
        let (Some(far), Some(router), Some(near)) = (Space::new(), Space::new(), Space::new()) else {
            return;
        };
        near.cable("c1", &router, "r1", 1, 1500);
        far.cable("c2", &router, "r2", 2, 1280);
        near.ip("route add default via 10.77.1.2");
        near.ip("route add default via fd77:1::2");
        far.ip("route add default via 10.77.2.2");
        far.ip("route add default via fd77:2::2");
        router.enter();
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
        for (peer, far_side) in [("10.77.2.1", "0.0.0.0"), ("fd77:2::1", "::")] {
            far.enter();
            let source = Udp::listen(SocketAddr::new(ip(far_side), 0)).unwrap();
            near.enter();
            let peer = SocketAddr::new(ip(peer), source.local_addr().port());
            let subflow = Udp::connect(&Egress::parse("c1").unwrap(), peer).unwrap();
            let mut buffers = RecvBuffers::new();
            let bytes = [3; 1_400];
            for round in 0..2 {
                // The second time the kernel has the router's message in its cache, which must not keep the
                // datagram back.
                assert!(matches!(subflow.send(&one(&bytes)), SendOutcome::Sent), "round {round}");
                let outcome = receive(&subflow, &mut buffers, 2_000, |_| panic!("too big to be answered"));
                assert_eq!(outcome, RecvOutcome::TooBig { mtu: 1280 }, "round {round}");
            }
            // The router's message waits unread in the socket: the next send must not take it for an error of
            // its own datagram.
            assert!(matches!(subflow.send(&one(&bytes)), SendOutcome::Sent));
            Clock::start().sleep_until(anabranch_algo::Time::from_nanos(20_000_000));
            assert!(matches!(subflow.send(&one(&bytes[..1_000])), SendOutcome::Sent));
            let mut sizes = Vec::new();
            receive(&source, &mut buffers, 2_000, |r| sizes.push(r.bytes.len()));
            assert_eq!(sizes, [1_000], "and nothing arrived in fragments");
        }
    });
}

#[test]
fn an_interface_that_goes_is_an_outcome_and_is_noticed() {
    apart(|| {
        let Some((near, _far)) = two_providers() else { return };
        let clock = Clock::start();
        let mut monitor = NetworkMonitor::new().unwrap();
        let mut poller = Poller::new(clock);
        let wait = |poller: &mut Poller, monitor: &NetworkMonitor, millis| {
            let set = monitor.fd().map(|fd| (fd, Interest::Read));
            poller.wait(set, clock.now() + Span::from_millis(millis)).unwrap()
        };
        // The kernel may still report changes that the set-up made.
        while wait(&mut poller, &monitor, 300) > 0 {
            let _ = monitor.changed(clock.now());
        }
        assert!(!monitor.changed(clock.now()));
        near.ip("addr add 10.77.50.1/24 dev a3");
        assert_eq!(wait(&mut poller, &monitor, 2_000), 1);
        assert!(monitor.changed(clock.now()));
        assert!(!monitor.changed(clock.now()));

        let mut buffers = RecvBuffers::new();
        let peers = [SocketAddr::new(ip("10.77.99.9"), 9), SocketAddr::new(ip("fd77:99::9"), 9)];
        let open = |peer| Udp::connect(&Egress::parse("a2").unwrap(), peer).unwrap();
        let subflows = peers.map(open);
        near.ip("link set a2 down");
        let check = |when: &str, buffers: &mut RecvBuffers| {
            for subflow in &subflows {
                for _ in 0..3 {
                    let outcome = subflow.send(&one(b"hello?"));
                    assert!(
                        matches!(outcome, SendOutcome::IcmpError(IcmpError::Unreachable)),
                        "{when}: {outcome:?}"
                    );
                    subflow.recv(buffers, |_| panic!("nothing can come")).expect(when);
                }
            }
        };
        check("down", &mut buffers);
        near.ip("link del a2");
        check("deleted", &mut buffers);
        assert!(monitor.changed(clock.now()));
        let error = Egress::parse("a2").unwrap_err();
        assert!(error.to_string().contains("a1 (10.77.1.1"), "{error}");
    });
}
