//! The scenario: one struct that is the TOML file, the `--set` flags and whatever else will describe an
//! experiment. Unknown keys are errors; quantities carry their unit (see [`units`]).
//!
//! A scenario is a net of links, flows over them, what goes wrong when, what is measured and what must have
//! happened for the measurement to count. It is run once for each of its `controllers`, `case`s and seeds.
//!
//! ```toml
//! title = "One bottleneck, shared by a flow of two paths and a flow of one"
//! duration = "60 s"
//! count_from = "20 s"
//! seeds = 10
//! controllers = ["nmcc", "lia", "reno"]
//!
//! [link.bottleneck]
//! rate = "20 Mbit/s"
//! queue = "50 ms"
//!
//! [flow.mp]
//! paths = [{ via = ["bottleneck"], rtt = "50 ms" }, { via = ["bottleneck"], rtt = "50 ms" }]
//!
//! [flow.sp]
//! paths = [{ via = ["bottleneck"], rtt = "50 ms" }]
//!
//! [[measure]]
//! metric = "mp_share"
//! kind = "share"
//! flows = ["mp"]
//! expect = { nmcc = "47..53" }
//!
//! [[assert]]
//! what = "drops"
//! link = "bottleneck"
//! at_least = 10
//! ```

mod arrivals;
pub mod built_in;
pub mod check;
pub mod error;
pub mod link;
pub mod load;
pub mod notes;
pub mod schema;
mod set;
pub mod topology;
mod trace_file;
pub mod units;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::controllers::ComparedControllers;
pub use arrivals::{Arrivals, Sizes};
pub use error::ScenarioError;
pub use link::{Codel, DropOf, Gilbert, Link, Pie, Random, Reorder, TargetedDrop, VictimPolicy};
pub use trace_file::{TRACE_BYTES_MAX, TraceFile};
pub use units::{Duration, RateSpec, SizeSpec};

/// A scenario to begin with: it runs as it stands, and its comments say what else there is.
pub const TEMPLATE: &str = include_str!("scenario/template.toml");

/// An experiment; see the [module](self).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What it is, in a line.
    pub title: String,
    /// Whose experiment it repeats: paper and figure.
    #[serde(default)]
    pub source: String,
    /// What one should know to read the table: parameters the source leaves open, causes of differences.
    #[serde(default)]
    pub about: String,
    /// Size of a data packet on the wire; what `pkt` and `pkt/s` mean.
    #[serde(default = "default_packet")]
    pub packet: SizeSpec,
    /// How long a run lasts.
    pub duration: Duration,
    /// From when on rates, shares and losses are counted.
    #[serde(default)]
    pub count_from: Duration,
    /// Seeds 1 to this are run unless told otherwise.
    #[serde(default = "one")]
    pub seeds: u64,
    /// Congestion controllers to compare: names of [`anabranch_algo::control::ALGORITHMS`], with `+START` if
    /// wanted, and of those that the program brings.
    #[serde(default = "default_controllers")]
    pub controllers: ComparedControllers,
    /// Links, one direction each.
    #[serde(default)]
    pub link: BTreeMap<String, Link>,
    /// Flows.
    #[serde(default)]
    pub flow: BTreeMap<String, Flow>,
    /// Traffic that takes no notice of congestion.
    #[serde(default)]
    pub cbr: BTreeMap<String, Cbr>,
    /// What goes wrong, or changes.
    #[serde(default)]
    pub fault: Vec<Fault>,
    /// Variants of the scenario; each is run. None: the scenario as it stands.
    #[serde(default)]
    pub case: Vec<Case>,
    /// What is measured: the rows of the table.
    #[serde(default)]
    pub measure: Vec<Measure>,
    /// What must have happened for a run to count.
    #[serde(default)]
    pub assert: Vec<Assert>,
}

fn default_packet() -> SizeSpec {
    SizeSpec::Bytes(1_500)
}
fn one() -> u64 {
    1
}
fn one_flow() -> u32 {
    1
}
fn default_controllers() -> ComparedControllers {
    vec!["nmcc".to_owned()].into()
}

/// How a flow transports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Packets without content: this house's loss detection, timers and controllers, at full speed.
    #[default]
    Packet,
    /// mmTP as on the wire: real requests, real bytes, verified.
    Mmtp,
    /// Connections to HTTP mirrors: each path is a packet flow of its own, and the receiver bounds the
    /// windows of those that share a queue.
    Mirrors,
}

/// Which paths of a flow are coupled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Groups {
    /// All.
    #[default]
    All,
    /// None: each path is a flow of its own.
    None,
    /// Those that share a link with a rate, as a topology manager would know it.
    Topology,
    /// As each path's `group` says.
    Given,
    /// As shared-bottleneck detection finds out (RFC 8382).
    Auto,
}

