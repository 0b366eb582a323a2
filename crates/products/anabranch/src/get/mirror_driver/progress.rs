//! How far each route to a mirror is, for reports.

use anabranch_mirror::range_scheduler::{Counters, State};

use super::{ChangedVersion, MirrorDriver, MirrorState};
use crate::event::Observer;
use crate::format::bytes;
use crate::get::server_status::faults;
use crate::{PathProgress, PathState};

impl MirrorDriver {
    /// The URLs that brought something, right or wrong.
    pub(in crate::get) fn brought_by(&self) -> impl Iterator<Item = &str> {
        self.brought().map(|state| state.mirror.url.as_str())
    }

    /// The URLs that brought something and still count, with their validators; none with a password, for they
    /// are written to a file.
    pub(in crate::get) fn proven(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        let good = |state: &&MirrorState| state.status.out.is_none() && !state.mirror.url.has_credentials();
        self.brought().filter(good).map(|state| (state.mirror.url.as_str(), state.mirror.validator()))
    }

    /// The URLs that sent wrong bytes.
    pub(in crate::get) fn lied(&self) -> impl Iterator<Item = &str> {
        self.mirrors.iter().filter(|state| state.status.lied).map(|state| state.mirror.url.as_str())
    }

    /// Mirrors that sent wrong bytes, with what is known of it.
    pub(in crate::get) fn liars(&self) -> impl Iterator<Item = (&str, &str)> {
        self.mirrors.iter().filter_map(|state| state.status.lie())
    }

    /// What mirrors report that answer only with errors, or that always break off at the same byte.
    pub(in crate::get) fn faults(&self) -> Option<String> {
        let breaks = self.machine.connections().zip(&self.network.routes).filter_map(|(report, route)| {
            let (at, name) = (report.breaks_at_byte?, &self.mirrors[usize::from(route.mirror)].status.name);
            Some(format!("{name}: the server breaks off after {} and gives no ranges", bytes(at)))
        });
        let all: Vec<String> =
            faults(self.mirrors.iter().map(|state| &state.status)).into_iter().chain(breaks).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Bytes of each route, needed or not: a route that brings any is alive.
    pub(in crate::get) fn bytes(&self) -> impl Iterator<Item = u64> {
        self.machine.connections().map(|connection| connection.counters.bytes)
    }

    /// Bytes of all routes, without those that are sent again and again in vain.
    pub(in crate::get) fn moved(&self) -> u64 {
        let moved = |c: Counters| c.received_bytes - c.vain_bytes;
        self.machine.connections().map(|connection| moved(connection.counters)).sum()
    }

    /// Whether no mirror answers.
    pub(in crate::get) fn is_silent(&self) -> bool {
        self.machine.connections().all(|connection| connection.state != State::Open)
    }

    /// Whether all that comes is of one answer, and another one cannot go on with it: its ETag is another
    /// each time.
    pub(in crate::get) fn is_of_one_answer(&self) -> bool {
        self.is_alone()
            && self.mirrors.iter().any(|state| state.changed == Some(ChangedVersion::OneAnswer))
            && self.mirrors.iter().all(|state| state.changed.is_some() || state.status.out.is_some())
    }

    /// Whether nothing tells a later transfer that the mirrors still have what this one has brought: there is
    /// no hash, and no mirror with a version that stays.
    pub(in crate::get) fn is_of_no_version(&self) -> bool {
        let stays = |state: &MirrorState| {
            state.mirror.validator().is_some() && state.changed.is_none() && !state.status.has_changed
        };
        self.is_hashless() && !self.mirrors.iter().any(stays)
    }

    /// Reports once each mirror that sends only the whole file, where others send ranges, and what it is used
    /// for; where none does, the one from which alone the file comes.
    pub(super) fn tell_reserve(&mut self, observer: &mut Observer<'_>) {
        let is_alone = self.is_alone();
        let usable = || self.machine.connections().filter(|report| report.state != State::Closed);
        if !usable().any(|report| report.ranges) {
            let one = usable().find(|report| report.fetching.is_some() && is_alone);
            if let Some(one) = one.filter(|one| usable().any(|other| other.mirror != one.mirror))
                && let Some(state) = self.mirrors.get_mut(usize::from(one.mirror))
                && !std::mem::replace(&mut state.reserve, true)
            {
                let name = &state.status.name;
                observer.notice(&format!("no mirror gives ranges: fetched from {name} alone"));
            }
            return;
        }
        for report in usable().filter(|report| !report.ranges) {
            let Some(state) = self.mirrors.get_mut(usize::from(report.mirror)) else { continue };
            if !std::mem::replace(&mut state.reserve, true) {
                let use_of_it = match report.fetching {
                    Some(_) => "brings the beginning, and the others the end",
                    None => "kept in reserve",
                };
                observer.notice(&format!("{}: gives no ranges, {use_of_it}", state.status.name));
            }
        }
    }

    /// The progress of each route, but for its share; `rates` are theirs.
    pub(in crate::get) fn rows(&self, rates: &[u64]) -> impl Iterator<Item = PathProgress> {
        self.machine.connections().zip(&self.network.routes).zip(rates).map(move |((report, route), rate)| {
            let state = &self.mirrors[usize::from(route.mirror)];
            // What it has brought was an answer; what it is asked for now has none yet.
            let has_brought = report.state == State::Opening && report.counters.received_bytes > 0;
            let row = route.row(&state.status, if has_brought { State::Stalled } else { report.state });
            let waits = matches!(report.state, State::Opening | State::Open) && report.fetching.is_none();
            let is_out = state.status.out.is_some() || report.counters.bytes > 0;
            let idle = !report.ranges && waits && !is_out;
            let state = if idle { PathState::NoRanges } else { row.state.clone() };
            PathProgress {
                state,
                rate_bytes: *rate,
                srtt_us: report.srtt.as_micros(),
                cwnd: report.cwnd,
                bytes: report.counters.bytes,
                timeouts: report.counters.stalls,
                group: report.group,
                ..row
            }
        })
    }
}
