//! Joins the answers of servers into one content, its hashes, and the mirrors that have it.

use anabranch_http::client::FetchError;
use anabranch_mirror::http_fields::{ETag, disposition_name};
use anabranch_mirror::metalink::{self, Pieces};
use anabranch_mirror::range_scheduler::MirrorId;
use anabranch_mirror::url::Url;
use anabranch_mirror::variants::Variants;
use anabranch_mirror::verified_pool::{Check, can_check_pieces};
use anabranch_mmtp::ContentId;
use anabranch_mmtp::id::{BLOCK_BYTES, LENGTH_MAX};

use super::names::name;
use super::told::Told;
use super::{Discovery, Expected, MIRRORS_MAX, Probed, Round};
use crate::error::ErrorKind;
use crate::filenames::show;
use crate::format::bytes;
use crate::get::discovered_file::{DiscoveredFile, ExistingFile, Mirror};
use crate::get::history::{HistoryEntry, Provenance};
use crate::get::offered_names::OfferedNames;
use crate::get::origin::host;
use crate::get::server_status;
use crate::openpgp::Signed;
use crate::target::{FinalCheck, RootCheck};
use crate::{Error, Result, VouchedBy};

/// The most signatures from which names for the journal are derived, so that a later transfer recognises the
/// part file.
const SIGNATURE_NAMES: usize = 2;

