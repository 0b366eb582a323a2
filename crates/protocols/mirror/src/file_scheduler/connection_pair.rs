//! Two connections between the same two ends, and the number of answers after which their server ends them.

use crate::fetch_id::ConnectionId;

/// The assumed limit of answers per TCP connection until it is known: nginx's default.
pub const KEEPALIVE_REQUESTS_DEFAULT: u64 = 1_000;

/// The number of answers after which a server ends its TCP connections, as far as is known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ConnectionLimit {
    /// The limit; `None` if it is not known.
    after: Option<u64>,
    /// The highest number of an answer that the server did not announce as the last.
    not_after: u64,
    /// The number of answers of the last TCP connection that ended without notice.
    unsaid: Option<u64>,
}

impl ConnectionLimit {
    /// Returns the number of answers to expect of a TCP connection.
    pub(super) fn max_answers(&self) -> u64 {
        match self.after {
            Some(answers) => answers,
            None if self.not_after < KEEPALIVE_REQUESTS_DEFAULT => KEEPALIVE_REQUESTS_DEFAULT,
            None => u64::MAX,
        }
    }

    /// Records that the `nth` answer of a TCP connection has begun; `last` if the server announced it as the
    /// last.
    pub(super) fn on_head(&mut self, nth: u64, last: bool) {
        if last {
            self.after = Some(nth);
            return;
        }
        self.not_after = self.not_after.max(nth);
        // An answer beyond the limit disproves the limit.
        self.after.take_if(|after| *after < nth);
    }

    /// Records that a TCP connection has ended without notice after `answers` answers. One such end is
    /// chance; two in a row after the same number of answers show a limit.
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
    /// Whether a handover to the other connection is under way.
    pub(super) handing_over: bool,
    /// The bytes that both connections together may have outstanding during a handover. After it, the
    /// connection that has the turn may have at least as many.
    pub(super) both_bytes: u64,
    /// The sum of both connections' rates when the turn changed last, in bytes per second.
    pub(super) rate: u64,
}

impl ConnectionPair {
    pub(super) const fn new(first: ConnectionId) -> Self {
        Self { first, second: None, turn: first, handing_over: false, both_bytes: 0, rate: 0 }
    }

    /// Adds the second connection. Returns `false` if there is one already.
    pub(super) fn add(&mut self, second: ConnectionId) -> bool {
        self.second.is_none() && self.second.replace(second).is_none()
    }

    pub(super) fn other(&self, connection: ConnectionId) -> Option<ConnectionId> {
        self.second.map(|second| if connection == second { self.first } else { second })
    }
}
