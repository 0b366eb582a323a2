//! Tests transfers in one process that run side by side, are stopped, resumed, waited for and listened to.

use std::error::Error as _;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;
use std::{fs, io, thread};

use crate::memory_source::MemorySource;
use anabranch::{Control, ErrorKind, ErrorPlace, Event, Get, Stop, Transfer};
use anabranch_algo::SplitMix64;
use anabranch_mmtp::tree::Outboard;
use anabranch_mmtp::uri::Uri;
use anabranch_mmtp::wire::{self, Packet};

/// Starts a source of `bytes` that waits for `pause` before each packet with data; returns its address.
fn serve(bytes: Vec<u8>, pause: Duration) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = socket.local_addr().expect("an address");
    let tree = Outboard::of_bytes(&bytes);
    let mut source = MemorySource::new(tree.id(), tree, bytes);
    thread::spawn(move || {
        let clock = anabranch_net::Clock::start();
        let mut buffer = vec![0; 65_536];
        loop {
            let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
            for packet in source.answer(clock.now(), from, &buffer[..len]) {
                if matches!(wire::parse(&packet), Ok(Packet::Data(_))) {
                    thread::sleep(pause);
                }
                let _ = socket.send_to(&packet, from);
            }
        }
    });
    address
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut rng = SplitMix64(seed);
    (0..len).map(|_| rng.bits() as u8).collect()
}

fn get(bytes: &[u8], source: SocketAddr) -> Get {
    let uri = Uri::new(anabranch_mmtp::ContentId::of(bytes)).to_string();
    let get = Get::new([uri]).expect("a URI").from_source(source.to_string());
    get.progress_every(Duration::from_millis(10)).timeout(Duration::from_secs(30))
}

#[test]
fn a_listener_can_stop_while_mirrors_do_not_answer() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let url = format!("http://{}/f", silent.local_addr().expect("an address"));
    let dir = tempfile::tempdir().expect("a directory");
    let (mut heard, end) = (Vec::new(), anabranch_net::Clock::start());
    let get = Get::new([url]).expect("a URL").to_file(dir.path().join("f"));
    let stopped = get.run(|event| {
        heard.push(event);
        if end.now().since(anabranch_algo::Time::ZERO) < anabranch_algo::Span::from_secs(1) {
            Control::Continue
        } else {
            Control::Stop
        }
    });
    assert!(matches!(&stopped, Err(e) if e.kind() == ErrorKind::Interrupted), "{stopped:?}");
    let asking = |event: &Event| {
        matches!(event, Event::Progress(progress) if progress.note.as_deref()
            == Some("asking the mirrors what they have") && progress.elapsed_s > 0.4)
    };
    assert!(heard.iter().any(asking), "{heard:?}");
}

/// Waits until some bytes of the transfer have arrived.
fn wait_for_bytes(transfer: &Transfer) {
    let moves = |event| matches!(event, Event::Progress(progress) if progress.done_bytes > 0);
    assert!(transfer.events().any(moves), "nothing arrived");
}

#[test]
fn two_transfers_do_not_disturb_each_other_and_one_is_stopped() {
    let dir = tempfile::tempdir().expect("a directory");
    let (fast, slow) = (noise(4_000_000, 1), noise(4_000_000, 2));
    let fast_source = serve(fast.clone(), Duration::ZERO);
    // This transfer would take minutes if it were not stopped.
    let slow_source = serve(slow.clone(), Duration::from_millis(50));
    let (fast_path, slow_path) = (dir.path().join("fast"), dir.path().join("slow"));

    let stopped = get(&slow, slow_source).to_file(&slow_path).start().expect("a thread");
    wait_for_bytes(&stopped);
    let whole = get(&fast, fast_source).to_file(&fast_path).start().expect("a thread");
    let events: Vec<Event> = whole.events().collect();
    let [.., Event::Progress(last), Event::Finished(finished)] = &events[..] else { panic!("{events:?}") };
    assert!(finished.complete);
    assert_eq!(
        (last.done_bytes, last.total_bytes),
        (4_000_000, Some(4_000_000)),
        "the last progress is all of it"
    );
    let report = whole.wait().expect("a report");
    assert_eq!((report.last.done_bytes, report.complete), (4_000_000, true));
    assert!(fs::read(&fast_path).expect("a file") == fast);

    assert!(!stopped.is_finished(), "the other one goes on");
    stopped.stop();
    assert!(matches!(&stopped.wait(), Err(e) if e.kind() == ErrorKind::Interrupted));
    assert!(!slow_path.exists() && dir.path().join("slow.part").exists());

    // A later transfer resumes with the bytes that arrived.
    let source = serve(slow.clone(), Duration::ZERO);
    let report = get(&slow, source).to_file(&slow_path).run(|_| Control::Continue).expect("a report");
    assert!(report.last.resumed_bytes > 0);
    assert!(fs::read(&slow_path).expect("a file") == slow);
}

#[test]
fn a_listener_stops_it_and_so_does_a_dropped_handle() {
    let dir = tempfile::tempdir().expect("a directory");
    let bytes = noise(4_000_000, 3);
    let source = serve(bytes.clone(), Duration::from_millis(50));
    let download = get(&bytes, source).to_file(dir.path().join("f"));
    let mut finished = 0;
    let result = download.clone().run(|event| match event {
        Event::Progress(progress) if progress.done_bytes > 0 => Control::Stop,
        Event::Finished(report) => {
            assert!(!report.complete);
            finished += 1;
            Control::Continue
        }
        _ => Control::Continue,
    });
    assert!(matches!(&result, Err(e) if e.kind() == ErrorKind::Interrupted));
    assert_eq!(finished, 1);

    let transfer = download.start().expect("a thread");
    let events = transfer.events();
    wait_for_bytes(&transfer);
    drop(transfer);
    assert!(matches!(events.last(), Some(Event::Finished(report)) if !report.complete));
}

