//! The vocabulary of the file scheduler: its files, inputs, commands, events and reports.

use anabranch_algo::{Span, Time};

use crate::fetch_id::{ConnectionId, FetchId};
use crate::range_scheduler::State;

/// A server: an origin (RFC 6454) that has some of the files.
pub type ServerId = u8;
/// A file, by its place among those that are wanted.
pub type FileId = usize;

/// A file that is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileSpec {
    /// Its length.
    pub bytes: u64,
    /// The servers of its URLs, the best first. One that has two URLs of it is there twice.
    pub servers: Vec<ServerId>,
}

/// What the world reports to the scheduler.
#[derive(Clone, Copy, Debug)]
pub enum Input {
    /// An answer has begun.
    Head {
        /// The request.
        fetch: FetchId,
        /// Which answer of its connection it is, from 1.
        nth: u64,
        /// The server has said that it is the connection's last.
        last: bool,
    },
    /// More of an answer has come.
    Bytes {
        /// The request.
        fetch: FetchId,
        /// How many.
        bytes: u64,
    },
    /// A whole file has come.
    Done {
        /// The request.
        fetch: FetchId,
        /// Whether it is what it should be; if not, its server is not asked for it again.
        valid: bool,
    },
    /// The request has failed, before or after its head.
    Failed {
        /// The request.
        fetch: FetchId,
        /// What kind of failure it is.
        failure: Failure,
    },
    /// What the kernel says of a connection.
    Sample {
        /// The connection.
        connection: ConnectionId,
        /// Its round trip.
        rtt: Span,
    },
    /// A connection cannot be used any more.
    Down {
        /// The connection.
        connection: ConnectionId,
    },
    /// The world has not read for a while: the silence is not the servers' fault.
    Resumed,
    /// No connection leads to a server.
    Useless {
        /// The server.
        server: ServerId,
    },
}

/// Why a request has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It may work another time.
    Broken,
    /// The server wants to be left alone for a while.
    Busy {
        /// How long.
        retry: Span,
    },
    /// The server does not have this file there.
    NotFound,
    /// This server will never bring anything.
    Useless,
}

/// What the world is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Ask for a whole file, behind what the connection has been asked for already.
    Fetch {
        /// Over which connection.
        connection: ConnectionId,
        /// The name of the request; never used twice.
        fetch: FetchId,
        /// The file.
        file: FileId,
        /// Which of its URLs: the place of the server in [`FileSpec::servers`].
        url_index: usize,
    },
    /// Forget a request.
    Cancel {
        /// Which.
        fetch: FetchId,
    },
}

/// What has become of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is here, for the first time.
    Complete {
        /// The file.
        file: FileId,
        /// The request that brought it.
        fetch: FetchId,
    },
    /// A server has wrong bytes of it. After too many of these, the server is closed.
    BadContent {
        /// The file.
        file: FileId,
        /// The server.
        server: ServerId,
    },
    /// No server has it.
    Lost {
        /// The file.
        file: FileId,
    },
}

/// What a connection has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes of files that it brought first.
    pub bytes: u64,
    /// Bytes of files that were here already.
    pub duplicate_bytes: u64,
    /// All bytes that have come, including those of incomplete files.
    pub received_bytes: u64,
    /// Requests that failed.
    pub failures: u64,
    /// How often nothing came for [`UNRESPONSIVE_AFTER`](super::UNRESPONSIVE_AFTER).
    pub stalls: u64,
}

/// A connection, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionReport {
    /// Its server.
    pub server: ServerId,
    /// What it does.
    pub state: State,
    /// Its rate, bytes a second; 0 while unknown.
    pub rate: u64,
    /// Its round trip; zero while unknown.
    pub srtt: Span,
    /// Bytes that it may be asked for at once.
    pub window_bytes: u64,
    /// Files that it has been asked for.
    pub outstanding: usize,
    /// No request before this time.
    pub blocked_until: Time,
    /// What it has done.
    pub counters: Counters,
}
