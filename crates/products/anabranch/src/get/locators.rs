//! Holds the names by which a request refers to one content: a URI, URLs, Metalinks.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use anabranch_mirror::metalink::{METALINK_MAX, Metalink};
use anabranch_mirror::url::Url;
use anabranch_mmtp::uri::Uri;

use super::network_source::NetworkName;
use super::offered_names::PAGE_NAME;
use super::origin::{Origin, origin};
use super::wanted_file::WantedFile;
use crate::checksum::{Checksum, FileNames};
use crate::filenames::show;
use crate::{Error, ErrorPlace, HostPort, Result};

/// Holds all names of one content.
#[derive(Clone, Debug, Default)]
pub(super) struct Locators {
    /// The `anabranch:` URI, which has the content id.
    pub(super) uri: Option<Uri>,
    /// The name in a publish/subscribe network. If there is one, nothing else is named.
    pub(super) network: Option<NetworkName>,
    /// The URLs of the file, including the mirrors that the URI names.
    pub(super) urls: Vec<Url>,
    /// The files that have `urls`, in order; empty if each URL has a separate file.
    pub(super) files: Vec<FileOfSeveral>,
    /// The URLs of Metalinks that are still to be fetched.
    pub(super) lists: Vec<Url>,
    /// A Metalink that was read, and its location.
    pub(super) metalink: Option<(Metalink, MetalinkOrigin)>,
    /// The origins of the URLs that the caller named. Origins in URIs and Metalinks are left out, because
    /// another person wrote those and may name any server.
    pub(super) origins: Vec<Origin>,
}

/// One of several files, and how many of the URLs, in order, are its own.
#[derive(Clone, Debug)]
pub(super) struct FileOfSeveral {
    urls: usize,
    name: Option<String>,
    checksum: Option<Checksum>,
}

/// One of several files, alone.
#[derive(Clone, Debug)]
pub(super) struct FileAlone {
    /// Its first URL.
    pub(super) url: Url,
    pub(super) named: Locators,
    /// The name that the caller has chosen, if one was chosen.
    pub(super) name: Option<String>,
    pub(super) checksum: Option<Checksum>,
}

/// Locates a Metalink. The location of a leaf list is relative to it.
#[derive(Clone, Debug)]
pub(super) enum MetalinkOrigin {
    /// In a file.
    Path(PathBuf),
    /// On a server.
    Url(Url),
    /// In a pipe; no location can be relative to it.
    Pipe,
}

impl Locators {
    /// Reads the names: `anabranch:` URIs, URLs, Metalink files.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if one of them is not a name, or if they name different
    /// contents.
    pub(super) fn read<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Result<Self> {
        let mut new = Self::default();
        for name in names {
            new.add(name.as_ref())?;
        }
        if let Some(uri) = &new.uri {
            for mirror in uri.mirrors.clone() {
                let url = Url::parse(&mirror).map_err(|e| {
                    Error::usage(format!("mirror {}: {e}", without_user(&mirror)))
                        .at(ErrorPlace::Url(without_user(&mirror)))
                        .because(e)
                })?;
                new.url(url);
            }
        }
        if new.uri.is_none() && !new.is_web() {
            return Err(Error::usage("nothing to fetch: no URI and no URL is named"));
        }
        let is_relative = new.metalink.as_ref().is_some_and(|(metalink, _)| metalink.is_only_relative());
        if is_relative && new.urls.is_empty() && new.lists.is_empty() && new.uri.is_none() {
            return Err(Error::usage(
                "the Metalink has only relative URLs, and a file does not tell what they are relative to: \
                 name the Metalink by its own URL, or a URL of the file beside it",
            ));
        }
        Ok(new)
    }

    /// Reads the URLs of several files. Each item has all URLs of one file.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if a name is not a URL.
    pub(super) fn of_files(files: impl IntoIterator<Item = WantedFile>) -> Result<Self> {
        let mut all = Self::default();
        for WantedFile { urls, name, checksum } in files {
            let file = Self::read(urls)?;
            if file.uri.is_some() || !file.lists.is_empty() || file.metalink.is_some() {
                return Err(Error::usage(NOT_EACH));
            }
            all.files.push(FileOfSeveral { urls: file.urls.len(), name, checksum });
            all.urls.extend(file.urls);
            all.origins.extend(file.origins);
        }
        if all.urls.is_empty() {
            return Err(Error::usage("nothing to fetch: no URL is named"));
        }
        Ok(all)
    }

