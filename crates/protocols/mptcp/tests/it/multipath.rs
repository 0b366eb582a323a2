//! Multipath TCP between two stacks.

use anabranch_algo::Span;
use anabranch_mptcp::{Config, ConnectionEvent, SchedulerKind};

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
