//! A transfer is killed, and the same command goes on: what it says of a hash that the whole file does not
//! have.

use std::fs;

use crate::common::fetch::{Ground, checksum, killed_when, names, run};
use crate::peers::site::Site;

/// All of it is of one mirror and one version: that it is wrong is told at once, without a second fetch.
#[test]
fn of_a_mistyped_hash_the_verdict_comes_after_an_interruption_too() {
    let ground = Ground::new(24_000_000);
    let site = Site::slow(&ground.content, 8_000_000);
    let wrong = checksum(b"another");
    killed_when(ground.get_named(&[site.url()], &["--json", &wrong]), || site.body_bytes() > 12_000_000);
    let done = run(ground.get_named(&[site.url()], &["--json", &wrong])).expect(5);
    assert!(done.err.contains("in case the hash is mistyped"), "{}", done.err);
    assert!(site.body_bytes() < 24_000_000 + 2_000_000, "{}", site.body_bytes());
    assert_eq!(names(&ground.to()), ["f.unverified"]);
    // As it says.
    assert!(
        done.err.contains("renamed to") && done.err.contains("recognised by the right one"),
        "{}",
        done.err
    );
    fs::rename(ground.to().join("f.unverified"), ground.target()).expect("renamed");
    let before = site.body_bytes();
    run(ground.get_named(&[site.url()], &["--json", &checksum(&ground.content)])).expect(0);
    ground.assert_arrived();
    assert!(site.body_bytes() < before + 100_000);
}
