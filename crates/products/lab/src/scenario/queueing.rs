//! Defines the keys of a link's queue discipline.

use serde::{Deserialize, Serialize};

use super::units::{Duration, SizeSpec, probability};

/// The queue discipline of a link: one of these at most. Without one, the queue drops what finds it full.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Queueing {
    /// Drops packets at random near the end of the queue, as htsim's RandomQueue.
    pub random: Option<Random>,
    /// CoDel (RFC 8289), or FQ-CoDel (RFC 8290).
    pub codel: Option<Codel>,
    /// PIE (RFC 8033).
    pub pie: Option<Pie>,
    /// RED (Floyd, Jacobson 1993), gentle.
    pub red: Option<Red>,
    /// Congestion events that hit chosen flows (Thomas, dissertation, Fig. 4.9).
    pub victims: Option<TargetedDrop>,
}

impl Queueing {
    /// Returns the keys of the disciplines that are set.
    pub(crate) fn keys(&self) -> Vec<&'static str> {
        let all = [
            ("random", self.random.is_some()),
            ("codel", self.codel.is_some()),
            ("pie", self.pie.is_some()),
            ("red", self.red.is_some()),
            ("victims", self.victims.is_some()),
        ];
        all.into_iter().filter(|(_, is)| *is).map(|(key, _)| key).collect()
    }

    /// Whether the discipline marks packets (ECN) that can carry a mark.
    #[must_use]
    pub fn marks(&self) -> bool {
        self.codel.as_ref().is_some_and(|codel| codel.mark)
            || self.pie.as_ref().is_some_and(|pie| pie.mark)
            || self.red.as_ref().is_some_and(|red| red.mark)
    }
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

/// RED's parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Red {
    /// Average queue up to which nothing is dropped; a time means the bytes that the link sends in it.
    pub min: SizeSpec,
    /// Average queue at which packets are dropped with the probability `drop`. It is certain at twice this.
    pub max: SizeSpec,
    /// Probability of a drop at `max`.
    #[serde(deserialize_with = "probability")]
    pub drop: f64,
    /// Weight of each arrival in the average.
    #[serde(deserialize_with = "probability")]
    pub weight: f64,
    /// Whether packets are marked instead of dropped, while the average is below `max`.
    pub mark: bool,
}

impl Default for Red {
    fn default() -> Self {
        Self {
            min: SizeSpec::Time(anabranch_algo::Span::from_millis(5)),
            max: SizeSpec::Time(anabranch_algo::Span::from_millis(15)),
            drop: 0.1,
            weight: 0.002,
            mark: false,
        }
    }
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
