//! Notices that a radio link is about to fade, so that its subflows become backups before packets are lost.
//!
//! **Source.** Our own, after the experience of Trilogy 2, Deliverable D3.3, section 2.2: a path over an AP
//! that delivers little is best made a backup (MP_PRIO), and beacons tell of the AP before packets do. The
//! option takes a round trip, and packets in flight must still arrive, so the decision looks ahead.
//!
//! **Rule.** The mean signal of the older half of the last second is compared with that of the newer half,
//! and the difference is continued for a further second. The link fades if the signal is then at most
//! [`WEAK_DBM`], if more than [`REPEATS_MAX_PERCENT`] of the attempts of the last second were retries, if a
//! packet in twenty was given up, or if a beacon was missed. It is good again after [`CALM`] in which each
//! reading had a signal of at least [`STRONG_DBM`], both now and continued, fewer than
//! [`REPEATS_CALM_PERCENT`] retries, no packet given up and no beacon missed. The first decision is made at
//! the second reading. A radio that reports no signal is judged by the rest.

use alloc::collections::VecDeque;

use super::{Airtime, PacketTime, Probability};
use crate::{Rate, Span, Time};

/// The time for which readings count.
const WINDOW: Span = Span::from_secs(1);
/// The most readings that are kept. With more in a second, the oldest goes early.
const READINGS_MAX: usize = 64;
/// The time by which the signal's change is continued.
const AHEAD: Span = Span::from_secs(1);
/// The signal at which a link fades, in dBm: the least that the lowest bit rates of 802.11 need is about -82.
pub const WEAK_DBM: i32 = -80;
/// The signal that a link needs to be good again, in dBm.
pub const STRONG_DBM: i32 = -74;
/// The share of retries in all attempts beyond which a link fades.
pub const REPEATS_MAX_PERCENT: u64 = 60;
/// The share of retries that a link may have to be good again.
pub const REPEATS_CALM_PERCENT: u64 = 40;
/// The share of packets given up, in percent, from which a link fades.
const LOST_MAX_PERCENT: u64 = 5;
/// The attempts in the window below which shares say nothing.
const ATTEMPTS_MIN: u64 = 20;
/// The time for which a link must be good before it counts as good again.
pub const CALM: Span = Span::from_secs(3);
/// The parts of a decibel in which signals are averaged.
const PARTS: i64 = 256;
/// The time from which on the change of the signal is known.
const SLOPE_OVER: Span = Span::from_millis(800);
/// The least change of the signal that is continued, in decibels a second: less is the noise of readings.
const SLOPE_MIN_DB: i64 = 2;
/// The change of the signal, in decibels a second, that is believed at most: one reading may be wrong.
const SLOPE_MAX_DB: i64 = 40;

/// The state of a station as its driver reports it. The counters count from the association on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The signal of received frames, in dBm.
    pub signal_dbm: Option<i8>,
    /// The bit rate of sent frames.
    pub rate: Option<Rate>,
    /// Packets sent.
    pub packets: u64,
    /// Attempts beyond the first of each packet.
    pub retries: u64,
    /// Packets given up.
    pub lost: u64,
    /// Times that the driver missed beacons.
    pub beacons_missed: u64,
}

/// The reason why a link is judged as fading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FadeCause {
    /// The signal is weak, or will be in a second: the mean signal now and then, in dBm.
    Signal {
        /// The mean of the newer half of the window.
        now_dbm: i32,
        /// The signal in a second.
        soon_dbm: i32,
    },
    /// So many percent of the attempts are retries.
    Retries(u64),
    /// So many percent of the packets are given up.
    Losses(u64),
    /// Beacons were missed.
    Beacons,
    /// The link is good, but has not been for long enough.
    NotCalm,
}

/// Watches one radio link: see the first lines of the file.
#[derive(Clone, Debug, Default)]
pub struct FadeWatch {
    readings: VecDeque<(Time, Reading)>,
    fading: Option<FadeCause>,
    /// Since when every reading has been good.
    calm_since: Option<Time>,
}

