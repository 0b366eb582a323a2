//! The fairness experiment as a table: how much a single-path flow keeps beside many subflows.
//!
//! `cargo run --release -p anabranch-lab --example fairness -- [--seeds N] [--secs N] [--queue PERCENT]
//! [--json] [--all] [FILTER]`
//!
//! A filter keeps the rows whose algorithm has that text in its name; `--all` has every controller, not only
//! NMCC's variants and the control.

use std::process::ExitCode;

use algo::control::ALGORITHMS;
use algo::{Rate, Span};
use lab::fairness::{FairnessRow, Setup};

/// Controllers in the table unless all are wanted.
const STUDIED: [&str; 4] = ["nmcc", "nmcc-printed", "nmcc-half", "reno"];

fn main() -> ExitCode {
    let (mut seeds, mut secs, mut queue, mut filter) = (10, 60, 100, String::new());
    let (mut json, mut all) = (false, false);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = |into: &mut u64| match args.next().and_then(|text| text.parse().ok()) {
            Some(n) if n > 0 => *into = n,
            _ => filter = "?".into(),
        };
        match arg.as_str() {
            "--seeds" => number(&mut seeds),
            "--secs" => number(&mut secs),
            "--queue" => number(&mut queue),
            "--json" => json = true,
            "--all" => all = true,
            name if !name.starts_with('-') => filter = name.into(),
            _ => filter = "?".into(),
        }
    }
    if filter == "?" {
        eprintln!("usage: fairness [--seeds N] [--secs N] [--queue PERCENT] [--json] [--all] [FILTER]");
        return ExitCode::from(2);
    }
    if !json {
        println!("{}", FairnessRow::head());
    }
    let mut met = true;
    for setup in setups(secs, queue, all).into_iter().filter(|setup| setup.algorithm.contains(&filter)) {
        let row = FairnessRow::measure(setup, seeds);
        met &= row.violations().is_empty();
        println!("{}", if json { row.json() } else { row.text() });
    }
    if met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Every row.
fn setups(secs: u64, queue_percent: u64, all: bool) -> Vec<Setup> {
    let mut rows = Vec::new();
    // Round trips of the paths, the competitor's, and the bottleneck in Mbit/s.
    let places: [(&[u64], u64, u64); 8] = [
        (&[20], 35, 20),
        (&[20, 35, 50], 35, 20),
        (&[20, 35, 50], 20, 20),
        (&[35, 50, 80], 35, 20),
        (&[35, 35, 35], 35, 20),
        (&[20, 50], 20, 20),
        (&[35, 35], 35, 20),
        (&[20, 35, 50], 20, 100),
    ];
    for (rtts_ms, competitor_ms, mbits) in places {
        for entry in ALGORITHMS.iter().rev().filter(|entry| all || STUDIED.contains(&entry.name)) {
            if rtts_ms.len() == 1 && entry.name != "reno" {
                continue;
            }
            rows.push(Setup {
                rtts_ms: rtts_ms.into(),
                competitor_ms,
                rate: Rate::from_bits(mbits * 1_000_000),
                secs,
                counted_secs: secs * 2 / 3,
                queue_percent,
                ..Setup::new(entry.name)
            });
        }
    }
    // What interrupt moderation changes.
    for name in ["reno", "nmcc"] {
        rows.push(Setup {
            competitor_ms: 20,
            secs,
            counted_secs: secs * 2 / 3,
            queue_percent,
            coalesce: Span::from_millis(1),
            ..Setup::new(name)
        });
    }
    rows
}
