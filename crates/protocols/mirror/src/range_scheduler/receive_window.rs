//! Several connections that may share a bottleneck take together about what one would.
//!
//! A TCP connection has its own window, which its sender moves; what a receiver owns is the window that it
//! advertises, and that bounds the sender's. So each connection has a controller of
//! [`anabranch_algo::control`], coupled with those of its group and fed with what the kernel counts at our
//! end: bytes that arrived are packets acknowledged; packets that arrived out of order tell of a loss. Its
//! window is what the connection may advertise.
//!
//! * **One loss is one.** What is lost stops what comes in order until it is filled, and all that comes until
//!   then is disordered: for a round trip or several. So a loss lasts, by bytes, until all that may have been
//!   on its way when it was seen has come (RFC 5681 section 3.2 has the same mark, at the sender).
//! * **What it leaves** is counted from what was on its way, if that was less than the window (RFC 5681
//!   equation 4): what arrived within a round trip lately, and a quarter. Else a window that bounds nobody
//!   would have to be cut many times before it does.
//! * **Behind a hole** packets arrive that nobody can read. A sender that may have a window on its way beyond
//!   the hole would stop there, and send a window in one burst, into queues that lose part of it, once the
//!   hole is filled. So what has arrived behind it (packets less bytes in order) is added to what is
//!   advertised: what is on its way is bounded all the same.
//! * **In slow start** twice the window is advertised, for what arrived lets its sender send twice as much.
//!
//! **What this can promise.** Where our window is the smaller one, the connections of a group take what the
//! coupled controller would, and back off as it does. **What it cannot.** It only takes away: a sender with
//! a smaller window (its own losses, another algorithm, a limit of the server) is not made faster. What has
//! been advertised is not taken back, so a smaller window holds after a round trip. A reordered packet
//! counts as a loss, which errs to the modest side; a loss at the very end of a flight, and one of which
//! only the sender knows, go unnoticed. Windows below [`SEGMENTS_MIN`] segments are not given, so very many
//! connections over a very thin link still take more than one would. The kernel's own limits (memory,
//! autotuning) may hold a connection below what is given here.

use anabranch_algo::control::{
    Ack, Algorithm, CongestionCause, CongestionEvent, Control as _, Group, SubflowStats,
};
use anabranch_algo::rtt::RttEstimator;
use anabranch_algo::{Span, TcpSample, Time};

/// Segments a window has at least: with fewer, a lost one is not followed by the three duplicate
/// acknowledgements that make a sender repeat it at once (RFC 5681 section 3.2), and each loss costs a
/// timeout.
pub const SEGMENTS_MIN: u64 = 4;
/// A scavenger's: LEDBAT keeps two packets (MIN_CWND, RFC 6817 section 2.5), and a timeout delays nobody
/// else. With four, three connections took a sixth of what another download had.
pub const SEGMENTS_MIN_YIELDING: u64 = 2;
/// The window before the first loss, at least: what TCP advertises without window scaling.
pub const WINDOW_INITIAL_BYTES: u64 = 64 << 10;
/// The window of a connection that is coupled to nobody, unless it is a scavenger's: TCP's largest (RFC 7323
/// section 2.3), no bound.
pub const WINDOW_LIFTED_BYTES: u64 = 1 << 30;
/// A window is given anew when it has moved by this part of itself.
const STEP: u64 = 16;
/// What arrived in a round trip is remembered as the most that did, less this part of it a round trip.
const PEAK_DECAY: u64 = 8;
/// What segments are taken to be between.
const MSS_BYTES: (u32, u32) = (256, 65_535);

/// What arrives in a round trip.
#[derive(Clone, Copy, Debug, Default)]
struct Rounds {
    /// The number of this round trip.
    number: u32,
    /// When it began.
    from: Time,
    /// Bytes in it so far.
    bytes: u64,
    /// Bytes of the last whole round trip.
    flight: u64,
    /// The most bytes of a round trip lately, in a round trip as it is now.
    peak: u64,
}

