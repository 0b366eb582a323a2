//! Fetches a content from HTTP servers, and from sources that speak mmTP if there are any.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::attempt;
use super::directory;
use super::discovered_file::DiscoveredFile;
use super::discovery::candidates::{Discovered, discover};
use super::discovery::rounds::in_rounds;
use super::discovery::{Expected, Round};
use super::event_loop::EventLoop;
use super::locators::{Beside, Locators, MetalinkOrigin};
use super::outcome::{FileOutcome, Outcome};
use super::request::Request;
use crate::error::ErrorKind;
use crate::event::Observer;
use crate::filenames::lossy;
use crate::{Error, Report, Result, VouchedBy};

/// Fetches the content that the servers in `named` have. `sources` speak mmTP. Returns `None` if no server
/// has the content, so that `sources` have to deliver it alone.
pub(super) fn fetch(
    request: &Request,
    named: &Locators,
    sources: &[(String, Vec<SocketAddr>)],
    events: &mut EventLoop<'_, '_>,
) -> Result<Option<Outcome>> {
    let transfer = Transfer { request, named, sources };
    // A content that is read in order cannot be tried again.
    if !sources.is_empty() || request.reader.is_some() {
        return transfer.run(Round::Only, &mut Vec::new(), events);
    }
    let run =
        |round, absent: &mut Vec<String>, events: &mut EventLoop<'_, '_>| transfer.run(round, absent, events);
    let error = |outcome: &Option<Outcome>| outcome.as_ref()?.result.as_ref().err().map(Error::kind);
    in_rounds(request, &mut BTreeSet::new(), events, run, error)
}

/// Holds the parameters that all rounds share.
struct Transfer<'a> {
    request: &'a Request,
    named: &'a Locators,
    sources: &'a [(String, Vec<SocketAddr>)],
}

impl Transfer<'_> {
    /// Runs one round; adds the servers that could not be asked to `absent`. Returns `None` if no server has
    /// the content and there are sources.
    fn run(
        &self,
        round: Round,
        absent: &mut Vec<String>,
        events: &mut EventLoop<'_, '_>,
    ) -> Result<Option<Outcome>> {
        let Self { request, named, sources } = self;
        let expected = Expected { id: named.uri.as_ref().map(|uri| uri.id), digests: request.digests };
        let discovered = discover((*named).clone(), expected, round, absent, request, events);
        let candidates = match discovered {
            Ok(Discovered::File(candidates)) => candidates,
            Ok(Discovered::Directory(metalink, url, by)) => {
                // If no URL of a Metalink was named, the named URLs led to this Metalink, so they name the
                // same directory.
                let beside = Beside::of(named);
                let beside = Beside { urls: beside.urls && !named.lists.is_empty(), ..beside };
                let by = by.map_or(VouchedBy::User, |host| VouchedBy::Hosts(vec![host]));
                let base = MetalinkOrigin::Url(url);
                return directory::get(request, metalink, base, by, &beside, events).map(Some);
            }
            Err(error)
                if named.uri.is_some()
                    && !sources.is_empty()
                    && matches!(
                        error.kind(),
                        ErrorKind::NotFound | ErrorKind::Unreachable | ErrorKind::Refused
                    ) =>
            {
                events.observer.notice(&format!("{error}: going on without mirrors"));
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let mut path = PathBuf::new();
        let mut begin = |first: &DiscoveredFile, observer: &mut Observer<'_>| {
            if !sources.is_empty() && !first.named {
                return Err(Error::usage(
                    "`from_source` needs the content's id, which neither URL nor Metalink tell: give the \
                     anabranch: URI too",
                ));
            }
            let is_read = request.reader.is_some();
            let is_unverified = sources.is_empty() && first.is_unverified();
            match (is_unverified, is_read) {
                // A reader does not see the report, and may have asked for errors only.
                (true, true) if first.is_vouched_for_by_nobody() => {
                    observer.warning(&format!("UNVERIFIED: {}", first.advice()));
                }
                (true, true) => observer.notice(&first.advice()),
                // The report says so at the end, with advice.
                (true, false) => {}
                (false, _) => observer.notice(&first.verification_text()),
            }
            if is_read && !request.is_of_a_part() && sources.is_empty() && first.is_verified_at_the_end() {
                observer.notice(
                    "what is read is only known to be right when all of it has come without an error",
                );
            }
            path = first.names.path(request, false, &first.id, observer)?;
            (!is_read).then(|| request.place(&path)).transpose()
        };
        let (_, FileOutcome { report, result, .. }) =
            attempt::fetch(request, *candidates, sources, &mut begin, events)?;
        Ok(Some(Outcome { report: Report { target: lossy(&path), ..report }, result }))
    }
}
