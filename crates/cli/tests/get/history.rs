//! The history of URLs: what is kept in it, and how to keep nothing.

use std::path::PathBuf;

use crate::common::fetch::{Done, Ground, checksum, run};
use crate::peers::site::Site;

/// Returns the path of the history.
fn known(ground: &Ground) -> PathBuf {
    ground.dir.path().join("cache/anabranch/urls.jsonl")
}

/// Fetches these URLs, with the history in the ground's directory.
fn remembering(ground: &Ground, urls: &[String], more: &[&str]) -> Done {
    let mut command = ground.get_named(urls, more);
    command.env("XDG_CACHE_HOME", ground.dir.path().join("cache"));
    run(command)
}

#[test]
fn without_history_nothing_is_written_down_and_nothing_looked_up() {
    let ground = Ground::new(200_000);
    let (site, known) = (Site::good(&ground.content), known(&ground));
    let get = |more: &[&str]| {
        let done = remembering(&ground, &[site.url()], &[&["--json", "--force"], more].concat()).expect(0);
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

/// The home of a service's user may not exist.
#[test]
fn no_home_is_made_for_the_history() {
    let ground = Ground::new(200_000);
    let (site, home) = (Site::good(&ground.content), ground.dir.path().join("no/home"));
    let mut command = ground.get_named(&[site.url()], &[]);
    command.env_remove("XDG_CACHE_HOME").env("HOME", &home);
    run(command).expect(0);
    ground.assert_arrived();
    assert!(!home.exists() && !ground.dir.path().join("no").exists());
}

#[test]
fn what_only_the_history_vouches_for_is_said_to_come_from_it() {
    let ground = Ground::new(200_000);
    let site = Site::good(&ground.content);
    let get = |more: &[&str]| {
        let done = remembering(&ground, &[site.url()], more).expect(0);
        ground.assert_arrived();
        done
    };
    let by_user = get(&["--json", &checksum(&ground.content)]).summary();
    assert_eq!(by_user["verified_by"], "user");
    // Fetches the file again, or finds it there already.
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
    // A hash that the user gives vouches for the file again.
    assert_eq!(get(&["--json", &checksum(&ground.content)]).summary()["verified_by"], "user");
}

#[test]
fn what_is_no_text_hides_nothing_and_a_pipe_is_not_read() {
    let ground = Ground::new(200_000);
    let (site, known) = (Site::good(&ground.content), known(&ground));
    let get = || remembering(&ground, &[site.url()], &["--json"]);
    std::fs::create_dir_all(known.parent().expect("a directory")).expect("a directory");
    std::fs::write(&known, b"\xff\xfe\n").expect("a file");
    get().expect(0);
    assert_eq!(get().expect(0).summary()["verified"], "unchanged");
    std::fs::remove_file(&known).expect("the file");
    nix::unistd::mkfifo(&known, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    std::fs::remove_file(ground.target()).expect("the file");
    get().expect(0);
}
