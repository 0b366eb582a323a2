//! Who decides where no hash tells what is right: more than half of the mirrors that are named, whoever is
//! fast, whoever agrees with whom, and whether or not it can be asked for a part.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::fetch::{Ground, names, run};
use crate::peers::site::{PATH, Reply, Request, Site, Then, gone, honest, late_wrong, wrong};

/// A server of these bytes at this rate.
fn site(content: &[u8], rate: u64) -> Site {
    let content = content.to_vec();
    Site::new(&content.clone(), move |request, _| honest(request, &content, "\"v1\"").at(rate))
}

/// One that sends all of it, whatever it is asked for.
fn without_ranges(content: &[u8]) -> Site {
    let content = content.to_vec();
    Site::new(&content.clone(), move |_: &Request, _: Reply| {
        let reply = Reply::new(200, &content).with("etag", "\"v1\"");
        reply.with("content-type", "application/octet-stream")
    })
}

/// Fetches from these without a hash; who was struck off.
fn struck_off(ground: &Ground, sites: &[Site]) -> BTreeSet<String> {
    let urls: Vec<String> = sites.iter().map(Site::url).collect();
    let done = run(ground.get_named(&urls, &["--json"])).expect(0);
    ground.assert_arrived();
    assert_eq!(done.summary()["verified"], "nothing");
    fs::remove_file(ground.target()).expect("the file");
    done.banned().into_iter().collect()
}

/// Liars that agree, are faster than all others, and begin as the file does.
#[test]
fn two_liars_that_agree_do_not_outvote_three() {
    let ground = Ground::new(3_000_000);
    let bad = late_wrong(&ground.content);
    for honest in [3, 5] {
        for first in [0, 2, honest] {
            let mut sites: Vec<Site> = (0..honest).map(|_| site(&ground.content, 2_000_000)).collect();
            let liars = [(); 2].map(|()| site(&bad, 30_000_000));
            let names: BTreeSet<String> = liars.iter().map(Site::name).collect();
            sites.splice(first..first, liars);
            assert_eq!(struck_off(&ground, &sites), names, "{first} of {honest}");
        }
    }
    // As many liars as honest ones: nobody can tell.
    let sites = [&ground.content, &bad, &ground.content, &bad].map(|content| site(content, 4_000_000));
    let done = run(ground.get_named(&sites.each_ref().map(Site::url), &["--json"])).expect(5);
    assert!(sites.iter().all(|site| done.err.contains(&site.name())), "{}", done.err);
    assert!(names(&ground.to()).is_empty(), "{:?}", names(&ground.to()));
}

/// What a server without ranges begins with is known before anything is fetched.
#[test]
fn who_gives_no_ranges_has_a_vote() {
    let ground = Ground::new(3_000_000);
    let bad = wrong(&ground.content);
    let sites = [site(&bad, 30_000_000), without_ranges(&ground.content), without_ranges(&ground.content)];
    assert_eq!(struck_off(&ground, &sites), BTreeSet::from([sites[0].name()]));
    let sites = [site(&ground.content, 4_000_000), without_ranges(&ground.content), without_ranges(&bad)];
    assert_eq!(struck_off(&ground, &sites), BTreeSet::from([sites[2].name()]));
    let sites = [site(&bad, 30_000_000), without_ranges(&ground.content)];
    let done = run(ground.get_named(&sites.each_ref().map(Site::url), &["--json"])).expect(5);
    assert!(sites.iter().all(|site| done.err.contains(&site.name())), "{}", done.err);
    assert_eq!(done.summary()["last"]["done_bytes"], 0, "it is known at the start");
}

