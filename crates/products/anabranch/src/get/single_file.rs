//! One file from mirrors, and perhaps from sources that speak mmTP too.

use std::net::SocketAddr;

use anabranch_mirror::metalink::Pieces;
use anabranch_mirror::verified_pool::Check;
use anabranch_mmtp::ContentId;

use super::content_fetch::{CHECKING_WHOLE, ContentFetch, checking};
use super::discovered_file::DiscoveredFile;
use super::discovery::alternatives::{Alternatives, Next, ends_all};
use super::event_loop::EventLoop;
use super::existing;
use super::history::{History, HistoryEntry, Provenance};
use super::mirror_driver::MirrorConfig;
use super::one_answer::OneAnswer;
use super::origin::host;
use super::outcome::FileOutcome;
use super::request::Request;
use super::sink::{Destination, Job, Sink};
use crate::error::ErrorKind;
use crate::target::{Aliases, Demands, DestPath, IfWrong, RootCheck};
use crate::{Error, Report, Result, Verified, VouchedBy};

/// Fetches a file that mirrors, and perhaps `sources`, have; it goes to `destination`. Of several that may be
/// it, the first, and while what comes is not what is wanted or does not come to its end, the next; which it
/// was, and how it ended.
pub(super) fn fetch(
    request: &Request,
    mut alternatives: Alternatives<'_>,
    sources: &[(String, Vec<SocketAddr>)],
    destination: &mut dyn FnMut() -> Result<DestPath>,
    events: &mut EventLoop<'_, '_>,
) -> Result<(DiscoveredFile, FileOutcome)> {
    if alternatives.len() > 1 {
        alternatives.sort_by_what_is_there(&destination()?)?;
    }
    let (mut tried, mut slow) = (Tried::default(), None);
    while let Some(next) = alternatives.next_text() {
        let is_last = alternatives.len() == 1;
        if let Some(why) = slow.take().or_else(|| tried.text()) {
            events.observer.notice(&format!("{why}: trying {next}"));
        }
        let Some(Next { found, comes_again }) = alternatives.next(request, events) else { break };
        let ended = found.map(|found| {
            let fetch = |events: &mut _| fetch_one(request, &found, sources, destination, is_last, events);
            let (outcome, is_slow) = events.beside_others(alternatives.turn(&found, is_last), fetch);
            (found, outcome, is_slow)
        });
        let (error, found, outcome, is_slow) = match ended {
            Ok((found, Ok(outcome), is_slow)) => match outcome.result.clone() {
                Ok(()) => return Ok((found, outcome)),
                Err(error) => (error, Some(found), Some(outcome), is_slow),
            },
            Ok((found, Err(error), is_slow)) => (error, Some(found), None, is_slow),
            Err(error) => (error, None, None, false),
        };
        let is_end = ends_all(error.kind());
        if is_end || is_last {
            let error = if is_end { error } else { tried.end(error) };
            let (Some(found), Some(outcome)) = (found, outcome) else { return Err(error) };
            return Ok((found, FileOutcome { result: Err(error), ..outcome }));
        }
        let length = found.as_ref().map(|found| found.id.length);
        let comes_again = comes_again || found.is_some_and(|found| is_slow && alternatives.put_back(found));
        if comes_again {
            let what = length.map_or_else(|| "it".to_owned(), |length| format!("that of {length} bytes"));
            slow = Some(format!("{error}; {what} comes again after the others"));
        } else {
            tried.add(length, &error);
        }
    }
    Err(Error::not_found("no mirror has the file"))
}

/// What was tried in vain.
#[derive(Default)]
struct Tried {
    /// The lengths of those that are not what is wanted.
    wrong: Vec<String>,
    /// What kept others from coming whole.
    incomplete: Vec<String>,
}

impl Tried {
    /// One has ended so. Without a length: it is not known, for it did not come.
    fn add(&mut self, length: Option<u64>, error: &Error) {
        match (error.kind(), length) {
            (ErrorKind::Corrupt, Some(length)) => self.wrong.push(length.to_string()),
            (_, Some(length)) => {
                self.incomplete.push(format!("that of {length} bytes does not come whole ({error})"));
            }
            (_, None) => self.incomplete.push(error.to_string()),
        }
    }

    /// What is to be said of them, if there are any.
    fn text(&self) -> Option<String> {
        let wrong = (!self.wrong.is_empty())
            .then(|| format!("no file of {} bytes is the one that is wanted", self.wrong.join(" or ")));
        let all: Vec<String> = wrong.into_iter().chain(self.incomplete.iter().cloned()).collect();
        (!all.is_empty()).then(|| all.join(", and "))
    }

