//! Tests the world `kernel`: real sockets over emulated links. The tests need root and `/dev/net/tun`;
//! without them each test prints a line that says so, and passes.
#![cfg(target_os = "linux")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anabranch_algo::Span;
use anabranch_lab::linux::{jobs, ready, run, testbed};
use anabranch_lab::outcome::{Outcome, SeriesKind};
use anabranch_lab::scenario::Scenario;
use anabranch_lab::sweep::Plan;
use anabranch_net::Clock;

/// Two paths, one of which is shared with a flow of one path.
const TWO: &str = r#"
title = "Two paths beside one"
duration = "8 s"
count_from = "3 s"
controllers = ["reno"]

[link.a]
rate = "8 Mbit/s"
queue = "40 ms"

[link.b]
rate = "4 Mbit/s"
queue = "40 ms"

[flow.mp]
paths = [{ via = ["a"], rtt = "40 ms" }, { via = ["b"], rtt = "40 ms" }]

[flow.sp]
paths = [{ via = ["a"], rtt = "40 ms" }]

[[measure]]
metric = "first"
kind = "goodput"
flows = ["mp"]
paths = [0]

[[measure]]
metric = "second"
kind = "goodput"
flows = ["mp"]
paths = [1]

[[measure]]
metric = "share"
kind = "share"
flows = ["mp"]

[[measure]]
metric = "utilisation"
kind = "utilisation"
links = ["a", "b"]

[[measure]]
metric = "m"
kind = "factor_m"

[[assert]]
what = "drops"
link = "a"
at_least = 1

[[assert]]
what = "rtt"
flow = "mp"
at_least = 40
at_most = 90
"#;

fn scenario(text: &str) -> Scenario {
    Scenario::parse(text, "test").expect("a scenario")
}

/// Whether this machine does not allow the tests; prints the line that says so.
fn skipped() -> bool {
    let allowed = testbed::allowed();
    if let Err(e) = &allowed {
        anabranch_net::testing::refused_device(format!("the world `kernel` cannot run here: {e}"));
    }
    allowed.is_err()
}

fn once(text: &str, controller: &str) -> Outcome {
    run(&scenario(text), controller, 1, &AtomicBool::new(false)).expect("a run")
}

/// Runs a scenario, and repeats it if the machine was too busy for the links to be in time, which says
/// nothing about them.
fn play(text: &str, controller: &str) -> Outcome {
    let mut outcome = once(text, controller);
    for _ in 0..3 {
        if !outcome.is_late() {
            break;
        }
        println!("again: {:?}", outcome.violations);
        outcome = once(text, controller);
    }
    outcome
}

#[test]
fn two_subflows_fill_two_paths_and_the_conditions_hold() {
    if skipped() {
        return;
    }
    let outcome = play(TWO, "reno");
    assert_eq!(outcome.violations, [] as [&str; 0]);
    let values: Vec<f64> = outcome.values[..4].iter().map(|value| value.expect("a value")).collect();
    let [first, second, share, utilisation] = values[..] else { panic!("{values:?}") };
    assert!((1.0..7.0).contains(&first), "{values:?}");
    assert!((3.4..4.0).contains(&second), "{values:?}");
    assert!((40.0..90.0).contains(&share), "{values:?}");
    assert!((95.0..100.5).contains(&utilisation), "{values:?}");
    assert_eq!(outcome.values[4], None, "m cannot be seen here");
    let lateness = outcome.lateness.expect("it was counted");
    assert!(lateness.packets > 1_000 && lateness.p99_us < 2_000.0, "{lateness:?}");
    assert!(outcome.link_packets > 1_000);
    // The series recorded the windows of four subflows and two queues.
    let moved = |kind: SeriesKind| {
        let lines = outcome.series.lines.iter().filter(move |line| line.kind == kind);
        lines.filter(|line| line.values.iter().any(|value| *value > 1.0)).count()
    };
    assert_eq!((moved(SeriesKind::Goodput), moved(SeriesKind::Cwnd), moved(SeriesKind::Queue)), (2, 3, 2));
}

