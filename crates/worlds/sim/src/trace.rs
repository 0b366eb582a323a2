//! Link traces in the format of mahimahi, and the transmitter that plays them. (Netravali et al.: "Mahimahi:
//! accurate record-and-replay for HTTP", USENIX ATC 2015; `mm-link`.)
//!
//! Each line is a whole number of milliseconds, not smaller than the line before: an opportunity, at which
//! [`OPPORTUNITY_BYTES`] bytes may leave. A packet may use several opportunities, and several packets may
//! share one. Unused bytes of an opportunity are lost. The last line is also the length of the trace, after
//! which it starts again. A packet that arrives exactly at the time of an opportunity comes too late for it.

use anabranch_algo::{Rate, Span, Time};
use std::fmt;
use std::sync::Arc;

/// The number of bytes of an opportunity. Mahimahi counts 1,504, of which 4 are the header of its tunnel.
pub const OPPORTUNITY_BYTES: u32 = 1_500;
/// The largest number of lines of a trace: three hours at 10 Gbit/s.
pub const MAX_OPPORTUNITIES: usize = 10_000_000;

const MS: u64 = 1_000_000;

/// A link trace: the times at which packets may leave. Clones share their memory.
#[derive(Clone, PartialEq, Eq)]
pub struct Trace {
    /// The times of the opportunities in ms, ascending. The last one is the period, and not 0.
    at_ms: Arc<[u32]>,
}

/// The reason why a text is not a valid trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceError {
    /// This line, counted from 1, is not a whole number of milliseconds below 2³².
    NotANumber {
        /// The number of the line.
        line: usize,
    },
    /// This line, counted from 1, is smaller than the one before.
    Decreasing {
        /// The number of the line.
        line: usize,
    },
    /// The text has no lines.
    Empty,
    /// The last line is 0, so that the trace has no length.
    ZeroLength,
    /// There are more than [`MAX_OPPORTUNITIES`] lines.
    TooLong,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotANumber { line } => write!(f, "line {line}: not a whole number of milliseconds"),
            Self::Decreasing { line } => write!(f, "line {line}: earlier than the line before"),
            Self::Empty => write!(f, "a trace has at least one line"),
            Self::ZeroLength => write!(f, "the last line is the trace's length and must not be 0"),
            Self::TooLong => write!(f, "more than {MAX_OPPORTUNITIES} lines"),
        }
    }
}

impl std::error::Error for TraceError {}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trace({} opportunities, {} ms)", self.at_ms.len(), self.period_ms())
    }
}

/// A summary of the capacity of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceSummary {
    /// The length of the trace, after which it starts again.
    pub period: Span,
    /// The mean rate in Mbit/s.
    pub mean_mbit: f64,
    /// The rate in Mbit/s that 5 % of the whole seconds do not exceed; the mean if the trace is shorter than
    /// 1 s.
    pub p5_mbit: f64,
    /// The rate in Mbit/s that 95 % of the whole seconds do not exceed; the mean if the trace is shorter than
    /// 1 s.
    pub p95_mbit: f64,
    /// The longest time without an opportunity, including across the restart.
    pub outage: Span,
}

