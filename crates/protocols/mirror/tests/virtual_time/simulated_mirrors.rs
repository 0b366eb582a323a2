//! Mirrors with simulated time, rates and faults.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use anabranch_algo::control::Algorithm;
use anabranch_algo::{Output, Rate, Span, SplitMix64, TcpSample, Time};
use anabranch_mirror::range_scheduler::{
    Command, ConnectionConfig, ConnectionId, ConnectionReport, Failure, FetchId, Input, MirrorId, Pool,
    RangeScheduler, State,
};
use anabranch_mirror::receive_windows::Sharing;
use anabranch_mirror::verified_pool::{self, VerifiedPool};
use anabranch_mmtp::id::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// The most bytes of one read.
const CHUNK: u64 = 64 << 10;
/// The time at which a test fails if it has not ended.
const END: Time = Time::from_nanos(3 * 3_600 * 1_000_000_000);

pub(crate) fn mbit(rate: u64) -> u64 {
    rate * 125_000
}

pub(crate) fn secs(secs: u64) -> Time {
    Time::ZERO + Span::from_secs(secs)
}

/// The properties of a simulated connection.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) mirror: MirrorId,
    pub(crate) rate: u64,
    pub(crate) rtt: Span,
    pub(crate) ranges: bool,
    /// Whether a request that arrives during an answer is answered right behind it. If not, the server reads
    /// it only after the answer.
    pub(crate) pipelines: bool,
    /// The times in which the connection is reported as not usable.
    pub(crate) down: Vec<Range<Time>>,
    /// The times in which nothing arrives.
    pub(crate) silent: Vec<Range<Time>>,
    /// The blocks for which the mirror has wrong bytes.
    pub(crate) wrong: Range<u64>,
    /// How many of 100 requests fail in some way before `good_from`.
    pub(crate) misfortunes: u64,
    pub(crate) good_from: Time,
    /// The offset in the file at which its answers break off.
    pub(crate) breaks_at: Option<u64>,
    /// The number of bytes after which each answer breaks off.
    pub(crate) cuts: Option<u64>,
    /// The most bytes of an answer. A shorter answer announces its length.
    pub(crate) most: Option<u64>,
    /// Whether its first answer shows that it has no ranges.
    pub(crate) unsteady: bool,
    /// The rate of answers that do not begin at the first byte.
    pub(crate) trickle: Option<u64>,
    /// The times from which all answers arrive at a new rate, in order.
    pub(crate) changes: Vec<(Time, u64)>,
}

impl Link {
    pub(crate) fn new(mirror: MirrorId, rate: u64, rtt_ms: u64) -> Self {
        Self {
            mirror,
            rate,
            rtt: Span::from_millis(rtt_ms),
            ranges: true,
            pipelines: true,
            down: Vec::new(),
            silent: Vec::new(),
            wrong: 0..0,
            misfortunes: 0,
            good_from: Time::ZERO,
            breaks_at: None,
            cuts: None,
            most: None,
            unsteady: false,
            trickle: None,
            changes: Vec::new(),
        }
    }

    /// Returns the rate at `now`, if it has changed by then.
    fn rate_at(&self, now: Time) -> Option<u64> {
        self.changes.iter().rev().find(|(from, _)| now >= *from).map(|(_, rate)| *rate)
    }

    /// Returns when `bytes` bytes have arrived whose transfer begins at `from`.
    fn arrival(&self, from: Time, bytes: u64) -> Time {
        self.arrival_at(self.rate, from, bytes)
    }

    /// Returns when `bytes` bytes have arrived at `rate` whose transfer begins at `from`.
    fn arrival_at(&self, rate: u64, from: Time, bytes: u64) -> Time {
        let mut at = from;
        let mut need = Rate::from_bytes(rate).time_for(bytes);
        for silence in &self.silent {
            if silence.end <= at {
                continue;
            }
            if at + need <= silence.start {
                break;
            }
            need = need - silence.start.since(at);
            at = silence.end;
        }
        at + need
    }
}

/// How a request will end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    Well,
    BreaksAt(u64),
    ShortAt(u64),
    HangsAt(u64),
    Busy,
    Useless,
    NoRanges,
}

