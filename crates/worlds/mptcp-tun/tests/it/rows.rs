//! Rows of interoperation with the kernel: families, checksums and one to four subflows, in both roles; and
//! changes in the middle of a transfer.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::thread;

use anabranch_mptcp::{Config, ConnectionEvent};
use anabranch_net::testing;

use crate::bed::{Bed, PORT, kernel_address, own_address};
use crate::transfer::{ONE, Plan, run, with_kernel_client, with_kernel_server};

/// Checks that the connection stayed Multipath TCP and had this number of subflows, and that the kernel
/// counted no error.
macro_rules! assert_row {
    ($bed:expr, $seen:expr, $subflows:expr, $row:expr) => {
        let (bed, seen) = (&$bed, &$seen);
        let is_right = seen.is_multipath() && seen.ups() == $subflows;
        assert!(is_right, "{:?}: {:?} {:?}", $row, seen.events, bed.counters());
        bed.assert_clean();
    };
}

/// Runs all rows of a role and a family: one to four subflows, with and without checksums.
fn rows(v6: bool, is_server: bool) {
    for (links, checksums) in (1..=4).flat_map(|links| [(links, false), (links, true)]) {
        let Some(bed) = Bed::new() else { return };
        // The kernel makes no further subflows once its program has finished, so our buffer must not hold all
        // its data.
        let receive_buffer_bytes = if is_server { 200_000 } else { 4 << 20 };
        let config = Config { checksums, receive_buffer_bytes, ..Config::default() };
        let (holds, bytes) = if is_server { (true, 8_000_000) } else { (false, 1_500_000) };
        let plan = Plan { v6, links, bytes, holds, ..ONE };
        let subflows = usize::from(links);
        let seen = if is_server {
            with_kernel_client(&bed, config, plan, true, |_, _, seen| seen.ups() >= subflows)
        } else {
            with_kernel_server(&bed, config, plan, |_, _, seen| seen.ups() >= subflows)
        };
        assert_row!(bed, seen, subflows, (links, checksums));
    }
}

#[test]
fn our_client_over_ipv4() {
    rows(false, false);
}

#[test]
fn our_client_over_ipv6() {
    rows(true, false);
}

#[test]
fn our_server_over_ipv4() {
    rows(false, true);
}

#[test]
fn our_server_over_ipv6() {
    rows(true, true);
}

const TWO: Plan = Plan { links: 2, bytes: 8_000_000, ..ONE };

#[test]
fn our_path_becomes_backup_and_ceases_to_be_one() {
    let Some(bed) = Bed::new() else { return };
    let mut done = 0;
    // A notice may be lost; it is sent again after a second.
    let heard = || bed.counters().get("MPPrioRx").is_some_and(|count| *count >= 2);
    let seen = with_kernel_server(&bed, Config::default(), TWO, |host, id, seen| {
        if seen.ups() == 2 && seen.read.len() > done * 3_000_000 && done < 2 {
            done += 1;
            assert_eq!(host.set_backup(id, own_address(1, false), done == 1), 1);
        }
        done == 2 && heard()
    });
    assert_row!(bed, seen, 2, "backup");
}

#[test]
fn a_path_of_the_kernel_becomes_backup() {
    let Some(bed) = Bed::new() else { return };
    bed.announce(2);
    let mut is_done = false;
    let seen = with_kernel_server(&bed, Config::default(), TWO, |_, _, seen| {
        if !is_done && seen.ups() >= 3 {
            bed.set_backup(2, true);
            is_done = true;
        }
        is_done
    });
    // There are subflows from both of our addresses to both of the kernel's.
    assert_row!(bed, seen, 4, "the kernel's backup");
    assert!(bed.counters().get("MPPrioTx") >= Some(&1), "{:?}", bed.counters());
}

#[test]
fn the_kernel_gets_an_address_and_loses_it() {
    let Some(bed) = Bed::new() else { return };
    let (mut added, mut removed) = (false, false);
    let seen = with_kernel_server(&bed, Config::default(), TWO, |_, _, seen| {
        if !added && seen.ups() == 2 {
            bed.announce(2);
            added = true;
        } else if !removed && seen.ups() == 4 {
            bed.retract(2);
            removed = true;
        }
        removed && seen.downs() >= 2
    });
    assert_row!(bed, seen, 4, "the kernel's address");
    assert!(bed.counters().contains_key("EchoAdd"), "{:?}", bed.counters());
}

#[test]
fn our_client_gets_a_link_and_loses_the_first() {
    let Some(bed) = Bed::new() else { return };
    let (mut added, mut removed) = (false, false);
    // A notice may be lost; it is sent again after a second.
    let heard = || bed.counters().contains_key("RmAddr");
    let seen = with_kernel_server(&bed, Config::default(), Plan { links: 1, ..TWO }, |host, _, seen| {
        if !added && seen.read.len() > 1_000_000 {
            host.add_link(bed.link(2, false).unwrap(), false);
            added = true;
        } else if !removed && seen.ups() == 2 {
            // Our device stays, because the kernel's address is on it.
            let now = host.now();
            host.stack().remove_address(now, own_address(1, false));
            host.set_silent(own_address(1, false), true);
            removed = true;
        }
        removed && heard()
    });
    assert_row!(bed, seen, 2, "our link");
}

