//! A download as the queue knows it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::gid::Gid;

/// The options that were given for a job, by their names. All others have their defaults.
pub type Options = BTreeMap<String, String>;

/// A download: what is fetched, how, and how far it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its identifier.
    pub gid: Gid,
    /// What is fetched.
    pub source: Source,
    /// The options that were given.
    pub options: Options,
    /// Its state.
    pub status: Status,
    /// Its place among the jobs of the same kind: a greater number is later.
    pub place: i64,
    /// What earlier runs found out.
    pub known: Known,
    /// Why it has ended; `None` while it has not.
    pub end: Option<End>,
}

/// What a job fetches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// One file that has all of these URIs.
    Uris(Vec<String>),
    /// All files of a Metalink, which is in this file.
    Metalink(String),
}

/// The state of a job. The names are aria2's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It is being fetched.
    Active,
    /// It is fetched when its turn comes.
    Waiting,
    /// It has a turn once it is not paused any more.
    Paused,
    /// All of it has arrived.
    Complete,
    /// It cannot be fetched.
    Error,
    /// A request has removed it.
    Removed,
}

impl Status {
    /// Returns the name of the state in answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Waiting => "waiting",
            Self::Paused => "paused",
            Self::Complete => "complete",
            Self::Error => "error",
            Self::Removed => "removed",
        }
    }

    /// Whether the job has ended.
    #[must_use]
    pub const fn is_result(self) -> bool {
        matches!(self, Self::Complete | Self::Error | Self::Removed)
    }
}

/// What the last run of a job found out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// The length of the whole, in bytes; 0 while it is not known.
    pub total_bytes: u64,
    /// The bytes that have arrived.
    pub done_bytes: u64,
    /// The path of the file; empty while it is not known.
    pub path: String,
}

/// Why a job has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// aria2's exit code: 0 if the file is complete.
    pub code: u8,
    /// A sentence about the error; empty if there is none.
    pub message: String,
}

impl End {
    /// aria2's code for an error that has no other.
    pub const UNKNOWN: u8 = 1;
    /// aria2's code for a resource that was not found.
    pub const NOT_FOUND: u8 = 3;
    /// aria2's code for a problem of the network.
    pub const NETWORK: u8 = 6;
    /// aria2's code for a disk that is full.
    pub const DISK_FULL: u8 = 9;
    /// aria2's code for a file that is there already.
    pub const FILE_EXISTS: u8 = 13;
    /// aria2's code for a file that cannot be read or written.
    pub const FILE: u8 = 17;
    /// aria2's code for a server that wants a name and a password.
    pub const REFUSED: u8 = 24;
    /// aria2's code for an option that makes no sense.
    pub const OPTION: u8 = 28;
    /// aria2's code for a download that was removed.
    pub const REMOVED: u8 = 31;
    /// aria2's code for a wrong hash.
    pub const CHECKSUM: u8 = 32;

    /// Returns the end of a job that is complete.
    #[must_use]
    pub const fn complete() -> Self {
        Self { code: 0, message: String::new() }
    }

    /// Returns the end of a job that was removed.
    #[must_use]
    pub const fn removed() -> Self {
        Self { code: Self::REMOVED, message: String::new() }
    }
}
