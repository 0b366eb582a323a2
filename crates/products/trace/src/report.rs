//! The report of a connection: numbers with their units, ready to be written as JSON.

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

/// The data that fits into the first window of a subflow (RFC 6928: ten segments), bytes.
const FIRST_WINDOW_BYTES: u64 = 10 * 1460;

/// The place of the capture, as the round trips show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tap {
    /// At the client, which answers at once.
    Client,
    /// At the server, which answers at once.
    Server,
    /// Between client and server.
    Between,
    /// Unknown, because no handshake was captured.
    Unknown,
}

/// The way in which a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Both ends had no more data.
    Closed,
    /// One end closed the connection at once (MP_FASTCLOSE).
    FastClose,
    /// All subflows were reset.
    Reset,
    /// The server never answered.
    Refused,
    /// The connection goes on where the capture ends.
    Open,
}

/// The reason why a subflow carried no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unused {
    /// The subflow's handshake did not end.
    NotEstablished,
    /// The subflow was established after the last data.
    TooLate,
    /// The subflow was a backup.
    Backup,
    /// The whole connection fits into the first window of another subflow.
    LittleData,
    /// The subflow's round trips take longer than those of subflows that were used.
    Slower,
    /// No other reason holds.
    Unknown,
}

/// The report of a connection.
#[derive(Clone, Debug, Serialize)]
pub struct ConnectionReport {
    /// The number of the connection in the capture, from 0, in the order of first segments.
    pub id: u64,
    /// The protocol of the connection.
    pub protocol: Protocol,
    /// When the connection began, nanoseconds since 1970.
    pub begin_ns: u64,
    /// The time from the first to the last segment, seconds.
    pub duration_s: f64,
    /// Whether the first SYN was captured.
    pub begin_seen: bool,
    /// The way in which the connection ended.
    pub end: End,
    /// Why the connection is plain TCP, if Multipath TCP was asked for and given up.
    pub fallback: Option<Fallback>,
    /// The place of the capture.
    pub tap: Tap,
    /// The results of checking the connection's checksums.
    pub checksums: Checksums,
    /// The number of segments whose options the snap length cut off, and of runs of data that were forgotten
    /// to bound memory. Other numbers may be wrong if these are not 0.
    pub inexact: (u64, u64),
    /// The subflows.
    pub subflows: Vec<SubflowReport>,
    /// The data that the client sent, and the data that the server sent.
    pub streams: Directions<StreamReport>,
    /// The handovers from one subflow to another.
    pub handovers: Vec<Handover>,
    /// The events of both ends.
    pub events: Vec<Event>,
    /// The number of events that are not in the list.
    pub events_left_out: u64,
}

/// A value for each direction.
#[derive(Clone, Debug, Serialize)]
pub struct Directions<T> {
    /// The value from the client to the server.
    pub up: T,
    /// The value from the server to the client.
    pub down: T,
}

impl<T> Directions<T> {
    pub(crate) fn of(of: impl Fn(Side) -> T) -> Self {
        Self { up: of(Side::Client), down: of(Side::Server) }
    }

    /// Returns the value for the direction of `sender`.
    #[must_use]
    pub const fn from(&self, sender: Side) -> &T {
        match sender {
            Side::Client => &self.up,
            Side::Server => &self.down,
        }
    }
}

/// The report of one direction of a connection's data.
#[derive(Clone, Debug, Serialize)]
pub struct StreamReport {
    /// The bytes that the application sent, each counted once.
    pub unique_bytes: u64,
    /// The bytes that the receiver has acknowledged.
    pub acked_bytes: u64,
    /// The bytes before the last that were never seen: lost before the tap, or not captured.
    pub missing_bytes: u64,
    /// The bytes that were sent again on another subflow than first.
    pub reinjected_bytes: u64,
    /// The bytes that were sent again on the same subflow under new sequence numbers.
    pub resent_bytes: u64,
    /// The bytes that TCP retransmitted.
    pub retransmitted_bytes: u64,
    /// The number of runs of packets on one subflow.
    pub blocks: u64,
    /// The packets of a block, weighted by packets.
    pub block_packets: Option<Quantiles>,
    /// The bytes that a data acknowledgement added, weighted by bytes.
    pub ack_bytes: Option<Quantiles>,
    /// The time from data to its acknowledgement, µs; only if the sender is at the tap.
    pub rtt_us: Option<Quantiles>,
    /// The times in which the receiver's stream stood still.
    pub stalls: Stalls,
    /// The times in which the tap waited for bytes while later ones were there.
    pub reordering: Reordering,
    /// The marks of a sequence plot, if plots were asked for; not in JSON.
    #[serde(skip)]
    pub plot: Option<Plot>,
    /// The facts for a study.
    #[serde(skip)]
    pub(crate) facts: Facts,
}

