//! Tests contents that are read in order while they arrive: from several sources, slowly, from liars, to an
//! early end.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anabranch::get::{READ_AHEAD_BYTES, Reader};
use anabranch::{Checksum, Error, ErrorKind, Event, Get, Serve, Source, Stop, Verified};
use anabranch_mmtp::ContentId;
use anabranch_mmtp::id::BLOCK_BYTES;
use anabranch_mmtp::uri::Uri;

const MIB: usize = 1 << 20;

pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&len.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// Serves a file in `dir` by mmTP and by HTTP.
pub(crate) fn serve(dir: &Path, bytes: &[u8]) -> Source {
    let path = dir.join("f.bin");
    fs::write(&path, bytes).expect("a file");
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let serve = Serve::new().path(path).expect("it is there").listen(loopback).http(loopback);
    serve.cache(None).start().expect("a source")
}

pub(crate) fn uri(source: &Source) -> String {
    source.uris().next().expect("an offer").to_owned()
}

pub(crate) fn url(source: &Source) -> String {
    source.offers()[0].url().expect("a URL").to_owned()
}

fn get<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Get {
    Get::new(names).expect("names").timeout(Duration::from_secs(20))
}

/// Starts a server without ranges and hashes; it sends no validator by which a version could be recognised.
pub(crate) fn plain(bytes: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let address = listener.local_addr().expect("an address");
    let answer = move |stream: TcpStream, bytes: &[u8]| -> io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        loop {
            let (mut first, mut line) = (String::new(), String::from("-"));
            reader.read_line(&mut first)?;
            while line.trim() != "" {
                line.clear();
                reader.read_line(&mut line)?;
            }
            let (is_file, mut stream) = (first.contains(" /f.bin "), &stream);
            let status = if is_file { "200 OK" } else { "404 Not Found" };
            let length = if is_file { bytes.len() } else { 0 };
            write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n")?;
            if is_file && first.starts_with("GET") {
                stream.write_all(bytes)?;
            }
        }
    };
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let bytes = bytes.clone();
            thread::spawn(move || answer(stream, &bytes));
        }
    });
    format!("http://{address}/f.bin")
}

fn assert_ends_well(mut reader: Reader, bytes: &[u8]) -> anabranch::Report {
    let mut read = Vec::new();
    reader.read_to_end(&mut read).expect("all of it");
    assert!(read == bytes, "other bytes");
    assert_eq!(reader.read(&mut [0; 9]).expect("the end stays"), 0);
    let report = reader.report().expect("a report").clone();
    assert!(report.complete);
    report
}

/// Returns the library's error inside the reader's error.
fn cause(error: &io::Error) -> &Error {
    error.get_ref().and_then(|inner| inner.downcast_ref()).expect("an error of the library")
}

/// Reads until the error, which must stay; returns the number of bytes before it, and the error.
fn fails(mut reader: Reader) -> (usize, Error) {
    let mut read = Vec::new();
    let error = reader.read_to_end(&mut read).expect_err("it cannot be whole");
    let again = reader.read(&mut [0; 9]).expect_err("no end that looks whole");
    assert_eq!(cause(&error), cause(&again));
    assert!(reader.report().is_none());
    (read.len(), cause(&error).clone())
}

#[test]
fn from_mmtp_and_http_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let bytes = noise(40 * MIB + 7);
    let source = serve(dir.path(), &bytes);
    let reader = get([uri(&source), url(&source)]).read().expect("a reader");
    let report = assert_ends_well(reader, &bytes);
    assert_eq!((report.verified, report.last.done_bytes), (Verified::Blocks, bytes.len() as u64));
    let came: Vec<u64> = report.last.paths.iter().map(|path| path.bytes).collect();
    assert!(came.len() == 2 && came.iter().all(|bytes| *bytes > 0), "{came:?}");
    // The directory has only the file that is served.
    assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 1);
}

#[test]
fn short_and_empty_contents() {
    for len in [0, 1, BLOCK_BYTES, BLOCK_BYTES + 1] {
        let dir = tempfile::tempdir().expect("a directory");
        let bytes = noise(len);
        let source = serve(dir.path(), &bytes);
        for name in [uri(&source), url(&source)] {
            assert_ends_well(get([name]).read().expect("a reader"), &bytes);
        }
    }
}

/// Reads a part and then waits until no more arrives; the buffered bytes stay below `most`, and nearly reach
/// it.
fn assert_bounded(reader: &mut Reader, most: u64) {
    let mut first = vec![0; 5 * MIB + 3];
    reader.read_exact(&mut first).expect("the first part");
    let (mut last, mut looks) = (0, 0);
    while looks < 450 {
        let now = reader.buffered_bytes();
        assert!(now <= most, "{now} bytes are buffered");
        looks = if now == last { looks + 1 } else { 0 };
        last = now;
        thread::sleep(Duration::from_millis(5));
    }
    assert!(last >= most - READ_AHEAD_BYTES / 4, "only {last} bytes are buffered");
}

