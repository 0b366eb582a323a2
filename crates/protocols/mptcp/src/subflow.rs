//! One subflow: a TCP connection between two addresses (RFC 9293), with the defences of RFC 5961.
//!
//! It knows nothing of Multipath TCP. Its owner hands it segments and takes from it, in this order: what is
//! [due](Due), the segment of that ([`build`](Subflow::build)), to which the owner adds options, and the rest
//! of the options ([`finish`](Subflow::finish)).

pub(crate) mod handshake;
mod output;
mod receiver;
mod sender;
mod undo;

use std::fmt;
use std::net::SocketAddr;

use anabranch_algo::control::{Algorithm, Group};
use anabranch_algo::{Span, Time};
use anabranch_mptcp_wire::expand;

use crate::config::{TailLoss, TcpConfig};
use crate::payload::Payload;
use crate::secrets::Secrets;
use crate::segment::{Flags, Segment};
use handshake::{Agreed, TcpFields};
use receiver::Receiver;
use sender::{AckInput, Fired, ProbeRule, Sender};
pub(crate) use sender::{Chunk, Outgoing};

/// Challenge acknowledgements in a second at most (RFC 5961 section 7).
const CHALLENGES_PER_SECOND: u32 = 10;
/// Probes of a silent peer before it is given up, and the time between them.
const KEEPALIVE_PROBES: u32 = 4;
const KEEPALIVE_INTERVAL: Span = Span::from_secs(10);
/// Bytes of a timestamps option and of the two NOPs that usually go with it.
const TIMESTAMP_BYTES: usize = 12;

/// The states of RFC 9293 section 3.3.2, without LISTEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    Closing,
    TimeWait,
    CloseWait,
    LastAck,
    Closed,
}

/// Why a subflow is closed, if not in the regular way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubflowError {
    /// The peer refused it: a reset in answer to the SYN.
    Refused,
    /// The peer reset it.
    Reset,
    /// It did not answer.
    TimedOut,
    /// This end reset it.
    Aborted,
}

impl fmt::Display for SubflowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "the connection was refused",
            Self::Reset => "the peer reset the connection",
            Self::TimedOut => "the peer does not answer",
            Self::Aborted => "the connection was aborted",
        })
    }
}

impl std::error::Error for SubflowError {}

/// What a subflow wants sent.
#[derive(Clone, Debug)]
pub(crate) enum Due {
    Syn,
    SynAck,
    Segment(Outgoing),
    Ack,
    /// A segment that the peer must answer: its number is one below what it expects.
    Probe,
    Reset,
}

/// What a segment did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrival {
    /// It belongs to the subflow, so that its other options count.
    pub(crate) is_valid: bool,
    /// The handshake is complete by it.
    pub(crate) established: bool,
    /// It shows that a timeout was wrong: nothing had been lost.
    pub(crate) undone: bool,
}

/// What a timer did that the owner is to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alarm {
    Nothing,
    /// A tail-loss probe is due.
    Probe,
    /// A retransmission timeout.
    Timeout,
}

/// The SYN and its retransmissions.
#[derive(Clone, Copy, Debug)]
struct SynTimer {
    iss: u32,
    /// How often it was sent, and when last.
    count: u32,
    sent_at: Time,
    due: Time,
}

/// Counts challenge acknowledgements.
#[derive(Clone, Copy, Debug)]
struct Challenges {
    second: Time,
    count: u32,
}

/// Watches for silence.
#[derive(Clone, Copy, Debug)]
struct Liveness {
    last_heard: Time,
    probes: u32,
    probe_due: bool,
}

/// One subflow.
#[derive(Clone, Debug)]
pub(crate) struct Subflow {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    config: TcpConfig,
    state: State,
    error: Option<SubflowError>,
    agreed: Agreed,
    sender: Sender,
    receiver: Receiver,
    syn: SynTimer,
    timestamp_offset: u32,
    is_closing: bool,
    reset_due: bool,
    time_wait_end: Time,
    challenges: Challenges,
    liveness: Liveness,
}

/// Where a subflow runs, and by which rules.
pub(crate) struct Setup<'a> {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) config: TcpConfig,
    pub(crate) algorithm: Algorithm,
    pub(crate) buffer_bytes: u32,
    pub(crate) secrets: &'a Secrets,
}