/// Data from somewhere to somewhere, over one path or many.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// How.
    #[serde(default)]
    pub transport: Transport,
    /// Its controller. Default: the one under comparison if there are several paths, else `reno`.
    pub controller: Option<String>,
    /// That many of it, independent of each other.
    #[serde(default = "one_flow")]
    pub count: u32,
    /// Its paths.
    pub paths: Vec<Path>,
    /// Which of them are coupled.
    #[serde(default)]
    pub groups: Groups,
    /// When it starts,
    #[serde(default)]
    pub start: Duration,
    /// plus a random time up to this.
    #[serde(default)]
    pub start_within: Duration,
    /// When it stops; default: never.
    pub stop: Option<Duration>,
    /// How much payload it transfers, in packets full ones; default: without end.
    pub size: Option<SizeSpec>,
    /// Not one transfer, but many that arrive one after the other from `start` on, until `stop`; `size` is
    /// their mean size. What is measured of the flow is of all of them together.
    pub arrivals: Option<Arrivals>,
    /// Of packets and mirrors: an acknowledgement is for two packets, or comes when one has waited for this
    /// long. Default: each packet is acknowledged at once. The kernel's receivers decide for themselves.
    pub delayed_acks: Option<Duration>,
    /// Of mmTP: what arrives within this time is handed over together, as interrupt moderation and GRO do.
    #[serde(default)]
    pub coalesce: Duration,
}

/// A path of a flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Path {
    /// Links that data crosses, in order.
    pub via: Vec<String>,
    /// Links that acknowledgements or requests cross. Default: none, only delay.
    #[serde(default)]
    pub back: Vec<String>,
    /// Round-trip time without queues: what the links' own delays leave of it is added on the way back.
    #[serde(default)]
    pub rtt: Duration,
    /// Rate of the sender's own access link before `via`; default: none.
    pub access: Option<RateSpec>,
    /// Of mmTP: the name of the source at the far end. Default: one of its own for each path.
    pub source: Option<String>,
    /// For `groups = "given"`.
    #[serde(default)]
    pub group: u32,
    /// For `groups = "auto"`: the name of the uplink by which it leaves its host. Default: that is not known.
    pub uplink: Option<String>,
}

impl Flow {
    /// Whether what it transfers has an end.
    pub(crate) fn is_finite(&self) -> bool {
        self.size.is_some() || self.arrivals.as_ref().is_some_and(|arrivals| arrivals.sizes == Sizes::List)
    }

    /// A number for the uplink of each path, where there is one.
    pub(crate) fn uplinks(&self) -> Vec<Option<u32>> {
        let names: BTreeSet<_> = self.paths.iter().filter_map(|path| path.uplink.as_ref()).collect();
        let number =
            |path: &Path| Some(names.iter().position(|name| Some(*name) == path.uplink.as_ref())? as u32);
        self.paths.iter().map(number).collect()
    }
}

/// Constant-bit-rate traffic, perhaps in bursts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cbr {
    /// Links it crosses.
    pub via: Vec<String>,
    /// Its rate while it is on.
    pub rate: RateSpec,
    /// Mean length of a burst, uniform from 0 to twice this. Default: always on.
    pub on: Option<Duration>,
    /// Mean pause, uniform from 0 to twice this.
    #[serde(default)]
    pub off: Duration,
    /// When it starts.
    #[serde(default)]
    pub start: Duration,
    /// When it stops; default: never.
    pub stop: Option<Duration>,
}

/// A change at a given time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// When.
    pub at: Duration,
    /// When it ends, if it does (`down` and `source`).
    pub until: Option<Duration>,
    /// A link that changes,
    pub link: Option<String>,
    /// going down,
    #[serde(default)]
    pub down: bool,
    /// to this rate,
    pub rate: Option<RateSpec>,
    /// this delay,
    pub delay: Option<Duration>,
    /// this probability of loss.
    #[serde(default, deserialize_with = "units::optional_probability")]
    pub loss: Option<f64>,
    /// An mmTP source that dies (and is back at `until`).
    pub source: Option<String>,
}

/// A variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// What it is called in the table.
    pub name: String,
    /// Keys of the scenario and their values here: `{ "link.c.rate" = "250 pkt/s" }`.
    #[serde(default)]
    pub set: toml::Table,
    /// Keys of the scenario that are not there here: `["link.c.codel"]`. They go before `set`.
    #[serde(default)]
    pub remove: Vec<String>,
    /// Only with these controllers; default: with all.
    #[serde(default)]
    pub controllers: Vec<String>,
}

