//! Tests that scenarios run as written: equal seeds give equal runs, shares follow theory, and unmet
//! conditions are reported.

use std::path::Path;

use anabranch_algo::control::ALGORITHMS;
use anabranch_lab::outcome::Outcome;
use anabranch_lab::run::run;
use anabranch_lab::scenario::Scenario;

const ONE_BOTTLENECK: &str = r#"
title = "one bottleneck"
packet = "1000 B"
duration = "60 s"
count_from = "10 s"
[link.neck]
rate = "1000 pkt/s"
queue = "50 ms"
jitter = "1 ms"
[flow.mp]
start_within = "1 s"
paths = [
    { via = ["neck"], rtt = "50 ms", access = "4000 pkt/s" },
    { via = ["neck"], rtt = "50 ms", access = "4000 pkt/s" },
]
[flow.sp]
start_within = "1 s"
paths = [{ via = ["neck"], rtt = "50 ms", access = "4000 pkt/s" }]
[[measure]]
metric = "mp_share"
flows = ["mp"]
kind = "share"
[[measure]]
metric = "utilisation"
kind = "utilisation"
links = ["neck"]
[[assert]]
what = "drops"
link = "neck"
at_least = 10
[[assert]]
what = "rtt"
flow = "sp"
at_least = 50
at_most = 103
"#;

fn scenario(text: &str) -> Scenario {
    toml::from_str(text).expect("it is one")
}

fn mean(scenario: &Scenario, controller: &str, measure: usize) -> f64 {
    const SEEDS: u64 = 4;
    let value = |seed| {
        let outcome = run(scenario, controller, seed);
        assert!(outcome.violations.is_empty(), "{controller}: {:?}", outcome.violations);
        outcome.values[measure].expect("it was measured")
    };
    (1..=SEEDS).map(value).sum::<f64>() / SEEDS as f64
}

#[test]
fn the_control_is_right() {
    // Three TCPs share one link, and two of them belong to the flow.
    let share = mean(&scenario(ONE_BOTTLENECK), "reno", 0);
    assert!((share - 66.7).abs() < 3.0, "uncoupled takes {share} %");
}

/// Returns the cases of a scenario of the repository.
fn cases(name: &str) -> Vec<(String, Scenario)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios").join(name);
    let cases = Scenario::load(&path).and_then(|scenario| scenario.cases()).expect("it is one");
    cases.into_iter().map(|(name, case)| (name.unwrap_or_default(), case)).collect()
}

#[test]
fn on_idle_links_the_default_is_as_fast_as_without_coupling() {
    // Not tested are a queue of a tenth of a bandwidth-delay product, where a loss costs more, and random
    // losses, which cost more until the paths are known to share nothing: see docs/congestion-control.md.
    let is_held = |name: &str| !name.ends_with("queue 5 ms") && !name.contains("0.1 % lost");
    for (name, case) in cases("idle-links.toml").into_iter().filter(|(name, _)| is_held(name)) {
        let time = |controller| run(&case, controller, 1).values[0].expect("it ends");
        let (coupled, uncoupled) = (time(ALGORITHMS[0].name), time("cubic"));
        assert!(coupled <= 1.02 * uncoupled, "{name}: {coupled} s, uncoupled {uncoupled} s");
    }
}

