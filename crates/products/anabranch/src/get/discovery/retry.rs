//! Repeats probes that get no usable answer. A silent server is also asked from the next local end. A request
//! whose connection broke is repeated once. A server that cannot answer now is asked again until it answers
//! or another server has answered.

use anabranch_algo::{Span, Time};
use anabranch_http::client::{FetchError, FetchId, RequestKind};
use anabranch_mirror::range_scheduler::{RETRY_MAX, RETRY_MIN, backoff};
use anabranch_net::Egress;

use super::patience::{BESIDE_AFTER, QUIET, SOON};
use super::{Command, Discovery, EARLY_LEAVES_MAX, Probe, ProbeKind, Round};
use crate::Result;
use crate::error::ErrorKind;
use crate::get::origin::host;
use crate::get::routes::host_of;
use crate::get::server_status::{code, describe, pause};
use crate::get::world::World;

impl Probe {
    /// Returns whether the probe asks for the file itself, or for a Metalink that the user named.
    const fn is_of_user(&self) -> bool {
        matches!(self.kind, ProbeKind::Mirror(_) | ProbeKind::List) && self.by.is_none()
    }

    /// Returns whether the probe asks for the file, a Metalink that the user named, or a signature. The
    /// transfer does not do without these merely because a server answers "not now".
    fn is_demanded(&self) -> bool {
        self.is_of_user() || self.kind == ProbeKind::Signature
    }

    /// Returns whether both probes ask for the file at one URL.
    fn is_twin_of(&self, other: &Self) -> bool {
        matches!(self.kind, ProbeKind::Mirror(_)) && self.kind == other.kind
    }

    /// Returns the probe to be sent from the next local end.
    fn next_over(self) -> Self {
        let (via, next_via) = (self.next_via, self.next_via + 1);
        Self { via, next_via, begun: None, body: Vec::new(), ..self }
    }
}

