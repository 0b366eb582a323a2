//! What the answers come to: one content, what it is checked by, who has it.

use std::collections::BTreeMap;

use anabranch_http::client::FetchError;
use mirror::http_fields::{self, ETag};
use mirror::url::Url;
use mirror::verified_pool::{Check, PIECE_BYTES_MAX};
use mmtp::ContentId;
use mmtp::id::{BLOCK_BYTES, LENGTH_MAX};

use super::names::Evidence;
use super::{Discovery, Expected};
use crate::error::ErrorKind;
use crate::get::discovered_file::{DiscoveredFile, ExistingFile, Mirror};
use crate::get::history::{HistoryEntry, Provenance};
use crate::get::origin::host;
use crate::get::server_status;
use crate::target::FinalCheck;
use crate::{Error, Result};

/// URLs that are named when they differ.
const NAMED_MAX: usize = 5;

impl Discovery<'_> {
    /// Puts together what is known.
    pub(super) fn found(&mut self) -> Result<DiscoveredFile> {
        let Expected { id, sha256: checksum } = self.said;
        let (mut file, listed_by) = self.metalink.take().map_or((None, None), |(file, by)| (Some(file), by));
        let mut hashes = file.as_ref().map(|file| file.hashes).unwrap_or_default();
        let differ = |wanted: Option<[u8; 32]>, reported: Option<[u8; 32]>| {
            wanted.is_some_and(|wanted| reported.is_some_and(|reported| wanted != reported))
        };
        if differ(id.map(|id| id.root), hashes.blake3) || differ(checksum, hashes.sha256) {
            let Some(by) = &listed_by else {
                return Err(Error::usage(
                    "the Metalink describes another content than the URI or `sha256` name",
                ));
            };
            self.notices.push(format!("{by} offers a Metalink of another content: it is left out"));
            (file, hashes) = (None, Default::default());
        }
        if file.is_some() && listed_by.is_none() {
            // Those that are in a Metalink of the user's are named, too.
            self.named = self.urls.len();
        }
        let length = self.length(id, file.as_ref().and_then(|file| file.size))?;
        let mut mirrors = self.mirrors(length)?;
        let pieces = file.as_ref().and_then(|file| file.pieces.clone()).filter(|pieces| {
            let fits = pieces.bytes % BLOCK_BYTES as u64 == 0 && pieces.bytes <= PIECE_BYTES_MAX;
            if !fits {
                let bytes = pieces.bytes;
                self.notices.push(format!("pieces of {bytes} bytes cannot be checked; the whole is"));
            }
            fits
        });
        let (mut sha256, mut sha256_by) = (checksum.or(hashes.sha256), listed_by.clone());
        // Not beside pieces, which say what is right: on a server's word what is there is not taken for it.
        if sha256.is_none()
            && pieces.is_none()
            && let Some((digest, by)) = self.digest()
        {
            (sha256, sha256_by) = (Some(digest), Some(by));
        }
        let (mut root, mut root_by) = (id.map(|id| id.root).or(hashes.blake3), listed_by.clone());
        let leaves = self.leaves.take().filter(|(leaves, _)| leaves.id().length == length);
        // A root that only a server tells is worth what the server is; what the user or a Metalink says is
        // more.
        let (mut recalled, mut there) = (None, None);
        if root.is_none() && pieces.is_none() && sha256.is_none() {
            if let Some((leaves, by)) = &leaves {
                (root, root_by) = (Some(leaves.id().root), by.clone());
            } else if let Some((hash, by)) = self.line.take() {
                (root, root_by) = (Some(hash), Some(by));
            } else {
                let validated = mirrors.iter().filter_map(|m| Some((&m.url, m.validator()?)));
                if let Some(known) = self.history.recall(validated, length) {
                    let HistoryEntry { id, came, strong, .. } = known;
                    if strong && came != Provenance::Mixed {
                        self.notices.push(format!(
                            "{} had the content {id} before, and says that it is unchanged",
                            host(&known.url)
                        ));
                        (root, recalled) = (Some(id.root), Some(known));
                    } else {
                        // However it came: that a file has the same date and length proves nothing.
                        there = Some(ExistingFile { id, proof: FinalCheck::Root, since: Some(known.day) });
                    }
                }
            }
        }
        let leaves = leaves.map(|(leaves, _)| leaves).filter(|leaves| root == Some(leaves.id().root));
        let check = match (leaves, pieces, root) {
            (Some(leaves), _, Some(root)) if length > BLOCK_BYTES as u64 => {
                debug_assert_eq!(leaves.id().root, root);
                Check::Leaves(leaves.into_cvs())
            }
            (_, _, Some(root)) if length > 0 && length <= BLOCK_BYTES as u64 => Check::Leaves(vec![root]),
            (_, Some(pieces), _) => Check::Pieces { bytes: pieces.bytes, sha256: pieces.sha256 },
            _ => Check::Nothing,
        };
        let (proof, by) = match (&check, checksum, root, sha256) {
            // Whatever else is known: this must be right.
            (_, Some(checksum), _, _) => (FinalCheck::Sha256(checksum), None),
            (Check::Nothing, None, Some(_), _) => (FinalCheck::Whole, root_by),
            (_, None, Some(_), _) => (FinalCheck::Root, root_by),
            (Check::Nothing, None, None, Some(sha256)) => (FinalCheck::Sha256(sha256), sha256_by),
            (Check::Pieces { .. }, ..) => (FinalCheck::Blocks, listed_by),
            _ => (FinalCheck::Blocks, None),
        };
        let name = file.as_ref().map(|file| file.file_name().as_bytes().to_vec());
        let name = name.or_else(|| mirrors.iter().find_map(|mirror| mirror.url.file_name()));
        let mut hashes = Vec::new();
        if let Check::Pieces { bytes, sha256 } = &check {
            hashes.push(Evidence::Pieces(*bytes, sha256));
        }
        if let Some(sha256) = &sha256 {
            hashes.push(Evidence::Digest("sha-256", sha256));
        }
        let (journal, aliases) = self.names(length, root, &hashes, &mirrors)?;
        if let (FinalCheck::Blocks, Some(sha256)) = (proof, sha256) {
            let id = ContentId { root: journal, length };
            there = Some(ExistingFile { id, proof: FinalCheck::Sha256(sha256), since: None });
        }
        if !matches!(check, Check::Nothing) {
            mirrors.iter_mut().for_each(|mirror| mirror.seen_at = None);
        }
        Ok(DiscoveredFile {
            id: ContentId { root: journal, length },
            aliases,
            named: root.is_some(),
            check,
            proof,
            name,
            mirrors,
            offered_by: by.filter(|_| id.is_none()),
            recalled,
            there,
        })
    }

    /// How long the file is: as the user or a Metalink says, else as more than half of the servers that the
    /// user named do.
    fn length(&mut self, id: Option<ContentId>, size: Option<u64>) -> Result<u64> {
        let known = id.map(|id| id.length).or(size);
        if let Some(length) = known {
            return Ok(length);
        }
        let says = |number: usize| Some((&self.urls[number], self.heads[number].as_ref()?.length?));
        let mut said: Vec<(&Url, u64)> = (0..self.named).filter_map(says).collect();
        if said.is_empty() {
            said = (self.named..self.urls.len()).filter_map(says).collect();
        }
        let mut votes: BTreeMap<u64, usize> = BTreeMap::new();
        for (_, length) in &said {
            *votes.entry(*length).or_default() += 1;
        }
        let most = votes.iter().max_by_key(|(_, votes)| **votes).map(|(length, votes)| (*length, *votes));
        if let Some((_, votes)) = most
            && 2 * votes <= said.len()
        {
            let each = said.iter().take(NAMED_MAX).map(|(url, length)| format!("{url} has {length} bytes"));
            let more = if said.len() > NAMED_MAX { ", …" } else { "" };
            return Err(Error::corrupt(format!(
                "the URLs are of files of different lengths, and nothing tells which is meant: {}{more}: \
                     name one of them alone, or a Metalink",
                each.collect::<Vec<_>>().join(", ")
            )));
        }
        match most.map(|(length, _)| length) {
            Some(length) if length <= LENGTH_MAX => Ok(length),
            Some(length) => Err(Error::system(format!("a file of {length} bytes is too long"))),
            None if self.heads.iter().flatten().next().is_some() => Err(Error::system(
                "no server says how long the file is, so it cannot be fetched in parts: curl can fetch it",
            )),
            None => Err(self.nobody()),
        }
    }

    /// Those that have a file of this length.
    fn mirrors(&mut self, length: u64) -> Result<Vec<Mirror>> {
        let mut mirrors = Vec::new();
        for (url, head) in self.urls.iter().zip(&self.heads) {
            let Some(head) = head else { continue };
            if head.length.is_some_and(|there| there != length) {
                let there = head.length.unwrap_or_default();
                let error =
                    FetchError::NotTheFile(format!("it has {there} bytes, not {length}: another file"));
                let why = format!("{}: {error}", host(url));
                self.notices.push(why.clone());
                self.troubles.push((server_status::code(&error), why));
                continue;
            }
            let validator = head.etag.as_deref().and_then(ETag::parse);
            let validator = validator.as_ref().and_then(ETag::strong).map(str::to_owned);
            let date = head.last_modified.clone().filter(|_| validator.is_none());
            mirrors.push(Mirror {
                url: url.clone(),
                validator,
                date,
                seen_at: Some(head.url.clone()),
                ranges: head.ranges,
                trusted: self.is_named(url),
                proxied: false,
            });
        }
        if mirrors.is_empty() { Err(self.nobody()) } else { Ok(mirrors) }
    }

    /// The SHA-256 that servers tell (RFC 9530), if they agree, and the first that does.
    fn digest(&mut self) -> Option<([u8; 32], String)> {
        let mut digests: Vec<([u8; 32], String)> = Vec::new();
        for (url, head) in self.urls.iter().zip(&self.heads) {
            let value = head.as_ref().and_then(|head| head.repr_digest.as_deref());
            if let Some(sha256) = value.and_then(|value| http_fields::repr_digest(value).sha256) {
                digests.push((sha256, host(url)));
            }
        }
        let (first, by) = digests.first()?;
        if let Some((_, other)) = digests.iter().find(|(sha256, _)| sha256 != first) {
            self.notices
                .push(format!("{} and {other} tell different SHA-256: neither is used", digests[0].1));
            return None;
        }
        Some((*first, by.clone()))
    }

    fn nobody(&self) -> Error {
        let code = server_status::most_specific(self.troubles.iter().map(|(code, _)| *code));
        let why: Vec<&str> = self.troubles.iter().take(5).map(|(_, why)| why.as_str()).collect();
        let why = if why.is_empty() { "none was named".to_owned() } else { why.join("; ") };
        let does = if code == ErrorKind::NotFound { "has" } else { "gives" };
        code.error(format!("no mirror {does} the file: {why}"))
    }
}
