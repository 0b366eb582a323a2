//! Reports what mirrors have delivered, and the progress of each route to a mirror.

use anabranch_mirror::range_scheduler::{Counters, State};

use anabranch_net::Egress;

use super::{ChangedVersion, MirrorDriver, MirrorState};
use crate::event::Observer;
use crate::format::bytes;
use crate::get::server_status::faults;
use crate::{PathProgress, PathState};

impl MirrorDriver {
    /// Returns the URLs of the mirrors that have delivered something, right or wrong.
    pub(in crate::get) fn brought_by(&self) -> impl Iterator<Item = &str> {
        self.brought().map(|state| state.mirror.url.as_str())
    }

    /// Returns the URLs of the mirrors that have delivered something and are not given up, with their
    /// validators. Leaves out URLs with a password, because the result is written to a file.
    pub(in crate::get) fn proven(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        let good = |state: &&MirrorState| state.status.out.is_none() && !state.mirror.url.has_credentials();
        self.brought().filter(good).map(|state| (state.mirror.url.as_str(), state.mirror.validator()))
    }

    /// Returns the URLs of the mirrors that sent wrong bytes.
    pub(in crate::get) fn lied(&self) -> impl Iterator<Item = &str> {
        self.mirrors.iter().filter(|state| state.status.lied).map(|state| state.mirror.url.as_str())
    }

    /// Returns the mirrors that sent wrong bytes, each with what is known of that.
    pub(in crate::get) fn liars(&self) -> impl Iterator<Item = (&str, &str)> {
        self.mirrors.iter().filter_map(|state| state.status.lie())
    }

    /// Describes the mirrors that answer only with errors or that always break off at the same byte; returns
    /// `None` if there are none.
    pub(in crate::get) fn faults(&self) -> Option<String> {
        let breaks = self.machine.connections().zip(&self.network.routes).filter_map(|(report, route)| {
            let (at, name) = (report.breaks_at_byte?, &self.mirrors[usize::from(route.mirror)].status.name);
            Some(format!("{name}: the server breaks off after {} and gives no ranges", bytes(at)))
        });
        let all: Vec<String> =
            faults(self.mirrors.iter().map(|state| &state.status)).into_iter().chain(breaks).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Returns the bytes that arrived on each route, needed or not: a route that delivers any is alive.
    pub(in crate::get) fn bytes(&self) -> impl Iterator<Item = u64> {
        self.machine.connections().map(|connection| connection.counters.bytes)
    }

    /// Returns the bytes that arrived over the local end of each route.
    pub(in crate::get) fn carried(&self) -> impl Iterator<Item = (Egress, u64)> {
        self.network.routes.iter().map(|route| route.via.clone()).zip(self.bytes())
    }

    /// Returns the bytes that arrived on all routes, without those that are sent again and again in vain.
    pub(in crate::get) fn moved(&self) -> u64 {
        let moved = |c: Counters| c.received_bytes - c.vain_bytes;
        self.machine.connections().map(|connection| moved(connection.counters)).sum()
    }

    /// Whether no mirror answers.
    pub(in crate::get) fn is_silent(&self) -> bool {
        self.machine.connections().all(|connection| connection.state != State::Open)
    }

    /// Whether the whole content comes from one answer that no other answer can continue, because the mirror
    /// sends another `ETag` or date each time.
    pub(in crate::get) fn is_of_one_answer(&self) -> bool {
        self.is_alone()
            && self.mirrors.iter().any(|state| state.changed == Some(ChangedVersion::OneAnswer))
            && self.mirrors.iter().all(|state| state.changed.is_some() || state.status.out.is_some())
    }

    /// Whether a later transfer cannot know that the mirrors still have what this one has delivered: no hash
    /// is known, and no mirror has a version that stays.
    pub(in crate::get) fn is_of_no_version(&self) -> bool {
        let stays = |state: &MirrorState| {
            state.mirror.validator().is_some() && state.changed.is_none() && !state.status.has_changed
        };
        self.is_hashless() && !self.mirrors.iter().any(stays)
    }

    /// Reports once each mirror that sends only the whole file, where others send ranges, and what this
    /// mirror is used for. If no mirror sends ranges, reports the one from which alone the file is fetched.
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

    /// Returns the progress of each route without its share; `rates` are the rates of the routes.
    pub(in crate::get) fn rows(&self, rates: &[u64]) -> impl Iterator<Item = PathProgress> {
        self.machine.connections().zip(&self.network.routes).zip(rates).map(move |((report, route), rate)| {
            let state = &self.mirrors[usize::from(route.mirror)];
            // Earlier requests of this connection were answered, and the present one has no answer yet.
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
