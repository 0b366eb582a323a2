//! Computes when the periods of caps begin and end, in Coordinated Universal Time, without a clock.

use anabranch_net::via::Period;

const DAY: i64 = 86_400;

/// The bounds of a period.
pub(crate) trait Bounds {
    /// Returns the beginning of the period that contains `unix_s`. Both are seconds since 1970-01-01.
    fn begin(self, unix_s: i64) -> i64;

    /// Returns the beginning of the next period, in seconds since 1970-01-01.
    fn end(self, unix_s: i64) -> i64;
}

impl Bounds for Period {
    fn begin(self, unix_s: i64) -> i64 {
        let days = unix_s.div_euclid(DAY);
        match self {
            Self::Day => days * DAY,
            // 1970-01-01 was a Thursday.
            Self::Week => (days - (days + 3).rem_euclid(7)) * DAY,
            Self::Month => {
                let (year, month) = year_and_month(days);
                first_of(year, month) * DAY
            }
        }
    }

    fn end(self, unix_s: i64) -> i64 {
        let begin = self.begin(unix_s);
        match self {
            Self::Day => begin + DAY,
            Self::Week => begin + 7 * DAY,
            // No month has more than 31 days, so this day is in the next month.
            Self::Month => self.begin(begin + 31 * DAY),
        }
    }
}

/// Returns the days before this year since 0000-03-01. Years are counted from March on, so that a leap day is
/// the last of its year (as in `days_from_civil` of C++'s `<chrono>`).
const fn days_before(year: i64) -> i64 {
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400)
}

/// The days between 0000-03-01 and 1970-01-01.
const EPOCH: i64 = 719_468;

/// Returns the first day of this month, in days since 1970-01-01. March is month 0.
const fn first_of(year: i64, month: i64) -> i64 {
    days_before(year) + (153 * month + 2) / 5 - EPOCH
}

/// Returns the year that begins in March, and the month in it, for a day since 1970-01-01.
const fn year_and_month(days: i64) -> (i64, i64) {
    let days = days + EPOCH;
    // This is at most one too high or too low.
    let mut year = days * 400 / 146_097;
    while days_before(year) > days {
        year -= 1;
    }
    while days_before(year + 1) <= days {
        year += 1;
    }
    (year, (5 * (days - days_before(year)) + 2) / 153)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_dates() {
        // The time is 2026-11-24 10:20:00, a Tuesday.
        let now = 1_795_515_600;
        assert_eq!(Period::Day.begin(now), 1_795_478_400);
        assert_eq!(Period::Day.end(now), 1_795_564_800);
        assert_eq!(Period::Week.begin(now), 1_795_392_000, "Monday 2026-11-23");
        assert_eq!(Period::Week.end(now), 1_795_996_800);
        assert_eq!(Period::Month.begin(now), 1_793_491_200, "2026-11-01");
        assert_eq!(Period::Month.end(now), 1_796_083_200, "2026-12-01");
        // The time is 2028-02-29 12:00.
        assert_eq!(Period::Month.begin(1_835_438_400), 1_832_976_000, "2028-02-01");
        assert_eq!(Period::Month.end(1_835_438_400), 1_835_481_600, "2028-03-01");
        assert_eq!(Period::Month.begin(0), 0);
        assert_eq!(Period::Month.begin(-1), -31 * DAY);
    }

    proptest! {
        #[test]
        fn a_moment_is_in_its_period_and_the_next_begins_where_it_ends(
            unix_s in -4_000_000_000_i64..20_000_000_000,
            n in 0..3_usize,
        ) {
            let period = [Period::Day, Period::Week, Period::Month][n];
            let (begin, end) = (period.begin(unix_s), period.end(unix_s));
            prop_assert!(begin <= unix_s && unix_s < end);
            prop_assert!((1..=31).contains(&((end - begin) / DAY)));
            prop_assert_eq!(period.begin(begin), begin);
            prop_assert_eq!(period.begin(end - 1), begin);
            prop_assert_eq!(period.begin(end), end);
        }
    }
}