impl Subflow {
    fn new(now: Time, setup: &Setup<'_>, state: State, irs: u32) -> Self {
        let &Setup { local, remote, config, algorithm, buffer_bytes, secrets } = setup;
        let probe_rule = ProbeRule { is_on: config.tail_loss != TailLoss::Off, ack_delay: config.ack_delay };
        let iss = secrets.initial_seq(now, local, remote);
        Self {
            local,
            remote,
            config,
            state,
            error: None,
            agreed: Agreed::offer(&config, local, buffer_bytes),
            sender: Sender::new(iss, algorithm, probe_rule),
            receiver: Receiver::new(irs, config.ack_delay),
            syn: SynTimer { iss, count: 0, sent_at: now, due: now },
            timestamp_offset: secrets.timestamp_offset(local, remote),
            is_closing: false,
            reset_due: false,
            time_wait_end: Time::NEVER,
            challenges: Challenges { second: now, count: 0 },
            liveness: Liveness { last_heard: now, probes: 0, probe_due: false },
        }
    }

    /// Begins one: a SYN is due.
    pub(crate) fn connect(now: Time, setup: &Setup<'_>) -> Self {
        Self::new(now, setup, State::SynSent, 0)
    }

    /// Answers a SYN: a SYN/ACK is due.
    pub(crate) fn accept(now: Time, setup: &Setup<'_>, syn: &Segment) -> Self {
        let mut subflow = Self::new(now, setup, State::SynReceived, syn.seq);
        let fields = TcpFields::read(syn);
        subflow.agreed.settle(syn, &fields);
        if let Some((value, _)) = fields.timestamps {
            subflow.receiver.first_timestamp(value);
        }
        subflow
    }

    pub(crate) const fn error(&self) -> Option<SubflowError> {
        self.error
    }
    pub(crate) const fn sender(&self) -> &Sender {
        &self.sender
    }
    /// Whether data can be sent.
    pub(crate) const fn can_send(&self) -> bool {
        matches!(self.state, State::Established | State::CloseWait) && !self.is_closing
    }
    /// Whether the handshake is over and the subflow is not.
    pub(crate) const fn is_synchronized(&self) -> bool {
        !matches!(self.state, State::SynSent | State::SynReceived | State::Closed)
    }
    /// Whether the peer has sent its FIN, and all before it has arrived.
    pub(crate) fn is_peer_finished(&self) -> bool {
        self.receiver.is_finished()
    }
    /// Whether the subflow's addresses are all that is left of it.
    pub(crate) const fn is_time_wait(&self) -> bool {
        matches!(self.state, State::TimeWait)
    }
    /// How many numbers lie between one that was sent and the SYN's.
    pub(crate) const fn sent_offset(&self, seq: u32) -> u32 {
        seq.wrapping_sub(self.syn.iss)
    }
    /// The next piece that arrived in order, with its whole number.
    pub(crate) fn pop(&mut self) -> Option<(u64, Payload)> {
        self.receiver.pop()
    }
    /// How many numbers lie between one that the peer has sent and its SYN.
    pub(crate) const fn received_offset(&self, whole: u64) -> u64 {
        self.receiver.offset(whole)
    }
    /// The same of the next number that is expected.
    pub(crate) const fn expected_offset(&self) -> u64 {
        self.receiver.offset(self.receiver.next())
    }
    /// The same of the first number that was not [taken](Self::pop).
    pub(crate) fn unread_offset(&self) -> u64 {
        self.receiver.offset(self.receiver.unread())
    }
    /// Bytes from its acknowledgement on that a segment has room for.
    pub(crate) const fn window_of(&self, segment: &Segment) -> u64 {
        (segment.window as u64) << self.agreed.peer_scale
    }
    /// Whether a segment is one that the handshake waits for: of this subflow, and no forgery by an attacker
    /// who does not see it.
    pub(crate) fn is_handshake(&self, segment: &Segment) -> bool {
        let acks = segment.flags.has(Flags::ACK) && segment.ack == self.syn.iss.wrapping_add(1);
        match self.state {
            State::SynSent => acks,
            State::SynReceived => acks && segment.seq == self.receiver.next() as u32,
            _ => false,
        }
    }
    /// Whether it is closed, and nothing of it is left to send.
    pub(crate) fn is_closed(&self) -> bool {
        self.state == State::Closed && !self.reset_due
    }
    /// Numbers that the peer has acknowledged, the SYN's included.
    pub(crate) const fn acked_offset(&self) -> u64 {
        self.sender.una() - ((1 << 32) + self.syn.iss as u64)
    }
    /// Whether there is something to acknowledge selectively.
    pub(crate) fn has_sack(&self) -> bool {
        self.agreed.sack && self.receiver.has_sack()
    }

    /// Bytes of data that a segment has room for beside `option_bytes` of the owner's options.
    pub(crate) const fn payload_max(&self, option_bytes: usize) -> u64 {
        let timestamps = if self.agreed.timestamps { TIMESTAMP_BYTES } else { 0 };
        (self.agreed.mss as u64).saturating_sub((timestamps + option_bytes) as u64)
    }

    const fn timestamp(&self, now: Time) -> u32 {
        ((now.as_nanos() / 1_000_000) as u32).wrapping_add(self.timestamp_offset)
    }