/// What a window of readings says.
struct Window {
    /// The signal now and in a second, in parts of a decibel.
    signal: Option<(i64, i64)>,
    /// Percent of attempts that are retries, and of packets that are given up.
    shares: Option<(u64, u64)>,
    missed_beacons: bool,
}

impl FadeWatch {
    /// Creates a watch without readings. The link is not fading.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns why the link fades; `None` if it does not.
    #[must_use]
    pub const fn fading(&self) -> Option<FadeCause> {
        self.fading
    }

    /// Takes a reading, and returns whether the verdict has changed between fading and good. A reading whose
    /// counters are lower than the last one's is of a new association, and the earlier ones are forgotten;
    /// a verdict of fading stays until the link is calm.
    pub fn read(&mut self, now: Time, reading: Reading) -> bool {
        let is_new = self.readings.back().is_some_and(|(_, last)| {
            let Reading { packets, retries, lost, beacons_missed, .. } = reading;
            packets < last.packets
                || retries < last.retries
                || lost < last.lost
                || beacons_missed < last.beacons_missed
        });
        if is_new {
            self.readings.clear();
        }
        let is_old = |(at, _): &(Time, Reading)| now.since(*at) > WINDOW;
        // One older reading stays, so that a slow reader has two.
        while self.readings.len() >= READINGS_MAX
            || self.readings.len() > 1 && self.readings.get(1).is_some_and(is_old)
        {
            self.readings.pop_front();
        }
        self.readings.push_back((now, reading));
        let before = self.fading.is_some();
        self.judge(now);
        before != self.fading.is_some()
    }

    /// Returns the mean time in which the station's driver delivers a packet of 1,500 bytes, by equation
    /// (2.1); `None` if it reports no bit rate or has sent too little in the last second.
    #[must_use]
    pub fn packet_time(&self) -> Option<PacketTime> {
        let (_, newest) = self.readings.back()?;
        let (attempts, retries) = self.attempts()?;
        // The gaps and the contention interval are those of 802.11n: SIFS, DIFS, 7.5 slots of 9 µs.
        let airtime = Airtime {
            packet_bytes: 1_500,
            rate: newest.rate?,
            overhead: Span::from_micros(94),
            contention: Span::from_nanos(67_500),
            retries: 7,
        };
        Some(airtime.packet_time(Probability::of(retries, attempts)))
    }

    /// Returns the attempts in the window, and those of them that are retries.
    fn attempts(&self) -> Option<(u64, u64)> {
        let ((_, old), (_, new)) = (self.readings.front()?, self.readings.back()?);
        let retries = new.retries.saturating_sub(old.retries);
        let lost = new.lost.saturating_sub(old.lost);
        let packets = new.packets.saturating_sub(old.packets).saturating_add(lost);
        let attempts = packets.saturating_add(retries);
        (attempts >= ATTEMPTS_MIN).then_some((attempts, retries))
    }

    fn window(&self) -> Option<Window> {
        let ((first_at, old), (last_at, new)) = (*self.readings.front()?, *self.readings.back()?);
        if last_at == first_at {
            return None;
        }
        let middle = Span::from_nanos(last_at.since(first_at).as_nanos() / 2);
        let mean = |is_new: bool| {
            let (mut sum, mut times, mut count) = (0_i64, 0_u128, 0_u32);
            for (at, reading) in &self.readings {
                if let Some(dbm) = reading.signal_dbm
                    && (at.since(first_at) > middle) == is_new
                {
                    (sum, count) = (sum + i64::from(dbm) * PARTS, count + 1);
                    times += u128::from(at.since(first_at).as_nanos());
                }
            }
            (count > 0).then(|| (sum / i64::from(count), (times / u128::from(count)) as u64))
        };
        let signal = mean(true).map(|(new_mean, new_at)| {
            // A shorter window is all noise.
            let old = mean(false).filter(|_| last_at.since(first_at) >= SLOPE_OVER);
            let slope = old.map_or(0, |(old_mean, old_at)| {
                let apart = (new_at.saturating_sub(old_at)).max(1);
                let slope = i128::from(new_mean - old_mean) * 1_000_000_000 / i128::from(apart);
                let slope = slope.clamp(i128::from(-SLOPE_MAX_DB * PARTS), i128::from(SLOPE_MAX_DB * PARTS));
                if slope.abs() < i128::from(SLOPE_MIN_DB * PARTS) { 0 } else { slope as i64 }
            });
            // From the middle of the newer half to a second from now.
            let ahead = last_at.since(first_at + Span::from_nanos(new_at)).as_nanos() + AHEAD.as_nanos();
            (new_mean, new_mean + (i128::from(slope) * i128::from(ahead) / 1_000_000_000) as i64)
        });
        let shares = self.attempts().map(|(attempts, retries)| {
            let (lost, sent) = (new.lost.saturating_sub(old.lost), new.packets.saturating_sub(old.packets));
            (share(retries, attempts), share(lost, sent.saturating_add(lost)))
        });
        Some(Window { signal, shares, missed_beacons: new.beacons_missed > old.beacons_missed })
    }

