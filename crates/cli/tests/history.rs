//! What is remembered of URLs, and how to have nothing remembered.

mod common;

use common::fetch::{Ground, checksum, run};
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

#[test]
fn what_only_the_history_vouches_for_is_said_to_come_from_it() {
    let ground = Ground::new(200_000);
    let (site, cache) = (Site::good(&ground.content), ground.dir.path().join("cache"));
    let get = |more: &[&str]| {
        let mut command = ground.get_named(&[site.url()], more);
        command.env("XDG_CACHE_HOME", &cache);
        let done = run(command).expect(0);
        ground.assert_arrived();
        done
    };
    let by_user = get(&["--json", &checksum(&ground.content)]).summary();
    assert_eq!(by_user["verified_by"], "user");
    // Fetched again, and there already.
    for more in [&["--json", "--force"][..], &["--json"]] {
        if more.len() > 1 {
            std::fs::remove_file(ground.target()).expect("it arrived");
        }
        let summary = get(more).summary();
        let by = summary["verified_by"].as_str().expect("somebody").to_owned();
        assert!(by.starts_with("history of 20") && by.len() == "history of 2026-11-22".len(), "{summary}");
        assert_eq!((&summary["verified"], &summary["unverified_since"]), (&"whole".into(), &().into()));
    }
    let said = get(&[]).err;
    assert!(said.contains(" verified as the same as on 20"), "{said}");
    // Whoever knows the hash vouches again.
    assert_eq!(get(&["--json", &checksum(&ground.content)]).summary()["verified_by"], "user");
}
