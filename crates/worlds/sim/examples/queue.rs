//! Measures the cost of a queue of events: `cargo run --release -p anabranch-sim --example queue [MILLIONS]`.
//!
//! The example uses the hold model (Jones: "An empirical comparison of priority-queue and event-set
//! implementations", CACM 29(4), 1986): with n items pending, it removes the first item and inserts it again
//! for later. "Net" uses the times of a network of n busy links: 24 serialization times of 120 to 240 us to
//! one propagation of 1 to 10 ms. `anabranch_sim::queue::EventQueue` is the fastest; the other queues are
//! kept here, so that the table can be reproduced.

use anabranch_algo::Time;
use anabranch_sim::{EventQueue, Rng};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

trait Queue {
    const NAME: &str;
    fn new() -> Self;
    fn push(&mut self, at: u64, item: u32);
    fn pop(&mut self) -> (u64, u32);
}

impl Queue for EventQueue<u32> {
    const NAME: &str = "EventQueue";
    fn new() -> Self {
        Self::new()
    }
    fn push(&mut self, at: u64, item: u32) {
        Self::push(self, Time::from_nanos(at), item);
    }
    fn pop(&mut self) -> (u64, u32) {
        let (at, item) = self.pop_due(Time::NEVER).expect("an item");
        (at.as_nanos(), item)
    }
}

/// Uses the standard library's heap; a counter keeps the order of insertion.
struct Binary(BinaryHeap<Reverse<(u64, u64, u32)>>, u64);

impl Queue for Binary {
    const NAME: &str = "binary heap (std)";
    fn new() -> Self {
        Self(BinaryHeap::new(), 0)
    }
    fn push(&mut self, at: u64, item: u32) {
        self.1 += 1;
        self.0.push(Reverse((at, self.1, item)));
    }
    fn pop(&mut self) -> (u64, u32) {
        let Reverse((at, _, item)) = self.0.pop().expect("an item");
        (at, item)
    }
}

/// Uses a heap with four children a node: half as deep, with a node's children in one or two cache lines.
struct Quaternary(Vec<(u64, u64, u32)>, u64);

impl Queue for Quaternary {
    const NAME: &str = "4-ary heap";
    fn new() -> Self {
        Self(Vec::new(), 0)
    }
    fn push(&mut self, at: u64, item: u32) {
        self.1 += 1;
        let (heap, new) = (&mut self.0, (at, self.1, item));
        let mut i = heap.len();
        heap.push(new);
        while i > 0 && new < heap[(i - 1) / 4] {
            heap[i] = heap[(i - 1) / 4];
            i = (i - 1) / 4;
        }
        heap[i] = new;
    }
    fn pop(&mut self) -> (u64, u32) {
        let heap = &mut self.0;
        let (at, _, item) = heap[0];
        let last = heap.pop().expect("an item");
        let mut i = 0;
        loop {
            let end = heap.len().min(4 * i + 5);
            let Some(child) = (4 * i + 1..end).min_by_key(|&c| (heap[c].0, heap[c].1)) else { break };
            if last < heap[child] {
                break;
            }
            heap[i] = heap[child];
            i = child;
        }
        if i < heap.len() {
            heap[i] = last;
        }
        (at, item)
    }
}

/// Uses a radix heap with digits of one bit, as published.
struct Radix {
    base: u64,
    buckets: Vec<Vec<(u64, u32)>>,
    taken: usize,
}

impl Queue for Radix {
    const NAME: &str = "radix 2";
    fn new() -> Self {
        Self { base: 0, buckets: vec![Vec::new(); 65], taken: 0 }
    }
    fn push(&mut self, at: u64, item: u32) {
        self.buckets[64 - (at ^ self.base).leading_zeros() as usize].push((at, item));
    }
    fn pop(&mut self) -> (u64, u32) {
        if self.taken == self.buckets[0].len() {
            self.buckets[0].clear();
            self.taken = 0;
            let first = self.buckets.iter().position(|bucket| !bucket.is_empty()).expect("an item");
            let mut items = std::mem::take(&mut self.buckets[first]);
            self.base = items.iter().map(|(at, _)| *at).min().expect("an item");
            items.iter().for_each(|&(at, item)| self.push(at, item));
            items.clear();
            self.buckets[first] = items;
        }
        self.taken += 1;
        self.buckets[0][self.taken - 1]
    }
}

/// Uses a hashed timing wheel of 4,096 slots of 2.048 us, each sorted when its turn comes, and a heap for
/// items beyond the wheel's 8.4 ms.
struct Wheel {
    slots: Vec<Vec<(u64, u64, u32)>>,
    /// Bit `s % 64` of word `s / 64` says whether slot `s` has items.
    occupied: [u64; 64],
    /// The slot whose turn it is, latest item first.
    now: Vec<(u64, u64, u32)>,
    tick: u64,
    far: BinaryHeap<Reverse<(u64, u64, u32)>>,
    made: u64,
}

const TICK_BITS: u32 = 11;
const WHEEL: u64 = 4_096;

impl Wheel {
    fn place(&mut self, entry: (u64, u64, u32)) {
        let tick = entry.0 >> TICK_BITS;
        if tick <= self.tick {
            let i = self.now.partition_point(|other| *other > entry);
            self.now.insert(i, entry);
        } else if tick < self.tick + WHEEL {
            let slot = (tick % WHEEL) as usize;
            self.occupied[slot / 64] |= 1 << (slot % 64);
            self.slots[slot].push(entry);
        } else {
            self.far.push(Reverse(entry));
        }
    }

