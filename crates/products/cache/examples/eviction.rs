//! Measures eviction rules on generated requests: `cargo run --release -p anabranch-cache
//! --no-default-features --example eviction`. Prints the part of requests that miss, for LRU, SIEVE and
//! the store's S3-FIFO.
//!
//! A trace has a million requests for 100,000 objects whose popularity follows Zipf's law, with sizes from
//! 1 to 64. In half of the traces every 100,000th request begins a scan of 20,000 objects that are asked
//! for only once.

use std::collections::{BTreeMap, VecDeque};

use anabranch_cache::eviction::Eviction;

const OBJECTS: usize = 100_000;
const REQUESTS: usize = 1_000_000;
const SCAN_EVERY: usize = 100_000;
const SCAN_OBJECTS: usize = 20_000;

/// A generator of numbers (xorshift64*), so that every run prints the same table.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number between 0 and 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Returns the size of an object.
fn bytes_of(key: u64) -> u64 {
    1 + Random(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1).next() % 64
}

/// Makes a trace: the keys in the order of the requests.
fn trace(exponent: f64, scans: bool, seed: u64) -> Vec<u64> {
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=OBJECTS)
        .map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        })
        .collect();
    let mut random = Random(seed);
    let (mut keys, mut once) = (Vec::with_capacity(REQUESTS), OBJECTS as u64);
    while keys.len() < REQUESTS {
        if scans && keys.len() % SCAN_EVERY == 0 {
            keys.extend(once..once + SCAN_OBJECTS as u64);
            once += SCAN_OBJECTS as u64;
        }
        let at = random.unit() * sum;
        keys.push(sums.partition_point(|sum| *sum < at) as u64);
    }
    keys
}

/// An eviction rule: answers whether a request hits, and takes the object otherwise.
trait Rule {
    fn hit(&mut self, key: u64) -> bool;
}

impl Rule for Eviction<u64> {
    fn hit(&mut self, key: u64) -> bool {
        let hit = self.request(&key);
        if !hit {
            self.insert(key, bytes_of(key));
        }
        hit
    }
}

/// Least recently used.
struct Lru {
    capacity: u64,
    bytes: u64,
    clock: u64,
    at: BTreeMap<u64, u64>,
    order: BTreeMap<u64, u64>,
}

impl Rule for Lru {
    fn hit(&mut self, key: u64) -> bool {
        self.clock += 1;
        let before = self.at.insert(key, self.clock);
        if let Some(before) = before {
            self.order.remove(&before);
        } else {
            while self.bytes + bytes_of(key) > self.capacity {
                let Some((_, old)) = self.order.pop_first() else { break };
                self.at.remove(&old);
                self.bytes -= bytes_of(old);
            }
            self.bytes += bytes_of(key);
        }
        self.order.insert(self.clock, key);
        before.is_some()
    }
}

/// SIEVE (Zhang, Yang, Yue, Vigfusson, Rashmi, NSDI 2024, Algorithm 1): one queue, a bit an object, and a
/// hand that stays where it evicted.
struct Sieve {
    capacity: u64,
    bytes: u64,
    visited: BTreeMap<u64, bool>,
    /// The objects between the hand and the newest, and those that the hand has passed, the oldest first.
    ahead: VecDeque<u64>,
    passed: VecDeque<u64>,
}

impl Rule for Sieve {
    fn hit(&mut self, key: u64) -> bool {
        if let Some(visited) = self.visited.get_mut(&key) {
            *visited = true;
            return true;
        }
        while self.bytes + bytes_of(key) > self.capacity {
            if self.ahead.is_empty() {
                std::mem::swap(&mut self.ahead, &mut self.passed);
            }
            let Some(old) = self.ahead.pop_front() else { break };
            if self.visited.get(&old) == Some(&true) {
                self.visited.insert(old, false);
                self.passed.push_back(old);
            } else {
                self.visited.remove(&old);
                self.bytes -= bytes_of(old);
            }
        }
        self.bytes += bytes_of(key);
        self.visited.insert(key, false);
        self.ahead.push_back(key);
        false
    }
}

/// Returns the part of requests that miss, in percent.
fn misses(rule: &mut dyn Rule, keys: &[u64]) -> f64 {
    let missed = keys.iter().filter(|key| !rule.hit(**key)).count();
    100.0 * missed as f64 / keys.len() as f64
}

fn main() {
    let all: u64 = (0..OBJECTS as u64).map(bytes_of).sum();
    println!("Zipf  scans  capacity     LRU   SIEVE  S3-FIFO   (misses, percent of requests)");
    for exponent in [0.8, 1.0] {
        for scans in [false, true] {
            let keys = trace(exponent, scans, 7);
            for percent in [1, 5, 20] {
                let capacity = all * percent / 100;
                let (at, order, visited) = Default::default();
                let mut lru = Lru { capacity, bytes: 0, clock: 0, at, order };
                let (ahead, passed) = Default::default();
                let mut sieve = Sieve { capacity, bytes: 0, visited, ahead, passed };
                let row = [&mut lru as &mut dyn Rule, &mut sieve, &mut Eviction::new(capacity)]
                    .map(|r| misses(r, &keys));
                let said = if scans { "yes" } else { "no" };
                println!(
                    "{exponent:4}  {said:5}  {percent:6} %  {:6.2}  {:6.2}  {:7.2}",
                    row[0], row[1], row[2]
                );
            }
        }
    }
}
