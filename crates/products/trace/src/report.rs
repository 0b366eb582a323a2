//! What is reported of a connection: numbers with their units, ready to be written as JSON.

use std::net::SocketAddr;

use serde::Serialize;

use crate::audit::Checksums;
use crate::connection::{Connection, Fallback, Protocol};
use crate::distribution::{Distribution, Quantiles};
use crate::half::Half;
use crate::handover::Handover;
use crate::journal::Event;
use crate::pam16::Pam16Counts;
use crate::plot::Plot;
use crate::stream::{SLOT_NS, Stream};
use crate::subflow::{Side, Subflow};

/// Data that fits into the first window of a subflow (RFC 6928: ten segments), bytes.
const FIRST_WINDOW_BYTES: u64 = 10 * 1460;

/// Where the capture was made, as the round trips show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tap {
    /// At the client: it answers at once.
    Client,
    /// At the server.
    Server,
    /// Between both.
    Between,
    /// No handshake was captured.
    Unknown,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Both ends had no more data.
    Closed,
    /// One end closed at once (MP_FASTCLOSE).
    FastClose,
    /// All subflows were reset.
    Reset,
    /// The server never answered.
    Refused,
    /// It goes on where the capture ends.
    Open,
}

/// Why a subflow carried no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unused {
    /// Its handshake did not end.
    NotEstablished,
    /// It was established after the last data.
    TooLate,
    /// It was a backup.
    Backup,
    /// The whole connection fits into the first window of another subflow.
    LittleData,
    /// Its round trips take longer than those of subflows that were used.
    Slower,
    /// None of these.
    Unknown,
}

/// A connection.
#[derive(Clone, Debug, Serialize)]
pub struct ConnectionReport {
    /// Its number in the capture, from 0, in the order of first segments.
    pub id: u64,
    /// What it speaks.
    pub protocol: Protocol,
    /// When it began, nanoseconds since 1970.
    pub begin_ns: u64,
    /// From its first to its last segment, seconds.
    pub duration_s: f64,
    /// Whether its first SYN was captured.
    pub begin_seen: bool,
    /// How it ended.
    pub end: End,
    /// Why it is plain TCP, if Multipath TCP was asked for and given up.
    pub fallback: Option<Fallback>,
    /// Where the capture was made.
    pub tap: Tap,
    /// Its checksums.
    pub checksums: Checksums,
    /// Segments whose options were cut off by the snap length, and runs of data that were forgotten to bound
    /// memory: numbers may be wrong if these are not 0.
    pub inexact: (u64, u64),
    /// Its subflows.
    pub subflows: Vec<SubflowReport>,
    /// What the client sent, and what the server sent.
    pub streams: Directions<StreamReport>,
    /// Which subflow took over from which.
    pub handovers: Vec<Handover>,
    /// What its ends did.
    pub events: Vec<Event>,
    /// Events that are not in the list.
    pub events_left_out: u64,
}

/// The same of both directions.
#[derive(Clone, Debug, Serialize)]
pub struct Directions<T> {
    /// From the client to the server.
    pub up: T,
    /// From the server to the client.
    pub down: T,
}

impl<T> Directions<T> {
    pub(crate) fn of(of: impl Fn(Side) -> T) -> Self {
        Self { up: of(Side::Client), down: of(Side::Server) }
    }

    /// What `sender` sent.
    #[must_use]
    pub const fn from(&self, sender: Side) -> &T {
        match sender {
            Side::Client => &self.up,
            Side::Server => &self.down,
        }
    }
}

/// One direction of a connection's data.
#[derive(Clone, Debug, Serialize)]
pub struct StreamReport {
    /// Bytes that the application sent, each once.
    pub unique_bytes: u64,
    /// Bytes that the receiver has acknowledged.
    pub acked_bytes: u64,
    /// Bytes before the last that were never seen: lost before the tap, or not captured.
    pub missing_bytes: u64,
    /// Bytes that were sent again on another subflow than first.
    pub reinjected_bytes: u64,
    /// Bytes that were sent again on the same subflow under new sequence numbers.
    pub resent_bytes: u64,
    /// Bytes that TCP retransmitted.
    pub retransmitted_bytes: u64,
    /// Runs of packets on one subflow.
    pub blocks: u64,
    /// Packets of a block, weighted by packets.
    pub block_packets: Option<Quantiles>,
    /// Bytes that a data acknowledgement added, weighted by bytes.
    pub ack_bytes: Option<Quantiles>,
    /// From data to its acknowledgement, µs; only where the sender is at the tap.
    pub rtt_us: Option<Quantiles>,
    /// How the receiver's stream stood still.
    pub stalls: Stalls,
    /// How the tap waited for bytes while later ones were there.
    pub reordering: Reordering,
    /// What it looks like over time, if plots were asked for; not in JSON.
    #[serde(skip)]
    pub plot: Option<Plot>,
    /// What a study needs of it.
    #[serde(skip)]
    pub(crate) facts: Facts,
}

