//! The receiver of a flow that steers its sender between WiFi access points, by the decisions of
//! [`anabranch_algo::wifi`].
//!
//! Every [`SENSE_EVERY`] the receiver looks at the frames that have come: their bit rate, retry bits and
//! sequence numbers give the packet time of each access point. An access point from which no frame came
//! lately keeps its last packet time, or that of its rate before the first frame; one that is out of range
//! has none. The shortest round-trip time of the path is that of its subflow. From these the receiver decides
//! the share of packets that it marks, or which paths are backup paths.
//!
//! A receiver that can have only one association goes by beacons, and is without any while it moves. The
//! other access points keep the packets that they have for it.

use anabranch_algo::wifi::{
    Airtime, ApState, BeaconHandover, FrameWindow, MarkingRule, PacketTime, Probability,
};
use anabranch_algo::{Rate, Span, SplitMix64, Time};
use anabranch_sim::{Frame, LinkId};

use crate::scenario::Steering;

/// The time between two looks at the access points, which is about that between two beacons of one.
const SENSE_EVERY: Span = Span::from_millis(100);
/// The time for which each path is in use with [`Steering::OnOff`].
const TURN: Span = Span::from_millis(200);
/// The time that a new association takes, with its address and its subflow.
const ASSOCIATION: Span = Span::from_secs(1);

/// The access point of a path.
#[derive(Clone, Copy, Debug)]
pub struct AccessPoint {
    /// The link by which it sends.
    pub link: LinkId,
    /// The number of its channel.
    pub channel: u16,
    /// The most retries of a packet.
    pub retries: u32,
}

/// The access points of a flow's paths, and what its receiver does about them.
#[derive(Clone, Debug)]
pub struct SteeringConfig {
    /// The means by which the receiver steers.
    pub steering: Steering,
    /// The access point of each path; `None` for a path without one.
    pub access_points: Vec<Option<AccessPoint>>,
    /// The seed of the marks.
    pub seed: u64,
}

/// The decision for one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Decision {
    mark: Probability,
    backup: bool,
    /// Whether the receiver has no association, so that the path carries nothing at all.
    off: bool,
}

/// The state of the receiver.
#[derive(Clone, Debug)]
pub(super) struct Receiver {
    config: SteeringConfig,
    rule: MarkingRule,
    packet_bytes: u16,
    frames: FrameWindow,
    /// The bit rate of the latest frame of each path.
    rates: Vec<Option<Rate>>,
    packet_times: Vec<Option<PacketTime>>,
    decisions: Vec<Decision>,
    handover: BeaconHandover,
    /// The time from which the current association holds.
    associated: Time,
    rng: SplitMix64,
}

/// What a receiver hears of the access point of a path.
pub(super) struct Heard<'a> {
    /// The bit rate of the access point; `None` if it is out of range.
    pub(super) rate: Option<Rate>,
    /// All frames that it has sent since the last look.
    pub(super) frames: &'a [Frame],
    /// The number by which frames know the path.
    pub(super) subflow: u32,
    /// The shortest round-trip time of the path.
    pub(super) rtt_min: Span,
}

/// What follows from a look.
pub(super) struct Sensed {
    /// The time of the next look.
    pub(super) next: Time,
    /// Whether a path may send that could not before.
    pub(super) woken: bool,
    /// The links whose access points may send to the receiver from now on, and those that may not.
    pub(super) switched: Vec<(LinkId, bool)>,
}

impl Receiver {
    pub(super) fn new(config: &SteeringConfig, packet_bytes: u16) -> Self {
        let paths = config.access_points.len();
        let mut frames = FrameWindow::new();
        for _ in 0..paths {
            frames.add();
        }
        Self {
            rule: MarkingRule::default(),
            packet_bytes,
            frames,
            rates: vec![None; paths],
            packet_times: vec![None; paths],
            decisions: vec![Decision::default(); paths],
            handover: BeaconHandover::new(),
            associated: Time::ZERO,
            rng: SplitMix64(config.seed),
            config: config.clone(),
        }
    }

    /// Returns the link of the access point of a path.
    pub(super) fn link(&self, path: usize) -> Option<LinkId> {
        self.access_point(path).map(|ap| ap.link)
    }

    fn access_point(&self, path: usize) -> Option<AccessPoint> {
        self.config.access_points.get(path).copied().flatten()
    }

