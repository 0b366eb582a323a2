//! A hash of the whole tells who is right: mirrors are tried alone, over interruptions too. A mirror
//! that does not answer only costs time.

use crate::common::fetch::{Ground, checksum, names, run};
use crate::peers::site::{Reply, Site, Switch, wrong};

/// It answers its first request with 503: it is asked again before the get fails, for it has what is wanted.
/// `more`: how many bytes longer the liar's file is.
#[test]
fn a_busy_mirror_is_asked_again_where_the_others_do_not_have_it() {
    for more in [0, 1] {
        let ground = Ground::new(3_000_000);
        let bad = [wrong(&ground.content), vec![7; more]].concat();
        let busy = Site::busy_at_first(&ground.content);
        let liar = Site::good(&bad);
        let (urls, hash) = ([liar.url(), busy.url()], checksum(&ground.content));
        let done = run(ground.get_named(&urls, &["--json", &hash])).expect(0);
        ground.assert_arrived();
        assert!(done.notes().contains("once more to those that could not be asked"), "{}", done.notes());
    }
    // The same where a Metalink of the user's names both.
    for more in [0, 1] {
        let ground = Ground::new(3_000_000);
        let bad = [wrong(&ground.content), vec![7; more]].concat();
        let busy = Site::busy_at_first(&ground.content);
        let liar = Site::good(&bad);
        let hash = checksum(&ground.content).replace("--checksum=sha-256=", "");
        let list = ground.dir.path().join("f.meta4");
        let urls = [&liar, &busy].map(|site| format!("<url>{}</url>", site.url())).concat();
        let text = format!(
            "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"f\"><size>3000000</size>\
             <hash type=\"sha-256\">{hash}</hash>{urls}</file></metalink>"
        );
        std::fs::write(&list, text).expect("a file");
        run(ground.get_named(&[list.to_str().expect("UTF-8").to_owned()], &["--json"])).expect(0);
        ground.assert_arrived();
        assert_eq!(names(&ground.to()), ["f"]);
    }
    // It is busy for good: the time-out is for that as for all.
    let ground = Ground::new(3_000_000);
    let busy = Site::new(&ground.content, |_, _| Reply::new(503, b"later").with("retry-after", "1"));
    let liar = Site::good(&wrong(&ground.content));
    let hash = checksum(&ground.content);
    let done = run(ground.get_named(&[liar.url(), busy.url()], &["--json", "--timeout", "4", &hash]));
    let done = done.expect(5);
    assert!(done.err.contains("could not be asked"), "{}", done.err);
    assert!(busy.seen().len() > 2, "{}", busy.seen().len());
    ground.assert_part();
}

/// The only one that answers at the start falls silent: the busy one is asked again, and has it.
#[test]
fn a_busy_mirror_is_asked_again_where_the_other_falls_silent() {
    let ground = Ground::new(3_000_000);
    let busy = Site::busy_at_first(&ground.content);
    let silent = Switch::default().silent_after(1_000_000, &wrong(&ground.content), 4_000_000);
    let hash = checksum(&ground.content);
    let done = run(ground.get_named(&[silent.url(), busy.url()], &["--json", "--timeout", "5", &hash]));
    done.expect(0);
    ground.assert_arrived();
}

/// An honest mirror takes its time before each answer: where the others have something else it is waited for.
#[test]
fn one_that_is_slow_to_answer_is_waited_for_where_the_others_do_not_have_it() {
    let ground = Ground::new(300_000);
    let slow = Site::new(&ground.content, |_, reply| {
        std::thread::sleep(std::time::Duration::from_secs(4));
        reply
    });
    let liar = Site::good(&wrong(&ground.content));
    let hash = checksum(&ground.content);
    run(ground.get_named(&[liar.url(), slow.url()], &["--json", &hash])).expect(0);
    ground.assert_arrived();
}
