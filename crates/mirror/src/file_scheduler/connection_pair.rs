//! Two connections between the same two ends, and when their server ends connections.

use crate::fetch_id::ConnectionId;

/// After so many answers a server may end a connection, as long as nobody knows better: what nginx does.
pub const KEEPALIVE_REQUESTS_DEFAULT: u64 = 1_000;

/// When a server ends connections.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ConnectionLimit {
    /// After so many answers.
    after: Option<u64>,
    /// It did not after so many.
    not_after: u64,
    /// After so many one ended and the server had not said so.
    unsaid: Option<u64>,
}

impl ConnectionLimit {
    /// The most answers of a connection that are counted on.
    pub(super) fn max_answers(&self) -> u64 {
        match self.after {
            Some(answers) => answers,
            None if self.not_after < KEEPALIVE_REQUESTS_DEFAULT => KEEPALIVE_REQUESTS_DEFAULT,
            None => u64::MAX,
        }
    }

    /// An answer has begun.
    pub(super) fn on_head(&mut self, nth: u64, last: bool) {
        if last {
            self.after = Some(nth);
            return;
        }
        self.not_after = self.not_after.max(nth);
        // Where the end comes unsaid, the last answer looks like any other.
        self.after.take_if(|after| *after < nth);
    }

    /// A connection has ended without a word. That may be chance; twice after the same answer it is not.
    pub(super) fn unsaid(&mut self, answers: u64) {
        if self.unsaid.replace(answers) == Some(answers) {
            self.after = Some(answers);
        }
    }
}

/// The connections between the same two ends: one, or two.
#[derive(Debug)]
pub(super) struct ConnectionPair {
    first: ConnectionId,
    second: Option<ConnectionId>,
    /// Whose turn it is.
    pub(super) turn: ConnectionId,
    /// Whether the other one is its successor.
    pub(super) handing_over: bool,
    /// What both may be asked for then, and the successor after that, bytes.
    pub(super) both_bytes: u64,
    /// What both brought when the turn changed, bytes a second.
    pub(super) rate: u64,
}

impl ConnectionPair {
    pub(super) const fn new(first: ConnectionId) -> Self {
        Self { first, second: None, turn: first, handing_over: false, both_bytes: 0, rate: 0 }
    }

    /// Adds the second. `false`: there is one.
    pub(super) fn add(&mut self, second: ConnectionId) -> bool {
        self.second.is_none() && self.second.replace(second).is_none()
    }

    pub(super) fn other(&self, connection: ConnectionId) -> Option<ConnectionId> {
        self.second.map(|second| if connection == second { self.first } else { second })
    }
}