impl Trace {
    /// Parses a trace.
    ///
    /// # Errors
    /// If the text is not a valid trace; the error says why, and in which line.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut at_ms: Vec<u32> = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let ms = line.trim().parse().map_err(|_| TraceError::NotANumber { line: i + 1 })?;
            if at_ms.last().is_some_and(|last| ms < *last) {
                return Err(TraceError::Decreasing { line: i + 1 });
            }
            if at_ms.len() == MAX_OPPORTUNITIES {
                return Err(TraceError::TooLong);
            }
            at_ms.push(ms);
        }
        match at_ms.last() {
            None => Err(TraceError::Empty),
            Some(0) => Err(TraceError::ZeroLength),
            Some(_) => Ok(Self { at_ms: at_ms.into() }),
        }
    }

    fn period_ms(&self) -> u64 {
        self.at_ms.last().map_or(1, |last| u64::from(*last))
    }

    /// Returns a summary of the trace.
    #[must_use]
    pub fn summary(&self) -> TraceSummary {
        let mbit = |opportunities: usize, ms: u64| {
            opportunities as f64 * f64::from(OPPORTUNITY_BYTES) * 8.0 / 1e3 / ms as f64
        };
        let mean_mbit = mbit(self.at_ms.len(), self.period_ms());
        // A trace may be sparse, so seconds without an opportunity are counted, not stored.
        let secs = self.period_ms() / 1_000;
        let within = self.at_ms.iter().map(|ms| u64::from(*ms) / 1_000).take_while(|sec| *sec < secs);
        let mut counts: Vec<(u64, usize)> = Vec::new();
        for sec in within {
            match counts.last_mut().filter(|(last, _)| *last == sec) {
                Some((_, count)) => *count += 1,
                None => counts.push((sec, 1)),
            }
        }
        counts.sort_unstable_by_key(|(_, count)| *count);
        let silent = secs - counts.len() as u64;
        let rank = |percent: u64| match (secs * percent).div_ceil(100).max(1) {
            _ if secs == 0 => mean_mbit,
            nth if nth <= silent => 0.0,
            nth => mbit(counts[(nth - silent - 1) as usize].1, 1_000),
        };
        let gaps = self.at_ms.windows(2).map(|pair| pair[1] - pair[0]);
        let outage_ms = gaps.chain(self.at_ms.first().copied()).max().unwrap_or(0);
        TraceSummary {
            period: Span::from_millis(self.period_ms()),
            mean_mbit,
            p5_mbit: rank(5),
            p95_mbit: rank(95),
            outage: Span::from_millis(u64::from(outage_ms)),
        }
    }

    /// Returns the mean rate of the trace.
    #[must_use]
    pub fn mean_rate(&self) -> Rate {
        let bytes = self.at_ms.len() as u64 * u64::from(OPPORTUNITY_BYTES);
        Rate::from_bytes(bytes * 1_000 / self.period_ms())
    }

    /// Returns the bytes that the link offers after `from` and up to `until`.
    #[must_use]
    pub fn offered_bytes(&self, from: Time, until: Time) -> u64 {
        self.after(until).saturating_sub(self.after(from)) * u64::from(OPPORTUNITY_BYTES)
    }

    /// Returns the time of opportunity `k`, counted from 0 over all repetitions.
    fn time(&self, k: u64) -> Time {
        let count = self.at_ms.len() as u64;
        let ms = (k / count).saturating_mul(self.period_ms());
        Time::from_nanos(ms.saturating_add(u64::from(self.at_ms[(k % count) as usize])).saturating_mul(MS))
    }

    /// Returns the number of the first opportunity after `at`.
    fn after(&self, at: Time) -> u64 {
        let ms = at.as_nanos() / MS;
        let rest = ms % self.period_ms();
        let first = self.at_ms.partition_point(|at_ms| u64::from(*at_ms) <= rest);
        (ms / self.period_ms()) * self.at_ms.len() as u64 + first as u64
    }
}

/// The transmitter of a link with a trace: idle, or busy with one packet. The cost of a packet does not
/// depend on how long it waits.
#[derive(Clone, Debug)]
pub(crate) struct TraceTransmitter {
    trace: Trace,
    /// The next unused opportunity.
    next: u64,
    /// The time when the last bit leaves; `NEVER` when idle.
    done: Time,
    /// The unused bytes of the opportunity at which the last packet left.
    spare_bytes: u64,
}

impl TraceTransmitter {
    pub(crate) const fn new(trace: Trace) -> Self {
        Self { trace, next: 0, done: Time::NEVER, spare_bytes: 0 }
    }

    pub(crate) const fn done(&self) -> Time {
        self.done
    }

