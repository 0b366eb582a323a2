//! How wide the receive windows of connections to mirrors are.
//!
//! **What they are for.** The sender of a TCP connection has a controller of its own, which obeys losses.
//! So one connection takes its fair part of a queue, and connections through different queues take one each.
//! Only where several connections pass *one* queue they take too much: as many parts as they are. The
//! window that a receiver advertises is what it can do about that, and it is used for nothing else. A loss
//! says nothing here: it may be a radio's, and the sender answers it.
//!
//! **Who measures what.** The kernel counts on each connection (TCP_INFO, every 10 ms while a body flows):
//! bytes, segments, and the round-trip time as the receiver sees it, smoothed over eight samples. So a
//! connection knows its rate, its smallest round trip, and whether there is a *queue*: a round trip that is
//! [`QUEUE_MIN`] and a sixteenth of the smallest one above it. [`Detector`] compares the round trips of all.
//!
//! **Who is together.** Connections *may* share a queue as [`Sharing`] says: as the user says; or those that
//! the detector has together, which begins with the uplinks of this host (one uplink: together), joins those
//! whose delays rise and fall together, and parts the others. They *do* share one, and are a group, while all
//! of them have had a queue within [`QUEUE_KEPT`]. Where no delay rises, nothing is bounded.
//!
//! **The share.** One connection of a group, the leader, is not bounded at all: its sender competes as one
//! TCP does. The others together get a sixteenth ([`FOLLOWERS_PART`]) of the leader's measured rate, and two
//! segments a round trip each at least ([`SEGMENTS_MIN`]). So a group takes what one connection takes, and a
//! little more; and whatever is wrong with all this, it takes no less than one: that is the *floor*. The
//! others go on measuring, and bring what is compared.
//!
//! **Who leads.** The member that would bring most alone. Of the leader that is its rate. Of the others it is
//! the rate when it was not bounded last; before it has led, times (m + 1)/2 if m members were not bounded
//! then: what one flow takes beside one neighbour, where m flows took m parts of m + 1. A leader that brings
//! less than half of that after [`SETTLE`], or nothing for [`SILENCE`], gives way. What a member brought as a
//! leader is remembered, so a group does not go round in circles.
//!
//! **When it was wrong.** A queue that only a connection itself had made goes away once it is bounded. If
//! the leader's queue stays meanwhile, the two have different bottlenecks: that connection is set free, and
//! is not bounded for [`APART`], then twice as long and so on. So that a wrong assumption costs little, a
//! connection that the detector has put into a group is at first on *trial*: its window is seven eighths of
//! what the smallest round trip brings at its rate ([`TRIAL_PART`]), enough to empty a queue of its own. A
//! queue that others make stays.
//!
//! **A scavenger** (`--background`) is bounded always, by LEDBAT++ (`receive_windows/scavenger.rs`).
//!
//! **What it cannot do.** Queues of less than [`QUEUE_MIN`] are not seen. Until there is a queue, and over
//! different uplinks until the detector has seen the delays go together (some 5 s), connections take one part
//! each. What has been advertised is not taken back, so a smaller window holds after some round trips. A
//! route that becomes longer looks like a queue until the smallest round trip is forgotten (60 to 120 s):
//! nobody is bounded below the floor by that.

mod limits;
mod line;
mod scavenger;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use anabranch_algo::control::{Algorithm, Group, MEMBERS_MAX, SubflowStats};
use anabranch_algo::shared_bottleneck::Detector;
use anabranch_algo::{Rate, Span, TcpSample, Time};

use crate::fetch_id::ConnectionId;
pub use limits::{
    APART, FOLLOWERS_PART, QUEUE_KEPT, QUEUE_MIN, QUEUE_PART, SEGMENTS_MIN, SETTLE, SILENCE, TRIAL_PART,
    VANISHED, WINDOW_LIFTED_BYTES,
};
use limits::{APART_DOUBLINGS, STEP};
use line::Line;
use scavenger::Scavenger;

/// With which other connections one may share a bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// With those of the same number.
    Given(u32),
    /// With those that the detector has together with it.
    Detected {
        /// The line by which it leaves this host, if that is known.
        uplink: Option<u32>,
    },
}

/// One connection.
#[derive(Debug)]
struct Connection {
    sharing: Sharing,
    line: Line,
    role: Role,
    /// What it would bring alone by what it brought when nothing bounded it, bytes a second.
    alone: u64,
    /// It has a bottleneck of its own until then; how often that was found.
    apart_until: Time,
    apart_times: u32,
    /// Used if it yields; other senders have a controller of their own.
    control: Algorithm,
    scavenger: Option<Box<Scavenger>>,
    /// The window that was given last; none if it was never bounded.
    window: Option<u64>,
}

impl Connection {
    fn new(sharing: Sharing, control: Algorithm) -> Self {
        Self {
            sharing,
            line: Line::default(),
            role: Role::Free,
            alone: 0,
            apart_until: Time::ZERO,
            apart_times: 0,
            control,
            scavenger: control.yields().then(|| Box::new(Scavenger::new(control))),
            window: None,
        }
    }
}

