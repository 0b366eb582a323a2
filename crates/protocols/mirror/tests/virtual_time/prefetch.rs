//! Tests of prefetch: which ranges the scheduler requests early, when, and what becomes of these requests.
//! The tests feed the scheduler step by step.

use anabranch_algo::control::Algorithm;
use anabranch_algo::{Output, Span, TcpSample, Time};
use anabranch_mirror::range_scheduler::{
    Command, ConnectionConfig, ConnectionId, Failure, FetchId, Input, PREFETCH_MARGIN, Pool as _,
    RangeScheduler, STALL_RETRY_MIN, State, TRIAL_BLOCKS,
};
use anabranch_mirror::receive_windows::Sharing;
use anabranch_mmtp::id::BLOCK_BYTES;

use crate::simulated_mirrors::Counting;

const BLOCK: u64 = BLOCK_BYTES as u64;
const BLOCKS: u64 = 20_000;
const RTT: Span = Span::from_millis(20);
/// The number of blocks that arrive at once, every [`STEP`]: 20.48 MB/s.
const BATCH: u64 = 5;
const STEP: Span = Span::from_millis(4);

#[derive(Clone, Copy, Debug, PartialEq)]
struct FetchRecord {
    connection: ConnectionId,
    id: FetchId,
    first: u64,
    end: u64,
}

struct Hand {
    mirrors: RangeScheduler,
    pool: Counting,
    now: Time,
    /// The time until which the scheduler wants to wait.
    wait: Time,
}

impl Hand {
    fn new(connections: u8, blocks: u64) -> Self {
        let mut mirrors = RangeScheduler::new(blocks * BLOCK);
        let control = Algorithm::by_name("nmcc").expect("it is there");
        for mirror in 0..connections {
            mirrors
                .add_connection(&ConnectionConfig {
                    mirror,
                    sharing: Sharing::Given(0),
                    control,
                    ranges: true,
                    delay: Span::ZERO,
                })
                .expect("few");
        }
        Self { mirrors, pool: Counting::new(blocks), now: Time::ZERO, wait: Time::ZERO }
    }

    /// Returns the requests that the scheduler makes now, and those that it cancels.
    fn poll(&mut self) -> (Vec<FetchRecord>, Vec<FetchId>) {
        let (mut asked, mut cancelled) = (Vec::new(), Vec::new());
        loop {
            match self.mirrors.poll(self.now, &mut self.pool) {
                Output::Wait(until) => {
                    self.wait = until;
                    return (asked, cancelled);
                }
                Output::Send(Command::Fetch { connection, fetch: id, first_byte, end_byte }) => {
                    asked.push(FetchRecord {
                        connection,
                        id,
                        first: first_byte / BLOCK,
                        end: end_byte / BLOCK,
                    });
                }
                Output::Send(Command::Cancel { fetch }) => cancelled.push(fetch),
                Output::Send(Command::Window { .. }) | Output::Event(_) => {}
            }
        }
    }

    fn asks(&mut self) -> Vec<FetchRecord> {
        let (asked, cancelled) = self.poll();
        assert_eq!(cancelled, []);
        asked
    }

    fn tell(&mut self, input: Input<'_>) {
        self.mirrors.handle(self.now, input, &mut self.pool);
    }

    fn head(&mut self, asked: FetchRecord) {
        self.tell(Input::Head { fetch: asked.id });
        let sample = TcpSample { rtt: RTT, mss: 1_448, received_bytes: 0, out_of_order: 0, segments: 0 };
        self.tell(Input::Sample { connection: asked.connection, sample });
    }

    /// Delivers blocks of an answer, up to `end`, until the scheduler makes a request. Returns the next block
    /// and the requests.
    fn bodies(&mut self, asked: FetchRecord, from: u64, end: u64) -> (u64, Vec<FetchRecord>) {
        let zeros = vec![0; (BATCH * BLOCK) as usize];
        let mut at = from;
        while at < end {
            self.now += STEP;
            let blocks = BATCH.min(end - at);
            let bytes = &zeros[..(blocks * BLOCK) as usize];
            self.tell(Input::Body { fetch: asked.id, bytes });
            at += blocks;
            let asked = self.asks();
            if !asked.is_empty() {
                return (at, asked);
            }
        }
        (at, Vec::new())
    }

    /// Delivers the blocks of an answer up to `end`, all at once.
    fn bring(&mut self, asked: FetchRecord, end: u64) {
        let zeros = vec![0; ((end - asked.first) * BLOCK) as usize];
        self.tell(Input::Body { fetch: asked.id, bytes: &zeros });
    }