    /// Sends a FIN after everything that has been sent.
    pub(crate) const fn close(&mut self) {
        self.is_closing = true;
    }

    /// Resets the subflow at once, and tells the peer.
    pub(crate) fn abort(&mut self) {
        self.reset_due = self.is_synchronized() || self.state == State::SynReceived;
        self.end(SubflowError::Aborted);
    }

    fn end(&mut self, error: SubflowError) {
        self.error.get_or_insert(error);
        self.state = State::Closed;
    }

    /// Asks for an acknowledgement at once.
    pub(crate) const fn ack_now(&mut self) {
        self.receiver.ack_now();
    }

    /// Asks for an acknowledgement of a segment that is suspect, a few times a second (RFC 5961 section 7).
    fn challenge(&mut self, now: Time) {
        if now.since(self.challenges.second) >= Span::from_secs(1) {
            self.challenges = Challenges { second: now, count: 0 };
        }
        if self.challenges.count < CHALLENGES_PER_SECOND {
            self.challenges.count += 1;
            self.receiver.ack_now();
        }
    }

    /// Takes a segment.
    pub(crate) fn segment(
        &mut self,
        now: Time,
        segment: &Segment,
        fields: &TcpFields,
        group: &Group<'_>,
    ) -> Arrival {
        match self.state {
            State::Closed => Arrival::default(),
            State::SynSent => self.syn_sent(now, segment, fields),
            _ => self.synchronized(now, segment, fields, group),
        }
    }

    /// RFC 9293 section 3.10.7.3. A SYN without an acknowledgement (both ends began at once) is passed over.
    fn syn_sent(&mut self, now: Time, segment: &Segment, fields: &TcpFields) -> Arrival {
        let answers = segment.flags.has(Flags::ACK) && segment.ack == self.syn.iss.wrapping_add(1);
        if segment.flags.has(Flags::RST) {
            if answers {
                self.end(SubflowError::Refused);
            }
            return Arrival::default();
        }
        if !answers || !segment.flags.has(Flags::SYN) {
            return Arrival::default();
        }
        self.agreed.settle(segment, fields);
        self.receiver = Receiver::new(segment.seq, self.config.ack_delay);
        if let Some((value, _)) = fields.timestamps {
            self.receiver.first_timestamp(value);
        }
        let sent_at = (self.syn.count == 1).then_some(self.syn.sent_at);
        // The window of a SYN is not scaled (RFC 7323 section 2.2).
        self.sender.established(now, sent_at, u64::from(segment.window), self.receiver.next() - 1);
        self.state = State::Established;
        self.liveness.last_heard = now;
        self.receiver.ack_now();
        Arrival { is_valid: true, established: true, undone: false }
    }

    /// RFC 9293 section 3.10.7.4.
    fn synchronized(
        &mut self,
        now: Time,
        segment: &Segment,
        fields: &TcpFields,
        group: &Group<'_>,
    ) -> Arrival {
        let mut arrival = Arrival::default();
        let (flags, seq) = (segment.flags, self.receiver.whole(segment.seq));
        let timestamp = fields.timestamps.filter(|_| self.agreed.timestamps);
        let is_old = timestamp.is_some_and(|(value, _)| self.receiver.is_old(value));
        if !self.receiver.accepts(seq, segment.sequence_len()) || (is_old && !flags.has(Flags::RST)) {
            self.not_accepted(now, segment, seq);
            return arrival;
        }
        if flags.has(Flags::RST) {
            // RFC 5961 section 3.2; RFC 1337 section 3, fix 1.
            if self.state == State::TimeWait {
                return arrival;
            }
            if seq == self.receiver.next() {
                self.end(SubflowError::Reset);
            } else {
                self.challenge(now);
            }
            return arrival;
        }
        if flags.has(Flags::SYN) {
            // RFC 5961 section 4.2.
            self.challenge(now);
            return arrival;
        }
        if !flags.has(Flags::ACK) {
            return arrival;
        }
        let ack = expand(segment.ack, self.sender.una());
        if ack > self.sender.next() || ack + self.sender.window_max() < self.sender.una() {
            // RFC 5961 section 5.2.
            self.challenge(now);
            return arrival;
        }
        let window = self.window_of(segment);
        if self.state == State::SynReceived {
            if ack != self.sender.next() {
                return arrival;
            }
            let sent_at = (self.syn.count == 1).then_some(self.syn.sent_at);
            self.sender.established(now, sent_at, window, seq);
            self.state = State::Established;
            arrival.established = true;
        }
        arrival.is_valid = true;
        self.liveness = Liveness { last_heard: now, probes: 0, probe_due: false };
        if let Some((value, _)) = timestamp {
            self.receiver.note_timestamp(value, seq);
        }
        arrival.undone = self.acknowledged(now, segment, fields, (ack, seq, window), group);
        if matches!(self.state, State::Established | State::FinWait1 | State::FinWait2) {
            self.receiver.take(now, seq, segment);
        }
        self.advance(now);
        arrival
    }