/// What a connection is in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// It is in no group, and not bounded.
    Free,
    /// It is not bounded, and others are because of it.
    Leader { since: Time },
    /// It is bounded; if it is on trial, to the bytes of `trial` at first.
    Follower { since: Time, trial: Option<u64> },
}

/// The windows of all connections; see the [module](self).
#[derive(Debug, Default)]
pub struct ReceiveWindows {
    connections: Vec<Connection>,
    /// Of the connections that are [detected](Sharing::Detected); others have a place and no samples.
    detector: Detector,
    changed: VecDeque<(ConnectionId, u64)>,
}

impl ReceiveWindows {
    /// Without connections.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a connection, numbered 0, 1, 2 and so on. The controller is used if it
    /// [yields](Algorithm::yields): other senders have their own.
    pub fn add(&mut self, sharing: Sharing, control: Algorithm) {
        let uplink = if let Sharing::Detected { uplink } = sharing { uplink } else { None };
        // There are no more connections than paths of a detector.
        self.detector.add(uplink);
        self.connections.push(Connection::new(sharing, control));
    }

    /// Forgets what was measured of a connection: it may be in another network now.
    pub fn restart(&mut self, connection: ConnectionId) {
        let Some(known) = self.connections.get_mut(connection) else { return };
        *known = Connection { window: known.window, ..Connection::new(known.sharing, known.control) };
        self.detector.reset(connection);
        if self.connections[connection].scavenger.is_none() {
            self.set_free(connection);
        }
    }

    /// Smoothed round-trip time; zero before the first sample.
    #[must_use]
    pub fn srtt(&self, connection: ConnectionId) -> Span {
        self.connections.get(connection).map_or(Span::ZERO, |known| known.line.rtt().srtt())
    }

    /// Packets on their way: of a scavenger its window, of others what arrives in a round trip.
    #[must_use]
    pub fn packets(&self, connection: ConnectionId) -> u32 {
        let Some(known) = self.connections.get(connection) else { return 0 };
        known.scavenger.as_ref().map_or_else(|| known.line.packets(), |scavenger| scavenger.cwnd())
    }

    /// The window that it may advertise, bytes; none if it was never bounded.
    #[must_use]
    pub fn window(&self, connection: ConnectionId) -> Option<u64> {
        self.connections.get(connection)?.window
    }

    /// Connections with the same number may share a bottleneck.
    #[must_use]
    pub fn group(&self, connection: ConnectionId) -> u32 {
        match self.connections.get(connection).map(|known| known.sharing) {
            Some(Sharing::Given(group)) => group,
            Some(Sharing::Detected { .. }) => {
                self.detector.groups().get(connection).copied().unwrap_or_default()
            }
            None => 0,
        }
    }

    /// The next window to set: the connection and bytes. To be asked until there is none.
    pub fn next_window(&mut self) -> Option<(ConnectionId, u64)> {
        self.changed.pop_front()
    }

    /// The kernel has counted this on a connection.
    pub fn sample(&mut self, now: Time, connection: ConnectionId, sample: &TcpSample) {
        let Some(known) = self.connections.get_mut(connection) else { return };
        known.line.sample(now, sample);
        if let Some(mut scavenger) = known.scavenger.take() {
            self.scavenge(now, connection, &mut scavenger, sample);
            self.connections[connection].scavenger = Some(scavenger);
            return;
        }
        if let (Sharing::Detected { .. }, Some(rtt)) = (known.sharing, known.line.latest()) {
            self.detector.rtt_min(connection, known.line.rtt().min());
            self.detector.sample(connection, now, rtt);
            self.detector.tick(now);
        }
        self.share(now, connection);
    }

    /// Moves a scavenger's window.
    fn scavenge(&mut self, now: Time, me: ConnectionId, scavenger: &mut Scavenger, sample: &TcpSample) {
        let (mut members, mut place): (Vec<SubflowStats>, _) = (Vec::new(), 0);
        for other in 0..self.connections.len() {
            if other == me {
                // If there are very many connections, the first ones stand for all.
                place = members.len().min(MEMBERS_MAX - 1);
                members.truncate(place);
                members.push(scavenger.member(self.connections[me].line.rtt().srtt()));
            } else if self.may_share(me, other) && self.connections[other].line.flows(now) {
                let known = &self.connections[other];
                members.extend(known.scavenger.as_ref().map(|one| one.member(known.line.rtt().srtt())));
            }
        }
        let line = &self.connections[me].line;
        scavenger.on_sample(now, sample, line, &Group { members: &members, me: place });
        let window = scavenger.window_bytes(line.mss_bytes());
        self.give(me, window, scavenger::STEP);
    }

    /// Whether two connections may share a bottleneck.
    fn may_share(&self, a: ConnectionId, b: ConnectionId) -> bool {
        use Sharing::{Detected, Given};
        match (self.connections[a].sharing, self.connections[b].sharing) {
            (Given(a), Given(b)) => a == b,
            (Detected { .. }, Detected { .. }) => self.group(a) == self.group(b),
            _ => false,
        }
    }

