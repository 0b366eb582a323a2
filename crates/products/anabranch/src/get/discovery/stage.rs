//! Discovery as a stage of the event loop.

use anabranch_algo::{Span, Time};
use anabranch_http::client::{Event, FetchError, FetchId, RequestKind};
use anabranch_mirror::leaf_list::LeafList;
use anabranch_mirror::metalink::METALINK_MAX;

use super::patience::{MUTE_ANSWERS, MUTE_MIN, OPENING_FOR, QUIET};
use super::sidecar::OFFERED_LEAVES_MAX;
use super::{Command, Discovery, EARLY_LEAVES_MAX, Probe, ProbeKind, Round};
use crate::format::seconds;
use crate::get::event_loop::{Context, Poll, Stage};
use crate::get::origin::{host, origin};
use crate::{Progress, Result};

/// Once discovery has taken this long, progress is reported.
const REPORT_AFTER: Span = Span::from_millis(500);
/// The note in the reported progress.
const ASKING: &str = "asking the mirrors what they have";

impl Stage for Discovery<'_> {
    fn poll(&mut self, cx: &mut Context<'_, '_>) -> Result<Poll> {
        self.time.now = cx.now();
        let is_looking = self.look_elsewhere(cx.world)?;
        let until = self.turn().map(|until| if is_looking { until.or(Some(self.time.end)) } else { until });
        if self.has_answer() {
            self.says.notices.append(&mut self.says.unsaid);
        }
        for command in self.asking.commands.drain(..) {
            match command {
                Command::Fetch(id, request) => cx.world.fetch(id, request),
                Command::Cancel(id) => cx.world.cancel(id),
            }
        }
        self.says.notices.drain(..).for_each(|notice| cx.observer.notice(&notice));
        Ok(until?.map_or(Poll::Done, Poll::Wait))
    }

    fn on_http(&mut self, cx: &mut Context<'_, '_>, events: &mut Vec<Event>) -> Result<()> {
        self.time.now = cx.now();
        self.time.heard_at = self.time.now;
        events.drain(..).try_for_each(|event| self.event(event))
    }

    fn progress(&mut self, now: Time) -> Option<Progress> {
        let span = now.since(self.time.start);
        (span > REPORT_AFTER).then(|| Progress {
            elapsed_s: seconds(span),
            note: Some(ASKING.to_owned()),
            ..Progress::default()
        })
    }

    fn interrupted(&self) -> &'static str {
        "nothing was fetched"
    }

    fn finish(&mut self, cx: &mut Context<'_, '_>, result: Result<()>) -> Result<()> {
        self.says.notices.drain(..).for_each(|notice| cx.observer.notice(&notice));
        result
    }
}

impl Discovery<'_> {
    /// Gives up late probes and sends new ones; returns until when answers are waited for, if any are.
    fn turn(&mut self) -> Result<Option<Time>> {
        if self.documents.several.is_some() {
            return Ok(None);
        }
        let is_quiet =
            self.heads().next().is_some() && self.time.now.since(self.time.heard_at) >= self.patience();
        self.expire(is_quiet)?;
        self.ask_more()
    }

    /// Drops the probes that are past their deadlines. If `quiet`, which means that a mirror has answered and
    /// no more answers arrive, also drops all others that the transfer can do without.
    fn expire(&mut self, quiet: bool) -> Result<()> {
        // The first bytes of files matter more where mirrors are only compared.
        let opening_for = if self.is_hashless() { QUIET } else { OPENING_FOR };
        for probe in self.asking.asked.values_mut() {
            let opening_until = probe.begun.filter(|_| matches!(probe.kind, ProbeKind::Mirror(_)));
            let until = probe.leaves_until().or(opening_until.map(|begun| begun + opening_for));
            probe.until = until.unwrap_or(probe.until).min(self.time.end);
        }
        // In the second round the named mirrors are needed, because the others did not deliver the file.
        let may_be_missing = |probe: &Probe| match probe.kind {
            ProbeKind::Signature => false,
            ProbeKind::Mirror(number) => self.wanted.round != Round::Second || !self.mirrors[number].named,
            _ => true,
        };
        let late: Vec<FetchId> = self
            .asking
            .asked
            .iter()
            .filter(|(_, probe)| quiet && may_be_missing(probe) || self.time.now >= probe.until)
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            self.asking.commands.push(Command::Cancel(id));
            if let Some(probe) = self.asking.asked.remove(&id) {
                if let ProbeKind::Mirror(number) = probe.kind
                    && self.mirrors[number].head.is_some()
                {
                    // The mirror has answered; only the first bytes of its file are missing.
                    self.done(probe)?;
                    continue;
                }
                if probe.kind == ProbeKind::Leaves && probe.begun.is_some() {
                    let name = host(&probe.url);
                    self.says
                        .notices
                        .push(format!("the leaf list of {name} comes too slowly: it is left out"));
                }
                let error = FetchError::Broken("no answer yet".to_owned());
                self.failed(probe, error)?;
            }
        }
        Ok(())
    }

    /// Returns how long all servers may be silent, once a mirror has answered, before the missing answers are
    /// given up.
    fn patience(&self) -> Span {
        let is_mute = |probe: &Probe| !self.time.answered.contains(&origin(&probe.url));
        match self.asking.again.is_empty() && !self.is_hashless() && self.asking.asked.values().all(is_mute) {
            true => self.time.slowest.times(MUTE_ANSWERS).max(MUTE_MIN).min(QUIET),
            false => QUIET,
        }
    }

    /// Sends the probes that can be sent by now; returns until when answers are waited for, if any are.
    fn ask_more(&mut self) -> Result<Option<Time>> {
        while let Some((url, by)) = self.beside.lists.pop_front() {
            self.ask(ProbeKind::List, &url, RequestKind::Document { max: METALINK_MAX }, by);
        }
        if self.beside.wants_beside
            && self.documents.metalink.is_none()
            && self.asking.asked.values().all(|probe| probe.kind != ProbeKind::List)
        {
            self.beside.wants_beside = false;
            self.look_beside();
        }
        self.look_for_signatures();
        // Leaf lists are requested before the length is known: usually there is none, and learning that takes
        // a round trip.
        let max = self.length_so_far().map_or(EARLY_LEAVES_MAX, LeafList::max_len).min(OFFERED_LEAVES_MAX);
        let mut lists = std::mem::take(&mut self.beside.lists_of_leaves);
        if max > EARLY_LEAVES_MAX {
            lists.append(&mut self.beside.long_leaves);
            let is_next = !self.asking.asked.values().any(Probe::is_long_list);
            self.beside.long_leaves = lists.split_off(lists.len().min(usize::from(is_next)));
        }
        for (url, by) in lists {
            self.ask(ProbeKind::Leaves, &url, RequestKind::Document { max }, by);
        }
        let again_at = self.ask_again()?;
        let beside_at = self.ask_beside();
        Ok(self.asking.asked.values().map(|probe| probe.until).chain(again_at).chain(beside_at).min())
    }
}