/// What a study needs of one direction of a connection: whole distributions, and the counts of its scripts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Bytes that acknowledgements of subflows added.
    pub(crate) tcp_acks: Distribution,
    /// Bytes that data acknowledgements added.
    pub(crate) data_acks: Distribution,
    pub(crate) block_packets: Distribution,
    pub(crate) pam16: Pam16Counts,
}

impl Facts {
    fn of(connection: &Connection, side: Side) -> Self {
        let Some(pam16) = &connection.pam16 else { return Self::default() };
        let (stream, mut tcp_acks) = (&connection.streams[side.index()], Distribution::default());
        for subflow in &connection.subflows {
            tcp_acks.merge(&subflow.halves[side.index()].ack_bytes);
        }
        Self {
            tcp_acks,
            data_acks: stream.ack_bytes.clone(),
            block_packets: stream.blocks.packets.clone(),
            pam16: pam16[side.index()].counts(),
        }
    }
}

/// How a stream stood still: no data was acknowledged for 200 ms or more although some was on its way.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Stalls {
    /// How often.
    pub count: u64,
    /// All of them together, milliseconds.
    pub total_ms: f64,
    /// The longest time between two advances, milliseconds; also below 200.
    pub longest_ms: f64,
    /// The first of them.
    pub list: Vec<StallReport>,
}

/// One time in which a stream stood still.
#[derive(Clone, Debug, Serialize)]
pub struct StallReport {
    /// When it began, seconds since the connection began.
    pub at_s: f64,
    /// How long it took, milliseconds.
    pub ms: f64,
    /// Bytes that were sent and not acknowledged at its end.
    pub outstanding_bytes: u64,
}

/// Bytes out of order at the tap.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Reordering {
    /// Time in which bytes were missing before others, milliseconds.
    pub total_ms: f64,
    /// The longest such time, milliseconds.
    pub longest_ms: f64,
    /// Bytes that waited for others at most.
    pub queue_bytes_max: u64,
}

/// A subflow.
#[derive(Clone, Debug, Serialize)]
pub struct SubflowReport {
    /// Its number in the connection: 0 is the first.
    pub id: u16,
    /// The client's end.
    pub client: SocketAddr,
    /// The server's end.
    pub server: SocketAddr,
    /// Who opened it.
    pub opener: Side,
    /// When it was opened, milliseconds after the connection began: the delay of a join.
    pub join_delay_ms: f64,
    /// Whether its handshake ended.
    pub established: bool,
    /// Whether it is a backup at the end.
    pub backup: bool,
    /// Whether the HMACs of its handshake are right, if they can be checked.
    pub hmac_is_right: Option<bool>,
    /// The round-trip time of its handshake, µs.
    pub handshake_rtt_us: Option<u64>,
    /// MP_TCPRST's reason.
    pub reset_reason: Option<u8>,
    /// Why it carried no data; `null` if it did.
    pub unused: Option<Unused>,
    /// What it carried.
    pub halves: Directions<HalfReport>,
}

/// What one direction of a subflow carried.
#[derive(Clone, Debug, Serialize)]
pub struct HalfReport {
    /// Segments.
    pub packets: u64,
    /// Payload of all segments, bytes.
    pub payload_bytes: u64,
    /// Data that no subflow had sent before.
    pub unique_bytes: u64,
    /// Payload that TCP retransmitted, bytes and segments.
    pub retransmitted: (u64, u64),
    /// Data that another subflow had sent first, bytes and segments.
    pub reinjected: (u64, u64),
    /// Data that this subflow had sent first, under new sequence numbers, bytes and segments.
    pub resent: (u64, u64),
    /// Payload without a mapping, bytes.
    pub unmapped_bytes: u64,
    /// From a segment to its acknowledgement, µs; only where the sender is at the tap.
    pub rtt_us: Option<Quantiles>,
    /// Bytes that an acknowledgement added, weighted by bytes.
    pub ack_bytes: Option<Quantiles>,
    /// Time in which it carried new data, in steps of 0.1 s.
    pub busy_s: f64,
    /// Time in which only siblings carried new data.
    pub idle_s: f64,
    /// When it carried new data last, seconds since the connection began.
    pub last_data_s: Option<f64>,
    /// When its sender acknowledged last, on no SYN and no RST.
    pub last_ack_s: Option<f64>,
    /// When its sender closed it.
    pub fin_s: Option<f64>,
}