impl Rounds {
    /// Bytes arrived; samples may be further apart than a round trip.
    fn count(&mut self, now: Time, bytes: u64, rtt: &RttEstimator) {
        self.bytes = self.bytes.saturating_add(bytes);
        let (elapsed, srtt) = (now.since(self.from), rtt.srtt());
        if elapsed >= srtt {
            let rate = anabranch_algo::Rate::of(self.bytes, elapsed);
            self.flight = rate.bytes_in(srtt);
            let flight = rate.bytes_in(srtt.max(rtt.latest()));
            self.peak = flight.max(self.peak - self.peak / PEAK_DECAY);
            (self.from, self.bytes) = (now, 0);
            self.number = self.number.wrapping_add(1);
        }
    }

    /// The most bytes of a round trip lately, this one included.
    fn most(&self) -> u64 {
        self.peak.max(self.bytes)
    }
}

/// One connection's part; see the [module](self).
#[derive(Clone, Debug)]
pub(super) struct ReceiveWindow {
    control: Algorithm,
    rtt: RttEstimator,
    cwnd: u32,
    mss: u32,
    received: u64,
    out_of_order: u32,
    segments: u32,
    /// Bytes that did not make a whole packet yet.
    rest: u64,
    rounds: Rounds,
    /// Whether anything was ever lost.
    lost: bool,
    /// What is lost before so many bytes have come in order belongs to the last loss.
    recover: u64,
    /// By how many bytes what arrived was more than what came in order when there was no hole: rounding, and
    /// what came twice.
    surplus: i64,
    /// Bytes that arrived behind a hole.
    behind_hole: u64,
    /// The window that was given last.
    advertised: Option<u64>,
}

impl ReceiveWindow {
    pub(super) fn new(control: Algorithm) -> Self {
        Self {
            cwnd: control.stats(Span::ZERO).cwnd.floor().max(1),
            control,
            rtt: RttEstimator::new(),
            mss: 1_448,
            received: 0,
            out_of_order: 0,
            segments: 0,
            rest: 0,
            rounds: Rounds::default(),
            lost: false,
            recover: 0,
            surplus: 0,
            behind_hole: 0,
            advertised: None,
        }
    }

    /// Smoothed round-trip time; zero before the first sample.
    pub(super) const fn srtt(&self) -> Span {
        self.rtt.srtt()
    }
    /// The controller's window in packets.
    pub(super) const fn cwnd(&self) -> u32 {
        self.cwnd
    }
    /// The window that the connection may advertise; none if it was never bounded.
    pub(super) const fn advertised(&self) -> Option<u64> {
        self.advertised
    }

    /// What it publishes for its siblings; without weight unless it `counts`.
    pub(super) fn member(&self, counts: bool) -> SubflowStats {
        self.control.stats(if counts { self.rtt.srtt() } else { Span::ZERO })
    }

    /// Takes a sample; first of all what it needs to be a member of its group.
    pub(super) fn on_rtt(&mut self, now: Time, sample: &TcpSample) {
        if sample.rtt > Span::ZERO {
            self.rtt.sample(now, sample.rtt);
        }
        self.mss = sample.mss.clamp(MSS_BYTES.0, MSS_BYTES.1);
        if sample.received_bytes < self.received || sample.out_of_order < self.out_of_order {
            // Another connection: it counts from zero.
            (self.received, self.out_of_order, self.segments) = (0, 0, 0);
            (self.recover, self.surplus, self.behind_hole) = (0, 0, 0);
        }
    }

