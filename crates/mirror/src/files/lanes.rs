//! The lanes of a way: when its server ends a connection, when the next one begins, and what each is asked.
//!
//! One lane has the turn and brings everything. Before its connection ends, the other begins one and
//! becomes its *successor*: TCP lets a server send little on a new connection, and twice as much each round
//! trip. What the successor has under way the other is asked less, so that both together fill the link and
//! no more: a queue that grows would end the successor's growth (HyStart, RFC 9406), and one that is full
//! would lose what both wait for. When the first is at its end, the successor has the turn.

use algo::{Rate, Time};

use super::Files;
use super::way::{OUTSTANDING_MAX, WINDOW_MIN_BYTES};
use crate::plan::WayId;

/// After so many answers a server may end a connection, as long as nobody knows better: what nginx does.
pub const GUESSED_ANSWERS: u64 = 1_000;
/// What a server sends at once on a new connection, bytes: RFC 6928 section 2.
const FIRST_FLIGHT_BYTES: u64 = 14_600;
/// Round trips until a new connection brings files one behind the other: TCP, TLS, the first answer.
const CONNECT_TRIPS: u32 = 3;
/// Round trips more that a successor has to become fast.
const SPARE_TRIPS: u32 = 2;

/// When a server ends connections.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ends {
    /// After so many answers.
    after: Option<u64>,
    /// It did not after so many.
    not_after: u64,
    /// After so many one ended and the server had not said so.
    unsaid: Option<u64>,
}

impl Ends {
    /// The most answers of a connection that are counted on.
    fn most(&self) -> u64 {
        match self.after {
            Some(answers) => answers,
            None if self.not_after < GUESSED_ANSWERS => GUESSED_ANSWERS,
            None => u64::MAX,
        }
    }