struct FetchRecord {
    id: FetchId,
    at: u64,
    end: u64,
    head: bool,
    ending: Ending,
    /// The offset at which the answer announces its end, if that is before the end of the range.
    short: Option<u64>,
    /// The rate at which the answer arrives.
    rate: u64,
    /// The earliest time of an answer: the request has reached the server.
    ready: Time,
    /// When the next event of this request occurs. Only set for the request whose turn it is.
    next: Time,
}

struct Line {
    link: Link,
    /// The request that is being answered, and those behind it.
    asked: VecDeque<FetchRecord>,
    /// Whether the next request needs a new TCP connection.
    cold: bool,
    /// The times at which the connection goes down or comes up, the latest first.
    turns: Vec<(Time, bool)>,
    received: u64,
}

/// The functions that a pool needs in these tests.
pub(crate) trait Tested: Pool {
    fn events(&mut self) -> Vec<verified_pool::Event>;
    /// Gives up comparisons if nothing else is missing. Returns false if something else is missing.
    fn waive(&mut self) -> bool {
        false
    }
}

impl Tested for VerifiedPool {
    fn events(&mut self) -> Vec<verified_pool::Event> {
        Self::events(self).collect()
    }
    fn waive(&mut self) -> bool {
        self.only_samples_left() && {
            (0..16).for_each(|mirror| self.mirror_gone(mirror));
            true
        }
    }
}

/// A pool that only counts blocks and does not verify them, which is fast.
pub(crate) struct Counting {
    done: Vec<bool>,
    /// The blocks from `next` to `end` have never been assigned.
    next: u64,
    end: u64,
    from_end: bool,
    back: Vec<Range<u64>>,
    left: u64,
}

impl Counting {
    pub(crate) fn new(blocks: u64) -> Self {
        let done = vec![false; blocks as usize];
        Self { done, next: 0, end: blocks, from_end: false, back: Vec::new(), left: blocks }
    }
}

impl Pool for Counting {
    fn take(&mut self, _: MirrorId, blocks: u64) -> Option<Range<u64>> {
        while let Some(mut range) = self.back.pop() {
            while !range.is_empty() && self.done[range.start as usize] {
                range.start += 1;
            }
            if !range.is_empty() {
                let end = range.end.min(range.start + blocks);
                if end < range.end {
                    self.back.push(end..range.end);
                }
                return Some(range.start..end);
            }
        }
        let range = match self.from_end {
            false => self.next..(self.next + blocks).min(self.end),
            true => self.next.max(self.end.saturating_sub(blocks))..self.end,
        };
        match self.from_end {
            false => self.next = range.end,
            true => self.end = range.start,
        }
        (!range.is_empty()).then_some(range)
    }
    fn take_at(&mut self, _: MirrorId, first: u64, blocks: u64) -> Option<Range<u64>> {
        // Skip blocks that have arrived, because the real pools do not count them as missing.
        while self.next < self.end && self.done[self.next as usize] {
            self.next += 1;
        }
        let range = first..(first + blocks).min(self.end);
        (self.next == first && !range.is_empty()).then(|| {
            self.next = range.end;
            range
        })
    }
    fn next_idle(&self, _: MirrorId, first: u64) -> Option<u64> {
        (first.max(self.next)..self.end).find(|block| !self.done[*block as usize])
    }
    fn take_from_end(&mut self, from_end: bool) {
        self.from_end = from_end;
    }
    fn release(&mut self, blocks: Range<u64>) {
        self.back.push(blocks);
    }
    fn idle(&self) -> u64 {
        let back = self.back.iter().cloned().flatten().filter(|g| !self.done[*g as usize]).count() as u64;
        self.end - self.next + back
    }
    fn is_wanted(&self, block: u64) -> bool {
        !self.done[block as usize]
    }
    fn deliver(&mut self, _: MirrorId, block: u64, _: &[u8]) {
        assert!(!std::mem::replace(&mut self.done[block as usize], true), "only what is wanted is brought");
        self.left -= 1;
    }
}

impl Tested for Counting {
    fn events(&mut self) -> Vec<verified_pool::Event> {
        if self.left == 0 { vec![verified_pool::Event::Complete] } else { Vec::new() }
    }
}

