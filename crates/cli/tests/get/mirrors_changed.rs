//! Servers whose file changes, or seems to, where a hash of the whole says what is wanted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::fetch::{Ground, checksum, killed_when, run, spawn};
use crate::peers::site::{Reply, Request, Site, Switch, honest, liar, wrong};
use nix::sys::signal::Signal;

/// A server without `ETag` that gives the `n`th answer the date that `minute` says.
fn dated(ground: &Ground, rate: u64, minute: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Site {
    let (answers, content) = (AtomicU64::new(0), ground.content.clone());
    Site::new(&ground.content, move |request: &Request, _: Reply| {
        let minute = minute(answers.fetch_add(1, Ordering::Relaxed));
        let date = format!("Fri, 27 Nov 2026 08:{minute:02}:00 GMT");
        honest(&request.without("if-range"), &content, "")
            .without("etag")
            .with("last-modified", date)
            .at(rate)
    })
}

/// The honest one is merely touched on the way. Its date says nothing then; the hash does.
#[test]
fn another_date_leaves_an_honest_mirror_in() {
    let ground = Ground::new(12_000_000);
    let touched = dated(&ground, 4_000_000, |answer| u64::from(answer > 2));
    let bad = liar(&ground.content, 4_000_000);
    let hash = checksum(&ground.content);
    let done = run(ground.get_named(&[touched.url(), bad.url()], &["--json", &hash])).expect(0);
    ground.assert_arrived();
    assert!(done.notes().contains("it has another date"), "it was seen: {}", done.notes());
}

/// Two machines with one name, each with a date of its own.
#[test]
fn dates_that_alternate_do_not_count_with_a_hash() {
    let ground = Ground::new(12_000_000);
    let site = dated(&ground, 8_000_000, |answer| answer % 2);
    let hash = checksum(&ground.content);
    run(ground.get_named(&[site.url()], &["--json", &hash])).expect(0);
    ground.assert_arrived();
    assert!(site.body_bytes() < 13_000_000, "{}", site.body_bytes());
}

/// What it brought since it has another file is its own: once that is whole and wrong, that is the verdict.
#[test]
fn a_mirror_that_has_changed_is_asked_once_for_what_it_has_now() {
    let ground = Ground::new(12_000_000);
    let is_new = Switch::default();
    let site = is_new.updated(&ground.content, &wrong(&ground.content), 4_000_000);
    let hash = checksum(&ground.content);
    let get = || ground.get_named(&[site.url()], &["--json", &hash]);
    for upto in [9_000_000, 10_500_000] {
        killed_when(get(), || site.body_bytes() > upto);
        is_new.set(true);
    }
    let done = run(get()).expect(5);
    assert!(done.notes().contains("it may be of another file"), "{}", done.notes());
    assert!(site.body_bytes() < 2 * 12_000_000 + 1_000_000, "{}", site.body_bytes());
}

/// The file changes on the way to the very one that is wanted: what came before that is fetched again.
#[test]
fn a_mirror_that_changes_to_what_is_wanted_is_found_to_have_it() {
    for (sites, tags) in [(1, true), (1, false), (2, true)] {
        let ground = Ground::new(8_000_000);
        let is_new = Switch::default();
        let site = |()| match tags {
            true => is_new.updated(&wrong(&ground.content), &ground.content, 2_000_000),
            false => {
                let (switch, old, new) = (is_new.clone(), wrong(&ground.content), ground.content.clone());
                Site::new(&ground.content, move |request: &Request, _: Reply| {
                    let (content, minute) = if switch.is_turned() { (&new, 1) } else { (&old, 0) };
                    let date = format!("Fri, 27 Nov 2026 08:0{minute}:00 GMT");
                    let reply = honest(request, content, "").without("etag").with("last-modified", date);
                    reply.at(2_000_000)
                })
            }
        };
        let sites: Vec<Site> = vec![(); sites].into_iter().map(site).collect();
        let urls: Vec<String> = sites.iter().map(Site::url).collect();
        let came = || sites.iter().map(Site::body_bytes).sum::<u64>();
        let running = spawn(ground.get_named(&urls, &["--json", &checksum(&ground.content)]));
        crate::common::wait_until(20, || came() > 3_000_000);
        is_new.set(true);
        let done = running.end().expect(0);
        ground.assert_arrived();
        assert!(done.notes().contains("has changed"), "{}", done.notes());
    }
}

/// The liar has another `ETag` in each run. Who is tried alone goes on all the same.
#[test]
fn a_trial_goes_on_where_each_run_finds_another_etag() {
    let ground = Ground::new(12_000_000);
    let runs = Arc::new(AtomicU64::new(0));
    let (number, bytes) = (Arc::clone(&runs), wrong(&ground.content));
    let bad = Site::new(&ground.content, move |request: &Request, _: Reply| {
        let tag = format!("\"w{}\"", number.load(Ordering::Relaxed));
        honest(request, &bytes, &tag).at(4_000_000)
    });
    let good = Site::slow(&ground.content, 3_000_000);
    let (urls, hash) = ([bad.url(), good.url()], checksum(&ground.content));
    for _ in 0..8 {
        runs.fetch_add(1, Ordering::Relaxed);
        let running = spawn(ground.get_named(&urls, &["--json", &hash]));
        if running.end_or_interrupt(2_500, Signal::SIGKILL).code == Some(0) {
            break;
        }
    }
    ground.assert_arrived();
    let came = good.body_bytes() + bad.body_bytes();
    assert!(came < 3 * 12_000_000 + 4_000_000, "{} and {}", good.body_bytes(), bad.body_bytes());
}

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

/// The file is there, and servers have a longer one by now.
#[test]
fn a_right_file_is_right_whatever_length_servers_have() {
    let ground = Ground::new(200_000);
    let longer = [&ground.content[..], b"more"].concat();
    let sites = [(); 2].map(|()| Site::good(&longer));
    let urls = [sites[0].url(), sites[1].url()];
    std::fs::create_dir_all(ground.to()).expect("a directory");
    std::fs::write(ground.target(), &ground.content).expect("written");
    let hash = checksum(&ground.content);
    for urls in [&urls[..1], &urls[..]] {
        for more in [&["--json", &hash][..], &["--json", "--force", &hash]] {
            let summary = run(ground.get_named(urls, more)).expect(0).summary();
            assert_eq!((&summary["verified"], &summary["verified_by"]), (&"whole".into(), &"user".into()));
            assert_eq!(summary["last"]["resumed_bytes"], 200_000);
            ground.assert_arrived();
        }
    }
    // Another one is still in the way.
    std::fs::write(ground.target(), b"another").expect("written");
    let done = run(ground.get_named(&urls, &[&hash])).expect(6);
    assert!(done.err.contains("with other content"), "{}", done.err);
}

/// Two machines with one name, of which one gives no `ETag`, or a weak one.
#[test]
fn an_etag_that_is_missing_now_and_then_does_not_count_with_a_hash() {
    let ground = Ground::new(12_000_000);
    for other in [None, Some("W/\"v1\"")] {
        let (answers, content) = (AtomicU64::new(0), ground.content.clone());
        let site = Site::new(&ground.content, move |request, _: Reply| {
            match (answers.fetch_add(1, Ordering::Relaxed) % 2, other) {
                (0, _) => honest(request, &content, "\"v1\""),
                (_, Some(weak)) => honest(request, &content, weak),
                (_, None) => honest(request, &content, "").without("etag"),
            }
        });
        for hash in [Some(checksum(&ground.content)), None] {
            let more: Vec<&str> = ["--json"].into_iter().chain(hash.as_deref()).collect();
            run(ground.get_named(&[site.url()], &more)).expect(0);
            ground.assert_arrived();
            std::fs::remove_file(ground.target()).expect("the file");
        }
    }
}
