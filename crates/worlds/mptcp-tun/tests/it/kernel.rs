//! Transfers with the kernel at the other end, in both roles.

use std::net::SocketAddr;
use std::thread;

use anabranch_mptcp::{Config, PathManager};

use crate::bed::{Bed, PORT, kernel_address, own_address};
use crate::transfer::{ONE, Plan, pattern, program, run, with_kernel_client, with_kernel_server};

#[test]
fn plain_tcp_with_the_kernel_as_server() {
    for v6 in [false, true] {
        let Some(bed) = Bed::new() else { return };
        let config = Config { mptcp: false, ..Config::default() };
        with_kernel_server(&bed, config, Plan { multipath: false, v6, ..ONE }, |_, _, _| true);
    }
}

#[test]
fn plain_tcp_with_the_kernel_as_client() {
    for v6 in [false, true] {
        let Some(bed) = Bed::new() else { return };
        let config = Config { mptcp: false, ..Config::default() };
        with_kernel_client(&bed, config, Plan { multipath: false, v6, ..ONE }, false, |_, _, _| true);
    }
}

#[test]
fn multipath_with_the_kernel_as_server() {
    for (v6, checksums) in [(false, false), (true, true)] {
        let Some(bed) = Bed::new() else { return };
        if checksums {
            bed.checksums();
        }
        let seen = with_kernel_server(&bed, Config::default(), Plan { v6, ..ONE }, |_, _, _| true);
        assert!(seen.is_multipath(), "{:?}", seen.events);
        bed.assert_clean();
    }
}

#[test]
fn multipath_with_the_kernel_as_client() {
    for (v6, checksums) in [(false, true), (true, false)] {
        let Some(bed) = Bed::new() else { return };
        let config = Config { checksums, ..Config::default() };
        let seen = with_kernel_client(&bed, config, Plan { v6, ..ONE }, false, |_, _, _| true);
        assert!(seen.is_multipath(), "{:?}", seen.events);
        bed.assert_clean();
    }
}

#[test]
fn our_client_joins_over_a_second_path() {
    let Some(bed) = Bed::new() else { return };
    let plan = Plan { links: 2, bytes: 8_000_000, ..ONE };
    let seen = with_kernel_server(&bed, Config::default(), plan, |_, _, _| true);
    assert!(seen.is_multipath() && seen.ups() == 2, "{:?}", seen.events);
    assert_eq!(bed.counters().get("MPJoinAckRx"), Some(&1), "{:?}", bed.counters());
    bed.assert_clean();
}

#[test]
fn our_client_follows_an_announced_address() {
    let Some(bed) = Bed::new() else { return };
    let config = Config { path_manager: PathManager::Fullmesh, ..Config::default() };
    let plan = Plan { links: 2, bytes: 8_000_000, ..ONE };
    let Some(mut host) = bed.host(config, plan.links, false, false) else { return };
    bed.announce(2);
    let listener = bed.listener(true, false);
    let (up, down) = (pattern(plan.bytes, 1), pattern(plan.bytes, 2));
    let sent = down.clone();
    let server = thread::spawn(move || program(&listener.accept().unwrap().0, sent));
    let id = host.connect(None, SocketAddr::new(kernel_address(1, false), PORT));
    let seen = run(&mut host, id, &up, false, |_, _, _| true);
    assert!(server.join().unwrap() == up && seen.read == down);
    // There are subflows from both of our addresses to both of the kernel's.
    assert!(seen.is_multipath() && seen.ups() >= 3, "{:?}", seen.events);
    assert_eq!(bed.counters().get("EchoAdd"), Some(&1), "{:?}", bed.counters());
    bed.assert_clean();
}

#[test]
fn the_kernel_joins_the_address_that_we_announce() {
    let Some(bed) = Bed::new() else { return };
    let plan = Plan { links: 2, bytes: 8_000_000, ..ONE };
    let seen = with_kernel_client(&bed, Config::default(), plan, true, |_, _, _| true);
    assert!(seen.is_multipath() && seen.ups() == 2, "{:?} {:?}", seen.events, bed.counters());
    bed.assert_clean();
}

#[test]
fn a_link_that_dies_stalls_nothing() {
    let Some(bed) = Bed::new() else { return };
    let plan = Plan { links: 2, bytes: 20_000_000, ..ONE };
    let mut is_cut = false;
    let seen = with_kernel_server(&bed, Config::default(), plan, |host, _, seen| {
        if !is_cut && seen.ups() == 2 && seen.read.len() > 4_000_000 {
            host.set_silent(own_address(1, false), true);
            is_cut = true;
        }
        true
    });
    assert!(seen.is_multipath() && seen.ups() == 2, "{:?}", seen.events);
    bed.assert_clean();
}
