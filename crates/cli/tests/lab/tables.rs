//! Tests of those tables under review that take seconds: each is identical to the output of the present code.
//! The others take minutes; `just tables` makes all of them.

use std::fs;
use std::path::Path;

use crate::common::anabranch;
use anabranch_net::testing::extent;

/// The tables that take a few seconds each.
const CHEAP: &[&str] = &["convergence-short", "groups-idle", "mirrors-shared", "trace-lte", "wifi"];
/// The tables that take up to ten seconds more of a release build's time. Only the long form of the test has
/// them.
const DEARER: &[&str] =
    &["bench-a", "groups-change", "lan-short", "mirrors-idle", "uplinks-idle", "wide-sources"];

#[test]
fn cheap_tables_are_what_the_code_makes() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    for name in CHEAP.iter().chain(extent(&[][..], DEARER)) {
        let output = anabranch().args(["lab", "run"]).arg(dir.join(name).with_extension("toml")).output();
        let output = output.expect("the command");
        // Status 7 means that a row is not where it is expected, which the table shows too.
        assert!(matches!(output.status.code(), Some(0 | 7)), "{}", String::from_utf8_lossy(&output.stderr));
        let table = fs::read_to_string(dir.join(name).with_extension("table")).expect("a table");
        let made = String::from_utf8(output.stdout).expect("UTF-8");
        let differ = made.lines().zip(table.lines()).find(|(made, known)| made != known);
        assert!(
            made == table,
            "{name}.table is not what the code makes; the first line that differs, made and in the file: \
             {differ:#?}\nIf the change is meant: anabranch lab run {name} --save"
        );
    }
}
