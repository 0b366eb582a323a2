//! Defines the scenario: one struct for the TOML file, the `--set` flags and any later description of an
//! experiment. Unknown keys are errors; quantities carry their unit (see [`units`]).
//!
//! A scenario describes links, flows over them, faults, measurements, and the conditions under which a run
//! counts. It is run once for each of its `controllers`, `case`s and seeds.
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
pub mod queueing;
pub mod schema;
mod set;
mod stack;
pub mod topology;
mod trace_file;
pub mod units;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::controllers::ComparedControllers;
pub use arrivals::{Arrivals, Sizes};
pub use error::ScenarioError;
pub use link::{DropOf, Gilbert, Link, Radio, RadioReceiver, Reorder};
pub use stack::StackSettings;
pub use trace_file::{TRACE_BYTES_MAX, TraceFile};
pub use units::{Duration, RateSpec, SizeSpec};

/// A scenario to begin with: it runs unchanged, and its comments list the other keys.
pub const TEMPLATE: &str = include_str!("scenario/template.toml");

/// An experiment; see the [module](self).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// One line that describes the experiment.
    pub title: String,
    /// The paper and figure whose experiment this scenario repeats.
    #[serde(default)]
    pub source: String,
    /// Notes that a reader of the table needs: parameters that the source leaves open, causes of
    /// differences.
    #[serde(default)]
    pub about: String,
    /// Size of a data packet on the wire, which the units `pkt` and `pkt/s` refer to.
    #[serde(default = "default_packet")]
    pub packet: SizeSpec,
    /// Virtual (or real) time that a run lasts.
    pub duration: Duration,
    /// Time from which rates, shares and losses are counted.
    #[serde(default)]
    pub count_from: Duration,
    /// Number of seeds: seeds 1 to this number are run unless the caller chooses others.
    #[serde(default = "one")]
    pub seeds: u64,
    /// Congestion controllers to compare: names of [`anabranch_algo::control::ALGORITHMS`], with an optional
    /// `+START`, or names that the program registered itself.
    #[serde(default = "default_controllers")]
    pub controllers: ComparedControllers,
    /// Links by name; each carries one direction.
    #[serde(default)]
    pub link: BTreeMap<String, Link>,
    /// Flows by name.
    #[serde(default)]
    pub flow: BTreeMap<String, Flow>,
    /// Traffic by name that does not react to congestion.
    #[serde(default)]
    pub cbr: BTreeMap<String, Cbr>,
    /// Failures and changes at given times.
    #[serde(default)]
    pub fault: Vec<Fault>,
    /// Variants of the scenario, each of which is run. If this is empty, the scenario is run unchanged.
    #[serde(default)]
    pub case: Vec<Case>,
    /// Measurements: the rows of the table.
    #[serde(default)]
    pub measure: Vec<Measure>,
    /// Conditions that a run must meet to count.
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

/// The transport that a flow uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Packets without content, with Anabranch's own loss detection, timers and controllers, at full speed.
    #[default]
    Packet,
    /// mmTP as on the wire, with real requests and real, verified bytes.
    Mmtp,
    /// TCP with all its segments, of this project's own stack; one path.
    Tcp,
    /// Multipath TCP (RFC 8684) with all its segments, of the same stack: a subflow over each path.
    Mptcp,
    /// Connections to HTTP mirrors: each path is a packet flow of its own, and the receiver bounds the
    /// windows of those that share a queue.
    Mirrors,
}

/// Selects the paths of a flow that are coupled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Groups {
    /// All paths are coupled.
    #[default]
    All,
    /// No paths are coupled: each path is a flow of its own.
    None,
    /// Paths that share a link with a rate are coupled, as a topology manager would know.
    Topology,
    /// Paths with equal `group` numbers are coupled.
    Given,
    /// Paths are coupled as shared-bottleneck detection finds out (RFC 8382).
    Auto,
}

/// The way in which the receiver of a flow steers its sender between WiFi access points
/// ([`anabranch_algo::wifi`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Steering {
    /// It does not: congestion control alone decides.
    #[default]
    None,
    /// It marks packets (ECN) on paths over access points that need more airtime than the best on their
    /// channel.
    Marks,
    /// It makes these paths backup paths (MP_PRIO): they carry nothing while another path works.
    Backup,
    /// It makes all paths but one backup paths, each in turn for 200 ms (the on–off of the source).
    OnOff,
    /// It uses one access point at a time and moves to another one by the beacons of two seconds; it is
    /// without any for a second then.
    Handover,
}

