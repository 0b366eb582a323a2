use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::thread;

use anabranch_algo::Span;
use anabranch_http::client::testing::Reply;
use bytes::Bytes;

use super::*;
use crate::event::Observer;
use crate::get::fetch::fetch_in;
use crate::get::reassembly_buffer::pair;
use crate::get::selection::Selection;
use crate::get::testing::{Asked, Mirror, Rng, Servers, SimWorld, Weather, honest};
use crate::get::world::World as _;
use crate::{Control, Event, Get, Stop, Verified};

const LENGTH: usize = 3_000_000;
/// The rate of a connection, bytes a second.
const RATE: u64 = 500_000;

fn content() -> Bytes {
    Rng::new(1).bytes(LENGTH).into()
}

/// Returns ranges of 1,000 bytes, each somewhere in its own 30 kB.
fn short() -> Vec<Range<u64>> {
    (0..100).map(|n| n * 30_000 + n * 290 % 29_000).map(|first| first..first + 1_000).collect()
}

struct Ended {
    result: Result<Report>,
    /// The wanted bytes, one range after the other.
    bytes: Vec<u8>,
    /// The bytes that came over both links.
    came: u64,
    after: Span,
    said: String,
}

/// Fetches ranges from these mirrors.
fn get(ranges: &[Range<u64>], mirrors: Vec<Mirror>, weather: Weather) -> Ended {
    let named = |n: usize| format!("http://{}.test/f", char::from(b'a' + n as u8));
    let get = Get::new((0..mirrors.len()).map(named)).expect("URLs");
    let hosts = (0..).map(|n: u8| format!("{}.test", char::from(b'a' + n)));
    let servers: Servers = hosts.zip(mirrors.into_iter().map(Rc::new)).collect();
    let stop = Stop::new().expect("descriptors");
    let (buffer, mut blocks) = pair(stop.clone(), Selection::of_bytes(ranges));
    let end = buffer.end_guard();
    let wanted = ranges.to_vec();
    let reader = thread::spawn(move || {
        let mut came: Vec<Piece> = Vec::new();
        while let Some((block, bytes)) = blocks.next() {
            came.push((block * BLOCK_BYTES as u64, bytes));
        }
        came.extend(blocks.take_pieces());
        let mut file = vec![0; LENGTH];
        for (offset, bytes) in came {
            file[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        wanted.iter().flat_map(|range| file[range.start as usize..range.end as usize].to_vec()).collect()
    });
    let mut said = String::new();
    let mut listener = |event| {
        if let Event::Notice(text) | Event::Warning(text) = event {
            said += &format!("{text}\n");
        }
        Control::Continue
    };
    let (request, locators) = get.to_file("-").request().expect("a request");
    let request = Request { reader: Some(buffer), ..request };
    let silence = Span::from_secs(60);
    let mut world = SimWorld::new(7, weather, stop.clone(), (servers, silence), (&[], &Rc::default()));
    let mut observer = Observer::new(&mut listener, stop, Span::from_millis(200));
    let result = fetch_in(&mut world, &request, locators, &mut observer);
    drop(end);
    let after = world.now().since(Time::ZERO);
    Ended { result, bytes: reader.join().expect("bytes"), came: world.came.iter().sum(), after, said }
}

fn mirror() -> Mirror {
    Mirror::of(BTreeMap::from([("/f".to_owned(), content())])).but(|_, reply| reply.at(RATE))
}

fn right(ranges: &[Range<u64>]) -> Vec<u8> {
    ranges.iter().flat_map(|range| content()[range.start as usize..range.end as usize].to_vec()).collect()
}

#[test]
fn short_ranges_come_without_the_rest_of_their_blocks() {
    let ranges = short();
    let ended = get(&ranges, vec![mirror()], Weather::default());
    let report = ended.result.expect("ranges");
    assert_eq!((report.verified, report.complete, report.content), (Verified::Nothing, true, None));
    assert!(ended.bytes == right(&ranges), "{}", ended.said);
    // The metadata's opening is the rest.
    assert!((100_000..120_000).contains(&ended.came), "{}", ended.came);
    assert!(ended.after < Span::from_millis(700), "{:?}", ended.after);
    assert_eq!((report.last.total_bytes, report.last.done_bytes), (Some(100_000), 100_000));
}

#[test]
fn two_links_and_two_mirrors_share_them() {
    let ranges = short();
    let both = Weather { has_second_link: true, ..Weather::default() };
    let ended = get(&ranges, vec![mirror(), mirror()], both);
    assert!(ended.result.is_ok() && ended.bytes == right(&ranges), "{}", ended.said);
    // Four samples come from the second mirror too.
    assert!((104_000..150_000).contains(&ended.came), "{}", ended.came);
    let report = ended.result.expect("ranges");
    assert!(report.last.paths.iter().all(|path| path.bytes > 10_000), "{:#?}", report.last.paths);
}

#[test]
fn long_ranges_and_few_come_in_blocks() {
    for ranges in [short()[..4].to_vec(), (0..8).map(|n| n * 300_000..n * 300_000 + 100_000).collect()] {
        let ended = get(&ranges, vec![mirror()], Weather::default());
        assert!(ended.result.is_ok() && ended.bytes == right(&ranges), "{}", ended.said);
        let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        assert!(ended.came > bytes + 4 * 10_000, "{}", ended.came);
    }
}

#[test]
fn ranges_past_the_end_and_overlapping_ones_are_cut() {
    assert_eq!(pieces(&[0..10, 90..200, 300..400], 100), [0..10, 90..100]);
    let long = pieces(std::slice::from_ref(&(5..5 + 2 * PIECE_BYTES_MAX + 1)), u64::MAX);
    assert_eq!(long.iter().map(|piece| piece.end - piece.start).collect::<Vec<_>>(), [262_144, 262_144, 1]);
}

/// Each of these mirrors is odd in a way that the transfer by blocks knows.
#[test]
fn what_is_odd_is_left_to_the_transfer_by_blocks() {
    let ranges = short();
    type Twist = fn(&Asked<'_>, Reply) -> Reply;
    let refuses: Twist = |asked, reply| if asked.before < 20 { reply } else { Reply::new(403, "no") };
    let changes: Twist = |asked, reply| {
        if asked.before < 20 {
            reply
        } else {
            honest(asked.request, &Rng::new(2).bytes(LENGTH).into(), "\"v2\"")
        }
    };
    let sends_all: Twist = |asked, reply| {
        if asked.before < 20 { reply } else { Reply::new(200, content()).with("etag", "\"v1\"") }
    };
    for twist in [refuses, changes, sends_all] {
        // The other mirror brings all of it.
        let ended = get(&ranges, vec![mirror(), mirror().but(twist)], Weather::default());
        assert!(ended.result.is_ok() && ended.bytes == right(&ranges), "{:?}: {}", ended.result, ended.said);
        assert!(ended.said.contains("the ranges come in whole blocks"), "{}", ended.said);
    }
}

#[test]
fn mirrors_that_differ_are_not_mixed() {
    let ranges = short();
    // The file begins alike, so that both count as one variant.
    let late = [&content()[..20_000], &Rng::new(2).bytes(LENGTH - 20_000)].concat();
    let other = Mirror::of(BTreeMap::from([("/f".to_owned(), late.into())])).but(|_, reply| reply.at(RATE));
    let ended = get(&ranges, vec![mirror(), other], Weather::default());
    assert!(ended.said.contains("b.test has other bytes than a.test"), "{}", ended.said);
    let error = ended.result.expect_err("no hash tells which is right").to_string();
    assert!(error.contains("different bytes"), "{error}");
}

#[test]
fn a_mirror_that_cannot_go_on_is_left_to_the_transfer_by_blocks_soon() {
    let ranges = short();
    type Twist = fn(Reply) -> Reply;
    let busy: Twist = |_| Reply::new(503, "later").with("retry-after", "3600");
    let silent: Twist = |reply| Reply { delay: Span::from_secs(3_600), ..reply };
    for twist in [busy, silent] {
        let dies = move |asked: &Asked<'_>, reply| if asked.before < 20 { reply } else { twist(reply) };
        let ended = get(&ranges, vec![mirror(), mirror().but(dies)], Weather::default());
        assert!(ended.result.is_ok() && ended.bytes == right(&ranges), "{:?}: {}", ended.result, ended.said);
        assert!(ended.after < Span::from_secs(30), "{:?}: {}", ended.after, ended.said);
    }
}