impl ConnectionReport {
    pub(crate) fn of(connection: &Connection) -> Self {
        let tap = tap(connection);
        let first = &connection.subflows[0];
        let forgotten: u64 = connection.streams.iter().map(Stream::forgotten).sum::<u64>()
            + connection.subflows.iter().flat_map(|s| &s.halves).map(Half::forgotten).sum::<u64>();
        Self {
            id: connection.id,
            protocol: connection.agreement.protocol(),
            begin_ns: connection.begin_ns,
            duration_s: connection.end_ns.saturating_sub(connection.begin_ns) as f64 / 1e9,
            begin_seen: first.handshake.syn.is_some(),
            end: end(connection),
            fallback: connection.agreement.fallback,
            tap,
            checksums: connection.agreement.checksums,
            inexact: (connection.agreement.options_cut, forgotten),
            subflows: connection.subflows.iter().map(|s| subflow(connection, s, tap)).collect(),
            streams: Directions::of(|side| stream(connection, side, tap)),
            handovers: connection.handovers.report(connection.begin_ns, &connection.streams),
            events: connection.journal.events.clone(),
            events_left_out: connection.journal.left_out,
        }
    }

    /// Data of both directions, bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.streams.up.unique_bytes + self.streams.down.unique_bytes
    }

    /// Whether it was asked for as Multipath TCP.
    #[must_use]
    pub fn is_multipath(&self) -> bool {
        self.protocol != Protocol::Tcp
    }
}

/// The side that answers at once in handshakes is where the capture was made.
fn tap(connection: &Connection) -> Tap {
    let halves = connection.subflows.iter().filter_map(|subflow| {
        let (far, near) = subflow.handshake.halves_ns()?;
        // Seen from the client: the way to the server, then the way to itself.
        Some(if subflow.opener == Side::Client { (far, near) } else { (near, far) })
    });
    let Some((to_server, to_client)) = halves.reduce(|a, b| (a.0.min(b.0), a.1.min(b.1))) else {
        return Tap::Unknown;
    };
    if to_client * 4 <= to_server {
        Tap::Client
    } else if to_server * 4 <= to_client {
        Tap::Server
    } else {
        Tap::Between
    }
}

fn end(connection: &Connection) -> End {
    let first = &connection.subflows[0];
    let is_reset = |s: &Subflow| s.halves.iter().any(|half| half.times.reset.is_some());
    if connection.journal.is_fast_closed() {
        End::FastClose
    } else if first.handshake.syn.is_some() && first.handshake.syn_ack.is_none() {
        End::Refused
    } else if connection.journal.has_ended() {
        End::Closed
    } else if connection.subflows.iter().all(is_reset) {
        End::Reset
    } else if connection.is_closed() {
        End::Closed
    } else {
        End::Open
    }
}

/// Round-trip times count where the sender is at the tap: elsewhere they are a part of the way.
fn is_whole(tap: Tap, sender: Side) -> bool {
    matches!((tap, sender), (Tap::Client, Side::Client) | (Tap::Server, Side::Server))
}

