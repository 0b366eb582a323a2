//! Chooses the name of a file or a directory among the names that are offered for it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anabranch_mirror::url::Url;
use anabranch_mmtp::ContentId;

use super::origin::host;
use super::request::Request;
use crate::Result;
use crate::event::Observer;
use crate::filenames::{refusal, show};

/// The number of characters of a refused name that are shown.
const SHOWN_MAX: usize = 80;

/// An offered name, preceded by its origin in words.
type Offer = (String, Vec<u8>);

/// Holds the names that are offered, the likeliest first.
#[derive(Clone, Debug, Default)]
pub(super) struct OfferedNames {
    names: Vec<Offer>,
    /// The name that a server gives. It is only shown: servers choose no names.
    by_server: Option<Offer>,
    /// The URL of a directory, whose page is fetched.
    page: Option<String>,
}

/// The name of the page that a server shows for a directory.
pub(super) const PAGE_NAME: &str = "index.html";

impl OfferedNames {
    /// Adds `name`, which `by` offers. An empty name is ignored.
    pub(super) fn offer(&mut self, by: &str, name: Option<Vec<u8>>) {
        self.names.extend(name.filter(|name| !name.is_empty()).map(|name| (by.to_owned(), name)));
    }

    /// Records the name that a server gives. An empty name is ignored.
    pub(super) fn offer_by_server(&mut self, server: &str, name: Option<Vec<u8>>) {
        self.by_server = name.filter(|name| !name.is_empty()).map(|name| (server.to_owned(), name));
    }

    /// Offers the name of the page that a server shows for the directory `url`, unless there is a name.
    pub(super) fn offer_page(&mut self, url: &Url) {
        if self.names.is_empty() {
            self.names.push((format!("the URL of {}", host(url)), PAGE_NAME.into()));
            self.page = Some(url.to_string());
        }
    }

    /// Returns the first offered name that a file may have here.
    pub(super) fn chosen(&self) -> Option<&[u8]> {
        self.names.iter().map(|(_, name)| &name[..]).find(|name| refusal(name).is_none())
    }

    /// Returns the path of the file or the directory. Tells the user if the first offered name was not
    /// usable.
    ///
    /// # Errors
    /// The errors of [`Output::file_path`](crate::target::Output::file_path).
    pub(super) fn path(
        &self,
        request: &Request,
        is_directory: bool,
        id: &ContentId,
        observer: &mut Observer<'_>,
    ) -> Result<PathBuf> {
        let path = match is_directory {
            true => request.output.directory_path(self.chosen(), id)?,
            false => request.output.file_path(self.chosen(), id)?,
        };
        if request.output.needs_name(is_directory)
            && request.reader.is_none()
            && let Some(refused) = self.refused()
        {
            let called = show(path.file_name().unwrap_or_default());
            observer.notice(&format!("{refused}: it is called {called}; `to_file` chooses a name"));
        }
        if let Some(url) = self.page.as_ref().filter(|_| request.reader.is_none()) {
            observer.notice(&format!(
                "{url} is a directory, so what comes is the page that its server shows for it, not the files \
                 in it: a file has a URL of its own, and a directory needs a Metalink"
            ));
        }
        Ok(path)
    }

    /// Returns a clause about the first offered name, if it was refused, and the reason.
    fn refused(&self) -> Option<String> {
        if let Some((by, name)) = self.names.first()
            && let Some(why) = refusal(name)
        {
            return Some(format!("{by} has the name '{}', which {why}", shortened(name)));
        }
        let (server, name) = self.by_server.as_ref().filter(|(_, name)| Some(&name[..]) != self.chosen())?;
        Some(format!("{server} calls it '{}', but servers choose no names", shortened(name)))
    }
}

fn shortened(name: &[u8]) -> String {
    let shown = show(Path::new(OsStr::from_bytes(name)));
    match shown.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &shown[..end]),
        None => shown,
    }
}