/// What a server begins with that does not say how long its file is counts, whatever length the others say.
#[test]
fn who_says_no_length_has_a_vote() {
    let ground = Ground::new(3_000_000);
    let bad = wrong(&ground.content);
    for longer in [0, 5_000] {
        let liar = site(&[&bad[..], &vec![7; longer]].concat(), 30_000_000);
        let sites = [liar, Site::untold(&ground.content), Site::untold(&ground.content)];
        let done = run(ground.get_named(&sites.each_ref().map(Site::url), &["--json"])).expect(0);
        ground.assert_arrived();
        assert!(done.out.contains("begins with other bytes than most mirrors"), "{}", done.out);
        fs::remove_file(ground.target()).expect("the file");
    }
    let sites = [site(&bad, 30_000_000), Site::untold(&ground.content)];
    let done = run(ground.get_named(&sites.each_ref().map(Site::url), &["--json"])).expect(5);
    assert!(done.err.contains("the first 13 KiB"), "{}", done.err);
    // By another URL a liar gets no more.
    let honest = [(); 2].map(|()| Site::untold(&ground.content));
    let liar = Site::answering({
        let bad = bad.clone();
        move |_| Reply::new(200, &bad).chunked()
    });
    let again = format!("{}?2", liar.url());
    let other = Site::answering({
        let content = ground.content.clone();
        move |request| match request.path.as_str() {
            PATH => Reply::new(200, &content).chunked().cut(20_000, Then::Close),
            _ => Reply::new(200, &bad).chunked(),
        }
    });
    let twice = [liar.url(), again, honest[0].url(), honest[1].url()];
    let second = [other.url(), format!("{}?2", other.url()), honest[0].url(), honest[1].url()];
    for urls in [twice, second] {
        run(ground.get_named(&urls, &["--json"])).expect(0);
        ground.assert_arrived();
        fs::remove_file(ground.target()).expect("the file");
    }
}

/// The same of a file that is shorter than what is asked for at first, and of none at all.
#[test]
fn who_says_no_length_has_a_vote_on_a_short_file() {
    let ground = Ground::new(5_000);
    for bad in [wrong(&ground.content), Vec::new()] {
        let sites = [Site::untold(&bad), Site::untold(&ground.content), Site::untold(&ground.content)];
        run(ground.get_named(&sites.each_ref().map(Site::url), &["--json"])).expect(0);
        ground.assert_arrived();
        fs::remove_file(ground.target()).expect("the file");
    }
}

/// One that stalls in what its file begins with, and cannot be asked for parts, is not used.
#[test]
fn who_does_not_show_what_its_file_begins_with_brings_nothing() {
    let ground = Ground::new(3_000_000);
    let bad = wrong(&ground.content);
    let asked = AtomicUsize::new(0);
    let liar = Site::new(&bad.clone(), move |_, _| {
        let reply = Reply::new(200, &bad).with("content-type", "application/octet-stream");
        match asked.fetch_add(1, Ordering::Relaxed) {
            0 => reply.cut(5_000, Then::Stall),
            _ => reply,
        }
    });
    let sites = [liar, without_ranges(&ground.content), without_ranges(&ground.content)];
    let done = run(ground.get_named(&sites.each_ref().map(Site::url), &["--json"])).expect(0);
    ground.assert_arrived();
    assert!(done.out.contains("it does not send what its file begins with"), "{}", done.out);
}

/// The same of one that can be asked for parts, where the others cannot.
#[test]
fn who_withholds_what_its_file_begins_with_decides_nothing() {
    let ground = Ground::new(3_000_000);
    let (bad, asked) = (wrong(&ground.content), AtomicUsize::new(0));
    let liar = Site::new(&bad.clone(), move |request, _| {
        let reply = honest(request, &bad, "\"v1\"");
        if asked.fetch_add(1, Ordering::Relaxed) == 0 { reply.cut(0, Then::Stall) } else { reply }
    });
    let sites = [liar, without_ranges(&ground.content), without_ranges(&ground.content)];
    run(ground.get_named(&sites.each_ref().map(Site::url), &["--json"])).expect(0);
    ground.assert_arrived();
}

