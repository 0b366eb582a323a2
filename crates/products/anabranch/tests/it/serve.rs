//! A source inside another program: started, asked, counted, stopped.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Duration;

use anabranch::{Control, ErrorKind, Event, Get, Serve, Stop};
use anabranch_mmtp::ChunksPerBlock;
use anabranch_mmtp::uri::Uri;
use anabranch_mmtp::wire::{self, Packet, Range, RangeKind};

const CONTENT: &[u8] = b"what is served";

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// A source of one file, that leaves nothing behind.
fn serve(dir: &Path) -> Serve {
    let path = dir.join("file");
    fs::write(&path, CONTENT).expect("a file");
    Serve::new().path(path).expect("it is there").listen(loopback()).http(loopback()).cache(None)
}

/// Whether a source at `address` answers a request for `uri` with what it knows of it.
fn answers(address: SocketAddr, uri: &Uri) -> bool {
    let socket = UdpSocket::bind(loopback()).expect("a socket");
    socket.connect(address).expect("connected");
    socket.set_read_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    let mut request = Vec::new();
    let range = Range { kind: RangeKind::Meta, first: 0, count: 1 };
    wire::emit_request(&mut request, 7, None, false, &uri.id, &[range]);
    let mut buffer = [0; 2_048];
    if socket.send(&request).is_err() {
        return false;
    }
    while let Ok(len) = socket.recv(&mut buffer) {
        if let Ok(packet) = wire::parse(&buffer[..len])
            && packet.tag() == 7
        {
            return !matches!(packet, Packet::Refuse { .. });
        }
    }
    false
}

