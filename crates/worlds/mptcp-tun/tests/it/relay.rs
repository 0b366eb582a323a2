//! Two hosts of ours whose packets the kernel forwards, each with a file for each direction.

use std::io::{PipeReader, Write as _, pipe};
use std::net::SocketAddr;
use std::thread;

use anabranch_mptcp::{Config, ConnectionEvent};
use anabranch_mptcp_tun::{Peer, RelayTotals, TunHost, TunLink, relay};
use anabranch_net::testing;

use crate::bed::{Bed, PORT, kernel_address, own_address};

/// Returns a host on link `from` and the link after it.
fn host(bed: &Bed, from: u8, announce: bool) -> Option<TunHost> {
    let make = |no| {
        let (own, kernel) = (own_address(no, false), kernel_address(no, false));
        TunLink::new(&bed.namespace, &format!("tun{no}"), own, kernel, 24, 1500)
    };
    let links: std::io::Result<Vec<_>> = (from..from + 2).map(make).collect();
    let links = links.map_err(testing::refused_device).ok()?;
    Some(TunHost::new(Config::default(), links, announce).unwrap())
}

/// Returns a file with these bytes, which ends after them.
fn file(bytes: Vec<u8>) -> PipeReader {
    let (reader, mut writer) = pipe().unwrap();
    thread::spawn(move || writer.write_all(&bytes));
    reader
}

/// Runs one end until it is finished. Returns its output and its totals.
fn run(mut host: TunHost, peer: Peer, bytes: Vec<u8>) -> (Vec<u8>, RelayTotals) {
    let (mut input, mut output) = (file(bytes), Vec::new());
    let mut fell_back = false;
    let on_event = |event: &ConnectionEvent| fell_back |= *event == ConnectionEvent::FellBack;
    let totals = relay(&mut host, peer, &mut input, &mut output, on_event).unwrap();
    assert!(!fell_back);
    (output, totals)
}

#[test]
fn both_ends_are_ours() {
    let Some(bed) = Bed::new() else { return };
    bed.namespace.sysctl("net.ipv4.ip_forward", "1").unwrap();
    let (Some(client), Some(server)) = (host(&bed, 1, false), host(&bed, 3, true)) else { return };
    let (up, down) = (vec![1; 4_000_000], vec![2; 3_000_000]);
    let (sent_up, sent_down) = (up.clone(), down.clone());
    let serving = thread::spawn(move || run(server, Peer::Listen(PORT), sent_down));
    let remote = SocketAddr::new(own_address(3, false), PORT);
    let (read, totals) = run(client, Peer::Connect(remote), sent_up);
    let (served, serving) = serving.join().unwrap();
    assert!(read == down && served == up);
    assert!(totals.multipath && serving.multipath);
    assert!(totals.subflows >= 2, "{totals:?}");
    assert_eq!((totals.sent_bytes, totals.received_bytes), (4_000_000, 3_000_000));
}

#[test]
fn a_refusal_names_the_peer() {
    let Some(bed) = Bed::new() else { return };
    let Some(mut client) = host(&bed, 1, false) else { return };
    let remote = SocketAddr::new(kernel_address(1, false), PORT);
    let refused = relay(&mut client, Peer::Connect(remote), &mut file(Vec::new()), &mut Vec::new(), |_| {});
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(error.to_string(), "10.77.1.1:5000: the connection was refused");
    let none = SocketAddr::new("fd77::1".parse().unwrap(), PORT);
    let no_link = relay(&mut client, Peer::Connect(none), &mut file(Vec::new()), &mut Vec::new(), |_| {});
    assert_eq!(no_link.unwrap_err().to_string(), "no link to [fd77::1]:5000");
}
