//! What the answers come to: one content, what it is checked by, who has it.

use std::collections::BTreeMap;

use http_world::client::Trouble;
use mirror::field::{self, ETag};
use mirror::plain::{Check, PIECE_BYTES_MAX};
use mirror::url::Url;
use mmtp::ContentId;
use mmtp::id::{GROUP_BYTES, LENGTH_MAX};

use super::super::known;
use super::{Looker, code, host};
use crate::exit::{Code, Failure, Outcome};
use crate::target::Proof;

/// A URL that has the file.
#[derive(Debug)]
pub(in crate::get) struct Mirror {
    /// As it was named.
    pub(in crate::get) url: Url,
    /// Its strong validator.
    pub(in crate::get) validator: Option<String>,
    /// Whether it sends parts.
    pub(in crate::get) ranges: bool,
}

/// What is to be fetched from where, and how it is checked.
#[derive(Debug)]
pub(in crate::get) struct Found {
    /// The content; its root is one of our own making, for the journal, where `named` is false.
    pub(in crate::get) id: ContentId,
    /// Whether the root of `id` is the content's.
    pub(in crate::get) named: bool,
    /// What each group is checked by.
    pub(in crate::get) check: Check,
    /// What the whole is checked by.
    pub(in crate::get) proof: Proof,
    /// What it is to be called.
    pub(in crate::get) name: Option<Vec<u8>>,
    /// Who has it.
    pub(in crate::get) mirrors: Vec<Mirror>,
}

impl Found {
    /// How it is verified: a clause.
    pub(in crate::get) fn how(&self) -> &'static str {
        match (&self.check, self.proof) {
            (Check::Leaves(_), _) => "every 16 KiB is verified by BLAKE3",
            (Check::Pieces { .. }, _) => "every piece is verified by SHA-256",
            (Check::Nothing, Proof::Root) => "verified as a whole, by BLAKE3",
            (Check::Nothing, Proof::Sha256(_)) => "verified as a whole, by SHA-256",
            (Check::Nothing, Proof::Groups) => {
                "UNVERIFIED: there is no hash of it, so mirrors are only compared with each other"
            }
        }
    }
}

impl Looker<'_, '_> {
    /// Puts together what is known.
    pub(super) fn found(mut self, id: Option<ContentId>) -> Outcome<Found> {
        let file = self.metalink.take().map(|(file, _)| file);
        let hashes = file.as_ref().map(|file| file.hashes).unwrap_or_default();
        let length = self.length(id, file.as_ref().and_then(|file| file.size))?;
        let mirrors = self.mirrors(length)?;
        let leaves = self.leaves.take().filter(|leaves| leaves.id().length == length);
        let mut root = match id {
            Some(id) => Some(id.root),
            None => hashes.blake3,
        };
        if let (Some(wanted), Some(metalink)) = (id, hashes.blake3)
            && wanted.root != metalink
        {
            return Err(Failure::usage("the URI and the Metalink name different contents"));
        }
        let sha256 = match hashes.sha256 {
            Some(sha256) => Some(sha256),
            None => self.digest(),
        };
        let pieces = file.as_ref().and_then(|file| file.pieces.clone()).filter(|pieces| {
            let fits = pieces.bytes % GROUP_BYTES as u64 == 0 && pieces.bytes <= PIECE_BYTES_MAX;
            if !fits {
                let bytes = pieces.bytes;
                self.view.note(&format!("pieces of {bytes} bytes cannot be checked; the whole is"));
            }
            fits
        });
        // A root that only a server tells is worth what the server is; what the user or a Metalink says is
        // more.
        if root.is_none() && pieces.is_none() && sha256.is_none() {
            root = leaves.as_ref().map(|leaves| leaves.id().root).or(self.line);
        }
        if root.is_none() && pieces.is_none() && sha256.is_none() {
            root = mirrors.iter().find_map(|mirror| {
                let id = known::recall(mirror.url.as_str(), mirror.validator.as_deref()?, length)?;
                self.view.note(&format!(
                    "{} had the content {id} before, and says that it is unchanged",
                    host(&mirror.url)
                ));
                Some(id.root)
            });
        }
        let leaves = leaves.filter(|leaves| root == Some(leaves.id().root));
        let check = match (leaves, pieces, root) {
            (Some(leaves), _, Some(root)) if length > GROUP_BYTES as u64 => {
                debug_assert_eq!(leaves.id().root, root);
                Check::Leaves(leaves.into_cvs())
            }
            (_, _, Some(root)) if length > 0 && length <= GROUP_BYTES as u64 => Check::Leaves(vec![root]),
            (_, Some(pieces), _) => Check::Pieces { bytes: pieces.bytes, sha256: pieces.sha256 },
            _ => Check::Nothing,
        };
        let proof = match (&check, root, sha256) {
            (_, Some(_), _) => Proof::Root,
            (Check::Nothing, None, Some(sha256)) => Proof::Sha256(sha256),
            _ => Proof::Groups,
        };
        let name = file.as_ref().map(|file| file.file_name().as_bytes().to_vec());
        let name = name.or_else(|| mirrors.iter().find_map(|mirror| mirror.url.file_name()));
        let journal = root.unwrap_or_else(|| stand_in(&check, proof, length, &mirrors));
        Ok(Found {
            id: ContentId { root: journal, length },
            named: root.is_some(),
            check,
            proof,
            name,
            mirrors,
        })
    }