    /// Sets the class of the network by which the content is fetched.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if the network has no such class, or if no name in a
    /// network is given.
    pub(super) fn set_class(&mut self, class: &str) -> Result<()> {
        let network = self.network.take().ok_or_else(|| {
            Error::usage("`class` is of a name in a network: what is fetched from elsewhere has none")
        })?;
        self.network = Some(network.with_class(class)?);
        Ok(())
    }

    /// Returns the only server or source of the content, if there is exactly one, counting those in `from`.
    pub(super) fn only_place(&self, from: &[HostPort]) -> Option<ErrorPlace> {
        let sources = self.uri.iter().flat_map(|uri| &uri.from).cloned();
        let sources = sources.chain(from.iter().map(ToString::to_string)).map(ErrorPlace::Address);
        let urls = self.urls.iter().chain(&self.lists).map(ErrorPlace::from);
        let mut places = sources.chain(urls);
        let place = places.next()?;
        (self.network.is_none() && self.metalink.is_none() && places.next().is_none()).then_some(place)
    }

    /// Returns whether the content is named by a URL or a Metalink, so that HTTP servers are asked.
    pub(super) const fn is_web(&self) -> bool {
        !self.urls.is_empty() || !self.lists.is_empty() || self.metalink.is_some()
    }

    /// Returns the names that the file may have, as far as the locators show them.
    pub(super) fn file_names(&self) -> FileNames {
        let listed = self.metalink.iter().flat_map(|(metalink, _)| &metalink.files);
        let listed = listed.map(|file| file.file_name().as_bytes().to_vec());
        let own = self.uri.iter().filter_map(|uri| uri.name.clone());
        // A Metalink that is not fetched yet usually has the name of its file.
        let there = self.lists.iter().filter_map(|url| {
            let name = url.file_name()?;
            let end = name.iter().rposition(|byte| *byte == b'.')?;
            Some(name[..end].to_vec())
        });
        // The whole path counts, because a list of hashes may have several files of one name.
        let urls = self.urls.iter().filter(|url| url.file_name().is_some());
        FileNames {
            own: own.chain(listed).collect(),
            urls: urls.map(|url| (url.to_string(), url.decoded_path())).collect(),
            guessed: there.collect(),
        }
    }

    /// Returns each of several files alone.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if anything but URLs is named, or two URLs have the same
    /// file name.
    pub(super) fn each(&self) -> Result<Vec<FileAlone>> {
        if self.uri.is_some() || self.network.is_some() || !self.lists.is_empty() || self.metalink.is_some() {
            return Err(Error::usage(NOT_EACH));
        }
        let one = || FileOfSeveral { urls: 1, name: None, checksum: None };
        let ones: Vec<_> = self.urls.iter().map(|_| one()).collect();
        let mut rest = &self.urls[..];
        let mut files = Vec::new();
        for file in if self.files.is_empty() { &ones } else { &self.files } {
            let (urls, others) = rest.split_at(file.urls);
            rest = others;
            let Some(url) = urls.first().cloned() else { continue };
            let is_its = |of: &&Origin| urls.iter().any(|url| **of == origin(url));
            let origins = self.origins.iter().filter(is_its).cloned().collect();
            let named = Self { urls: urls.to_vec(), origins, ..Self::default() };
            files.push(FileAlone { url, named, name: file.name.clone(), checksum: file.checksum });
        }
        let mut names: BTreeMap<Vec<u8>, &Url> = BTreeMap::new();
        for FileAlone { url, name, .. } in &files {
            let page = || url.path().ends_with('/').then(|| PAGE_NAME.into());
            let chosen = name.as_ref().map(|name| name.as_bytes().to_vec());
            if let Some(name) = chosen.or_else(|| url.file_name()).or_else(page)
                && let Some(other) = names.insert(name, url)
            {
                return Err(Error::usage(format!(
                    "{other} and {url} have the same name, and with `each` every URL is a file of its own in \
                     one directory: fetch one of them by itself"
                )));
            }
        }
        Ok(files)
    }