    /// Prepares a connection whose answer is arriving and that has one prefetched request. Returns both
    /// requests, and the next block of the first.
    fn ahead(&mut self) -> (FetchRecord, FetchRecord, u64) {
        let first = self.asks()[0];
        self.now += RTT.times(2);
        self.head(first);
        let (at, asked) = self.bodies(first, first.first, first.end);
        assert_eq!(asked.len(), 1, "{asked:?}");
        assert!(at < first.end && asked[0].first == first.end && asked[0].connection == 0);
        (first, asked[0], at)
    }

    fn idle_is_all_but(&self, brought: u64) {
        assert_eq!(self.pool.idle(), BLOCKS - brought, "everything else is idle again");
    }
}

#[test]
fn the_next_range_is_asked_for_in_time() {
    let mut hand = Hand::new(1, BLOCKS);
    let (first, next, at) = hand.ahead();
    let left = STEP.times((first.end - at) / BATCH);
    let wanted = RTT.times(2) + PREFETCH_MARGIN;
    assert!(left <= wanted && left + STEP.times(2) >= wanted, "{left:?} before the end, {wanted:?} wanted");
    assert_eq!(hand.bodies(first, at, first.end).1, [], "one ahead");
    hand.tell(Input::Done { fetch: first.id });
    assert_eq!(hand.asks(), [], "it has been");
    let report = hand.mirrors.connections().next().expect("one");
    assert_eq!(report.fetching, Some(next.first * BLOCK..next.end * BLOCK));
    assert_eq!((report.counters.fetches, report.counters.cancelled), (2, 0));
    assert_eq!(report.first_byte, RTT);
    hand.head(next);
    assert_eq!(hand.mirrors.connections().next().expect("one").first_byte, RTT, "that was no wait");
    let (_, asked) = hand.bodies(next, next.first, next.end);
    assert_eq!((asked[0].first, hand.pool.idle()), (next.end, BLOCKS - asked[0].end));
}

#[test]
fn it_is_asked_for_by_the_clock_too() {
    let mut hand = Hand::new(1, BLOCKS);
    let first = hand.asks()[0];
    hand.now += RTT.times(2);
    hand.head(first);
    let (_, asked) = hand.bodies(first, first.first, first.end - 40 * BATCH);
    assert_eq!(asked, []);
    // The answer ends in 160 ms, and no bytes arrive before that. So only the clock can start the next
    // request.
    let wanted = hand.now + (STEP.times(40) - RTT.times(2) - PREFETCH_MARGIN);
    assert!(hand.wait <= wanted + STEP && hand.wait + STEP >= wanted, "{:?}, {wanted:?}", hand.wait);
    hand.now = hand.wait;
    assert_eq!(hand.asks().len(), 1);
}

#[test]
fn a_failure_is_that_of_both() {
    let mut hand = Hand::new(1, BLOCKS);
    let (first, next, at) = hand.ahead();
    hand.tell(Input::Failed { fetch: first.id, failure: Failure::Broken });
    let (again, cancelled) = hand.poll();
    assert_eq!((again.len(), again[0].first, cancelled), (1, at, vec![next.id]), "it had brought much");
    hand.tell(Input::Head { fetch: next.id });
    hand.tell(Input::Body { fetch: next.id, bytes: &[1; 10] });
    hand.tell(Input::Failed { fetch: next.id, failure: Failure::Useless });
    hand.tell(Input::Failed { fetch: again[0].id, failure: Failure::Broken });
    assert_eq!(hand.asks(), [], "it brought nothing");
    hand.idle_is_all_but(at);
    hand.now = hand.wait;
    let again = hand.asks();
    assert_eq!((again[0].first, again[0].end), (at, at + TRIAL_BLOCKS), "small, to prove itself");
    let counters = hand.mirrors.connections().next().expect("one").counters;
    assert_eq!((counters.fetches, counters.cancelled, counters.failures), (4, 1, 2));
    hand.now += RTT;
    hand.head(again[0]);
    assert_eq!(hand.bodies(again[0], at, at + TRIAL_BLOCKS).1, [], "nothing ahead of a trial");
}