#[test]
fn beside_a_cubic_flow_coupled_paths_take_half() {
    // Only the quick rows of the table, with less time and fewer seeds.
    let held = ["20 ms, 2 paths", "mmTP, 20 ms, 2 paths", "20 ms, 4 paths", "RED, 20 ms, 2 paths"];
    let held = &held[..anabranch_net::testing::extent(2, held.len())];
    let cases = cases("beside-cubic.toml").into_iter().filter(|(name, _)| held.contains(&name.as_str()));
    let mut shares = Vec::new();
    for (name, mut case) in cases {
        case.set("duration", "250 s").expect("it is a time");
        shares.push((name, mean(&case, ALGORITHMS[0].name, 0)));
    }
    assert_eq!(shares.len(), held.len());
    assert!(shares.iter().all(|(_, share)| (47.0..=53.0).contains(share)), "{shares:?}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let scenario = scenario(ONE_BOTTLENECK);
    let strip = |outcome: Outcome| (outcome.values, outcome.digest, outcome.link_packets);
    assert_eq!(strip(run(&scenario, "nmcc", 3)), strip(run(&scenario, "nmcc", 3)));
    assert_ne!(run(&scenario, "nmcc", 3).digest, run(&scenario, "nmcc", 4).digest);
}

#[test]
fn another_flow_does_not_shift_the_draws_of_the_rest() {
    let text = ONE_BOTTLENECK.replace("[flow.sp]", "[link.apart]\nrate = \"100 pkt/s\"\n[flow.sp]");
    let alone = run(&scenario(&text), "reno", 1);
    let beside = text.replace(
        "[flow.sp]",
        "[flow.another]\nstart_within = \"1 s\"\npaths = [{ via = [\"apart\"], rtt = \"20 ms\" }]\n[flow.sp]",
    );
    let share = |text: &str| text.replace("flows = [\"mp\"]", "flows = [\"mp\"]\nof = [\"mp\", \"sp\"]");
    let beside = run(&scenario(&share(&beside)), "reno", 1);
    assert_eq!(alone.values, beside.values);
}

#[test]
fn what_never_happened_is_reported() {
    let violations =
        |extra: &str| run(&scenario(&ONE_BOTTLENECK.replace("jitter =", extra)), "nmcc", 1).violations;
    assert_eq!(violations("jitter ="), Vec::<String>::new());
    assert_eq!(
        violations("drop = [1000000000]\njitter ="),
        ["link neck: 0 of the 1 packets to drop came by"]
    );
    let rare = violations("loss = 1e-12\njitter =");
    assert_eq!(rare, ["link neck: random loss was asked for and never happened"]);
    let mut wide = scenario(ONE_BOTTLENECK);
    wide.assert[0].at_least = Some(1e9);
    assert_eq!(run(&wide, "nmcc", 1).violations.len(), 1);
}

#[test]
fn a_condition_on_a_path_is_measured_of_that_path_alone() {
    let text = r#"
        title = "one path is short, the other long"
        duration = "5 s"
        [link.short]
        rate = "10 Mbit/s"
        queue = "10 ms"
        [link.long]
        rate = "2 Mbit/s"
        queue = "10 ms"
        [flow.mp]
        paths = [{ via = ["short"], rtt = "20 ms" }, { via = ["long"], rtt = "90 ms" }]
        [[assert]]
        what = "rtt"
        flow = "mp"
        path = 0
        at_least = 20
        at_most = 40
        [[assert]]
        what = "goodput"
        flow = "mp"
        path = 1
        at_most = 2
    "#;
    let violations = |text: &str| run(&scenario(text), "nmcc", 1).violations;
    assert_eq!(violations(text), Vec::<String>::new());
    let path = |text: &str, from: usize, to: usize| {
        text.replace(&format!("path = {from}\n"), &format!("path = {to}\n"))
    };
    let [rtt] = &violations(&path(text, 0, 1))[..] else { panic!("the RTT alone is another") };
    assert!(rtt.starts_with("flow mp, path 1: RTT in ms: 9") && rtt.ends_with("at most 40 wanted"), "{rtt}");
    let [goodput] = &violations(&path(text, 1, 0))[..] else { panic!("the goodput alone is another") };
    assert!(goodput.starts_with("flow mp, path 0: goodput in Mbit/s: "), "{goodput}");
    // Without a path number each path must meet the condition, or all together.
    assert_eq!(violations(&text.replace("path = 0\n", "")).len(), 1);
    assert_eq!(violations(&text.replace("path = 1\n", "")).len(), 1);
}

#[test]
fn the_seventh_data_packet_of_a_flow_is_dropped() {
    let text = r#"
        title = "a scripted loss"
        duration = "5 s"
        [link.neck]
        rate = "10 Mbit/s"
        drop_of = [{ flow = "a", nth = 7 }]
        [flow.a]
        size = "20 pkt"
        paths = [{ via = ["neck"], rtt = "20 ms" }]
        [flow.b]
        size = "20 pkt"
        paths = [{ via = ["neck"], rtt = "20 ms" }]
        [[measure]]
        metric = "a"
        kind = "completion"
        flows = ["a"]
        [[measure]]
        metric = "b"
        kind = "completion"
        flows = ["b"]
        [[assert]]
        what = "losses"
        link = "neck"
        at_least = 1
        at_most = 1
    "#;
    let outcome = run(&scenario(text), "nmcc", 1);
    assert!(outcome.violations.is_empty(), "{:?}", outcome.violations);
    let (a, b) = (outcome.values[0].expect("it ends"), outcome.values[1].expect("it ends"));
    assert!(b < 0.1 && a > b && a < 0.2, "a repair costs a round trip: {a} s, {b} s");
}

#[test]
fn a_dead_path_leaves_its_work_to_the_others() {
    let text = r#"
        title = "one of two paths dies"
        duration = "30 s"
        [link.one]
        rate = "10 Mbit/s"
        [link.two]
        rate = "10 Mbit/s"
        [flow.mp]
        size = "10 MB"
        paths = [{ via = ["one"], rtt = "20 ms" }, { via = ["two"], rtt = "30 ms" }]
        [[fault]]
        at = "1 s"
        link = "one"
        down = true
        [[measure]]
        metric = "completion"
        kind = "completion"
        [[measure]]
        metric = "second"
        kind = "goodput"
        paths = [1]
    "#;
    let outcome = run(&scenario(text), "nmcc", 1);
    let secs = outcome.values[0].expect("it ends");
    // 80 Mbit: some 18 in the first second, the rest at 10 Mbit/s.
    assert!((6.5..9.0).contains(&secs), "{secs} s");
}

/// Goodput counts payload, as in the kernel: a packet of 1,500 bytes has 1,448 bytes of payload with TCP,
/// and 1,428 with MPTCP. The load of links, in percent and in packets, counts whole packets.
#[test]
fn goodput_is_payload_and_shares_are_packets() {
    let text = ONE_BOTTLENECK
        .replace("packet = \"1000 B\"", "packet = \"1500 B\"")
        .replace("[[assert]]\nwhat = \"drops\"\nlink = \"neck\"\nat_least = 10\n", "")
        + "[[measure]]\nmetric = \"goodput of one path\"\nkind = \"goodput\"\nflows = [\"sp\"]\n\
           [[measure]]\nmetric = \"goodput of two\"\nkind = \"goodput\"\nflows = [\"mp\"]\n\
           [[measure]]\nmetric = \"packets of one path\"\nkind = \"packets\"\nflows = [\"sp\"]\n\
           [[measure]]\nmetric = \"packets of two\"\nkind = \"packets\"\nflows = [\"mp\"]\n\
           [[measure]]\nmetric = \"of rate\"\nkind = \"of_rate\"\nof = [\"neck\"]\n";
    let values: Vec<f64> =
        run(&scenario(&text), "reno", 1).values.into_iter().map(|value| value.expect("a value")).collect();
    let [share, _, one, two, packets_one, packets_two, of_rate] = values[..] else { panic!("{values:?}") };
    let near = |a: f64, b: f64| (a - b).abs() < 1e-3 * b;
    assert!(near(one, packets_one * 1_448.0 * 8.0 / 1e6), "{values:?}");
    assert!(near(two, packets_two * 1_428.0 * 8.0 / 1e6), "{values:?}");
    assert!(near(share, 100.0 * packets_two / (packets_one + packets_two)), "{values:?}");
    assert!(near(of_rate, (packets_one + packets_two) / 1_000.0 * 100.0), "{values:?}");
}

/// A transfer with a size in bytes takes as many packets as its payload needs.
#[test]
fn a_size_in_bytes_is_payload() {
    let text = ONE_BOTTLENECK
        .replace("packet = \"1000 B\"", "packet = \"1500 B\"")
        .replace("[flow.sp]", "[flow.sp]\nsize = \"1448 kB\"\nstop = \"50 s\"")
        .replace("[[assert]]\nwhat = \"drops\"\nlink = \"neck\"\nat_least = 10\n", "")
        + "[[measure]]\nmetric = \"all\"\nkind = \"packets\"\nflows = [\"sp\"]\nfrom = \"0 s\"\n";
    let packets = run(&scenario(&text), "reno", 1).values[2].expect("a value") * 60.0;
    assert_eq!(packets.round(), 1_000.0);
}

/// A link with a trace has a queue, the time that packets stay, and a utilisation, relative to the capacity
/// that the trace offered. A measure without a value says why.
#[test]
fn a_trace_has_queue_and_utilisation_and_no_value_has_a_reason() {
    // 1,500 bytes each 10 ms are a rate of 1.2 Mbit/s.
    let path = std::env::temp_dir().join(format!("anabranch-trace-{}.trace", std::process::id()));
    std::fs::write(&path, "10\n").expect("written");
    let text = |limit: &str| {
        format!(
            "title = \"t\"\nduration = \"60 s\"\ncount_from = \"20 s\"\n\
             [link.a]\n{limit}\nqueue = \"20 pkt\"\n\
             [flow.f]\nsize = \"1 GB\"\npaths = [{{ via = [\"a\"], rtt = \"50 ms\" }}]\n\
             [[measure]]\nmetric = \"queue\"\nkind = \"queue\"\nlinks = [\"a\"]\n\
             [[measure]]\nmetric = \"p99\"\nkind = \"queue_p99\"\nlinks = [\"a\"]\n\
             [[measure]]\nmetric = \"use\"\nkind = \"utilisation\"\nlinks = [\"a\"]\n\
             [[measure]]\nmetric = \"time\"\nkind = \"completion\"\n\
             [[measure]]\nmetric = \"m\"\nkind = \"factor_m\"\n"
        )
    };
    let traced = run(&scenario(&text(&format!("trace = {path:?}"))), "nmcc", 1);
    let rated = run(&scenario(&text("rate = \"1.2 Mbit/s\"")), "nmcc", 1);
    std::fs::remove_file(&path).expect("removed");
    for (place, tolerance) in [(0, 0.1), (1, 0.1), (2, 0.02)] {
        let of = |outcome: &Outcome| outcome.values[place].expect("a value");
        let (traced, rated) = (of(&traced), of(&rated));
        assert!((traced - rated).abs() < tolerance * rated, "{place}: {traced}, by rate {rated}");
    }
    assert_eq!(traced.values[3..], [None, None]);
    let why: Vec<&str> = traced.no_value.iter().map(|(_, why)| why.as_str()).collect();
    assert_eq!(why, ["flow f was not complete at the end", "no flow has coupled paths"]);
}

/// The first example that people try ends with "ok", so that they see how success looks.
#[test]
fn the_first_example_of_the_page_ends_ok() {
    use anabranch_lab::outcome::Run;
    use anabranch_lab::sweep::Plan;
    use anabranch_lab::table;
    const PAGE: &str = include_str!("../../../../../docs/lab.md");
    let text = PAGE.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let first = Scenario::parse(text, "docs/lab.md").expect("a scenario");
    let plan = Plan::new("first", first, &[]).expect("a plan");
    // Only the judged runs, because the others take long.
    let judged = plan.tasks().into_iter().filter(|task| task.controller == "reno" && task.variant == 0);
    let runs = judged.map(|task| Run {
        world: task.world,
        case: plan.variants[task.variant].label(),
        controller: task.controller.clone(),
        seed: task.seed,
        outcome: run(&task.scenario, &task.controller, task.seed),
    });
    let rows = table::rows(&plan, &runs.collect::<Vec<_>>());
    assert!(rows.iter().any(|row| row.reference.verdict.is_some()) && table::is_right(&rows), "{rows:#?}");
    // The command above it runs a scenario whose table is correct too.
    let table = include_str!("../../../../../scenarios/bench-b.table");
    assert!(PAGE.contains("lab run bench-b ") && table.contains(" ok\n"), "{table}");
    assert!(!table.contains(" NOT ") && !table.contains(" ? "), "{table}");
}
