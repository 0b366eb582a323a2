//! Tests receivers that steer between WiFi access points, and cases that sweep keys.

use anabranch_lab::outcome::Row;
use anabranch_lab::scenario::Scenario;
use anabranch_lab::sweep::Plan;
use anabranch_lab::table::rows;

/// Two access points of one channel: packets take 3 ms over the first one and 0.5 ms over the second one.
const TWO: &str = r#"
    title = "Two access points"
    duration = "30 s"
    count_from = "10 s"
    controllers = ["olia"]
    [link.bad]
    rate = "4 Mbit/s"
    medium = "channel"
    queue = "200 pkt"
    radio = { weight = 1 }
    [link.good]
    rate = "24 Mbit/s"
    medium = "channel"
    queue = "200 pkt"
    [flow.client]
    paths = [{ via = ["bad"], rtt = "50 ms" }, { via = ["good"], rtt = "50 ms" }]
    [[measure]]
    metric = "mean"
    kind = "of_rate"
    of = ["good"]
"#;

fn table(text: &str) -> Vec<Row> {
    let scenario = Scenario::parse(text, "test").expect("a scenario");
    let plan = Plan::new("test", scenario, &[]).expect("a plan");
    rows(&plan, &plan.run(2))
}

/// Returns the value of a row, by case and metric.
fn value(rows: &[Row], case: &str, metric: &str) -> f64 {
    let row = rows.iter().find(|row| row.case.as_deref() == Some(case) && row.metric == metric);
    row.and_then(|row| row.value).unwrap_or_else(|| panic!("{case} has no {metric}"))
}

#[test]
fn marks_move_the_sender_to_the_better_access_point() {
    let cases = ["none", "marks", "backup", "on_off"].map(|steering| {
        format!("[[case]]\nname = \"{steering}\"\nset = {{ \"flow.client.steering\" = \"{steering}\" }}\n")
    });
    let rows = table(&(TWO.to_owned() + &cases.concat()));
    let of = |case| value(&rows, case, "mean");
    assert!(of("none") < 40.0, "congestion control alone gets {}", of("none"));
    assert!(of("marks") > 80.0, "marks get {}", of("marks"));
    assert!(of("backup") > 97.0, "a backup path leaves {}", of("backup"));
    assert!(of("on_off") < 60.0, "turns of 200 ms get {}", of("on_off"));
}

#[test]
fn retry_bits_alone_tell_which_access_point_is_better() {
    let text = TWO.replace("rate = \"4 Mbit/s\"", "rate = \"24 Mbit/s\"");
    let cases = ["none", "backup"].map(|steering| {
        format!(
            "[[case]]\nname = \"{steering}\"\n[case.set]\n\"flow.client.steering\" = \"{steering}\"\n\
             \"link.bad.radio.loss\" = \"50 %\"\n"
        )
    });
    let rows = table(&(text + &cases.concat()));
    let of = |case| value(&rows, case, "mean");
    assert!(of("backup") > 98.0 && of("backup") > of("none") + 1.0, "{} {}", of("backup"), of("none"));
}

#[test]
fn the_rows_of_a_sweep_are_of_all_its_combinations() {
    let measures = r#"
        [[measure]]
        metric = "median"
        kind = "of_rate"
        of = ["good"]
        statistic = "median"
        [[measure]]
        metric = "worst"
        kind = "of_rate"
        of = ["good"]
        statistic = "least"
    "#;
    let swept = r#"
        [[case]]
        name = "all"
        set = { "flow.client.paths" = [{ via = ["bad"], rtt = "50 ms" }] }
        sweep = { "link.bad.rate" = ["6 Mbit/s", "12 Mbit/s", "24 Mbit/s"] }
    "#;
    let rows = table(&(TWO.to_owned() + measures + swept));
    assert_eq!(rows.len(), 3, "one row a measure");
    // Alone, the path carries what its link does: 25, 50 and 100 % of the rate of the good one.
    for (metric, want) in [("mean", 58.33), ("median", 50.0), ("worst", 25.0)] {
        let got = value(&rows, "all", metric);
        assert!((got - want).abs() < 0.5, "{metric}: {got} is not {want}");
    }
}

#[test]
fn a_handover_leaves_a_gap_that_several_access_points_do_not() {
    let text = anabranch_lab::scenario::built_in::text("wifi-walk").expect("a scenario of the program");
    let scenario = Scenario::parse(text, "wifi-walk").expect("a scenario");
    let plan = Plan::new("wifi-walk", Scenario { seeds: 1, ..scenario }, &[]).expect("a plan");
    let rows = rows(&plan, &plan.run(2));
    assert!(value(&rows, "handover", "gap") >= 5.0);
    assert!(value(&rows, "marks", "gap") <= 0.3);
}

/// An access point holds all its packets while its receiver moves, so it may have no other receiver.
#[test]
fn a_handover_is_of_one_receiver() {
    let moves = TWO.replace("[flow.client]", "[flow.client]\nsteering = \"handover\"");
    let refused = |text: &str| match Scenario::parse(text, "test") {
        Ok(_) => panic!("it is taken"),
        Err(error) => error.to_string(),
    };
    assert!(refused(&moves.replace("handover\"", "handover\"\ncount = 2")).contains("`count = 1`"));
    let other = "[flow.other]\npaths = [{ via = [\"good\"], rtt = \"50 ms\" }]\n";
    assert!(refused(&(moves.clone() + other)).contains("those of flow other"));
    assert!(Scenario::parse(&moves, "test").is_ok());
}

#[test]
fn a_flow_that_gets_nothing_waits_all_the_time() {
    let gap =
        TWO.replace("kind = \"of_rate\"\n    of = [\"good\"]", "kind = \"gap\"\n    flows = [\"client\"]");
    let down =
        ["bad", "good"].map(|link| format!("[[fault]]\nat = \"1 s\"\nlink = \"{link}\"\ndown = true\n"));
    let text = gap + &down.concat() + "[[case]]\nname = \"down\"\n";
    assert!(value(&table(&text), "down", "mean") >= 19.0);
}
