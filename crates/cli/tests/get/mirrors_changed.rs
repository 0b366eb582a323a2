//! A server that sends another `ETag` with each answer: a hash of the whole file decides.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::fetch::{Ground, checksum};
use crate::peers::site::{Reply, Request, Site, honest};

/// What is read in order is held against the hash at its end, whatever the version says.
#[test]
fn in_order_too_another_etag_does_not_count_with_a_hash() {
    let ground = Ground::new(6_000_000);
    let (answers, content) = (AtomicU64::new(0), ground.content.clone());
    let site = Site::new(&ground.content, move |request: &Request, _: Reply| {
        honest(
            &request.without("if-range"),
            &content,
            &format!("\"{}\"", answers.fetch_add(1, Ordering::Relaxed)),
        )
    });
    let hash = checksum(&ground.content);
    let mut command = crate::common::anabranch();
    command.args(["get", &site.url(), "-o", "-", "--checksum", hash.trim_start_matches("--checksum=")]);
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout == ground.content);
}