/// The result of a run.
#[derive(Debug, PartialEq)]
pub(crate) struct Outcome {
    /// When everything had arrived; `None` if the mirrors disagreed.
    pub(crate) complete: Option<Time>,
    pub(crate) disagree: Vec<MirrorId>,
    pub(crate) liars: Vec<MirrorId>,
    /// The bytes that arrived, as they were reported last.
    pub(crate) file: Vec<u8>,
    /// The number of blocks that were revoked.
    pub(crate) revoked: u64,
    pub(crate) trace: Vec<String>,
    pub(crate) connections: Vec<ConnectionReport>,
}

impl Outcome {
    /// Returns the efficiency in permille: the time for `length` bytes at `rate` bytes per second, divided by
    /// the time that the run took.
    pub(crate) fn permille(&self, length: u64, rate: u64) -> u64 {
        let took = self.complete.expect("complete").as_nanos();
        Rate::from_bytes(rate).time_for(length).as_nanos() * 1_000 / took
    }
}

pub(crate) struct World<'a> {
    length: u64,
    /// The right bytes. If there are none, all bytes are zero and are not checked.
    content: Option<&'a [u8]>,
    lines: Vec<Line>,
    luck: SplitMix64,
    now: Time,
    mirrors: RangeScheduler,
    verified: BTreeSet<u64>,
    last_fetch: BTreeSet<FetchId>,
    outcome: Outcome,
    /// How long the simulation waits for a comparison when all blocks are there.
    pub(crate) patience: Span,
}

impl<'a> World<'a> {
    pub(crate) fn new(length: u64, content: Option<&'a [u8]>, links: &[Link], seed: u64) -> Self {
        let mut mirrors = RangeScheduler::new(length);
        let control = Algorithm::by_name("nmcc").expect("it is there");
        for link in links {
            let (mirror, ranges) = (link.mirror, link.ranges);
            let config =
                ConnectionConfig { mirror, sharing: Sharing::Given(0), control, ranges, delay: Span::ZERO };
            mirrors.add_connection(&config).expect("few");
        }
        let lines = links
            .iter()
            .map(|link| {
                let turns = link.down.iter().rev().flat_map(|down| [(down.end, true), (down.start, false)]);
                let turns = turns.collect();
                Line { link: link.clone(), asked: VecDeque::new(), cold: true, turns, received: 0 }
            })
            .collect();
        let outcome = Outcome {
            complete: None,
            disagree: Vec::new(),
            liars: Vec::new(),
            file: vec![0; if content.is_some() { length as usize } else { 0 }],
            revoked: 0,
            trace: Vec::new(),
            connections: Vec::new(),
        };
        Self {
            length,
            content,
            lines,
            luck: SplitMix64(seed),
            now: Time::ZERO,
            mirrors,
            verified: BTreeSet::new(),
            last_fetch: BTreeSet::new(),
            outcome,
            patience: Span::from_secs(5),
        }
    }

    pub(crate) fn run(mut self, pool: &mut dyn Tested) -> Outcome {
        // When a block was last verified.
        let mut news = self.now;
        loop {
            let wait = loop {
                match self.mirrors.poll(self.now, pool) {
                    Output::Send(command) => self.command(command),
                    Output::Event(event) => self.outcome.trace.push(format!("{:?} {event:?}", self.now)),
                    Output::Wait(until) => break until,
                }
            };
            let mut again = false;
            for event in pool.events() {
                match event {
                    verified_pool::Event::Verified { block, bytes, .. } => {
                        assert!(self.verified.insert(block), "block {block} verified twice");
                        news = self.now;
                        let first = (block * BLOCK) as usize;
                        self.outcome.file[first..first + bytes.len()].copy_from_slice(&bytes);
                    }
                    verified_pool::Event::Revoked { blocks } => {
                        self.outcome.revoked += blocks.end - blocks.start;
                        for block in blocks {
                            assert!(self.verified.remove(&block), "only what was reported is revoked");
                        }
                    }
                    verified_pool::Event::Banned { mirror, .. } => {
                        self.outcome.liars.push(mirror);
                        self.mirrors.handle(self.now, Input::Banned { mirror }, pool);
                        again = true;
                    }
                    verified_pool::Event::Split { mirrors, .. } => {
                        self.outcome.disagree = mirrors;
                        return self.end();
                    }
                    verified_pool::Event::Complete => {
                        self.outcome.complete = Some(self.now);
                        return self.end();
                    }
                }
            }
            if again {
                continue;
            }
            let due = (0..self.lines.len())
                .filter_map(|p| self.lines[p].asked.front().map(|asked| (asked.next, p)))
                .min();
            let turn = (0..self.lines.len())
                .filter_map(|p| self.lines[p].turns.last().map(|(at, _)| (*at, p)))
                .min();
            let next = due.map_or(Time::NEVER, |(at, _)| at).min(wait);
            if let Some((at, connection)) = turn.filter(|(at, _)| *at <= next) {
                self.now = at.max(self.now);
                let up = self.lines[connection].turns.pop().is_some_and(|(_, up)| up);
                let input = if up { Input::Up { connection } } else { Input::Down { connection } };
                self.mirrors.handle(self.now, input, pool);
                continue;
            }
            if next.max(self.now) > news + self.patience && pool.waive() {
                news = next.max(self.now);
                continue;
            }
            assert!(
                next < END,
                "it does not end: {:?} {:#?}",
                self.now,
                self.mirrors.connections().collect::<Vec<_>>()
            );
            self.now = next.max(self.now);
            if let Some((_, p)) = due.filter(|(at, _)| *at <= self.now) {
                self.arrive(p, pool);
            }
        }
    }

