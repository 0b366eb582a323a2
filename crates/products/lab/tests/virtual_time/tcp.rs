//! Tests flows of TCP and Multipath TCP in scenarios.

use anabranch_lab::outcome::Outcome;
use anabranch_lab::run::run;
use anabranch_lab::scenario::Scenario;

/// Two links of 10 Mbit/s, and what is measured of flow `f`.
const HEAD: &str = "title = \"t\"\nduration = \"20 s\"\ncount_from = \"5 s\"\n\
    [link.a]\nrate = \"10 Mbit/s\"\nqueue = \"40 ms\"\n[link.b]\nrate = \"10 Mbit/s\"\nqueue = \"40 ms\"\n";

fn scenario(text: &str) -> Scenario {
    Scenario::parse(&format!("{HEAD}{text}"), "t").expect("a scenario")
}

/// Runs a scenario with measures of these kinds, all of flow `f`; its conditions must be met.
fn outcome(flows: &str, kinds: &[&str], controller: &str, seed: u64) -> Outcome {
    let measure =
        |kind: &&str| format!("[[measure]]\nmetric = \"{kind}\"\nkind = \"{kind}\"\nflows = [\"f\"]\n");
    let measures: String = kinds.iter().map(measure).collect();
    let outcome = run(&scenario(&format!("{flows}{measures}")), controller, seed);
    assert_eq!(outcome.violations, [""; 0]);
    outcome
}

fn value(outcome: &Outcome, place: usize) -> f64 {
    outcome.values[place].unwrap_or_else(|| panic!("{:?}", outcome.no_value))
}

const TWO_PATHS: &str = "[flow.f]\ntransport = \"mptcp\"\npaths = [{ via = [\"a\"], rtt = \"20 ms\" }, \
    { via = [\"b\"], rtt = \"30 ms\" }]\n";

#[test]
fn mptcp_adds_the_links_up_and_tcp_fills_one() {
    let both = outcome(TWO_PATHS, &["goodput", "timeouts"], "reno", 1);
    // Of a packet of 1,500 bytes, 1,420 are payload.
    let most = 20.0 * 1_420.0 / 1_500.0;
    // Data that waits when counting begins, for data on the other path, is read and counted later.
    assert!((0.93 * most..=1.01 * most).contains(&value(&both, 0)), "{}", value(&both, 0));
    assert!(value(&both, 1) < 0.5);
    let one = "[flow.f]\ntransport = \"tcp\"\npaths = [{ via = [\"a\"], rtt = \"20 ms\" }]\n";
    let one = outcome(one, &["goodput"], "reno", 1);
    let most = 10.0 * 1_448.0 / 1_500.0;
    assert!((0.95 * most..=most).contains(&value(&one, 0)), "{}", value(&one, 0));
}

/// A transfer of one segment takes a round trip for the handshake and half of one for the segment, whose
/// acknowledgement the receiver's program does not wait for.
#[test]
fn completion_counts_the_handshake() {
    let text = TWO_PATHS.replacen("[flow.f]\n", "[flow.f]\nsize = \"1 pkt\"\n", 1);
    let took = value(&outcome(&text, &["completion"], "reno", 1), 0);
    // The links have no delay of their own, so all of the round trip is on the way back.
    assert!((0.020..0.025).contains(&took), "{took}");
}

#[test]
fn each_scheduler_runs_beside_mmtp_and_packets_and_the_same_seed_gives_the_same_run() {
    let others = "[flow.mm]\ntransport = \"mmtp\"\npaths = [{ via = [\"a\"], rtt = \"20 ms\" }]\n\
        [flow.p]\npaths = [{ via = [\"b\"], rtt = \"20 ms\" }]\n";
    for scheduler in ["minrtt", "roundrobin", "blest", "ecf", "redundant"] {
        let settings = format!("stack = {{ scheduler = \"{scheduler}\", tail_loss = \"linux\" }}\n");
        let text = format!("{TWO_PATHS}{settings}{others}");
        let [one, two] = [1, 1].map(|seed| outcome(&text, &["goodput", "share"], "lia", seed));
        assert_eq!((one.digest, one.values.clone()), (two.digest, two.values), "{scheduler}");
        assert!(value(&one, 0) > 2.0, "{scheduler}: {}", value(&one, 0));
    }
}

