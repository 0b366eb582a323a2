//! The names under which the journal of a part file records a content whose root hash is not known.

use super::Discovery;
use crate::Result;
use crate::get::discovered_file::Mirror;
use crate::secret::secret;
use crate::target::journal::{
    ALIASES_MAX, HASH_CLUE, NOTHING_CLUE, URL_CLUES_MAX, url_clue, url_clue_of, url_clues,
};
use crate::target::{Aliases, Version};

impl Discovery<'_> {
    /// Returns the name of a content of `length` bytes in its journal, and its aliases. The name is the first
    /// of these that exists, and the others are aliases: the root hash; `hashes`, the [names](name) derived
    /// from other hashes; and a [name] for each mirror with a validator. The aliases end with the clues. If
    /// none of these names exists, the name is random, so that no other transfer resumes this part file.
    pub(super) fn names(
        &mut self,
        length: u64,
        root: Option<[u8; 32]>,
        hashes: Vec<[u8; 32]>,
        mirrors: &[Mirror],
    ) -> Result<([u8; 32], Aliases)> {
        let place = |mirror: &Mirror| {
            let place = [b"place", mirror.url.as_str().as_bytes(), mirror.validator()?.as_bytes()];
            Some(name(length, place))
        };
        let clue = |mirror: &Mirror| url_clue_of(mirror.url.as_str(), mirror.validator().is_some());
        let mut clues: Vec<[u8; 32]> = mirrors.iter().take(URL_CLUES_MAX).map(clue).collect();
        let version =
            |mirror: &Mirror| Some(Version { url: url_clue(mirror.url.as_str()), name: place(mirror)? });
        let versions = mirrors.iter().filter_map(version).collect();
        clues.extend((root.is_some() || !hashes.is_empty()).then_some(HASH_CLUE));
        let unanswered = self.unanswered();
        let begins_anew = mirrors.iter().all(|mirror| !mirror.ranges);
        let urls = self.mirrors.iter().flat_map(|mirror| url_clues(mirror.url.as_str())).collect();
        let mut names = root.into_iter().chain(hashes).chain(mirrors.iter().filter_map(place));
        match (names.next(), length) {
            (Some(first), _) => {
                let recorded = names.take(ALIASES_MAX - clues.len()).chain(clues.iter().copied()).collect();
                Ok((first, Aliases { recorded, unanswered, urls, versions, begins_anew }))
            }
            (None, 0) => Ok(([0; 32], Aliases::default())),
            (None, _) => {
                drop(names);
                if !self.is_here {
                    self.says.notices.push(match begins_anew {
                        true => "the server gives neither ETag nor date, and no ranges: if this is \
                                 interrupted, the same `Get` begins anew"
                            .to_owned(),
                        false => {
                            "the server gives neither ETag nor date: if this is interrupted, it cannot resume"
                                .to_owned()
                        }
                    });
                }
                clues.push(NOTHING_CLUE);
                Ok((secret()?, Aliases { recorded: clues, unanswered, urls, versions, begins_anew }))
            }
        }
    }

    /// Returns the clues of the URLs that the user named and whose servers did not answer.
    fn unanswered(&self) -> Vec<[u8; 32]> {
        let them = self.mirrors.iter().filter(|mirror| mirror.named && mirror.head.is_none());
        them.flat_map(|mirror| url_clues(mirror.url.as_str())).collect()
    }
}

/// Derives a name for a content of this length from the evidence `by` that distinguishes it from others. Two
/// transfers that have a name in common fetch the same content.
pub(super) fn name<'a>(length: u64, by: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("anabranch 2026-11 journal of a content without a root");
    let mut add = |part: &[u8]| {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    };
    add(&length.to_le_bytes());
    by.into_iter().for_each(add);
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_evidence_is_another_name() {
        let all: [(u64, &[&[u8]]); 7] = [
            (5, &[b"place", b"http://a/f", b"1"]),
            (6, &[b"place", b"http://a/f", b"1"]),
            (5, &[b"place", b"http://a/f1", b""]),
            (5, &[b"place", b"http://a/f"]),
            (5, &[b"sha-256", &[1; 32]]),
            (5, &[b"sha-512", &[1; 32]]),
            (5, &[b"signature", &[1]]),
        ];
        let of = |(length, by): &(u64, &[&[u8]])| name(*length, by.iter().copied());
        let names: std::collections::BTreeSet<_> = all.iter().map(of).collect();
        assert_eq!(names.len(), all.len());
        assert_eq!(of(&all[0]), of(&all[0]));
    }
}
