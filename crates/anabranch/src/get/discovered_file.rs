//! What is known of a file before it is fetched: who has it, and what it is checked by.

use mirror::url::Url;
use mirror::verified_pool::Check;
use mmtp::ContentId;

use super::history::{HistoryEntry, Provenance};
use crate::Verified;
use crate::target::FinalCheck;

/// A URL that has the file.
#[derive(Clone, Debug)]
pub(super) struct Mirror {
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
    /// Whether the user named its origin.
    pub(super) trusted: bool,
    /// Whether a proxy stands between.
    pub(super) proxied: bool,
}

impl Mirror {
    /// What tells that the file has not changed: its strong validator, else its date.
    pub(super) fn validator(&self) -> Option<&str> {
        self.validator.as_deref().or(self.date.as_deref())
    }
}

/// What is to be fetched from where, and how it is checked.
#[derive(Debug)]
pub(super) struct DiscoveredFile {
    /// The content; its root is one of our own making, for the journal, where `named` is false.
    pub(super) id: ContentId,
    /// What else stands for the content in the journal of an earlier transfer.
    pub(super) aliases: Vec<[u8; 32]>,
    /// Whether the root of `id` is the content's.
    pub(super) named: bool,
    /// What each group is checked by.
    pub(super) check: Check,
    /// What the whole is checked by.
    pub(super) proof: FinalCheck,
    /// What it is to be called.
    pub(super) name: Option<Vec<u8>>,
    /// Who has it.
    pub(super) mirrors: Vec<Mirror>,
    /// The server on whose word alone all this is: neither the user nor a Metalink that the user named says
    /// what is right.
    pub(super) offered_by: Option<String>,
    /// The earlier transfer from which alone the root is known.
    pub(super) recalled: Option<HistoryEntry>,
    /// What a file that is there already is recognised by, where `proof` does not tell.
    pub(super) there: Option<ExistingFile>,
}

/// What tells that a file is what it should be, though not what its parts should be.
#[derive(Clone, Debug)]
pub(super) struct ExistingFile {
    pub(super) id: ContentId,
    pub(super) proof: FinalCheck,
    /// The day on which that came, if nothing proves that the servers still have it.
    pub(super) since: Option<String>,
}

impl DiscoveredFile {
    /// The day on which came what it is held against, if nothing else tells what is right.
    pub(super) fn since(&self) -> Option<&str> {
        let recalled = self.recalled.as_ref().filter(|recalled| recalled.came != Provenance::Verified);
        recalled.map(|recalled| recalled.day.as_str())
    }

    /// Whether only the whole is verified.
    pub(super) fn is_verified_at_the_end(&self) -> bool {
        self.check == Check::Nothing && self.proof != FinalCheck::Blocks && self.since().is_none()
    }

    /// How it is verified: a clause.
    pub(super) fn verification_text(&self) -> String {
        if let Some(day) = self.since() {
            return format!("UNVERIFIED: held against what came on {day}, of which there was no hash either");
        }
        let how = match (&self.check, self.proof) {
            (Check::Leaves(_), FinalCheck::Sha256(_)) => {
                "every 16 KiB will be verified by BLAKE3, and the whole by SHA-256"
            }
            (Check::Leaves(_), _) => "every 16 KiB will be verified by BLAKE3",
            (Check::Pieces { .. }, _) => "every piece will be verified by SHA-256",
            (Check::Nothing, FinalCheck::Root | FinalCheck::Whole) => {
                "will be verified as a whole, by BLAKE3"
            }
            (Check::Nothing, FinalCheck::Sha256(_)) => "will be verified as a whole, by SHA-256",
            (Check::Nothing, FinalCheck::Blocks) if self.mirrors.len() == 1 => {
                "UNVERIFIED: there is no hash of it, and no other mirror to compare it with"
            }
            (Check::Nothing, FinalCheck::Blocks) => {
                "UNVERIFIED: there is no hash of it, so mirrors are only compared with each other"
            }
        };
        match &self.offered_by {
            Some(host) => format!("{how}, by hashes that {host} itself offers"),
            None => how.to_owned(),
        }
    }

    /// The same in short.
    pub(super) fn verified(&self) -> Verified {
        match (&self.check, self.proof) {
            _ if self.since().is_some() => Verified::Unchanged,
            (Check::Leaves(_), _) => Verified::Blocks,
            (Check::Pieces { .. }, _) => Verified::Pieces,
            (Check::Nothing, FinalCheck::Root | FinalCheck::Whole | FinalCheck::Sha256(_)) => Verified::Whole,
            (Check::Nothing, FinalCheck::Blocks) => Verified::Nothing,
        }
    }
}