#[test]
fn a_slow_reader_keeps_memory_bounded() {
    let dir = tempfile::tempdir().expect("a directory");
    let bytes = noise(90 * MIB);
    let source = serve(dir.path(), &bytes);
    let plain = plain(bytes.clone());
    let ways =
        [vec![uri(&source)], vec![url(&source)], vec![uri(&source), url(&source)], vec![plain.clone()]];
    let is_bounded = |names: &Vec<String>| {
        // A server without ranges sends bytes that were not requested yet.
        let most = if names[0] == plain { 2 * READ_AHEAD_BYTES } else { READ_AHEAD_BYTES };
        // Silence that the reader causes does not count as a time-out.
        let mut reader = get(names).timeout(Duration::from_secs(2)).read().expect("a reader");
        assert_bounded(&mut reader, most);
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).expect("the rest");
        assert!(rest == bytes[5 * MIB + 3..], "other bytes from {names:?}");
        let sent: u64 = reader.report().expect("a report").last.paths.iter().map(|path| path.bytes).sum();
        assert!(sent <= (bytes.len() + 8 * MIB) as u64, "{sent} bytes came from {names:?}");
    };
    // All cases run at once, because each mostly waits for its reader.
    thread::scope(|scope| ways.iter().for_each(|names| drop(scope.spawn(|| is_bounded(names)))));
}

#[test]
fn a_liar_never_shows_through() {
    let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let bytes = noise(40 * MIB);
    let mut wrong = bytes.clone();
    wrong.iter_mut().step_by(BLOCK_BYTES).for_each(|byte| *byte ^= 1);
    let (good, liar) = (serve(dirs[0].path(), &bytes), serve(dirs[1].path(), &wrong));
    // The wanted content is given: of two servers' claims, the first answer's would count otherwise.
    let id = Uri::new(ContentId::of(&bytes)).to_string();
    // The bytes are verified by blocks, then by the leaf list that the good server offers.
    for names in [vec![uri(&good), url(&liar)], vec![id, url(&good), url(&liar)]] {
        let report = assert_ends_well(get(&names).read().expect("a reader"), &bytes);
        assert_eq!(report.verified, Verified::Blocks);
        assert_eq!(report.banned.len(), 1, "{names:?}");
    }
}

#[test]
fn an_error_is_no_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let bytes = noise(80 * MIB);
    let source = serve(dir.path(), &bytes);
    // All bytes are right, but the demanded hash is wrong.
    let (read, error) =
        fails(get([url(&source)]).checksum(Checksum::sha256([0; 32])).read().expect("a reader"));
    assert_eq!(read, bytes.len());
    assert!((error.kind() == ErrorKind::Corrupt && error.message().contains("handed over")), "{error}");
    // No server answers any more.
    for name in [uri(&source), url(&source)] {
        let dir = tempfile::tempdir().expect("a directory");
        let source = serve(dir.path(), &bytes);
        let name = if name.starts_with("http") { url(&source) } else { uri(&source) };
        let mut reader = get([name]).timeout(Duration::from_secs(1)).read().expect("a reader");
        reader.read_exact(&mut [0; 3]).expect("the beginning");
        drop(source);
        let (read, error) = fails(reader);
        assert!(read < bytes.len() && error.kind() == ErrorKind::Unreachable, "{error}");
        assert!(!error.to_string().contains("kept"), "nothing is: {error}");
    }
    // No server has ever answered, or the name is not valid.
    let reader = get(["http://127.0.0.1:1/f"]).timeout(Duration::from_secs(1)).read().expect("a reader");
    assert!(matches!(fails(reader), (0, error) if error.kind() == ErrorKind::Unreachable));
    let reader = get([url(&source)]).via("no-such-device").read().expect("a reader");
    assert!(matches!(fails(reader), (0, error) if error.kind() == ErrorKind::Usage));
}

#[test]
fn a_directory_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::create_dir(dir.path().join("d")).expect("a directory");
    let [a, b] = ["a", "b"].map(|name| dir.path().join("d").join(name));
    [a, b].iter().for_each(|path| fs::write(path, path.as_os_str().as_encoded_bytes()).expect("a file"));
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let serve = Serve::new().path(dir.path().join("d")).expect("it is there").listen(loopback).http(loopback);
    let source = serve.cache(None).start().expect("a source");
    let metalink = format!("http://{}/d.meta4", source.http_addresses()[0]);
    for name in [uri(&source), metalink] {
        let (_, error) = fails(get([name]).read().expect("a reader"));
        assert!((error.kind() == ErrorKind::Usage && error.message().contains("`to_directory`")), "{error}");
    }
}

#[test]
fn dropping_it_or_a_stop_ends_the_transfer() {
    let dir = tempfile::tempdir().expect("a directory");
    let bytes = noise(80 * MIB);
    let source = serve(dir.path(), &bytes);
    let stop = Stop::new().expect("descriptors");
    for name in [uri(&source), url(&source), plain(bytes.clone())] {
        let mut reader = get([&name]).read().expect("a reader");
        reader.read_exact(&mut [0; 3]).expect("the beginning");
        let events = reader.events();
        drop(reader);
        assert!(matches!(events.last(), Some(Event::Finished(report)) if !report.complete));

        let mut reader = get([&name]).read_stopped_by(&stop).expect("a reader");
        if !stop.is_stopped() {
            reader.read_exact(&mut [0; 3]).expect("the beginning");
            stop.stop();
        }
        let (_, error) = fails(reader);
        assert!(error.kind() == ErrorKind::Interrupted, "{error}");
    }
}
