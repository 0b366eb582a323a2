//! The names of a content in the journal of its part, where its root is not known.

use anabranch_mirror::digests::PieceHashes;
use anabranch_mirror::url::Url;

use super::Discovery;
use crate::Result;
use crate::get::discovered_file::Mirror;
use crate::secret::secret;
use crate::target::journal::{
    ALIASES_MAX, HASH_CLUE, NOTHING_CLUE, URL_CLUES_MAX, url_clue, url_clue_of, url_clues,
};
use crate::target::{Aliases, Version};

/// What a name is made of. Two transfers that have one of these in common fetch the same content.
pub(super) enum Evidence<'a> {
    /// Hashes of its pieces, each of so many bytes.
    Pieces(u64, &'a PieceHashes),
    /// The hash of the whole, of this kind.
    Digest(&'a str, &'a [u8]),
    /// An OpenPGP signature of it that may be good.
    Signature(&'a [u8]),
    /// A URL has it, with this strong validator or date.
    Place(&'a Url, &'a str),
}

impl Discovery<'_> {
    /// The name of a content of `length` bytes in its journal, and its aliases: the root if it is known, then
    /// what its hashes give, then the places that have it; and behind these the clues. Without any of these
    /// its name is random, so no other transfer goes on with this part.
    pub(super) fn names(
        &mut self,
        length: u64,
        root: Option<[u8; 32]>,
        hashes: &[Evidence<'_>],
        mirrors: &[Mirror],
    ) -> Result<([u8; 32], Aliases)> {
        let places = mirrors.iter().filter_map(|m| Some(Evidence::Place(&m.url, m.validator()?)));
        let clue = |mirror: &Mirror| url_clue_of(mirror.url.as_str(), mirror.validator().is_some());
        let mut clues: Vec<[u8; 32]> = mirrors.iter().take(URL_CLUES_MAX).map(clue).collect();
        let version = |mirror: &Mirror| {
            let place = Evidence::Place(&mirror.url, mirror.validator()?);
            Some(Version { url: url_clue(mirror.url.as_str()), name: name(length, &place) })
        };
        let versions = mirrors.iter().filter_map(version).collect();
        clues.extend((root.is_some() || !hashes.is_empty()).then_some(HASH_CLUE));
        let hashes = hashes.iter().map(|hash| name(length, hash));
        let unanswered = self.unanswered();
        let begins_anew = mirrors.iter().all(|mirror| !mirror.ranges);
        let urls = self.mirrors.iter().flat_map(|mirror| url_clues(mirror.url.as_str())).collect();
        let mut names = root.into_iter().chain(hashes).chain(places.map(|place| name(length, &place)));
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

    /// The clues of the URLs that the user named and whose servers did not answer.
    fn unanswered(&self) -> Vec<[u8; 32]> {
        let them = self.mirrors.iter().filter(|mirror| mirror.named && mirror.head.is_none());
        them.flat_map(|mirror| url_clues(mirror.url.as_str())).collect()
    }
}

fn name(length: u64, evidence: &Evidence<'_>) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("anabranch 2026-11 journal of a content without a root");
    let mut add = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
    };
    add(&length.to_le_bytes());
    match evidence {
        Evidence::Pieces(bytes, hashes) => {
            add(b"pieces");
            add(&bytes.to_le_bytes());
            add(hashes.kind().as_bytes());
            hashes.iter().for_each(&mut add);
        }
        Evidence::Digest(kind, digest) => {
            add(kind.as_bytes());
            add(digest);
        }
        Evidence::Signature(signature) => {
            add(b"signature");
            add(signature);
        }
        Evidence::Place(url, validator) => {
            add(b"place");
            add(url.as_str().as_bytes());
            add(validator.as_bytes());
        }
    }
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_evidence_is_another_name() {
        let (a, b) = (Url::parse("http://a/f").expect("a URL"), Url::parse("http://b/f").expect("a URL"));
        let [one, two] = [1, 2].map(|n| PieceHashes::Sha256((1..=n).map(|piece| [piece; 32]).collect()));
        let all = [
            (5, Evidence::Place(&a, "\"1\"")),
            (6, Evidence::Place(&a, "\"1\"")),
            (5, Evidence::Place(&a, "\"2\"")),
            (5, Evidence::Place(&b, "\"1\"")),
            (5, Evidence::Digest("sha-256", &[1; 32])),
            (5, Evidence::Digest("sha-512", &[1; 32])),
            (5, Evidence::Pieces(5, &one)),
            (5, Evidence::Pieces(5, &two)),
            (5, Evidence::Signature(&[1])),
            (5, Evidence::Signature(&[2])),
        ];
        let names: std::collections::BTreeSet<_> = all.iter().map(|(length, of)| name(*length, of)).collect();
        assert_eq!(names.len(), all.len());
        assert_eq!(name(5, &Evidence::Place(&a, "\"1\"")), name(5, &all[0].1));
    }
}
