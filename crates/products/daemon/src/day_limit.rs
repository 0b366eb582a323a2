//! Rate limits by the time of day: a function of the minute.

use std::fmt;
use std::str::FromStr;

use anabranch::Rate;
use anabranch_net::quantity;

/// The minutes of a day.
const DAY: u16 = 24 * 60;

/// A rate limit that holds at some time of each day, or always: `1M@08:00-18:00`, `none@22:00-06:00`, `5M`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DayLimit {
    /// The limit; `None` for no limit.
    rate: Option<Rate>,
    /// The first minute of the day at which it holds, and the first at which it does not any more.
    span: Option<(u16, u16)>,
}

impl DayLimit {
    /// Whether it holds at some time of the day only.
    #[must_use]
    pub const fn is_of_a_time(&self) -> bool {
        self.span.is_some()
    }

    /// Whether it holds at a minute of the day.
    const fn holds(&self, minute: u16) -> bool {
        match self.span {
            None => true,
            Some((from, to)) if from < to => from <= minute && minute < to,
            // It goes on after midnight.
            Some((from, to)) => from <= minute || minute < to,
        }
    }
}

/// Returns the limit at a minute of the day, counted from midnight: the first of those with a time that
/// holds, or else the one without a time.
#[must_use]
pub fn at(limits: &[DayLimit], minute: u16) -> Option<Rate> {
    let timed = limits.iter().filter(|limit| limit.span.is_some()).find(|limit| limit.holds(minute));
    timed.or_else(|| limits.iter().find(|limit| limit.span.is_none())).and_then(|limit| limit.rate)
}

impl FromStr for DayLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (rate, span) = match text.split_once('@') {
            None => (text, None),
            Some((rate, span)) => {
                let wrong = || format!("'{span}' is no time of day: write 08:00-18:00");
                let (from, to) = span.split_once('-').ok_or_else(wrong)?;
                let (from, to) = (minute(from).ok_or_else(wrong)?, minute(to).ok_or_else(wrong)?);
                let (from, to) = (from % DAY, to % DAY);
                if from == to {
                    return Err(format!("'{span}' is no time at all, or the whole day: leave it out"));
                }
                (rate, Some((from, to)))
            }
        };
        let rate = if rate == "none" { None } else { Some(quantity::rate(rate)?) };
        Ok(Self { rate, span })
    }
}

/// Reads `HH:MM`, at most `24:00`.
fn minute(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |text: &str| {
        let is_plain = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        if is_plain { text.parse::<u16>().ok() } else { None }
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let at = hours * 60 + minutes;
    (minutes < 60 && at <= DAY).then_some(at)
}

impl fmt::Display for DayLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rate {
            None => f.write_str("none")?,
            Some(rate) => write!(f, "{}", rate.as_bytes())?,
        }
        match self.span {
            None => Ok(()),
            Some((from, to)) => {
                write!(f, "@{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, to / 60, to % 60)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limits(texts: &[&str]) -> Vec<DayLimit> {
        texts.iter().map(|text| text.parse().expect(text)).collect()
    }

    #[test]
    fn the_first_that_holds_decides() {
        let all = limits(&["5M", "1M@08:00-18:00", "2M@17:00-19:00", "none@22:00-06:00"]);
        let rate = |hours: u16, minutes: u16| at(&all, hours * 60 + minutes).map(Rate::as_bytes);
        for (hours, minutes, wanted) in [
            (7, 59, Some(5_000_000)),
            (8, 0, Some(1_000_000)),
            (17, 59, Some(1_000_000)),
            (18, 0, Some(2_000_000)),
            (19, 0, Some(5_000_000)),
            (22, 0, None),
            (0, 0, None),
            (5, 59, None),
            (6, 0, Some(5_000_000)),
        ] {
            assert_eq!(rate(hours, minutes), wanted, "{hours}:{minutes}");
        }
        assert_eq!(at(&[], 0), None);
        let until_midnight = limits(&["1M@20:00-24:00"]);
        assert!(at(&until_midnight, 1_439).is_some() && at(&until_midnight, 0).is_none());
    }

    #[test]
    fn what_is_no_limit() {
        for text in [
            "",
            "@",
            "1M@",
            "1M@8-18",
            "1M@08:00",
            "1M@08:00-08:00",
            "1M@25:00-26:00",
            "1M@08:60-09:00",
            "fast@08:00-18:00",
            "1M@00:00-24:00",
            "1M@+8:00-18:00",
            "10@08:00-18:00",
        ] {
            assert!(text.parse::<DayLimit>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_text_is_read_as_the_same(from in 0_u16..DAY, length in 1_u16..DAY, minute in 0_u16..DAY) {
            let span = Some((from, (from + length) % DAY));
            let limit = DayLimit { rate: Some(Rate::from_bytes(9_999)), span };
            prop_assert_eq!(limit.to_string().parse(), Ok(limit));
            let since = (minute + DAY - from) % DAY;
            prop_assert_eq!(at(&[limit], minute).is_some(), since < length);
        }
    }
}
