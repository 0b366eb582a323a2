//! A file before it is fetched: its mirrors, and the hashes that it is checked by.

use anabranch_algo::Span;
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
    /// Its place among all URLs.
    pub(super) place: MirrorId,
    /// As it was named.
    pub(super) url: Url,
    /// Its strong validator.
    pub(super) validator: Option<String>,
    /// Its date, for want of a strong validator.
    pub(super) date: Option<String>,
    /// The URL, after redirects, that has that validator; `None` if the bytes are verified as they come, so
    /// that it need not be looked at.
    pub(super) seen_at: Option<String>,
    /// Whether it sends parts.
    pub(super) ranges: bool,
    /// How long it took to answer when it was first asked.
    pub(super) delay: Span,
    /// Whether the user named it, or a Metalink of the user's.
    pub(super) named: bool,
    /// Whether it has no vote where mirrors are compared: the user did not name it, or it is of the same
    /// origin as one before it.
    pub(super) introduced: bool,
    /// Whether the user named its origin.
    pub(super) trusted: bool,
    /// A hash of the first bytes of its file, if these have come.
    pub(super) opening: Option<[u8; 32]>,
}

impl Mirror {
    /// What tells that the file has not changed: its strong validator, else its date.
    pub(super) fn validator(&self) -> Option<&str> {
        self.validator.as_deref().or(self.date.as_deref())
    }
}

/// What is to be fetched from where, and how it is checked.
#[derive(Clone, Debug)]
pub(super) struct DiscoveredFile {
    /// The content; its root is one of our own making, for the journal, where `named` is false.
    pub(super) id: ContentId,
    /// What else stands for the content in the journal of an earlier transfer.
    pub(super) aliases: Aliases,
    /// Whether the root of `id` is the content's.
    pub(super) named: bool,
    /// How the parts of the file are checked as they come.
    pub(super) check: Check,
    /// What the whole is checked by.
    pub(super) proof: FinalCheck,
    /// What it may be called.
    pub(super) names: OfferedNames,
    /// Its mirrors.
    pub(super) mirrors: Vec<Mirror>,
    /// The servers that the user named, and that do not answer now.
    pub(super) unheard: Vec<String>,
    /// The voucher for its hashes, if there are any.
    pub(super) vouched_by: Option<VouchedBy>,
    /// What servers say of the whole themselves, whether it counts or not.
    pub(super) claims: Vec<Claim>,
    /// What it has to be signed by besides.
    pub(super) signed: Option<Signed>,
    /// The earlier transfer from which alone the root is known.
    pub(super) recalled: Option<HistoryEntry>,
    /// What a file that is there already may be recognised by, where neither `proof` nor a signature tells.
    pub(super) there: Vec<ExistingFile>,
}

/// The content of an earlier transfer from the same URLs, which the servers do not provably still have. A
/// file at the destination with just this content is taken as the result, as unchanged and unverified.
#[derive(Clone, Debug)]
pub(super) struct ExistingFile {
    pub(super) id: ContentId,
    /// The day on which it came.
    pub(super) since: String,
}

impl DiscoveredFile {
    /// The day on which came what it is held against, if nothing else tells what is right.
    pub(super) fn since(&self) -> Option<&str> {
        let recalled = self.recalled.as_ref().filter(|recalled| recalled.came != Provenance::Verified);
        recalled.map(|recalled| recalled.day.as_str())
    }

    /// Whether only the whole is verified.
    pub(super) fn is_verified_at_the_end(&self) -> bool {
        self.check == Check::Nothing && self.proof.is_something() && self.since().is_none()
    }

    /// Whether the hash of the whole decides which mirror is right: the user vouches for it, or more than
    /// half of the servers, and nothing is known of the parts.
    pub(super) fn is_judged_as_a_whole(&self) -> bool {
        let is_nothing_of_parts = self.check == Check::Nothing && self.since().is_none();
        let is_known = self.proof.is_something() && self.vouched_by.is_some();
        is_nothing_of_parts && (is_known || self.signed.is_some())
    }

    /// Whether the file has no voucher.
    pub(super) const fn is_vouched_for_by_nobody(&self) -> bool {
        self.vouched_by.is_none() && self.signed.is_none()
    }

    /// Whether only servers vouch for it.
    pub(super) const fn is_self_asserted(&self) -> bool {
        matches!(self.vouched_by, Some(VouchedBy::Hosts(_)))
    }

    /// The hashes of its pieces, if it is checked by these.
    pub(super) fn pieces(&self) -> Option<Pieces> {
        match &self.check {
            Check::Pieces { bytes, hashes } => Some(Pieces { bytes: *bytes, hashes: hashes.clone() }),
            _ => None,
        }
    }

    /// How it is verified: a clause.
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
            return format!("UNVERIFIED: held against what came on {day}, of which there was no hash either");
        }
        if let Some(VouchedBy::Hosts(hosts)) = &self.vouched_by {
            let what = match self.check {
                Check::Leaves(_) => "every 16 KiB is",
                Check::Pieces { .. } => "every piece is",
                Check::Nothing => "the whole will be",
            };
            let offer = if hosts.len() == 1 { "itself offers" } else { "themselves offer" };
            let hosts = hosts.join(" and ");
            return format!("UNVERIFIED: {what} only compared, by hashes that {hosts} {offer}");
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
                "UNVERIFIED: there is no hash of it, and no other mirror to compare it with".to_owned()
            }
            Check::Nothing if !self.claims.is_empty() => {
                let mut hosts: Vec<&str> = self.claims.iter().map(|claim| claim.by.as_str()).collect();
                hosts.dedup();
                format!(
                    "UNVERIFIED: mirrors are only compared with each other, for the hashes that {} offers \
                     count only if more than half of those that you named say the same: give `checksum`, or \
                     a Metalink that you trust",
                    hosts.join(" or ")
                )
            }
            Check::Nothing => {
                "UNVERIFIED: there is no hash of it, so mirrors are only compared with each other".to_owned()
            }
        }
    }

    /// The kinds of hashes that only the whole is held against.
    fn whole_kinds(&self) -> String {
        let is_blake3 = self.proof.root != RootCheck::Unknown && !matches!(self.check, Check::Leaves(_));
        let sha2 = self.proof.digests.iter().map(|(kind, _)| kind.to_ascii_uppercase());
        let kinds = is_blake3.then(|| "BLAKE3".to_owned()).into_iter().chain(sha2);
        kinds.collect::<Vec<_>>().join(" and ")
    }

    /// The same in short.
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
