//! What a transfer does because time passes: interfaces that came or went, and time-outs.

use algo::{Span, Time};
use mmtp::subscriber::{PathReport, PathState};

use super::{Driver, REFRESH_EVERY};
use crate::event::Observer;
use crate::format::bytes;
use crate::get::mirror_driver::MirrorDriver;
use crate::get::sink::Sink;
use crate::get::source_status::Source;
use crate::{Error, Result};

/// When no source that speaks mmTP has answered for so long, mirrors go on without its hashes.
const DESERTED_AFTER: Span = Span::from_secs(5);

impl Driver {
    /// Looks at interfaces and time-outs.
    pub(super) fn check_time(
        &mut self,
        now: Time,
        arrivals: &Sink,
        observer: &mut Observer<'_>,
    ) -> Result<()> {
        let changed = self.watch.as_mut().is_some_and(|watch| watch.changed(now));
        if changed || now >= self.refresh_at {
            self.refresh_at = now + REFRESH_EVERY;
            let any_down = self.paths.links.iter().any(|link| link.udp.is_none());
            if changed || any_down || self.watch.is_none() {
                self.refresh(now, observer);
            }
        }
        self.check_sources(now)?;
        let packets = self.subscriber.paths().map(|path| path.counters.packets).sum::<u64>();
        let packets = packets + self.web.as_ref().map_or(0, MirrorDriver::moved);
        let faults = || self.web.as_ref().and_then(MirrorDriver::faults);
        if let Some(why) = self.silence.look(now, packets, self.timeout, "source", faults, observer) {
            let kept = match arrivals.kept_bytes() {
                0 if self.paths.links.is_empty() => "do the servers answer others?".to_owned(),
                0 => "is anabranch serve running there, and its UDP port open?".to_owned(),
                kept => format!("{} are kept, and the same command resumes", bytes(kept)),
            };
            return Err(Error::unreachable(format!("{why}: {kept}")));
        }
        Ok(())
    }

    /// What mirrors bring is verified by hashes that only sources have, unless there is a leaf list: without
    /// any source it would wait for ever.
    fn check_sources(&mut self, now: Time) -> Result<()> {
        if self.web.as_ref().is_none_or(|web| web.is_alone() || web.is_proven() || !web.has_hope()) {
            return Ok(());
        }
        let reports: Vec<PathReport> = self.subscriber.paths().collect();
        let in_use = |source: &Source| source.banned.is_none() && source.refused.is_none();
        let mut left = self.paths.links.iter().filter(|link| in_use(&self.sources[link.source])).peekable();
        let none_left = left.peek().is_none();
        if left.any(|link| reports.get(link.path).is_some_and(|report| report.state == PathState::Open)) {
            self.source_at = now;
            if let Some(web) = &mut self.web {
                web.lend();
            }
        }
        if none_left || now.since(self.source_at) >= DESERTED_AFTER {
            self.deserted = true;
            return Err(Error::unreachable("no source answers that speaks mmTP"));
        }
        Ok(())
    }

    /// Whether it ended because only mirrors are left.
    pub(in crate::get) const fn is_deserted(&self) -> bool {
        self.deserted
    }
}
