//! Random swarms, random faults: as long as one honest source is there in the end, the content arrives
//! intact, every window is kept, nothing is reported twice, and no honest source is struck off.
//!
//! `ANABRANCH_SEEDS=10000 cargo test --release -p anabranch-lab --test chaos -- --nocapture` runs more of
//! them, from
//! `ANABRANCH_FIRST` on;
//! `ANABRANCH_SEED=17` runs one and says what it was.

use algo::control::{ALGORITHMS, Algorithm};
use algo::{Rate, Span, Time};
use lab::{Content, Fault, Lie, Swarm, Wire};
use mmtp::subscriber::Event;
use sim::{Command, LinkConfig, LinkId, Rng};

/// Whatever happens has happened by then.
const TURMOIL: Span = Span::from_secs(20);
/// By then it must be done.
const LIMIT: Time = Time::from_nanos(1_000_000_000_000);

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len() as u64) as usize]
}

fn config(rng: &mut Rng, slow: bool) -> LinkConfig {
    let often = |rng: &mut Rng, p: f64, most: f64| if rng.chance(p) { rng.unit() * most } else { 0.0 };
    let mbits = pick(rng, if slow { &[1, 2, 5, 10, 20, 50][..] } else { &[100, 1_000][..] });
    let rate = Rate::from_bits(mbits * 1_000_000);
    let delay_max_us = pick(rng, &[100, 5_000, 100_000]);
    let delay = Span::from_micros(rng.below(delay_max_us));
    LinkConfig {
        jitter: Span::from_micros(rng.below(2_000)),
        loss: often(rng, 0.4, 0.08),
        // Towards the receiver only: a request whose broken name slips past the checksum is rightly refused.
        corrupt: if slow { often(rng, 0.2, 0.01) } else { 0.0 },
        duplicate: often(rng, 0.2, 0.05),
        reorder: often(rng, 0.2, 0.1),
        reorder_by: Span::from_micros(rng.below(10_000)),
        mtu_bytes: pick(rng, &[1_514, 1_514, 1_394, 1_294, 9_014]),
        mark_above_bytes: rng.chance(0.2).then(|| 10_000 + rng.below(50_000)),
        ..LinkConfig::new(rate, delay).queue_bytes(6_000 + rng.below(200_000))
    }
}

fn moment(rng: &mut Rng) -> Time {
    // Most of a transfer is in its first seconds.
    let within = pick(rng, &[Span::from_millis(300), Span::from_secs(3), TURMOIL]);
    Time::from_nanos(rng.below(within.as_nanos()))
}

const LIES: &[Lie] = &[
    Lie::Flip { every: 100_000 },
    Lie::Flip { every: 3_000_000 },
    Lie::Old,
    Lie::Random,
    Lie::Silent,
    Lie::Thrice,
    Lie::WrongHashes,
    Lie::Garbage,
];

struct Chaos {
    swarm: Swarm,
    lies: Vec<Lie>,
    /// Whether a flipped bit can make an honest source look like a liar.
    corrupting: bool,
}

