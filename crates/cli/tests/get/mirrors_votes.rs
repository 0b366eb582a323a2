//! Without a hash, `get` compares samples of the mirrors, and warns if too few could be compared.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::fetch::{Ground, run};
use crate::peers::site::{Reply, Site, honest, late_wrong};

/// A server of these bytes at this rate.
fn site(content: &[u8], rate: u64) -> Site {
    let content = content.to_vec();
    Site::new(&content.clone(), move |request, _| honest(request, &content, "\"v1\"").at(rate))
}

/// Where more than half turn out to be of no use for comparisons, that is said to those too who want errors
/// only: an `ETag` that no two answers share, and ranges that are given at first only.
#[test]
fn that_too_few_could_be_compared_is_said_with_quiet_too() {
    let ground = Ground::new(20_000_000);
    let bad = late_wrong(&ground.content);
    let count = AtomicUsize::new(0);
    let changing = Site::new(&ground.content, move |_, reply| {
        reply.with("etag", format!("\"{}\"", count.fetch_add(1, Ordering::Relaxed))).at(4_000_000)
    });
    let content = ground.content.clone();
    let at_first = Site::new(&ground.content, move |request, reply| match request.is_for_bytes() {
        true => Reply::new(200, &content).with("etag", "\"v1\"").at(4_000_000),
        false => reply,
    });
    let liar = site(&bad, 30_000_000);
    for honest in [&changing, &at_first] {
        let done = run(ground.get_named(&[liar.url(), honest.url()], &["-q", "--force"])).expect(0);
        assert!(done.err.contains("UNVERIFIED: not all parts could be compared"), "{}", done.err);
    }
}
