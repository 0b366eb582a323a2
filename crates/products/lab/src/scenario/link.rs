//! Defines the keys of a link.

use serde::{Deserialize, Serialize};

use super::trace_file::TraceFile;
use super::units::{Duration, RateSpec, SizeSpec, probability};

/// One direction of a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Link {
    /// Rate. Default: unlimited.
    pub rate: Option<RateSpec>,
    /// Propagation delay.
    pub delay: Duration,
    /// Extra delay of each packet, uniform from 0 to this; never reorders.
    pub jitter: Duration,
    /// Size of the queue; a time means the bytes that the link sends in it. Default: 1,000 packets.
    pub queue: Option<SizeSpec>,
    /// Drops packets at random near the end of the queue, as htsim's RandomQueue.
    pub random: Option<Random>,
    /// CoDel (RFC 8289), or FQ-CoDel (RFC 8290).
    pub codel: Option<Codel>,
    /// PIE (RFC 8033).
    pub pie: Option<Pie>,
    /// Congestion events that hit chosen flows (Thomas, dissertation, Fig. 4.9).
    pub victims: Option<TargetedDrop>,
    /// Marks packets (ECN) that arrive while more than this is queued.
    pub mark_above: Option<SizeSpec>,
    /// Probability of random loss of each packet: 0.01, or `"1 %"`.
    #[serde(deserialize_with = "probability")]
    pub loss: f64,
    /// Losses in bursts.
    pub gilbert: Option<Gilbert>,
    /// Numbers of packets to drop, from 1 in the order in which they come to this link.
    pub drop: Vec<u64>,
    /// Data packets of a flow to drop.
    pub drop_of: Vec<DropOf>,
    /// Probability that a packet arrives twice.
    #[serde(deserialize_with = "probability")]
    pub duplicate: f64,
    /// Holds packets back, so that others overtake them.
    pub reorder: Option<Reorder>,
    /// Path, relative to the scenario file, of a trace in mahimahi's format that says when packets may
    /// leave.
    pub trace: Option<TraceFile>,
    /// Name of a shared radio medium: links on it send one at a time.
    pub medium: Option<String>,
    /// How the link contends for the medium, and how often its attempts to send fail.
    pub radio: Option<Radio>,
}

impl Link {
    /// Whether a rate or a trace limits the link, so that it has a queue.
    #[must_use]
    pub const fn is_limited(&self) -> bool {
        self.rate.is_some() || self.trace.is_some()
    }

    /// Whether the link marks packets (ECN) that can carry a mark.
    #[must_use]
    pub fn marks(&self) -> bool {
        let (codel, pie) = (self.codel.as_ref(), self.pie.as_ref());
        self.mark_above.is_some() || codel.is_some_and(|codel| codel.mark) || pie.is_some_and(|pie| pie.mark)
    }
}

/// A station of a medium.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Radio {
    /// Weight in the contention.
    pub weight: u32,
    /// Probability that an attempt fails. Each retry contends anew, with half the weight.
    #[serde(deserialize_with = "probability")]
    pub loss: f64,
    /// Most retries of a packet, after which it is lost.
    pub retries: u32,
    /// Receivers for which other numbers hold.
    pub receivers: Vec<RadioReceiver>,
}

impl Default for Radio {
    fn default() -> Self {
        Self { weight: 1, loss: 0.0, retries: anabranch_sim::radio::RETRIES, receivers: Vec::new() }
    }
}

/// A receiver of a station: that of a path of a flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RadioReceiver {
    /// Name of the flow.
    pub flow: String,
    /// Number of the path.
    #[serde(default)]
    pub path: usize,
    /// Probability that an attempt fails.
    #[serde(default, deserialize_with = "probability")]
    pub loss: f64,
    /// Rate of frames to it; default: that of the link.
    pub rate: Option<RateSpec>,
}

/// Random early drop in the last packets of a queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Random {
    /// Number of the last places in the queue in which packets may be dropped.
    pub band: u32,
    /// Probability that a packet there is dropped.
    #[serde(deserialize_with = "probability")]
    pub drop: f64,
}

impl Default for Random {
    fn default() -> Self {
        Self { band: 3, drop: 0.1 }
    }
}

/// CoDel's parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Codel {
    /// Acceptable standing delay.
    pub target: Duration,
    /// Window over which the delay is judged.
    pub interval: Duration,
    /// Whether packets are marked instead of dropped.
    pub mark: bool,
    /// Number of queues for FQ-CoDel: flows are hashed into them, each with a CoDel of its own. 0: one queue
    /// for all flows.
    pub flows: u32,
    /// Most bytes that an FQ-CoDel queue sends before the next queue's turn.
    pub quantum: SizeSpec,
}

impl Default for Codel {
    fn default() -> Self {
        Self {
            target: Duration(anabranch_algo::Span::from_millis(5)),
            interval: Duration(anabranch_algo::Span::from_millis(100)),
            mark: false,
            flows: 0,
            quantum: SizeSpec::Bytes(1_514),
        }
    }
}

/// PIE's parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pie {
    /// Delay that PIE aims at.
    pub target: Duration,
    /// Time after congestion ends in which nothing is dropped.
    pub burst: Duration,
    /// Whether packets are marked instead of dropped, while the drop probability is at most a tenth.
    pub mark: bool,
}

impl Default for Pie {
    fn default() -> Self {
        Self {
            target: Duration(anabranch_algo::Span::from_millis(15)),
            burst: Duration(anabranch_algo::Span::from_millis(150)),
            mark: false,
        }
    }
}

/// Packets that are held back, so that others overtake them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reorder {
    /// Probability that a packet is held back.
    #[serde(deserialize_with = "probability")]
    pub probability: f64,
    /// Time for which it is held back.
    pub by: Duration,
}

/// Congestion events that hit chosen flows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetedDrop {
    /// Rule that selects the flows that lose a packet.
    pub who: VictimPolicy,
    /// An event happens when more packets than this are queued.
    pub above: u32,
    /// Least time between two events.
    pub hold: Duration,
}

/// The rule that selects the subflows that a congestion event hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VictimPolicy {
    /// Every subflow is hit: a global event.
    All,
    /// Each subflow is hit with the probability of its share of the queue.
    Share,
    /// The subflow with most packets queued is hit: a partial event.
    Largest,
}

/// Gilbert–Elliott loss; the probabilities apply to each packet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gilbert {
    /// Probability of a change from the good state to the bad one.
    #[serde(deserialize_with = "probability")]
    pub to_bad: f64,
    /// Probability of a change from the bad state to the good one.
    #[serde(deserialize_with = "probability")]
    pub to_good: f64,
    /// Probability of loss in the good state.
    #[serde(default, deserialize_with = "probability")]
    pub good: f64,
    /// Probability of loss in the bad state.
    #[serde(default = "certain", deserialize_with = "probability")]
    pub bad: f64,
}

fn certain() -> f64 {
    1.0
}

/// A data packet of a flow that is dropped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DropOf {
    /// Name of the flow.
    pub flow: String,
    /// Number of the path.
    #[serde(default)]
    pub path: usize,
    /// Number of the packet among the data packets that come to the link on that path, from 1.
    pub nth: u64,
}
