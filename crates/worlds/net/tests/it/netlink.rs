//! Tests netlink against the kernel, in network namespaces without a name that end with the test's thread.
//! Needs root; without root it says so and passes. Nothing outside these namespaces is touched.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsFd as _;

use anabranch_algo::{Span, SplitMix64, Time};
use anabranch_net::netlink::*;
use anabranch_net::{Clock, testing};
use nix::sched::{CloneFlags, setns, unshare};
use socket2::{Domain, Protocol, Type};

/// The number of IPPROTO_MPTCP.
const MPTCP: i32 = 262;

/// Enters a new network namespace. Returns `None`, and reports why, where that is not allowed.
fn namespace() -> Option<File> {
    if let Err(e) = unshare(CloneFlags::CLONE_NEWNET) {
        testing::refused(format!("no network namespace of our own ({e}); run as root"));
        return None;
    }
    let netlink = Netlink::open().unwrap();
    netlink.set_link(netlink.index("lo").unwrap(), Some(true), None).unwrap();
    Some(File::open("/proc/thread-self/ns/net").unwrap())
}

fn enter(namespace: &File) {
    setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
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

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn interfaces_and_addresses() {
    apart(|| {
        let (Some(far), Some(_near)) = (namespace(), namespace()) else { return };
        let netlink = Netlink::open().unwrap();
        netlink.add_veth("a1", "b1", Some(far.as_fd())).unwrap();
        let error = netlink.add_veth("a1", "b2", None).unwrap_err();
        assert!(error.exists(), "{error}");
        assert!(error.to_string().starts_with("cannot make the pair of interfaces a1 and b2: "), "{error}");

        let link = netlink.link("a1").unwrap();
        assert_eq!((link.up, link.carrier, link.loopback, link.mtu), (false, false, false, 1500));
        assert_eq!(link.kind.as_deref(), Some("veth"));
        netlink.set_link(link.index, Some(true), Some(1400)).unwrap();
        let link = netlink.link("a1").unwrap();
        assert_eq!((link.up, link.carrier, link.mtu), (true, false, 1400), "the other end is off");
        let names: Vec<_> = netlink.links().unwrap().into_iter().map(|link| link.name).collect();
        assert_eq!(names, ["lo", "a1"]);
        for missing in ["", "b1", "a name that is too long"] {
            let error = netlink.index(missing).unwrap_err();
            assert!(error.is_missing(), "{error}");
        }

        for (address, prefix) in [("10.0.0.1", 32), ("10.1.0.1", 24), ("fd77::1", 64)] {
            netlink.add_address(link.index, ip(address), prefix).unwrap();
        }
        let error = netlink.add_address(link.index, ip("10.0.0.1"), 32).unwrap_err();
        assert!(
            error.to_string().starts_with("cannot add address 10.0.0.1/32 to a1: File exists"),
            "{error}"
        );
        let of = |device| {
            let all = netlink.addresses().unwrap().into_iter();
            all.filter(|a| a.device == device && a.global).collect::<Vec<_>>()
        };
        let found = of(link.index);
        let shown: Vec<_> = found.iter().map(|a| format!("{}/{}", a.ip, a.prefix)).collect();
        assert_eq!(shown, ["10.0.0.1/32", "10.1.0.1/24", "fd77::1/64"]);
        assert!(found.iter().all(|a| a.is_usable() && !a.is_secondary() && a.peer.is_none()));
        netlink.del_address(link.index, ip("10.0.0.1"), 32).unwrap();
        assert!(netlink.del_address(link.index, ip("10.0.0.1"), 32).unwrap_err().is_missing());
        assert_eq!(of(link.index).len(), 2);

        netlink.del_link(link.index).unwrap();
        assert!(netlink.set_link(link.index, Some(true), None).unwrap_err().is_missing());
        assert!(of(link.index).is_empty());
        enter(&far);
        assert!(Netlink::open().unwrap().index("b1").unwrap_err().is_missing(), "both ends are gone");
    });
}

#[test]
fn routes_and_rules() {
    apart(|| {
        let (Some(far), Some(_near)) = (namespace(), namespace()) else { return };
        let netlink = Netlink::open().unwrap();
        netlink.add_veth("a1", "b1", Some(far.as_fd())).unwrap();
        let device = netlink.index("a1").unwrap();
        netlink.set_link(device, Some(true), None).unwrap();
        netlink.add_address(device, ip("10.1.0.1"), 24).unwrap();
        netlink.add_address(device, ip("fd77::1"), 64).unwrap();
        // The kernel adds the routes of an IPv6 address a moment later.
        let clock = Clock::start();
        while !netlink.routes().unwrap().iter().any(|r| r.dst == (ip("fd77::1"), 128)) {
            assert!(clock.now() < Time::ZERO + Span::from_secs(5));
            clock.sleep_until(clock.now() + Span::from_millis(10));
        }
        let before = (netlink.routes().unwrap(), netlink.rules().unwrap());
        let connected = before.0.iter().find(|r| r.dst == (ip("10.1.0.0"), 24)).unwrap();
        assert_eq!((connected.source, connected.protocol), (Some(ip("10.1.0.1")), 2));

        let route = |dst: &str, prefix, gateway: Option<&str>, table, metric| Route {
            device: Some(device),
            gateway: gateway.map(ip),
            table,
            metric,
            ..Route::to(ip(dst), prefix)
        };
        let added = [
            route("0.0.0.0", 0, Some("10.1.0.2"), 26_227, 0),
            route("10.1.0.0", 24, None, 26_227, 0),
            Route { onlink: true, ..route("0.0.0.0", 0, Some("192.0.2.1"), MAIN_TABLE, 700) },
            Route { source: Some(ip("10.1.0.1")), ..route("10.255.0.1", 32, None, MAIN_TABLE, 1) },
            route("10.255.0.1", 32, None, MAIN_TABLE, 2),
            route("::", 0, Some("fd77::2"), 26_227, 5),
            Route { kind: RouteKind::Unreachable, device: None, ..route("10.66.0.0", 16, None, 300, 9) },
        ];
        for route in &added {
            netlink.add_route(route).unwrap();
        }
        let all = netlink.routes().unwrap();
        for route in &added {
            assert!(all.contains(route), "{route} is not in {all:#?}");
        }
        let error = netlink.add_route(&route("0.0.0.0", 0, Some("203.0.113.1"), MAIN_TABLE, 0)).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("cannot add the route default via 203.0.113.1 dev a1: Network"), "{text}");
        assert!(text.ends_with("(Nexthop has invalid gateway)"), "the kernel's own words: {text}");
        assert!(netlink.add_route(&added[0]).unwrap_err().exists());

        let mut specific = Rule::from_address(ip("10.1.0.1"), MAIN_TABLE, 1_000);
        specific.suppress_prefix = Some(0);
        let rules = [
            specific,
            Rule::from_address(ip("10.1.0.1"), 26_227, 1_001),
            Rule::from_address(ip("fd77::1"), 26_227, 1_001),
            Rule {
                mark: Some((5, 0xff)),
                incoming: Some("lo".into()),
                ..Rule::from_address(ip("10.1.0.1"), 7, 9)
            },
        ];
        for rule in &rules {
            netlink.add_rule(rule).unwrap();
        }
        let all = netlink.rules().unwrap();
        for rule in &rules {
            assert!(all.contains(rule), "{rule} is not in {all:#?}");
        }
        assert!(netlink.add_rule(&rules[1]).unwrap_err().exists());
        for rule in &rules {
            netlink.del_rule(rule).unwrap();
        }
        let error = netlink.del_rule(&rules[1]).unwrap_err();
        assert!(error.is_missing(), "{error}");
        for route in &added {
            netlink.del_route(route).unwrap();
        }
        let error = netlink.del_route(&added[0]).unwrap_err();
        assert!(error.is_missing(), "{error}");
        assert_eq!((netlink.routes().unwrap(), netlink.rules().unwrap()), before);
    });
}

