//! Servers whose file changes, or seems to, where a hash of the whole says what is wanted.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::fetch::{Ground, checksum, run, spawn};
use common::site::{Reply, Request, Site, honest, liar, wrong};
use nix::sys::signal::Signal;

/// A server without `ETag` that gives the `n`th answer the date that `minute` says.
fn dated(ground: &Ground, rate: u64, minute: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Site {
    let (answers, content) = (AtomicU64::new(0), ground.content.clone());
    Site::new(&ground.content, move |request: &Request, _: Reply| {
        let mut request = request.clone();
        request.fields.retain(|(name, _)| name != "if-range");
        let minute = minute(answers.fetch_add(1, Ordering::Relaxed));
        let date = format!("Fri, 27 Nov 2026 08:{minute:02}:00 GMT");
        honest(&request, &content, "").without("etag").with("last-modified", date).at(rate)
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
    let is_new = Arc::new(AtomicBool::new(false));
    let (switch, old, new) = (Arc::clone(&is_new), ground.content.clone(), wrong(&ground.content));
    let site = Site::new(&ground.content, move |request: &Request, _: Reply| {
        let is_new = switch.load(Ordering::Relaxed);
        let reply = if is_new { honest(request, &new, "\"v2\"") } else { honest(request, &old, "\"v1\"") };
        reply.at(4_000_000)
    });
    let hash = checksum(&ground.content);
    let get = || ground.get_named(&[site.url()], &["--json", &hash]);
    for upto in [9_000_000, 10_500_000] {
        let running = spawn(get());
        common::wait_until(20, || site.body_bytes() > upto);
        running.signal(Signal::SIGKILL);
        let _ = running.end();
        is_new.store(true, Ordering::Relaxed);
    }
    let done = run(get()).expect(5);
    assert!(done.notes().contains("it may be of another file"), "{}", done.notes());
    assert!(site.body_bytes() < 2 * 12_000_000 + 1_000_000, "{}", site.body_bytes());
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