    /// An answer has begun.
    fn begun(&mut self, nth: u64, last: bool) {
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

/// The connections between the same two ends: one lane, or two.
#[derive(Debug)]
pub(super) struct Lanes {
    first: WayId,
    second: Option<WayId>,
    /// Whose turn it is.
    turn: WayId,
    /// Whether the other one is its successor.
    handing_over: bool,
    /// What both may be asked for then, and the successor after that, bytes.
    both_bytes: u64,
    /// What both brought when the turn changed, bytes a second.
    rate: u64,
}

impl Lanes {
    pub(super) const fn new(first: WayId) -> Self {
        Self { first, second: None, turn: first, handing_over: false, both_bytes: 0, rate: 0 }
    }

    /// Adds a second lane. `false`: there is one.
    pub(super) fn add(&mut self, second: WayId) -> bool {
        self.second.is_none() && self.second.replace(second).is_none()
    }

    fn other(&self, way: WayId) -> Option<WayId> {
        self.second.map(|second| if way == second { self.first } else { second })
    }
}

impl Files {
    /// An answer has begun.
    pub(super) fn begun(&mut self, now: Time, p: WayId, n: usize, nth: u64, last: bool) {
        let way = &mut self.ways[p];
        way.heard(now, n, 0);
        let ends = &mut self.servers[usize::from(way.server)].ends;
        if let Some(answers) = way.begun(n, nth, last).filter(|answers| *answers > 0) {
            ends.unsaid(answers);
        }
        ends.begun(nth, last);
    }

    /// How many requests more a way's connection takes, as far as is known.
    fn takes(&self, p: WayId) -> u64 {
        let way = &self.ways[p];
        if way.is_at_its_end() {
            return 0;
        }
        self.servers[usize::from(way.server)].ends.most().saturating_sub(way.newest())
    }

    /// Whether all that a way's connection takes has been answered.
    fn is_over(&self, p: WayId) -> bool {
        self.ways[p].requests.is_empty() && (self.ways[p].last || self.takes(p) == 0)
    }

    /// Decides whose turn it is and whether a successor is to begin.
    pub(super) fn take_turns(&mut self, now: Time, lanes: usize) {
        let turn = self.lanes[lanes].turn;
        let Some(other) = self.lanes[lanes].other(turn) else { return };
        if !self.ways[other].is_ready(now) {
            self.lanes[lanes].handing_over = false;
            return;
        }
        for lane in [turn, other] {
            self.ways[lane].fresh |= self.is_over(lane);
        }
        let way = &self.ways[turn];
        if self.is_over(turn) || !way.is_ready(now) || way.is_quiet(now) {
            let rate = way.rate + self.ways[other].rate;
            self.ways[turn].fresh = true;
            let pair = &mut self.lanes[lanes];
            (pair.turn, pair.handing_over, pair.rate) = (other, false, rate);
        }
        let pair = &self.lanes[lanes];
        let turn = pair.turn;
        let Some(other) = pair.other(turn).filter(|other| self.ways[*other].is_ready(now)) else { return };
        let (way, successor) = (&self.ways[turn], &self.ways[other]);
        let Some(mean_bytes) = way.mean_bytes().or(successor.mean_bytes()) else { return };
        if pair.handing_over || !self.ends_soon(turn, mean_bytes, pair.rate) {
            return;
        }
        let full = way.window().min(mean_bytes.saturating_mul(OUTSTANDING_MAX as u64));
        let both_bytes = full.max(way.asked_bytes + successor.asked_bytes).max(2 * WINDOW_MIN_BYTES);
        let pair = &mut self.lanes[lanes];
        (pair.handing_over, pair.both_bytes) = (true, both_bytes);
    }

    /// Whether a way's connection ends before a successor that begins now is fast, and before all is asked.
    fn ends_soon(&self, p: WayId, mean_bytes: u64, rate: u64) -> bool {
        let (way, takes) = (&self.ways[p], self.takes(p));
        if takes >= self.servers[usize::from(way.server)].idle.len() as u64 {
            return false;
        }
        let rate = Rate::from_bytes(way.rate.max(rate).max(1));
        let trip_bytes = rate.bytes_in(way.trip());
        let doublings = (trip_bytes / FIRST_FLIGHT_BYTES).checked_ilog2().map_or(0, |log| log + 1);
        let trips = u64::from(CONNECT_TRIPS + doublings + SPARE_TRIPS);
        rate.time_for(takes.saturating_mul(mean_bytes).saturating_add(way.asked_bytes))
            < way.trip().times(trips)
    }

    /// Whether a way may be asked for one more file, of so many bytes, now.
    pub(super) fn may_ask(&self, now: Time, p: WayId, bytes: u64) -> bool {
        let (way, pair) = (&self.ways[p], &self.lanes[self.ways[p].lanes]);
        let has_turn = pair.turn == p;
        if !way.is_ready(now) || !(has_turn || pair.handing_over) {
            return false;
        }
        if way.requests.is_empty() {
            return true;
        }
        if !way.is_deep() || self.takes(p) == 0 {
            return false;
        }
        let Some(other) = pair.other(p).filter(|_| pair.handing_over) else {
            // When the turn has just changed, what it brought is not yet what it can.
            return way.asked_bytes + bytes <= way.window().max(pair.both_bytes);
        };
        let beside = &self.ways[other];
        if has_turn {
            // The successor comes first.
            return way.asked_bytes + beside.flying() + bytes <= pair.both_bytes
                && !self.may_ask(now, other, bytes);
        }
        // Most of it, until it is as fast as it has to be; then little, so that the other comes to its end
        // before it; what that is not asked any more, too.
        let share = if way.is_fast(pair.both_bytes / 2) { 1 } else { 3 };
        let most = match self.takes(other) {
            0 => pair.both_bytes.saturating_sub(beside.asked_bytes),
            _ => pair.both_bytes / 4 * share,
        };
        !way.fresh && way.asked_bytes + bytes <= most
    }

    /// Whether a way has nothing to do and may do what another has been asked for: not what its other lane
    /// has, unless nothing comes there.
    pub(super) fn may_help(&self, now: Time, p: WayId) -> bool {
        let (way, pair) = (&self.ways[p], &self.lanes[self.ways[p].lanes]);
        let is_spare = match pair.other(p).map(|other| &self.ways[other]) {
            Some(other) if other.requests.is_empty() => pair.turn == p,
            Some(other) => other.is_quiet(now),
            None => true,
        };
        is_spare && way.is_free(now)
    }
}
