//! Fetches one file from mirrors, and perhaps also from sources that speak mmTP. The variants of the file are
//! tried in turn, each in a separate attempt, until one is the wanted file.
//!
//! An attempt resumes the part file that the attempt before has left, as a transfer does after an
//! interruption: the journal's record of each block tells whether the block counts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use anabranch_mirror::range_scheduler::MirrorId;
use anabranch_mirror::variants::{self, Differences};
use anabranch_mirror::verified_pool::Check;
use anabranch_mmtp::ContentId;

use super::content_fetch::{CHECKING_WHOLE, ContentFetch, checking};
use super::discovered_file::DiscoveredFile;
use super::discovery::candidates::{Attempt, Candidates};
use super::event_loop::EventLoop;
use super::exact_ranges;
use super::existing;
use super::history::{History, HistoryEntry, Provenance};
use super::mirror_driver::{Findings, Found, MirrorConfig};
use super::origin::host;
use super::outcome::FileOutcome;
use super::request::Request;
use super::sink::{Destination, Job, Sink, Wanted};
use crate::error::ErrorKind;
use crate::event::Observer;
use crate::target::{Demands, DestPath, Finished, IfWrong, RootCheck, block_of_file};
use crate::{BannedSource, Error, Report, Result, Verified, VouchedBy};

/// Fetches a file that mirrors, and perhaps `sources`, have. `begin` is called with the first variant and
/// returns the file's destination, or `None` if the file is read in order. Returns the variant that was
/// fetched, or tried last, and the outcome of its attempt.
pub(super) fn fetch<'o>(
    request: &Request,
    mut candidates: Candidates<'_>,
    sources: &[(String, Vec<SocketAddr>)],
    begin: &mut dyn FnMut(&DiscoveredFile, &mut Observer<'o>) -> Result<Option<DestPath>>,
    events: &mut EventLoop<'_, 'o>,
) -> Result<(DiscoveredFile, FileOutcome)> {
    let mut trials = Trials::default();
    let (mut place, mut last) = (None, None);
    loop {
        let mut attempt = match candidates.next(request, events) {
            Some(Ok(attempt)) => attempt,
            Some(Err(error)) if error.kind().ends_all() => return Err(error),
            Some(Err(error)) => {
                trials.failed(None, &error);
                trials.say_next(&candidates, events);
                continue;
            }
            None => return trials.end(last),
        };
        let place = match &place {
            Some(place) => place,
            None => {
                let new = place.insert(begin(&attempt.found, events.observer)?);
                if let Some(new) = new.as_ref().filter(|_| attempt.came.is_none()) {
                    candidates.variants.push_front(attempt.variant);
                    candidates.sort_by_what_is_there(new)?;
                    continue;
                }
                new
            }
        };
        trials.forget_versions(&mut attempt);
        // A reader cannot take back bytes that it was given, so it gets one variant only. A wrong part file
        // is kept as long as another variant, or a server that could not be asked, may still need it.
        let is_only = request.reader.is_some() || !candidates.has_others();
        let patience = (!is_only).then(|| attempt.variant.patience());
        let has_others = !is_only || !attempt.found.unheard.is_empty();
        let sources = if attempt.variant.is_alone { &[] } else { sources };
        let mut findings = Findings::default();
        let run = |events: &mut EventLoop<'_, '_>| {
            fetch_one(request, &attempt, sources, place.as_ref(), has_others, &mut findings, events)
        };
        let (ended, gave_way) = events.with_patience(patience, run);
        trials.note(&attempt, &findings);
        let error = match &ended {
            Ok(outcome) => outcome.result.as_ref().err().cloned(),
            Err(error) => Some(error.clone()),
        };
        let Some(error) = error.filter(|error| !error.kind().ends_all()) else {
            let mut outcome = ended?;
            let outvoted = candidates.outvoted();
            outcome.report.banned.extend(outvoted.map(|(source, reason)| BannedSource { source, reason }));
            if outcome.result.is_ok() {
                trials.name_liars(&candidates, &attempt, place.as_ref(), &mut outcome.report, events);
            }
            return Ok((attempt.found, outcome));
        };
        match findings.found {
            Some(Found::Wrong) => {
                candidates.variants.wrong(attempt.variant.clone(), findings.is_pure, |mirror| {
                    trials.rank(&attempt, &findings, mirror)
                });
            }
            Some(Found::Differ) => candidates.variants.differ(attempt.variant.clone(), &trials.differences),
            None if gave_way && !attempt.variant.is_last_turn(events.whole_timeout()) => {
                candidates.variants.put_back(attempt.variant.clone());
            }
            None => {}
        }
        keep_those_who_say_so(&attempt.found, &mut candidates);
        trials.failed(Some((&attempt, &findings)), &error);
        trials.say_next(&candidates, events);
        last = Some((attempt.found, ended, error));
    }
}

