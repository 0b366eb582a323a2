//! Compares flows that arrive one after the other, and delayed acknowledgements, with formulas.

use anabranch_lab::outcome::Outcome;
use anabranch_lab::run::run;
use anabranch_lab::scenario::Scenario;

/// Runs transfers over a link of 10 Mbit/s, on which a packet takes 1.2 ms, with 20 ms of other delay.
fn outcome(flow: &str, measures: &[&str], seed: u64) -> Outcome {
    let measures: String = measures
        .iter()
        .map(|kind| {
            let of = if kind.starts_with("completion") { "flows = [\"f\"]" } else { "links = [\"a\"]" };
            format!("[[measure]]\nmetric = \"{kind}\"\nkind = \"{kind}\"\n{of}\n")
        })
        .collect();
    let text = format!(
        "title = \"t\"\nduration = \"200 s\"\n[link.a]\nrate = \"10 Mbit/s\"\nqueue = \"100000 pkt\"\n\
         [flow.f]\ncontroller = \"reno\"\npaths = [{{ via = [\"a\"], rtt = \"20 ms\" }}]\n{flow}\n{measures}"
    );
    let outcome = run(&Scenario::parse(&text, "t").expect("a scenario"), "reno", seed);
    assert_eq!(outcome.violations, [""; 0]);
    outcome
}

fn value(outcome: &Outcome, place: usize) -> f64 {
    outcome.values[place].unwrap_or_else(|| panic!("{:?}", outcome.no_value))
}

/// Transfers of one packet form an M/D/1 queue: with a load of ρ and a service time of S, a packet waits on
/// average for ρ S / (2 (1 - ρ)) (Pollaczek and Khinchine).
#[test]
fn single_packets_wait_as_in_an_m_d_1_queue() {
    let flow = "size = \"1 pkt\"\narrivals = { every = \"2 ms\" }\nstop = \"199 s\"";
    let outcome = outcome(flow, &["completion", "utilisation", "completion_p50"], 1);
    let (mean_ms, load) = (value(&outcome, 0) * 1e3, value(&outcome, 1));
    let wait_ms = mean_ms - 20.0 - 1.2;
    assert!((wait_ms / (0.6 * 1.2 / (2.0 * 0.4)) - 1.0).abs() < 0.05, "{wait_ms}");
    assert!((load / (60.0 * 199.0 / 200.0) - 1.0).abs() < 0.02, "{load}");
    // Most arrivals find a short or empty queue, so the median is below the mean.
    assert!(value(&outcome, 2) * 1e3 < mean_ms && value(&outcome, 2) * 1e3 >= 21.2);
}

/// Transfers that fit the initial window arrive at once and form an M/G/1 queue: a transfer waits for λ
/// E[S²] / (2 (1 - ρ)), and its last packet for the whole transfer.
#[test]
fn transfers_of_several_packets_wait_as_in_an_m_g_1_queue() {
    let sizes = "arrivals = { every = \"12 ms\", sizes = \"list\", list = [\"1 pkt\", \"9 pkt\"] }";
    let flow = format!("{sizes}\nstop = \"198 s\"");
    let means: Vec<f64> = (1..=3).map(|seed| value(&outcome(&flow, &["completion"], seed), 0)).collect();
    let wait_ms = means.iter().sum::<f64>() / 3.0 * 1e3 - 20.0 - 6.0;
    let square = (1.2_f64.powi(2) + 10.8_f64.powi(2)) / 2.0;
    assert!((wait_ms / (square / 12.0 / (2.0 * 0.5)) - 1.0).abs() < 0.06, "{wait_ms} {means:?}");
}

