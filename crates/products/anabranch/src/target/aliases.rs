//! The names that a content has besides its root hash, and whether an existing part belongs to the content.

use super::journal::{self, HASH_CLUE, NOTHING_CLUE};

/// The names by which a transfer knows a content, besides its root hash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Aliases {
    /// Names of the content and [clues](journal::url_clue), which the journal records.
    pub(crate) recorded: Vec<[u8; 32]>,
    /// The clues of URLs that the user named and that do not answer now. By naming several URLs together the
    /// user says that all of them have the same content. So a part that was begun from one of these URLs is
    /// resumed, and is compared with what the answering mirrors have.
    pub(crate) unanswered: Vec<[u8; 32]>,
    /// The clues of all URLs that are asked, including those that do not answer.
    pub(crate) urls: Vec<[u8; 32]>,
    /// The versions of the content that the URLs have now.
    pub(crate) versions: Vec<Version>,
    /// Whether no server answers range requests for the content. The transfer then starts from the first byte
    /// unless a name shows that the part is of the same content.
    pub(crate) begins_anew: bool,
}

/// The version of the content that a URL has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// The [clue](journal::url_clue) of the URL.
    pub(crate) url: [u8; 32],
    /// The name of the content that is derived from its URL and version; one of the recorded names.
    pub(crate) name: [u8; 32],
}

impl Aliases {
    /// Removes the version of a URL, which has changed.
    pub(crate) fn forget_version(&mut self, url: &str) {
        let clue = journal::url_clue(url);
        self.versions.retain(|version| version.url != clue);
    }

    /// Returns the versions of the URLs that had another version when the part with this `root` and these
    /// `recorded` aliases was begun.
    pub(super) fn changed(&self, root: &[u8; 32], recorded: &[[u8; 32]]) -> impl Iterator<Item = &Version> {
        let is_known = move |name: &[u8; 32]| name == root || recorded.contains(name);
        self.versions
            .iter()
            .filter(move |version| recorded.contains(&version.url) && !is_known(&version.name))
    }

    /// Whether a part belongs to the content, judged by the `root` and the `recorded` aliases in its journal.
    /// `names` are the root hash of the content and its aliases.
    pub(super) fn continue_part(&self, names: &[[u8; 32]], root: &[u8; 32], recorded: &[[u8; 32]]) -> bool {
        let is_named = |name: &[u8; 32]| names.contains(name) && !journal::is_clue(name);
        // If no version was known, even the URL from which the part was begun may have other bytes now.
        let began_with_version = !has_hash(recorded) && !recorded.contains(&NOTHING_CLUE);
        let is_of_unanswered =
            began_with_version && recorded.iter().any(|clue| self.unanswered.contains(clue));
        is_named(root) || recorded.iter().any(is_named) || is_of_unanswered
    }

    /// Whether a part with these `recorded` aliases can be replaced: it was begun from one of the present
    /// URLs, its version can never be known, and this transfer starts from the first byte in any case.
    pub(super) fn replaces(&self, recorded: &[[u8; 32]]) -> bool {
        let is_same_url = |clue: &[u8; 32]| journal::is_url_clue(clue) && self.recorded.contains(clue);
        self.begins_anew && recorded.contains(&NOTHING_CLUE) && recorded.iter().any(is_same_url)
    }
}

/// Whether some hash of the content is known. A content from sources that speak mmTP alone has a hash, and
/// no clues.
pub(super) fn has_hash(of: &[[u8; 32]]) -> bool {
    of.contains(&HASH_CLUE) || !of.iter().any(journal::is_clue)
}

/// Returns why a part of the right length is not resumed and, if there is a way, how it could be. `wanted`
/// are the names of the content, and `recorded` are the aliases in the part's journal.
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