/// A transfer of data between two hosts over one path or several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// The transport.
    #[serde(default)]
    pub transport: Transport,
    /// Congestion controller. Default: the one under comparison if the flow has several paths, else `reno`.
    pub controller: Option<String>,
    /// Number of independent copies of the flow.
    #[serde(default = "one_flow")]
    pub count: u32,
    /// The paths.
    pub paths: Vec<Path>,
    /// Selects the paths that are coupled.
    #[serde(default)]
    pub groups: Groups,
    /// Time at which the flow starts; `start_within` adds a random time.
    #[serde(default)]
    pub start: Duration,
    /// Longest random time added to `start`.
    #[serde(default)]
    pub start_within: Duration,
    /// Time at which the flow stops; default: never.
    pub stop: Option<Duration>,
    /// Payload to transfer; packets as the unit mean full packets. Default: the transfer has no end.
    pub size: Option<SizeSpec>,
    /// If given, the flow consists of many transfers that arrive one after the other from `start` until
    /// `stop`, and `size` is their mean size. Measures of the flow then count all transfers together.
    pub arrivals: Option<Arrivals>,
    /// For packets: the way in which the receiver steers the sender between the WiFi access points of the
    /// paths. The access point of a path is the last link of its `via` that is on a medium.
    #[serde(default)]
    pub steering: Steering,
    /// For packets and mirrors: an acknowledgement covers two packets, or is sent when one packet has waited
    /// for this time. Default: each packet is acknowledged at once. For TCP and MPTCP: the longest delay of
    /// an acknowledgement; default: 40 ms. In the kernel, receivers decide themselves.
    pub delayed_acks: Option<Duration>,
    /// For TCP and MPTCP: settings of the stack at both ends.
    #[serde(default)]
    pub stack: StackSettings,
    /// For mmTP: datagrams that arrive within this time are handed over together, as by interrupt moderation
    /// and GRO.
    #[serde(default)]
    pub coalesce: Duration,
}

/// A path of a flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Path {
    /// Links that data crosses, in order.
    pub via: Vec<String>,
    /// Links that acknowledgements or requests cross. Default: no links, only delay.
    #[serde(default)]
    pub back: Vec<String>,
    /// Round-trip time without queues. The way back gets the part of it that the links' own delays leave.
    #[serde(default)]
    pub rtt: Duration,
    /// Rate of the sender's own access link before `via`. Default: there is no access link.
    pub access: Option<RateSpec>,
    /// For mmTP: name of the source at the far end. Default: each path has a source of its own.
    pub source: Option<String>,
    /// Group number of the path, for `groups = "given"`.
    #[serde(default)]
    pub group: u32,
    /// Name of the uplink by which the path leaves its host, for `groups = "auto"`. Default: it is unknown.
    pub uplink: Option<String>,
}

impl Flow {
    /// Whether the flow is one of TCP or Multipath TCP.
    pub(crate) const fn is_tcp(&self) -> bool {
        matches!(self.transport, Transport::Tcp | Transport::Mptcp)
    }

    /// Whether the flow's transfers end.
    pub(crate) fn is_finite(&self) -> bool {
        self.size.is_some() || self.arrivals.as_ref().is_some_and(|arrivals| arrivals.sizes == Sizes::List)
    }

    /// Returns the number of each path's uplink; `None` where the path names no uplink.
    pub(crate) fn uplinks(&self) -> Vec<Option<u32>> {
        let names: BTreeSet<_> = self.paths.iter().filter_map(|path| path.uplink.as_ref()).collect();
        let number =
            |path: &Path| Some(names.iter().position(|name| Some(*name) == path.uplink.as_ref())? as u32);
        self.paths.iter().map(number).collect()
    }
}

/// Constant-bit-rate traffic, optionally in bursts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cbr {
    /// Links that the traffic crosses.
    pub via: Vec<String>,
    /// Rate while a burst lasts.
    pub rate: RateSpec,
    /// Mean length of a burst, uniform from 0 to twice this. Default: the traffic is always on.
    pub on: Option<Duration>,
    /// Mean pause between bursts, uniform from 0 to twice this.
    #[serde(default)]
    pub off: Duration,
    /// Time at which the traffic starts.
    #[serde(default)]
    pub start: Duration,
    /// Time at which the traffic stops; default: never.
    pub stop: Option<Duration>,
}