fn stream(connection: &Connection, side: Side, tap: Tap) -> StreamReport {
    let stream = &connection.streams[side.index()];
    let sum = |of: fn(&Half) -> u64| connection.subflows.iter().map(|s| of(&s.halves[side.index()])).sum();
    let (count, total_ns, longest_ns) = stream.stalled;
    let milliseconds = |ns: u64| ns as f64 / 1e6;
    let list = stream.stalls.iter().map(|stall| StallReport {
        at_s: stall.begin_ns.saturating_sub(connection.begin_ns) as f64 / 1e9,
        ms: milliseconds(stall.duration_ns),
        outstanding_bytes: stall.outstanding_bytes,
    });
    StreamReport {
        unique_bytes: stream.unique_bytes,
        acked_bytes: acked_bytes(connection, side),
        missing_bytes: stream.missing_bytes(),
        reinjected_bytes: sum(|half| half.counts.reinjected.0),
        resent_bytes: sum(|half| half.counts.resent.0),
        retransmitted_bytes: sum(|half| half.counts.retransmitted.0),
        blocks: stream.blocks.count,
        block_packets: stream.blocks.packets.report(),
        ack_bytes: stream.ack_bytes.report(),
        rtt_us: stream.round_trips.us.report().filter(|_| is_whole(tap, side)),
        stalls: Stalls {
            count,
            total_ms: milliseconds(total_ns),
            longest_ms: milliseconds(longest_ns),
            list: list.collect(),
        },
        reordering: Reordering {
            total_ms: milliseconds(stream.holes.total_ns),
            longest_ms: milliseconds(stream.holes.longest_ns),
            queue_bytes_max: stream.holes.queue_bytes_max,
        },
        plot: None,
        facts: Facts::of(connection, side),
    }
}

/// The end of the data takes a number of its own, which is no byte.
fn acked_bytes(connection: &Connection, side: Side) -> u64 {
    let stream = &connection.streams[side.index()];
    let has_end = connection.journal.has_data_fin(side) && stream.acked > stream.high();
    stream.acked - u64::from(has_end && stream.acked > 0)
}

fn subflow(connection: &Connection, subflow: &Subflow, tap: Tap) -> SubflowReport {
    let since = |ns: u64| ns.saturating_sub(connection.begin_ns);
    SubflowReport {
        id: subflow.number,
        client: subflow.ends[0],
        server: subflow.ends[1],
        opener: subflow.opener,
        join_delay_ms: since(subflow.opened_ns()) as f64 / 1e6,
        established: subflow.is_established(),
        backup: subflow.backup,
        hmac_is_right: subflow.joining.hmac_is_right,
        handshake_rtt_us: subflow.handshake_rtt_us(),
        reset_reason: subflow.reset_reason,
        unused: unused(connection, subflow),
        halves: Directions::of(|side| {
            let half = &subflow.halves[side.index()];
            let seconds = |ns: u64| since(ns) as f64 / 1e9;
            let slots_s = |slots: u32| f64::from(slots) * SLOT_NS as f64 / 1e9;
            HalfReport {
                packets: half.counts.packets,
                payload_bytes: half.counts.payload_bytes,
                unique_bytes: half.counts.unique_bytes,
                retransmitted: half.counts.retransmitted,
                reinjected: half.counts.reinjected,
                resent: half.counts.resent,
                unmapped_bytes: half.counts.unmapped_bytes,
                rtt_us: half.round_trips.us.report().filter(|_| is_whole(tap, side)),
                ack_bytes: half.ack_bytes.report(),
                busy_s: slots_s(half.slots.0),
                idle_s: slots_s(half.slots.1),
                last_data_s: half.times.new_data.map(seconds),
                last_ack_s: half.times.ack.map(seconds),
                fin_s: half.times.fin.map(seconds),
            }
        }),
    }
}

/// Why a subflow was not used; the first reason that holds.
fn unused(connection: &Connection, subflow: &Subflow) -> Option<Unused> {
    if subflow.unique_bytes() > 0 || connection.subflows.len() < 2 {
        return None;
    }
    let established = subflow.handshake.ack.or_else(|| subflow.is_established().then_some(subflow.first_ns));
    let Some(established) = established else { return Some(Unused::NotEstablished) };
    let last = connection.streams.iter().filter_map(|stream| stream.last_new_ns).max();
    let used = connection.subflows.iter().filter(|other| other.unique_bytes() > 0);
    let fastest = used.filter_map(Subflow::handshake_rtt_us).min();
    let bytes: u64 = connection.streams.iter().map(|stream| stream.unique_bytes).sum();
    Some(if last.is_none_or(|last| last <= established) {
        Unused::TooLate
    } else if subflow.backup {
        Unused::Backup
    } else if bytes <= FIRST_WINDOW_BYTES {
        Unused::LittleData
    } else if fastest.zip(subflow.handshake_rtt_us()).is_some_and(|(fastest, own)| own > fastest) {
        Unused::Slower
    } else {
        Unused::Unknown
    })
}
