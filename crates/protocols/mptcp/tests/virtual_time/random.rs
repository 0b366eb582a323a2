//! Random worlds: whatever links do, the bytes arrive and both ends close. `ANABRANCH_SEEDS=FROM..TO` runs
//! other seeds than the usual thousand.

use std::ops::Range;

use anabranch_algo::control::Algorithm;
use anabranch_algo::{Span, SplitMix64};
use anabranch_mptcp::{Config, LocalAddress, PathManager, SCHEDULERS};

use crate::network::{Faults, Network};

/// The usual seeds.
const SEEDS: Range<u64> = 0..1_000;
const PATH_MANAGERS: [PathManager; 4] =
    [PathManager::Fullmesh, PathManager::Ndiffports(3), PathManager::Default, PathManager::Backup];
/// The algorithms of congestion control.
const CONTROLS: [&str; 4] = ["cubic-coupled", "lia", "reno", "olia"];
/// The longest time that a transfer may take over the worst links.
const PATIENCE: Span = Span::from_secs(3_600);

fn seeds() -> Range<u64> {
    let text = std::env::var("ANABRANCH_SEEDS").unwrap_or_default();
    let parse = || {
        let (from, to) = text.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    };
    parse().unwrap_or(SEEDS)
}

fn faults(random: &mut SplitMix64) -> Faults {
    let severity = random.below(4);
    Faults {
        jitter: Span::from_millis(random.below(1 + 10 * severity)),
        loss: random.below(1 + 60 * severity),
        twice: random.below(1 + 30 * severity),
        ..Faults::none(1 + random.below(60))
    }
}

fn config(random: &mut SplitMix64) -> Config {
    let mut config = Config {
        mptcp: random.below(8) > 0,
        checksums: random.below(4) == 0,
        scheduler: SCHEDULERS[random.index(SCHEDULERS.len())].kind,
        path_manager: PATH_MANAGERS[random.index(PATH_MANAGERS.len())],
        congestion_control: Algorithm::by_name(CONTROLS[random.index(4)]).expect("in the table"),
        receive_buffer_bytes: 10_000 << random.below(8),
        send_buffer_bytes: 10_000 << random.below(8),
        ..Config::default()
    };
    config.tcp.timestamps = random.below(4) > 0;
    config.tcp.ecn = random.below(2) == 0;
    config.tcp.mtu_bytes = [1500, 1280, 576][random.index(3)];
    config.tcp.retries_max = 100;
    config
}

/// Makes an address of the client a backup, removes it or cuts its link, at random, and reverts that after a
/// while.
fn operation(network: &mut Network, random: &mut SplitMix64) {
    let addresses: Vec<_> = network.links.keys().copied().collect();
    let address = addresses[random.index(addresses.len())];
    let what = random.below(4);
    for begins in [true, false] {
        let now = network.now;
        let client = &mut network.hosts[0];
        match (what, client.connection) {
            (0, Some(id)) => {
                client.stack.set_backup(now, id, address, begins);
            }
            // The address is lost, or its link fails at the same time.
            (1 | 2, _) if begins => client.stack.remove_address(now, address),
            (1 | 2, _) => client.stack.add_address(now, LocalAddress::new(address)),
            _ => {}
        }
        if what >= 2
            && let Some(link) = network.links.get_mut(&address)
        {
            link.is_cut = begins;
        }
        network.run(Span::from_millis(random.below(4_000)));
    }
}

/// Runs one world.
///
/// # Errors
/// If something went wrong; the error says what.
fn world(seed: u64) -> Result<(), String> {
    let random = &mut SplitMix64(seed);
    let links: Vec<_> = (0..1 + random.below(3)).map(|_| faults(random)).collect();
    let (client, server) = (config(random), config(random));
    let (upload, download) = (random.index(150_000), random.index(150_000));
    let mut network = Network::new(client, server, &links, random.bits());
    network.connect(upload, download);
    for _ in 0..random.below(4) {
        network.run(Span::from_millis(random.below(2_000)));
        operation(&mut network, random);
    }
    let closed = network.run_until_closed(PATIENCE);
    let checked = network.check();
    if checked.is_err() {
        network.dump();
    }
    checked.map_err(|error| format!("seed {seed}: {error}; closed: {closed}"))
}

#[test]
fn bytes_arrive_whatever_links_do() {
    let failed: Vec<_> = seeds().filter_map(|seed| world(seed).err()).collect();
    let shown: String = failed.iter().take(5).map(|error| format!("{error:.600}\n")).collect();
    assert!(failed.is_empty(), "{} worlds went wrong:\n{shown}", failed.len());
}