#[test]
fn it_answers_until_it_is_stopped() {
    let dir = tempfile::tempdir().expect("a directory");
    let source = serve(dir.path()).start().expect("a source");
    assert_eq!((source.offers().len(), source.notices().len()), (1, 0));
    let uri: Uri = source.uris().next().expect("an offer").parse().expect("a URI");
    let address = source.addresses()[0];
    assert_ne!(address.port(), 0);
    assert_eq!(uri.from, [address.to_string()]);
    assert!(answers(address, &uri), "by UDP");

    let http = source.http_addresses()[0];
    assert_eq!(source.offers()[0].url(), Some(&*format!("http://{http}/file")));
    let mut stream = TcpStream::connect(http).expect("connected");
    let request = format!("GET /file HTTP/1.1\r\nHost: {http}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    assert!(answer.starts_with(b"HTTP/1.1 200 ") && answer.ends_with(CONTENT), "by HTTP");

    assert!(source.stats().http_requests == 1 && source.stats().http_bytes > CONTENT.len() as u64);
    source.stop();
    let stats = source.wait().expect("it served well");
    assert_eq!((stats.requests, stats.http_requests), (1, 1));
    assert!(stats.problems().is_empty() && stats.elapsed_s > 0.0);
    assert!(TcpStream::connect(http).is_err() && UdpSocket::bind(address).is_ok(), "all is closed");
}

/// What a source at `address` says to a request for the content's bytes, until it says nothing for 500 ms.
fn says(address: SocketAddr, uri: &Uri) -> String {
    let socket = UdpSocket::bind(loopback()).expect("a socket");
    socket.connect(address).expect("connected");
    socket.set_read_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    let mut request = Vec::new();
    let kind = RangeKind::Data(ChunksPerBlock::MAX);
    // One that comes in many pieces is refused once.
    let ranges = [Range { kind, first: 0, count: 1 }; 20];
    wire::emit_request(&mut request, 7, None, false, &uri.id, &ranges);
    request.resize(1_200, 0);
    socket.send(&request).expect("sent");
    let (mut buffer, mut said) = ([0; 2_048], Vec::new());
    while let Ok(len) = socket.recv(&mut buffer) {
        match wire::parse(&buffer[..len]).expect("a packet") {
            Packet::Cookie { .. } => {}
            Packet::Data(_) => said.push("data".to_owned()),
            Packet::Refuse { reason, .. } => said.push(format!("{reason:?}")),
            other => panic!("{other:?}"),
        }
    }
    said.dedup_by(|a, b| *a == "data" && *b == "data");
    said.join(" ")
}

/// Does something to the file that is served.
type Change<'a> = &'a dyn Fn(&Path);

#[test]
fn a_file_that_is_deleted_or_replaced_is_refused_at_once() {
    let replaced = |path: &Path| {
        let other = path.with_extension("new");
        fs::write(&other, CONTENT).expect("a file");
        fs::rename(other, path).expect("renamed");
    };
    let cases: [(&str, Change<'_>); 6] = [
        ("deleted", &|path| fs::remove_file(path).expect("removed")),
        ("replaced by the same bytes", &replaced),
        ("overwritten", &|path| fs::write(path, b"what was served").expect("written")),
        ("cut", &|path| fs::write(path, b"").expect("written")),
        ("a directory in its place", &|path| {
            fs::remove_file(path).expect("removed");
            fs::create_dir(path).expect("a directory");
        }),
        ("a link in its place", &|path| {
            fs::rename(path, path.with_extension("old")).expect("renamed");
            std::os::unix::fs::symlink(path.with_extension("old"), path).expect("a link");
        }),
    ];
    for (what, change) in cases {
        for is_open in [false, true] {
            let dir = tempfile::tempdir().expect("a directory");
            let source = serve(dir.path()).start().expect("a source");
            let uri: Uri = source.uris().next().expect("an offer").parse().expect("a URI");
            let address = source.addresses()[0];
            if is_open {
                assert_eq!(says(address, &uri), "data", "{what}");
            }
            // The clock of files is coarser than the processor's.
            std::thread::sleep(Duration::from_millis(20));
            change(&dir.path().join("file"));
            assert_eq!(says(address, &uri), "Changed", "{what}, open before: {is_open}");
        }
    }
}

#[test]
fn a_get_of_a_file_that_is_gone_ends_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let source = serve(dir.path()).start().expect("a source");
    fs::remove_file(dir.path().join("file")).expect("removed");
    let clock = anabranch_net::Clock::start();
    let get = Get::new([source.uris().next().expect("an offer")]).expect("a URI");
    let result = get.to_file(dir.path().join("to")).run(|_| Control::Continue);
    assert!(
        matches!(&result, Err(e) if e.kind() == ErrorKind::NotFound && e.message().contains("changed")),
        "{result:?}"
    );
    assert!(clock.now().as_nanos() < 5_000_000_000, "it asked for a file that cannot be had");
}

#[test]
fn two_do_not_disturb_each_other() {
    let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let stop = Stop::new().expect("a stop");
    let first = serve(dirs[0].path()).stopped_by(&stop).start().expect("a source");
    let second = serve(dirs[1].path()).start().expect("a source");
    let uri: Uri = second.uris().next().expect("an offer").parse().expect("a URI");
    stop.stop();
    first.wait().expect("it served well");
    assert!(answers(second.addresses()[0], &uri));
    let address = second.addresses()[0];
    drop(second);
    assert!(UdpSocket::bind(address).is_ok(), "dropping it closes all");
}

#[test]
fn whoever_runs_it_is_told_and_ends_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut told = Vec::new();
    let stats = serve(dir.path()).run(|event| {
        told.push(match event {
            Event::Offer(offer) => offer.path.file_name().expect("a name").to_string_lossy().into_owned(),
            Event::Listening { addresses, http } => format!("{} {}", addresses.len(), http.len()),
            Event::Stats { stats, rate_bytes } => {
                assert_eq!((stats.all_bytes(), rate_bytes), (0, 0));
                return Control::Stop;
            }
            Event::Hashing(_) => return Control::Continue,
            other => panic!("{other:?}"),
        });
        Control::Continue
    });
    assert_eq!(stats.expect("it served well").all_requests(), 0);
    assert_eq!(told, ["file", "1 1"]);
}

#[test]
fn what_cannot_be_served_is_said() {
    let missing = Serve::new().path("/nonexistent").expect_err("nothing is there");
    assert!((missing.kind() == ErrorKind::Usage && missing.message().contains("/nonexistent")), "{missing}");
    let dir = tempfile::tempdir().expect("a directory");
    let source = serve(dir.path()).start().expect("a source");
    let taken = serve(dir.path()).listen(source.addresses()[0]).start().expect_err("the port is taken");
    assert!(taken.kind() == ErrorKind::System, "{taken}");
    let stop = Stop::new().expect("a stop");
    stop.stop();
    let stopped = serve(dir.path()).stopped_by(&stop).start().expect_err("it was stopped before");
    assert!(stopped.kind() == ErrorKind::Interrupted, "{stopped}");
}