#[test]
fn that_nobody_can_be_reached_is_said_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a socket").local_addr().expect("an address");
    let get = Get::new([format!("http://name:secret@{nobody}/f")]).expect("a URL").proxy("");
    let mut notices = String::new();
    let result = get.to_file(dir.path().join("f")).run(|event| {
        if let Event::Notice(text) = event {
            notices += &text;
        }
        Control::Continue
    });
    let Err(error) = result else { panic!("{result:?}") };
    let (kind, why) = (error.kind(), error.message());
    assert_eq!(kind, ErrorKind::Unreachable);
    assert_eq!(error.place(), Some(&ErrorPlace::Url(format!("http://{nobody}/f"))), "without its secrets");
    assert_eq!(why.matches(&nobody.to_string()).count(), 1, "{why}");
    assert!(why.contains("refused") && !notices.contains("refused"), "{notices}");
}

#[test]
fn one_stop_ends_what_waits_for_a_source() {
    let dir = tempfile::tempdir().expect("a directory");
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let bytes = noise(100, 4);
    let stop = Stop::new().expect("descriptors");
    let get = get(&bytes, silent.local_addr().expect("an address"));
    let transfer = get.to_file(dir.path().join("f")).stopped_by(&stop).start().expect("a thread");
    stop.stop();
    assert!(matches!(&transfer.wait(), Err(e) if e.kind() == ErrorKind::Interrupted));
    assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 0, "no trace is left");
}

#[test]
fn errors_say_what_they_are_about_and_what_led_to_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let no_list = dir.path().join("no.meta4");
    let error = Get::new([no_list.to_str().expect("UTF-8")]).err().expect("no such file");
    assert_eq!(error.place(), Some(&ErrorPlace::Path(no_list)));
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    assert_eq!(source.map(io::Error::kind), Some(io::ErrorKind::NotFound));
    let nobody = UdpSocket::bind("127.0.0.1:0").expect("a socket").local_addr().expect("an address");
    let uri = Uri { from: vec![nobody.to_string()], ..Uri::new(anabranch_mmtp::ContentId::of(b"f")) };
    let get = Get::new([uri.to_string()]).expect("a URI").timeout(Duration::from_millis(200));
    let error = get.to_file(dir.path().join("f")).run(|_| Control::Continue).expect_err("nobody is there");
    assert_eq!(error.place(), Some(&ErrorPlace::Address(nobody.to_string())), "{error}");
    // The error here is not about the server, but about the file's destination.
    let get = Get::new([format!("http://{nobody}/f")]).expect("a URL").via("no-such-device");
    let error = get.to_file(dir.path().join("f")).run(|_| Control::Continue).expect_err("no such device");
    assert_eq!(error.place(), None, "{error}");
}

#[test]
fn requests_that_make_no_sense() {
    assert!(matches!(&Get::new(["ftp://a/b"]), Err(e) if e.kind() == ErrorKind::Usage));
    assert!(matches!(&Get::new([""; 0]), Err(e) if e.kind() == ErrorKind::Usage));
    let get = Get::new(["http://127.0.0.1:1/f"]).expect("a URL");
    for get in [get.clone().via("no-such-device"), get.clone().controller("vegas"), get.from_source(":5")] {
        let mut finished = false;
        let result = get.to_output(None).run(|event| {
            finished = matches!(event, Event::Finished(_));
            Control::Continue
        });
        assert!(matches!(&result, Err(e) if e.kind() == ErrorKind::Usage) && finished);
    }
}

#[cfg(feature = "tokio")]
mod without_an_executor {
    use std::pin::{Pin, pin};
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake, Waker};

    use futures_core::Stream as _;

    use super::*;

    struct Unpark(thread::Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    fn block_on<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(value) = poll(&mut context) {
                return value;
            }
            thread::park();
        }
    }

    #[test]
    fn a_transfer_is_awaited_and_its_events_are_a_stream() {
        let dir = tempfile::tempdir().expect("a directory");
        let bytes = noise(1_000_000, 5);
        let source = serve(bytes.clone(), Duration::ZERO);
        let transfer = get(&bytes, source).to_file(dir.path().join("f")).start().expect("a thread");
        let mut events = transfer.events();
        let mut last = None;
        while let Some(event) = block_on(|context| Pin::new(&mut events).poll_next(context)) {
            last = Some(event);
        }
        assert!(matches!(last, Some(Event::Finished(_))));
        let mut transfer = pin!(transfer);
        let report = block_on(|context| transfer.as_mut().poll(context));
        assert!(report.expect("a report").complete);
    }

    /// Async code uses only the stream: the iterator's `next` would block its thread.
    #[test]
    fn events_are_awaited_one_by_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let bytes = noise(1_000_000, 5);
        let source = serve(bytes.clone(), Duration::ZERO);
        let transfer = get(&bytes, source).to_file(dir.path().join("f")).start().expect("a thread");
        let mut events = transfer.events().stream();
        let mut watch = pin!(async {
            let mut last = None;
            while let Some(event) = events.next().await {
                last = Some(event);
            }
            last
        });
        let last = block_on(|context| watch.as_mut().poll(context));
        assert!(matches!(last, Some(Event::Finished(_))));
    }
}