    /// Returns the number of ticks from the present one to the next tick with items.
    fn ahead(&self) -> Option<u64> {
        let start = (self.tick + 1) % WHEEL;
        let mut word = (start / 64) as usize;
        let mut bits = self.occupied[word] & (u64::MAX << (start % 64));
        for _ in 0..=64 {
            if bits != 0 {
                let slot = word as u64 * 64 + u64::from(bits.trailing_zeros());
                return Some((slot + WHEEL - start) % WHEEL + 1);
            }
            word = (word + 1) % 64;
            bits = self.occupied[word];
        }
        None
    }
}

impl Queue for Wheel {
    const NAME: &str = "timing wheel + heap";
    fn new() -> Self {
        Self {
            slots: vec![Vec::new(); WHEEL as usize],
            occupied: [0; 64],
            now: Vec::new(),
            tick: 0,
            far: BinaryHeap::new(),
            made: 0,
        }
    }
    fn push(&mut self, at: u64, item: u32) {
        self.made += 1;
        self.place((at, self.made, item));
    }
    fn pop(&mut self) -> (u64, u32) {
        loop {
            if let Some((at, _, item)) = self.now.pop() {
                return (at, item);
            }
            let far = self.far.peek().map(|Reverse((at, ..))| at >> TICK_BITS);
            let near = self.ahead().map(|ahead| self.tick + ahead);
            self.tick = near.into_iter().chain(far).min().expect("an item");
            let slot = (self.tick % WHEEL) as usize;
            if near == Some(self.tick) {
                self.occupied[slot / 64] &= !(1 << (slot % 64));
                std::mem::swap(&mut self.now, &mut self.slots[slot]);
                self.now.sort_unstable_by(|a, b| b.cmp(a));
            }
            while let Some(Reverse(entry)) = self.far.peek().copied() {
                if entry.0 >> TICK_BITS >= self.tick + WHEEL {
                    break;
                }
                self.far.pop();
                self.place(entry);
            }
        }
    }
}

/// Chooses how much later an item is inserted again, in ns.
#[derive(Clone, Copy)]
enum Gap {
    /// An exponential distribution with a mean of 1 ms.
    Exponential,
    /// The distribution of a network's links: mostly a serialization time, now and then a propagation delay.
    Net,
}

/// Returns the nanoseconds of CPU time that this process has used, which other processes do not affect. Where
/// the system does not report it, returns the time of day.
#[expect(clippy::disallowed_methods, reason = "it measures how long the machine takes")]
fn cpu_ns(start: Instant) -> f64 {
    let used = std::fs::read_to_string("/proc/self/schedstat").ok();
    let used = used.and_then(|text| text.split(' ').next()?.parse().ok());
    used.unwrap_or_else(|| start.elapsed().as_nanos() as f64)
}

/// Returns the millions of holds per CPU second, and the order of all items folded into one number.
#[expect(clippy::disallowed_methods, reason = "it measures how long the machine takes")]
fn hold<Q: Queue>(pending: u32, gap: Gap, holds: u64) -> (f64, u64) {
    let mut rng = Rng::new(5);
    let gaps: Vec<u64> = (0..1 << 14)
        .map(|i| match gap {
            Gap::Exponential => (-1e6 * (1.0 - rng.unit()).ln()) as u64,
            Gap::Net if i % 25 == 0 => 1_000_000 + rng.below(9_000_000),
            Gap::Net => 120_000 + rng.below(120_000),
        })
        .collect();
    let mut queue = Q::new();
    (0..pending).for_each(|i| queue.push(gaps[i as usize % gaps.len()], i));
    let (mut digest, mut i) = (0u64, 0);
    // Reach the steady state first.
    let clock = Instant::now();
    let mut began = 0.0;
    for step in 0..holds + u64::from(pending) * 4 {
        if step == u64::from(pending) * 4 {
            began = cpu_ns(clock);
        }
        let (at, item) = queue.pop();
        digest = digest.rotate_left(7) ^ at ^ u64::from(item);
        i = (i + 1) % gaps.len();
        queue.push(at + gaps[i], item);
    }
    (holds as f64 / (cpu_ns(clock) - began) * 1e3, digest)
}

fn main() {
    let millions = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(5);
    let cases = [(64, Gap::Exponential), (4_096, Gap::Exponential), (262_144, Gap::Exponential)];
    let net = [10, 100, 1_000, 10_000].map(|links| (links, Gap::Net));
    let cases: Vec<_> = cases.into_iter().chain(net).collect();
    println!("millions of holds a CPU second (take the first out, put it in again)");
    print!("{:<22}", "pending");
    for (pending, gap) in &cases {
        let name = if matches!(gap, Gap::Net) { "Net " } else { "" };
        print!(" {:>10}", format!("{name}{pending}"));
    }
    println!();
    let mut digests: Vec<Vec<u64>> = Vec::new();
    let mut row = |name: &str, run: &dyn Fn(u32, Gap) -> (f64, u64)| {
        print!("{name:<22}");
        let mut seen = Vec::new();
        for &(pending, gap) in &cases {
            let (rate, digest) = run(pending, gap);
            print!(" {rate:>10.1}");
            seen.push(digest);
        }
        println!();
        digests.push(seen);
    };
    row(EventQueue::<u32>::NAME, &|n, gap| hold::<EventQueue<u32>>(n, gap, millions * 1_000_000));
    row(Binary::NAME, &|n, gap| hold::<Binary>(n, gap, millions * 1_000_000));
    row(Quaternary::NAME, &|n, gap| hold::<Quaternary>(n, gap, millions * 1_000_000));
    row(Radix::NAME, &|n, gap| hold::<Radix>(n, gap, millions * 1_000_000));
    row(Wheel::NAME, &|n, gap| hold::<Wheel>(n, gap, millions * 1_000_000));
    assert!(digests.windows(2).all(|pair| pair[0] == pair[1]), "all put them in the same order");
}
