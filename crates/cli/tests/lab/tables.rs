//! The tables under review that take seconds: each is what the code of today makes, to the byte. The others
//! take minutes; `just tables` makes all of them.

use std::fs;
use std::path::Path;

use crate::common::anabranch;
use anabranch_net::testing::extent;

/// Each takes a few seconds.
const CHEAP: &[&str] = &["convergence-short", "groups-idle", "mirrors-shared", "trace-lte", "wifi"];
/// These take up to ten seconds of a release build's time besides: the long form has them, too.
const DEARER: &[&str] =
    &["bench-a", "groups-change", "lan-short", "mirrors-idle", "uplinks-idle", "wide-sources"];

#[test]
fn cheap_tables_are_what_the_code_makes() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    for name in CHEAP.iter().chain(extent(&[][..], DEARER)) {
        let output = anabranch().args(["lab", "run"]).arg(dir.join(name).with_extension("toml")).output();
        let output = output.expect("the command");
        // 7: some row is not where it is expected, which the table says too.
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