    fn end(mut self) -> Outcome {
        self.outcome.connections = self.mirrors.connections().collect();
        self.outcome
    }

    fn command(&mut self, command: Command) {
        self.outcome.trace.push(format!("{:?} {command:?}", self.now));
        match command {
            Command::Fetch { connection, fetch, first_byte, end_byte } => {
                let line = &mut self.lines[connection];
                assert!(line.asked.len() < 17, "one request a connection, and sixteen behind it");
                let may_follow = |asked: &FetchRecord| asked.head || asked.end - asked.at <= BLOCK;
                assert!(
                    line.asked.front().is_none_or(|asked| may_follow(asked) && line.link.ranges),
                    "behind an answer, or behind one block, only"
                );
                assert!(first_byte < end_byte && end_byte <= self.length, "{first_byte}..{end_byte}");
                assert!(first_byte % BLOCK == 0 || line.link.most.is_some(), "{first_byte}");
                assert!(self.last_fetch.insert(fetch), "a name for each request");
                assert!(line.link.ranges || (first_byte, end_byte) == (0, self.length));
                let unlucky = self.now < line.link.good_from && self.luck.below(100) < line.link.misfortunes;
                let somewhere = first_byte + self.luck.below(end_byte - first_byte);
                let ending = match self.luck.below(16) {
                    _ if std::mem::take(&mut line.link.unsteady) => {
                        line.link.ranges = false;
                        Ending::NoRanges
                    }
                    _ if !unlucky => {
                        let cut = line.link.cuts.map(|bytes| first_byte + bytes).filter(|at| *at < end_byte);
                        line.link.breaks_at.or(cut).map_or(Ending::Well, Ending::BreaksAt)
                    }
                    0..=4 => Ending::BreaksAt(somewhere),
                    5 => Ending::BreaksAt(first_byte),
                    6..=8 => Ending::HangsAt(somewhere),
                    9 => Ending::HangsAt(first_byte),
                    10..=12 => Ending::ShortAt(somewhere),
                    // The last mirror never becomes useless, because otherwise nothing could be completed.
                    13 if line.link.mirror > 0 => Ending::Useless,
                    _ => Ending::Busy,
                };
                let trips = if std::mem::take(&mut line.cold) { 2 } else { 1 };
                let ready = line.link.arrival(self.now + line.link.rtt.times(trips), 0);
                let next = if line.asked.is_empty() { ready } else { Time::NEVER };
                let (at, end) = (first_byte, end_byte);
                let rate = line.link.trickle.filter(|_| at > 0).unwrap_or(line.link.rate);
                line.asked.push_back(FetchRecord {
                    id: fetch,
                    at,
                    end,
                    head: false,
                    ending,
                    short: line.link.most.map(|most| at + most).filter(|short| *short < end),
                    rate,
                    ready,
                    next,
                });
            }
            Command::Cancel { fetch } => {
                let line = self.lines.iter_mut().find(|l| l.asked.iter().any(|a| a.id == fetch));
                let line = line.expect("a request that is under way");
                let last = line.asked.pop_back().expect("it is there");
                assert_eq!(last.id, fetch, "what is behind is cancelled first");
                line.cold = true;
            }
            Command::Window { .. } => {}
        }
    }

