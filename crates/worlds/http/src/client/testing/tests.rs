use anabranch_algo::Span;
use anabranch_net::Egress;

use super::*;
use crate::client::api::{Event, FetchRequest, RequestKind};
use crate::client::error::FetchError;

const PATIENCE: Patience = Patience { connect: Span::from_secs(10), idle: Span::from_secs(30) };
const FILE: &str = "http://a.test/f.bin";

fn range(first: u64, end: u64, length: u64) -> RequestKind {
    let (validator, modified, seen_at) = (Some("\"v1\"".to_owned()), None, None);
    RequestKind::Range { first, end, length, validator, modified, seen_at }
}

/// Does one fetch. Returns the number of bytes that came, the error if it failed, when it ended, and the
/// connection that it left.
fn fetched(
    kind: RequestKind,
    connection: Connection,
    mut reply: impl FnMut(&Request) -> Reply,
) -> (usize, Option<FetchError>, Span, Connection) {
    let request = FetchRequest { route: 0, via: Egress::any(), url: FILE.to_owned(), trusted: true, kind };
    let mut answer = Answer::new(1, &request, connection, PATIENCE, Span::ZERO, &mut |asked, _| reply(asked));
    let (mut bytes, mut end) = (0, None);
    while let Some((at, event)) = answer.next_event() {
        assert!(end.is_none(), "{event:?} behind the end");
        match event {
            Event::Body { bytes: piece, .. } => bytes += piece.len(),
            Event::Done { .. } => end = Some((None, at)),
            Event::Failed { error, .. } => end = Some((Some(error), at)),
            _ => {}
        }
    }
    let (error, at) = end.expect("an end");
    (bytes, error, at, answer.into_connection())
}

fn part(asked: &Request, length: u64) -> Reply {
    let range = asked.range().expect("a range");
    let (end, bytes) = (range.end.min(length), vec![7; (range.end.min(length) - range.start) as usize]);
    let says = format!("bytes {}-{}/{length}", range.start, end - 1);
    Reply { delay: Span::from_millis(10), ..Reply::new(206, bytes) }
        .with("content-range", says)
        .with("etag", "\"v1\"")
}

#[test]
fn a_range_takes_its_time_and_leaves_its_connection() {
    let reply = |asked: &Request| part(asked, 2_000_000).at(1_000_000);
    let (bytes, error, at, connection) = fetched(range(0, 500_000, 2_000_000), Connection::default(), reply);
    assert_eq!((bytes, error), (500_000, None));
    assert_eq!(at.as_nanos() / 1_000_000, 520, "two round trips and half a second");
    assert!(connection.is_open());
    let (_, _, at, _) = fetched(range(0, 500_000, 2_000_000), connection, reply);
    assert_eq!(at.as_nanos() / 1_000_000, 510, "one round trip less");
}

/// The client's own code finds each of these errors.
#[test]
fn answers_that_are_not_what_was_asked_for() {
    let ask = || range(0, 1_000, 2_000);
    let of = |reply: &dyn Fn(Reply) -> Reply| {
        let (bytes, error, at, connection) =
            fetched(ask(), Connection::default(), |asked| reply(part(asked, 2_000)));
        assert!(error.is_none() || !connection.is_open(), "{error:?}");
        (bytes, error.map(|error| error.to_string()).unwrap_or_default(), at)
    };
    assert_eq!(of(&|reply| reply).0, 1_000);
    let stalls = of(&|reply| reply.cut(300, Then::Stall));
    assert_eq!((stalls.0, stalls.1.as_str()), (300, "no byte for 30 s, after 300 of 1000 bytes"));
    assert_eq!(stalls.2, Span::from_millis(20) + Span::from_secs(30));
    let breaks = of(&|reply| reply.cut(300, Then::Close));
    assert_eq!(breaks.1, "it broke off after 300 of 1000 bytes: the server closed the connection");
    let dies = of(&|reply| Reply { breaks: Some((Span::from_secs(3), Then::Close)), ..reply.at(100) });
    assert!(dies.0 < 300 && dies.1.starts_with("it broke off"), "{dies:?}");
    let mute = of(&|reply| Reply { then: Then::Mute, ..reply });
    assert_eq!(
        (mute.1.as_str(), mute.2),
        ("no answer for 30 s", Span::from_secs(30) + Span::from_millis(10))
    );
    let hangs_up = of(&|_| Reply::nothing(Then::HangUp)).1;
    assert_eq!(hangs_up, "no answer from a.test: the server closed the connection");
    assert!(of(&|_| Reply::nothing(Then::Refuse)).1.contains("Connection refused"));
    assert!(of(&|reply| reply.with("etag", "\"v2\"")).1.contains("ETag"));
    assert!(of(&|reply| reply.with("content-range", "bytes 0-999/3000")).1.contains("3000 bytes now"));
    assert!(of(&|_| Reply::new(200, "<html>").with("content-type", "text/html")).1.contains("web page"));
    let chunked = of(&|reply| reply.chunked());
    assert_eq!((chunked.0, chunked.1.as_str()), (1_000, ""));
    let longer = of(&|reply| Reply { repeats: true, ..reply.chunked() });
    assert_eq!(longer.1, "more came than the 1000 bytes there are");
    let endless =
        of(&|reply| Reply { until_close: true, then: Then::Close, ..reply.cut(1_000, Then::Close) });
    assert_eq!(endless.0, 1_000, "{endless:?}");
}

#[test]
fn redirects_are_followed_and_a_closed_connection_is_opened_again() {
    let mut hosts = Vec::new();
    let (bytes, error, ..) = fetched(range(0, 10, 10), Connection::default(), |asked| {
        hosts.push(asked.host.clone());
        match asked.host.as_str() {
            "a.test" => Reply::new(302, "").with("location", "http://b.test/g"),
            _ => part(asked, 10),
        }
    });
    assert_eq!((bytes, error, hosts), (10, None, vec!["a.test".to_owned(), "b.test".to_owned()]));
    let (.., connection) = fetched(range(0, 10, 10), Connection::default(), |asked| part(asked, 10));
    let mut times = 0;
    let (bytes, error, ..) = fetched(range(0, 10, 10), connection, |asked| {
        times += 1;
        if times == 1 { Reply::nothing(Then::HangUp) } else { part(asked, 10) }
    });
    assert_eq!((bytes, error, times), (10, None, 2));
}