    /// Looks at what is heard of the access point of each path.
    pub(super) fn sense(&mut self, now: Time, heard: &[Heard<'_>]) -> Sensed {
        let before = self.decisions.clone();
        let mut sensed = Sensed { next: now + SENSE_EVERY, woken: false, switched: Vec::new() };
        match self.config.steering {
            Steering::None => {}
            Steering::Marks | Steering::Backup => self.compare(now, heard),
            Steering::OnOff => {
                let turn = now.as_nanos() / TURN.as_nanos() % heard.len().max(1) as u64;
                let paths = self.decisions.iter_mut().enumerate();
                paths.for_each(|(path, decision)| decision.backup = path as u64 != turn);
            }
            Steering::Handover => {
                self.hear_beacons(now, heard);
                let changed = before.iter().zip(&self.decisions).enumerate();
                let changed = changed.filter(|(_, (old, new))| old.off != new.off);
                sensed.switched =
                    changed.filter_map(|(path, (_, new))| Some((self.link(path)?, !new.off))).collect();
            }
        }
        let may = |decision: &Decision| !decision.backup && !decision.off;
        sensed.woken = before.iter().zip(&self.decisions).any(|(old, new)| !may(old) && may(new));
        sensed
    }

    /// Compares the access points by their packet times.
    fn compare(&mut self, now: Time, heard: &[Heard<'_>]) {
        let aps: Vec<ApState> = heard
            .iter()
            .enumerate()
            .map(|(path, heard)| ApState {
                packet_time: self.packet_time(now, path, heard),
                rtt_min: heard.rtt_min,
                channel: self.access_point(path).map_or(0, |ap| ap.channel),
            })
            .collect();
        if self.config.steering == Steering::Backup {
            for (path, decision) in self.decisions.iter_mut().enumerate() {
                decision.backup = self.rule.is_inefficient(&aps, path);
            }
        } else {
            for (decision, rate) in self.decisions.iter_mut().zip(self.rule.rates(&aps)) {
                decision.mark = rate;
            }
        }
    }

    /// Returns the packet time of the access point of a path; `None` if it is out of range.
    fn packet_time(&mut self, now: Time, path: usize, heard: &Heard<'_>) -> Option<PacketTime> {
        for frame in heard.frames.iter().filter(|frame| frame.flow == Some(heard.subflow)) {
            self.frames.record(frame.at, path, frame.sequence, frame.retry);
            self.rates[path] = frame.rate;
        }
        self.frames.expire(now);
        let Some(rate) = heard.rate else {
            self.packet_times[path] = None;
            return None;
        };
        let delivery = self.frames.counts(path).delivery();
        if let Some(delivery) = delivery.or(self.packet_times[path].is_none().then_some(Probability::ONE)) {
            let airtime = Airtime {
                packet_bytes: self.packet_bytes.into(),
                rate: self.rates[path].unwrap_or(rate),
                // What the radio adds to a frame is part of the rate of a link.
                overhead: Span::ZERO,
                contention: Span::ZERO,
                retries: self.access_point(path).map_or(0, |ap| ap.retries),
            };
            self.packet_times[path] = Some(airtime.packet_time(delivery.complement()));
        }
        self.packet_times[path]
    }

    /// Hears one beacon of each access point in range, and moves to another one if they say so.
    fn hear_beacons(&mut self, now: Time, heard: &[Heard<'_>]) {
        let in_range = heard.iter().enumerate().filter(|(_, heard)| heard.rate.is_some());
        let first = self.handover.current().is_none();
        let handover = &mut self.handover;
        let moved = in_range.fold(false, |moved, (ap, _)| handover.beacon(now, ap).is_some() || moved);
        if moved && !first {
            self.associated = now + ASSOCIATION;
        }
        for (path, decision) in self.decisions.iter_mut().enumerate() {
            decision.off = now < self.associated || self.handover.current() != Some(path);
        }
    }

    /// Whether the receiver marks the packet that has just arrived on a path.
    pub(super) fn marks(&mut self, path: usize) -> bool {
        let mark = self.decisions.get(path).map_or(Probability::ZERO, |decision| decision.mark);
        mark > Probability::ZERO && mark.happens(self.rng.bits())
    }

    /// Whether a path is a backup path.
    pub(super) fn is_backup(&self, path: usize) -> bool {
        self.decisions.get(path).is_some_and(|decision| decision.backup)
    }

    /// Whether a path carries nothing, because the receiver has no association there.
    pub(super) fn is_off(&self, path: usize) -> bool {
        self.decisions.get(path).is_some_and(|decision| decision.off)
    }
}
