//! Tests two sockets on one host: offloads, marks, addresses, errors.

use std::net::{IpAddr, SocketAddr};

use anabranch_algo::Span;
use anabranch_net::*;

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Waits (at most two seconds) and receives once.
fn receive(udp: &Udp, buffers: &mut RecvBuffers, each: impl FnMut(Received<'_>)) -> RecvOutcome {
    let clock = Clock::start();
    let mut poller = Poller::new(clock);
    use std::os::fd::AsFd as _;
    poller.wait([(udp.as_fd(), Interest::Read)], clock.now() + Span::from_secs(2)).unwrap();
    udp.recv(buffers, each).unwrap()
}

fn one(bytes: &[u8]) -> Datagrams<'_> {
    Datagrams { to: None, from_ip: None, bytes, segment: None, ecn: false, dscp: 0 }
}

#[test]
fn forty_segments_arrive_in_one_buffer_with_their_mark() {
    let mut buffers = RecvBuffers::new();
    for host in ["127.0.0.1:0", "[::1]:0"] {
        let source = Udp::listen(address(host)).unwrap();
        let subflow = Udp::connect(&Egress::any(), source.local_addr()).unwrap();
        assert!(subflow.max_segments(1_386) >= 40, "Linux has segmentation offload");

        let bytes: Vec<u8> = (0..39 * 1_386 + 100).map(|i| (i % 251) as u8).collect();
        let outcome = subflow.send(&Datagrams { segment: Some(1_386), ecn: true, ..one(&bytes) });
        assert!(matches!(outcome, SendOutcome::Sent), "{outcome:?}");
        let (mut got, mut sizes, mut calls) = (Vec::new(), Vec::new(), 0);
        while got.len() < bytes.len() {
            let outcome = receive(&source, &mut buffers, |r| {
                calls += 1;
                assert_eq!(r.from, subflow.local_addr());
                assert_eq!(r.to_ip, Some(source.local_addr().ip()));
                assert_eq!((r.stride, r.ecn), (1_386, Some(Ecn::Ect0)));
                sizes.extend(r.datagrams().map(<[u8]>::len));
                got.extend_from_slice(r.bytes);
            });
            assert_eq!(outcome, RecvOutcome::Received { more: false });
        }
        assert_eq!(got, bytes);
        assert_eq!(calls, 1, "loopback never cuts a super-datagram");
        assert_eq!(sizes.len(), 40);
        assert_eq!((sizes[0], sizes[39]), (1_386, 100));
        assert_eq!(source.recv(&mut buffers, |_| panic!("nothing left")).unwrap(), RecvOutcome::WouldBlock);

        // The reply goes the other way, without a mark.
        let reply = Datagrams { to: Some(subflow.local_addr()), ..one(b"reply") };
        assert!(matches!(source.send(&reply), SendOutcome::Sent));
        let mut seen = None;
        receive(&subflow, &mut buffers, |r| seen = Some((r.from, r.bytes.to_vec(), r.ecn)));
        assert_eq!(seen, Some((source.local_addr(), b"reply".to_vec(), None)));
    }
}

#[test]
fn a_closed_port_is_an_outcome() {
    let mut buffers = RecvBuffers::new();
    // No other test listens on the first address, so that none gets the port meanwhile.
    for host in ["127.44.7.3:0", "[::1]:0"] {
        let source = Udp::listen(address(host)).unwrap();
        let closed = source.local_addr();
        drop(source);
        let subflow = Udp::connect(&Egress::any(), closed).unwrap();
        assert!(matches!(subflow.send(&one(b"anybody?")), SendOutcome::Sent));
        let outcome = receive(&subflow, &mut buffers, |_| panic!("nobody answers"));
        assert_eq!(outcome, RecvOutcome::IcmpError(IcmpError::Refused));
        assert_eq!(subflow.recv(&mut buffers, |_| ()).unwrap(), RecvOutcome::WouldBlock, "told once");
        // Nothing was received in between: the next send reports the error.
        assert!(matches!(subflow.send(&one(b"anybody?")), SendOutcome::Sent));
        assert!(matches!(subflow.send(&one(b"anybody?")), SendOutcome::IcmpError(IcmpError::Refused)));
        // Sending works again as soon as a socket listens.
        let source = Udp::listen(closed).unwrap();
        while !matches!(subflow.send(&one(b"back")), SendOutcome::Sent) {}
        let mut seen = 0;
        receive(&source, &mut buffers, |_| seen += 1);
        assert_eq!(seen, 1);
    }
}