    /// Feeds the controller with what came since the last sample.
    pub(super) fn on_sample(&mut self, now: Time, sample: &TcpSample, group: &Group<'_>) {
        let before = std::mem::replace(&mut self.received, sample.received_bytes);
        let seen = std::mem::replace(&mut self.out_of_order, sample.out_of_order);
        let segments = std::mem::replace(&mut self.segments, sample.segments);
        if !self.rtt.has_sample() {
            return;
        }
        let mss = u64::from(self.mss);
        let new = self.received.saturating_sub(before);
        self.rest = self.rest.saturating_add(new);
        let acked = u32::try_from(self.rest / mss).unwrap_or(u32::MAX);
        self.rest %= mss;
        let arrived = u64::from(sample.segments.saturating_sub(segments)) * mss;
        self.rounds.count(now, if sample.segments > 0 { arrived } else { new }, &self.rtt);
        let srtt = self.rtt.srtt();
        let out_of_order = seen < sample.out_of_order;
        // A sample that tells of bytes beyond the mark may tell of disorder before it.
        if out_of_order && before >= self.recover {
            self.on_loss(&CongestionEvent { now, cause: CongestionCause::Loss, srtt }, group);
        }
        self.count_behind_hole(new > 0 && !out_of_order);
        if acked > 0 {
            let ack = Ack {
                now,
                acked,
                round: self.rounds.number,
                srtt,
                rtt: self.rtt.latest(),
                min_rtt: self.rtt.min(),
                cwnd_limited: self.is_window_limited(),
                recovering: self.received < self.recover,
            };
            self.cwnd = self.control.on_ack(&ack, group).max(1);
        }
    }

    /// Something is lost.
    fn on_loss(&mut self, event: &CongestionEvent, group: &Group<'_>) {
        let (mss, peak) = (u64::from(self.mss), self.rounds.most());
        let most = self.advertised.unwrap_or(WINDOW_LIFTED_BYTES).min(peak.saturating_mul(2));
        self.recover = self.received + most.max(SEGMENTS_MIN * mss);
        self.lost = true;
        // In slow start what is on its way is twice what arrived in the round trip before.
        let flight = if self.is_slow_start() { peak.saturating_mul(2) } else { peak + peak / 4 } / mss;
        let flight = u32::try_from(flight).unwrap_or(u32::MAX).max(1);
        if flight < self.cwnd {
            self.control.set_window(flight, Some(flight));
        }
        self.cwnd = self.control.on_congestion(event, group).max(1);
    }

    /// Counts what arrived behind a hole; `smooth` if there is none.
    fn count_behind_hole(&mut self, smooth: bool) {
        let arrived = i64::from(self.segments) * i64::from(self.mss);
        let surplus = arrived.saturating_sub_unsigned(self.received);
        if smooth {
            self.surplus = surplus;
        }
        // No more than was on its way, however packets were counted.
        let most = self.recover.saturating_sub(self.received).saturating_mul(2);
        let behind_hole = u64::try_from(surplus.saturating_sub(self.surplus)).unwrap_or(0);
        self.behind_hole = if self.segments == 0 { 0 } else { behind_hole.min(most) };
    }

    fn is_slow_start(&self) -> bool {
        self.control.stats(Span::ZERO).slow_start
    }

    /// Whether the window is what bounds the sender. What is in flight is that of the last round trip, in
    /// which the window was smaller: by half in slow start.
    fn is_window_limited(&self) -> bool {
        let window = u64::from(self.cwnd) * u64::from(self.mss);
        self.rounds.flight.max(self.rounds.bytes)
            >= if self.is_slow_start() { window / 3 } else { window / 4 * 3 }
    }