#[test]
fn our_server_gets_a_link_and_loses_it() {
    let Some(bed) = Bed::new() else { return };
    let (mut added, mut removed) = (false, false);
    let plan = Plan { links: 1, ..TWO };
    let seen = with_kernel_client(&bed, Config::default(), plan, true, |host, _, seen| {
        if !added && seen.read.len() > 1_000_000 {
            host.add_link(bed.link(2, false).unwrap(), true);
            added = true;
        } else if !removed && seen.ups() == 2 {
            host.remove_link(own_address(2, false));
            removed = true;
        }
        removed
    });
    assert_row!(bed, seen, 2, "our announced link");
    let counters = bed.counters();
    assert!(counters.contains_key("AddAddr") && counters.contains_key("RmAddr"), "{counters:?}");
}

#[test]
fn a_connection_begins_although_the_first_link_is_dead() {
    let Some(bed) = Bed::new() else { return };
    let Some(mut host) = bed.host(Config::default(), 2, false, false) else { return };
    let listener = bed.listener(true, false);
    let serving = thread::spawn(move || {
        let mut read = Vec::new();
        let (mut socket, _) = listener.accept().unwrap();
        socket.read_to_end(&mut read).unwrap();
        read
    });
    host.set_silent(own_address(1, false), true);
    let (begun, mut took) = (host.now(), None);
    let id = host.connect(None, SocketAddr::new(kernel_address(1, false), PORT));
    let seen = run(&mut host, id, b"hello", false, |host, _, seen| {
        took = took.or_else(|| seen.is_multipath().then(|| host.now().since(begun)));
        true
    });
    assert_eq!(serving.join().unwrap(), b"hello");
    assert_row!(bed, seen, 1, "a dead link");
    assert!(took.unwrap().as_millis() < 1_000, "{took:?}");
}

/// Returns byte `at` of the large transfer.
const fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8
}

/// Compares both directions byte by byte as they arrive. `ANABRANCH_LONG=1` makes the transfer 1 GiB each
/// way.
#[test]
fn a_large_transfer_is_whole() {
    let total: u64 = testing::extent(12 << 20, 1 << 30);
    let Some(bed) = Bed::new() else { return };
    let Some(mut host) = bed.host(Config::default(), 2, false, false) else { return };
    let listener = bed.listener(true, false);
    let server = thread::spawn(move || {
        let socket = listener.accept().unwrap().0;
        let writer = socket.try_clone().unwrap();
        let writing = thread::spawn(move || {
            let mut at = 0;
            while at < total {
                let end = (at + 65_536).min(total);
                let bytes: Vec<u8> = (at..end).map(|at| byte(at + 1)).collect();
                (&writer).write_all(&bytes).unwrap();
                at = end;
            }
            writer.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let (mut at, mut buffer) = (0, vec![0; 65_536]);
        loop {
            let count = { &socket }.read(&mut buffer).unwrap();
            assert!(buffer[..count].iter().zip(at..).all(|(read, at)| *read == byte(at)), "at {at}");
            at += count as u64;
            if count == 0 {
                writing.join().unwrap();
                return at;
            }
        }
    });
    let id = host.connect(None, SocketAddr::new(kernel_address(1, false), PORT)).unwrap();
    let (mut written, mut read, mut closed, mut fell_back) = (0, 0, false, false);
    let mut buffer = vec![0; 65_536];
    while !closed {
        let until = host.now() + anabranch_algo::Span::from_secs(20);
        host.turn(None, until, |(_, event)| {
            closed |= matches!(event, ConnectionEvent::Closed { .. });
            fell_back |= event == ConnectionEvent::FellBack;
        })
        .unwrap();
        assert!(host.now() < until, "nothing happens at {written} and {read}");
        while written < total {
            let end = (written + 65_536).min(total);
            let bytes: Vec<u8> = (written..end).map(byte).collect();
            match host.stack().write(id, &bytes) {
                0 => break,
                count => written += count as u64,
            }
        }
        if written == total {
            host.stack().finish(id);
        }
        loop {
            let count = host.stack().read(id, &mut buffer);
            assert!(buffer[..count].iter().zip(read..).all(|(got, at)| *got == byte(at + 1)), "at {read}");
            read += count as u64;
            if count == 0 {
                break;
            }
        }
    }
    host.turn(None, anabranch_algo::Time::ZERO, |_| {}).unwrap();
    assert_eq!((server.join().unwrap(), read, fell_back), (total, total, false));
    bed.assert_clean();
}
