//! Describes a file before it is fetched: its mirrors, and the hashes that check it.

use anabranch_algo::Span;
use anabranch_http::client::RequestKind;
use anabranch_mirror::metalink::Pieces;
use anabranch_mirror::range_scheduler::MirrorId;
use anabranch_mirror::url::Url;
use anabranch_mirror::verified_pool::Check;
use anabranch_mmtp::ContentId;

use super::history::{HistoryEntry, Provenance};
use super::offered_names::OfferedNames;
use crate::openpgp::Signed;
use crate::target::{Aliases, Claim, FinalCheck, RootCheck};
use crate::{Verified, VouchedBy};

/// A URL that has the file.
#[derive(Clone, Debug)]
pub(super) struct Mirror {
    /// The index of the URL among all URLs of the file.
    pub(super) place: MirrorId,
    /// The URL as it was named, before redirects.
    pub(super) url: Url,
    /// The strong validator (`ETag`) of the mirror's file.
    pub(super) validator: Option<String>,
    /// The date (`Last-Modified`) of the mirror's file, if there is no strong validator.
    pub(super) date: Option<String>,
    /// The URL, after redirects, that gave `validator` or `date`; `None` if bytes are verified on arrival, so
    /// that the version need not be watched.
    pub(super) seen_at: Option<String>,
    /// Whether the mirror sends ranges.
    pub(super) ranges: bool,
    /// The time that the mirror took to answer its first request.
    pub(super) delay: Span,
    /// Whether the user, or a Metalink of the user's, named the URL.
    pub(super) named: bool,
    /// Whether the mirror has no vote when mirrors are compared: the user did not name it, or an earlier
    /// mirror has the same origin.
    pub(super) introduced: bool,
    /// Whether the user named the origin of the URL.
    pub(super) trusted: bool,
    /// The BLAKE3 hash of the first bytes of the mirror's file, if they have arrived.
    pub(super) opening: Option<[u8; 32]>,
}

impl Mirror {
    /// Returns the request for a range of the file, which is `length` bytes long.
    pub(super) fn range(&self, first: u64, end: u64, length: u64) -> RequestKind {
        RequestKind::Range {
            first,
            end,
            length,
            // If bytes are verified on arrival, the file may have changed since discovery, so no validator is
            // sent.
            validator: self.seen_at.as_ref().and(self.validator.clone()),
            // The date stands in for a missing strong validator.
            modified: self.date.clone(),
            seen_at: self.seen_at.clone(),
        }
    }

    /// Returns the value that shows whether the file has changed: the strong validator, else the date.
    pub(super) fn validator(&self) -> Option<&str> {
        self.validator.as_deref().or(self.date.as_deref())
    }
}

/// A file to be fetched: its content, its mirrors, and how it is checked.
#[derive(Clone, Debug)]
pub(super) struct DiscoveredFile {
    /// The id of the content. If `named` is false, its root is not the root hash but a name for the journal.
    pub(super) id: ContentId,
    /// The other names by which the journal of an earlier transfer may know the content.
    pub(super) aliases: Aliases,
    /// Whether the root in `id` is the root hash of the content.
    pub(super) named: bool,
    /// The way in which the parts of the file are checked as they arrive.
    pub(super) check: Check,
    /// The hash that the whole file is checked against at its end.
    pub(super) proof: FinalCheck,
    /// The names that are offered for the file.
    pub(super) names: OfferedNames,
    /// The mirrors of the file.
    pub(super) mirrors: Vec<Mirror>,
    /// The named servers that could not be asked; a wrong part file is kept for them.
    pub(super) unheard: Vec<String>,
    /// The voucher for the hashes of the file, if there is one.
    pub(super) vouched_by: Option<VouchedBy>,
    /// The hashes of the whole file that servers themselves give, whether they count or not.
    pub(super) claims: Vec<Claim>,
    /// The signature that the file must also have.
    pub(super) signed: Option<Signed>,
    /// A list of hashes that lies beside the file and has it, for the user to look at.
    pub(super) sums: Option<Url>,
    /// The history entry of the earlier transfer, if only this entry gives the root hash.
    pub(super) recalled: Option<HistoryEntry>,
    /// The contents by which a file at the destination may be recognised if neither `proof` nor a signature
    /// tells.
    pub(super) there: Vec<ExistingFile>,
}

/// The content of an earlier transfer from the same URLs that the servers do not provably still have. A file
/// at the destination with exactly this content is accepted as the result, reported as unchanged and
/// unverified.
#[derive(Clone, Debug)]
pub(super) struct ExistingFile {
    pub(super) id: ContentId,
    /// The day of the earlier transfer.
    pub(super) since: String,
}

/// The beginning of a clause about a file for which no one vouches whom the user has to trust.
const UNVERIFIED: &str = "UNVERIFIED: ";

/// Returns a clause that says which data would verify a file; `sums` is the URL of a list of hashes beside
/// the file that includes it.
pub(super) fn how_to_verify(sums: Option<&Url>) -> String {
    match sums {
        Some(sums) => format!("`checksum` {sums} verifies it, as far as you trust that list"),
        None => "`checksum` with a hash that you trust, or a list such as SHA256SUMS, verifies it".to_owned(),
    }
}

impl DiscoveredFile {
    /// Returns the day of the earlier, unverified transfer whose content the file is checked against, if no
    /// other data says which bytes are right.
    pub(super) fn since(&self) -> Option<&str> {
        let recalled = self.recalled.as_ref().filter(|recalled| recalled.came != Provenance::Verified);
        recalled.map(|recalled| recalled.day.as_str())
    }