/// If only servers vouch for the hashes, drops the variants that would try a single mirror which does not
/// give the hashes.
fn keep_those_who_say_so(found: &DiscoveredFile, candidates: &mut Candidates<'_>) {
    let Some(VouchedBy::Hosts(hosts)) = found.vouched_by.as_ref().filter(|_| found.signed.is_none()) else {
        return;
    };
    let says_so: BTreeSet<MirrorId> = found
        .mirrors
        .iter()
        .filter(|mirror| hosts.contains(&host(&mirror.url)))
        .map(|mirror| mirror.place)
        .collect();
    candidates
        .variants
        .retain(|variant| !variant.is_alone || variant.mirrors.iter().all(|mirror| says_so.contains(mirror)));
}

/// Collects the findings of the failed attempts.
#[derive(Default)]
struct Trials {
    /// The blocks in which mirrors differ.
    differences: Differences,
    /// The mirrors whose version has changed since they were first asked.
    changed: BTreeSet<MirrorId>,
    /// The hosts whose whole file was wrong, each with a hash of its first bytes.
    wrong: BTreeMap<String, Option<[u8; 32]>>,
    /// The lengths of the variants that are not the wanted file.
    lengths: BTreeSet<u64>,
    /// The variants that did not arrive completely, each with the reason.
    incomplete: Vec<(String, String)>,
    /// The kind of the last error of a variant that failed before its attempt could begin.
    kind: Option<ErrorKind>,
}

impl Trials {
    /// Records the findings of an attempt about its mirrors.
    fn note(&mut self, attempt: &Attempt, findings: &Findings) {
        let place = |mirror: MirrorId| attempt.found.mirrors[usize::from(mirror)].place;
        for (block, said) in &findings.differences {
            let known = self.differences.entry(*block).or_default();
            let said: Vec<_> = said.iter().map(|(mirror, cv)| (place(*mirror), *cv)).collect();
            known.retain(|(mirror, _)| said.iter().all(|(other, _)| other != mirror));
            known.extend(said);
        }
        self.changed.extend(findings.changed.iter().map(|mirror| place(*mirror)));
    }

    /// Forgets the version of each mirror whose file changed in an earlier attempt, so that blocks of the old
    /// version are not credited to the mirror.
    fn forget_versions(&self, attempt: &mut Attempt) {
        let changed = attempt.found.mirrors.iter_mut().filter(|one| self.changed.contains(&one.place));
        for mirror in changed {
            (mirror.validator, mirror.date) = (None, None);
            attempt.found.aliases.forget_version(mirror.url.as_str());
        }
    }

    /// Returns the rank of a mirror of a wrong variant; the mirror of the greatest rank is tried alone first.
    /// The mirror that an earlier run tried ranks first, then mirrors that send ranges, then the mirror that
    /// has delivered most.
    fn rank(&self, attempt: &Attempt, findings: &Findings, mirror: MirrorId) -> (bool, bool, u64) {
        let mirrors = &attempt.found.mirrors;
        let Some(number) = mirrors.iter().position(|one| one.place == mirror) else {
            return Default::default();
        };
        let was_tried = findings.tried_before.is_some_and(|tried| usize::from(tried) == number);
        let brought = findings.brought.get(number).copied().unwrap_or_default();
        (was_tried, mirrors[number].ranges, brought)
    }