    /// The window to give now, if it has moved enough.
    pub(super) fn update(&mut self, alone: bool) -> Option<u64> {
        let window = if alone && !self.control.yields() {
            self.advertised?;
            WINDOW_LIFTED_BYTES
        } else {
            let mss = u64::from(self.mss);
            // A scavenger bounds its sender's slow start too.
            let yields = self.control.yields();
            let least = match (yields, self.lost) {
                (true, _) => SEGMENTS_MIN_YIELDING * mss,
                (false, true) => SEGMENTS_MIN * mss,
                (false, false) => WINDOW_INITIAL_BYTES,
            };
            let times = if self.is_slow_start() && !yields { 2 } else { 1 };
            (times * u64::from(self.cwnd) * mss + self.behind_hole).clamp(least, WINDOW_LIFTED_BYTES)
        };
        if self.advertised.is_some_and(|advertised| advertised.abs_diff(window) < (advertised / STEP).max(1))
        {
            return None;
        }
        self.advertised = Some(window);
        Some(window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive_window() -> ReceiveWindow {
        ReceiveWindow::new(Algorithm::by_name("cubic-coupled+standard").expect("it is there"))
    }

    /// Milliseconds of a tick of the model.
    const TICK_MS: u64 = 5;
    const BASE_MS: u64 = 20;

    /// A link that carries `rate` packets a tick, with room for `room` in its queue.
    struct Link {
        rate: f64,
        room: f64,
        queue: f64,
    }

    /// A sender over a link: a TCP, and what its receiver allows.
    struct ModelFlow {
        link: usize,
        tcp: Algorithm,
        cwnd: f64,
        /// Until when what is lost is of one loss, and what may be sent is not more than that after it.
        recovering: Time,
        receiver: Option<ReceiveWindow>,
        window: f64,
        got: f64,
        out_of_order: u32,
    }

    /// What each flow gets of the links in packets, from the middle of so many `ticks` on. A model of rates:
    /// a flow sends its window in a round trip, and one of those that send into a full queue, in turn by what
    /// they send, loses something and sees that a round trip later.
    fn model(links: &mut [Link], flows: &mut [ModelFlow], ticks: u64) -> Vec<f64> {
        let (mut now, mut turn) = (Time::ZERO, 0.0_f64);
        let mut half = Vec::new();
        let rtt_of = |link: &Link| (BASE_MS as f64 + link.queue / link.rate * TICK_MS as f64) / 1e3;
        for tick in 0..ticks {
            now += Span::from_millis(TICK_MS);
            if tick == ticks / 2 {
                half = flows.iter().map(|flow| flow.got).collect();
            }
            for (l, link) in links.iter_mut().enumerate() {
                let rtt = rtt_of(link);
                let sends = |flow: &ModelFlow| flow.cwnd.min(flow.window) * TICK_MS as f64 / 1e3 / rtt;
                let all: f64 = flows.iter().filter(|flow| flow.link == l).map(sends).sum();
                let carried = link.rate.min(link.queue + all);
                link.queue += all - carried;
                let full = link.queue > link.room;
                link.queue = link.queue.min(link.room);
                let srtt = Span::from_nanos((rtt_of(link) * 1e9) as u64);
                turn = (turn + 0.618_034).fract();
                let mut before = 0.0;
                for p in (0..flows.len()).filter(|p| flows[*p].link == l).collect::<Vec<_>>() {
                    let part = sends(&flows[p]) / all;
                    let hit = full && (before..before + part).contains(&turn);
                    before += part;
                    step(flows, p, now, srtt, carried * part, hit);
                }
            }
        }
        flows.iter().zip(half).map(|(flow, half)| flow.got - half).collect()
    }

    /// Something of a flow arrives.
    fn step(flows: &mut [ModelFlow], p: usize, now: Time, srtt: Span, got: f64, hit: bool) {
        let members: Vec<_> = flows
            .iter()
            .map(|flow| flow.receiver.as_ref().map_or(SubflowStats::default(), |r| r.member(true)))
            .collect();
        let flow = &mut flows[p];
        let packets = (flow.got + got) as u64 - flow.got as u64;
        flow.got += got;
        let alone = Group { members: &[], me: 0 };
        if hit && now >= flow.recovering {
            flow.recovering = now + srtt;
            flow.cwnd = flow
                .tcp
                .on_congestion(&CongestionEvent { now, cause: CongestionCause::Loss, srtt }, &alone)
                .into();
            flow.out_of_order += 1;
        }
        if packets > 0 {
            let ack = Ack {
                now,
                acked: packets as u32,
                round: 0,
                srtt,
                rtt: srtt,
                min_rtt: Span::from_millis(BASE_MS),
                cwnd_limited: flow.cwnd <= flow.window,
                recovering: now < flow.recovering,
            };
            flow.cwnd = flow.tcp.on_ack(&ack, &alone).into();
        }
        let (received_bytes, segments) = (flow.got as u64 * 1_448, flow.got as u32);
        let sample =
            TcpSample { rtt: srtt, mss: 1_448, received_bytes, out_of_order: flow.out_of_order, segments };
        if let Some(receiver) = &mut flow.receiver {
            receiver.on_rtt(now, &sample);
            receiver.on_sample(now, &sample, &Group { members: &members, me: p });
            if let Some(bytes) = receiver.update(false) {
                flow.window = bytes as f64 / 1_448.0;
            }
        }
    }

    fn flow(link: usize, tcp: &str, receiver: Option<&str>) -> ModelFlow {
        ModelFlow {
            link,
            tcp: Algorithm::by_name(tcp).expect("it is there"),
            cwnd: 10.0,
            recovering: Time::ZERO,
            receiver: receiver.map(|name| ReceiveWindow::new(Algorithm::by_name(name).expect("it is there"))),
            window: if receiver.is_some() { 45.0 } else { f64::MAX },
            got: 0.0,
            out_of_order: 0,
        }
    }

    /// A link of `mbit` Mbit/s with a queue of so many products.
    fn link(mbit: f64, products: f64) -> Link {
        let rate = mbit * 1e3 / 8.0 / 1_500.0 * TICK_MS as f64;
        Link { rate, room: rate * (BASE_MS / TICK_MS) as f64 * products, queue: 0.0 }
    }

    const TICKS: u64 = 60_000 / TICK_MS;

    /// What part of links of their own is used by coupled connections.
    fn used(mbits: &[f64], products: f64, tcp: &str, receiver: &str) -> f64 {
        let mut links: Vec<_> = mbits.iter().map(|mbit| link(*mbit, products)).collect();
        let mut flows: Vec<_> = (0..links.len()).map(|l| flow(l, tcp, Some(receiver))).collect();
        let got: f64 = model(&mut links, &mut flows, TICKS).iter().sum();
        got / (links.iter().map(|link| link.rate).sum::<f64>() * (TICKS / 2) as f64)
    }

    /// What a connection of its own keeps of a link of 100 Mbit/s beside three that are coupled.
    fn kept(tcp: &str, receiver: Option<&str>) -> f64 {
        let mut flows = vec![flow(0, tcp, None)];
        flows.extend((0..3).map(|_| flow(0, tcp, receiver)));
        let got = model(&mut [link(100.0, 1.0)], &mut flows, TICKS);
        got[0] / got.iter().sum::<f64>()
    }

    #[test]
    fn links_of_their_own_are_used() {
        for tcp in ["cubic", "reno"] {
            for mbits in [[100.0; 3], [100.0, 50.0, 10.0]] {
                let (half, cubic) = ("lia+standard", "cubic-coupled+standard");
                assert!(used(&mbits, 1.0, tcp, cubic) >= 0.995);
                // With half a product a window that was halved leaves the link idle until it has grown.
                let (before, after) = (used(&mbits, 0.5, tcp, half), used(&mbits, 0.5, tcp, cubic));
                assert!(before <= 0.975 && after >= 0.98, "{tcp} {mbits:?}: {before} before, {after} after");
            }
        }
    }

    /// One victim a time is the hardest on the other: in the laboratory it keeps far more, see
    /// docs/measurements/mirrors.md.
    #[test]
    fn another_keeps_more_of_a_link_than_beside_three_that_are_not_coupled() {
        for tcp in ["cubic", "reno"] {
            let (alone, coupled) = (kept(tcp, None), kept(tcp, Some("cubic-coupled+standard")));
            assert!((0.2..=0.28).contains(&alone), "{tcp}: {alone} beside three");
            assert!(
                coupled >= 0.3 && coupled >= alone + 0.04,
                "{tcp}: {coupled} beside three that are coupled"
            );
        }
    }

    /// What `connections` connections of a group get of a link of `link` packets a round trip which lets a
    /// window in flight through, but for one loss when all together send more than it takes.
    fn rounds(connections: usize, link: u64, rounds: u64) -> u64 {
        let mut group: Vec<_> = (0..connections).map(|_| (receive_window(), 0_u64, 0_u32)).collect();
        let mut now = Time::ZERO;
        let mut sum = 0;
        for round in 0..rounds {
            now += Span::from_millis(50);
            let total: u64 = group.iter().map(|(receiver, ..)| u64::from(receiver.cwnd)).sum();
            let victim = (round as usize) % connections;
            for p in 0..connections {
                let (receiver, received, out_of_order) = &mut group[p];
                *received += u64::from(receiver.cwnd) * 1_448;
                *out_of_order += u32::from(total > link && (p == victim || connections == 1));
                let sample = TcpSample {
                    rtt: Span::from_millis(50),
                    mss: 1_448,
                    received_bytes: *received,
                    out_of_order: *out_of_order,
                    segments: 0,
                };
                receiver.on_rtt(now, &sample);
                let members: Vec<_> = group.iter().map(|(receiver, ..)| receiver.member(true)).collect();
                group[p].0.on_sample(now, &sample, &Group { members: &members, me: p });
            }
            if round > rounds / 2 {
                sum += total;
            }
        }
        sum / (rounds / 2)
    }

    #[test]
    fn windows_follow_losses_and_siblings() {
        let (one, three) = (rounds(1, 100, 4_000), rounds(3, 100, 4_000));
        assert!((70..=101).contains(&one), "{one}");
        assert!((60..=105).contains(&three), "three take together about what one does: {three}");
    }

    /// A connection in mid-life: a window of about `cwnd` packets of 1,000 bytes, which arrive each 50 ms.
    fn steady(cwnd: u32) -> (ReceiveWindow, TcpSample, Time) {
        let mut receiver = receive_window();
        receiver.control.set_window(cwnd, Some(cwnd));
        let rtt = Span::from_millis(50);
        let (mut sample, mut now) = (TcpSample { rtt, mss: 1_000, ..TcpSample::default() }, Time::ZERO);
        for _ in 0..6 {
            now += rtt;
            sample.segments += cwnd;
            sample.received_bytes += u64::from(cwnd) * 1_000;
            receiver.on_rtt(now, &sample);
            receiver.on_sample(now, &sample, &ALONE);
            receiver.update(false);
        }
        assert!((cwnd..=cwnd + 12).contains(&receiver.cwnd()), "{}", receiver.cwnd());
        (receiver, sample, now)
    }

    const ALONE: Group<'static> = Group { members: &[], me: 0 };

    /// As traced of one lost packet: while the hole is there nothing can be read, and once it is filled the
    /// kernel has counted all that came behind it, more than a round trip later.
    #[test]
    fn a_hole_is_one_loss_at_both_of_its_ends() {
        let (mut receiver, mut sample, mut now) = steady(100);
        let before = receiver.cwnd();
        for (ms, bytes, out_of_order) in [(50, 50_000, 1), (75, 50_000, 99), (5, 50_000, 1)] {
            now += Span::from_millis(ms);
            sample.received_bytes += bytes;
            sample.segments += 100;
            sample.out_of_order += out_of_order;
            receiver.on_rtt(now, &sample);
            receiver.on_sample(now, &sample, &ALONE);
        }
        assert!(
            (before * 7 / 10 - 1..=before * 7 / 10 + 1).contains(&receiver.cwnd()),
            "{}",
            receiver.cwnd()
        );
        // The next one counts.
        let before = receiver.cwnd();
        for out_of_order in [0, 1] {
            now += Span::from_millis(50);
            sample.received_bytes += 150_000;
            sample.segments += 150;
            sample.out_of_order += out_of_order;
            receiver.on_rtt(now, &sample);
            receiver.on_sample(now, &sample, &ALONE);
        }
        assert!(receiver.cwnd() < before, "{} of {before}", receiver.cwnd());
    }

    #[test]
    fn what_arrives_behind_a_hole_is_added_to_the_window() {
        let (mut receiver, mut sample, mut now) = steady(100);
        let mut look = |receiver: &mut ReceiveWindow, bytes: u64, segments: u32, out_of_order: u32| {
            now += Span::from_millis(10);
            sample.received_bytes += bytes;
            sample.segments += segments;
            sample.out_of_order += out_of_order;
            receiver.on_rtt(now, &sample);
            receiver.on_sample(now, &sample, &ALONE);
            receiver.update(false);
            receiver.advertised().expect("it was given") - u64::from(receiver.cwnd()) * 1_000
        };
        assert_eq!(look(&mut receiver, 0, 20, 20), 20_000);
        assert_eq!(look(&mut receiver, 0, 40, 40), 60_000);
        assert_eq!(
            look(&mut receiver, 0, 4_000_000, 1),
            2 * receiver.recover.saturating_sub(600_000),
            "bounded"
        );
        assert_eq!(look(&mut receiver, 4_000_060_000, 1, 0), 0, "it is filled");
    }

    #[test]
    fn a_window_that_bounds_nobody_is_cut_from_what_was_on_its_way() {
        let (mut receiver, mut sample, now) = steady(100);
        receiver.control.set_window(1_000, Some(1_000));
        receiver.cwnd = 1_000;
        sample.out_of_order += 1;
        receiver.on_sample(now + Span::from_millis(10), &sample, &ALONE);
        // 100 and a quarter.
        assert!((84..=88).contains(&receiver.cwnd()), "{}", receiver.cwnd());
    }

    #[test]
    fn disorder_within_a_round_trip_is_one_loss() {
        let mut receiver = receive_window();
        let mut sample = TcpSample { rtt: Span::from_millis(50), mss: 1_000, ..TcpSample::default() };
        let mut now = Time::ZERO;
        for _ in 0..5 {
            now += Span::from_millis(50);
            sample.received_bytes += u64::from(receiver.cwnd()) * 1_000;
            receiver.on_rtt(now, &sample);
            receiver.on_sample(now, &sample, &Group { members: &[], me: 0 });
        }
        let before = receiver.cwnd();
        assert!(before >= 100, "slow start: {before}");
        for _ in 0..5 {
            now += Span::from_millis(10);
            sample.out_of_order += 3;
            receiver.on_rtt(now, &sample);
            receiver.on_sample(now, &sample, &Group { members: &[], me: 0 });
        }
        assert!(
            (before * 7 / 10 - 1..=before * 7 / 10).contains(&receiver.cwnd()),
            "cut once: {}",
            receiver.cwnd()
        );
    }

    #[test]
    fn windows_are_given_when_they_have_moved() {
        let mut receiver = receive_window();
        assert_eq!(receiver.update(true), None, "alone, there is nothing to lift");
        assert_eq!(receiver.update(false), Some(WINDOW_INITIAL_BYTES));
        assert_eq!(receiver.update(false), None);
        receiver.cwnd = 25;
        assert_eq!(receiver.update(false), Some(50 * 1_448), "twice as much in slow start");
        receiver.control.set_window(50, Some(50));
        receiver.cwnd = 50;
        assert_eq!(receiver.update(false), None, "the same once that is over");
        receiver.cwnd = 53;
        assert_eq!(receiver.update(false), None, "less than a sixteenth");
        (receiver.cwnd, receiver.lost) = (1, true);
        assert_eq!(receiver.update(false), Some(4 * 1_448), "four segments at least");
        assert_eq!(receiver.update(true), Some(WINDOW_LIFTED_BYTES));
        assert_eq!(receiver.update(true), None);
    }

    #[test]
    fn a_scavenger_is_bounded_from_the_start_and_also_alone() {
        let control = Algorithm::by_name("ledbat-pp").expect("it is there");
        let mut receiver = ReceiveWindow::new(control);
        let initial = u64::from(receiver.cwnd()) * 1_448;
        assert!(initial < WINDOW_INITIAL_BYTES);
        assert_eq!(
            receiver.update(true),
            Some(initial),
            "its own window, not TCP's largest, nor twice of it"
        );
        receiver.cwnd = 1;
        assert_eq!(receiver.update(true), Some(2 * 1_448), "two segments at least");
        receiver.lost = true;
        assert_eq!(receiver.update(false), None, "after a loss too");
    }
}
