//! What is known of one interface.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use anabranch_algo::wifi::{FadeCause, FadeWatch, Reading};
use anabranch_algo::{Span, Time};
use anabranch_kernel::uplinks::SurveyedAddress;

use super::numbers::Numbers;
use super::report::{Report, State};
use crate::policy::Use;

/// The times for which a link must hold before it is taken back, after the first, second, … loss of the last
/// [`LOSSES_COUNT_FOR`]; the last one for all further ones.
pub const SETTLES: [Span; 4] =
    [Span::from_millis(50), Span::from_millis(100), Span::from_millis(200), Span::from_millis(400)];
/// The time for which a loss counts.
pub const LOSSES_COUNT_FOR: Span = Span::from_secs(10);

/// The most losses that are remembered; more make no difference.
const LOSSES_MAX: usize = SETTLES.len();

#[derive(Debug, Default)]
pub(super) struct Link {
    how: Use,
    is_ignored: bool,
    /// Its index and addresses while it can be used.
    here: Option<(u32, Vec<SurveyedAddress>)>,
    /// Why it cannot be used.
    why_not: String,
    slot: Option<usize>,
    /// When it may be used, if it came back a moment ago.
    settles_at: Option<Time>,
    recent_losses: VecDeque<Time>,
    losses: u64,
    ids: BTreeMap<IpAddr, u8>,
    /// The addresses with which it was an uplink last.
    had: BTreeSet<IpAddr>,
    watch: Option<FadeWatch>,
    reading: Option<Reading>,
    /// The better uplink because of which this one is a backup.
    better: Option<String>,
}

impl Link {
    /// Notes that the interface can be used with these addresses, or why it cannot.
    pub(super) fn see(
        &mut self,
        now: Time,
        how: Use,
        index: u32,
        addresses: &Result<Vec<SurveyedAddress>, String>,
    ) {
        (self.how, self.is_ignored) = (how, false);
        let addresses = match addresses {
            Ok(addresses) => addresses,
            Err(why) => return self.lose(now, why.clone()),
        };
        if self.here.as_ref().is_some_and(|(before, _)| *before != index) {
            self.lose(now, String::new());
        }
        if self.here.is_none() {
            self.recent_losses.retain(|at| now.since(*at) <= LOSSES_COUNT_FOR);
            let settle = self.recent_losses.len().checked_sub(1).map(|n| SETTLES[n.min(SETTLES.len() - 1)]);
            self.settles_at = settle.map(|span| now + span);
        }
        self.ids.retain(|ip, _| addresses.iter().any(|address| address.ip == *ip));
        self.here = Some((index, addresses.clone()));
    }

    /// Notes that the interface cannot be used.
    pub(super) fn lose(&mut self, now: Time, why: String) {
        self.why_not = why;
        if self.here.take().is_none() {
            return;
        }
        self.losses += 1;
        self.recent_losses.push_back(now);
        if self.recent_losses.len() > LOSSES_MAX {
            self.recent_losses.pop_front();
        }
        self.settles_at = None;
        self.ids.clear();
        (self.watch, self.reading, self.better) = (None, None, None);
    }

    /// Notes that the user does not want the interface.
    pub(super) fn ignore(&mut self, now: Time, why: String) {
        self.lose(now, why);
        self.is_ignored = true;
    }

    pub(super) fn read(&mut self, now: Time, reading: Reading) {
        if self.here.is_some() {
            self.reading = Some(reading);
            self.watch.get_or_insert_default().read(now, reading);
        }
    }

    pub(super) fn set_slot(&mut self, slot: Option<usize>) {
        self.slot = slot;
    }

    pub(super) fn set_backup(&mut self, better: Option<String>) {
        self.better = better;
    }

    /// Returns the interface's index while it can be used.
    pub(super) fn index(&self) -> Option<u32> {
        self.here.as_ref().map(|(index, _)| *index)
    }

    pub(super) const fn settles_at(&self) -> Option<Time> {
        self.settles_at
    }

    /// Returns whether the interface is used now; from then on it has settled.
    pub(super) fn is_ready(&mut self, now: Time) -> bool {
        let is_settled = self.settles_at.is_none_or(|at| at <= now);
        if self.here.is_some() && is_settled {
            self.settles_at = None;
        }
        self.here.is_some() && is_settled && self.slot.is_some()
    }