    /// A segment outside of the window, or one that is too old.
    fn not_accepted(&mut self, now: Time, segment: &Segment, seq: u64) {
        if segment.flags.has(Flags::RST) {
            return;
        }
        if self.state == State::SynReceived && segment.flags.has(Flags::SYN) {
            // The SYN again.
            if seq + 1 == self.receiver.next() {
                self.syn.due = now;
            }
            return;
        }
        if segment.sequence_len() > 0 {
            // A retransmission, or a probe of the window: the peer is to know at once. Not limited: it is how
            // a lost acknowledgement is repaired.
            self.receiver.ack_now();
        } else {
            self.challenge(now);
        }
    }

    /// Hands an acknowledgement to the sender; whether it shows that a timeout was wrong.
    fn acknowledged(
        &mut self,
        now: Time,
        segment: &Segment,
        fields: &TcpFields,
        (ack, seq, window): (u64, u64, u64),
        group: &Group<'_>,
    ) -> bool {
        let (una, next) = (self.sender.una(), self.sender.next());
        let mut sacked = [(0, 0); anabranch_mptcp_wire::options::SACK_BLOCKS_MAX];
        let mut count = 0;
        if self.agreed.sack {
            for &(left, right) in fields.sack.as_slice() {
                let (left, right) = (expand(left, una), expand(right, una));
                if left >= ack.max(una) && left < right && right <= next {
                    sacked[count] = (left, right);
                    count += 1;
                }
            }
        }
        let input = AckInput {
            ack,
            sacked: &sacked[..count],
            echo: fields.timestamps.filter(|_| self.agreed.timestamps).map(|(_, echo)| echo),
            congestion_echo: self.agreed.ecn && segment.flags.has(Flags::ECE),
            window,
            seq,
        };
        self.sender.acknowledged(now, &input, group)
    }

    /// The state that follows from what has been acknowledged and what has arrived.
    fn advance(&mut self, now: Time) {
        let (acked, finished) = (self.sender.is_idle(), self.receiver.is_finished());
        self.state = match self.state {
            State::Established if finished => State::CloseWait,
            State::FinWait1 if acked && finished => State::TimeWait,
            State::FinWait1 if acked => State::FinWait2,
            State::FinWait1 if finished => State::Closing,
            State::FinWait2 if finished => State::TimeWait,
            State::Closing if acked => State::TimeWait,
            State::LastAck if acked => State::Closed,
            state => state,
        };
        if self.state == State::TimeWait {
            self.time_wait_end = now + self.config.time_wait;
        }
    }

    /// Does what timers ask for.
    pub(crate) fn tick(&mut self, now: Time, group: &Group<'_>) -> Alarm {
        match self.state {
            State::Closed => Alarm::Nothing,
            State::SynSent | State::SynReceived => {
                if self.syn.due <= now && self.syn.count > self.config.retries_max {
                    self.end(SubflowError::TimedOut);
                }
                Alarm::Nothing
            }
            State::TimeWait => {
                if self.time_wait_end <= now {
                    self.state = State::Closed;
                }
                Alarm::Nothing
            }
            _ => {
                self.keep_alive(now);
                match self.sender.timer(now, group) {
                    Fired::Nothing => Alarm::Nothing,
                    Fired::Probe => Alarm::Probe,
                    Fired::Timeout => {
                        if self.sender.timeouts() > self.config.retries_max {
                            self.end(SubflowError::TimedOut);
                        }
                        Alarm::Timeout
                    }
                }
            }
        }
    }

    fn keepalive_at(&self) -> Time {
        let Some(idle) = self.config.keepalive.filter(|_| self.sender.is_idle()) else { return Time::NEVER };
        self.liveness.last_heard + idle + KEEPALIVE_INTERVAL.times(u64::from(self.liveness.probes))
    }

    fn keep_alive(&mut self, now: Time) {
        if now < self.keepalive_at() {
            return;
        }
        if self.liveness.probes >= KEEPALIVE_PROBES {
            self.reset_due = true;
            self.end(SubflowError::TimedOut);
        } else {
            self.liveness.probes += 1;
            self.liveness.probe_due = true;
        }
    }

    /// When [`tick`](Self::tick) or [`due_last`](Self::due_last) would next do something.
    pub(crate) fn deadline(&self) -> Time {
        match self.state {
            State::Closed => Time::NEVER,
            State::SynSent | State::SynReceived => self.syn.due,
            State::TimeWait => self.time_wait_end.min(self.receiver.deadline()),
            _ => self.sender.deadline().min(self.receiver.deadline()).min(self.keepalive_at()),
        }
    }
}