    fn judge(&mut self, now: Time) {
        let Some(window) = self.window() else { return };
        if let Some(cause) = window.fades() {
            (self.fading, self.calm_since) = (Some(cause), None);
        } else if self.fading.is_some() {
            let since = window.is_calm().then(|| self.calm_since.unwrap_or(now));
            self.calm_since = since;
            self.fading = match since {
                Some(since) if now.since(since) >= CALM => None,
                _ => Some(FadeCause::NotCalm),
            };
        }
    }
}

impl Window {
    fn fades(&self) -> Option<FadeCause> {
        if self.missed_beacons {
            return Some(FadeCause::Beacons);
        }
        if let Some((now, soon)) = self.signal
            && soon.min(now) <= i64::from(WEAK_DBM) * PARTS
        {
            let dbm = |parts: i64| (parts.max(-200 * PARTS) / PARTS) as i32;
            return Some(FadeCause::Signal { now_dbm: dbm(now), soon_dbm: dbm(soon) });
        }
        let (retries, lost) = self.shares?;
        if lost >= LOST_MAX_PERCENT {
            return Some(FadeCause::Losses(lost));
        }
        (retries > REPEATS_MAX_PERCENT).then_some(FadeCause::Retries(retries))
    }

    fn is_calm(&self) -> bool {
        let strong = self.signal.is_none_or(|(now, soon)| now.min(soon) >= i64::from(STRONG_DBM) * PARTS);
        strong && self.shares.is_none_or(|(retries, lost)| retries < REPEATS_CALM_PERCENT && lost == 0)
    }
}