#[test]
fn replies_leave_from_the_address_that_was_asked() {
    let mut buffers = RecvBuffers::new();
    let source = Udp::listen(address("0.0.0.0:0")).unwrap();
    let port = source.local_addr().port();
    let asked = SocketAddr::new("127.0.0.2".parse().unwrap(), port);
    let subflow = Udp::connect(&Egress::parse("127.0.0.3").unwrap(), asked).unwrap();
    assert_eq!(subflow.local_addr().ip(), "127.0.0.3".parse::<IpAddr>().unwrap());
    assert!(matches!(subflow.send(&one(b"hello")), SendOutcome::Sent));
    let mut from = None;
    receive(&source, &mut buffers, |r| from = Some((r.from, r.to_ip)));
    assert_eq!(from, Some((subflow.local_addr(), Some(asked.ip()))));

    // A connected socket would not get a reply from another address.
    let reply = Datagrams {
        to: Some(subflow.local_addr()),
        from_ip: Some(asked.ip()),
        bytes: &[7; 3_000],
        segment: Some(1_000),
        ecn: true,
        dscp: 0,
    };
    assert!(matches!(source.send(&reply), SendOutcome::Sent));
    let mut got = 0;
    receive(&subflow, &mut buffers, |r| {
        assert_eq!((r.from, r.stride, r.ecn), (asked, 1_000, Some(Ecn::Ect0)));
        got += r.bytes.len();
    });
    assert_eq!(got, 3_000);
}

/// A reply that cannot be sent, because the destination of its request was no address of this host, must not
/// switch off offloads or marks for other peers.
#[test]
fn an_impossible_reply_costs_nobody_else() {
    let mut buffers = RecvBuffers::new();
    let source = Udp::listen(address("0.0.0.0:0")).unwrap();
    let subflow = Udp::connect(
        &Egress::any(),
        SocketAddr::new("127.0.0.1".parse().unwrap(), source.local_addr().port()),
    )
    .unwrap();
    let foreign = Datagrams {
        to: Some(subflow.local_addr()),
        from_ip: "198.51.100.9".parse().ok(),
        bytes: &[1; 3_000],
        segment: Some(1_000),
        ecn: true,
        dscp: 0,
    };
    for segment in [None, Some(1_000)] {
        let outcome = source.send(&Datagrams { segment, ..foreign });
        assert!(matches!(outcome, SendOutcome::IcmpError(IcmpError::Unreachable)), "{outcome:?}");
    }
    assert!(source.max_segments(1_000) > 1, "offload is still on");
    let good = Datagrams { from_ip: "127.0.0.1".parse().ok(), ..foreign };
    assert!(matches!(source.send(&good), SendOutcome::Sent));
    let mut marked = None;
    receive(&subflow, &mut buffers, |r| marked = Some((r.ecn, r.bytes.len(), r.stride)));
    assert_eq!(marked, Some((Some(Ecn::Ect0), 3_000, 1_000)));
}

#[test]
fn nonsense_is_refused_before_the_kernel_sees_it() {
    let source = Udp::listen(address("127.0.0.1:0")).unwrap();
    let to = Some(address("127.0.0.1:9"));
    let many = vec![0; 60_000];
    for bad in [
        one(b"no destination"),
        Datagrams { to: Some(address("127.0.0.1:0")), ..one(b"port 0") },
        Datagrams { to: Some(address("0.0.0.0:9")), ..one(b"nowhere") },
        Datagrams { to: Some(address("[::1]:9")), ..one(b"other family") },
        Datagrams { to, segment: Some(0), ..one(b"no size") },
        Datagrams { to, segment: Some(100), ..one(&many) },
    ] {
        assert!(matches!(source.send(&bad), SendOutcome::Other(_)), "{bad:?}");
    }
    let huge = vec![0; 65_508];
    assert!(matches!(source.send(&Datagrams { to, ..one(&huge) }), SendOutcome::TooBig));
    assert!(source.max_segments(1_000) > 1);
}

#[test]
fn strangers_do_not_reach_connected_sockets() {
    let mut buffers = RecvBuffers::new();
    let source = Udp::listen(address("127.0.0.1:0")).unwrap();
    let subflow = Udp::connect(&Egress::any(), source.local_addr()).unwrap();
    let stranger = Udp::listen(address("127.0.0.1:0")).unwrap();
    let to = Some(subflow.local_addr());
    assert!(matches!(stranger.send(&Datagrams { to, ..one(b"psst") }), SendOutcome::Sent));
    assert!(matches!(source.send(&Datagrams { to, ..one(b"mine") }), SendOutcome::Sent));
    let mut seen = Vec::new();
    receive(&subflow, &mut buffers, |r| seen.push(r.bytes.to_vec()));
    assert_eq!(seen, [b"mine".to_vec()]);
}

#[test]
fn buffers_and_addresses_are_reported() {
    let source = Udp::listen(address("[::]:0")).unwrap();
    assert!(source.receive_buffer() >= 100_000, "{}", source.receive_buffer());
    // `[::]` is IPv6 only: the same port is free for IPv4.
    let both = Udp::listen(SocketAddr::new("0.0.0.0".parse().unwrap(), source.local_addr().port())).unwrap();
    assert_eq!(both.peer_addr(), None);
    let error = Udp::listen(both.local_addr()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    assert!(error.to_string().contains(&both.local_addr().to_string()), "{error}");
    // An IPv4-mapped IPv6 address is an IPv4 peer.
    let mapped = SocketAddr::new("::ffff:127.0.0.1".parse().unwrap(), both.local_addr().port());
    assert!(Udp::connect(&Egress::any(), mapped).unwrap().local_addr().is_ipv4());
}