#[test]
fn endpoints_and_limits() {
    apart(|| {
        let Some(_near) = namespace() else { return };
        let pm = match PathManager::open() {
            Ok(pm) => pm,
            Err(e) => return testing::skip(e),
        };
        let netlink = Netlink::open().unwrap();
        netlink.add_veth("a1", "a2", None).unwrap();
        let device = netlink.index("a1").unwrap();
        assert_eq!(pm.endpoints().unwrap(), []);
        let backup = EndpointFlags::SUBFLOW | EndpointFlags::BACKUP;
        let first = Endpoint { id: 7, ..Endpoint::subflow(ip("10.1.0.1"), Some(device)) };
        let second = Endpoint { id: 3, flags: backup, ..Endpoint::subflow(ip("fd77::1"), None) };
        let third =
            Endpoint { flags: EndpointFlags::SIGNAL, port: 81, ..Endpoint::subflow(ip("10.2.0.1"), None) };
        pm.add_endpoint(&first).unwrap();
        pm.add_endpoint(&second).unwrap();
        // An endpoint that is announced with a port needs a listening socket, and so the address.
        netlink.add_address(device, ip("10.2.0.1"), 24).unwrap();
        netlink.set_link(device, Some(true), None).unwrap();
        pm.add_endpoint(&third).unwrap();
        let all = pm.endpoints().unwrap();
        assert!(all.contains(&first) && all.contains(&second), "{all:?}");
        let third = *all.iter().find(|e| e.port == 81).unwrap();
        assert!(third.id > 0, "the kernel chose an id");
        let error = pm.add_endpoint(&Endpoint { id: 0, ..first }).unwrap_err();
        assert!(error.to_string().starts_with("cannot add the MPTCP endpoint 10.1.0.1 on a1: "), "{error}");
        pm.set_flags(&first, backup).unwrap();
        assert_eq!(pm.endpoints().unwrap().iter().find(|e| e.id == 7).unwrap().flags, backup);
        pm.del_endpoint(&first).unwrap();
        pm.del_endpoint(&third).unwrap();
        assert_eq!(pm.endpoints().unwrap(), [second]);
        pm.flush_endpoints().unwrap();
        assert_eq!(pm.endpoints().unwrap(), []);
        assert!(pm.del_endpoint(&first).is_err());

        let before = pm.limits().unwrap();
        let limits = Limits { subflows: 5, add_addr_accepted: 3 };
        pm.set_limits(limits).unwrap();
        assert_eq!(pm.limits().unwrap(), limits);
        pm.set_limits(before).unwrap();
        assert_eq!(pm.limits().unwrap(), before);
        assert!(pm.set_limits(Limits { subflows: 1 << 20, ..limits }).is_err());
    });
}