#[test]
fn transfers_that_arrive_are_connections_of_their_own() {
    let arrivals = "size = \"20 kB\"\narrivals = { every = \"50 ms\" }\nstop = \"18 s\"\n";
    let one = outcome(&format!("{TWO_PATHS}{arrivals}"), &["goodput", "completion_p99"], "reno", 1);
    assert!((2.5..4.0).contains(&value(&one, 0)), "{}", value(&one, 0));
    assert!(value(&one, 1) < 1.0, "{}", value(&one, 1));
}

/// The path manager, the receive buffer and scripted drops of a path's data have their effect.
#[test]
fn settings_of_the_stack_have_their_effect() {
    let goodput = |settings: &str| {
        value(&outcome(&format!("{TWO_PATHS}stack = {{ {settings} }}\n"), &["goodput"], "reno", 1), 0)
    };
    let single = goodput("path_manager = \"default\"");
    assert!((9.0..9.5).contains(&single), "{single}");
    assert!(goodput("path_manager = \"backup\"") < 9.6);
    // 10,000 bytes a round trip of 20 ms.
    let small = goodput("receive_buffer = \"10 kB\", path_manager = \"default\"");
    assert!((2.0..4.0).contains(&small), "{small}");
    // The third and the ninth data segment on the second path.
    let mut dropped = scenario(&format!(
        "{TWO_PATHS}[[assert]]\nwhat = \"losses\"\nlink = \"b\"\nat_least = 2\nat_most = 2\n"
    ));
    let drops = "[{ flow = \"f\", path = 1, nth = 3 }, { flow = \"f\", path = 1, nth = 9 }]";
    dropped.set("link.b.drop_of", drops).expect("a list");
    assert_eq!(run(&dropped, "reno", 1).violations, [""; 0]);
}

#[test]
fn what_the_stack_cannot_do_is_refused() {
    for (text, said) in [
        (TWO_PATHS.replace("mptcp", "tcp"), "TCP has one path"),
        (format!("{TWO_PATHS}groups = \"none\"\n"), "couples all its subflows"),
        (format!("{TWO_PATHS}controller = \"bbr\"\n"), "do not pace"),
        (format!("{TWO_PATHS}stack = {{ scheduler = \"minrt\" }}\n"), "did you mean `minrtt`?"),
        (
            format!("{TWO_PATHS}stack = {{ tail_loss = \"on\" }}\n"),
            "flow.f.stack.tail_loss: there is no policy",
        ),
        (format!("{TWO_PATHS}stack = {{ receive_buffer = \"1 kB\" }}\n"), "receive_buffer: in bytes"),
        (TWO_PATHS.replace("mptcp", "mmtp") + "stack = { scheduler = \"ecf\" }\n", "have a stack"),
    ] {
        let what = Scenario::parse(&format!("{HEAD}{text}"), "t").expect_err(said).to_string();
        assert!(what.contains(said), "{what}");
    }
}

/// The link is down for three seconds in the middle. The timeouts of that count, too, if the flow is stopped
/// later, which ends its subflows.
#[test]
fn timeouts_of_subflows_that_have_ended_count() {
    let fault = "[[fault]]\nat = \"8 s\"\nuntil = \"11 s\"\nlink = \"a\"\ndown = true\n";
    let timeouts = |stop: &str| {
        let flow = "[flow.f]\ntransport = \"tcp\"\npaths = [{ via = [\"a\"], rtt = \"20 ms\" }]\n";
        value(&outcome(&format!("{flow}{stop}{fault}"), &["timeouts"], "reno", 1), 0)
    };
    let (stopped, whole) = (timeouts("stop = \"16 s\"\n"), timeouts(""));
    assert!(stopped > 0.0, "{stopped}");
    assert_eq!(stopped, whole);
}
