//! What a scenario may say about a link.

use serde::{Deserialize, Serialize};

use super::trace_file::TraceFile;
use super::units::{Duration, RateSpec, SizeSpec, probability};

/// One direction of a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Link {
    /// Its rate; none: unlimited.
    pub rate: Option<RateSpec>,
    /// Propagation delay.
    pub delay: Duration,
    /// Extra delay of each packet, uniform from 0 to this; never reorders.
    pub jitter: Duration,
    /// What the queue holds; a time means what the link sends in it. Default: 1,000 packets.
    pub queue: Option<SizeSpec>,
    /// Drops at random near the end of the queue, as htsim's RandomQueue.
    pub random: Option<Random>,
    /// CoDel (RFC 8289), or FQ-CoDel (RFC 8290).
    pub codel: Option<Codel>,
    /// PIE (RFC 8033).
    pub pie: Option<Pie>,
    /// Congestion events that hit chosen flows (Thomas, dissertation, Fig. 4.9).
    pub victims: Option<TargetedDrop>,
    /// Mark (ECN) what arrives when more than this is queued.
    pub mark_above: Option<SizeSpec>,
    /// Probability of random loss of each packet: 0.01, or `"1 %"`.
    #[serde(deserialize_with = "probability")]
    pub loss: f64,
    /// Losses in bursts.
    pub gilbert: Option<Gilbert>,
    /// Packets to drop, counted from 1 in the order in which they come to this link.
    pub drop: Vec<u64>,
    /// Data packets of a flow to drop.
    pub drop_of: Vec<DropOf>,
    /// Probability that a packet arrives twice.
    #[serde(deserialize_with = "probability")]
    pub duplicate: f64,
    /// Packets that are held back, so that others overtake them.
    pub reorder: Option<Reorder>,
    /// A trace in mahimahi's format that says when packets may leave; a path beside the scenario file.
    pub trace: Option<TraceFile>,
    /// A shared radio medium, by name: links on it send one at a time.
    pub medium: Option<String>,
    /// Weight in the contention for the medium.
    pub weight: Option<u32>,
}

impl Link {
    /// Whether it sends only so fast, and so has a queue: by a rate or by a trace.
    #[must_use]
    pub const fn is_limited(&self) -> bool {
        self.rate.is_some() || self.trace.is_some()
    }

    /// Whether it marks packets (ECN) that can carry a mark.
    #[must_use]
    pub fn marks(&self) -> bool {
        let (codel, pie) = (self.codel.as_ref(), self.pie.as_ref());
        self.mark_above.is_some() || codel.is_some_and(|codel| codel.mark) || pie.is_some_and(|pie| pie.mark)
    }
}

/// Random early drop in the last packets of a queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Random {
    /// How many of the last packets.
    pub band: u32,
    /// Probability there.
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
    /// Window over which it is judged.
    pub interval: Duration,
    /// Mark instead of dropping.
    pub mark: bool,
    /// FQ-CoDel: flows are hashed into so many queues, each with a CoDel of its own. 0: one queue for all.
    pub flows: u32,
    /// Of FQ-CoDel: what a queue sends at most before it is another's turn.
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
    /// The delay that is aimed at.
    pub target: Duration,
    /// How long nothing is dropped after a time without congestion.
    pub burst: Duration,
    /// Mark instead of dropping, while no more than a tenth would be dropped.
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

/// Packets that are held back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reorder {
    /// The probability that a packet is.
    #[serde(deserialize_with = "probability")]
    pub probability: f64,
    /// For how long.
    pub by: Duration,
}

/// Congestion events that hit chosen flows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetedDrop {
    /// Who loses a packet.
    pub who: VictimPolicy,
    /// An event happens when more packets than this are queued,
    pub above: u32,
    /// and this long after the last.
    pub hold: Duration,
}

/// Whom a congestion event hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VictimPolicy {
    /// Every subflow: a global event.
    All,
    /// Each subflow with the probability of its share of the queue.
    Share,
    /// The subflow with most packets queued: a partial event.
    Largest,
}

/// Gilbert–Elliott loss: probabilities for each packet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gilbert {
    /// Of going from the good state to the bad.
    #[serde(deserialize_with = "probability")]
    pub to_bad: f64,
    /// Of going back.
    #[serde(deserialize_with = "probability")]
    pub to_good: f64,
    /// Of loss in the good state.
    #[serde(default, deserialize_with = "probability")]
    pub good: f64,
    /// Of loss in the bad state.
    #[serde(default = "certain", deserialize_with = "probability")]
    pub bad: f64,
}

fn certain() -> f64 {
    1.0
}

/// A data packet of a flow, to be dropped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DropOf {
    /// Which flow.
    pub flow: String,
    /// Which of its paths.
    #[serde(default)]
    pub path: usize,
    /// Which of the data packets that come to the link on that path, from 1.
    pub nth: u64,
}
