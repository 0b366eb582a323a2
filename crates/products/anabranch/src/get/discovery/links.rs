//! Links in a server's response to mirrors, Metalinks and signatures of the file (RFC 6249).

use anabranch_mirror::http_fields;
use anabranch_mirror::url::Url;

use super::Discovery;

impl Discovery<'_> {
    /// Follows the links that the server of URL `number` gives to mirrors, a Metalink and signatures of the
    /// file.
    pub(super) fn links(&mut self, number: usize) {
        let Some(head) = &self.mirrors[number].head else { return };
        let Ok(base) = Url::parse(&head.url) else { return };
        let mut links: Vec<_> =
            head.links.iter().flat_map(|value| http_fields::links(value, &base)).collect();
        links.sort_by_key(|link| link.priority);
        // What servers that the user did not name say does not count, so their Metalinks are not requested.
        let mut may_list = self.mirrors[number].named && self.wants_claims();
        for link in links {
            if link.is_metalink() && std::mem::take(&mut may_list) {
                self.beside.lists.push_back((link.url, Some(number)));
            } else if link.is_duplicate() {
                self.mirror(link.url, false);
            } else if link.is_signature() {
                self.ask_for_signature(&link.url, number);
            }
        }
    }
}
