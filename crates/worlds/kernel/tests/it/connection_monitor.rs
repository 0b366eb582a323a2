//! What `watch` sees of real connections. Needs root; says so and passes without.
#![cfg(target_os = "linux")]

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use crate::mptcp_network::{FAR, TestNetwork, carry, in_own_thread, ip, subflows, until};
use anabranch_algo::{Span, Time};
use anabranch_kernel::connection_monitor::{
    ConnectionKind, ConnectionMonitor, ControllerStats, NmccFactors, prometheus_text,
};
use anabranch_kernel::uplinks::{Options, setup};

/// Knows every socket.
struct All;

impl ControllerStats for All {
    fn factors(&self, cookie: u64) -> Option<NmccFactors> {
        Some(NmccFactors { m: 1.0 + cookie as f64, m_t: 2.0 })
    }
}

#[test]
fn both_subflows_are_seen() {
    in_own_thread(|| {
        let Some(network) = TestNetwork::new() else { return };
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            backup: vec!["up2".into()],
            state_dir: dir.path().into(),
            ..Options::new(vec!["up1".into(), "up2".into()])
        };
        setup(&options).unwrap();
        let (mut near, mut far, _listener) = network.connect(FAR);
        carry(&mut near, &mut far, 100_000);
        subflows(2);

        let mut monitor = ConnectionMonitor::open(Arc::new(All), false).unwrap();
        let second = |n: u64| Time::ZERO + Span::from_secs(n);
        let first = monitor.snapshot(second(1)).unwrap();
        assert_eq!(first.connections[0].sent_rate_bytes, 0, "there was no snapshot before");
        carry(&mut near, &mut far, 4_000_000);
        // The last acknowledgement may be on its way.
        let acked = || subflows(2).iter().map(|s| s.info.unwrap().bytes_acked).sum::<u64>();
        until("all is acknowledged", || (acked() >= 4_100_000).then_some(()));
        let snapshot = monitor.snapshot(second(3)).unwrap();
        assert_eq!((snapshot.connections.len(), snapshot.left_out), (1, 0));
        let connection = &snapshot.connections[0];
        assert_eq!((connection.kind, connection.local), (ConnectionKind::Mptcp, near.local_addr().unwrap()));
        assert_eq!(connection.remote, near.peer_addr().unwrap());
        // What MPTCP hands to a subflow again, on a busy machine, is sent twice.
        let twice = connection.reinjected_bytes / 2;
        assert!((2_000_000..2_010_000 + twice).contains(&connection.sent_rate_bytes), "{connection:#?}");
        assert!(connection.token.is_some());
        let [one, two] = &connection.subflows[..] else { panic!("{connection:#?}") };
        assert_eq!(
            (one.interface.as_deref(), one.local.ip(), one.backup),
            (Some("up1"), ip("10.1.0.1"), false)
        );
        assert_eq!(
            (two.interface.as_deref(), two.local.ip(), two.backup),
            (Some("up2"), ip("10.2.0.1"), true)
        );
        assert!(one.cwnd > 0 && one.srtt_us > 0 && !one.controller.is_empty());
        assert_eq!(one.factors, Some(NmccFactors { m: 1.0 + one.cookie as f64, m_t: 2.0 }));
        let json = serde_json::to_value(&snapshot).unwrap();
        assert_eq!(json["connections"][0]["subflows"][1]["interface"], "up2");
        assert_eq!(json["connections"][0]["subflows"][1]["m_t"], 2.0);
        assert_eq!(json["connections"][0]["kind"], "mptcp");

        // As Prometheus gets it, in this namespace.
        let mut monitor = ConnectionMonitor::open(Arc::new(()), false).unwrap();
        let text = prometheus_text(&monitor.snapshot(Time::ZERO).unwrap());
        assert_eq!(text.matches("\nanabranch_subflow_cwnd_packets{").count(), 2, "{text}");
        assert!(text.contains("\nanabranch_connections{kind=\"mptcp\"} 1\n"), "{text}");
        assert_eq!(text.matches("\nanabranch_subflow_m{").count(), 0, "nothing is loaded");
        assert_eq!(prometheus_text(&snapshot).matches("\nanabranch_subflow_m{").count(), 2);
    });
}

#[test]
fn a_connection_that_fell_back_is_told_from_tcp() {
    in_own_thread(|| {
        let Some(network) = TestNetwork::new() else { return };
        network.far();
        let listener = TcpListener::bind((FAR, 0)).unwrap();
        let to = listener.local_addr().unwrap();
        network.near();
        let mptcp = Some(socket2::Protocol::from(262));
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, mptcp).unwrap();
        socket.connect(&to.into()).unwrap();
        let plain = TcpStream::connect(to).unwrap();
        let (mut near, mut far) = (TcpStream::from(socket), listener.accept().unwrap().0);
        carry(&mut near, &mut far, 10_000);
        let kinds = |tcp: bool| {
            let snapshot = ConnectionMonitor::open(Arc::new(()), tcp).unwrap().snapshot(Time::ZERO).unwrap();
            let of = |local| snapshot.connections.iter().find(|c| c.local == local).map(|c| c.kind);
            (of(near.local_addr().unwrap()), of(plain.local_addr().unwrap()), snapshot.connections.len())
        };
        assert_eq!(kinds(true), (Some(ConnectionKind::Fallback), Some(ConnectionKind::Tcp), 2));
        assert_eq!(kinds(false), (Some(ConnectionKind::Fallback), None, 1));
    });
}