    /// Starts to send `bytes` bytes at `at`; `follows` tells whether the packet follows immediately after
    /// another.
    pub(crate) fn start(&mut self, at: Time, bytes: u32, follows: bool) {
        if !follows {
            self.spare_bytes = 0;
            self.next = self.next.max(self.trace.after(at));
        }
        let rest = u64::from(bytes).saturating_sub(self.spare_bytes);
        self.spare_bytes -= u64::from(bytes) - rest;
        let uses = rest.div_ceil(u64::from(OPPORTUNITY_BYTES));
        self.next += uses;
        self.spare_bytes += uses * u64::from(OPPORTUNITY_BYTES) - rest;
        self.done = if uses == 0 { at } else { self.trace.time(self.next - 1) };
    }

    /// Becomes idle, because the packet has left or was dropped.
    pub(crate) const fn finish(&mut self) {
        self.done = Time::NEVER;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Input, Link, Packet};
    use crate::{LinkConfig, Rng};
    use anabranch_algo::{Machine, Output};
    use std::collections::VecDeque;

    #[derive(Clone, Debug)]
    struct Probe(u32);
    impl Packet for Probe {
        fn bytes(&self) -> u32 {
            self.0
        }
        fn mark(&mut self) {}
    }

    /// Repeats mahimahi's `LinkQueue::rationalize` exactly, one opportunity after another.
    fn reference(at_ms: &[u32], arrivals: &[(Time, u32)]) -> Vec<Time> {
        let (mut left, mut in_transit, mut queue) = (Vec::new(), 0u32, VecDeque::new());
        let (mut next, mut base, mut arrivals) = (0, 0u64, arrivals.iter().peekable());
        loop {
            let now = Time::from_nanos((base + u64::from(at_ms[next])) * MS);
            while let Some((_, bytes)) = arrivals.next_if(|(at, _)| *at < now) {
                queue.push_back(*bytes);
            }
            if queue.is_empty() && in_transit == 0 && arrivals.peek().is_none() {
                return left;
            }
            next = (next + 1) % at_ms.len();
            base += if next == 0 { u64::from(at_ms[at_ms.len() - 1]) } else { 0 };
            let mut bytes_left = OPPORTUNITY_BYTES;
            while bytes_left > 0 {
                if in_transit == 0 {
                    let Some(bytes) = queue.pop_front() else { break };
                    in_transit = bytes;
                }
                let sent = bytes_left.min(in_transit);
                (in_transit, bytes_left) = (in_transit - sent, bytes_left - sent);
                if in_transit == 0 {
                    left.push(now);
                }
            }
        }
    }

    #[test]
    fn as_mahimahi_does_it() {
        let mut rng = Rng::new(4);
        for case in 0..200 {
            let mut ms = 0;
            let gap = 1 + rng.below(40);
            let mut at_ms: Vec<u32> = Vec::new();
            for _ in 0..1 + rng.below(30) {
                ms += rng.below(gap) as u32;
                at_ms.push(ms);
            }
            at_ms.push(ms + 1);
            let text: String = at_ms.iter().map(|ms| format!("{ms}\n")).collect();
            let trace = Trace::parse(&text).expect("a good trace");
            let mut now = 0;
            let arrivals: Vec<(Time, u32)> = (0..200)
                .map(|_| {
                    // Arrivals are often at whole milliseconds, to meet opportunities; sometimes there is a
                    // long silence.
                    now += [0, rng.below(20) * MS, rng.below(3 * MS), rng.below(3_000) * MS][case % 4];
                    (Time::from_nanos(now), 1 + rng.below(3_100) as u32)
                })
                .collect();
            let config = LinkConfig { queue_packets: u32::MAX, ..LinkConfig::default() }.trace(trace);
            let mut link = Link::new(config, 1, "a");
            let mut left = Vec::new();
            let mut run = |link: &mut Link<Probe>, until: Time| {
                while let Output::Send(arrival) = link.poll(until) {
                    left.push(arrival.at);
                }
            };
            for &(at, bytes) in &arrivals {
                run(&mut link, at);
                link.handle(at, Input::Packet(Probe(bytes)));
            }
            run(&mut link, Time::from_nanos(u64::MAX - 1));
            assert_eq!(left, reference(&at_ms, &arrivals), "{at_ms:?} {arrivals:?}");
        }
    }

