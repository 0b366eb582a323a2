//! What is remembered of URLs, and how to have nothing remembered.

use std::path::PathBuf;

use crate::common::fetch::{Done, Ground, checksum, run};
use crate::peers::site::{Reply, Site, Switch, late_liar, liar, wrong};

/// Where it is remembered.
fn known(ground: &Ground) -> PathBuf {
    ground.dir.path().join("cache/anabranch/urls.jsonl")
}

/// Fetches these, and remembers it there.
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

/// The server has another file of that length by now. A hash recognises the old one that is there, and says
/// nothing of what the server has: that is not remembered as the old one's, and can be fetched.
#[test]
fn what_was_there_already_is_not_remembered_of_a_url() {
    let ground = Ground::new(200_000);
    let is_new = Switch::default();
    let site = is_new.updated(&ground.content, &wrong(&ground.content), u64::MAX);
    let get = |more: &[&str]| remembering(&ground, &[site.url()], more);
    let hash = checksum(&ground.content);
    get(&[&hash]).expect(0);
    is_new.set(true);
    let summary = get(&["--json", &hash]).expect(0).summary();
    assert_eq!(
        (&summary["verified_by"], &summary["last"]["resumed_bytes"]),
        (&"user".into(), &200_000.into())
    );
    ground.assert_arrived();
    let said = get(&[]).expect(6).err;
    assert!(said.contains("nothing tells whether it is what would come"), "{said}");
    get(&["--force"]).expect(0);
    assert_eq!(std::fs::read(ground.target()).expect("it came"), wrong(&ground.content));
}

/// What came of one server alone, without any hash, is its word. It does not decide against others.
#[test]
fn what_nobody_verified_does_not_outvote_two_others() {
    let ground = Ground::new(5_000_000);
    let (good, bad) = ([(); 2].map(|()| Site::good(&ground.content)), liar(&ground.content, u64::MAX));
    let get = |urls: &[String]| remembering(&ground, urls, &["--json"]);
    get(&[bad.url()]).expect(0);
    std::fs::remove_file(ground.target()).expect("it came");
    let done = get(&[bad.url(), good[0].url(), good[1].url()]).expect(0);
    ground.assert_arrived();
    assert_eq!(done.banned(), [bad.name()], "the odd one");
}

/// The file that one server alone sent is there, and two others begin otherwise.
#[test]
fn what_is_there_is_held_against_what_most_mirrors_begin_with() {
    let ground = Ground::new(500_000);
    let (good, bad) = ([(); 2].map(|()| Site::good(&ground.content)), liar(&ground.content, u64::MAX));
    let get = |urls: &[String], more: &[&str]| remembering(&ground, urls, more);
    let all = [bad.url(), good[0].url(), good[1].url()];
    get(&[bad.url()], &[]).expect(0);
    let said = get(&all, &["-q"]).expect(6).err;
    assert!(said.contains("begins otherwise") && said.contains("--force"), "{said}");
    get(&all, &["--force"]).expect(0);
    ground.assert_arrived();
    // What one of those has that agree is the same.
    std::fs::remove_file(ground.target()).expect("the file");
    get(&[good[0].url()], &[]).expect(0);
    let all = [good[0].url(), good[1].url(), bad.url()];
    assert_eq!(get(&all, &["--json"]).expect(0).summary()["verified"], "unchanged");
}

/// What came of one server alone before does not stand for the others' bytes.
#[test]
fn what_is_remembered_of_one_server_takes_no_warning_away() {
    let ground = Ground::new(3_000_000);
    let content = ground.content.clone();
    let whole = Site::new(&[], move |_, _| Reply::new(200, &content).at(1_000_000));
    let bad = late_liar(&ground.content, u64::MAX);
    let get = |urls: &[String]| remembering(&ground, urls, &["-q"]).expect(0);
    get(&[bad.url()]);
    std::fs::remove_file(ground.target()).expect("the file");
    let said = get(&[bad.url(), whole.url()]).err;
    assert!(said.contains("of 2 mirrors that are named 1 can be compared throughout"), "{said}");
}

/// Wherever it stands among those that are named.
#[test]
fn what_the_user_vouched_for_is_not_hidden_by_what_nobody_did() {
    let ground = Ground::new(3_000_000);
    let (good, bad) = ([(); 2].map(|()| Site::good(&ground.content)), liar(&ground.content, u64::MAX));
    let get = |urls: &[String], more: &[&str]| {
        remembering(&ground, urls, &[&["--json"], more].concat()).expect(0).summary()
    };
    let remove = || std::fs::remove_file(ground.target()).expect("the file");
    get(&[bad.url()], &[]);
    remove();
    // Nobody vouched for either: what is there is what one of them had.
    get(&[good[0].url()], &[]);
    let all = [bad.url(), good[0].url(), good[1].url()];
    assert_eq!(get(&all, &[])["verified"], "unchanged");
    remove();
    get(&[good[0].url()], &[&checksum(&ground.content)]);
    for urls in [&all[..2], &all] {
        for is_there in [true, false] {
            let summary = get(urls, &[]);
            ground.assert_arrived();
            assert_eq!(summary["verified"], "whole", "{summary}");
            if is_there {
                remove();
            }
        }
    }
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