    /// Handles the next event of line `p`.
    fn arrive(&mut self, p: ConnectionId, pool: &mut dyn Tested) {
        let (now, length) = (self.now, self.length);
        let line = &mut self.lines[p];
        let Some(asked) = line.asked.front_mut() else { return };
        let fetch = asked.id;
        let failure = match asked.ending {
            Ending::Busy => Some(Failure::Busy { retry: Span::from_millis(700) }),
            Ending::Useless => Some(Failure::Useless),
            Ending::NoRanges => Some(Failure::NoRanges),
            Ending::BreaksAt(at) if asked.head && asked.at >= at => Some(Failure::Broken),
            _ => None,
        };
        if let Some(failure) = failure {
            // The requests behind it are answered over a new TCP connection.
            line.cold = true;
            line.asked.pop_front();
            line.turn(now);
            self.mirrors.handle(now, Input::Failed { fetch, failure }, pool);
            return;
        }
        if let Some(rate) = line.link.rate_at(now) {
            asked.rate = rate;
        }
        if !asked.head {
            asked.head = true;
            let input = match asked.short.filter(|_| asked.ending == Ending::Well) {
                Some(end_byte) => {
                    asked.end = end_byte;
                    Input::Short { fetch, end_byte }
                }
                None => Input::Head { fetch },
            };
            asked.next = step(&line.link, now, asked);
            self.mirrors.handle(now, input, pool);
            return;
        }
        let until = match asked.ending {
            Ending::ShortAt(at) => at,
            _ => asked.end,
        };
        if asked.at >= until {
            line.asked.pop_front();
            line.turn(now);
            self.mirrors.handle(now, Input::Done { fetch }, pool);
            return;
        }
        let first = asked.at;
        let bytes = amount(asked);
        asked.at += bytes;
        asked.next = step(&line.link, now, asked);
        line.received += bytes;
        let sample = TcpSample {
            rtt: line.link.rtt,
            mss: 1_448,
            received_bytes: line.received,
            out_of_order: 0,
            segments: 0,
        };
        let zeros;
        let mut sent = match self.content {
            Some(content) => content[first as usize..(first + bytes) as usize].to_vec(),
            None => {
                zeros = vec![0; bytes as usize];
                zeros
            }
        };
        for block in line.link.wrong.clone() {
            let at = (block * BLOCK).min(length);
            if (first..first + bytes).contains(&at) {
                sent[(at - first) as usize] ^= 1;
            }
        }
        self.mirrors.handle(now, Input::Body { fetch, bytes: &sent }, pool);
        self.mirrors.handle(now, Input::Sample { connection: p, sample }, pool);
    }
}

impl Line {
    /// Begins the answer to the next request.
    fn turn(&mut self, now: Time) {
        let Some(asked) = self.asked.front_mut() else { return };
        if std::mem::take(&mut self.cold) {
            asked.ready = now + self.link.rtt.times(2);
        } else if !self.link.pipelines {
            asked.ready = now + self.link.rtt;
        }
        asked.next = self.link.arrival(asked.ready.max(now), 0);
    }
}

/// Returns the number of bytes that arrive next.
fn amount(asked: &FetchRecord) -> u64 {
    let until = match asked.ending {
        Ending::BreaksAt(at) | Ending::ShortAt(at) | Ending::HangsAt(at) => at.clamp(asked.at, asked.end),
        _ => asked.end,
    };
    // The amount is not a multiple of a block, so that blocks have to be assembled. A trickle arrives once a
    // second.
    (until - asked.at).min(CHUNK - 100).min(asked.rate)
}

/// Returns when the next event of a request occurs.
fn step(link: &Link, now: Time, asked: &FetchRecord) -> Time {
    let bytes = amount(asked);
    if bytes == 0 && matches!(asked.ending, Ending::HangsAt(_)) {
        Time::NEVER
    } else {
        link.arrival_at(asked.rate, now, bytes)
    }
}

/// Whether a connection is in a state.
pub(crate) fn is(outcome: &Outcome, connection: ConnectionId, state: State) -> bool {
    outcome.connections[connection].state == state
}