/// Returns `part` of `whole` in percent; 0 of nothing.
const fn share(part: u64, whole: u64) -> u64 {
    if whole == 0 { 0 } else { (part as u128 * 100 / whole as u128) as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn signal(dbm: i64) -> Reading {
        Reading { signal_dbm: Some(dbm as i8), ..Reading::default() }
    }

    #[test]
    fn a_falling_signal_is_noticed_before_it_is_weak() {
        // A walk away from the AP: 5 dB a second, from -60 dBm.
        let mut watch = FadeWatch::new();
        let mut found = None;
        for step in 0..60_i64 {
            if watch.read(at(step as u64 * 100), signal(-60 - step / 2)) {
                found = found.or(Some(-60 - step / 2));
            }
        }
        let found = found.expect("it fades");
        assert!((-77..=-73).contains(&found), "a second before -80 dBm: {found}");
        assert!(matches!(watch.fading(), Some(FadeCause::Signal { .. })), "{:?}", watch.fading());
    }

    #[test]
    fn a_steady_signal_never_flips_and_the_verdict_is_held() {
        for dbm in [-45, -60, -72, -76, -78] {
            let mut watch = FadeWatch::new();
            // The noise of a real driver is two decibels.
            for step in 0..600_u64 {
                let noise = [0, 1, 0, -1, 1, 0, -1, 0][step as usize % 8];
                assert!(!watch.read(at(step * 100), signal(dbm + noise)), "{dbm} at {step}");
            }
        }
        // Around the limit: at most one change in the time of calm.
        let (mut watch, mut flips) = (FadeWatch::new(), 0);
        for step in 0..6_000_u64 {
            let wave = [-6, 0, 6, 0][(step / 15) as usize % 4];
            flips += u64::from(watch.read(at(step * 100), signal(-77 + wave)));
        }
        assert!(flips <= 600 / 3, "{flips}");
    }

    #[test]
    fn it_is_good_again_only_after_calm() {
        let mut watch = FadeWatch::new();
        for step in 0..10_u64 {
            watch.read(at(step * 100), signal(-85));
        }
        assert!(watch.fading().is_some());
        let mut good_at = None;
        for step in 10..100_u64 {
            if watch.read(at(step * 100), signal(-55)) {
                good_at = Some(step * 100);
            }
        }
        let good_at = good_at.expect("it is good again");
        assert!((4_000..=5_500).contains(&good_at), "{good_at}");
        assert_eq!(watch.fading(), None);
    }

    #[test]
    fn retries_losses_and_beacons_tell_without_a_signal() {
        let run = |each: &dyn Fn(u64) -> Reading| {
            let mut watch = FadeWatch::new();
            for step in 0..20_u64 {
                watch.read(at(step * 100), each(step));
            }
            watch.fading()
        };
        let of = |packets, retries, lost| {
            move |step| Reading {
                packets: step * packets,
                retries: step * retries,
                lost: step * lost,
                ..Reading::default()
            }
        };
        assert_eq!(run(&of(100, 40, 0)), None);
        assert_eq!(run(&of(100, 300, 0)), Some(FadeCause::Retries(75)));
        assert_eq!(run(&of(90, 40, 10)), Some(FadeCause::Losses(10)));
        assert_eq!(run(&of(1, 5, 0)), Some(FadeCause::Retries(83)), "60 attempts in the window");
        assert_eq!(run(&of(0, 1, 0)), None, "too few attempts");
        let beacons = |step| Reading { beacons_missed: u64::from(step > 15), ..Reading::default() };
        assert_eq!(run(&beacons), Some(FadeCause::Beacons));
    }

    #[test]
    fn a_new_association_forgets_the_counters_and_keeps_the_verdict() {
        let mut watch = FadeWatch::new();
        for step in 0..10_u64 {
            watch.read(at(step * 100), Reading { packets: 1_000 + step, ..signal(-85) });
        }
        assert!(!watch.read(at(1_000), Reading { packets: 3, ..signal(-50) }), "not calm yet");
        assert!(watch.fading().is_some());
        assert_eq!(watch.packet_time(), None);
    }

    #[test]
    fn the_packet_time_is_that_of_the_airtime() {
        let mut watch = FadeWatch::new();
        let rate = Some(Rate::from_bits(65_000_000));
        watch.read(at(0), Reading { rate, ..Reading::default() });
        watch.read(at(500), Reading { rate, packets: 800, retries: 200, ..Reading::default() });
        let airtime = Airtime {
            packet_bytes: 1_500,
            rate: Rate::from_bits(65_000_000),
            overhead: Span::from_micros(94),
            contention: Span::from_nanos(67_500),
            retries: 7,
        };
        assert_eq!(watch.packet_time(), Some(airtime.packet_time(Probability::of(1, 5))));
    }

    #[test]
    fn whatever_comes_it_never_panics() {
        let mut random = crate::SplitMix64(7);
        for _ in 0..200 {
            let mut watch = FadeWatch::new();
            let mut now = 0_u64;
            for _ in 0..200 {
                now = now.saturating_add(random.bits() >> (random.bits() % 64));
                let mut any = || random.bits() >> (random.bits() % 64);
                let reading = Reading {
                    signal_dbm: Some(any() as i8),
                    rate: Some(Rate::from_bytes(any())),
                    packets: any(),
                    retries: any(),
                    lost: any(),
                    beacons_missed: any() % 3,
                };
                watch.read(Time::from_nanos(now), reading);
                let _ = watch.packet_time();
                assert!(watch.readings.len() <= READINGS_MAX);
            }
        }
    }
}
