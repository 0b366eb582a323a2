//! URLs of directories: servers redirect from `/album` to `/album/`, a web page that lists the directory.

use anabranch_mirror::url::Url;

use super::{Discovery, Probed};
use crate::error::ErrorKind;
use crate::get::origin::host;
use crate::get::small_files::is_page;

/// The notice about a web page that is fetched as it is, because the user named exactly its URL.
const PAGE: &str = "it is a web page, perhaps one that lists a directory, and comes as it is: for the files \
                    of the directory name a Metalink of them, such as DIR.meta4";
/// Why a URL that leads to a directory listing is left out, and what to name instead.
const LISTING: &str = "it is a directory, and the server leads to a web page that lists it: name a file in \
                       it, a Metalink of its files, or the directory with a slash at its end if the server \
                       links to such a Metalink";

impl Discovery<'_> {
    /// Whether URL `number` is redirected to a web page at the same path with a slash appended.
    fn is_listing(&self, number: usize) -> bool {
        let Some(Probed { url, head: Some(head), .. }) = self.mirrors.get(number) else { return false };
        let path = Url::parse(&head.url).map(|end| end.path().to_owned()).unwrap_or_default();
        path.strip_suffix('/') == Some(url.path()) && head.content_type.as_deref().is_some_and(is_page)
    }

    /// Treats servers that only list a directory as servers without the file. Also notifies the user of each
    /// named URL that ends in a slash and is a web page.
    pub(super) fn leave_out_listings(&mut self) {
        for number in 0..self.mirrors.len() {
            let head = self.mirrors[number].head.as_ref();
            let is_page = head.and_then(|head| head.content_type.as_deref()).is_some_and(is_page);
            if is_page && self.mirrors[number].named && self.mirrors[number].url.path().ends_with('/') {
                self.says.notices.push(format!("{}: {PAGE}", host(&self.mirrors[number].url)));
            }
            if self.is_listing(number) {
                self.mirrors[number].head = None;
                let why = format!("{}: {LISTING}", host(&self.mirrors[number].url));
                self.says.unsaid.push(why.clone());
                self.says.troubles.push((ErrorKind::NotFound, why));
            }
        }
    }
}