    /// How long the file is: as the user or a Metalink says, else as most servers do.
    fn length(&mut self, id: Option<ContentId>, size: Option<u64>) -> Outcome<u64> {
        let told = id.map(|id| id.length).or(size);
        if let Some(length) = told {
            return Ok(length);
        }
        let mut votes: BTreeMap<u64, usize> = BTreeMap::new();
        for length in self.heads.iter().flatten().filter_map(|head| head.length) {
            *votes.entry(length).or_default() += 1;
        }
        // Among equals the first mirror that was named decides.
        let most = votes.values().max().copied().unwrap_or(0);
        let first = self.heads.iter().flatten().filter_map(|head| head.length).find(|l| votes[l] == most);
        match first {
            Some(length) if length <= LENGTH_MAX => Ok(length),
            Some(length) => Err(Failure::other(format!("a file of {length} bytes is too long"))),
            None if self.heads.iter().flatten().next().is_some() => Err(Failure::other(
                "no server says how long the file is, so it cannot be fetched in parts: curl can fetch it",
            )),
            None => Err(self.nobody()),
        }
    }

    /// Those that have a file of this length.
    fn mirrors(&mut self, length: u64) -> Outcome<Vec<Mirror>> {
        let mut mirrors = Vec::new();
        for (url, head) in self.urls.iter().zip(&self.heads) {
            let Some(head) = head else { continue };
            if head.length.is_some_and(|there| there != length) {
                let there = head.length.unwrap_or_default();
                let trouble = Trouble::Changed(format!("it has {there} bytes there, not {length}"));
                self.view.note(&format!("{}: {trouble}", host(url)));
                self.troubles.push((host(url), trouble));
                continue;
            }
            let validator = head.etag.as_deref().and_then(ETag::parse);
            let validator = validator.as_ref().and_then(ETag::strong).map(str::to_owned);
            mirrors.push(Mirror { url: url.clone(), validator, ranges: head.ranges });
        }
        if mirrors.is_empty() { Err(self.nobody()) } else { Ok(mirrors) }
    }

    /// The SHA-256 that servers tell (RFC 9530), if they agree.
    fn digest(&mut self) -> Option<[u8; 32]> {
        let mut told: Vec<([u8; 32], String)> = Vec::new();
        for (url, head) in self.urls.iter().zip(&self.heads) {
            let value = head.as_ref().and_then(|head| head.repr_digest.as_deref());
            if let Some(sha256) = value.and_then(|value| field::repr_digest(value).sha256) {
                told.push((sha256, host(url)));
            }
        }
        let (first, _) = told.first()?;
        if let Some((_, other)) = told.iter().find(|(sha256, _)| sha256 != first) {
            self.view.note(&format!("{} and {other} tell different SHA-256: neither is used", told[0].1));
            return None;
        }
        Some(*first)
    }

    fn nobody(&self) -> Failure {
        let codes: Vec<Code> = self.troubles.iter().map(|(_, trouble)| code(trouble)).collect();
        let code = if codes.contains(&Code::NotFound) { Code::NotFound } else { Code::Unreachable };
        let why: Vec<String> =
            self.troubles.iter().take(5).map(|(host, trouble)| format!("{host}: {trouble}")).collect();
        let why = if why.is_empty() { "none was named".to_owned() } else { why.join("; ") };
        Failure::new(code, format!("no mirror has the file: {why}"))
    }
}

/// A root of our own making for the journal of a content whose root nobody knows: the same for the same
/// hashes, or for the same URL with the same validator.
fn stand_in(check: &Check, proof: Proof, length: u64, mirrors: &[Mirror]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("anabranch 2026-11 journal of a content without a root");
    hasher.update(&length.to_le_bytes());
    match (check, proof) {
        (Check::Pieces { bytes, sha256 }, _) => {
            hasher.update(b"pieces").update(&bytes.to_le_bytes());
            for piece in sha256 {
                hasher.update(piece);
            }
        }
        (_, Proof::Sha256(sha256)) => {
            hasher.update(b"sha-256").update(&sha256);
        }
        _ => {
            if let Some(mirror) = mirrors.first() {
                hasher.update(mirror.url.as_str().as_bytes());
                hasher.update(mirror.validator.as_deref().unwrap_or("").as_bytes());
            }
        }
    }
    *hasher.finalize().as_bytes()
}