    fn add(&mut self, name: &str) -> Result<()> {
        let lower = name.to_ascii_lowercase();
        if lower.starts_with("anabranch:") {
            let uri: Uri =
                name.parse().map_err(|e| Error::usage(format!("not a URI of ours: {e}")).because(e))?;
            return match &self.uri {
                Some(other) if other.id != uri.id => {
                    Err(Error::usage("two URIs with different contents: fetch one at a time"))
                }
                _ => {
                    self.uri = Some(uri);
                    Ok(())
                }
            };
        }
        let path = Path::new(name);
        if lower.starts_with("http://") || lower.starts_with("https://") {
            return self.web(name);
        }
        // The path may also be a pipe, such as /dev/stdin or the path that a shell gives for <(…).
        if path.metadata().is_ok_and(|meta| !meta.is_dir()) {
            return self.list(path);
        }
        if is_host_and_path(name) {
            // A name without a scheme counts as an http: URL, as with curl.
            return self.web(&format!("http://{name}"));
        }
        if is_list(name) {
            return self.list(path);
        }
        if lower.starts_with("file:") {
            return Err(Error::usage(format!(
                "{}: a file of this machine is given by its name, without file:, and only a Metalink is of \
                 use",
                show(name)
            ))
            .at(ErrorPlace::Url(name.to_owned())));
        }
        if let Some((scheme, _)) = lower.split_once("://") {
            return Err(Error::usage(format!(
                "{}: only http: and https: are spoken, not {}:",
                show(without_user(name)),
                show(scheme)
            ))
            .at(ErrorPlace::Url(without_user(name))));
        }
        Err(Error::usage(format!(
            "{}: neither a URI of ours (anabranch:…), nor a URL (http://…, https://…), nor a file of that \
             name (a Metalink)",
            show(without_user(name)),
        )))
    }

    fn web(&mut self, name: &str) -> Result<()> {
        let url = Url::parse(name).map_err(|e| {
            Error::usage(format!("{}: {e}", show(without_user(name))))
                .at(ErrorPlace::Url(without_user(name)))
                .because(e)
        })?;
        self.origins.push(origin(&url));
        if is_list(url.path()) {
            self.lists.push(url);
        } else {
            self.url(url);
        }
        Ok(())
    }

    fn url(&mut self, url: Url) {
        if self.urls.iter().all(|known| known.as_str() != url.as_str()) {
            self.urls.push(url);
        }
    }

