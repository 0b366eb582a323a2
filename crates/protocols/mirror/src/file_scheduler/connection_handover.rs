//! Handover between the two connections of a pair: when one ends, when the next begins, and how many bytes
//! each may have outstanding.
//!
//! One connection of the pair has the *turn* and gets all requests. Shortly before its server ends it, the
//! other one begins and becomes its *successor*. TCP lets a server send little on a new TCP connection at
//! first, and twice as much in each further round trip. The connection that has the turn gives up as many
//! bytes as the successor has in flight, so that both together just fill the link. If they queued more, the
//! successor would leave slow start early (HyStart, RFC 9406), or a full queue would lose packets. When the
//! connection with the turn has ended, the successor gets the turn.

use anabranch_algo::{Rate, Time};

use super::FileScheduler;
use super::connection::WINDOW_MIN_BYTES;
use crate::fetch_id::ConnectionId;

/// The bytes that a server sends at once on a new TCP connection (RFC 6928 section 2).
const FIRST_FLIGHT_BYTES: u64 = 14_600;
/// The assumed round trips until a new TCP connection delivers files one after the other: for TCP, for TLS,
/// and for the first answer.
const CONNECT_TRIPS: u32 = 3;
/// Further round trips that a successor is given to reach its full rate.
const SPARE_TRIPS: u32 = 2;

impl FileScheduler {
    /// Records that an answer has begun, and learns from it after how many answers the server ends
    /// connections.
    pub(super) fn on_head(&mut self, now: Time, p: ConnectionId, n: usize, nth: u64, last: bool) {
        let connection = &mut self.connections[p];
        connection.on_data(now, n, 0);
        let limit = &mut self.servers[usize::from(connection.server)].limit;
        if let Some(answers) = connection.on_head(n, nth, last).filter(|answers| *answers > 0) {
            limit.unsaid(answers);
        }
        limit.on_head(nth, last);
    }

    /// Returns how many more requests the current TCP connection takes, as far as is known.
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

    /// Whether a connection has answered all the requests that its TCP connection takes.
    fn is_over(&self, p: ConnectionId) -> bool {
        self.connections[p].requests.is_empty()
            && (self.connections[p].last || self.remaining_requests(p) == 0)
    }

    /// Decides which connection of the pair `number` has the turn, and whether its successor has to begin.
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
            let rate = connection.delivery.rate + self.connections[other].delivery.rate;
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
        let Some(mean_bytes) = connection.delivery.mean_bytes().or(successor.delivery.mean_bytes()) else {
            return;
        };
        if pair.handing_over || !self.ends_soon(turn, mean_bytes, pair.rate) {
            return;
        }
        let full = connection.window().min(mean_bytes.saturating_mul(self.outstanding_max as u64));
        let both_bytes = full.max(connection.asked_bytes + successor.asked_bytes).max(2 * WINDOW_MIN_BYTES);
        let pair = &mut self.pairs[number];
        (pair.handing_over, pair.both_bytes) = (true, both_bytes);
    }

    /// Whether a connection will end before a successor that begins now has reached its full rate. False if
    /// the connection can take all files that are still to be requested from its server.
    fn ends_soon(&self, p: ConnectionId, mean_bytes: u64, rate: u64) -> bool {
        let (connection, takes) = (&self.connections[p], self.remaining_requests(p));
        if takes >= self.servers[usize::from(connection.server)].idle.len() as u64 {
            return false;
        }
        let rate = Rate::from_bytes(connection.delivery.rate.max(rate).max(1));
        let trip_bytes = rate.bytes_in(connection.delivery.round_trip());
        let doublings = (trip_bytes / FIRST_FLIGHT_BYTES).checked_ilog2().map_or(0, |log| log + 1);
        let trips = u64::from(CONNECT_TRIPS + doublings + SPARE_TRIPS);
        rate.time_for(takes.saturating_mul(mean_bytes).saturating_add(connection.asked_bytes))
            < connection.delivery.round_trip().times(trips)
    }

    /// Whether a connection may now get a request for one more file, of `bytes` bytes.
    pub(super) fn may_ask(&self, now: Time, p: ConnectionId, bytes: u64) -> bool {
        let (connection, pair) = (&self.connections[p], &self.pairs[self.connections[p].pair]);
        let has_turn = pair.turn == p;
        if !connection.is_ready(now) || !(has_turn || pair.handing_over) {
            return false;
        }
        if connection.requests.is_empty() {
            return true;
        }
        if !connection.may_pipeline(self.outstanding_max) || self.remaining_requests(p) == 0 {
            return false;
        }
        let Some(other) = pair.other(p).filter(|_| pair.handing_over) else {
            // Shortly after the turn has changed, the window is too small, because the measured rate still
            // grows.
            return connection.asked_bytes + bytes <= connection.window().max(pair.both_bytes);
        };
        let beside = &self.connections[other];
        if has_turn {
            // The successor gets the file if it may have it.
            return connection.asked_bytes + beside.in_flight_bytes() + bytes <= pair.both_bytes
                && !self.may_ask(now, other, bytes);
        }
        // The successor gets most of the bytes until it is fast enough, and then few, so that the other
        // connection reaches its end first. When the other connection takes no more requests, the successor
        // gets the rest.
        let share = if connection.delivery.most_in_a_trip >= pair.both_bytes / 2 { 1 } else { 3 };
        let most = match self.remaining_requests(other) {
            0 => pair.both_bytes.saturating_sub(beside.asked_bytes),
            _ => pair.both_bytes / 4 * share,
        };
        !connection.fresh && connection.asked_bytes + bytes <= most
    }

    /// Whether a connection is idle and may request second copies of files that other connections have
    /// outstanding. This holds only if the connection has no partner in its pair, or the partner is slow, or
    /// the partner has no requests and this connection has the turn.
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
