//! Reports the progress of a transfer, and its outcome at the end.

use anabranch_algo::Time;
use anabranch_mmtp::ContentId;
use anabranch_mmtp::subscriber::{PathReport, PathState};

use super::ContentFetch;
use crate::format::seconds;
use crate::get::mirror_driver::MirrorDriver;
use crate::get::sink::Sink;
use crate::get::source_status::state;
use crate::report::one_a_path;
use crate::{BannedSource, GroupedPath, PathGroups, PathProgress, Progress, Report, Verified, VouchedBy};

impl ContentFetch {
    pub(super) fn snapshot(&mut self, now: Time, arrivals: &Sink, end: bool) {
        let (total_bytes, done_bytes, resumed_bytes) = arrivals.bytes();
        // The manifest of a directory is not a part of the content that the user gets.
        let has_contents = arrivals.has_contents();
        let reports: Vec<PathReport> = self.subscriber.paths().collect();
        let mut counts: Vec<u64> = reports.iter().map(|r| r.counters.bytes).collect();
        counts.extend(self.mirrors.iter().flat_map(MirrorDriver::bytes));
        let rates = self.rows.rates(now, &counts, end);
        let rows = self.paths.links.iter().filter_map(|link| {
            let (report, rate) = (reports.get(link.path)?, rates.get(link.path)?);
            let counters = &report.counters;
            let asked = (counters.packets + counters.lost).max(1);
            let source = &self.sources[link.source];
            Some(PathProgress {
                source: link.source_label(&source.name),
                via: link.via(),
                state: link.state().unwrap_or_else(|| state(report, source)),
                rate_bytes: *rate,
                srtt_us: report.srtt.as_micros(),
                cwnd: report.cwnd,
                loss_percent: counters.lost.saturating_sub(counters.late) as f64 * 100.0 / asked as f64,
                bytes: counters.bytes,
                cached_percent: counters.cached as f64 * 100.0 / counters.packets.max(1) as f64,
                timeouts: counters.timeouts,
                group: report.group,
                ..PathProgress::default()
            })
        });
        let mirrors = self.mirrors.iter().flat_map(|mirrors| mirrors.rows(&rates[reports.len()..]));
        let paths = one_a_path(rows.chain(mirrors));
        let silent = reports.iter().all(|r| r.state != PathState::Open)
            && self.mirrors.as_ref().is_none_or(MirrorDriver::is_silent);
        let is_comparing = self.mirrors.as_ref().is_some_and(MirrorDriver::is_comparing);
        let note = match (is_comparing, silent) {
            (true, _) => Some("comparing mirrors"),
            (false, true) => Some("waiting for a source"),
            (false, false) => None,
        };
        self.last = Progress {
            total_bytes: has_contents.then_some(total_bytes),
            done_bytes: if has_contents { done_bytes } else { 0 },
            resumed_bytes,
            elapsed_s: self.elapsed_s(now),
            paths,
            checked_bytes: None,
            note: note.filter(|_| !end).map(str::to_owned),
        };
    }

    /// Groups the paths to sources. `of` has the group number of each path, counted from 0.
    pub(super) fn path_groups(&self, now: Time, of: &[u32]) -> PathGroups {
        let mut groups = vec![Vec::new(); of.iter().max().map_or(0, |most| *most as usize + 1)];
        for link in &self.paths.links {
            let Some(group) = of.get(link.path) else { continue };
            let source = link.source_label(&self.sources[link.source].name);
            groups[*group as usize].push(GroupedPath { source, via: link.via() });
        }
        PathGroups { elapsed_s: self.elapsed_s(now), groups }
    }

    fn elapsed_s(&self, now: Time) -> f64 {
        seconds(now.since(self.rows.start))
    }

    /// Returns the mirrors that delivered the content, with the validators that tell whether they have
    /// changed.
    pub(in crate::get) fn mirrors(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.mirrors.iter().flat_map(MirrorDriver::proven)
    }

    /// Returns the URLs of the mirrors that delivered any bytes, right or wrong.
    pub(in crate::get) fn brought_by(&self) -> impl Iterator<Item = &str> {
        self.mirrors.iter().flat_map(MirrorDriver::brought_by)
    }

    /// Returns the URLs of the mirrors that sent wrong bytes.
    pub(in crate::get) fn liars(&self) -> impl Iterator<Item = &str> {
        self.mirrors.iter().flat_map(MirrorDriver::lied)
    }

    /// Returns the number of bytes that existed before this run.
    pub(in crate::get) const fn resumed_bytes(&self) -> u64 {
        self.last.resumed_bytes
    }

    /// Returns the report of a transfer in which sources that speak mmTP took part, so that every block was
    /// verified. For a file from mirrors, the caller replaces `verified` and `verified_by`.
    pub(in crate::get) fn report(&self, id: &ContentId, target: String, complete: bool) -> Report {
        let mut banned: Vec<BannedSource> = self
            .sources
            .iter()
            .filter_map(|source| {
                Some(BannedSource { source: source.name.clone(), reason: source.banned.clone()? })
            })
            .collect();
        let liars = self.mirrors.iter().filter(|mirrors| mirrors.is_alone()).flat_map(MirrorDriver::liars);
        for (name, why) in liars {
            // The mirror may have been banned while it was a source of the subscriber.
            if banned.iter().all(|other| other.source != name) {
                banned.push(BannedSource { source: name.into(), reason: why.into() });
            }
        }
        Report {
            last: self.last.clone(),
            target,
            content: Some(id.to_string()),
            banned,
            complete,
            verified: Verified::Blocks,
            // The user vouches for the URI, which states the hash. For a single file the caller knows more.
            verified_by: Some(VouchedBy::User),
            unverified_since: None,
            advice: None,
        }
    }
}
