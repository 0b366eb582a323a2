//! A row of the table.

use std::collections::BTreeMap;

use anabranch_algo::Span;
use bytes::Bytes;

use super::mirrors::{FILE, content};
use crate::get::testing::Mirror;

/// What the command tells of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knows {
    /// Its URLs alone.
    Nothing,
    /// The SHA-256 of the whole.
    Sha256,
    /// Its length, in a Metalink of the user's without any hash.
    Length,
    /// The BLAKE3 content id, and no leaf list.
    Blake3,
    /// The content id, and mirrors have the leaf list.
    Leaves,
    /// The SHA-256 of each piece, in a Metalink of the user's.
    Pieces,
    /// Its URLs; each mirror has a Metalink beside the file, with its length and SHA-256.
    Beside,
    /// A Metalink of several files with the SHA-256 of each.
    Directory,
}

impl Knows {
    /// Whether nothing but the right bytes may arrive.
    pub(super) const fn is_hash(self) -> bool {
        !matches!(self, Self::Nothing | Self::Length | Self::Beside)
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Length => "Metalink with a length",
            Self::Sha256 => "SHA-256",
            Self::Blake3 => "content id",
            Self::Leaves => "content id, leaf list",
            Self::Pieces => "pieces",
            Self::Beside => "Metalink beside it",
            Self::Directory => "Metalink of 6 files",
        }
    }
}

/// How a run ends that is not the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Happens {
    /// It is killed (SIGKILL) after so long.
    Kill(Span),
    /// The caller stops it (Ctrl-C) after so long.
    Stop(Span),
    /// The disk has room for so many bytes.
    FullDisk(u64),
    /// Nothing: it ends by itself, with this exit status.
    Ends(u8),
}

/// See the [module](self). Every row has an end.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) mirrors: fn() -> Vec<Mirror>,
    pub(super) knows: Knows,
    /// Runs of the same command before the last.
    pub(super) runs: Vec<Happens>,
    /// What the last run leaves under the final name; nothing if it fails.
    pub(super) arrives: BTreeMap<&'static str, Bytes>,
    pub(super) exit_status: u8,
    /// Mirrors that are named in what is said.
    pub(super) named: &'static [&'static str],
    /// Mirrors that are named if they had a part in it.
    pub(super) may_name: &'static [&'static str],
    /// Bytes that come in all runs, in hundredths of the content.
    pub(super) percent: u64,
    /// How long the last run takes at most.
    pub(super) within: Span,
    /// What the file is called in its URL.
    pub(super) called: &'static str,
    /// The file is read in order while it comes. It has arrived if all was handed over and no error
    /// came; where the row says that there is no file, not a byte was handed over.
    pub(super) in_order: bool,
}

/// A row in which the file arrives.
pub(super) fn row(name: &'static str, knows: Knows, mirrors: fn() -> Vec<Mirror>) -> Row {
    Row {
        name,
        mirrors,
        knows,
        runs: Vec::new(),
        arrives: [(FILE, content())].into(),
        exit_status: 0,
        named: &[],
        may_name: &[],
        percent: 110,
        within: Span::from_secs(10),
        called: FILE,
        in_order: false,
    }
}

impl Row {
    /// These runs of the same command come before the last.
    pub(super) fn after(self, runs: &[Happens]) -> Self {
        Self { runs: runs.to_vec(), ..self }
    }

    /// No file arrives.
    pub(super) fn fails(self, exit_status: u8) -> Self {
        Self { exit_status, arrives: BTreeMap::new(), ..self }
    }

    /// This arrives.
    pub(super) fn arrives(self, arrives: BTreeMap<&'static str, Bytes>) -> Self {
        Self { arrives, ..self }
    }

    /// It ends with this exit status all the same.
    pub(super) fn status(self, exit_status: u8) -> Self {
        Self { exit_status, ..self }
    }

    /// These mirrors are named: `a` is the first, `b` the second.
    pub(super) fn names(self, named: &'static [&'static str]) -> Self {
        Self { named, ..self }
    }

    /// These mirrors are named if they had a part in it.
    pub(super) fn may_name(self, may_name: &'static [&'static str]) -> Self {
        Self { may_name, ..self }
    }

    /// No more than this comes, in hundredths of the content.
    pub(super) fn fetches(self, percent: u64) -> Self {
        Self { percent, ..self }
    }

    /// It takes no longer.
    pub(super) fn within(self, seconds: u64) -> Self {
        Self { within: Span::from_secs(seconds), ..self }
    }

    /// Its URL has another name.
    pub(super) fn called(self, called: &'static str) -> Self {
        Self { called, ..self }
    }

    /// The file is read in order.
    pub(super) fn in_order(self) -> Self {
        Self { in_order: true, ..self }
    }

    /// Its line in the manual.
    pub(super) fn line(&self) -> String {
        let end = match self.arrives.is_empty() {
            false if self.exit_status == 0 => "arrives",
            false => "the others arrive",
            true => "no file",
        };
        let chance = self.may_name.iter().map(|name| format!("({name})"));
        let named: Vec<String> = self.named.iter().map(|&name| name.to_owned()).chain(chance).collect();
        format!(
            "| {}{} | {} | {end} | {} | {} | {} | {} s |",
            if self.in_order { "in order: " } else { "" },
            self.name,
            self.knows.words(),
            self.exit_status,
            if named.is_empty() { "-".to_owned() } else { named.join(", ") },
            format_args!("{}.{:02}", self.percent / 100, self.percent % 100),
            self.within.as_nanos() / 1_000_000_000,
        )
    }
}