    /// Records a failed attempt. `of` is `None` for a variant that failed before its attempt could begin.
    fn failed(&mut self, of: Option<(&Attempt, &Findings)>, error: &Error) {
        let Some((attempt, findings)) = of else {
            self.kind = Some(error.kind());
            return self.is_incomplete(error.to_string(), String::new());
        };
        let length = attempt.found.id.length;
        let mirrors = &attempt.found.mirrors;
        match (findings.found, error.kind()) {
            (Some(Found::Wrong), _) | (None, ErrorKind::Corrupt) => {
                self.lengths.insert(length);
                if findings.is_pure {
                    self.wrong.extend(mirrors.iter().map(|mirror| (host(&mirror.url), mirror.opening)));
                }
            }
            (Some(Found::Differ), _) => {}
            (None, _) => {
                let hosts: Vec<String> = mirrors.iter().map(|mirror| host(&mirror.url)).collect();
                let what = format!("the file of {length} bytes from {}", hosts.join(", "));
                self.is_incomplete(what, format!(" does not come whole ({error})"));
            }
        }
    }

    /// Records that `what` did not arrive completely, and why. Replaces an earlier reason for `what`.
    fn is_incomplete(&mut self, what: String, why: String) {
        self.incomplete.retain(|(other, _)| *other != what);
        self.incomplete.push((what, why));
    }

