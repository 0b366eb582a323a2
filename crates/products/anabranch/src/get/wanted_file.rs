//! One of several files that a request names.

use crate::Checksum;

/// Names one of several files: see [`Get::wanted_files`](super::Get::wanted_files).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedFile {
    pub(super) urls: Vec<String>,
    pub(super) name: Option<String>,
    pub(super) checksum: Option<Checksum>,
}

impl WantedFile {
    /// Names a file by its URLs, which are mirrors of it.
    pub fn new<S: AsRef<str>>(urls: impl IntoIterator<Item = S>) -> Self {
        let urls = urls.into_iter().map(|url| url.as_ref().to_owned()).collect();
        Self { urls, ..Self::default() }
    }

    /// Gives the file this name in the directory. The default is the name in its first URL.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the hash that the file must have. The default is what a list of hashes says, if there is one.
    #[must_use]
    pub const fn checksum(mut self, checksum: Checksum) -> Self {
        self.checksum = Some(checksum);
        self
    }
}