/// A change at a given time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Time of the change.
    pub at: Duration,
    /// Time at which the fault ends, for `down` and `source`. Default: never.
    pub until: Option<Duration>,
    /// Name of the link that changes.
    pub link: Option<String>,
    /// Whether the link goes down.
    #[serde(default)]
    pub down: bool,
    /// New rate of the link.
    pub rate: Option<RateSpec>,
    /// New delay of the link.
    pub delay: Option<Duration>,
    /// New probability of loss on the link.
    #[serde(default, deserialize_with = "units::optional_probability")]
    pub loss: Option<f64>,
    /// Name of an mmTP source that dies (and is back at `until`).
    pub source: Option<String>,
}

/// A variant of the scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Name of the case in the table.
    pub name: String,
    /// Keys of the scenario and their values in this case: `{ "link.c.rate" = "250 pkt/s" }`.
    #[serde(default)]
    pub set: toml::Table,
    /// Keys of the scenario that this case removes, before it applies `set`: `["link.c.codel"]`.
    #[serde(default)]
    pub remove: Vec<String>,
    /// Controllers that this case is run with; default: all.
    #[serde(default)]
    pub controllers: Vec<String>,
    /// Keys and the values that each takes: the case is run with every combination, and its rows are of all
    /// of them together.
    #[serde(default)]
    pub sweep: BTreeMap<String, Vec<toml::Value>>,
}

/// A measurement: a number for the table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// Name of the row.
    pub metric: String,
    /// The way in which the number is computed.
    pub kind: MeasureKind,
    /// Cases in which it is measured; default: all.
    #[serde(default)]
    pub cases: Vec<String>,
    /// Flows that are measured; default: all.
    #[serde(default)]
    pub flows: Vec<String>,
    /// Numbers of the flows' paths that are measured; default: all.
    #[serde(default)]
    pub paths: Vec<usize>,
    /// Links that are measured.
    #[serde(default)]
    pub links: Vec<String>,
    /// Flows (`share`; default: all) or links (`of_rate`, `loss_ratio`) that the value is relative to.
    #[serde(default)]
    pub of: Vec<String>,
    /// Time at which counting begins, instead of the scenario's `count_from`.
    pub from: Option<Duration>,
    /// Time at which counting ends, instead of the end of the run.
    pub until: Option<Duration>,
    /// For `converged`: time over which shares are averaged; default: 5 s.
    pub mean: Option<Duration>,
    /// Name of a case: the value is given as the difference to that case, in percent of its value.
    pub versus: Option<String>,
    /// Statistic of the runs' values that the row shows.
    #[serde(default)]
    pub statistic: Statistic,
    /// Range of seeds that are measured, `"1..10"`; default: all.
    pub seeds: Option<String>,
    /// Values that the source reports. The keys of this map and of the next ones are `CASE/CONTROLLER`,
    /// `CASE`, `CONTROLLER` or `*`; the prefix `kernel:` limits a key to the world `kernel`.
    #[serde(default)]
    pub paper: BTreeMap<String, f64>,
    /// Values that a fluid model gives.
    #[serde(default)]
    pub model: BTreeMap<String, f64>,
    /// Range in which the mean over the seeds must lie: `"47..53"`, `"97.."`, `"..3"`. In the kernel only
    /// keys with `kernel:` apply.
    #[serde(default)]
    pub expect: BTreeMap<String, String>,
    /// Reasons why our value differs from the source's.
    #[serde(default)]
    pub why: BTreeMap<String, String>,
}

/// The statistic of its runs' values that a row shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    /// The mean of the values.
    #[default]
    Mean,
    /// The sample variance of the values, in the square of the unit.
    Variance,
    /// Of a case with a `sweep`: the median of the values of its combinations, for each seed. The row shows
    /// the mean over the seeds.
    Median,
    /// As `median`, but the least of the values.
    Least,
    /// One value from all runs together. For `converged`: the runs' mean share at each step is computed
    /// first.
    Pooled,
}

