//! What a caller asks for, with every option checked.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anabranch_algo::control::Algorithm;
use anabranch_algo::{Rate, Span};
use anabranch_http::client::Options;
use anabranch_mirror::digests::Digests;
use anabranch_net::{Egress, Limits};

use super::groups::Groups;
use super::history::History;
use super::reassembly_buffer::ReassemblyBuffer;
use crate::host_port::HostPort;
use crate::openpgp::Keyring;
#[cfg(any(test, feature = "soak"))]
use crate::target::Room;
use crate::target::{DestPath, Output};
use crate::{Error, Result};

/// How to fetch what [`Locators`](super::locators::Locators) name, and where to put it.
pub(crate) struct Request {
    /// Sources that speak mmTP, besides those of the URI.
    pub(super) from: Vec<HostPort>,
    /// The local ends to use; none: every usable one.
    pub(super) via: Vec<Egress>,
    pub(super) output: Output,
    /// Where it goes instead, if it is read in order.
    pub(super) reader: Option<ReassemblyBuffer>,
    pub(super) algorithm: Algorithm,
    pub(super) groups: Groups,
    /// Without an answer for so long, it is given up.
    pub(super) timeout: Span,
    /// Whether another file at the destination may be overwritten.
    pub(super) force: bool,
    /// Whether a file at the destination that another program has begun is gone on with.
    pub(super) adopts: bool,
    /// Hashes that the whole must have.
    pub(super) digests: Digests,
    /// What the list that these are from calls it, where its URLs have different names.
    pub(super) listed_name: Option<Vec<u8>>,
    /// Keys by one of which the file must be signed.
    pub(super) keyring: Option<Arc<Keyring>>,
    pub(super) http: Options,
    pub(super) history: History,
    /// What the target's file system has left, where that is simulated.
    #[cfg(any(test, feature = "soak"))]
    pub(super) room: Option<Arc<Room>>,
}

impl Request {
    /// The place of a file at `path`, which [`Output::file_path`] has given.
    ///
    /// # Errors
    /// [`ErrorKind::Target`](crate::ErrorKind::Target) if its directory cannot be made or opened.
    pub(super) fn place(&self, path: &Path) -> Result<DestPath> {
        let place = self.output.place(path)?;
        #[cfg(any(test, feature = "soak"))]
        let place = place.within(self.room.clone());
        Ok(place)
    }

    /// What is asked for is a directory.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if it is to be read in order.
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

/// The sources that are named.
///
/// # Errors
/// Which is none, and why.
pub(super) fn sources(named: &[String]) -> Result<Vec<HostPort>, String> {
    let source = |text: &String| text.parse().map_err(|e| format!("source {text}: {e}"));
    named.iter().map(source).collect()
}

pub(super) fn span(duration: Duration) -> Span {
    Span::from_nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

/// No limit, but a mistake.
const NO_RATE: Rate = Rate::from_bytes(0);

/// The local ends that are `named`, each perhaps with what may be taken over it, and all limits.
///
/// # Errors
/// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if one is not there, or nothing would come.
pub(super) fn local_ends(
    named: &[(String, Option<Rate>)],
    limit: Option<Rate>,
) -> Result<(Vec<Egress>, Limits)> {
    let via = |(text, limit): &(String, Option<Rate>)| match Egress::parse(text) {
        Ok(via) => Ok((via, *limit)),
        Err(e) => Err(Error::usage(format!("interface or address {text}: {e}")).because(e)),
    };
    let via: Vec<(Egress, Option<Rate>)> = named.iter().map(via).collect::<Result<_>>()?;
    let mut rates = [limit].into_iter().chain(via.iter().map(|(_, limit)| *limit));
    if rates.any(|rate| rate == Some(NO_RATE)) {
        return Err(Error::usage("`limit`: nothing would come at a rate of zero"));
    }
    let limited = via.iter().filter_map(|(via, limit)| Some((via.clone(), (*limit)?)));
    let limits = Limits::new(limit, limited);
    Ok((via.into_iter().map(|(via, _)| via).collect(), limits))
}