    /// Describes the attempts that failed; returns `None` if there were none.
    fn text(&self) -> Option<String> {
        let lengths: Vec<String> = self.lengths.iter().map(u64::to_string).collect();
        let wrong: Vec<&str> = self.wrong.keys().map(String::as_str).collect();
        let openings: BTreeSet<_> = self.wrong.values().collect();
        let are_same = self.differences.is_empty() && openings.len() == 1 && lengths.len() == 1;
        let who = match wrong.len() {
            0 => String::new(),
            1 => format!(", and {} alone does not have it", wrong[0]),
            _ if are_same => {
                format!(": {} were tried alone, and all have the same bytes", wrong.join(" and "))
            }
            _ => format!(", and {}, each tried alone, do not have it", wrong.join(" and ")),
        };
        let text = (!lengths.is_empty()).then(|| {
            format!("what came of {} bytes is not the file that is wanted{who}", lengths.join(" or "))
        });
        let incomplete = self.incomplete.iter().map(|(what, why)| format!("{what}{why}"));
        let all: Vec<String> = text.into_iter().chain(incomplete).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    fn say_next(&self, candidates: &Candidates<'_>, events: &mut EventLoop<'_, '_>) {
        if let Some((why, next)) = self.text().zip(candidates.next_text()) {
            events.observer.notice(&format!("{why}: trying {next}"));
        }
    }

    /// Returns the result of the transfer when no variant is left; `last` is the last attempt, or `None` if
    /// no attempt began.
    fn end(
        &self,
        last: Option<(DiscoveredFile, Result<FileOutcome>, Error)>,
    ) -> Result<(DiscoveredFile, FileOutcome)> {
        let Some((found, ended, error)) = last else {
            let kind = self.kind.unwrap_or(ErrorKind::NotFound);
            return Err(kind.error(self.text().unwrap_or_else(|| "no mirror has the file".to_owned())));
        };
        let text = self.text().unwrap_or_default();
        let is_wrong = !self.lengths.is_empty();
        let is_one = self.lengths.len() + self.incomplete.len() < 2 && self.wrong.len() < 2;
        let error = match () {
            () if is_wrong && !found.unheard.is_empty() => Error::corrupt(format!(
                "{text}, and {} could not be asked: what came is kept, and the same `Get` asks again; \
                 leave out the servers that do not answer to have the others decide",
                found.unheard.join(" and ")
            )),
            () if is_one => error,
            () if is_wrong => Error::corrupt(format!("{error}; {text}")),
            () => error.kind().error(text),
        };
        let outcome = ended.map_err(|_| error.clone())?;
        Ok((found, FileOutcome { result: Err(error), ..outcome }))
    }

    /// Names the mirrors that had other bytes, now that the right file is there to compare them with.
    fn name_liars(
        &self,
        candidates: &Candidates<'_>,
        right: &Attempt,
        place: Option<&DestPath>,
        report: &mut Report,
        events: &mut EventLoop<'_, '_>,
    ) {
        let Some(place) = place.filter(|_| right.found.is_judged_as_a_whole()) else { return };
        let cv = |block| block_of_file(&place.path(), &right.found.id, block);
        let mut named: Vec<(String, String)> = variants::liars(&self.differences, cv)
            .into_iter()
            .map(|(mirror, block)| (host(candidates.url(mirror)), format!("wrong bytes in block {block}")))
            .collect();
        let length = Some(right.found.id.length);
        for (mirror, _) in candidates.variants.refuted().filter(|(_, its)| *its == length) {
            let name = host(candidates.url(mirror));
            if named.iter().all(|(known, _)| *known != name) {
                named.push((name, "what it has is not the file that is wanted".to_owned()));
            }
        }
        for (source, reason) in named {
            if report.banned.iter().all(|one| one.source != source) {
                events.observer.banned(&source, &reason);
                report.banned.push(BannedSource { source, reason });
            }
        }
        for mirror in candidates.variants.that_begin_otherwise(&right.variant) {
            let name = host(candidates.url(mirror));
            events
                .observer
                .notice(&format!("{name}: its file begins with other bytes: not the one that is wanted"));
        }
    }
}

/// Fetches one variant. If there are others (`has_others`), wrong blocks stay in the part file. `findings`
/// receives the findings about the mirrors, whether the attempt succeeds or fails.
fn fetch_one(
    request: &Request,
    attempt: &Attempt,
    sources: &[(String, Vec<SocketAddr>)],
    place: Option<&DestPath>,
    has_others: bool,
    findings: &mut Findings,
    events: &mut EventLoop<'_, '_>,
) -> Result<FileOutcome> {
    let Attempt { variant, found, others, came } = attempt;
    if let Some(place) = place {
        // A file with a signature gets its name only after the signature was checked, at the end.
        if found.signed.is_none() {
            existing::promote(found, place, events.observer)?;
        }
        existing::adopt(request, found, place, events.observer)?;
        if let Some(end) = existing::already(request, found, place, events.observer)? {
            return Ok(end);
        }
    }
    if let Some(end) = exact_ranges::fetch(request, found, sources, events)? {
        return Ok(end);
    }
    // With `overwrite`, a content that has never been verified is fetched again.
    let anew = request.force && found.since().is_some();
    let place = place.map(|place| place.clone().anew(anew));
    let mut mirrors = found.mirrors.clone();
    if !sources.is_empty() {
        // Sources give the hash of each block, so the version of a mirror need not be watched.
        mirrors.iter_mut().for_each(|mirror| mirror.seen_at = None);
    }
    // Where mirrors are only compared, no voucher has said which bytes are right.
    let according = found.vouched_by.as_ref().filter(|_| found.check != Check::Nothing);
    let config = MirrorConfig {
        mirrors,
        length: found.id.length,
        check: found.check.clone(),
        subscriber_pool: !sources.is_empty(),
        kept: request.reader.is_none(),
        // A content that is read in order cannot be tried again.
        judged: found.is_judged_as_a_whole() && request.reader.is_none(),
        is_alone: variant.is_alone,
        has_others,
        others: others.clone(),
        verified_alone: found.verification_text(),
        according: according.map_or_else(String::new, VouchedBy::according),
    };
    let mut content = ContentFetch::new(request, sources, Some(config), events)?;
    let wanted = Wanted { id: found.id, aliases: found.aliases.clone(), demands: demands(found, sources) };
    let transferred = match (came, place) {
        (Some(came), Some(place)) => {
            let (cx, length) = (&mut events.context(), wanted.id.length);
            let mut checking = checking(cx, CHECKING_WHOLE);
            let mut progress = |bytes| checking(length, bytes);
            let pieces = found.pieces();
            came.put(pieces.as_ref(), wanted, place, request.force, &mut progress).map(Some)
        }
        (_, place) => transfer(request, wanted, place, &mut content, events),
    };
    *findings = content.findings();
    if came.is_some() && transferred.as_ref().is_err_and(|error| error.kind() == ErrorKind::Corrupt) {
        (findings.found, findings.is_pure) = (Some(Found::Wrong), true);
    }
    let is_deserted = content.is_deserted() || sources.is_empty() || found.since().is_some();
    let verified = if is_deserted { found.verified() } else { Verified::Blocks };
    let transferred = transferred.map_err(|error| match &found.recalled {
        Some(recalled) if error.kind() == ErrorKind::Corrupt => {
            let said = doubted(&request.history, found, recalled, &content, error.message());
            error.with_message(said)
        }
        _ => error,
    });
    outcome(request, attempt, &content, verified, transferred, events)
}

/// Returns the checks that the file must pass at its end, and the treatment of a file that fails them.
fn demands(found: &DiscoveredFile, sources: &[(String, Vec<SocketAddr>)]) -> Demands {
    let (proof, signed) = (found.proof, found.signed.clone());
    let if_wrong = match () {
        () if found.is_self_asserted() && signed.is_none() => IfWrong::Keep,
        // Each mirror is tried alone in the end, and a wrong file from a single mirror is no mixture.
        () if sources.is_empty() && proof.root != RootCheck::Blocks => IfWrong::KeepOnce,
        () => IfWrong::Remove,
    };
    let (claims, weighs_claims) = (found.claims.clone(), found.is_vouched_for_by_nobody());
    Demands { proof, signed, if_wrong, claims, weighs_claims }
}

/// Returns the outcome of an attempt, with the report for the caller.
fn outcome(
    request: &Request,
    attempt: &Attempt,
    content: &ContentFetch,
    mut verified: Verified,
    transferred: Result<Option<Finished>>,
    events: &mut EventLoop<'_, '_>,
) -> Result<FileOutcome> {
    let Attempt { found, came, .. } = attempt;
    let (result, finished) = match transferred {
        Ok(finished) => (Ok(()), finished),
        Err(error) => (Err(error), None),
    };
    let id = finished.as_ref().map_or(found.id, |finished| ContentId { root: finished.root, ..found.id });
    let Finished { signer, dissent, .. } = finished.unwrap_or_default();
    let is_of_a_part = request.is_of_a_part();
    if result.is_ok() && !found.named && !is_of_a_part {
        remember(&request.history, found, content, id, signer.is_some() || verified != Verified::Nothing);
    }
    dissent.iter().for_each(|warning| events.observer.warning(warning));
    let is_wrong = result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Corrupt);
    if is_wrong || (result.is_err() || is_of_a_part) && verified == Verified::Whole {
        // The check that would have verified the file comes at its end. That check failed or was not reached.
        verified = Verified::Nothing;
    }
    let may_vouch = verified != Verified::Nothing;
    let mut verified_by = match (&found.vouched_by, &found.recalled) {
        _ if !may_vouch => None,
        (Some(VouchedBy::User), Some(recalled)) => Some(VouchedBy::History(recalled.day.clone())),
        (by, _) => by.clone(),
    };
    let mut unverified_since = found.since().map(str::to_owned);
    if let Some(signer) = signer {
        if verified_by != Some(VouchedBy::User) {
            (verified, unverified_since) = (Verified::Whole, None);
        }
        verified_by = Some(VouchedBy::Signature(signer));
    }
    let is_said = matches!(verified, Verified::Nothing | Verified::Unchanged)
        || matches!(verified_by, Some(VouchedBy::Hosts(_)));
    // A reader was advised when it began.
    let is_advised = is_said && result.is_ok() && request.reader.is_none() && found.is_unverified();
    let mut report = Report {
        verified,
        verified_by,
        unverified_since,
        advice: is_advised.then(|| found.advice()),
        ..content.report(&id, String::new(), result.is_ok())
    };
    if let Some(came) = came {
        report.last = came.progress.clone();
    }
    if result.is_err() && !found.named {
        // The root in the journal was made up for an unknown content.
        report.content = None;
    }
    Ok(FileOutcome { report, result })
}

