//! Tests fetching parts of a file without the rest.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{slice, thread};

use anabranch::{Checksum, ErrorKind, Get, Stop, Verified};

use crate::reader::{noise, plain, serve, uri, url};

const LENGTH: usize = 8_000_000;

/// Starts a server with ranges and without hashes, which counts the bytes of bodies that it sends.
fn counting(bytes: Vec<u8>) -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let address = listener.local_addr().expect("an address");
    let sent = Arc::<AtomicU64>::default();
    let counter = Arc::clone(&sent);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (bytes, counter) = (bytes.clone(), Arc::clone(&counter));
            thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().expect("a socket")).lines();
                while let Some(Ok(first)) = lines.next() {
                    let fields: Vec<String> =
                        lines.by_ref().map_while(Result::ok).take_while(|l| !l.is_empty()).collect();
                    let range = fields.iter().find_map(|field| {
                        let (first, last) = field
                            .to_ascii_lowercase()
                            .strip_prefix("range: bytes=")?
                            .split_once('-')
                            .map(|(a, b)| (a.to_owned(), b.to_owned()))?;
                        Some((first.parse::<usize>().ok()?, last.parse::<usize>().ok()?))
                    });
                    let (head, body) = match range.filter(|_| first.contains(" /f.bin ")) {
                        Some((first, last)) => {
                            let body = &bytes[first..=last.min(bytes.len() - 1)];
                            let end = first + body.len() - 1;
                            (
                                format!(
                                    "206 Partial Content\r\nContent-Range: bytes {first}-{end}/{}",
                                    bytes.len()
                                ),
                                body,
                            )
                        }
                        None => ("404 Not Found".to_owned(), &[][..]),
                    };
                    counter.fetch_add(body.len() as u64, Ordering::Relaxed);
                    let head =
                        format!("HTTP/1.1 {head}\r\nETag: \"1\"\r\nContent-Length: {}\r\n\r\n", body.len());
                    if (&stream).write_all(&[head.as_bytes(), body].concat()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (format!("http://{address}/f.bin"), sent)
}

#[test]
fn ranges_of_a_mirror_come_without_the_rest() {
    let bytes = noise(LENGTH);
    let (url, sent) = counting(bytes.clone());
    let get = Get::new([&url]).expect("a URL");
    assert_eq!(get.get_range(5_000_000..5_000_007).expect("seven bytes"), bytes[5_000_000..5_000_007]);
    let ranges =
        [4_000_000..4_100_000, 0..1, 9..9, 4_050_000..4_050_001, 7_999_990..9_000_000, 8_000_000..8_000_001];
    let got = get.get_ranges(&ranges).expect("ranges");
    let wanted = ranges
        .map(|range| bytes[(range.start as usize).min(LENGTH)..(range.end as usize).min(LENGTH)].to_vec());
    assert!(got.bytes == wanted && got.length == LENGTH as u64, "other bytes, or {}", got.length);
    assert_eq!((got.report.verified, got.report.complete), (Verified::Nothing, true));
    assert!(sent.load(Ordering::Relaxed) < 400_000, "{sent:?}");
    let stop = Stop::new().expect("a stop");
    stop.stop();
    let stopped = get.get_ranges_stopped_by(slice::from_ref(&(0..1)), &stop).expect_err("it is stopped");
    assert_eq!(stopped.kind(), ErrorKind::Interrupted);
    // A hash of the whole file cannot verify a part.
    let hashed =
        get.checksum(Checksum::sha256([7; 32])).get_ranges(slice::from_ref(&(0..10))).expect("ten bytes");
    assert_eq!((&hashed.bytes[0][..], hashed.report.verified), (&bytes[..10], Verified::Nothing));
}

#[test]
fn ranges_are_verified_where_hashes_of_blocks_are_known() {
    let (dir, bytes) = (tempfile::tempdir().expect("a directory"), noise(LENGTH));
    let source = serve(dir.path(), &bytes);
    for names in [vec![uri(&source)], vec![uri(&source), url(&source)]] {
        let got = Get::new(&names)
            .expect("names")
            .get_ranges(slice::from_ref(&(3_000_000..3_000_100)))
            .expect("a range");
        assert!(got.bytes[0] == bytes[3_000_000..3_000_100]);
        assert_eq!(got.report.verified, Verified::Blocks, "{names:?}");
    }
}

#[test]
fn of_a_server_without_ranges_the_rest_is_dropped() {
    let bytes = noise(1_000_000);
    let url = plain(bytes.clone());
    let got = Get::new([url]).expect("a URL").get_range(400_000..400_010).expect("a range");
    assert_eq!(got, bytes[400_000..400_010]);
}

#[test]
fn what_has_no_ranges_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("a"), b"a").expect("a file");
    let serve = anabranch::Serve::new().path(dir.path()).expect("it is there");
    let source = serve.listen(([127, 0, 0, 1], 0).into()).cache(None).start().expect("a source");
    let error = Get::new([uri(&source)]).expect("a URI").get_range(0..1).expect_err("a directory");
    assert_eq!(error.kind(), ErrorKind::Usage);
}

/// Async code reads and waits without a separate thread.
#[cfg(feature = "tokio")]
#[test]
fn readers_and_ranges_in_async_code() {
    use tokio::io::AsyncReadExt as _;
    let (dir, bytes) = (tempfile::tempdir().expect("a directory"), noise(LENGTH));
    let source = serve(dir.path(), &bytes);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let get = Get::new([url(&source), uri(&source)]).expect("names");
    let (read, ranges, failed) = runtime.block_on(async {
        let mut reader = get.read().expect("a reader");
        let mut read = Vec::new();
        reader.read_to_end(&mut read).await.expect("all of it");
        assert!(reader.report().is_some_and(|report| report.complete));
        let ranges =
            get.start_ranges(slice::from_ref(&(10..20))).expect("a transfer").await.expect("ten bytes");
        let mut wrong = Get::new(["http://127.0.0.1:1/x"]).expect("a URL").read().expect("a reader");
        (read, ranges, wrong.read_to_end(&mut Vec::new()).await.expect_err("there is no server"))
    });
    assert!(read == bytes && ranges.bytes[0] == bytes[10..20]);
    let cause = failed.get_ref().and_then(|cause| cause.downcast_ref::<anabranch::Error>());
    assert_eq!(cause.map(anabranch::Error::kind), Some(ErrorKind::Unreachable));
}
