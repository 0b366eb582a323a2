//! Limits of a transfer's rate, over real sockets: of the whole and of one local end, by mmTP, by HTTP and by
//! both at once.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use anabranch::{Control, Event, Get, PathProgress, Report, Serve, Source};
use anabranch_algo::Rate;

/// Long enough that what buffers and slow start bring besides is little.
const CONTENT_BYTES: usize = 6_000_000;

/// A source of a content by mmTP and by HTTP, and where it is.
fn serve(dir: &tempfile::TempDir) -> Source {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let path = dir.path().join("file");
    let bytes: Vec<u8> =
        (0..CONTENT_BYTES as u32).map(|i| (i.wrapping_mul(0x9E37_79B1) >> 24) as u8).collect();
    fs::write(&path, bytes).expect("a file");
    let serve = Serve::new().path(path).expect("it is there").listen(loopback).http(loopback).cache(None);
    serve.start().expect("a source")
}

/// The URI of what `source` offers, and its URL.
fn names(source: &Source) -> (String, String) {
    let url = source.offers()[0].url().expect("it offers HTTP").to_owned();
    (source.uris().next().expect("an offer").to_owned(), url)
}

/// How long a transfer took from its first byte on, and its report.
fn run(get: &Get, dir: &tempfile::TempDir) -> (Duration, Report) {
    let get = get.clone().proxy("").progress_every(Duration::from_millis(20));
    let to = dir.path().join("to");
    let clock = anabranch_net::Clock::start();
    let mut first = None;
    let report = get.to_file(&to).overwrite(true).run(|event| {
        if let Event::Progress(progress) = event
            && progress.done_bytes > 0
        {
            first.get_or_insert_with(|| clock.now());
        }
        Control::Continue
    });
    let report = report.expect("it arrives");
    let took = clock.now().since(first.expect("it moved"));
    assert!(fs::read(&to).expect("a file") == fs::read(dir.path().join("file")).expect("a file"));
    fs::remove_file(to).expect("the file");
    (Duration::from_nanos(took.as_nanos()), report)
}

/// That it took no less than what `bytes` take at `rate`; how much more is the machine's affair.
fn assert_took(took: Duration, bytes: usize, rate: u64, what: &str) {
    let ideal = bytes as f64 / rate as f64;
    // What came in the first 20 ms is not counted in the time.
    assert!(took.as_secs_f64() >= 0.93 * ideal, "{what}: {took:?} of {ideal} s");
}

#[test]
fn a_limit_holds_for_the_whole_transfer() {
    const RATE: u64 = 4_000_000;
    let dir = tempfile::tempdir().expect("a directory");
    let source = serve(&dir);
    let (uri, url) = names(&source);
    for (what, names) in [("mmTP", vec![uri.clone()]), ("HTTP", vec![url.clone()]), ("both", vec![uri, url])]
    {
        let get = Get::new(names).expect("names").limit(Rate::from_bytes(RATE));
        // Several paths share the limit.
        for get in [get.clone(), get.via("127.0.0.1").via("127.0.0.2").via("127.0.0.3")] {
            let (took, report) = run(&get, &dir);
            assert_took(took, CONTENT_BYTES, RATE, what);
            assert!(report.last.paths.iter().any(|path| path.bytes > 0));
        }
    }
}

#[test]
fn a_limit_holds_for_one_way() {
    const SLOW: u64 = 1_000_000;
    const WHOLE: u64 = 4_000_000;
    let dir = tempfile::tempdir().expect("a directory");
    let source = serve(&dir);
    let (uri, url) = names(&source);
    for (what, name) in [("mmTP", uri), ("HTTP", url)] {
        let get = Get::new([name]).expect("a name").limit(Rate::from_bytes(WHOLE));
        let get = get.via_limited("127.0.0.1", Rate::from_bytes(SLOW)).via("127.0.0.2");
        let (took, report) = run(&get, &dir);
        assert_took(took, CONTENT_BYTES, WHOLE, what);
        let over = |via: &str| {
            let rows = report.last.paths.iter().filter(|path: &&PathProgress| path.via == via);
            rows.map(|path| path.bytes).sum::<u64>() as f64
        };
        let most = (took.as_secs_f64() + 0.1) * SLOW as f64 + 70_000.0;
        assert!(over("127.0.0.1") <= most, "{what}: {report:?}");
        assert!(over("127.0.0.2") > over("127.0.0.1"), "{what}: {report:?}");
    }
}

#[test]
fn a_limit_of_nothing_is_refused() {
    let get = Get::new(["http://127.0.0.1:9/f"]).expect("a URL").limit(Rate::from_bytes(0));
    let error = get.to_file("f").run(|_| Control::Continue).expect_err("no such rate");
    assert!(error.to_string().contains("`limit`"), "{error}");
}
