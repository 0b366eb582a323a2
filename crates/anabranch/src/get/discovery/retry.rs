//! Servers that cannot answer now: they are asked again while nobody else has answered.

use algo::{Span, Time};
use anabranch_http::client::FetchError;
use mirror::range_scheduler::{RETRY_MAX, RETRY_MIN, backoff};

use super::{BESIDE_FOR, Discovery, Probe};
use crate::Result;
use crate::get::origin::host;
use crate::get::server_status::pause;

impl Discovery<'_> {
    /// Keeps a probe to be asked again if its server has only said that it cannot answer now, and nobody
    /// else has said what the file is; gives it back if that is of no use.
    pub(super) fn later(&mut self, mut probe: Probe, error: FetchError) -> Option<(Probe, FetchError)> {
        let (now, end) = (self.now, self.end);
        let is_now = matches!(error, FetchError::ServerError { .. } | FetchError::Busy { .. });
        if !is_now || self.has_answer() {
            return Some((probe, error));
        }
        let longer = backoff(RETRY_MIN, probe.times, RETRY_MAX);
        // The last attempts are shortly before the end, whatever came before.
        let half = Span::from_nanos(end.since(now).as_nanos() / 2);
        let at = now + pause(&error).max(longer.min(half).max(RETRY_MIN));
        if at >= end {
            return Some((probe, error));
        }
        if probe.by.is_none() && !std::mem::replace(&mut self.retry_reported, true) {
            let (name, left) = (host(&probe.url), end.since(now).as_millis() / 1_000);
            self.notices.push(format!("{name}: {error}: asked again, gives up in {left} s"));
        }
        probe.times += 1;
        probe.begun = None;
        probe.body.clear();
        self.again.push((at, probe, error));
        None
    }

    /// Asks again what is due; returns when the next is. Once a mirror has answered, the others are not
    /// waited for.
    pub(super) fn ask_again(&mut self) -> Result<Option<Time>> {
        let now = self.now;
        let has_answer = self.has_answer();
        let mut waiting = Vec::new();
        for (at, mut probe, error) in std::mem::take(&mut self.again) {
            if has_answer && probe.by.is_none() {
                self.failed(probe, error)?;
            } else if has_answer || now >= at {
                probe.until = if probe.by.is_some() { (now + BESIDE_FOR).min(self.end) } else { self.end };
                probe.via = self.via;
                self.put(probe);
            } else {
                waiting.push((at, probe, error));
            }
        }
        self.again.extend(waiting);
        Ok(self.again.iter().map(|(at, ..)| *at).min())
    }

    /// Whether somebody has said what there is.
    pub(super) fn has_answer(&self) -> bool {
        self.heads.iter().any(Option::is_some)
    }
}
