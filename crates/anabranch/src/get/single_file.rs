//! One file from mirrors, and perhaps from sources that speak mmTP too.

use std::net::SocketAddr;

use mirror::verified_pool::Check;
use mmtp::ContentId;

use super::content_fetch::ContentFetch;
use super::discovered_file::DiscoveredFile;
use super::event_loop::EventLoop;
use super::existing;
use super::history::{History, HistoryEntry, Provenance};
use super::mirror_driver::MirrorConfig;
use super::origin::host;
use super::outcome::FileOutcome;
use super::request::Request;
use super::sink::{Destination, Job, Sink};
use crate::error::ErrorKind;
use crate::target::{DestPath, FinalCheck};
use crate::{Error, Report, Result, Verified};

/// Fetches a file of which mirrors, and perhaps `sources`, are known to have it; it goes to `place`.
pub(super) fn fetch(
    request: &Request,
    found: &DiscoveredFile,
    sources: &[(String, Vec<SocketAddr>)],
    destination: &mut dyn FnMut() -> Result<DestPath>,
    events: &mut EventLoop<'_, '_>,
) -> Result<FileOutcome> {
    if let Some(end) = existing::already(request.force, found, destination, events.observer)? {
        return Ok(end);
    }
    // Whoever says `overwrite` wants fetched again what has never been verified.
    let anew = request.force && found.since().is_some();
    let mut destination = || destination().map(|path| path.anew(anew));
    let mut verified =
        if sources.is_empty() || found.since().is_some() { found.verified() } else { Verified::Blocks };
    let parts = MirrorConfig {
        length: found.id.length,
        check: found.check.clone(),
        subscriber_pool: !sources.is_empty(),
        mirrors: found.mirrors.clone(),
        kept: request.reader.is_none(),
        only_whole: found.is_verified_at_the_end(),
        verified_alone: found.verification_text(),
    };
    let mut content = ContentFetch::new(request, sources, Some(parts), events)?;
    let mut whole =
        transfer(request, found.id, &found.aliases, found.proof, &mut destination, &mut content, events);
    if content.is_deserted() {
        verified = found.verified();
    }
    if let (Ok(Some(root)), true) = (&whole, found.named)
        && *root != found.id.root
    {
        // The SHA-256 was what it had to be; where blocks cannot be verified, the root is seen only now.
        whole = Err(Error::corrupt(
            "it has the SHA-256 of `sha256`, but not the BLAKE3 of the URI or the Metalink: they name \
             different contents",
        ));
    }
    if let (Some(recalled), Err(error)) = (&found.recalled, &whole)
        && error.kind() == ErrorKind::Corrupt
    {
        let why = doubted(&request.history, found, recalled, &content, &error.to_string());
        whole = Err(Error::corrupt(why));
    }
    let id = whole.as_ref().ok().copied().flatten().map_or(found.id, |root| ContentId { root, ..found.id });
    if whole.is_ok() && !found.named {
        // Nobody knows who brought what an earlier run left.
        let is_fresh = content.resumed_bytes() == 0;
        let came = match verified {
            Verified::Nothing if is_fresh && content.brought_by().count() == 1 => Provenance::Alone,
            Verified::Nothing => Provenance::Mixed,
            _ => Provenance::Verified,
        };
        let validated = content.mirrors().filter_map(|(url, validator)| Some((url, validator?)));
        request.history.remember(validated, id, came);
    }
    let result = whole.map(drop);
    let unverified_since = found.since().map(str::to_owned);
    let mut report =
        Report { verified, unverified_since, ..content.report(&id, String::new(), result.is_ok()) };
    if result.is_err() && !found.named {
        // That of the journal says nothing to anybody.
        report.content = None;
    }
    Ok(FileOutcome { id, report, result })
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

/// Fetches one file, to `place` unless it is read in order; returns its root, if it was looked at.
pub(super) fn transfer(
    request: &Request,
    id: ContentId,
    aliases: &[[u8; 32]],
    proof: FinalCheck,
    destination: &mut dyn FnMut() -> Result<DestPath>,
    content: &mut ContentFetch,
    events: &mut EventLoop<'_, '_>,
) -> Result<Option<[u8; 32]>> {
    let destination = match &request.reader {
        Some(buffer) => {
            buffer.wake_by(events.world.waker());
            Destination::Reader(buffer.clone())
        }
        None => Destination::File(destination()?),
    };
    let open = Box::new(move || Ok(destination));
    let mut arrivals =
        Sink::new(vec![Job { id, aliases: aliases.to_vec(), proof, executable: false, open }], request.force);
    content.run(&mut arrivals, events)?;
    Ok(arrivals.root())
}
