//! Defines the keys of a link.

use std::fmt;

use serde::de::{DeserializeSeed, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::queueing::Queueing;
use super::trace_file::TraceFile;
use super::units::{Duration, RateSpec, SizeSpec, probability};

/// One direction of a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Link {
    /// Rate. Default: unlimited.
    pub rate: Option<RateSpec>,
    /// Propagation delay.
    pub delay: Duration,
    /// Extra delay of each packet, uniform from 0 to this; never reorders.
    pub jitter: Duration,
    /// Size of the queue; a time means the bytes that the link sends in it. Default: 1,000 packets.
    pub queue: Option<SizeSpec>,
    /// What the queue does before it is full.
    #[serde(flatten)]
    pub queueing: Queueing,
    /// Marks packets (ECN) that arrive while more than this is queued.
    pub mark_above: Option<SizeSpec>,
    /// Probability of random loss of each packet: 0.01, or `"1 %"`.
    pub loss: f64,
    /// Losses in bursts.
    pub gilbert: Option<Gilbert>,
    /// Numbers of packets to drop, from 1 in the order in which they come to this link.
    pub drop: Vec<u64>,
    /// Data packets of a flow to drop.
    pub drop_of: Vec<DropOf>,
    /// Probability that a packet arrives twice.
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
        self.mark_above.is_some() || self.queueing.marks()
    }
}

/// The keys of a link, those of its [`Queueing`] among them.
const KEYS: &[&str] = &[
    "rate",
    "delay",
    "jitter",
    "queue",
    "random",
    "codel",
    "pie",
    "red",
    "victims",
    "mark_above",
    "loss",
    "gilbert",
    "drop",
    "drop_of",
    "duplicate",
    "reorder",
    "trace",
    "medium",
    "radio",
];

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

/// A receiver of a station: the far end of a flow's path.
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

/// Reads a link. The keys of [`Queueing`] stand among the others, and none but `KEYS` is allowed: serde's
/// `flatten` cannot tell which keys there are.
impl<'de> Deserialize<'de> for Link {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_struct("Link", KEYS, LinkVisitor)
    }
}

struct LinkVisitor;

impl<'de> Visitor<'de> for LinkVisitor {
    type Value = Link;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table with the keys of a link")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Link, A::Error> {
        let mut link = Link::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "rate" => link.rate = map.next_value()?,
                "delay" => link.delay = map.next_value()?,
                "jitter" => link.jitter = map.next_value()?,
                "queue" => link.queue = map.next_value()?,
                "random" => link.queueing.random = map.next_value()?,
                "codel" => link.queueing.codel = map.next_value()?,
                "pie" => link.queueing.pie = map.next_value()?,
                "red" => link.queueing.red = map.next_value()?,
                "victims" => link.queueing.victims = map.next_value()?,
                "mark_above" => link.mark_above = map.next_value()?,
                "loss" => link.loss = map.next_value_seed(ProbabilitySeed)?,
                "gilbert" => link.gilbert = map.next_value()?,
                "drop" => link.drop = map.next_value()?,
                "drop_of" => link.drop_of = map.next_value()?,
                "duplicate" => link.duplicate = map.next_value_seed(ProbabilitySeed)?,
                "reorder" => link.reorder = map.next_value()?,
                "trace" => link.trace = map.next_value()?,
                "medium" => link.medium = map.next_value()?,
                "radio" => link.radio = map.next_value()?,
                other => return Err(A::Error::unknown_field(other, KEYS)),
            }
        }
        Ok(link)
    }
}

/// Reads a probability, as [`probability`] does.
struct ProbabilitySeed;

impl<'de> DeserializeSeed<'de> for ProbabilitySeed {
    type Value = f64;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<f64, D::Error> {
        probability(from)
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
