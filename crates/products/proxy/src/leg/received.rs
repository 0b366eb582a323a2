//! Records which packet numbers have arrived, in a window of bits that moves with the highest one (RFC 6479).
//! It detects repeated numbers and gives the ranges of acknowledgements.

/// The number of words of the window. The last word is still being filled.
const WORDS: usize = 32;
/// The width of the window. Lower numbers count as having arrived.
pub(super) const WINDOW: u64 = (WORDS as u64 - 1) * 64;

/// The numbers that have arrived; see the [module](self).
#[derive(Clone, Debug, Default)]
pub(super) struct Received {
    words: [u64; WORDS],
    /// One more than the highest number that arrived, or 0 before the first.
    next: u64,
}

impl Received {
    /// Returns the whole number whose lowest `bits` bits are `low`: the nearest one to the next expected
    /// number (RFC 9000 appendix A.3).
    pub(super) const fn expand(&self, low: u32, bits: u32) -> u64 {
        let window = 1_u64 << bits;
        let candidate = (self.next & !(window - 1)) | low as u64;
        if candidate + window / 2 <= self.next {
            candidate + window
        } else if candidate > self.next + window / 2 && candidate >= window {
            candidate - window
        } else {
            candidate
        }
    }

    /// Returns one more than the highest number that arrived.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Whether this number has not arrived, as far as the window shows.
    pub(super) const fn is_new(&self, number: u64) -> bool {
        number >= self.next || number + WINDOW >= self.next && !self.has(number)
    }

    /// Whether the bit of a number in the window is set.
    const fn has(&self, number: u64) -> bool {
        self.words[(number / 64) as usize % WORDS] & 1 << (number % 64) != 0
    }

    /// Records that this number has arrived. It must be [new](Self::is_new).
    pub(super) fn note(&mut self, number: u64) {
        if number >= self.next {
            // The words between stand for numbers that have not arrived.
            let (last, to) = (self.next.saturating_sub(1) / 64, number / 64);
            for word in (last + 1..=to).rev().take(WORDS) {
                self.words[word as usize % WORDS] = 0;
            }
            self.next = number + 1;
        }
        self.words[(number / 64) as usize % WORDS] |= 1 << (number % 64);
    }

    /// Counts the numbers just below `from`, not below `floor`, that have all arrived or all not arrived.
    fn run(&self, from: u64, floor: u64, has: bool) -> u16 {
        let mut at = from;
        while at > floor {
            let place = (at - 1) % 64;
            let word = self.words[((at - 1) / 64) as usize % WORDS];
            // The bits that are shifted in do not lengthen a run.
            let bits = if has { word } else { !word };
            let run = u64::from((bits << (63 - place)).leading_ones());
            let run = run.min(place + 1).min(at - floor);
            at -= run;
            if run <= place {
                break;
            }
        }
        // The window has fewer numbers than a `u16`, so this does not fail.
        u16::try_from(from - at).unwrap_or(u16::MAX)
    }

    /// Returns the numbers that have arrived, from the highest down: at most `count` pairs of how many are
    /// missing and how many have arrived.
    pub(super) fn ranges(&self, count: usize) -> Vec<(u16, u16)> {
        let (mut ranges, mut at) = (Vec::new(), self.next);
        let floor = self.next.saturating_sub(WINDOW);
        while ranges.len() < count && at > floor {
            let skip = self.run(at, floor, false);
            let there = self.run(at - u64::from(skip), floor, true);
            if there == 0 {
                break;
            }
            at -= u64::from(skip) + u64::from(there);
            ranges.push((skip, there));
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// The window behaves as a set that forgets the numbers below the window.
        #[test]
        fn as_a_set(
            steps in proptest::collection::vec((0u64..200, any::<bool>()), 1..400),
            far in 0u64..9_000,
        ) {
            let (mut received, mut all, mut base) = (Received::default(), BTreeSet::new(), 0);
            for (i, (step, jumps)) in steps.into_iter().enumerate() {
                base += if jumps && i % 50 == 7 { far } else { 3 };
                let number = base + step;
                let is_old = number + WINDOW < received.next();
                prop_assert_eq!(received.is_new(number), !is_old && !all.contains(&number));
                if received.is_new(number) {
                    received.note(number);
                    all.insert(number);
                }
                prop_assert_eq!(received.expand(number as u32 & 0xff_ffff, 24), number);
                let mut shown = Vec::new();
                let mut at = received.next();
                for (skip, there) in received.ranges(usize::MAX) {
                    at -= u64::from(skip);
                    shown.extend((at - u64::from(there)..at).rev());
                    at -= u64::from(there);
                }
                let floor = received.next().saturating_sub(WINDOW);
                prop_assert_eq!(shown, all.range(floor..).rev().copied().collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn numbers_expand_to_the_nearest() {
        let mut received = Received::default();
        received.note((1 << 24) - 2);
        assert_eq!(received.expand(5, 24), (1 << 24) + 5);
        assert_eq!(received.expand(0xff_fff0, 24), 0xff_fff0);
        received.note(1 << 24);
        assert_eq!(received.expand(0xff_ffff, 24), 0xff_ffff);
    }
}