    /// The error of all, where the last has ended with this one.
    fn end(&self, last: Error) -> Error {
        let kind = last.kind();
        match self.text() {
            Some(why) if self.wrong.is_empty() => kind.error(format!("{last}; and {why}")),
            Some(why) => Error::corrupt(format!("{last}; {why}, either")),
            None => last,
        }
    }
}

/// Fetches one file. Unless it `is_last`, the file that is meant may be another one: then nothing is kept of
/// what is wrong.
fn fetch_one(
    request: &Request,
    found: &DiscoveredFile,
    sources: &[(String, Vec<SocketAddr>)],
    destination: &mut dyn FnMut() -> Result<DestPath>,
    is_last: bool,
    events: &mut EventLoop<'_, '_>,
) -> Result<FileOutcome> {
    existing::adopt(request, found, destination, events.observer)?;
    if let Some(end) = existing::already(request, found, destination, events.observer)? {
        return Ok(end);
    }
    // Whoever says `overwrite` wants fetched again what has never been verified.
    let anew = request.force && found.since().is_some();
    let mut destination = || destination().map(|path| path.anew(anew));
    let mut verified =
        if sources.is_empty() || found.since().is_some() { found.verified() } else { Verified::Blocks };
    let is_whole_known = found.is_judged_as_a_whole();
    let unheard = found.unheard.clone();
    // What is read in order cannot be tried again.
    let judged = is_whole_known && request.reader.is_none() && found.mirrors.len() + unheard.len() > 1;
    let mut mirrors = found.mirrors.clone();
    if !sources.is_empty() {
        // They are verified as they come.
        mirrors.iter_mut().for_each(|mirror| mirror.seen_at = None);
    }
    let parts = MirrorConfig {
        length: found.id.length,
        check: found.check.clone(),
        subscriber_pool: !sources.is_empty(),
        mirrors,
        unheard,
        kept: request.reader.is_none(),
        verified_alone: found.verification_text(),
        // Where mirrors are only compared, it is nobody's word.
        according: found
            .vouched_by
            .as_ref()
            .filter(|_| found.check != Check::Nothing)
            .map_or_else(String::new, VouchedBy::according),
        is_whole_known,
        judged,
        candidates: match &found.vouched_by {
            Some(VouchedBy::Hosts(hosts)) if found.signed.is_none() => hosts.clone(),
            _ => Vec::new(),
        },
    };
    let mut content = ContentFetch::new(request, sources, Some(parts), events)?;
    let (proof, signed) = (found.proof, found.signed.clone());
    let if_wrong = match found.mirrors.len() {
        _ if !is_last => IfWrong::Remove,
        _ if found.is_self_asserted() && signed.is_none() => IfWrong::Keep,
        // What a single mirror sent is no mixture, and each is tried alone.
        mirrors if sources.is_empty() && proof.root != RootCheck::Blocks && (mirrors == 1 || judged) => {
            IfWrong::KeepOnce
        }
        _ => IfWrong::Remove,
    };
    let (claims, weighs_claims) = (found.claims.clone(), found.is_vouched_for_by_nobody());
    let demands = Demands { proof, signed, if_wrong, claims, weighs_claims };
    let wanted = Wanted { id: found.id, aliases: found.aliases.clone(), demands };
    let transferred = match &found.came {
        None => transfer(request, &wanted, &mut destination, &mut content, events),
        Some(came) => place(came, found.pieces().as_ref(), wanted, destination()?, request.force, events)
            .map_err(|error| others_may_have_it(&error, &found.unheard)),
    };
    let (mut whole, signer, dissent) = match transferred {
        Ok(Arrived { root, signer, dissent }) => (Ok(root), signer, dissent),
        Err(error) => (Err(error), None, Vec::new()),
    };
    if content.is_deserted() {
        verified = found.verified();
    }
    if let (Some(recalled), Err(error)) = (&found.recalled, &whole)
        && error.kind() == ErrorKind::Corrupt
    {
        let why = doubted(&request.history, found, recalled, &content, &error.to_string());
        whole = Err(Error::corrupt(why));
    }
    let id = whole.as_ref().ok().copied().flatten().map_or(found.id, |root| ContentId { root, ..found.id });
    if whole.is_ok() && !found.named {
        remember(&request.history, found, &content, id, signer.is_some() || verified != Verified::Nothing);
    }
    dissent.iter().for_each(|warning| events.observer.warning(warning));
    let result = whole.map(drop);
    let is_wrong = result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Corrupt);
    if is_wrong || result.is_err() && verified == Verified::Whole {
        // It was to be at the end.
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
    let mut report = Report {
        verified,
        verified_by,
        unverified_since,
        ..content.report(&id, String::new(), result.is_ok())
    };
    if let Some(came) = &found.came {
        report.last = came.progress.clone();
    }
    if result.is_err() && !found.named {
        // That of the journal says nothing to anybody.
        report.content = None;
    }
    Ok(FileOutcome { id, report, result, has_dissent: !dissent.is_empty() })
}