/// The way in which a number is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeasureKind {
    /// Packets of `flows` that arrived, headers included, in percent of those of the flows `of`.
    #[default]
    Share,
    /// Packets of `flows` that arrived, headers included, in percent of the rate of the links `of`.
    OfRate,
    /// Payload of `flows` that arrived, Mbit/s.
    Goodput,
    /// Mean goodput of one of `flows`, Mbit/s.
    GoodputEach,
    /// Packets of `flows` that arrived, in packets of the scenario's size per second.
    Packets,
    /// Traffic that `links` carried, in percent of their rate, or of the capacity that their traces offered.
    Utilisation,
    /// Utilisation of the link among `links` that carried the least, in percent.
    LeastUsed,
    /// Sample standard deviation of the rates of `flows` (whole packets, as for `share`), in percent of the
    /// largest.
    SpreadFastest,
    /// Sample standard deviation of the rates of `flows` (whole packets), in percent of their mean.
    SpreadMean,
    /// Jain's index of the rates of `flows` (whole packets): 1 if all are equal.
    Jain,
    /// Packets dropped on `links`, in percent of the packets offered to them.
    Loss,
    /// Loss on `links`, divided by the mean loss on the links `of`.
    LossRatio,
    /// Longest time in which `flows` together got less than a twentieth of their mean rate, s: whole steps of
    /// the run (a thousandth of it, at least 50 ms).
    Gap,
    /// Mean queue of `links`, ms: the time that the queue takes at the link's rate. For links with a trace:
    /// the mean time that packets stay.
    Queue,
    /// 99th percentile of the queue on the link among `links` where it is longest, ms. The queue is noted at
    /// the end of each step of the run (a thousandth of the run, at least 50 ms). For a link with a trace:
    /// 99th percentile of the time that packets stay.
    QueueP99,
    /// Time from the start of `flows` to their last byte, s: mean over the flows, or over the transfers of
    /// flows with `arrivals`.
    Completion,
    /// Median completion time, s. For a flow with `arrivals`, it counts transfers that began between `from`
    /// and `until`.
    CompletionP50,
    /// 95th percentile of the completion times, s.
    CompletionP95,
    /// 99th percentile of the completion times, s.
    CompletionP99,
    /// Seconds after `from` until the share of `flows`, averaged over `mean`, stays within 3 points of its
    /// value over the last third before `until`.
    Converged,
    /// Seconds after `from` until the groups of `flows` equal those of the topology and remain so.
    Grouped,
    /// Percentage of time in which paths that share a link were in different groups.
    WrongSplit,
    /// Percentage of time in which paths that share no link were in one group.
    WrongMerge,
    /// Timeouts of all paths of `flows` in the whole run.
    Timeouts,
    /// Timeouts in percent of the congestion events of `flows`. Losses found without a timeout count as one
    /// event a round trip.
    TimeoutShare,
    /// Mean congestion window of a path of `flows` (only of `paths`, if given), packets.
    Window,
    /// Mean of NMCC's factor m over `flows` (coupled paths only).
    FactorM,
}

/// A condition that a run must meet to count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assert {
    /// The quantity that is checked.
    pub what: Condition,
    /// Cases whose runs are checked; default: all.
    #[serde(default)]
    pub cases: Vec<String>,
    /// Controllers whose runs are checked; default: all.
    #[serde(default)]
    pub controllers: Vec<String>,
    /// Link that is checked.
    pub link: Option<String>,
    /// Flow that is checked.
    pub flow: Option<String>,
    /// Number of the flow's only path that is checked (`rtt`, `goodput`). Default: each path (`rtt`) or all
    /// together.
    pub path: Option<usize>,
    /// Least value that meets the condition.
    pub at_least: Option<f64>,
    /// Greatest value that meets the condition.
    pub at_most: Option<f64>,
}

/// The quantity that a condition checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// Packets that `link` dropped because its queue was full (or nearly so), over the whole run.
    Drops,
    /// Packets that `link` lost at random or by script.
    Losses,
    /// Packets that `link` marked.
    Marks,
    /// Traffic that `link` carried since `count_from`, in percent of its rate.
    Utilisation,
    /// The longest queue of `link`, in packets of the scenario's size.
    QueueMax,
    /// Smoothed RTT of each path of `flow` at the end, ms.
    Rtt,
    /// Timeouts of all paths of `flow`.
    Timeouts,
    /// Goodput (payload) of `flow` since `count_from`, Mbit/s.
    Goodput,
}
