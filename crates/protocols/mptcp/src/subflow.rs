//! One subflow: a TCP connection between two addresses (RFC 9293), with the defences of RFC 5961.
//!
//! A subflow knows nothing of Multipath TCP. The connection that owns it hands it arriving segments. To send,
//! the connection asks what is [due](Due), has the segment made by [`build`](Subflow::build), adds the
//! options of Multipath TCP, and calls [`finish`](Subflow::finish), which adds the selective
//! acknowledgements.

pub(crate) mod handshake;
mod output;
mod probe_rule;
mod receiver;
mod sender;
mod sent;
mod told;
mod undo;

use std::fmt;
use std::net::SocketAddr;

use anabranch_algo::control::{Algorithm, Group};
use anabranch_algo::{Span, Time};
use anabranch_mptcp_wire::expand;

use crate::config::TcpConfig;
use crate::payload::Payload;
use crate::secrets::Secrets;
use crate::segment::{Flags, Segment};
use handshake::{Agreed, SynTimer, TcpFields};
use probe_rule::ProbeRule;
use receiver::Receiver;
pub(crate) use sender::Outgoing;
use sender::{AckInput, Fired, Sender};
pub(crate) use sent::Chunk;

/// The most challenge acknowledgements that a subflow sends in one second (RFC 5961 section 7).
const CHALLENGES_PER_SECOND: u32 = 10;
/// A silent peer gets this many keep-alive probes, `KEEPALIVE_INTERVAL` apart, before the subflow is given
/// up.
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

/// The reason why a subflow was closed, if the two ends did not close it with FINs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubflowError {
    /// The peer answered the SYN with a reset.
    Refused,
    /// The peer reset the subflow.
    Reset,
    /// The peer did not answer.
    TimedOut,
    /// This end reset the subflow.
    Aborted,
}

impl SubflowError {
    /// Returns the kind of I/O error that stands for this error.
    #[must_use]
    pub const fn io_kind(self) -> std::io::ErrorKind {
        match self {
            Self::Refused => std::io::ErrorKind::ConnectionRefused,
            Self::Reset => std::io::ErrorKind::ConnectionReset,
            Self::TimedOut => std::io::ErrorKind::TimedOut,
            Self::Aborted => std::io::ErrorKind::ConnectionAborted,
        }
    }
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

/// A segment that a subflow wants to send now.
#[derive(Clone, Debug)]
pub(crate) enum Due {
    Syn,
    SynAck,
    Segment(Outgoing),
    Ack,
    /// A segment that the peer must answer: its sequence number is one below the number that the peer
    /// expects.
    Probe,
    Reset,
}

/// The effects of one arriving segment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrival {
    /// Whether the segment belongs to the subflow and was accepted, so that its other options count.
    pub(crate) is_valid: bool,
    /// Whether the segment completed the handshake.
    pub(crate) established: bool,
    /// Whether the segment shows that a retransmission timeout was wrong: nothing had been lost.
    pub(crate) undone: bool,
}

/// A timer event that the connection must know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alarm {
    Nothing,
    /// A tail-loss probe is due.
    Probe,
    /// The retransmission timeout has expired.
    Timeout,
}

/// Counts the challenge acknowledgements of one second.
#[derive(Clone, Copy, Debug)]
struct Challenges {
    second: Time,
    count: u32,
}

/// Watches for a peer that has fallen silent.
#[derive(Clone, Copy, Debug)]
struct Liveness {
    last_heard: Time,
    probes: u32,
    probe_due: bool,
}

/// The state of one subflow.
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