#[test]
fn a_stall_is_that_of_both() {
    let mut hand = Hand::new(1, BLOCKS);
    let (first, next, at) = hand.ahead();
    hand.now = hand.wait;
    assert_eq!(hand.poll(), (vec![], vec![]), "they live on");
    hand.idle_is_all_but(at);
    let stalled = hand.now;
    assert_eq!(hand.mirrors.connections().next().expect("one").state, State::Stalled);
    hand.now = hand.wait;
    assert_eq!(hand.now, stalled + STALL_RETRY_MIN);
    let mut tried = Vec::new();
    let mut cancelled = Vec::new();
    loop {
        match hand.mirrors.poll(hand.now, &mut hand.pool) {
            Output::Wait(_) => break,
            Output::Send(Command::Cancel { fetch }) => cancelled.push(fetch),
            Output::Send(Command::Fetch { first_byte, .. }) => tried.push(first_byte / BLOCK),
            _ => {}
        }
    }
    assert_eq!((cancelled, tried), (vec![next.id, first.id], vec![at]), "the one behind first");
    assert_eq!(hand.mirrors.connections().next().expect("one").counters.cancelled, 2);
}

#[test]
fn what_comes_after_a_stall_is_of_use() {
    let mut hand = Hand::new(1, BLOCKS);
    let (first, next, at) = hand.ahead();
    hand.now = hand.wait;
    assert_eq!(hand.asks(), []);
    assert_eq!(hand.bodies(first, at, first.end).1, []);
    hand.tell(Input::Done { fetch: first.id });
    hand.head(next);
    assert_eq!(hand.bodies(next, next.first, next.end).1, [], "nothing ahead of what is not its own");
    hand.tell(Input::Done { fetch: next.id });
    assert_eq!(hand.asks()[0].first, next.end, "nothing is asked for twice");
}

#[test]
fn a_connection_that_goes_takes_both_along() {
    for input in [Input::Down { connection: 0 }, Input::Banned { mirror: 0 }] {
        let mut hand = Hand::new(1, BLOCKS);
        let (first, next, at) = hand.ahead();
        hand.tell(input);
        assert_eq!(hand.poll(), (vec![], vec![next.id, first.id]), "{input:?}");
        hand.idle_is_all_but(at);
        assert_eq!(hand.mirrors.connections().next().expect("one").counters.cancelled, 2);
    }
}

/// One of two connections becomes slower after it got a long prefetched request. The other connection takes
/// over the end of that range, or all of it if it is much faster.
#[test]
fn the_end_of_what_was_asked_ahead_is_taken_over() {
    for faster in [1_u64, 400] {
        let mut hand = Hand::new(2, 3_000);
        let mut asked = hand.asks();
        let (slow, mut fast) = (asked[0], asked.split_off(1));
        hand.now += RTT.times(2);
        hand.head(slow);
        // Only this connection answers, so it gets half of the blocks that are left.
        let (at, asked) = hand.bodies(slow, slow.first, slow.end);
        let ahead = asked[0];
        assert!(ahead.end - ahead.first >= 900, "{ahead:?}");
        // The other connection delivers all other blocks, but its first range takes some time. The silence of
        // the first connection counts, too. Otherwise the other one would leave it a few blocks, because it
        // was slow to begin.
        hand.now += Span::from_millis(if faster > 1 { 300 } else { 0 });
        hand.head(fast[0]);
        hand.now += Span::from_millis(400 / faster);
        while fast[0].first < ahead.first || fast[0].first >= ahead.end {
            let next = fast.remove(0);
            hand.head(next);
            hand.bring(next, next.end);
            fast.extend(hand.asks());
            hand.tell(Input::Done { fetch: next.id });
            fast.extend(hand.asks());
            assert!(fast.iter().all(|asked| asked.connection == 1));
        }
        let taken = fast.remove(0);
        assert!(fast.is_empty() && taken.end == ahead.end && hand.pool.idle() == 0, "{faster}: {taken:?}");
        assert_eq!(taken.first == ahead.first, faster > 1, "{faster}: {taken:?} of {ahead:?}");
        // The slow connection delivers the blocks that it keeps. Its prefetched request is then cancelled.
        assert_eq!(hand.bodies(slow, at, slow.end).1, []);
        hand.tell(Input::Done { fetch: slow.id });
        if taken.first > ahead.first {
            hand.head(ahead);
            hand.bring(ahead, taken.first);
        }
        let (mut asked, cancelled) = hand.poll();
        assert_eq!(cancelled, [ahead.id], "{faster}");
        // Each connection that was asked for the rest delivers its blocks once.
        asked.insert(0, taken);
        for asked in asked {
            hand.head(asked);
            hand.bring(asked, asked.end);
        }
        assert!((0..3_000).all(|block| !hand.pool.is_wanted(block)), "{faster}");
        assert_eq!(
            hand.mirrors.connections().map(|connection| connection.counters.bytes).sum::<u64>(),
            3_000 * BLOCK
        );
    }
}