    #[test]
    fn errors_say_where() {
        assert_eq!(Trace::parse("1\n2\nx\n"), Err(TraceError::NotANumber { line: 3 }));
        assert_eq!(Trace::parse("1\n\n2\n"), Err(TraceError::NotANumber { line: 2 }));
        assert_eq!(Trace::parse("-1\n"), Err(TraceError::NotANumber { line: 1 }));
        assert_eq!(Trace::parse("4294967296\n"), Err(TraceError::NotANumber { line: 1 }));
        assert_eq!(Trace::parse("5\n7\n6\n"), Err(TraceError::Decreasing { line: 3 }));
        assert_eq!(Trace::parse(""), Err(TraceError::Empty));
        assert_eq!(Trace::parse("0\n0\n"), Err(TraceError::ZeroLength));
        assert_eq!(TraceError::Decreasing { line: 3 }.to_string(), "line 3: earlier than the line before");
        assert!(Trace::parse("0\r\n5\r\n").is_ok());
    }

    #[test]
    fn a_summary_counts_silence() {
        // A packet leaves each millisecond for a second, none for 18 s, and again one each millisecond for a
        // second.
        let busy = |from: u32| (from..from + 1_000).map(|ms| format!("{ms}\n"));
        let text: String = busy(0).chain(busy(19_000)).chain(["20000\n".into()]).collect();
        let summary = Trace::parse(&text).expect("a good trace").summary();
        assert_eq!((summary.period, summary.outage), (Span::from_secs(20), Span::from_millis(18_001)));
        assert!((summary.mean_mbit - 2_001.0 * 12_000.0 / 20e6).abs() < 1e-9);
        assert_eq!((summary.p5_mbit, summary.p95_mbit), (0.0, 12.0));
        let short = Trace::parse("3\n10\n").expect("a good trace").summary();
        assert_eq!((short.p5_mbit, short.outage), (short.mean_mbit, Span::from_millis(7)));
    }

    #[test]
    fn what_is_offered_between_two_times() {
        let trace = Trace::parse("0\n3\n3\n10\n").expect("a good trace");
        let ms = |ms: u64| Time::from_nanos(ms * MS);
        let offered = |from, until| trace.offered_bytes(ms(from), ms(until)) / 1_500;
        assert_eq!((offered(0, 3), offered(3, 9), offered(3, 10), offered(0, 100)), (2, 0, 2, 40));
        assert_eq!(offered(7, 3), 0);
    }

    #[test]
    fn a_packet_stays_until_its_last_opportunity() {
        let config = LinkConfig::default().trace(Trace::parse("10\n30\n").expect("a good trace"));
        let mut link = Link::new(config, 1, "a");
        for _ in 0..2 {
            link.handle(Time::ZERO, Input::Packet(Probe(1_500)));
        }
        while let Output::Send(_) = link.poll(Time::from_nanos(50 * MS)) {}
        let sojourns = link.sojourns().expect("it plays a trace");
        assert_eq!((sojourns.count(), sojourns.mean()), (2, Span::from_millis(20)));
    }

    #[test]
    fn the_end_of_time_is_no_trap() {
        let trace = Trace::parse("4294967295\n").expect("a good trace");
        let mut transmitter = TraceTransmitter::new(trace);
        transmitter.start(Time::from_nanos(u64::MAX - 1), u32::MAX, false);
        assert_eq!(transmitter.done(), Time::NEVER);
    }
}