impl Discovery<'_> {
    /// Returns the hashes that the user gives for the file, the signature that the file must also have
    /// (`None` if no keyring was given), and the variants of the file that the servers have.
    ///
    /// # Errors
    /// If two URLs have different files, or if no server has an acceptable one.
    pub(super) fn resolve(&mut self) -> Result<(Told, Option<Signed>, Variants)> {
        self.refuse_different_files()?;
        if self.says.unasked > 0 {
            self.says.warnings.push(self.unasked());
        }
        let Expected { id, digests: checksum } = self.wanted.said;
        let file = self.documents.metalink.as_ref();
        let hashes = file.map(|file| file.hashes).unwrap_or_default();
        let differs = id.zip(hashes.blake3).is_some_and(|(id, root)| id.root != root);
        if differs || checksum.contradict(&hashes.digests) {
            return Err(Error::usage(
                "the Metalink describes another content than the URI or `checksum` name",
            ));
        }
        let mut digests = checksum.or(hashes.digests);
        let root = id.map(|id| id.root).or(hashes.blake3);
        let length = id.map(|id| id.length).or(file.and_then(|file| file.size));
        let (pieces, unusable) = match file.and_then(|file| file.pieces.clone()) {
            Some(pieces) if !can_check_pieces(pieces.bytes) => (None, Some(pieces)),
            pieces => (pieces, None),
        };
        let only = unusable.as_ref().filter(|pieces| length.is_some_and(|length| length <= pieces.bytes));
        if let Some(only) = only.and_then(|pieces| pieces.hashes.only()) {
            digests = digests.or(only);
        }
        let known = Told { length, root, digests, pieces, by: Some(VouchedBy::User), leaves: None };
        if let Some(Pieces { bytes, .. }) = unusable.filter(|_| digests.is_empty()) {
            if known.has_no_hash()
                && self.documents.leaves.is_none()
                && !self.documents.signatures.are_wanted()
            {
                return Err(no_use_of_pieces(bytes));
            }
            self.says.notices.push(without_pieces(bytes));
        }
        let is_judged = !known.has_no_hash() || self.documents.signatures.are_wanted();
        self.tries_variants = is_judged && !self.wanted.is_read_in_order;
        let is_one_block = root.is_some() && length.is_some_and(|length| length <= BLOCK_BYTES as u64);
        let has_parts = known.pieces.is_some() || self.documents.leaves.is_some() || is_one_block;
        let mut variants = self.variants(length, has_parts)?;
        self.check_lengths(&known, &mut variants)?;
        let signed = self.documents.signatures.signed()?;
        Ok((known, signed, variants))
    }

    /// Leaves out variants that cannot be the wanted file, or cannot be fetched.
    ///
    /// # Errors
    /// The reason, if no variant is left.
    fn check_lengths(&self, known: &Told, variants: &mut Variants) -> Result<()> {
        let Some(first) = variants.iter().next().cloned() else { return Err(self.nobody()) };
        if self.wanted.is_read_in_order {
            variants.retain(|variant| variant.length.is_some());
        }
        variants.retain(|variant| variant.length.is_none_or(|length| length <= LENGTH_MAX));
        let may_be = |length| known.pieces.as_ref().is_none_or(|pieces| pieces.fit(length));
        variants.retain(|variant| variant.length.is_none_or(may_be));
        match first.length {
            _ if !variants.is_empty() => Ok(()),
            None => Err(Error::not_found(
                "no server says how long the file is, which reading it in order needs: name a file for it",
            )),
            Some(length) if length <= LENGTH_MAX => Err(Error::corrupt(format!(
                "servers have a file of {length} bytes, and the Metalink has hashes of pieces of another one"
            ))),
            Some(length) => Err(Error::system(format!(
                "a file of {length} bytes, as {} says it is, is too long: at most {}",
                host(&self.mirrors[usize::from(first.mirrors[0])].url),
                bytes(LENGTH_MAX)
            ))),
        }
    }

    /// Returns the description of the file of this length; `known` has the user's data. If the user gives no
    /// hash, adds the hashes that most servers give, or else the content that the history recalls.
    pub(super) fn found_of(&mut self, length: u64, mut known: Told) -> Result<DiscoveredFile> {
        let mirrors = self.mirrors(length)?;
        let names = self.offered_names(self.documents.metalink.as_ref(), &mirrors);
        let (mut recalled, mut there) = (None, Vec::new());
        if known.has_no_hash() {
            if let Some(file) = &self.documents.metalink
                && !(file.ignored_hashes.is_empty() && file.ignored_pieces.is_empty())
            {
                let kinds = show([&file.ignored_hashes[..], &file.ignored_pieces].concat().join(", "));
                self.says.notices.push(format!(
                    "the Metalink has no other hashes than {kinds}: these prove nothing and are not used"
                ));
            }
            // If a signature decides, servers' hashes are not used: they could only get mirrors banned for
            // differing.
            if !self.documents.signatures.are_wanted() {
                known = self.told_by_servers(length);
            }
        }
        if known.has_no_hash() {
            // Only mirrors that the user or the user's Metalink names are looked up in the history.
            let named = mirrors.iter().filter(|mirror| mirror.named);
            let validated = named.filter_map(|mirror| Some((&mirror.url, mirror.validator()?)));
            let entries = self.wanted.history.recall(validated, length);
            let verified = entries.iter().find(|entry| entry.strong && entry.came == Provenance::Verified);
            // An unverified entry rests on one server alone: two other mirrors outvote it.
            let is_alone = |entry: &&HistoryEntry| entry.strong && entry.came == Provenance::Alone;
            let alone = entries.iter().find(is_alone).filter(|entry| {
                mirrors.len() <= 2 && entries.iter().all(|other| other.id.root == entry.id.root)
            });
            if let Some(entry) = verified.or(alone) {
                self.says.notices.push(format!(
                    "{} had the content {} before (on {}), and says that it is unchanged",
                    host(&entry.url),
                    entry.id,
                    entry.day
                ));
                let by = Some(VouchedBy::User).filter(|_| entry.came == Provenance::Verified);
                known = Told { root: Some(entry.id.root), by, ..Told::default() };
                recalled = Some(entry.clone());
            } else {
                // These entries do not identify the content, because an equal date and length prove nothing.
                // A file at the destination may still be compared with them.
                let existing = |HistoryEntry { id, day, .. }| ExistingFile { id, since: day };
                there = entries.into_iter().map(existing).collect();
            }
        }
        self.complete(length, mirrors, names, known, recalled, there)
    }

    /// Builds the [`DiscoveredFile`] from the hashes and the mirrors of a content.
    fn complete(
        &mut self,
        length: u64,
        mut mirrors: Vec<Mirror>,
        names: OfferedNames,
        known: Told,
        recalled: Option<HistoryEntry>,
        there: Vec<ExistingFile>,
    ) -> Result<DiscoveredFile> {
        let Told { root, digests, pieces, by, .. } = known;
        let leaves = self.documents.leaves.take_if(|leaves| leaves.id().length == length);
        // The user's leaf list also gives the root hash, if the user gives no other hash.
        let (root, by) = match (&leaves, root) {
            (Some(leaves), None) if digests.is_empty() && pieces.is_none() => {
                (Some(leaves.id().root), Some(VouchedBy::User))
            }
            _ => (root, by),
        };
        let leaves = leaves.filter(|leaves| root == Some(leaves.id().root));
        let leaves =
            leaves.or_else(|| self.told_leaves(&root?).filter(|leaves| leaves.id().length == length));
        let check = match (leaves, pieces, root) {
            (Some(leaves), _, Some(_)) if length > BLOCK_BYTES as u64 => Check::Leaves(leaves.into_cvs()),
            (_, _, Some(root)) if length > 0 && length <= BLOCK_BYTES as u64 => Check::Leaves(vec![root]),
            (_, Some(pieces), _) => Check::Pieces { bytes: pieces.bytes, hashes: pieces.hashes },
            _ => Check::Nothing,
        };
        let root_check = match (&check, root) {
            (_, None) => RootCheck::Unknown,
            (Check::Nothing, Some(_)) => RootCheck::Whole,
            (_, Some(_)) => RootCheck::Blocks,
        };
        let proof = FinalCheck::of(root_check, digests);
        let mut hashes = Vec::new();
        if let Check::Pieces { bytes, hashes: pieces } = &check {
            let kind = [b"pieces", &bytes.to_le_bytes()[..], pieces.kind().as_bytes()];
            hashes.push(name(length, kind.into_iter().chain(pieces.iter())));
        }
        hashes.extend(digests.iter().map(|(kind, digest)| name(length, [kind.as_bytes(), digest])));
        let signatures = self.documents.signatures.useful().iter().take(SIGNATURE_NAMES);
        hashes.extend(signatures.map(|signature| name(length, [b"signature", &signature[..]])));
        let (journal, aliases) = self.names(length, root, hashes, &mirrors)?;
        if !matches!(check, Check::Nothing) {
            mirrors.iter_mut().for_each(|mirror| mirror.seen_at = None);
        }
        let is_known = check != Check::Nothing || proof.is_something();
        Ok(DiscoveredFile {
            id: ContentId { root: journal, length },
            aliases,
            named: root.is_some(),
            check,
            proof,
            names,
            mirrors,
            // The first round keeps the part file for the servers that the second round asks.
            unheard: if self.wanted.round == Round::First {
                self.says.absent.clone()
            } else {
                self.says.unheard.clone()
            },
            vouched_by: by.filter(|_| is_known),
            claims: self.claims(length),
            signed: None,
            sums: self.documents.sums.clone(),
            recalled,
            there,
        })
    }

    /// Returns the names that are offered for the file: the names from the user, else those in the URLs that
    /// the user named and in the response of the first such mirror.
    pub(super) fn offered_names(&self, file: Option<&metalink::File>, mirrors: &[Mirror]) -> OfferedNames {
        let mut names = OfferedNames::default();
        names.offer("the URI", self.wanted.uri_name.clone());
        names.offer("the Metalink", file.map(|file| file.file_name().as_bytes().to_vec()));
        names.offer("the list of hashes", self.wanted.listed_name.clone());
        // If the user gave a name, ignore names from servers.
        let is_open = names.chosen().is_none();
        let named = mirrors.iter().filter(|mirror| mirror.named).map(|mirror| &mirror.url);
        let first = self.mirrors.iter().filter(|mirror| mirror.named).map(|mirror| &mirror.url);
        for url in named.clone().chain(first.clone()) {
            names.offer(&format!("the URL of {}", host(url)), Some(url.last_component()));
        }
        if let Some(url) = named.chain(first).find(|url| url.path().ends_with('/')) {
            names.offer_page(url);
        }
        let head = self.mirrors.iter().find_map(|mirror| mirror.head.as_ref().filter(|_| mirror.named));
        if let Some(head) = head.filter(|_| is_open)
            && let Ok(url) = Url::parse(&head.url)
        {
            let own = head.content_disposition.as_deref().and_then(disposition_name);
            let own = own.or_else(|| Some(url.last_component()).filter(|_| names.chosen().is_none()));
            names.offer_by_server(&host(&url), own);
        }
        names
    }

    /// Records a warning for each server whose file has another length.
    pub(super) fn tell_other_lengths(&mut self, length: u64) {
        for (number, mirror) in self.mirrors.iter().enumerate() {
            let Some(there) =
                mirror.head.as_ref().and_then(|head| head.length).filter(|there| *there != length)
            else {
                continue;
            };
            let error = FetchError::NotTheFile(format!("it has {there} bytes, not {length}: another file"));
            let why = format!("{}: {error}", self.label(number));
            self.says.warnings.push(why.clone());
            self.says.troubles.push((server_status::code(&error), why));
        }
    }

    /// Returns the mirrors whose file has this length, or whose server does not state the length.
    fn mirrors(&self, length: u64) -> Result<Vec<Mirror>> {
        let mut mirrors = Vec::new();
        let may_be = |its: Option<u64>| its.is_none_or(|its| its == length);
        let head_of = |number: usize| self.mirrors[number].head.as_ref().filter(|head| may_be(head.length));
        let voters = self.first_of_use(|number| head_of(number).is_some());
        for (number, Probed { url, named, delay, opening, .. }) in self.mirrors.iter().enumerate() {
            let Some(head) = head_of(number) else { continue };
            let validator = head.etag.as_deref().and_then(ETag::parse);
            let validator = validator.as_ref().and_then(ETag::strong).map(str::to_owned);
            let date = head.last_modified.clone().filter(|_| validator.is_none());
            mirrors.push(Mirror {
                place: number as MirrorId,
                url: url.clone(),
                validator,
                date,
                seen_at: Some(head.url.clone()),
                ranges: head.ranges,
                delay: *delay,
                named: *named,
                introduced: !voters.contains(&number),
                opening: *opening,
                trusted: self.is_named(url),
            });
        }
        if mirrors.is_empty() { Err(self.nobody()) } else { Ok(mirrors) }
    }

    /// Returns the warning that more URLs were named than the transfer asks.
    fn unasked(&self) -> String {
        format!("{MIRRORS_MAX} URLs are asked at most, the first ones: {} more are not", self.says.unasked)
    }

    fn nobody(&self) -> Error {
        let code = server_status::most_specific(self.says.troubles.iter().map(|(code, _)| *code));
        let why: Vec<&str> = self.says.troubles.iter().take(5).map(|(_, why)| why.as_str()).collect();
        let why = if why.is_empty() { "none was named".to_owned() } else { why.join("; ") };
        let does = if code == ErrorKind::NotFound { "has" } else { "gives" };
        let more = if self.says.unasked > 0 { format!("; {}", self.unasked()) } else { String::new() };
        code.error(format!("no mirror {does} the file: {why}{more}"))
    }
}

/// Returns the notice that pieces of this size cannot be checked.
pub(super) fn without_pieces(bytes: u64) -> String {
    format!("pieces of {bytes} bytes cannot be checked, and are not used")
}

/// Returns the error for a Metalink from the user that has only hashes of pieces which cannot be checked.
fn no_use_of_pieces(bytes: u64) -> Error {
    Error::usage(format!(
        "the Metalink has no other hashes than those of pieces of {bytes} bytes, and these cannot be \
         checked: only pieces of a multiple of 16 KiB, of 64 MiB at most, can; give `checksum` too, or name \
         a URL without the Metalink"
    ))
}
