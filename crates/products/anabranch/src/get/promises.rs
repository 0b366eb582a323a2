//! The promises of `get` from mirrors: a table of rows. Each row is run in virtual time, and is a line of
//! `docs/mirrors.md`.
//!
//! A row says which mirrors there are, what is known of the file, and what happens. It also says what a user
//! sees: the file, the exit status, which mirrors are named, how many bytes arrive, and how long it takes.
//! Only these are checked, so that the same rows hold whatever the code inside is.
//!
//! * `row`: a row, and its line in the manual. `trial`: runs it. `mirrors`: the kinds of mirrors.
//! * `honest`, `odd`, `failures`, `with_hash`, `without_hash`, `in_order`, `interrupted`, `directories`: the
//!   rows.
//! * `random`: checks that hold for any set of mirrors.

mod directories;
mod failures;
mod honest;
mod in_order;
mod interrupted;
mod mirrors;
mod odd;
mod random;
mod row;
mod trial;
mod with_hash;
mod without_hash;

use std::panic::{AssertUnwindSafe, catch_unwind};

use row::Row;
use trial::holds;

/// Each row must hold with each of these seeds, which decide which blocks are compared.
const SEEDS: std::ops::Range<u64> = 1..3;
/// The section of the manual that has the table.
const SECTION: &str = "## What is promised";

fn all() -> Vec<Row> {
    let parts = [
        honest::rows(),
        odd::rows(),
        failures::rows(),
        with_hash::rows(),
        without_hash::rows(),
        in_order::rows(),
        interrupted::rows(),
        directories::rows(),
    ];
    parts.into_iter().flatten().collect()
}

/// Checks that all rows hold.
fn hold(rows: &[Row]) {
    let mut wrong = Vec::new();
    for row in rows {
        let mut broken = SEEDS.filter_map(|seed| {
            let result = catch_unwind(AssertUnwindSafe(|| holds(row, seed)));
            let why = |panic: Box<dyn std::any::Any + Send>| match panic.downcast::<String>() {
                Ok(why) => *why,
                Err(_) => "it panics".to_owned(),
            };
            result.unwrap_or_else(|panic| Err(why(panic))).err().map(|why| format!("seed {seed}: {why}"))
        });
        wrong.extend(broken.next().map(|why| format!("{}\n    {why}", row.name)));
    }
    assert!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

#[test]
fn honest_mirrors() {
    hold(&honest::rows());
}

#[test]
fn honest_servers_that_answer_oddly() {
    hold(&odd::rows());
}

#[test]
fn mirrors_that_fail() {
    hold(&failures::rows());
}

#[test]
fn liars_where_a_hash_is_known() {
    hold(&with_hash::rows());
}

#[test]
fn mirrors_without_a_hash() {
    hold(&without_hash::rows());
}

#[test]
fn files_that_are_read_in_order() {
    hold(&in_order::rows());
}

#[test]
fn interrupted_transfers() {
    hold(&interrupted::rows());
}

#[test]
fn directories_from_mirrors() {
    hold(&directories::rows());
}

/// Checks that the manual has the table, line for line.
#[test]
fn the_manual_has_every_row() {
    let manual = include_str!("../../../../../docs/mirrors.md");
    let section = manual.split_once(SECTION).expect("the section").1;
    let section = section.split("\n## ").next().unwrap_or_default();
    let told: Vec<&str> = section.lines().filter(|line| line.starts_with('|')).skip(2).collect();
    let rows: Vec<String> = all().iter().map(Row::line).collect();
    assert!(told == rows, "another table than this one:\n{}", rows.join("\n"));
}
