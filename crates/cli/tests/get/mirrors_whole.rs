//! A fast server without ranges beside a slow one that has them. It is about rates, so it is alone.

use std::fs;

use crate::common::fetch::{Ground, checksum, run};
use crate::peers::site::{PATH, Request, Site, Then, whole};

/// It is by far the fastest, and can only be asked for everything: it brings the beginning of a long file,
/// the other one brings the end, and nothing comes twice.
#[test]
fn the_fastest_is_used_though_it_gives_no_ranges() {
    let _alone = anabranch_net::testing::alone();
    const LENGTH: usize = 60_000_000;
    let ground = Ground::new(LENGTH);
    let sum = checksum(&ground.content);
    for more in [&[][..], &[sum.as_str()]] {
        let fast = Site::new(&ground.content, |_, _| whole(LENGTH).at(20_000_000));
        let slow = Site::slow(&ground.content, 4_000_000);
        let args = [&["--json"], more].concat();
        let done = run(ground.get_named(&[slow.url(), fast.url()], &args)).expect(0);
        ground.assert_arrived();
        assert!(done.notes().contains("gives no ranges, brings the beginning"), "{}", done.notes());
        let (of_fast, of_slow) = (done.bytes_from(fast.address), done.bytes_from(slow.address));
        assert!(of_fast > 35_000_000 && of_slow > 2_000_000, "{of_fast} and {of_slow}");
        let seen = fast.seen();
        let gets = seen.iter().filter(|request| request.is_for_bytes() && request.path == PATH);
        assert_eq!(gets.count(), 1, "it is asked once");
        // What was under way when both met was for nothing.
        let all = fast.body_bytes() + slow.body_bytes();
        assert!(all < LENGTH as u64 + 8_000_000, "{all}");
        fs::remove_file(ground.target()).expect("the file");
    }
    // Where it breaks off, the other one brings the rest; a resumed file does not come from it.
    let breaks = Site::new(&ground.content, |request: &Request, _| match request.is_for_bytes() {
        true => whole(LENGTH).at(20_000_000).cut(20_000_000, Then::Close),
        false => whole(LENGTH).at(20_000_000),
    });
    let other = Site::slow(&ground.content, 20_000_000);
    let done = run(ground.get_named(&[other.url(), breaks.url()], &["--json"])).expect(0);
    ground.assert_arrived();
    // It is asked again only if the other one stalls, as on a machine that stands still for a second.
    let paths = done.summary()["last"]["paths"].as_array().expect("a list").clone();
    let stalled = paths.iter().any(|path| {
        path["source"] == other.address.to_string().as_str() && path["timeouts"].as_u64() > Some(0)
    });
    let gets = breaks.seen().iter().filter(|request| request.is_for_bytes()).count();
    assert!(stalled || gets == 1, "{gets} requests: {paths:?}");
    assert!(done.bytes_from(other.address) >= 39_000_000, "{}", done.out);
}
