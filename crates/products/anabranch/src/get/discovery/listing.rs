//! URLs of directories: servers lead from `/album` to `/album/`, a web page that lists it.

use anabranch_mirror::url::Url;

use super::Discovery;
use crate::error::ErrorKind;
use crate::get::origin::host;
use crate::get::small_files::is_page;

/// What is said of a web page that is fetched as it is, for it was named just so.
const PAGE: &str = "it is a web page, perhaps one that lists a directory, and comes as it is: for the files \
                    of the directory name a Metalink of them, such as DIR.meta4";
/// What such a URL is, and what to name instead.
const LISTING: &str = "it is a directory, and the server leads to a web page that lists it: name a file in \
                       it, a Metalink of its files, or the directory with a slash at its end if the server \
                       links to such a Metalink";

impl Discovery<'_> {
    /// Whether the server leads from a URL to the list of files of a directory of that name.
    fn is_listing(&self, number: usize) -> bool {
        let (Some(url), Some(Some(head))) = (self.urls.get(number), self.heads.get(number)) else {
            return false;
        };
        let path = Url::parse(&head.url).map(|end| end.path().to_owned()).unwrap_or_default();
        path.strip_suffix('/') == Some(url.path()) && head.content_type.as_deref().is_some_and(is_page)
    }

    /// Takes servers that only list a directory for such as do not have a file, and tells what a page is that
    /// is named as a directory.
    pub(super) fn leave_out_listings(&mut self) {
        for number in 0..self.urls.len() {
            let head = self.heads[number].as_ref();
            let is_page = head.and_then(|head| head.content_type.as_deref()).is_some_and(is_page);
            if is_page && self.named[number] && self.urls[number].path().ends_with('/') {
                self.notices.push(format!("{}: {PAGE}", host(&self.urls[number])));
            }
            if self.is_listing(number) {
                self.heads[number] = None;
                let why = format!("{}: {LISTING}", host(&self.urls[number]));
                self.unsaid.push(why.clone());
                self.troubles.push((ErrorKind::NotFound, why));
            }
        }
    }
}