    /// Returns whether the file is verified only as a whole, at its end.
    pub(super) fn is_verified_at_the_end(&self) -> bool {
        self.check == Check::Nothing && self.proof.is_something() && self.since().is_none()
    }

    /// Returns whether a check of the whole file decides which mirror is right. It does if no hash of a part
    /// is known and a signature is demanded, or a voucher stands for a hash of the whole.
    pub(super) fn is_judged_as_a_whole(&self) -> bool {
        let is_nothing_of_parts = self.check == Check::Nothing && self.since().is_none();
        let is_known = self.proof.is_something() && self.vouched_by.is_some();
        is_nothing_of_parts && (is_known || self.signed.is_some())
    }

    /// Returns whether no voucher and no signature stands for the file.
    pub(super) const fn is_vouched_for_by_nobody(&self) -> bool {
        self.vouched_by.is_none() && self.signed.is_none()
    }

    /// Returns whether only servers vouch for the file's hashes.
    pub(super) const fn is_self_asserted(&self) -> bool {
        matches!(self.vouched_by, Some(VouchedBy::Hosts(_)))
    }

    /// Returns the hashes of the file's pieces, if the file is checked by them.
    pub(super) fn pieces(&self) -> Option<Pieces> {
        match &self.check {
            Check::Pieces { bytes, hashes } => Some(Pieces { bytes: *bytes, hashes: hashes.clone() }),
            _ => None,
        }
    }

    /// Returns whether the verdict on the whole file will begin with UNVERIFIED, if mirrors alone deliver it.
    pub(super) fn is_unverified(&self) -> bool {
        let has_no_proof = matches!(self.verified(), Verified::Nothing | Verified::Unchanged);
        self.signed.is_none() && (has_no_proof || self.is_self_asserted())
    }

    /// Returns the sentence for [`Report::advice`](crate::Report::advice), for a file that
    /// [is unverified](Self::is_unverified).
    pub(super) fn advice(&self) -> String {
        let why = self.verification_by_hashes();
        let why = why.strip_prefix(UNVERIFIED).unwrap_or(&why);
        format!("{why}: {}", how_to_verify(self.sums.as_ref()))
    }

    /// Returns a clause that says how the file is verified.
    pub(super) fn verification_text(&self) -> String {
        match (&self.signed, &self.vouched_by) {
            (None, _) => self.verification_by_hashes(),
            (Some(_), Some(VouchedBy::User)) => {
                format!("{}, and the whole by an OpenPGP signature", self.verification_by_hashes())
            }
            (Some(_), _) => "will be verified as a whole, by an OpenPGP signature".to_owned(),
        }
    }

    fn verification_by_hashes(&self) -> String {
        if let Some(day) = self.since() {
            return format!("{UNVERIFIED}held against what came on {day}, of which there was no hash either");
        }
        if let Some(VouchedBy::Hosts(hosts)) = &self.vouched_by {
            let what = match self.check {
                Check::Leaves(_) => "every 16 KiB is",
                Check::Pieces { .. } => "every piece is",
                Check::Nothing => "the whole is",
            };
            let offer = if hosts.len() == 1 { "itself offers" } else { "themselves offer" };
            let hosts = hosts.join(" and ");
            return format!("{UNVERIFIED}{what} only compared, by hashes that {hosts} {offer}");
        }
        let whole = self.whole_kinds();
        let and_whole = if whole.is_empty() { String::new() } else { format!(", and the whole by {whole}") };
        match &self.check {
            Check::Leaves(_) => format!("every 16 KiB will be verified by BLAKE3{and_whole}"),
            Check::Pieces { hashes, .. } => {
                format!("every piece will be verified by {}{and_whole}", hashes.kind().to_ascii_uppercase())
            }
            Check::Nothing if !whole.is_empty() => format!("will be verified as a whole, by {whole}"),
            Check::Nothing if self.mirrors.len() == 1 => {
                format!("{UNVERIFIED}there is no hash of it, and no other mirror to compare it with")
            }
            Check::Nothing if !self.claims.is_empty() => {
                let mut hosts: Vec<&str> = self.claims.iter().map(|claim| claim.by.as_str()).collect();
                hosts.dedup();
                format!(
                    "{UNVERIFIED}mirrors are only compared with each other, for the hashes that {} offers \
                     count only if more than half of those that you named say the same",
                    hosts.join(" or ")
                )
            }
            Check::Nothing => {
                format!("{UNVERIFIED}there is no hash of it, so mirrors are only compared with each other")
            }
        }
    }

    /// Returns the kinds of hashes that only the whole file is checked against.
    fn whole_kinds(&self) -> String {
        let is_blake3 = self.proof.root != RootCheck::Unknown && !matches!(self.check, Check::Leaves(_));
        let sha2 = self.proof.digests.iter().map(|(kind, _)| kind.to_ascii_uppercase());
        let kinds = is_blake3.then(|| "BLAKE3".to_owned()).into_iter().chain(sha2);
        kinds.collect::<Vec<_>>().join(" and ")
    }

    /// Returns how far a complete transfer verifies the file, for the report.
    pub(super) fn verified(&self) -> Verified {
        match &self.check {
            _ if self.since().is_some() => Verified::Unchanged,
            Check::Leaves(_) => Verified::Blocks,
            Check::Pieces { .. } => Verified::Pieces,
            Check::Nothing if self.proof.is_something() => Verified::Whole,
            Check::Nothing => Verified::Nothing,
        }
    }
}