    /// Returns how often the interface has come back.
    pub(super) const fn returns(&self) -> u64 {
        self.losses
    }

    /// Gives a number to every address that has none, or whose number another endpoint has taken.
    pub(super) fn number(&mut self, numbers: &mut Numbers) {
        let Some((_, addresses)) = &self.here else { return };
        self.ids.retain(|ip, id| numbers.is_free(*id, *ip));
        for address in addresses {
            self.ids.entry(address.ip).or_insert_with(|| numbers.give(address.ip));
            numbers.keep(address.ip);
        }
        self.had = addresses.iter().map(|address| address.ip).collect();
    }

    pub(super) fn numbered(&self) -> impl Iterator<Item = (IpAddr, u8)> {
        self.ids.iter().map(|(ip, id)| (*ip, *id))
    }

    pub(super) fn had(&self, ip: IpAddr) -> bool {
        self.had.contains(&ip)
    }

    fn fading(&self) -> Option<FadeCause> {
        self.watch.as_ref().and_then(FadeWatch::fading)
    }

    pub(super) fn rank(&self) -> Rank {
        rank_of(self.how, self.fading().is_some())
    }

    pub(super) fn report(&self, name: &str, is_kept: bool) -> Report {
        let (state, why) = self.state(is_kept);
        let here = self.here.as_ref().map(|(_, addresses)| addresses.as_slice()).unwrap_or_default();
        Report {
            name: name.to_owned(),
            state,
            why,
            addresses: here.iter().map(|of| (*of, self.ids.get(&of.ip).copied())).collect(),
            table: self.slot,
            losses: self.losses,
            reading: self.reading,
            // Whole nanoseconds: the unit is 2⁻²⁰ of one.
            packet_time_ns: self.watch.as_ref().and_then(FadeWatch::packet_time).map(|t| t.units() >> 20),
        }
    }

    fn state(&self, is_kept: bool) -> (State, String) {
        let fades = self.fading().map(words);
        match (&self.here, &self.better, fades) {
            _ if self.is_ignored => (State::Ignored, self.why_not.clone()),
            (None, ..) if is_kept => {
                let why = format!("{}; its endpoint stays, for no other uplink works", self.why_not);
                (State::Kept, why)
            }
            (None, ..) => (State::Unusable, self.why_not.clone()),
            (Some(_), ..) if self.slot.is_none() => {
                (State::Unusable, "the kernel uses eight uplinks at most".to_owned())
            }
            (Some(_), ..) if self.settles_at.is_some() => {
                let times = match self.recent_losses.len() {
                    1 => "once".to_owned(),
                    n => format!("{n} times"),
                };
                (
                    State::Settling,
                    format!("it came back, and was lost {times} lately: it must hold for a moment"),
                )
            }
            (Some(_), Some(_), Some(fades)) => (State::Backup, fades),
            (Some(_), Some(better), None) => (State::Backup, self.why_backup(better)),
            (Some(_), None, Some(fades)) => (State::Active, format!("{fades}, but no other is better")),
            (Some(_), None, None) => (State::Active, "it works".to_owned()),
        }
    }

    fn why_backup(&self, better: &str) -> String {
        match self.how {
            Use { is_backup: true, .. } => format!("it is to be a backup, and {better} works"),
            Use { cost, .. } => format!("{better} costs less than its {cost}"),
        }
    }
}

fn words(cause: FadeCause) -> String {
    match cause {
        FadeCause::Signal { now_dbm, soon_dbm } => {
            format!("it fades: its signal is {now_dbm} dBm, and {soon_dbm} dBm in a second")
        }
        FadeCause::Retries(percent) => format!("it fades: {percent} % of its attempts are repeated"),
        FadeCause::Losses(percent) => format!("it fades: {percent} % of its packets are given up"),
        FadeCause::Beacons => "it fades: beacons are missing".to_owned(),
        FadeCause::NotCalm => "it faded, and is not good for long enough yet".to_owned(),
    }
}

/// How good an uplink is: whether it fades, is a backup, and what it costs. The least is the best.
pub(super) type Rank = (bool, bool, u32);

const fn rank_of(how: Use, fades: bool) -> Rank {
    (fades, how.is_backup, how.cost)
}
