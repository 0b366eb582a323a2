//! The time of day where this machine is.

use std::mem::MaybeUninit;
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the minute of the local day, from 0 to 1,439.
#[must_use]
pub(crate) fn minute_of_day() -> u16 {
    #[expect(clippy::disallowed_methods, reason = "limits by the time of day are about the wall clock")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    minute_at(libc::time_t::try_from(now).unwrap_or_default())
}

/// Returns the minute of the local day at a time since 1970, in seconds.
fn minute_at(seconds: libc::time_t) -> u16 {
    let mut local = MaybeUninit::<libc::tm>::uninit();
    // SAFETY: both pointers are valid for the call, and localtime_r(3) keeps neither of them.
    let is_known = unsafe { !libc::localtime_r(&raw const seconds, local.as_mut_ptr()).is_null() };
    if !is_known {
        return u16::try_from(seconds / 60 % (24 * 60)).unwrap_or_default();
    }
    // SAFETY: localtime_r(3) has filled the structure, as it returned no null pointer.
    let local = unsafe { local.assume_init() };
    u16::try_from(local.tm_hour * 60 + local.tm_min).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_follow_each_other() {
        assert!(minute_of_day() < 1_440);
        // Every time zone is whole minutes from UTC today.
        let (first, next) = (minute_at(1_700_000_040), minute_at(1_700_000_100));
        assert_eq!(next, (first + 1) % 1_440);
    }
}