fn chaos(seed: u64) -> Chaos {
    let mut rng = Rng::stream(seed, "chaos");
    let mut swarm = Swarm::new(seed);
    let sizes = [0, 1, 1_366, 16_384, 16_385, 200_000, 1_048_576, 3_000_000];
    let contents: Vec<Content> = (0..1 + rng.below(3))
        .map(|i| {
            let most = pick(&mut rng, &sizes) as u64;
            let bytes = if rng.chance(0.5) { most } else { rng.below(most + 1) };
            Content::random(seed << 8 | i, bytes as usize)
        })
        .collect();
    // Source 0 is honest, and has everything.
    let mut lies = vec![Lie::Honest];
    swarm.source(&contents, Lie::Honest);
    for _ in 0..rng.below(4) {
        let lie = if rng.chance(0.5) { Lie::Honest } else { pick(&mut rng, LIES) };
        let some = if rng.chance(0.8) { &contents[..] } else { &contents[1..] };
        swarm.source(some, lie);
        lies.push(lie);
    }
    let coalesce = Span::from_micros(pick(&mut rng, &[0, 0, 100, 2_000]));
    let receiver = swarm.receiver(coalesce);
    let mut links: Vec<LinkId> = Vec::new();
    let mut corrupting = false;
    let mut link = |swarm: &mut Swarm, rng: &mut Rng, slow| {
        let config = config(rng, slow);
        corrupting |= config.corrupt > 0.0;
        let id = swarm.link(&format!("link {}", links.len()), config);
        links.push(id);
        id
    };
    let shared = link(&mut swarm, &mut rng, true);
    let algorithm = || ALGORITHMS.iter().map(|entry| entry.name);
    let mut paths = 0;
    for source in 0..lies.len() {
        for _ in 0..1 + rng.below(2) {
            let mut down = vec![link(&mut swarm, &mut rng, true)];
            down.extend(rng.chance(0.3).then_some(shared));
            let up = [link(&mut swarm, &mut rng, false)];
            let name = algorithm().nth(rng.below(algorithm().count() as u64) as usize).expect("one of them");
            let mut wire = Wire::new(&down, &up, Algorithm::by_name(name).expect("in the table"));
            (wire.group, wire.payload_max) =
                (rng.below(2) as u32, pick(&mut rng, &[1_472, 1_472, 8_972, 1_200]));
            swarm.path(receiver, source, &wire);
            paths += 1;
        }
    }
    for content in &contents {
        let at = if rng.chance(0.7) { Time::ZERO } else { moment(&mut rng) };
        swarm.want(receiver, content, at);
    }
    let end = Time::ZERO + TURMOIL;
    for _ in 0..rng.below(8) {
        let (at, source, path) =
            (moment(&mut rng), rng.below(lies.len() as u64) as usize, rng.below(paths) as usize);
        match rng.below(4) {
            0 => {
                swarm.at(at, Fault::Kill { source, unreachable: rng.chance(0.5) });
                // Source 0 always comes back; another may stay away.
                if source == 0 || rng.chance(0.7) {
                    let back = at + Span::from_millis(rng.below(15_000));
                    swarm.at(back, Fault::Restart { source });
                }
            }
            1 => {
                swarm.at(at, Fault::Interface { receiver, path, up: false });
                swarm.at(
                    at + Span::from_millis(rng.below(10_000)),
                    Fault::Interface { receiver, path, up: true },
                );
            }
            2 => {
                let link = pick(&mut rng, &links);
                swarm.at(at, Fault::Link { link, command: Command::Up(false) });
                swarm.at(
                    at + Span::from_millis(rng.below(10_000)),
                    Fault::Link { link, command: Command::Up(true) },
                );
            }
            _ => {
                let link = pick(&mut rng, &links);
                let delay = Command::Delay(Span::from_micros(rng.below(200_000)));
                swarm.at(at, Fault::Link { link, command: delay });
            }
        }
    }
    // In the end source 0 lives, and can be reached.
    swarm.at(end + TURMOIL, Fault::Restart { source: 0 });
    for link in links {
        swarm.at(end + TURMOIL, Fault::Link { link, command: Command::Up(true) });
    }
    (0..paths as usize)
        .for_each(|path| swarm.at(end + TURMOIL, Fault::Interface { receiver, path, up: true }));
    Chaos { swarm, lies, corrupting }
}

/// What went wrong with this seed.
fn wrong(seed: u64) -> Vec<String> {
    let Chaos { mut swarm, lies, corrupting } = chaos(seed);
    let done = swarm.run_to_end(LIMIT);
    let mut wrong = swarm.violations();
    let struck: Vec<usize> = swarm
        .events(0)
        .iter()
        .filter_map(|(_, event)| match event {
            Event::Struck { source, .. } => swarm.source_of(0, *source),
            _ => None,
        })
        .collect();
    // A bit that the network flips is not told from one that the source flips.
    let innocent = |source: &&usize| matches!(lies[**source], Lie::Honest | Lie::Thrice | Lie::Silent);
    if !corrupting && let Some(source) = struck.iter().find(innocent) {
        wrong.push(format!("source {source} is struck off, and is {:?}", lies[*source]));
    }
    if !done && !struck.contains(&0) {
        wrong.push(format!(
            "not done at {} s; lies {lies:?}; {:#?}",
            swarm.clock().as_nanos() / 1_000_000_000,
            swarm.paths(0)
        ));
    }
    wrong
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

#[test]
fn intact_whatever_happens() {
    if let Some(seed) = number("ANABRANCH_SEED") {
        assert_eq!(wrong(seed), Vec::<String>::new());
        return;
    }
    let (first, seeds) = (number("ANABRANCH_FIRST").unwrap_or(0), number("ANABRANCH_SEEDS").unwrap_or(300));
    let mut bad = Vec::new();
    for seed in first..first + seeds {
        if seeds > 1_000 && seed % 100 == 0 {
            eprintln!("seed {seed}, {} went wrong", bad.len());
        }
        let result = std::panic::catch_unwind(|| wrong(seed));
        match result {
            Ok(wrong) if wrong.is_empty() => {}
            Ok(wrong) => bad.push((seed, wrong[0].chars().take(300).collect::<String>())),
            Err(_) => bad.push((seed, "panicked".to_owned())),
        }
    }
    assert!(bad.is_empty(), "{} of {seeds} seeds went wrong:\n{bad:#?}", bad.len());
}