/// What files begin with counts in a second round as in the first: one mirror is away, so there is one.
#[test]
fn in_a_second_round_too_the_openings_are_compared() {
    let ground = Ground::new(1_000_000);
    let gone = format!("http://{}/f", gone());
    for honest in [1, 2] {
        let mut sites = vec![without_ranges(&wrong(&ground.content))];
        sites.extend((0..honest).map(|_| without_ranges(&ground.content)));
        let urls: Vec<String> = sites.iter().map(Site::url).chain([gone.clone()]).collect();
        let done = run(ground.get_named(&urls, &["--json", "--timeout", "4"]));
        if honest == 1 {
            // Neither side has more than half.
            done.expect(5);
            assert!(names(&ground.to()).is_empty(), "{:?}", names(&ground.to()));
        } else {
            done.expect(0);
            ground.assert_arrived();
        }
    }
}

/// An origin has one vote on the length, too, however many of its URLs have others.
#[test]
fn an_origin_has_one_vote_on_the_length() {
    let ground = Ground::new(100_000);
    let good = [(); 2].map(|()| site(&ground.content, 30_000_000));
    let liar = Site::answering(|request| {
        let length = if request.path == PATH { 90_000 } else { 80_000 };
        honest(request, &vec![1; length], "\"v1\"")
    });
    let urls = [liar.url(), format!("{}?2", liar.url()), good[0].url(), good[1].url()];
    run(ground.get_named(&urls, &["--json"])).expect(0);
    ground.assert_arrived();
}

/// An origin has one vote, by the first of its URLs that has the file.
#[test]
fn an_origin_whose_first_url_is_gone_has_a_vote() {
    let ground = Ground::new(3_000_000);
    let bad = late_wrong(&ground.content);
    let honest = [(); 2].map(|()| site(&ground.content, 2_000_000));
    let liar = site(&bad, 30_000_000);
    let gone = |site: &Site| site.url().replace("/f.bin", "/gone.bin");
    let urls = [gone(&honest[0]), honest[0].url(), gone(&honest[1]), honest[1].url(), liar.url()];
    let done = run(ground.get_named(&urls, &["--json"])).expect(0);
    ground.assert_arrived();
    assert_eq!(done.banned(), [liar.name()]);
}

/// Those that cannot be asked for parts count where others differ, and that they cannot be compared is said.
#[test]
fn who_cannot_be_asked_for_parts_is_not_outvoted_by_a_minority() {
    let ground = Ground::new(3_000_000);
    let bad = late_wrong(&ground.content);
    let sites = [
        site(&ground.content, 4_000_000),
        site(&bad, 30_000_000),
        site(&bad, 30_000_000),
        without_ranges(&ground.content),
        without_ranges(&ground.content),
    ];
    let done = run(ground.get_named(&sites.each_ref().map(Site::url), &["--json"])).expect(5);
    assert!(done.banned().is_empty(), "{:?}", done.banned());
    assert!(!ground.target().exists());
    // Where nobody differs, it is said, with -q too, that these were compared only with what they begin with.
    let sites =
        [site(&ground.content, 4_000_000), without_ranges(&ground.content), without_ranges(&ground.content)];
    let done = run(ground.get_named(&sites.each_ref().map(Site::url), &["-q"])).expect(0);
    ground.assert_arrived();
    assert!(done.err.contains("of 3 mirrors that are named 1 can be compared"), "{}", done.err);
}

/// They answer late, or can only do so at the second try: without a hash they are waited for.
#[test]
fn who_is_late_or_busy_at_first_has_a_vote() {
    let ground = Ground::new(3_000_000);
    let bad = wrong(&ground.content);
    let late = |request: &Request, reply: Reply| {
        if !request.is_for_bytes() {
            thread::sleep(Duration::from_millis(1_600));
        }
        reply
    };
    let busy = || Site::busy_at_first(&ground.content);
    for honest in [[(); 2].map(|()| Site::new(&ground.content, late)), [(); 2].map(|()| busy())] {
        let liar = site(&bad, 30_000_000);
        let name = liar.name();
        let sites: Vec<Site> = [liar].into_iter().chain(honest).collect();
        assert_eq!(struck_off(&ground, &sites), BTreeSet::from([name]));
    }
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
