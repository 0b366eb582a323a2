//! A token bucket for each user and direction (RFC 2697's committed burst alone): what comes faster than the
//! rate is dropped.

use crate::abi::{Side, Verdict};
use crate::flow::Address;
use crate::function::{About, Function};
use crate::packet::Packet;
use crate::report::Report;
use crate::settings::{Wrong, number_within};
use crate::table::{Plain, Table};

/// The number of sets of users: 1,024 users in each direction.
const SETS: usize = 256;
/// A user that was silent for so long has a full bucket in any case, or its place is worth more;
/// milliseconds.
const IDLE_MS: u64 = 60_000;
/// The least burst: one large packet.
const BURST_MIN: u64 = 1_514;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Bytes times 1,000 that may pass now.
    tokens: u64,
    /// When they were counted, milliseconds.
    at_ms: u64,
}

#[expect(unsafe_code, reason = "a bucket is integers")]
// SAFETY: it consists of two numbers.
unsafe impl Plain for Bucket {}

/// A rate limiter.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Limiter {
    /// Bytes a second for each user and direction.
    rate: u64,
    /// Bytes that may come at once; 0 until [`Function::begin`] has chosen.
    burst: u64,
    passed: u64,
    dropped: u64,
    buckets: [Table<Address, Bucket, SETS>; 2],
}

#[expect(unsafe_code, reason = "a limiter is integers")]
// SAFETY: it consists of numbers and tables of plain entries.
unsafe impl Plain for Limiter {}

impl Function for Limiter {
    const NEW: Self = Self {
        rate: 0,
        burst: 0,
        passed: 0,
        dropped: 0,
        buckets: [Table::new(Address(0), Bucket { tokens: 0, at_ms: 0 }); 2],
    };

    fn set(&mut self, key: &str, value: &str) -> Result<(), Wrong> {
        match key {
            "rate" => self.rate = number_within(value, 1, 1 << 40, "1 to 1099511627776 bytes a second")?,
            "burst" => self.burst = number_within(value, BURST_MIN, 1 << 32, "1514 to 4294967296 bytes")?,
            _ => return Err(Wrong("a limiter has rate and burst, in bytes")),
        }
        Ok(())
    }

    fn begin(&mut self, _addresses: [u32; 2]) -> Result<(), Wrong> {
        if self.rate == 0 {
            return Err(Wrong("a limiter needs a rate, in bytes a second"));
        }
        if self.burst == 0 {
            // A tenth of a second.
            self.burst = (self.rate / 10).max(2 * BURST_MIN);
        }
        Ok(())
    }

    fn packet(&mut self, about: About, packet: &mut Packet<'_>) -> Verdict {
        let user = match about.from {
            Side::Inside => Address(packet.source()),
            Side::Outside => Address(packet.destination()),
        };
        let (now_ms, most) = (about.now_ms, self.burst * 1_000);
        let buckets = &mut self.buckets[about.from as usize];
        let is_known = buckets.get(&user, about.seed, now_ms, IDLE_MS).is_some();
        if !is_known {
            buckets.add(user, Bucket { tokens: most, at_ms: now_ms }, about.seed, now_ms, IDLE_MS);
        }
        let Some(bucket) = buckets.peek(&user, about.seed, now_ms, IDLE_MS) else { return Verdict::Drop };
        let more = now_ms.saturating_sub(bucket.at_ms).saturating_mul(self.rate);
        bucket.tokens = bucket.tokens.saturating_add(more).min(most);
        bucket.at_ms = now_ms;
        match bucket.tokens.checked_sub(packet.bytes().len() as u64 * 1_000) {
            Some(left) => {
                bucket.tokens = left;
                self.passed += 1;
                Verdict::Pass
            }
            None => {
                self.dropped += 1;
                Verdict::Drop
            }
        }
    }

    fn report(&self, now_ms: u64, report: &mut Report<'_>) {
        report.number("passed", self.passed);
        report.number("dropped", self.dropped);
        report.number("users", self.buckets[0].count(now_ms, IDLE_MS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::PACKET_BYTES_MAX;
    use crate::function::Instance;
    use crate::packet::{End, UDP};
    use crate::test_packets::transport;

    #[test]
    fn each_user_gets_the_rate() {
        let mut limiter = Instance::<Limiter>::new();
        limiter.start("inside 10.1.0.1\nseed 3\nrate 100k\nburst 10k").unwrap();
        let to = End { address: 9, port: 9 };
        let mut passed = [0_u64; 2];
        // Each user sends 1,000 bytes every millisecond for 10 s: ten times the rate.
        for now_ms in 1..=10_000 {
            for user in 0..2_u32 {
                let bytes = transport(UDP, End { address: 0x0a01_0002 + user, port: 1 }, to, &[0; 972]);
                let mut place = [0; PACKET_BYTES_MAX];
                place[..bytes.len()].copy_from_slice(&bytes);
                let answer = limiter.packet(now_ms, Side::Inside, &mut place, bytes.len());
                passed[user as usize] += u64::from(answer.verdict == Verdict::Pass);
            }
        }
        for user in passed {
            assert!((1_005..=1_011).contains(&user), "{user} packets of 1,000 + 10 of burst");
        }
    }

    #[test]
    fn a_limiter_needs_a_rate() {
        assert!(Instance::<Limiter>::new().start("inside 10.1.0.1").is_err());
        assert!(Instance::<Limiter>::new().start("rate 0").is_err());
        assert!(Instance::<Limiter>::new().start("burst 100").is_err());
    }
}
