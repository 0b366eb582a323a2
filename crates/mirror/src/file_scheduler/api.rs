//! What is said to the machine and what it says.

use algo::{Span, Time};

use crate::range_scheduler::{ConnectionId, FetchId, State};

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

/// What the world tells.
#[derive(Clone, Copy, Debug)]
pub enum Input {
    /// An answer has begun.
    Head {
        /// Which request.
        fetch: FetchId,
        /// Which answer of its connection it is, from 1.
        nth: u64,
        /// The server has said that it is the connection's last.
        last: bool,
    },
    /// More of an answer has come.
    Bytes {
        /// Which request.
        fetch: FetchId,
        /// How many.
        bytes: u64,
    },
    /// A whole file has come.
    Done {
        /// Which request.
        fetch: FetchId,
        /// Whether it is what it should be; if not, its server is not asked for it again.
        valid: bool,
    },
    /// There is no answer, or no more of it.
    Failed {
        /// Which request.
        fetch: FetchId,
        /// What to make of it.
        failure: Failure,
    },
    /// What the kernel says of a connection.
    Sample {
        /// Which connection.
        connection: ConnectionId,
        /// Its round trip.
        rtt: Span,
    },
    /// A connection cannot be used any more.
    Down {
        /// Which connection.
        connection: ConnectionId,
    },
    /// The world has not taken what came for a while: what seems silence was its own.
    Resumed,
    /// No connection leads to a server.
    Useless {
        /// Which server.
        server: ServerId,
    },
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Something that may work another time.
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
        /// Which file.
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
        /// Which file.
        file: FileId,
        /// The request that brought it.
        fetch: FetchId,
    },
    /// A server has it with other bytes. If that was once too often, the server is closed.
    BadContent {
        /// Which file.
        file: FileId,
        /// Which server.
        server: ServerId,
    },
    /// Nobody has it.
    Lost {
        /// Which file.
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
    /// Bytes that have come at all, those of files that did not come whole among them.
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
    /// What it delivers, bytes a second; 0 while that is unknown.
    pub rate: u64,
    /// Its round trip; zero while that is unknown.
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
