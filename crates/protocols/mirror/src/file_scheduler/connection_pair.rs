//! Two connections between the same two ends, and the limit after which their server ends connections.

use crate::fetch_id::ConnectionId;

/// The assumed limit of answers per connection, until it is known: nginx's.
pub const KEEPALIVE_REQUESTS_DEFAULT: u64 = 1_000;

/// The number of answers after which a server ends its connections, as far as is known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ConnectionLimit {
    /// It ends them after so many answers.
    after: Option<u64>,
    /// The most answers that a connection was seen to have.
    not_after: u64,
    /// The answers of the last connection that ended without notice.
    unsaid: Option<u64>,
}

impl ConnectionLimit {
    /// The number of answers to expect of a connection.
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
        // An answer beyond the limit disproves it.
        self.after.take_if(|after| *after < nth);
    }

    /// A connection has ended without notice. Once is chance; twice after the same number of answers is a
    /// limit.
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
    /// The connection that has the turn.
    pub(super) turn: ConnectionId,
    /// Whether a handover to the other one is under way.
    pub(super) handing_over: bool,
    /// Bytes that both together may be asked for during a handover, and the successor after it.
    pub(super) both_bytes: u64,
    /// The rate of both when the turn changed, bytes a second.
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