#[test]
fn a_flow_of_some_size_completes_and_faults_happen() {
    if skipped() {
        return;
    }
    let text = TWO
        .replace("[flow.sp]", "[flow.sp]\nsize = \"1 MB\"")
        .replace("[flow.mp]", "[flow.mp]\nstart = \"3 s\"\nstop = \"7 s\"")
        .replace("at_most = 90", "at_most = 400")
        .replace("count_from = \"3 s\"", "count_from = \"5 s\"")
        + "[[fault]]\nat = \"4 s\"\nlink = \"b\"\nrate = \"1 Mbit/s\"\n\
           [[measure]]\nmetric = \"time\"\nkind = \"completion\"\nflows = [\"sp\"]\n\
           [[measure]]\nmetric = \"late\"\nkind = \"goodput\"\nflows = [\"mp\"]\npaths = [1]\n\
           from = \"5 s\"\nuntil = \"7 s\"\n\
           [[measure]]\nmetric = \"after\"\nkind = \"goodput\"\nflows = [\"mp\"]\nfrom = \"7.5 s\"\n";
    let outcome = play(&text, "reno");
    assert_eq!(outcome.violations, [] as [&str; 0]);
    // A megabyte takes a second at 8 Mbit/s, and a few round trips.
    let time = outcome.values[5].expect("it completed");
    assert!((1.0..2.5).contains(&time), "{time}");
    let late = outcome.values[6].expect("a goodput");
    assert!((0.6..1.05).contains(&late), "{late}: the rate changed");
    assert_eq!(outcome.values[7], Some(0.0), "it stopped");
}

/// If a link marks, hosts negotiate ECN: the queue stays near the threshold, as in the simulator. Without
/// ECN the queue fills completely.
#[test]
fn a_link_that_marks_is_answered() {
    if skipped() {
        return;
    }
    let text = TWO
        .replace("queue = \"40 ms\"", "queue = \"100 ms\"\nmark_above = \"5 ms\"")
        .replace("what = \"drops\"", "what = \"marks\"")
        .replace("kind = \"factor_m\"", "kind = \"queue\"\nlinks = [\"a\"]");
    let outcome = play(&text, "reno");
    assert_eq!(outcome.violations, [] as [&str; 0]);
    let queue = outcome.values[4].expect("a queue");
    assert!(queue < 12.0, "{queue} ms are queued above a threshold of 5 ms");
}

#[test]
fn what_this_world_cannot_do_is_refused_before_anything_is_started() {
    let refused = |text: &str, controller: &str, said: &str| {
        let plan = Plan::new("t", scenario(text), &[]).expect("a plan");
        let mut tasks = plan.tasks();
        tasks.iter_mut().for_each(|task| task.controller = controller.into());
        let what = ready(&tasks).expect_err(said);
        assert!(what.contains(said), "{what}");
    };
    refused(&TWO.replace("[flow.mp]", "[flow.mp]\ntransport = \"mmtp\""), "reno", "no mmTP and no mirrors");
    refused(&TWO.replace("[flow.mp]", "[flow.mp]\ngroups = \"auto\""), "reno", "groups must not be `auto`");
    refused(&TWO.replace("[flow.mp]", "[flow.mp]\ncount = 250"), "reno", "at most 250 flows");
    refused(TWO, "lia+hystart", "load it first: anabranch kernel load lia+hystart");
}

#[test]
fn a_run_that_is_stopped_ends_at_once() {
    if skipped() {
        return;
    }
    let stop = AtomicBool::new(false);
    let clock = Clock::start();
    let result = thread::scope(|scope| {
        let runs = scope.spawn(|| run(&scenario(TWO), "reno", 1, &stop));
        thread::sleep(Duration::from_millis(700));
        stop.store(true, Ordering::Relaxed);
        runs.join().expect("no panic")
    });
    assert!(result.expect_err("no outcome").contains("stopped"));
    assert!(clock.now().since(anabranch_algo::Time::ZERO) < Span::from_millis(1_700));
}

#[test]
fn so_many_side_by_side_as_their_packets_allow() {
    let tasks = |rate: &str| {
        let text = TWO.replace("8 Mbit/s", rate);
        Plan::new("t", scenario(&text), &[]).expect("a plan").tasks()
    };
    let (slow, fast) = (jobs(&tasks("100 kbit/s")), jobs(&tasks("10 Gbit/s")));
    assert!(slow > fast && fast == 1 && slow <= 32, "{slow} {fast}");
}