/// A number for the table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// What the row is called.
    pub metric: String,
    /// How it is computed.
    pub kind: MeasureKind,
    /// Only in these cases; default: in all.
    #[serde(default)]
    pub cases: Vec<String>,
    /// Of which flows; default: all.
    #[serde(default)]
    pub flows: Vec<String>,
    /// Of which of their paths; default: all.
    #[serde(default)]
    pub paths: Vec<usize>,
    /// Of which links.
    #[serde(default)]
    pub links: Vec<String>,
    /// In proportion to which flows (`share`; default: all) or links (`of_rate`, `loss_ratio`).
    #[serde(default)]
    pub of: Vec<String>,
    /// Counted from here rather than from the scenario's `count_from`,
    pub from: Option<Duration>,
    /// and until here rather than to the end.
    pub until: Option<Duration>,
    /// Of `converged`: over how long shares are averaged; default: 5 s.
    pub mean: Option<Duration>,
    /// Given as the difference to this case, in percent of that.
    pub versus: Option<String>,
    /// What the row is of the runs' values.
    #[serde(default)]
    pub statistic: Statistic,
    /// Of these seeds alone, `"1..10"`; default: of all.
    pub seeds: Option<String>,
    /// What the source reports. Keys here and below: `CASE/CONTROLLER`, `CASE`, `CONTROLLER` or `*`; of the
    /// world `kernel` alone with `kernel:` before it.
    #[serde(default)]
    pub paper: BTreeMap<String, f64>,
    /// What a fluid model gives.
    #[serde(default)]
    pub model: BTreeMap<String, f64>,
    /// Within which the mean over the seeds must be: `"47..53"`, `"97.."`, `"..3"`. In the kernel only what
    /// keys with `kernel:` say is expected.
    #[serde(default)]
    pub expect: BTreeMap<String, String>,
    /// Why ours differs from the source's.
    #[serde(default)]
    pub why: BTreeMap<String, String>,
}

/// What a row is of the values of its runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    /// Their mean.
    #[default]
    Mean,
    /// Their sample variance, in the square of the unit.
    Variance,
    /// One value of all runs together: of `converged`, of the mean share over the runs at each step.
    Pooled,
}

/// How a number is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeasureKind {
    /// Packets of `flows` that arrived, headers included, in percent of those of the flows `of`.
    #[default]
    Share,
    /// The same in percent of the rate of the links `of`.
    OfRate,
    /// Payload of `flows` that arrived, Mbit/s.
    Goodput,
    /// Mean goodput of one of `flows`, Mbit/s.
    GoodputEach,
    /// Packets of `flows` that arrived, in packets of the scenario's size per second.
    Packets,
    /// What `links` carried, in percent of their rate, or of what their traces offered.
    Utilisation,
    /// The same of the one of `links` that carried the least.
    LeastUsed,
    /// Sample standard deviation of the rates of `flows` (packets, as of `share`), in percent of the largest.
    SpreadFastest,
    /// The same in percent of their mean.
    SpreadMean,
    /// Jain's index of the same rates: 1 if all are equal.
    Jain,
    /// Packets dropped on `links`, in percent of those that came.
    Loss,
    /// That of `links` over the mean of those of the links `of`.
    LossRatio,
    /// Mean queue of `links`, ms: in time of their rate; of links with a trace the mean time that packets
    /// stay.
    Queue,
    /// 99th percentile of the queue of the link of `links` where that is longest, ms: as seen at the end of
    /// each step of the run (a thousandth of it, at least 50 ms); of a link with a trace, of the time that
    /// packets stay.
    QueueP99,
    /// Time from the start of `flows` to their last byte, s; mean over the flows, or over the transfers of
    /// those with `arrivals`.
    Completion,
    /// Median of these times, s; of a flow with `arrivals` those of the transfers that began between `from`
    /// and `until`.
    CompletionP50,
    /// 95th percentile of them, s.
    CompletionP95,
    /// 99th percentile of them, s.
    CompletionP99,
    /// Seconds after `from` until the share of `flows`, averaged over `mean`, stays within 3 points of what
    /// it is over the last third before `until`.
    Converged,
    /// Seconds after `from` until the groups of `flows` are, and stay, those of the topology.
    Grouped,
    /// Time for which paths that share a link were in different groups, in percent.
    WrongSplit,
    /// Time for which paths that share none were in one group, in percent.
    WrongMerge,
    /// Timeouts of `flows` in the whole run, of all their paths.
    Timeouts,
    /// That in percent of their congestion events, of which losses found in time are one a round trip.
    TimeoutShare,
    /// Mean congestion window of a path of `flows`, packets: of `paths`, if they are named.
    Window,
    /// Mean of m, NMCC's factor, over `flows` (coupled paths only).
    FactorM,
}

/// A condition of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assert {
    /// What.
    pub what: Condition,
    /// Only of runs of these cases; default: of all.
    #[serde(default)]
    pub cases: Vec<String>,
    /// Only of runs with these controllers; default: of all.
    #[serde(default)]
    pub controllers: Vec<String>,
    /// On which link,
    pub link: Option<String>,
    /// or of which flow,
    pub flow: Option<String>,
    /// and of which of its paths alone (`rtt`, `goodput`); default: of each (`rtt`) or of all together.
    pub path: Option<usize>,
    /// It must be at least this,
    pub at_least: Option<f64>,
    /// and at most this.
    pub at_most: Option<f64>,
}

/// What a condition is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// Packets that `link` dropped because its queue was full (or nearly so), over the whole run.
    Drops,
    /// Packets that `link` lost at random or by script.
    Losses,
    /// Packets that `link` marked.
    Marks,
    /// What `link` carried since `count_from`, in percent of its rate.
    Utilisation,
    /// The longest queue of `link`, packets of the scenario's size.
    QueueMax,
    /// Smoothed RTT of each path of `flow` at the end, ms.
    Rtt,
    /// Timeouts of `flow`.
    Timeouts,
    /// Goodput (payload) of `flow` since `count_from`, Mbit/s.
    Goodput,
}