impl Discovery<'_> {
    /// Handles the error of a probe. If the connection broke early, repeats a demanded probe once: a broken
    /// connection says little of a server, which may just have restarted or had too many connections. Without
    /// the second attempt a good mirror would be lost for the whole transfer.
    pub(super) fn answered_with_error(&mut self, mut probe: Probe, error: FetchError) -> Result<()> {
        let is_soon = self.time.now < self.time.end.min(probe.asked_at + SOON);
        if probe.is_demanded() && probe.times == 0 && is_soon && matches!(error, FetchError::Broken(_)) {
            (probe.times, probe.begun) = (1, None);
            probe.body.clear();
            self.put(probe);
            return Ok(());
        }
        self.failed(probe, error)
    }

    /// Sends a failed probe from the next local end, or schedules it for later, or records that it has failed
    /// for good. Ignores the failure while another probe for the same URL is pending.
    pub(super) fn failed(&mut self, probe: Probe, error: FetchError) -> Result<()> {
        let asked = probe.is_of_user();
        if self.asking.asked.values().any(|other| other.is_twin_of(&probe)) {
            return Ok(());
        }
        if asked
            && !matches!(error, FetchError::NotFound(_))
            && probe.next_via < self.asking.vias.len()
            && self.time.now < self.time.end
        {
            // Perhaps the server cannot be reached from this local end only.
            self.put(probe.next_over());
            return Ok(());
        }
        let is_unbound = self.asking.vias.first() == Some(&Egress::any());
        if asked && is_unbound && matches!(error, FetchError::Unreachable(_)) && self.time.now < self.time.end
        {
            self.asking.elsewhere.push((probe, Some(error)));
            return Ok(());
        }
        self.fails_here(probe, error)
    }

    /// Also sends the probes of silent mirrors from the next local end; returns when the next probe is due
    /// for this.
    pub(super) fn ask_beside(&mut self) -> Option<Time> {
        let (now, ends) = (self.time.now, self.asking.vias.len());
        // If the user named no local end, the kernel chose one; `look_elsewhere` finds the others.
        let is_unbound = ends == 1 && self.asking.vias.first() == Some(&Egress::any());
        let may = |probe: &&mut Probe| {
            let is_silent = matches!(probe.kind, ProbeKind::Mirror(_)) && probe.begun.is_none();
            is_silent && (probe.next_via < ends || is_unbound && probe.next_via == ends)
        };
        let mut late = Vec::new();
        for probe in
            self.asking.asked.values_mut().filter(may).filter(|probe| now >= probe.asked_at + BESIDE_AFTER)
        {
            late.push(Probe { url: probe.url.clone(), what: probe.what.clone(), body: Vec::new(), ..*probe });
            // The new probe tries the remaining local ends, so this one tries no other.
            probe.next_via = usize::MAX;
        }
        for probe in late {
            if probe.next_via < ends {
                self.put(probe.next_over());
            } else {
                self.asking.elsewhere.push((probe, None));
            }
        }
        self.asking.asked.values_mut().filter(may).map(|probe| probe.asked_at + BESIDE_AFTER).min()
    }

    /// Cancels the other probes for the URL whose probe `answered` has got its answer.
    pub(super) fn drop_twins(&mut self, answered: FetchId) {
        let Some(probe) = self.asking.asked.get(&answered) else { return };
        let is_other = |(id, other): &(&FetchId, &Probe)| **id != answered && other.is_twin_of(probe);
        let twins: Vec<FetchId> = self.asking.asked.iter().filter(is_other).map(|(id, _)| *id).collect();
        for id in twins {
            self.asking.asked.remove(&id);
            self.asking.commands.push(Command::Cancel(id));
        }
    }

    /// Tries servers that could not be reached over the kernel's default route from the other local ends,
    /// because the link of the default route may be dead. Returns whether a name is still being looked up.
    pub(super) fn look_elsewhere(&mut self, world: &mut dyn World) -> Result<bool> {
        for (probe, error) in std::mem::take(&mut self.asking.elsewhere) {
            let is_proxied = world.is_proxied(probe.url.as_str());
            let addresses = match world.resolve(host_of(&probe.url)) {
                _ if is_proxied => Vec::new(),
                Some(addresses) => addresses.unwrap_or_default(),
                None if self.time.now < self.time.end => {
                    self.asking.elsewhere.push((probe, error));
                    continue;
                }
                None => Vec::new(),
            };
            for end in addresses.iter().flat_map(|address| world.other_ends(address.ip())) {
                if !self.asking.vias.contains(&end) {
                    self.asking.vias.push(end);
                }
            }
            let is_other = probe.next_via < self.asking.vias.len();
            match error {
                Some(error) if is_other => {
                    self.says.notices.push(format!("{}: {error}: tried over other links", host(&probe.url)));
                    self.failed(probe, error)?;
                }
                Some(error) => self.fails_here(probe, error)?,
                None if is_other && self.asking.asked.values().any(|asked| asked.is_twin_of(&probe)) => {
                    self.says
                        .notices
                        .push(format!("{}: silent: tried over other links too", host(&probe.url)));
                    self.put(probe.next_over());
                }
                None => {}
            }
        }
        Ok(!self.asking.elsewhere.is_empty())
    }

    fn fails_here(&mut self, probe: Probe, error: FetchError) -> Result<()> {
        let Some((probe, error)) = self.later(probe, error) else { return Ok(()) };
        match probe.kind {
            ProbeKind::Mirror(number) => {
                let url = &self.mirrors[number].url;
                let is_named = self.is_named(url);
                let why = describe(&error, is_named);
                let code = code(&error);
                if code == ErrorKind::Unreachable {
                    self.says.unheard.extend(is_named.then(|| host(url)));
                    self.says.absent.extend(self.mirrors[number].named.then(|| host(url)));
                }
                let label = self.label(number);
                self.says.unsaid.push(format!("{label}: {error}"));
                self.says.troubles.push((code, format!("{label}: {why}")));
            }
            ProbeKind::List if self.mirrors.is_empty() => {
                let why = describe(&error, self.is_named(&probe.url));
                let failed = code(&error).error(format!("{}: {why}", probe.url));
                return Err(failed.at(&probe.url).because(error));
            }
            ProbeKind::Leaves
                if matches!(error, FetchError::Refused(_))
                    && probe.what == (RequestKind::Document { max: EARLY_LEAVES_MAX }) =>
            {
                self.beside.long_leaves.push((probe.url, probe.by));
            }
            ProbeKind::Signature if code(&error) == ErrorKind::Unreachable => {
                self.documents.signatures.could_not_come(format!("{}: {error}", host(&probe.url)));
            }
            // Usually these optional documents do not exist, so their absence is not reported.
            ProbeKind::List
            | ProbeKind::Leaves
            | ProbeKind::Line
            | ProbeKind::Signature
            | ProbeKind::Sums => {}
        }
        Ok(())
    }

    /// Schedules a probe to be repeated if its server has only said that it cannot answer now, and no mirror
    /// has answered yet or the probe is still [awaited](Self::is_awaited). Returns the probe and its error if
    /// repeating it is of no use.
    pub(super) fn later(&mut self, mut probe: Probe, error: FetchError) -> Option<(Probe, FetchError)> {
        let (now, end) = (self.time.now, self.time.end);
        let is_now = match error {
            FetchError::ServerError { .. } | FetchError::Busy { .. } => true,
            // A broken connection is retried only while this server's answer still matters, and not after the
            // probe's deadline.
            FetchError::Broken(_) => self.has_answer() && self.may_wait() && now < probe.until,
            _ => false,
        };
        if !is_now || self.has_answer() && !self.is_awaited(&probe) {
            return Some((probe, error));
        }
        let longer = backoff(RETRY_MIN, probe.times, RETRY_MAX);
        // A pause of at most half the remaining time puts the last attempts shortly before the deadline.
        let half = Span::from_nanos(end.since(now).as_nanos() / 2);
        let at = now + pause(&error).max(longer.min(half).max(RETRY_MIN));
        if at >= end {
            return Some((probe, error));
        }
        if probe.is_demanded() && !std::mem::replace(&mut self.asking.retry_reported, true) {
            let (name, left) = (host(&probe.url), end.since(now).as_millis() / 1_000);
            let is_to_come = self.wanted.round == Round::Second || probe.kind == ProbeKind::Signature;
            let or = if is_to_come { "" } else { " or when another answers" };
            self.says.notices.push(format!("{name}: {error}: asked again, gives up in {left} s{or}"));
        }
        probe.times += 1;
        probe.begun = None;
        probe.body.clear();
        self.asking.again.push((at, probe, error));
        None
    }

    /// Returns whether servers that the user named are still waited for after another mirror has answered.
    /// They are waited for in the second round, because the other servers did not deliver the file, and for a
    /// moment if only a comparison of mirrors tells which bytes are right.
    fn may_wait(&self) -> bool {
        self.wanted.round == Round::Second || self.is_hashless() && self.is_soon()
    }

    /// Returns whether no mirror has answered yet, or the first answered less than [`QUIET`] ago.
    fn is_soon(&self) -> bool {
        self.time.answered_at.is_none_or(|at| self.time.now < at + QUIET)
    }

    /// Returns whether the probe is waited for although a mirror has answered. A signature is awaited until
    /// one has arrived that may be good, and in any case for a moment after the first mirror's answer.
    fn is_awaited(&mut self, probe: &Probe) -> bool {
        match probe.kind {
            ProbeKind::Signature => self.is_soon() || !self.documents.signatures.may_be_good(),
            _ => self.may_wait() && probe.is_of_user(),
        }
    }

    /// Sends the scheduled probes that are due again; returns when the next one is due. Once a mirror has
    /// answered, the other servers are not waited for, unless [their answers matter](Self::is_awaited).
    pub(super) fn ask_again(&mut self) -> Result<Option<Time>> {
        let now = self.time.now;
        let has_answer = self.has_answer();
        let mut waiting = Vec::new();
        for (at, mut probe, error) in std::mem::take(&mut self.asking.again) {
            let may_not_exist = probe.kind.may_not_exist(probe.by);
            if has_answer && !may_not_exist && !self.is_awaited(&probe) {
                self.failed(probe, error)?;
            } else if has_answer && may_not_exist || now >= at {
                probe.until = self.deadline(probe.kind, probe.by);
                (probe.via, probe.next_via) = (self.asking.via, self.asking.via + 1);
                self.put(probe);
            } else {
                waiting.push((at, probe, error));
            }
        }
        self.asking.again.extend(waiting);
        Ok(self.asking.again.iter().map(|(at, ..)| *at).min())
    }

    /// Returns whether a server has answered that it has the file.
    pub(super) fn has_answer(&self) -> bool {
        self.heads().next().is_some()
    }
}