/// Without queues, a transfer of n packets of the initial window takes the round trip and n service times,
/// so the percentiles are those of the sizes.
#[test]
fn percentiles_are_those_of_the_transfers() {
    let list = "[\"1 pkt\", \"1 pkt\", \"1 pkt\", \"1 pkt\", \"1 pkt\", \"1 pkt\", \"1 pkt\", \"1 pkt\", \
                \"1 pkt\", \"10 pkt\"]";
    let flow =
        format!("arrivals = {{ every = \"200 ms\", sizes = \"list\", list = {list} }}\nstop = \"199 s\"");
    let outcome = outcome(&flow, &["completion_p50", "completion_p95", "completion_p99"], 1);
    let near =
        |place: usize, packets: f64| (value(&outcome, place) * 1e3 - 20.0 - 1.2 * packets).abs() < 0.01;
    assert!(near(0, 1.0) && near(1, 10.0), "{:?}", outcome.values);
}

#[test]
fn transfers_that_are_not_complete_are_told() {
    let flow = "size = \"1 MB\"\narrivals = { every = \"200 ms\" }";
    let outcome = outcome(flow, &["completion", "completion_p50", "completion_p99"], 1);
    // A load of 4: the queue grows until the end.
    assert!(outcome.values.iter().all(Option::is_none), "{:?}", outcome.values);
    let (_, why) = &outcome.no_value[0];
    assert!(why.contains(" transfers, as of flow f, were not complete at the end"), "{why}");
}

/// Every second packet gets an acknowledgement, and no acknowledgement waits longer than the given time (RFC
/// 9293, section 3.8.6.3).
#[test]
fn an_odd_packet_waits_for_the_delay() {
    let time_ms = |size: u32, delayed: &str| {
        let flow = format!("size = \"{size} pkt\"\n{delayed}");
        value(&outcome(&flow, &["completion"], 1), 0) * 1e3
    };
    for (size, waits_ms) in [(1, 40.0), (2, 0.0), (9, 40.0), (10, 0.0)] {
        let (plain, delayed) = (time_ms(size, ""), time_ms(size, "delayed_acks = \"40 ms\""));
        assert!((plain - 20.0 - 1.2 * f64::from(size)).abs() < 0.01, "{size}: {plain}");
        assert!((delayed - plain - waits_ms).abs() < 0.01, "{size}: {plain} {delayed}");
    }
}

/// Half as many acknowledgements cross the way back, which is the purpose of delaying them (RFC 5681,
/// section 4.2). A loss is found as early as without delay, because packets out of order are acknowledged at
/// once.
#[test]
fn half_as_many_acknowledgements_and_losses_found_as_soon() {
    let acks = |delayed: &str, drop: &str| {
        let text = format!(
            "title = \"t\"\nduration = \"60 s\"\n[link.a]\nrate = \"10 Mbit/s\"\n{drop}\n\
             [link.b]\nrate = \"528000 B/s\"\n\
             [flow.f]\ncontroller = \"reno\"\nsize = \"2000 pkt\"\n{delayed}\n\
             paths = [{{ via = [\"a\"], back = [\"b\"], rtt = \"20 ms\" }}]\n\
             [[measure]]\nmetric = \"acks\"\nkind = \"utilisation\"\nlinks = [\"b\"]\n\
             [[measure]]\nmetric = \"time\"\nkind = \"completion\"\nflows = [\"f\"]\n"
        );
        let outcome = run(&Scenario::parse(&text, "t").expect("a scenario"), "reno", 1);
        assert_eq!(outcome.violations, [""; 0]);
        // Link b carries 8,000 acknowledgements of 66 bytes a second.
        ((value(&outcome, 0) / 100.0 * 60.0 * 8_000.0).round(), value(&outcome, 1))
    };
    let delay = "delayed_acks = \"40 ms\"";
    let ((plain, plain_s), (delayed, delayed_s)) = (acks("", ""), acks(delay, ""));
    assert_eq!((plain, delayed), (2_000.0, 1_000.0));
    assert!((delayed_s - plain_s).abs() < 0.04, "{plain_s} {delayed_s}");
    let (dropped, dropped_s) = acks(delay, "drop = [500]");
    let (_, plain_s) = acks("", "drop = [500]");
    // For a round trip, acknowledgements are immediate: about a window more than half.
    assert!(dropped > 1_001.0 && dropped < 1_600.0, "{dropped}");
    assert!((dropped_s - plain_s).abs() < 0.08, "{plain_s} {dropped_s}");
}