/// The facts of one direction for a study: whole distributions, and the counts of the study's scripts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// The bytes that acknowledgements of subflows added.
    pub(crate) tcp_acks: Distribution,
    /// The bytes that data acknowledgements added.
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

/// The stalls of a stream: no data was acknowledged for 200 ms or more although some was on its way.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Stalls {
    /// The number of stalls.
    pub count: u64,
    /// The length of all stalls together, milliseconds.
    pub total_ms: f64,
    /// The longest time between two advances, milliseconds; it may be below 200.
    pub longest_ms: f64,
    /// The first stalls.
    pub list: Vec<StallReport>,
}

/// One time in which a stream stood still.
#[derive(Clone, Debug, Serialize)]
pub struct StallReport {
    /// When the stall began, seconds since the connection began.
    pub at_s: f64,
    /// The length of the stall, milliseconds.
    pub ms: f64,
    /// The bytes that were sent and not acknowledged at the end of the stall.
    pub outstanding_bytes: u64,
}

/// Bytes out of order at the tap.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Reordering {
    /// The time in which bytes were missing before others, milliseconds.
    pub total_ms: f64,
    /// The longest such time, milliseconds.
    pub longest_ms: f64,
    /// The most bytes that waited for others.
    pub queue_bytes_max: u64,
}

/// The report of a subflow.
#[derive(Clone, Debug, Serialize)]
pub struct SubflowReport {
    /// The number of the subflow in the connection; 0 is the first.
    pub id: u16,
    /// The client's end.
    pub client: SocketAddr,
    /// The server's end.
    pub server: SocketAddr,
    /// The end that opened the subflow.
    pub opener: Side,
    /// When the subflow was opened, milliseconds after the connection began: the delay of a join.
    pub join_delay_ms: f64,
    /// Whether the handshake ended.
    pub established: bool,
    /// Whether the subflow is a backup at the end.
    pub backup: bool,
    /// Whether the HMACs of the handshake are right, if they can be checked.
    pub hmac_is_right: Option<bool>,
    /// The round-trip time of the handshake, µs.
    pub handshake_rtt_us: Option<u64>,
    /// The reason in an MP_TCPRST.
    pub reset_reason: Option<u8>,
    /// Why the subflow carried no data; `null` if it did.
    pub unused: Option<Unused>,
    /// The data of both directions.
    pub halves: Directions<HalfReport>,
}

/// The report of one direction of a subflow.
#[derive(Clone, Debug, Serialize)]
pub struct HalfReport {
    /// The number of segments.
    pub packets: u64,
    /// The payload of all segments, bytes.
    pub payload_bytes: u64,
    /// The data that no subflow had sent before, bytes.
    pub unique_bytes: u64,
    /// The payload that TCP retransmitted, bytes and segments.
    pub retransmitted: (u64, u64),
    /// The data that another subflow had sent first, bytes and segments.
    pub reinjected: (u64, u64),
    /// The data that this subflow had sent first, under other sequence numbers, bytes and segments.
    pub resent: (u64, u64),
    /// The payload without a mapping, bytes.
    pub unmapped_bytes: u64,
    /// The time from a segment to its acknowledgement, µs; only if the sender is at the tap.
    pub rtt_us: Option<Quantiles>,
    /// The bytes that an acknowledgement added, weighted by bytes.
    pub ack_bytes: Option<Quantiles>,
    /// The time in which the subflow carried new data, seconds in steps of 0.1.
    pub busy_s: f64,
    /// The time in which only other subflows carried new data, seconds in steps of 0.1.
    pub idle_s: f64,
    /// When the subflow last carried new data, seconds since the connection began.
    pub last_data_s: Option<f64>,
    /// When the sender last acknowledged, on no SYN and no RST, seconds since the connection began.
    pub last_ack_s: Option<f64>,
    /// When the sender closed the subflow, seconds since the connection began.
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

    /// Returns the data of both directions, bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.streams.up.unique_bytes + self.streams.down.unique_bytes
    }

    /// Returns whether the connection was asked for as Multipath TCP.
    #[must_use]
    pub fn is_multipath(&self) -> bool {
        self.protocol != Protocol::Tcp
    }
}

/// Returns the place of the capture: the side that answers at once in handshakes.
fn tap(connection: &Connection) -> Tap {
    let halves = connection.subflows.iter().filter_map(|subflow| {
        let (far, near) = subflow.handshake.halves_ns()?;
        // The first value is the way to the server and back, the second the way to the client and back.
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

/// Returns whether round-trip times are whole: only if the sender is at the tap. Elsewhere they are a part.
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

/// Returns the acknowledged bytes, without the number that the end of the data takes.
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

/// Returns why a subflow was not used: the first reason that holds.
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
