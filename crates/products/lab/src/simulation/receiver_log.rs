//! Records the actions of a receiver of a simulation, and checks them.

use anabranch_algo::Time;
use anabranch_mmtp::subscriber::{DownloadId, Event, PathId, Subscriber};

use crate::content::Content;
use crate::digest::Digest;

/// Most polls of one machine in one virtual millisecond; more mean an endless loop. A packet costs about
/// three polls, so this is some 300 Gbit/s.
pub const STORM_MAX: u32 = 65_536;
/// Most wake-ups in a row without an arrival, a packet sent or an event; more mean busy waiting.
pub const FRUITLESS_MAX: u32 = 1_000;
/// Largest window allowed, packets.
const CWND_MAX: u32 = 1 << 23;
/// Most violations that are kept; more are not needed to see that something is wrong.
const VIOLATIONS_MAX: usize = 32;
/// Most events that are kept of one receiver.
const EVENTS_MAX: usize = 100_000;
const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;

/// The progress of a want.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The content that is wanted.
    pub content: Content,
    /// Time at which the download began; `None` before that.
    pub since: Option<Time>,
    /// Time at which the content was reported complete.
    pub complete: Option<Time>,
    /// Bytes reported so far that equal the content's bytes.
    pub verified_bytes: u64,
    download: Option<DownloadId>,
    /// Blocks that were reported, one bit each.
    seen: Vec<u64>,
    wrong: u64,
}

impl Progress {
    /// Whether the whole content is here and is correct.
    #[must_use]
    pub fn is_identical(&self) -> bool {
        self.complete.is_some() && self.wrong == 0 && self.verified_bytes == self.content.id().length
    }
}

impl Digest {
    fn head(&mut self, now: Time, receiver: usize, kind: u8) {
        self.update(&now.as_nanos().to_le_bytes());
        self.update(&[receiver as u8, kind]);
    }

    /// Mixes a request that is sent into the digest.
    pub(super) fn sent(&mut self, now: Time, receiver: usize, path: PathId, bytes: &[u8]) {
        self.head(now, receiver, path as u8);
        self.update(bytes);
    }

    /// Mixes an event that is reported into the digest.
    pub(super) fn event(&mut self, now: Time, receiver: usize, event: &Event) {
        self.head(now, receiver, u8::MAX);
        match event {
            // The chaining value stands for the bytes.
            Event::Block { download, block, cv, .. } => {
                self.update(&download.to_le_bytes());
                self.update(&block.to_le_bytes());
                self.update(cv);
            }
            other => self.update(format!("{other:?}").as_bytes()),
        }
    }
}

#[derive(Default)]
pub(super) struct ReceiverLog {
    wants: Vec<Progress>,
    events: Vec<(Time, Event)>,
    violations: Vec<String>,
    /// Requests and probes sent on each path, as of the last check.
    requests: Vec<(u64, u64)>,
    /// Payload of each path at the last whole second, bytes.
    payload: Vec<u64>,
    per_second: Vec<Vec<u64>>,
    second: u64,
    /// The current millisecond; `polls` counts the polls in it.
    millisecond: u64,
    polls: u32,
    fruitless: u32,
    storm: bool,
}

impl ReceiverLog {
    pub(super) fn want(&mut self, content: Content) -> usize {
        let words = content.id().blocks().div_ceil(64) as usize;
        self.wants.push(Progress {
            content,
            since: None,
            complete: None,
            verified_bytes: 0,
            download: None,
            seen: vec![0; words],
            wrong: 0,
        });
        self.wants.len() - 1
    }

    pub(super) fn content(&self, want: usize) -> &Content {
        &self.wants[want].content
    }

    pub(super) fn started(&mut self, now: Time, want: usize, download: DownloadId) {
        (self.wants[want].since, self.wants[want].download) = (Some(now), Some(download));
    }

    pub(super) fn is_done(&self) -> bool {
        self.wants.iter().all(|want| want.complete.is_some())
    }

    pub(super) fn progress(&self, want: usize) -> &Progress {
        &self.wants[want]
    }

    pub(super) fn want_of(&self, download: DownloadId) -> Option<usize> {
        self.wants.iter().position(|want| want.download == Some(download))
    }

    pub(super) fn events(&self) -> &[(Time, Event)] {
        &self.events
    }

    pub(super) fn per_second(&self) -> &[Vec<u64>] {
        &self.per_second
    }