/// Remembers which URLs have what came. That it is right says nothing of a URL of which only a part came: the
/// rest of what that has may be something else.
fn remember(
    history: &History,
    found: &DiscoveredFile,
    content: &ContentFetch,
    id: ContentId,
    has_proof: bool,
) {
    // What only servers say proves no more than that they sent it.
    let is_proven = has_proof && !found.is_self_asserted();
    let is_fresh = content.resumed_bytes() == 0;
    let came = match content.brought_by().count() {
        1 if is_fresh && is_proven => Provenance::Verified,
        1 if is_fresh => Provenance::Alone,
        // A hash recognised what was there, wherever that is from.
        _ if !is_fresh && is_proven => return,
        // Nobody knows who brought what an earlier run left.
        _ => Provenance::Mixed,
    };
    let mut validated: Vec<(&str, &str)> =
        content.mirrors().filter_map(|(url, validator)| Some((url, validator?))).collect();
    if content.resumed_bytes() == id.length {
        // An earlier run had all of it, from these.
        validated.extend(found.mirrors.iter().filter_map(|m| Some((m.url.as_str(), m.validator()?))));
    }
    history.remember(validated.into_iter(), id, came);
}

/// What came is not what was `recalled`: what is to be said of that. What is remembered is forgotten only if
/// the very URL that it is of has sent something else.
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
    // Where blocks are verified, it is known who sent what.
    let has_lied = matches!(found.check, Check::Leaves(_)) && content.liars().any(is_it);
    if is_alone || has_lied {
        history.forget(found.mirrors.iter().map(|mirror| &mirror.url), id);
        return format!(
            "{url} says that it has not changed since an earlier transfer, but its content is another: \
             what was known of it is forgotten, and the same request fetches what is there now"
        );
    }
    let advice = match found.mirrors.len() {
        1 => "repeat the request",
        _ => "name one mirror alone",
    };
    let host = host(url);
    format!("{message}; it was held against what {host} had on {day} and says it still has: {advice}")
}

/// What is to come.
pub(super) struct Wanted {
    pub(super) id: ContentId,
    /// What the content is known by besides.
    pub(super) aliases: Aliases,
    pub(super) demands: Demands,
}

/// What has come.
pub(super) struct Arrived {
    /// Its root, if it was looked at.
    root: Option<[u8; 32]>,
    /// The fingerprint of the key that signed it.
    signer: Option<String>,
    /// What servers say of it that say something else.
    dissent: Vec<String>,
}

/// What is wrong is not the last word where others `unheard` may have what is right.
fn others_may_have_it(error: &Error, unheard: &[String]) -> Error {
    if unheard.is_empty() || error.kind() != ErrorKind::Corrupt {
        return error.clone();
    }
    let unheard = unheard.join(" and ");
    Error::corrupt(format!("{error}; {unheard} could not be asked: the same request asks again"))
}

/// Puts what came in one answer into its place.
fn place(
    came: &OneAnswer,
    pieces: Option<&Pieces>,
    wanted: Wanted,
    place: DestPath,
    force: bool,
    events: &mut EventLoop<'_, '_>,
) -> Result<Arrived> {
    let what = (wanted.id, wanted.aliases, wanted.demands);
    let mut cx = events.context();
    let mut arrivals = came.put(pieces, what, place, force, &mut checking(&mut cx, CHECKING_WHOLE))?;
    let (root, signer) = (arrivals.root(), arrivals.signer().map(str::to_owned));
    Ok(Arrived { root, signer, dissent: arrivals.dissent() })
}

/// Fetches one file, to `place` unless it is read in order.
pub(super) fn transfer(
    request: &Request,
    wanted: &Wanted,
    destination: &mut dyn FnMut() -> Result<DestPath>,
    content: &mut ContentFetch,
    events: &mut EventLoop<'_, '_>,
) -> Result<Arrived> {
    let destination = match &request.reader {
        Some(buffer) => {
            buffer.wake_by(events.world.waker());
            Destination::Reader(buffer.clone())
        }
        None => Destination::File(destination()?),
    };
    let open = Box::new(move || Ok(destination));
    let (id, aliases, demands) = (wanted.id, wanted.aliases.clone(), wanted.demands.clone());
    let job = Job { id, aliases, demands, executable: false, open };
    let mut arrivals = Sink::new(vec![job], request.force);
    content.run(&mut arrivals, events)?;
    let (root, signer) = (arrivals.root(), arrivals.signer().map(str::to_owned));
    Ok(Arrived { root, signer, dissent: arrivals.dissent() })
}
