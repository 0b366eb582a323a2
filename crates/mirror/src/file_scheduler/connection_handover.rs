//! Handing over between two connections to a server: when one ends, when the next begins, what each is asked.
//!
//! One of the pair has the turn and brings everything. Before it ends, the other begins and
//! becomes its *successor*: TCP lets a server send little on a new TCP connection, and twice as much each
//! round trip. What the successor has under way the other is asked less, so that both together fill the link
//! and no more: a queue that grows would end the successor's growth (HyStart, RFC 9406), and one that is full
//! would lose what both wait for. When the first is at its end, the successor has the turn.

use algo::{Rate, Time};

use super::FileScheduler;
use super::connection::{OUTSTANDING_MAX, WINDOW_MIN_BYTES};
use crate::range_scheduler::ConnectionId;

/// After so many answers a server may end a connection, as long as nobody knows better: what nginx does.
pub const KEEPALIVE_REQUESTS_DEFAULT: u64 = 1_000;
/// What a server sends at once on a new TCP connection, bytes: RFC 6928 section 2.
const FIRST_FLIGHT_BYTES: u64 = 14_600;
/// Round trips until a new TCP connection brings files one behind the other: TCP, TLS, the first answer.
const CONNECT_TRIPS: u32 = 3;
/// Round trips more that a successor has to become fast.
const SPARE_TRIPS: u32 = 2;

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
    fn max_answers(&self) -> u64 {
        match self.after {
            Some(answers) => answers,
            None if self.not_after < KEEPALIVE_REQUESTS_DEFAULT => KEEPALIVE_REQUESTS_DEFAULT,
            None => u64::MAX,
        }
    }

    /// An answer has begun.
    fn on_head(&mut self, nth: u64, last: bool) {
        if last {
            self.after = Some(nth);
            return;
        }
        self.not_after = self.not_after.max(nth);
        // Where the end comes unsaid, the last answer looks like any other.
        self.after.take_if(|after| *after < nth);
    }

    /// A connection has ended without a word. That may be chance; twice after the same answer it is not.
    fn unsaid(&mut self, answers: u64) {
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
    turn: ConnectionId,
    /// Whether the other one is its successor.
    handing_over: bool,
    /// What both may be asked for then, and the successor after that, bytes.
    both_bytes: u64,
    /// What both brought when the turn changed, bytes a second.
    rate: u64,
}

impl ConnectionPair {
    pub(super) const fn new(first: ConnectionId) -> Self {
        Self { first, second: None, turn: first, handing_over: false, both_bytes: 0, rate: 0 }
    }

    /// Adds the second. `false`: there is one.
    pub(super) fn add(&mut self, second: ConnectionId) -> bool {
        self.second.is_none() && self.second.replace(second).is_none()
    }

    fn other(&self, connection: ConnectionId) -> Option<ConnectionId> {
        self.second.map(|second| if connection == second { self.first } else { second })
    }
}

impl FileScheduler {
    /// An answer has begun.
    pub(super) fn on_head(&mut self, now: Time, p: ConnectionId, n: usize, nth: u64, last: bool) {
        let connection = &mut self.connections[p];
        connection.on_data(now, n, 0);
        let limit = &mut self.servers[usize::from(connection.server)].limit;
        if let Some(answers) = connection.on_head(n, nth, last).filter(|answers| *answers > 0) {
            limit.unsaid(answers);
        }
        limit.on_head(nth, last);
    }

    /// How many requests more a connection takes, as far as is known.
    fn remaining_requests(&self, p: ConnectionId) -> u64 {
        let connection = &self.connections[p];
        if connection.is_at_its_end() {
            return 0;
        }
        self.servers[usize::from(connection.server)]
            .limit
            .max_answers()
            .saturating_sub(connection.last_request_number())
    }

    /// Whether all that a connection takes has been answered.
    fn is_over(&self, p: ConnectionId) -> bool {
        self.connections[p].requests.is_empty()
            && (self.connections[p].last || self.remaining_requests(p) == 0)
    }

