//! Holds the request of a caller, after every option was checked.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anabranch_algo::control::Algorithm;
use anabranch_algo::{Rate, Span};
use anabranch_http::client::Options;
use anabranch_mirror::digests::Digests;
use anabranch_net::via::{self, Via, ViaError};
use anabranch_net::{Egress, Limits};

use super::groups::Groups;
use super::history::History;
use super::link_policy::Links;
use super::reassembly_buffer::ReassemblyBuffer;
use crate::host_port::HostPort;
use crate::openpgp::Keyring;
#[cfg(any(test, feature = "soak"))]
use crate::target::Room;
use crate::target::{DestPath, Output};
use crate::{Error, Result};

/// Says how to fetch the content that [`Locators`](super::locators::Locators) name, and where to put it.
pub(crate) struct Request {
    /// Sources that speak mmTP, besides those of the URI.
    pub(super) from: Vec<HostPort>,
    /// The local ends to use, with the conditions of their use.
    pub(super) links: Links,
    pub(super) output: Output,
    /// The buffer that receives the file instead of `output`, if the file is read in order.
    pub(super) reader: Option<ReassemblyBuffer>,
    pub(super) algorithm: Algorithm,
    pub(super) groups: Groups,
    /// The time without an answer after which the transfer is given up.
    pub(super) timeout: Span,
    /// Whether another file at the destination may be overwritten.
    pub(super) force: bool,
    /// Whether to resume a file at the destination that another program has begun.
    pub(super) adopts: bool,
    /// The hashes that the whole file must have.
    pub(super) digests: Digests,
    /// The file's name in the list of hashes, if its URLs have different names.
    pub(super) listed_name: Option<Vec<u8>>,
    /// The keys by one of which the file must be signed.
    pub(super) keyring: Option<Arc<Keyring>>,
    pub(super) http: Options,
    pub(super) history: History,
    /// The room that is left on the target's file system, if it is simulated.
    #[cfg(any(test, feature = "soak"))]
    pub(super) room: Option<Arc<Room>>,
}

impl Request {
    /// Opens the destination of a file at `path`, which [`Output::file_path`] has returned.
    ///
    /// # Errors
    /// [`ErrorKind::Target`](crate::ErrorKind::Target) if its directory cannot be made or opened.
    pub(super) fn place(&self, path: &Path) -> Result<DestPath> {
        let place = self.output.place(path)?;
        #[cfg(any(test, feature = "soak"))]
        let place = place.within(self.room.clone());
        Ok(place)
    }

    /// Returns whether only a part of the content is wanted, so that no hash of the whole can be checked.
    pub(super) fn is_of_a_part(&self) -> bool {
        self.reader.as_ref().is_some_and(|buffer| !buffer.is_whole())
    }

    /// Checks that this request may fetch a directory.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if the content is to be read in order.
    pub(super) fn allow_directory(&self) -> Result<()> {
        match self.reader {
            Some(_) => Err(Error::usage(
                "it is a directory, and only one file can be read in order: choose a directory for it \
                 with `to_directory`",
            )),
            None => Ok(()),
        }
    }
}

/// Parses the sources that the caller named.
///
/// # Errors
/// If a text does not name a source, returns a message with the text and the reason.
pub(super) fn sources(named: &[String]) -> Result<Vec<HostPort>, String> {
    let source = |text: &String| text.parse().map_err(|e| format!("source {text}: {e}"));
    named.iter().map(source).collect()
}

pub(super) fn span(duration: Duration) -> Span {
    Span::from_nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

/// The rate zero, which is refused because no bytes would arrive.
const NO_RATE: Rate = Rate::from_bytes(0);

/// Parses the local ends in `named`, each perhaps with a rate limit besides its conditions, and returns them
/// and all limits.
///
/// # Errors
/// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if a text names no link, if a local end does not exist, if a
/// limit is zero, or if the links contradict each other.
pub(super) fn local_ends(
    named: &[(String, Option<Rate>)],
    limit: Option<Rate>,
) -> Result<(Vec<(Via, Egress)>, Limits)> {
    let link = |(text, limit): &(String, Option<Rate>)| {
        let wrong = |why: &dyn std::fmt::Display| Error::usage(format!("interface or address {text}: {why}"));
        let mut via: Via = text.parse().map_err(|e: ViaError| wrong(&e).because(e))?;
        let end = Egress::parse(&via.name).map_err(|e| wrong(&e).because(e))?;
        via.limit = limit.or(via.limit);
        Ok((via, end))
    };
    let links: Vec<(Via, Egress)> = named.iter().map(link).collect::<Result<_>>()?;
    let via: Vec<Via> = links.iter().map(|(via, _)| via.clone()).collect();
    via::check_words(&via).map_err(|e| Error::usage(format!("`via`: {e}")).because(e))?;
    let mut rates = [limit].into_iter().chain(via.iter().map(|via| via.limit));
    if rates.any(|rate| rate == Some(NO_RATE)) {
        return Err(Error::usage("`limit`: nothing would come at a rate of zero"));
    }
    let limited = links.iter().filter_map(|(via, end)| Some((end.clone(), via.limit?)));
    let limits = Limits::new(limit, limited);
    Ok((links, limits))
}
