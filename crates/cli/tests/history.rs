//! What is remembered of URLs, and how to have nothing remembered.

mod common;

use common::fetch::{Ground, run};
use common::site::Site;

#[test]
fn without_history_nothing_is_written_down_and_nothing_looked_up() {
    let ground = Ground::new(200_000);
    let (site, cache) = (Site::good(&ground.content), ground.dir.path().join("cache"));
    let known = cache.join("anabranch/urls.jsonl");
    let get = |more: &[&str]| {
        let mut command = ground.get_named(&[site.url()], &[&["--json", "--force"], more].concat());
        command.env("XDG_CACHE_HOME", &cache);
        let done = run(command).expect(0);
        ground.assert_arrived();
        done.summary()["verified"].clone()
    };
    assert_eq!(get(&["--no-history"]), "nothing");
    assert!(!known.exists(), "nothing is written down");
    assert_eq!(get(&[]), "nothing", "and so nothing is known");
    assert_eq!(get(&[]), "unchanged");
    let written = std::fs::read(&known).expect("what is remembered");
    assert_eq!(get(&["--no-history"]), "nothing", "nothing is looked up");
    assert_eq!(std::fs::read(&known).expect("what is remembered"), written);
}