/// The addresses and settings with which a subflow is created.
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
        let probe_rule = ProbeRule::of(config.tail_loss, config.ack_delay);
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
            syn: SynTimer { iss, count: 0, began: now, sent_at: now, due: now },
            timestamp_offset: secrets.timestamp_offset(local, remote),
            is_closing: false,
            reset_due: false,
            time_wait_end: Time::NEVER,
            challenges: Challenges { second: now, count: 0 },
            liveness: Liveness { last_heard: now, probes: 0, probe_due: false },
        }
    }

    /// Creates a subflow from this end. Its SYN is due at once.
    pub(crate) fn connect(now: Time, setup: &Setup<'_>) -> Self {
        Self::new(now, setup, State::SynSent, 0)
    }

    /// Creates a subflow that answers the SYN `syn`. Its SYN/ACK is due at once.
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
    /// Returns the bytes that have arrived in order, each counted once.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.receiver.received_bytes()
    }
    pub(crate) const fn sender(&self) -> &Sender {
        &self.sender
    }
    /// Returns whether new data can be sent.
    pub(crate) const fn can_send(&self) -> bool {
        matches!(self.state, State::Established | State::CloseWait) && !self.is_closing
    }
    /// Returns whether the handshake is complete and the subflow is not closed.
    pub(crate) const fn is_synchronized(&self) -> bool {
        !matches!(self.state, State::SynSent | State::SynReceived | State::Closed)
    }
    /// Returns whether the peer's FIN and all data before it have arrived.
    pub(crate) fn is_peer_finished(&self) -> bool {
        self.receiver.is_finished()
    }
    /// Returns whether the subflow is in TIME-WAIT, where it only remembers its addresses.
    pub(crate) const fn is_time_wait(&self) -> bool {
        matches!(self.state, State::TimeWait)
    }
    /// Returns the distance from this end's SYN to the sequence number `seq`, which this end has sent.
    pub(crate) const fn sent_offset(&self, seq: u32) -> u32 {
        seq.wrapping_sub(self.syn.iss)
    }
    /// Returns the next piece of data in order, with the 64-bit sequence number of its first byte.
    pub(crate) fn pop(&mut self) -> Option<(u64, Payload)> {
        self.receiver.pop()
    }
    /// Returns the distance from the peer's SYN to the 64-bit sequence number `whole`, which the peer has
    /// sent.
    pub(crate) const fn received_offset(&self, whole: u64) -> u64 {
        self.receiver.offset(whole)
    }
    /// Returns the distance from the peer's SYN to the next sequence number that is expected.
    pub(crate) const fn expected_offset(&self) -> u64 {
        self.receiver.offset(self.receiver.next())
    }
    /// Returns the distance from the peer's SYN to the first sequence number that [`pop`](Self::pop) has not
    /// returned.
    pub(crate) fn unread_offset(&self) -> u64 {
        self.receiver.offset(self.receiver.unread())
    }
    /// Returns the window that `segment` announces, in bytes from its acknowledgement number on.
    pub(crate) const fn window_of(&self, segment: &Segment) -> u64 {
        (segment.window as u64) << self.agreed.peer_scale
    }
    /// Returns whether `segment` is one that the handshake waits for. Its numbers must fit, so an attacker
    /// who does not see the handshake cannot forge it.
    pub(crate) fn is_handshake(&self, segment: &Segment) -> bool {
        let acks = segment.flags.has(Flags::ACK) && segment.ack == self.syn.iss.wrapping_add(1);
        match self.state {
            State::SynSent => acks,
            State::SynReceived => acks && segment.seq == self.receiver.next() as u32,
            _ => false,
        }
    }
    /// Returns whether the subflow is closed and has no reset left to send.
    pub(crate) fn is_closed(&self) -> bool {
        self.state == State::Closed && !self.reset_due
    }
    /// Returns how many sequence numbers the peer has acknowledged, the SYN's included.
    pub(crate) const fn acked_offset(&self) -> u64 {
        self.sender.una() - ((1 << 32) + self.syn.iss as u64)
    }
    /// Returns how many sequence numbers this end has used, the SYN's included.
    pub(crate) const fn used_offset(&self) -> u64 {
        self.sender.next() - ((1 << 32) + self.syn.iss as u64)
    }
    /// Returns whether there are ranges to report in a SACK option.
    pub(crate) fn has_sack(&self) -> bool {
        self.agreed.sack && self.receiver.has_sack()
    }

    /// Returns the bytes of data that fit into one segment beside `option_bytes` of the connection's own
    /// options.
    pub(crate) const fn payload_max(&self, option_bytes: usize) -> u64 {
        let timestamps = if self.agreed.timestamps { TIMESTAMP_BYTES } else { 0 };
        (self.agreed.mss as u64).saturating_sub((timestamps + option_bytes) as u64)
    }

    const fn timestamp(&self, now: Time) -> u32 {
        ((now.as_nanos() / 1_000_000) as u32).wrapping_add(self.timestamp_offset)
    }

    /// Has a FIN sent after all data that has been sent.
    pub(crate) const fn close(&mut self) {
        self.is_closing = true;
    }

    /// Closes the subflow at once and has a reset sent to the peer.
    pub(crate) fn abort(&mut self) {
        self.reset_due = self.is_synchronized() || self.state == State::SynReceived;
        self.end(SubflowError::Aborted);
    }

    fn end(&mut self, error: SubflowError) {
        self.error.get_or_insert(error);
        self.state = State::Closed;
    }

    /// Has an acknowledgement sent at once.
    pub(crate) const fn ack_now(&mut self) {
        self.receiver.ack_now();
    }

    /// Has an acknowledgement sent in answer to a suspect segment, at most `CHALLENGES_PER_SECOND` times a
    /// second (RFC 5961 section 7).
    fn challenge(&mut self, now: Time) {
        if now.since(self.challenges.second) >= Span::from_secs(1) {
            self.challenges = Challenges { second: now, count: 0 };
        }
        if self.challenges.count < CHALLENGES_PER_SECOND {
            self.challenges.count += 1;
            self.receiver.ack_now();
        }
    }

    /// Takes an arriving segment and returns its effects.
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

    /// Returns the timestamp that a segment with these options echoes.
    fn echo(&self, fields: &TcpFields) -> Option<u32> {
        fields.timestamps.filter(|_| self.agreed.timestamps).map(|(_, echo)| echo)
    }

    /// Handles a segment in SYN-SENT (RFC 9293 section 3.10.7.3). Ignores a SYN without an acknowledgement,
    /// which comes when both ends begin at once.
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
        let sent_at = self.syn.answered(now, self.timestamp(now), self.echo(fields));
        // The window of a SYN is not scaled (RFC 7323 section 2.2).
        self.sender.established(
            now,
            (self.syn.began, sent_at),
            u64::from(segment.window),
            self.receiver.next() - 1,
        );
        self.state = State::Established;
        self.liveness.last_heard = now;
        self.receiver.ack_now();
        Arrival { is_valid: true, established: true, undone: false }
    }

    /// Handles a segment in all states after SYN-SENT (RFC 9293 section 3.10.7.4).
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
            let sent_at = self.syn.answered(now, self.timestamp(now), self.echo(fields));
            self.sender.established(now, (self.syn.began, sent_at), window, seq);
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

    /// Handles a segment that lies outside of the window or has an old timestamp.
    fn not_accepted(&mut self, now: Time, segment: &Segment, seq: u64) {
        if segment.flags.has(Flags::RST) {
            return;
        }
        if self.state == State::SynReceived && segment.flags.has(Flags::SYN) {
            // The peer has sent its SYN again, so the SYN/ACK is repeated.
            if seq + 1 == self.receiver.next() {
                self.syn.due = now;
            }
            return;
        }
        if segment.sequence_len() > 0 {
            // This is a retransmission or a probe of the window. The answer is not rate-limited, because it
            // repairs a lost acknowledgement.
            self.receiver.ack_now();
        } else {
            self.challenge(now);
        }
    }

    /// Hands an acknowledgement to the sender. Returns whether it shows that a timeout was wrong.
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
            echo: self.echo(fields),
            congestion_echo: self.agreed.ecn && segment.flags.has(Flags::ECE),
            window,
            seq,
        };
        self.sender.acknowledged(now, &input, group)
    }

    /// Moves to the state that follows from the numbers acknowledged and the data received.
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

    /// Handles the timers that are due at `now`.
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

    /// Returns the time at which [`tick`](Self::tick) or [`due_last`](Self::due_last) next has something to
    /// do.
    pub(crate) fn deadline(&self) -> Time {
        match self.state {
            State::Closed => Time::NEVER,
            State::SynSent | State::SynReceived => self.syn.due,
            State::TimeWait => self.time_wait_end.min(self.receiver.deadline()),
            _ => self.sender.deadline().min(self.receiver.deadline()).min(self.keepalive_at()),
        }
    }
}
