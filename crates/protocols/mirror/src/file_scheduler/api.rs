//! The vocabulary of the file scheduler: its files, inputs, commands, events and reports.

use anabranch_algo::{Span, Time};

use crate::fetch_id::{ConnectionId, FetchId};
use crate::range_scheduler::State;

/// A server: an origin (RFC 6454) that has some of the files.
pub type ServerId = u8;
/// A file, as its index among the files that the scheduler was created with.
pub type FileId = usize;

/// A file to fetch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileSpec {
    /// Its length in bytes.
    pub bytes: u64,
    /// The servers of the file's URLs, the best first. A server with two URLs of the file is listed twice.
    pub servers: Vec<ServerId>,
}

/// What the caller reports to the scheduler.
#[derive(Clone, Copy, Debug)]
pub enum Input {
    /// The answer to a request has begun.
    Head {
        /// The request.
        fetch: FetchId,
        /// The number of this answer on its TCP connection, counted from 1.
        nth: u64,
        /// Whether the server has announced that this answer is the last on its TCP connection.
        last: bool,
    },
    /// More bytes of an answer's body have arrived.
    Bytes {
        /// The request.
        fetch: FetchId,
        /// The number of bytes.
        bytes: u64,
    },
    /// A whole file has arrived.
    Done {
        /// The request.
        fetch: FetchId,
        /// Whether the bytes are the file's. If not, and the request was alone on its connection, this URL is
        /// not used again. If it was not alone, the file is requested again, alone.
        valid: bool,
    },
    /// A request has failed, before or after its head.
    Failed {
        /// The request.
        fetch: FetchId,
        /// The kind of failure.
        failure: Failure,
    },
    /// The kernel has measured a connection.
    Sample {
        /// The connection.
        connection: ConnectionId,
        /// The smoothed round-trip time.
        rtt: Span,
    },
    /// A connection cannot be used any more.
    Down {
        /// The connection.
        connection: ConnectionId,
    },
    /// The caller did not read from any connection for a while, so silence until now is not the servers'
    /// fault.
    Resumed,
    /// No connection can reach a server.
    Useless {
        /// The server.
        server: ServerId,
    },
}

/// Why a request has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The request may succeed if it is repeated.
    Broken,
    /// The server asks not to get requests for a while.
    Busy {
        /// How long to wait.
        retry: Span,
    },
    /// The server does not have the file at this URL.
    NotFound,
    /// The server will never deliver any file.
    Useless,
}

/// What the caller has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Request a whole file, behind the outstanding requests of the connection.
    Fetch {
        /// The connection to use.
        connection: ConnectionId,
        /// The name of the request, which is never used twice.
        fetch: FetchId,
        /// The file.
        file: FileId,
        /// Which URL of the file to request, as an index into [`FileSpec::servers`].
        url_index: usize,
    },
    /// Cancel a request, and report nothing more about it.
    Cancel {
        /// The request.
        fetch: FetchId,
    },
}

/// What has become of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The file is complete and valid. This is reported once per file.
    Complete {
        /// The file.
        file: FileId,
        /// The request that delivered the file.
        fetch: FetchId,
    },
    /// A server has sent wrong bytes for a file. After [`BAD_FILES_MAX`](super::BAD_FILES_MAX) such files the
    /// server is not used any more.
    BadContent {
        /// The file.
        file: FileId,
        /// The server.
        server: ServerId,
    },
    /// No server can deliver the file. A copy that still arrives is reported as [`Complete`](Self::Complete).
    Lost {
        /// The file.
        file: FileId,
    },
}

/// What has happened on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes of files that this connection delivered first.
    pub bytes: u64,
    /// Bytes of files that another connection had delivered before.
    pub duplicate_bytes: u64,
    /// Bytes of all bodies, including those of incomplete files.
    pub received_bytes: u64,
    /// The number of requests that failed.
    pub failures: u64,
    /// How often nothing arrived for [`UNRESPONSIVE_AFTER`](super::UNRESPONSIVE_AFTER) although requests were
    /// outstanding.
    pub stalls: u64,
}

/// A report of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionReport {
    /// Its server.
    pub server: ServerId,
    /// The state of the connection.
    pub state: State,
    /// Its rate in bytes per second; 0 if not known yet.
    pub rate: u64,
    /// Its smoothed round-trip time; zero if not known yet.
    pub srtt: Span,
    /// The bytes that its outstanding requests may have together.
    pub window_bytes: u64,
    /// The number of its outstanding requests.
    pub outstanding: usize,
    /// The connection gets no request before this time.
    pub blocked_until: Time,
    /// What has happened on the connection.
    pub counters: Counters,
}