    pub(super) fn violations(&self) -> &[String] {
        &self.violations
    }

    pub(super) const fn storms(&self) -> bool {
        self.storm
    }

    pub(super) fn violated(&mut self, now: Time, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(format!("at {} ns: {what}", now.as_nanos()));
        }
    }

    /// Counts a poll; returns whether there are so many that the machine must be in an endless loop.
    pub(super) fn polled(&mut self, now: Time) -> bool {
        let millisecond = now.as_nanos() / MILLISECOND;
        if millisecond != self.millisecond {
            (self.millisecond, self.polls) = (millisecond, 0);
        }
        self.polls += 1;
        if self.polls > STORM_MAX && !self.storm {
            self.storm = true;
            self.violated(now, format!("{STORM_MAX} polls in a millisecond"));
        }
        self.storm
    }

    /// Counts a wake-up by a timer or an arrival; `busy` says whether the machine did anything.
    pub(super) fn woke(&mut self, now: Time, busy: bool) {
        self.fruitless = if busy { 0 } else { self.fruitless + 1 };
        if self.fruitless > FRUITLESS_MAX && !self.storm {
            self.storm = true;
            self.violated(now, format!("{FRUITLESS_MAX} wake-ups in a row for nothing"));
        }
    }

    /// Closes the whole seconds that have passed: records each path's payload in them.
    pub(super) fn roll(&mut self, now: Time, subscriber: &Subscriber) {
        let second = now.as_nanos() / SECOND;
        if second == self.second {
            return;
        }
        for (p, path) in subscriber.paths().enumerate() {
            if p >= self.per_second.len() {
                self.per_second.push(vec![0; self.second as usize]);
                self.payload.push(0);
            }
            self.per_second[p].push(path.counters.bytes - self.payload[p]);
            self.payload[p] = path.counters.bytes;
            // Fill the seconds in which the receiver did not wake up.
            self.per_second[p].resize(second as usize, 0);
        }
        self.second = second;
    }

    /// Checks a packet sent on `path`: after a request, the pending packets must fit the window. A probe
    /// before a timeout may exceed the pending packets by one, even if the window has been cut below them.
    pub(super) fn asked(&mut self, now: Time, path: PathId, subscriber: &Subscriber) {
        let Some(report) = subscriber.paths().nth(path) else { return };
        if self.requests.len() <= path {
            self.requests.resize(path + 1, (0, 0));
        }
        let now_sent = (report.counters.requests, report.counters.probes);
        let before = std::mem::replace(&mut self.requests[path], now_sent);
        let (cwnd, in_flight) = (report.cwnd, report.in_flight);
        if !(1..=CWND_MAX).contains(&cwnd) {
            self.violated(now, format!("path {path} has a window of {cwnd}"));
        }
        let asked = before.0 != now_sent.0 && before.1 == now_sent.1;
        if asked && in_flight > cwnd {
            self.violated(now, format!("path {path} has {in_flight} pending, window {cwnd}"));
        }
    }

    pub(super) fn event(&mut self, now: Time, event: Event) {
        match &event {
            Event::Block { download, block, bytes, .. } => {
                let Some(want) = self.want_of(*download) else {
                    return self.violated(now, format!("a block of download {download}, which nobody wants"));
                };
                let progress = &mut self.wants[want];
                let (word, bit) = ((block / 64) as usize, 1 << (block % 64));
                if progress.seen.get(word).is_none_or(|seen| seen & bit != 0) {
                    return self.violated(
                        now,
                        format!("block {block} of download {download} twice, or beyond the end"),
                    );
                }
                progress.seen[word] |= bit;
                if progress.content.block(*block) == bytes.as_slice() {
                    progress.verified_bytes += bytes.len() as u64;
                } else {
                    progress.wrong += 1;
                    self.violated(now, format!("block {block} of download {download} has wrong bytes"));
                }
            }
            Event::Complete { download } => {
                let Some(want) = self.want_of(*download) else {
                    return self.violated(now, format!("download {download} complete, which nobody wants"));
                };
                if self.wants[want].complete.replace(now).is_some() {
                    self.violated(now, format!("download {download} complete twice"));
                }
                if !self.wants[want].is_identical() {
                    self.violated(now, format!("download {download} reported complete and is not"));
                }
            }
            _ => {}
        }
        if !matches!(event, Event::Block { .. }) && self.events.len() < EVENTS_MAX {
            self.events.push((now, event));
        }
    }
}