/// Records in the history which URLs have the file. A URL that delivered only a part of it may have other
/// bytes elsewhere.
fn remember(
    history: &History,
    found: &DiscoveredFile,
    content: &ContentFetch,
    id: ContentId,
    has_proof: bool,
) {
    // Hashes for which only servers vouch prove only that the servers sent this content.
    let is_proven = has_proof && !found.is_self_asserted();
    let is_fresh = content.resumed_bytes() == 0;
    let came = match content.brought_by().count() {
        1 if is_fresh && is_proven => Provenance::Verified,
        1 if is_fresh => Provenance::Alone,
        // A hash accepted the blocks of an earlier run, from any mirrors.
        _ if !is_fresh && is_proven => return,
        // Several mirrors delivered the file, or an earlier run did, whose mirrors are not known.
        _ => Provenance::Mixed,
    };
    let mut validated: Vec<(&str, &str)> =
        content.mirrors().filter_map(|(url, validator)| Some((url, validator?))).collect();
    if content.resumed_bytes() == id.length {
        // An earlier run had the whole file, from these mirrors.
        validated.extend(found.mirrors.iter().filter_map(|m| Some((m.url.as_str(), m.validator()?))));
    }
    history.remember(validated.into_iter(), id, came);
}

/// Returns the error message for a content that differs from the `recalled` one. Forgets the recalled content
/// only if the very URL of its history entry has sent other bytes.
fn doubted(
    history: &History,
    found: &DiscoveredFile,
    recalled: &HistoryEntry,
    content: &ContentFetch,
    message: &str,
) -> String {
    let HistoryEntry { url, day, id, .. } = recalled;
    let is_it = |mirror: &str| mirror == url.as_str();
    let is_alone = content.resumed_bytes() == 0 && content.brought_by().eq([url.as_str()]);
    // Where blocks are verified, the mirror of each wrong block is known.
    let has_lied = matches!(found.check, Check::Leaves(_)) && content.liars().any(is_it);
    if is_alone || has_lied {
        history.forget(found.mirrors.iter().map(|mirror| &mirror.url), id);
        return format!(
            "{url} says that it has not changed since an earlier transfer, but its content is another: \
             what was known of it is forgotten, and the same `Get` fetches what is there now"
        );
    }
    let advice = match found.mirrors.len() {
        1 => "run the same `Get` again",
        _ => "name one mirror alone",
    };
    let host = host(url);
    format!("{message}; it was held against what {host} had on {day} and says it still has: {advice}")
}

/// Fetches one file, either to `place` or, if the request has a reader, in order into its buffer.
pub(super) fn transfer(
    request: &Request,
    wanted: Wanted,
    place: Option<DestPath>,
    content: &mut ContentFetch,
    events: &mut EventLoop<'_, '_>,
) -> Result<Option<Finished>> {
    let destination = match (&request.reader, place) {
        (Some(buffer), _) => {
            buffer.wake_by(events.world.waker());
            Destination::Reader(buffer.clone())
        }
        (None, Some(place)) => Destination::File(place),
        (None, None) => return Err(Error::system("a file without a place")),
    };
    let open = Box::new(move || Ok(destination));
    let job = Job { wanted, executable: false, open };
    let mut arrivals = Sink::new(vec![job], request.force);
    content.run(&mut arrivals, events)?;
    Ok(arrivals.into_finished())
}