    /// Shares out what the group of a connection may take.
    fn share(&mut self, now: Time, me: ConnectionId) {
        let others = 0..self.connections.len();
        let may_share: Vec<ConnectionId> = others.filter(|other| self.may_share(me, *other)).collect();
        if may_share.len() < 2 {
            self.set_free(me);
            return;
        }
        self.part(now, &may_share);
        let (group, rest): (Vec<_>, Vec<_>) = may_share.into_iter().partition(|c| {
            let known = &self.connections[*c];
            known.line.flows(now) && known.line.has_queue(now, QUEUE_KEPT) && known.apart_until <= now
        });
        rest.into_iter().for_each(|c| self.set_free(c));
        let Some(leader) = self.leader(now, &group) else {
            group.into_iter().for_each(|c| self.set_free(c));
            return;
        };
        let followers = group.len() as u64 - 1;
        let rate = Rate::from_bytes(self.connections[leader].line.rate(now) / FOLLOWERS_PART / followers);
        for follower in group.into_iter().filter(|c| *c != leader) {
            let known = &mut self.connections[follower];
            if !matches!(known.role, Role::Follower { .. }) {
                let is_detected = matches!(known.sharing, Sharing::Detected { .. });
                let trial = is_detected.then(|| known.line.trial_window(now));
                known.role = Role::Follower { since: now, trial };
            }
            let line = &known.line;
            let share = rate.bytes_in(line.rtt().srtt()).max(SEGMENTS_MIN * line.mss_bytes());
            let window = match known.role {
                Role::Follower { since, trial: Some(trial) } if now.since(since) < line.trial_span() => trial,
                _ => share,
            };
            self.give(follower, window, STEP);
        }
    }

    /// Finds bounded connections whose queue has gone while the leader's has not.
    fn part(&mut self, now: Time, may_share: &[ConnectionId]) {
        let is_queued = may_share.iter().any(|c| {
            let known = &self.connections[*c];
            matches!(known.role, Role::Leader { .. }) && known.line.has_queue(now, VANISHED.over(2))
        });
        for c in may_share.iter().filter(|_| is_queued) {
            let known = &mut self.connections[*c];
            let Role::Follower { since, .. } = known.role else { continue };
            let span = known.line.vanished_span();
            if now.since(since) >= span && known.line.flows(now) && !known.line.has_queue(now, span) {
                known.apart_until = now + APART.times(1 << known.apart_times.min(APART_DOUBLINGS));
                known.apart_times += 1;
            }
        }
    }

    /// Who leads a group; none if it has fewer than two members.
    fn leader(&mut self, now: Time, group: &[ConnectionId]) -> Option<ConnectionId> {
        if group.len() < 2 {
            return None;
        }
        let led = group.iter().copied().find(|c| matches!(self.connections[*c].role, Role::Leader { .. }));
        let unbounded =
            group.iter().filter(|c| !matches!(self.connections[**c].role, Role::Follower { .. })).count();
        for c in group {
            let known = &mut self.connections[*c];
            match known.role {
                // Beside one other flow, one of them would take so much of what they and that have.
                Role::Free => known.alone = known.line.rate(now).saturating_mul(unbounded as u64 + 1) / 2,
                Role::Leader { .. } => known.alone = known.line.rate(now),
                Role::Follower { .. } => {}
            }
        }
        let best = group.iter().copied().max_by_key(|c| (self.connections[*c].alone, usize::MAX - c))?;
        let leader = match led {
            Some(leader) if !self.is_outdone(now, leader, best) => return Some(leader),
            Some(leader) => {
                self.connections[leader].role = Role::Follower { since: now, trial: None };
                best
            }
            None => best,
        };
        self.set_free(leader);
        self.connections[leader].role = Role::Leader { since: now };
        Some(leader)
    }

    /// Whether another member would bring twice as much.
    fn is_outdone(&self, now: Time, leader: ConnectionId, best: ConnectionId) -> bool {
        let known = &self.connections[leader];
        let Role::Leader { since } = known.role else { return false };
        let has_settled = now.since(since) >= SETTLE + known.line.rtt().srtt().times(16);
        has_settled && self.connections[best].alone / 2 > known.alone
    }

    /// Bounds a connection no more.
    fn set_free(&mut self, connection: ConnectionId) {
        self.connections[connection].role = Role::Free;
        if self.connections[connection].window.is_some() {
            self.give(connection, WINDOW_LIFTED_BYTES, STEP);
        }
    }

    /// Gives a window, if it is another one than before by a part of so much.
    fn give(&mut self, connection: ConnectionId, bytes: u64, step: u64) {
        let bytes = bytes.min(WINDOW_LIFTED_BYTES);
        let given = &mut self.connections[connection].window;
        if given.is_some_and(|before| before.abs_diff(bytes) < (before / step).max(1)) {
            return;
        }
        *given = Some(bytes);
        self.changed.push_back((connection, bytes));
    }
}
