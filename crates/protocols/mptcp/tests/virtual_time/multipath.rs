//! Multipath TCP between two stacks.

use anabranch_algo::Span;
use anabranch_mptcp::segment::Flags;
use anabranch_mptcp::{Config, ConnectionEvent, Payload, SchedulerKind, SubflowError};
use anabranch_mptcp_wire::MptcpOption;

use crate::network::{Faults, Network, transfer};

#[test]
fn one_subflow() {
    let network = transfer(Config::default(), Config::default(), &[Faults::none(10)], (300_000, 300_000), 1);
    for host in &network.hosts {
        assert!(host.has(|event| *event == ConnectionEvent::Established { multipath: true }));
        assert!(!host.has(|event| *event == ConnectionEvent::FellBack));
    }
}

fn ups(network: &Network, host: usize) -> usize {
    let is_up = |event: &&ConnectionEvent| matches!(event, ConnectionEvent::SubflowUp { .. });
    network.hosts[host].events.iter().filter(is_up).count()
}

#[test]
fn two_subflows() {
    let links = [Faults::none(10), Faults::none(20)];
    for checksums in [false, true] {
        let config = Config { checksums, ..Config::default() };
        let network = transfer(config, Config::default(), &links, (1_000_000, 1_000_000), 1);
        assert_eq!((ups(&network, 0), ups(&network, 1)), (2, 2));
    }
}

#[test]
fn each_scheduler() {
    let links = [Faults { loss: 20, ..Faults::none(10) }, Faults { loss: 10, ..Faults::none(40) }];
    for row in anabranch_mptcp::SCHEDULERS {
        let config = Config { scheduler: row.kind, ..Config::default() };
        transfer(config.clone(), config, &links, (500_000, 500_000), 5);
    }
    assert_eq!(SchedulerKind::by_name("no such"), None);
}

/// A program that writes and reads views gets the same bytes, and reports say which subflow carried them.
#[test]
fn views_and_reports() {
    let links = [Faults::none(10), Faults::none(10)];
    let mut network = Network::new(Config::default(), Config::default(), &links, 1);
    network.hosts[0].finishes = false;
    network.hosts[1].reads = false;
    network.connect(0, 0);
    network.run(Span::from_millis(200));
    let pattern: Vec<u8> = (0..300_000_u32).flat_map(|at| at.to_le_bytes()).collect();
    let bytes = Payload::from(pattern.clone());
    let (client, server) = (network.hosts[0].connection.unwrap(), network.hosts[1].connection.unwrap());
    assert_eq!(network.hosts[0].stack.write_view(client, bytes.clone()), pattern.len());
    network.run(Span::from_secs(5));
    let reports: Vec<_> = network.hosts[1].stack.subflows(server).collect();
    assert_eq!(reports.len(), 2);
    assert_eq!(reports.iter().map(|report| report.received_bytes).sum::<u64>(), pattern.len() as u64);
    assert!(reports.iter().all(|report| report.received_bytes > 0), "{reports:?}");
    for report in reports {
        let peer = network.hosts[0].stack.subflow(report.remote, report.local).expect("the peer's end");
        assert!(peer.srtt >= Span::from_millis(20) && peer.timeouts == 0, "{peer:?}");
    }
    let stack = &mut network.hosts[1].stack;
    let read: Vec<u8> =
        std::iter::from_fn(|| stack.read_view(server)).flat_map(|view| view.as_bytes().to_vec()).collect();
    assert!(read == pattern);
    // A connection that has finished takes nothing more.
    network.hosts[0].stack.finish(client);
    assert_eq!(network.hosts[0].stack.write_view(client, bytes), 0);
}

#[test]
fn a_path_that_dies() {
    let links = [Faults::none(10), Faults::none(20)];
    let mut network = Network::new(Config::default(), Config::default(), &links, 1);
    network.connect(3_000_000, 0);
    network.run(Span::from_millis(150));
    let address = crate::network::client_address(0);
    network.links.get_mut(&address).unwrap().is_cut = true;
    let closed = network.run_until_closed(Span::from_secs(600));
    network.dump();
    network.check().unwrap();
    assert!(closed);
}

#[test]
fn options_that_are_stripped() {
    let links = [Faults { strips: true, ..Faults::none(10) }];
    let network = transfer(Config::default(), Config::default(), &links, (100_000, 100_000), 1);
    assert!(network.hosts[0].has(|event| *event == ConnectionEvent::FellBack));
}

#[test]
fn a_path_that_changes_bytes_is_found_by_checksums() {
    let config = Config { checksums: true, ..Config::default() };
    let mut network = Network::new(config.clone(), config, &[Faults::none(10), Faults::none(10)], 1);
    let mut count = 0;
    network.filter = Some(Box::new(move |from, segment| {
        if from == 0
            && segment.source.ip() == crate::network::client_address(1)
            && !segment.payload.is_empty()
        {
            count += 1;
            if count == 3 {
                let mut bytes = segment.payload.as_bytes().to_vec();
                bytes[7] ^= 0x20;
                segment.payload = bytes.into();
            }
        }
        true
    }));
    network.keeps_log = true;
    network.connect(1_000_000, 0);
    assert!(network.run_until_closed(Span::from_secs(60)));
    network.check().unwrap();
    let fails = network.log.iter().filter(|(_, from, segment)| {
        let is_fail = |option| matches!(option, MptcpOption::Fail { .. });
        *from == 1 && segment.flags.has(Flags::RST) && segment.options.iter().mptcp().any(is_fail)
    });
    assert_eq!(fails.count(), 1);
}

#[test]
fn an_abort_ends_both_ends_and_all_subflows() {
    for from in 0..2 {
        let links = [Faults::none(10), Faults::none(20)];
        let mut network = Network::new(Config::default(), Config::default(), &links, 1);
        network.connect(3_000_000, 3_000_000);
        network.run(Span::from_millis(120));
        let id = network.hosts[from].connection.unwrap();
        network.hosts[from].stack.abort(id);
        network.run(Span::from_secs(1));
        let ends = [SubflowError::Aborted, SubflowError::Reset];
        for (host, error) in [(from, ends[0]), (1 - from, ends[1])] {
            let closed = ConnectionEvent::Closed { error: Some(error) };
            assert!(network.hosts[host].events.contains(&closed), "{:?}", network.hosts[host].events);
            assert_eq!(network.hosts[host].stack.connection_count(), 0);
        }
    }
}