    fn list(&mut self, path: &Path) -> Result<()> {
        let read = || {
            let mut bytes = Vec::new();
            File::open(path)?.take(METALINK_MAX as u64 + 1).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let bytes = read().map_err(|e: std::io::Error| match e.kind() {
            ErrorKind::NotFound => Error::usage(format!("{}: No such file", show(path))).at(path).because(e),
            _ => Error::usage(format!("{}: {e}", show(path))).at(path).because(e),
        })?;
        // These bytes look like the wanted file itself, not like a Metalink.
        let is_other = |bytes: &[u8]| bytes.len() > METALINK_MAX || !bytes.contains(&b'<');
        let metalink = Metalink::parse(&bytes).map_err(|e| {
            let why = if is_other(&bytes) {
                "this file is here already, and is no Metalink, which would say who has another".to_owned()
            } else {
                format!("no Metalink: {e}")
            };
            Error::usage(format!("{}: {why}", show(path))).at(path).because(e)
        })?;
        if self.metalink.is_some() {
            return Err(Error::usage("two Metalinks: fetch one at a time"));
        }
        let is_file = path.is_file();
        let origin = if is_file { MetalinkOrigin::Path(path.to_owned()) } else { MetalinkOrigin::Pipe };
        self.metalink = Some((metalink, origin));
        Ok(())
    }
}

/// The message for names that cannot name several files.
const NOT_EACH: &str = "`each` fetches URLs of files, each as a file of its own: fetch a URI, a Metalink or \
                        a name in a network by itself";

/// Lists the other names in a request that has a Metalink.
pub(super) struct Beside {
    /// The origins of the URLs that the caller named.
    pub(super) origins: Vec<Origin>,
    /// Whether URLs of files are named.
    pub(super) urls: bool,
    /// The number of URLs of Metalinks.
    pub(super) lists: usize,
    /// Whether a URI is named.
    pub(super) uri: bool,
}

impl Beside {
    pub(super) fn of(named: &Locators) -> Self {
        Self {
            origins: named.origins.clone(),
            urls: !named.urls.is_empty(),
            lists: named.lists.len(),
            uri: named.uri.is_some(),
        }
    }
}

/// Returns a URL, or a text meant as one, without name and password, so that it may be shown.
fn without_user(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let start = rest[..end].rfind('@').map_or(0, |at| at + 1);
    format!("{scheme}://{}", &rest[start..])
}

/// Returns whether a name that is no file is a URL without its scheme: a host with a dot or a port, and a
/// path.
fn is_host_and_path(name: &str) -> bool {
    name.split_once('/').is_some_and(|(host, path)| {
        let is_host = (host.contains(['.', ':']) || host == "localhost") && !host.starts_with('.');
        is_host && !host.contains(char::is_whitespace) && !path.starts_with('/')
    })
}

fn is_list(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    lower.ends_with(".meta4") || lower.ends_with(".metalink")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_url_has_its_own_name_and_origin() {
        let each = |names: &[&str]| Locators::read(names).expect("names").each();
        let all = each(&["http://a.example/f", "https://b.example/g", "http://a.example/"]).expect("URLs");
        for FileAlone { url, named: alone, .. } in &all {
            assert_eq!(alone.urls, std::slice::from_ref(url));
            assert_eq!(alone.origins.iter().filter(|of| **of != origin(url)).count(), 0, "{url}");
            assert!(!alone.origins.is_empty(), "a secret is for it");
        }
        assert_eq!(all.len(), 3);
        let why = each(&["http://a.example/x/f", "http://b.example/f"]).expect_err("one name").to_string();
        assert!(why.contains("http://a.example/x/f and http://b.example/f have the same name"), "{why}");
        for other in [&format!("anabranch:{}?len=1", anabranch_mmtp::ContentId::of(b"x")), "http://a/f.meta4"]
        {
            assert!(each(&["http://a.example/f", other]).is_err(), "{other}");
        }
    }

    #[test]
    fn a_file_of_several_may_have_mirrors() {
        let files = [&["http://a.example/f", "http://b.example/f"][..], &["http://a.example/g"]];
        let all =
            Locators::of_files(files.map(WantedFile::new)).and_then(|named| named.each()).expect("two files");
        let urls: Vec<usize> = all.iter().map(|file| file.named.urls.len()).collect();
        assert_eq!(urls, [2, 1]);
        for FileAlone { named: file, .. } in &all {
            assert!(file.urls.iter().all(|url| file.origins.contains(&origin(url))), "secrets are for both");
        }
        assert!(!all[1].named.origins.contains(&origin(&all[0].named.urls[1])), "but not for another's");
        for wrong in [&["http://a.example/f.meta4"][..], &["what"], &[]] {
            assert!(Locators::of_files([WantedFile::new(wrong)]).is_err(), "{wrong:?}");
        }
        let pages = ["http://a.example/", "http://b.example/x/"];
        assert!(Locators::read(pages).expect("URLs").each().is_err(), "both are index.html");
    }

    #[test]
    fn names_of_every_kind() {
        let names = |names: &[&str]| Locators::read(names);
        let asked =
            names(&["http://a.example/f", "https://b.example/f", "http://a.example/f"]).expect("URLs");
        assert_eq!(asked.urls.len(), 2, "each once");
        let uri = format!(
            "anabranch:{}?len=1&mirror=https%3A%2F%2Fc.example%2Ff",
            anabranch_mmtp::ContentId::of(b"x")
        );
        let asked = names(&[&uri, "https://b.example/f"]).expect("names");
        let named = origin(&Url::parse("https://b.example/").expect("a URL"));
        assert_eq!((asked.urls.len(), asked.origins), (2, vec![named]), "not the URI's mirrors");
        let asked = names(&["https://a.example/f.meta4"]).expect("a URL");
        assert!(asked.urls.is_empty() && asked.lists.len() == 1 && asked.is_web());
        // URLs without a scheme are accepted, as curl does.
        let asked = names(&["h.example/x?y", "localhost/z", "[::1]:80/w", "h.example/x.meta4"]);
        let asked = asked.expect("URLs");
        let urls: Vec<&str> = asked.urls.iter().chain(&asked.lists).map(Url::as_str).collect();
        assert_eq!(
            urls,
            ["http://h.example/x?y", "http://localhost/z", "http://[::1]/w", "http://h.example/x.meta4"]
        );
        for (bad, says) in [
            ("ftp://u:secret@a/f", "ftp://a/f: only http: and https: are spoken, not ftp:"),
            ("http://u:secret@[a/f", "http://[a/f: "),
            ("no-such.meta4", "no-such.meta4: No such file"),
            ("./h.example/x.meta4", "./h.example/x.meta4: No such file"),
            ("dir/no-such.metalink", "dir/no-such.metalink: No such file"),
            ("/dir.d/no-such.meta4", "/dir.d/no-such.meta4: No such file"),
            ("no-such.mkv", "nor a file of that name"),
            ("h.example", "h.example: neither"),
            ("http://", "http://"),
        ] {
            let failure = names(&[bad]).expect_err(bad);
            assert!(failure.to_string().contains(says), "{bad}: {failure}");
            assert!(!failure.to_string().contains("secret"), "{failure}");
        }
    }
}
