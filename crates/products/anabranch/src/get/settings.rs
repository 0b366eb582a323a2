//! Holds the options of a fetch as the caller gives them, independent of content and destination.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anabranch_algo::Rate;
use anabranch_algo::control::{ALGORITHMS, Algorithm};
use anabranch_house::links::Mode;
use anabranch_http::client::Options;
use anabranch_mirror::url::Url;
use anabranch_net::{Limits, SharedLimit};

use super::controllers::unknown_controller;
use super::document;
use super::groups::Groups;
use super::history::History;
use super::link_policy::Links;
use super::locators::Locators;
use super::origin::{Origin, origin};
use super::request::{Request, local_ends, sources, span};
use crate::checksum::{KnownHash, LIST_MAX, ListedHash};
use crate::event::Observer;
use crate::openpgp::Keyring;
use crate::target::Output;
use crate::{Client, Error, Result};

/// The time without any answer after which a transfer gives up, unless the caller sets another.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// The least time between two reports of progress, unless the caller sets another.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// The options about links and rates.
#[derive(Clone, Default)]
pub(super) struct LinkSettings {
    /// The links, as the caller wrote them, each perhaps with a limit besides.
    pub(super) via: Vec<(String, Option<Rate>)>,
    /// How the links work together.
    pub(super) mode: Mode,
    /// The directory for the counts of links with a cap.
    pub(super) state_dir: Option<PathBuf>,
    /// The limit of the transfer.
    pub(super) limit: Option<Rate>,
    /// The limits that other transfers share.
    pub(super) shared_limits: Vec<SharedLimit>,
}

impl LinkSettings {
    /// Returns the links with their conditions, and all limits.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if a text names no link, if a local end does not
    /// exist, if a limit is zero, or if the links contradict each other.
    fn checked(self) -> Result<(Links, Limits)> {
        let (links, limits) = local_ends(&self.via, self.limit)?;
        let (named, ends) = links.into_iter().unzip();
        let links = Links { ends, named, mode: self.mode, state_dir: self.state_dir, limit: self.limit };
        Ok((links, limits.shared(self.shared_limits)))
    }
}

/// The options that the methods of [`Get`](super::Get) set. They are checked when a transfer begins.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) from: Vec<String>,
    pub(super) links: LinkSettings,
    pub(super) controller: String,
    pub(super) groups: Groups,
    pub(super) timeout: Duration,
    pub(super) progress_every: Duration,
    pub(super) checksum: Option<KnownHash>,
    /// The URL of a list of hashes, which is fetched when a transfer begins.
    pub(super) checksum_url: Option<String>,
    pub(super) keyring: Option<PathBuf>,
    pub(super) http: Options,
    pub(super) history: History,
    /// Whether every URL has a separate file.
    pub(super) is_each: bool,
    /// The client whose threads run the transfer.
    pub(super) client: Option<Client>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            from: Vec::new(),
            links: LinkSettings::default(),
            controller: ALGORITHMS[0].name.to_owned(),
            groups: Groups::default(),
            timeout: TIMEOUT,
            progress_every: PROGRESS_EVERY,
            checksum: None,
            checksum_url: None,
            keyring: None,
            http: Options::default(),
            history: History::default(),
            is_each: false,
            client: None,
        }
    }
}

impl Settings {
    /// Returns the settings for each of `files` files. A list of hashes is read now, once.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if an option is for one content only, or if the list
    /// cannot be read.
    pub(super) fn of_each(self, files: usize) -> Result<Self> {
        if !self.from.is_empty() {
            return Err(Error::usage(
                "`from_source` is of one content, and with `each` every URL has its own",
            ));
        }
        if matches!(self.checksum, Some(KnownHash::Is(_))) && files > 1 {
            return Err(Error::usage(
                "`checksum` has the hash of one file, and with `each` every URL is a file of its own: give a \
                 list of hashes, such as SHA256SUMS",
            ));
        }
        let checksum = self.checksum.map(KnownHash::loaded).transpose()?;
        Ok(Self { checksum, ..self })
    }

    /// Fetches the list of hashes whose URL is set, if there is one. The user's secrets are sent to its
    /// server only if the server is one of `named`, the origins of the file's URLs.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if the URL or an option is not valid; the error of the
    /// list's server.
    pub(super) fn with_list(mut self, named: &[Origin], observer: &mut Observer<'_>) -> Result<Self> {
        let Some(url) = self.checksum_url.take() else { return Ok(self) };
        let url =
            Url::parse(&url).map_err(|e| Error::usage(format!("the list of hashes: {e}")).because(e))?;
        let plain = Self { checksum: None, keyring: None, ..self.clone() };
        let (trusted, request) = (named.contains(&origin(&url)), plain.request(&Locators::default())?);
        let list = document::fetch(&url, trusted, LIST_MAX as usize, &request, observer)?;
        self.checksum = Some(KnownHash::Read(url.to_string().into(), list.into()));
        Ok(self)
    }

    /// Makes a request for the content that `named` names, and checks every option.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if an option is not valid, or names an object that does
    /// not exist.
    pub(super) fn request(self, named: &Locators) -> Result<Request> {
        let (links, limits) = self.links.checked()?;
        let algorithm =
            Algorithm::by_name(&self.controller).ok_or_else(|| unknown_controller(&self.controller))?;
        let ListedHash { digests, name: listed_name } =
            KnownHash::of_file(self.checksum.as_ref(), || named.file_names())?;
        Ok(Request {
            from: sources(&self.from).map_err(Error::usage)?,
            links,
            output: Output::Own,
            reader: None,
            algorithm,
            groups: self.groups,
            timeout: span(self.timeout),
            force: false,
            adopts: false,
            digests,
            listed_name,
            keyring: self.keyring.map(|path| Keyring::open(&path)).transpose()?.map(Arc::new),
            // A transfer does not use the names that another transfer has looked up.
            http: Options {
                resolver: self.http.resolver.anew(),
                limits,
                engine: self.client.as_ref().map(Client::engine),
                idle_timeout: self.http.idle_timeout.max(self.timeout),
                ..self.http
            },
            history: self.history,
            #[cfg(any(test, feature = "soak"))]
            room: None,
        })
    }
}
