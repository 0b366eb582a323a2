//! One row of the table of promises.

use std::collections::BTreeMap;

use anabranch_algo::Span;
use bytes::Bytes;

use super::mirrors::{FILE, content};
use crate::get::testing::Mirror;

/// What the command is told of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knows {
    /// Nothing but its URLs.
    Nothing,
    /// The SHA-256 of the whole file.
    Sha256,
    /// The length of the file, in a Metalink of the user without any hash.
    Length,
    /// The BLAKE3 content id. There is no leaf list.
    Blake3,
    /// The BLAKE3 content id. Mirrors have the leaf list.
    Leaves,
    /// The SHA-256 of each piece, in a Metalink of the user.
    Pieces,
    /// Nothing but its URLs. Each mirror has a Metalink beside the file, with its length and SHA-256.
    Beside,
    /// A Metalink of several files with the SHA-256 of each.
    Directory,
}

impl Knows {
    /// Returns whether only the right bytes may arrive.
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

/// The end of a run that is not the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Happens {
    /// The run is killed (SIGKILL) after this time.
    Kill(Span),
    /// The caller stops the run (Ctrl-C) after this time.
    Stop(Span),
    /// The disk has room for this number of bytes.
    FullDisk(u64),
    /// Nothing happens: the run ends by itself, with this exit status.
    Ends(u8),
}

/// A row of the table; see the [module](super). Each row ends within `within`.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) mirrors: fn() -> Vec<Mirror>,
    pub(super) knows: Knows,
    /// The ends of the runs of the same command before the last.
    pub(super) runs: Vec<Happens>,
    /// The files that the last run leaves under their final names; empty if it fails.
    pub(super) arrives: BTreeMap<&'static str, Bytes>,
    pub(super) exit_status: u8,
    /// The mirrors that the messages must name.
    pub(super) named: &'static [&'static str],
    /// The mirrors that the messages may name, if they took part in the transfer.
    pub(super) may_name: &'static [&'static str],
    /// The bytes that arrive at most in all runs, in hundredths of the content.
    pub(super) percent: u64,
    /// The longest time that the last run may take.
    pub(super) within: Span,
    /// The name of the file in its URL.
    pub(super) called: &'static str,
    /// Whether the file is read in order while it arrives. It has arrived if all bytes were handed over
    /// without an error. If the row says that there is no file, not a byte may be handed over.
    pub(super) in_order: bool,
}

/// Makes a row in which the file arrives.
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
    /// Adds runs of the same command before the last.
    pub(super) fn after(self, runs: &[Happens]) -> Self {
        Self { runs: runs.to_vec(), ..self }
    }

    /// Says that no file arrives, and with which exit status the command ends.
    pub(super) fn fails(self, exit_status: u8) -> Self {
        Self { exit_status, arrives: BTreeMap::new(), ..self }
    }

    /// Says which files arrive.
    pub(super) fn arrives(self, arrives: BTreeMap<&'static str, Bytes>) -> Self {
        Self { arrives, ..self }
    }

    /// Says that the command ends with this exit status although files arrive.
    pub(super) fn status(self, exit_status: u8) -> Self {
        Self { exit_status, ..self }
    }

    /// Says that the messages name these mirrors: `a` is the first, `b` the second.
    pub(super) fn names(self, named: &'static [&'static str]) -> Self {
        Self { named, ..self }
    }

    /// Says that the messages may name these mirrors, if they took part.
    pub(super) fn may_name(self, may_name: &'static [&'static str]) -> Self {
        Self { may_name, ..self }
    }

    /// Limits the bytes that arrive, in hundredths of the content.
    pub(super) fn fetches(self, percent: u64) -> Self {
        Self { percent, ..self }
    }

    /// Limits the time that the last run takes.
    pub(super) fn within(self, seconds: u64) -> Self {
        Self { within: Span::from_secs(seconds), ..self }
    }

    /// Sets the name of the file in its URL.
    pub(super) fn called(self, called: &'static str) -> Self {
        Self { called, ..self }
    }

    /// Says that the file is read in order.
    pub(super) fn in_order(self) -> Self {
        Self { in_order: true, ..self }
    }

    /// Returns the row's line of the manual.
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