/// The two subflows run over two virtual cables and are seen from both ends.
#[test]
fn sockets_and_subflows() {
    apart(|| {
        let (Some(far), Some(near)) = (namespace(), namespace()) else { return };
        let Ok(pm) = PathManager::open() else { return testing::skip("the kernel has no MPTCP") };
        let netlink = Netlink::open().unwrap();
        let mut devices = Vec::new();
        for n in 1..=2 {
            let (here, there) = (format!("a{n}"), format!("b{n}"));
            netlink.add_veth(&here, &there, Some(far.as_fd())).unwrap();
            for (namespace, name, host) in [(&far, there, 2), (&near, here, 1)] {
                enter(namespace);
                let netlink = Netlink::open().unwrap();
                let device = netlink.index(&name).unwrap();
                netlink.set_link(device, Some(true), None).unwrap();
                netlink.add_address(device, ip(&format!("10.{n}.0.{host}")), 24).unwrap();
                devices.push(device);
            }
        }
        // The second address of the far end is reached through the second cable.
        let (a2, b2) = (devices[3], devices[2]);
        enter(&far);
        let back = Netlink::open().unwrap();
        assert_eq!(back.index("b2").unwrap(), b2);
        back.add_address(back.index("lo").unwrap(), ip("10.255.0.1"), 32).unwrap();
        let listener = socket2::Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::from(MPTCP))).unwrap();
        listener.bind(&SocketAddr::new(ip("10.255.0.1"), 0).into()).unwrap();
        listener.listen(1).unwrap();
        let to = listener.local_addr().unwrap();
        let far_sockets = SockDiag::open().unwrap();

        enter(&near);
        for (n, device) in [(1, devices[1]), (2, a2)] {
            let gateway = Some(ip(&format!("10.{n}.0.2")));
            let route = Route { device: Some(device), gateway, metric: n, ..Route::to(ip("10.255.0.1"), 32) };
            netlink.add_route(&route).unwrap();
        }
        let backup = EndpointFlags::SUBFLOW | EndpointFlags::BACKUP;
        pm.add_endpoint(&Endpoint { flags: backup, ..Endpoint::subflow(ip("10.2.0.1"), Some(a2)) }).unwrap();
        pm.set_limits(Limits { subflows: 2, add_addr_accepted: 0 }).unwrap();
        let socket = socket2::Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::from(MPTCP))).unwrap();
        socket.connect(&to).unwrap();
        let (served, _) = listener.accept().unwrap();
        let (mut near_end, mut far_end) = (TcpStream::from(socket), TcpStream::from(served));
        near_end.write_all(&[7; 50_000]).unwrap();
        far_end.read_exact(&mut [0; 50_000]).unwrap();

        let clock = Clock::start();
        let sockets = SockDiag::open().unwrap();
        let subflows = loop {
            let all = sockets.tcp(TcpState::LIVE).unwrap();
            if all.iter().filter(|s| s.state == TcpState::Established).count() >= 2 {
                break all;
            }
            assert!(clock.now() < Time::ZERO + Span::from_secs(5), "{all:#?}");
            clock.sleep_until(clock.now() + Span::from_millis(10));
        };
        assert_eq!(subflows.len(), 2);
        let connections = sockets.mptcp(TcpState::LIVE).unwrap();
        assert_eq!(connections.len(), 1);
        let connection = &connections[0];
        assert_eq!((connection.local, connection.info.subflows), (near_end.local_addr().unwrap(), 1));
        assert!(!connection.info.fallback && connection.info.bytes_sent >= 50_000 && connection.inode > 0);
        let of = |device: u32| subflows.iter().find(|s| s.device == Some(device));
        let joined = of(a2).expect("bound to the endpoint's device");
        let first = subflows.iter().find(|s| s.device.is_none()).unwrap();
        for (socket, local) in [(first, "10.1.0.1"), (joined, "10.2.0.1")] {
            assert_eq!(socket.local.ip(), ip(local));
            assert_eq!(socket.remote.ip(), ip("10.255.0.1"));
            let subflow = socket.subflow.unwrap();
            assert_eq!(subflow.token, connection.info.token);
            assert!(socket.info.unwrap().cwnd > 0 && socket.congestion.is_some() && socket.cookie > 0);
        }
        assert!(first.subflow.unwrap().flags.is_first() && !first.subflow.unwrap().flags.is_backup());
        assert!(joined.subflow.unwrap().flags.is_join() && joined.subflow.unwrap().flags.is_backup_local());
        let info = first.info.unwrap();
        assert!(info.rtt_us > 0 && info.rttvar_us > 0 && info.bytes_acked > 0 && info.snd_mss > 1_000);

        // The netlink socket of the far end stays in the far namespace.
        let theirs = far_sockets.tcp(&[TcpState::Established]).unwrap();
        let received: u64 = theirs.iter().map(|s| s.info.unwrap().bytes_received).sum();
        assert_eq!((theirs.len(), received), (2, 50_000));
        let token = theirs[0].subflow.unwrap().token;
        assert_eq!(far_sockets.mptcp(&[TcpState::Established]).unwrap()[0].info.token, token);
        assert_eq!(token, joined.subflow.unwrap().remote_token);
        assert!(far_sockets.tcp(&[TcpState::Listen]).unwrap().iter().any(|s| s.state == TcpState::Listen));
    });
}

/// Reading arbitrary bytes ends and does not panic. Half of them begin as a true message does.
#[test]
fn nonsense_is_read_without_harm() {
    let mut rng = SplitMix64(1);
    let mut random = move || rng.bits();
    for round in 0..100_000_u32 {
        let mut bytes: Vec<u8> = (0..random() % 300).map(|_| (random() >> 32) as u8).collect();
        // Small numbers are plausible lengths and kinds.
        bytes.iter_mut().for_each(|b| *b = if random() % 3 > 0 { *b % 24 } else { *b });
        if round % 2 == 0 && bytes.len() > 80 {
            (bytes[0], bytes[1]) = (2, 1);
        }
        let _ = (Link::parse(&bytes), Address::parse(&bytes), Route::parse(&bytes), Rule::parse(&bytes));
        let _ = (Endpoint::parse(&bytes), TcpSocket::parse(&bytes), MptcpConnection::parse(&bytes));
        let _ = (MptcpSubflow::parse(&bytes), TcpInfo::parse(&bytes), MptcpInfo::parse(&bytes));
        assert!(message::Messages(&bytes).count() <= bytes.len() / 16);
        assert!(message::Attributes(&bytes).count() <= bytes.len() / 4 + 1);
    }
}
