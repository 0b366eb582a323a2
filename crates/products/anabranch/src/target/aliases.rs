//! What a content is known by besides its root, and what that says of a part that is there.

use super::journal::{self, HASH_CLUE, NOTHING_CLUE};

/// What a transfer knows a content by, besides its root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Aliases {
    /// Names and [clues](journal::url_clue); the journal records them.
    pub(crate) recorded: Vec<[u8; 32]>,
    /// The clues of URLs that the user named and that do not answer now. By naming them together the user
    /// says that all URLs have the same content. So a part that was begun from one of these is resumed, and
    /// is compared with what the answering mirrors have.
    pub(crate) unanswered: Vec<[u8; 32]>,
    /// The clues of all URLs that are asked, those without an answer included.
    pub(crate) urls: Vec<[u8; 32]>,
    /// The versions that URLs have now.
    pub(crate) versions: Vec<Version>,
    /// No server sends parts of it, so that it comes from its beginning unless a name tells that the part is
    /// of the same content.
    pub(crate) begins_anew: bool,
}

/// The version of the content that a URL has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// The [clue](journal::url_clue) of the URL.
    pub(crate) url: [u8; 32],
    /// The name of the content, by its place and version; one of the recorded ones.
    pub(crate) name: [u8; 32],
}

impl Aliases {
    /// The version of a URL is not the one of now any more.
    pub(crate) fn forget_version(&mut self, url: &str) {
        let clue = journal::url_clue(url);
        self.versions.retain(|version| version.url != clue);
    }

    /// The URLs that had another version when a part was begun, of this root and with these recorded.
    pub(super) fn changed(&self, root: &[u8; 32], recorded: &[[u8; 32]]) -> impl Iterator<Item = &Version> {
        let is_known = move |name: &[u8; 32]| name == root || recorded.contains(name);
        self.versions
            .iter()
            .filter(move |version| recorded.contains(&version.url) && !is_known(&version.name))
    }

    /// Whether a part is of the content, by what its journal records. `names` are the root of the content and
    /// the aliases, `root` is that of the part.
    pub(super) fn continue_part(&self, names: &[[u8; 32]], root: &[u8; 32], recorded: &[[u8; 32]]) -> bool {
        let is_named = |name: &[u8; 32]| names.contains(name) && !journal::is_clue(name);
        // Where no version was known even that URL's own bytes may be others now.
        let began_with_version = !has_hash(recorded) && !recorded.contains(&NOTHING_CLUE);
        let is_of_unanswered =
            began_with_version && recorded.iter().any(|clue| self.unanswered.contains(clue));
        is_named(root) || recorded.iter().any(is_named) || is_of_unanswered
    }

    /// Whether a part with these records is of one of the URLs of now, and its version can never be known: if
    /// this transfer begins anew in any case, the part is of no use.
    pub(super) fn replaces(&self, recorded: &[[u8; 32]]) -> bool {
        let is_same_url = |clue: &[u8; 32]| journal::is_url_clue(clue) && self.recorded.contains(clue);
        self.begins_anew && recorded.contains(&NOTHING_CLUE) && recorded.iter().any(is_same_url)
    }
}

/// Whether some hash of the content is known. A content from sources that speak mmTP alone has one, and no
/// clues.
pub(super) fn has_hash(of: &[[u8; 32]]) -> bool {
    of.contains(&HASH_CLUE) || !of.iter().any(journal::is_clue)
}

/// Why a part of the right length is not gone on with, and how it would be, if there is a way; by what is
/// known of what is wanted, and what the part's journal records.
pub(super) fn why_another(wanted: &[[u8; 32]], recorded: &[[u8; 32]]) -> &'static str {
    let urls = || recorded.iter().filter(|clue| journal::is_url_clue(clue) && wanted.contains(clue));
    let is_same_url = urls().any(|clue| !journal::is_unversioned_clue(clue));
    let is_unversioned = urls().any(journal::is_unversioned_clue);
    match (has_hash(recorded), has_hash(wanted)) {
        (true, true) => {
            "was begun with another hash, or one of another kind: give that one too to go on, if it is of \
             the same content, else "
        }
        _ if recorded.contains(&NOTHING_CLUE) => {
            "was begun without any hash, from a server that gave neither ETag nor date, so nothing tells \
             that it still has the same: with `checksum` from the beginning it would be gone on with, "
        }
        _ if is_same_url => {
            "was begun when that URL had another ETag or date: it has another version now, or gives each \
             answer another (then only `checksum`, from the beginning, lets a get go on): "
        }
        (false, _) if is_unversioned => {
            "was begun from several URLs without any hash, and this one gives neither ETag nor date, so \
             nothing tells that it still has the same: name the others too to go on, "
        }
        (true, false) => {
            "was begun with a hash, and this request has none to tell that it is the same: give that hash \
             too (the URI, `checksum` or the Metalink) to go on, or name that URL alone if its server said \
             it, "
        }
        (false, _) => {
            "was begun from another URL without any hash, so nothing tells that this one has the same: name \
             that URL too to go on, "
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_part_that_nothing_can_tell_of_is_replaced() {
        let [url, other] = ["http://a/f", "http://b/f"].map(journal::unversioned_clue);
        let aliases = |begins_anew| Aliases { recorded: vec![url], begins_anew, ..Aliases::default() };
        for (begins_anew, recorded, is_replaced) in [
            (true, &[url, NOTHING_CLUE][..], true),
            (false, &[url, NOTHING_CLUE], false),
            (true, &[other, NOTHING_CLUE], false),
            (true, &[url], false),
            (true, &[NOTHING_CLUE], false),
        ] {
            assert_eq!(aliases(begins_anew).replaces(recorded), is_replaced, "{recorded:?}");
        }
    }
}