    /// Decides whose turn it is and whether a successor is to begin.
    pub(super) fn hand_over(&mut self, now: Time, number: usize) {
        let turn = self.pairs[number].turn;
        let Some(other) = self.pairs[number].other(turn) else { return };
        if !self.connections[other].is_ready(now) {
            self.pairs[number].handing_over = false;
            return;
        }
        for one in [turn, other] {
            self.connections[one].fresh |= self.is_over(one);
        }
        let connection = &self.connections[turn];
        if self.is_over(turn) || !connection.is_ready(now) || connection.is_slow(now) {
            let rate = connection.rate + self.connections[other].rate;
            self.connections[turn].fresh = true;
            let pair = &mut self.pairs[number];
            (pair.turn, pair.handing_over, pair.rate) = (other, false, rate);
        }
        let pair = &self.pairs[number];
        let turn = pair.turn;
        let Some(other) = pair.other(turn).filter(|other| self.connections[*other].is_ready(now)) else {
            return;
        };
        let (connection, successor) = (&self.connections[turn], &self.connections[other]);
        let Some(mean_bytes) = connection.mean_bytes().or(successor.mean_bytes()) else { return };
        if pair.handing_over || !self.ends_soon(turn, mean_bytes, pair.rate) {
            return;
        }
        let full = connection.window().min(mean_bytes.saturating_mul(OUTSTANDING_MAX as u64));
        let both_bytes = full.max(connection.asked_bytes + successor.asked_bytes).max(2 * WINDOW_MIN_BYTES);
        let pair = &mut self.pairs[number];
        (pair.handing_over, pair.both_bytes) = (true, both_bytes);
    }

    /// Whether a connection ends before a successor that begins now is fast, and before all is asked.
    fn ends_soon(&self, p: ConnectionId, mean_bytes: u64, rate: u64) -> bool {
        let (connection, takes) = (&self.connections[p], self.remaining_requests(p));
        if takes >= self.servers[usize::from(connection.server)].idle.len() as u64 {
            return false;
        }
        let rate = Rate::from_bytes(connection.rate.max(rate).max(1));
        let trip_bytes = rate.bytes_in(connection.round_trip());
        let doublings = (trip_bytes / FIRST_FLIGHT_BYTES).checked_ilog2().map_or(0, |log| log + 1);
        let trips = u64::from(CONNECT_TRIPS + doublings + SPARE_TRIPS);
        rate.time_for(takes.saturating_mul(mean_bytes).saturating_add(connection.asked_bytes))
            < connection.round_trip().times(trips)
    }

    /// Whether a connection may be asked for one more file, of so many bytes, now.
    pub(super) fn may_ask(&self, now: Time, p: ConnectionId, bytes: u64) -> bool {
        let (connection, pair) = (&self.connections[p], &self.pairs[self.connections[p].pair]);
        let has_turn = pair.turn == p;
        if !connection.is_ready(now) || !(has_turn || pair.handing_over) {
            return false;
        }
        if connection.requests.is_empty() {
            return true;
        }
        if !connection.may_pipeline() || self.remaining_requests(p) == 0 {
            return false;
        }
        let Some(other) = pair.other(p).filter(|_| pair.handing_over) else {
            // When the turn has just changed, what it brought is not yet what it can.
            return connection.asked_bytes + bytes <= connection.window().max(pair.both_bytes);
        };
        let beside = &self.connections[other];
        if has_turn {
            // The successor comes first.
            return connection.asked_bytes + beside.in_flight_bytes() + bytes <= pair.both_bytes
                && !self.may_ask(now, other, bytes);
        }
        // Most of it, until it is as fast as it has to be; then little, so that the other comes to its end
        // before it; what that is not asked any more, too.
        let share = if connection.is_fast(pair.both_bytes / 2) { 1 } else { 3 };
        let most = match self.remaining_requests(other) {
            0 => pair.both_bytes.saturating_sub(beside.asked_bytes),
            _ => pair.both_bytes / 4 * share,
        };
        !connection.fresh && connection.asked_bytes + bytes <= most
    }

    /// Whether a connection has nothing to do and may do what another has been asked for: not what the other
    /// of its pair has, unless nothing comes there.
    pub(super) fn may_steal(&self, now: Time, p: ConnectionId) -> bool {
        let (connection, pair) = (&self.connections[p], &self.pairs[self.connections[p].pair]);
        let is_spare = match pair.other(p).map(|other| &self.connections[other]) {
            Some(other) if other.requests.is_empty() => pair.turn == p,
            Some(other) => other.is_slow(now),
            None => true,
        };
        is_spare && connection.is_free(now)
    }
}
