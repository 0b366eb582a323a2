//! Checks whether a scenario makes sense: everything it refers to exists, and every number is in its range.

mod measure;
mod needs;
mod stack;

use anabranch_algo::Span;
use anabranch_algo::rtt::RTO_MIN;
use anabranch_algo::wifi::RETRIES_MAX;

use super::error::ScenarioError;
use super::queueing::Red;
use super::{Cbr, Fault, Flow, Link, Path, RateSpec, Scenario, SizeSpec, Sizes, Steering, Transport};
use crate::hint::{hint, missing};

/// Most links of a scenario.
pub const LINKS_MAX: usize = 100_000;
/// Most subflows: paths of all flows, each flow counted `count` times.
pub const SUBFLOWS_MAX: u64 = 1_000_000;
/// Most seeds.
pub const SEEDS_MAX: u64 = 1_000_000;
/// Most cases.
pub const CASES_MAX: usize = 10_000;
/// Most measures.
pub const MEASURES_MAX: usize = 1_000;
/// Largest packet, bytes.
pub const PACKET_BYTES_MAX: u64 = 65_535;
/// Most queues of FQ-CoDel (RFC 8290 section 5.2.4), and the least quantum, bytes.
pub const CODEL_FLOWS_MAX: u32 = 65_536;
const QUANTUM_BYTES_MIN: u64 = 256;
/// Smallest packet, bytes: room for the headers and some payload.
pub const PACKET_BYTES_MIN: u64 = 128;
type Checked = Result<(), ScenarioError>;

/// Returns an error at `key` unless `so` is true.
fn ensure(so: bool, key: impl Into<String>, what: impl FnOnce() -> String) -> Checked {
    if so { Ok(()) } else { Err(ScenarioError::at(key, what())) }
}

/// Checks that `value` is a probability.
fn probability(value: f64, key: String) -> Checked {
    ensure((0.0..=1.0).contains(&value), key, || format!("{value} is no probability: from 0 to 1"))
}

impl Scenario {
    /// Checks whether the scenario makes sense without its cases. This check also runs for each case.
    ///
    /// # Errors
    /// If something makes no sense; the error names the first such key.
    pub fn check(&self) -> Result<(), ScenarioError> {
        self.check_head()?;
        for (name, link) in &self.link {
            named(name, "link")?;
            self.check_link(link, &format!("link.{name}"))?;
        }
        for (name, flow) in &self.flow {
            named(name, "flow")?;
            self.check_flow(flow, &format!("flow.{name}"))?;
        }
        for (name, cbr) in &self.cbr {
            named(name, "cbr")?;
            self.check_cbr(cbr, &format!("cbr.{name}"))?;
        }
        for (index, fault) in self.fault.iter().enumerate() {
            self.check_fault(fault, &format!("fault.{index}"))?;
        }
        measure::check(self)
    }

    /// Returns how many subflows a flow has; if its transfers arrive one after the other, how many arrive in
    /// the mean.
    fn subflows(&self, flow: &Flow) -> u64 {
        let paths = u64::from(flow.count).saturating_mul(flow.paths.len() as u64);
        let every = flow.arrivals.as_ref().map(|arrivals| arrivals.every.0.as_nanos());
        let transfers = every.and_then(|every| self.duration.0.as_nanos().checked_div(every));
        paths.saturating_mul(transfers.unwrap_or(1).max(1))
    }

    fn check_head(&self) -> Checked {
        let bytes = match self.packet {
            SizeSpec::Bytes(bytes) => bytes,
            _ => return Err(ScenarioError::at("packet", "write the size of a packet in bytes: \"1500 B\"")),
        };
        ensure((PACKET_BYTES_MIN..=PACKET_BYTES_MAX).contains(&bytes), "packet", || {
            format!("{bytes} B is no size of a packet: from {PACKET_BYTES_MIN} to {PACKET_BYTES_MAX} B")
        })?;
        ensure(self.duration.0 > Span::ZERO, "duration", || "a run must last some time".into())?;
        ensure(self.count_from < self.duration, "count_from", || {
            format!("{} is not before the end ({})", self.count_from, self.duration)
        })?;
        ensure((1..=SEEDS_MAX).contains(&self.seeds), "seeds", || format!("from 1 to {SEEDS_MAX}"))?;
        ensure(!self.controllers.is_empty(), "controllers", || "name at least one".into())?;
        for (index, name) in self.controllers.iter().enumerate() {
            let key = || format!("controllers.{index}");
            self.controller(name, key())?;
            ensure(!self.controllers[..index].contains(name), key(), || format!("`{name}` twice"))?;
        }
        ensure(self.link.len() <= LINKS_MAX, "link", || format!("more than {LINKS_MAX} links"))?;
        let subflows = self.flow.values().map(|flow| self.subflows(flow));
        ensure(subflows.fold(0, u64::saturating_add) <= SUBFLOWS_MAX, "flow", || {
            format!("more than {SUBFLOWS_MAX} subflows")
        })?;
        ensure(self.case.len() <= CASES_MAX, "case", || format!("more than {CASES_MAX} cases"))?;
        for (index, case) in self.case.iter().enumerate() {
            let (name, key) = (&case.name, || format!("case.{index}.name"));
            ensure(!name.is_empty() && !name.contains(['/', '*', '\n']), key(), || {
                "a name without `/` and `*`, please: those have a meaning in `paper` and `expect`".into()
            })?;
            ensure(self.case[..index].iter().all(|other| other.name != *name), key(), || {
                format!("there are two cases `{name}`")
            })?;
            ensure(self.controllers.known.check(name).is_err(), key(), || {
                format!("`{name}` is a controller's name too, and keys of `paper` could mean either")
            })?;
            if let Some((swept, _)) = case.sweep.iter().find(|(_, values)| values.is_empty()) {
                return Err(ScenarioError::at(format!("case.{index}.sweep.{swept}"), "no value to set"));
            }
            for (i, name) in case.controllers.iter().enumerate() {
                self.controller(name, format!("case.{index}.controllers.{i}"))?;
            }
        }
        Ok(())
    }

    fn check_link(&self, link: &Link, key: &str) -> Checked {
        let at = |field: &str| format!("{key}.{field}");
        self.positive(link.rate, at("rate"), "for a link that is down use a fault")?;
        let queues = link.queueing.keys();
        ensure(queues.len() <= 1, key, || {
            format!("one queue discipline at a time, not {}", queues.join(" and "))
        })?;
        for (field, amount) in [("queue", link.queue), ("mark_above", link.mark_above)] {
            ensure(link.is_limited() || !matches!(amount, Some(SizeSpec::Time(_))), at(field), || {
                "a time means what the link sends in it, so the link needs a `rate`".into()
            })?;
        }
        let reorder = link.reorder.as_ref().map_or(0.0, |reorder| reorder.probability);
        for (field, value) in
            [("loss", link.loss), ("duplicate", link.duplicate), ("reorder.probability", reorder)]
        {
            probability(value, at(field))?;
        }
        let by = link.reorder.as_ref().is_none_or(|reorder| reorder.by.0 > Span::ZERO);
        ensure(by, at("reorder.by"), || "say by how much packets are held back".into())?;
        if let Some(random) = &link.queueing.random {
            probability(random.drop, at("random.drop"))?;
            ensure(random.band > 0, at("random.band"), || "at least 1 packet".into())?;
        }
        if let Some(gilbert) = &link.gilbert {
            for (field, value) in [
                ("to_bad", gilbert.to_bad),
                ("to_good", gilbert.to_good),
                ("good", gilbert.good),
                ("bad", gilbert.bad),
            ] {
                probability(value, at(&format!("gilbert.{field}")))?;
            }
        }
        if let Some(codel) = &link.queueing.codel {
            let so = codel.target.0 > Span::ZERO && codel.target < codel.interval;
            ensure(so, at("codel"), || "`target` must be less than `interval`, and not 0".into())?;
            ensure(codel.flows <= CODEL_FLOWS_MAX, at("codel.flows"), || {
                format!("at most {CODEL_FLOWS_MAX} queues")
            })?;
            let quantum = matches!(codel.quantum, SizeSpec::Bytes(QUANTUM_BYTES_MIN..=PACKET_BYTES_MAX));
            ensure(quantum, at("codel.quantum"), || {
                format!("from {QUANTUM_BYTES_MIN} to {PACKET_BYTES_MAX} B")
            })?;
        }
        if let Some(pie) = &link.queueing.pie {
            ensure(pie.target.0 > Span::ZERO, at("pie.target"), || "a delay to aim at is not 0".into())?;
        }
        if let Some(red) = &link.queueing.red {
            check_red(red, link.is_limited(), &at("red"))?;
        }
        if let Some(index) = link.drop.iter().position(|nth| *nth == 0) {
            return Err(ScenarioError::at(at(&format!("drop.{index}")), "packets are counted from 1"));
        }
        for (index, drop) in link.drop_of.iter().enumerate() {
            let at = |field: &str| at(&format!("drop_of.{index}.{field}"));
            self.flow_of(&drop.flow, at("flow"))?.has_path(&drop.flow, drop.path, at("path"))?;
            ensure(drop.nth > 0, at("nth"), || "packets are counted from 1".into())?;
        }
        self.check_radio(link, &at("radio"))?;
        ensure(link.medium.is_none() || link.rate.is_some(), at("medium"), || {
            "a link on a medium needs a `rate`: how fast it sends when it is its turn".into()
        })?;
        match link.trace.as_ref().map(|trace| (trace.path(), trace.read())) {
            Some((path, Err(what))) => Err(ScenarioError::at(at("trace"), format!("trace {path} {what}"))),
            _ => Ok(()),
        }
    }

    fn check_radio(&self, link: &Link, key: &str) -> Checked {
        let at = |field: &str| format!("{key}.{field}");
        let Some(radio) = &link.radio else { return Ok(()) };
        ensure(link.medium.is_some(), key.to_owned(), || {
            "a radio contends for a `medium`, and this link is on none".into()
        })?;
        ensure(radio.weight > 0, at("weight"), || "a link of weight 0 would never send".into())?;
        probability(radio.loss, at("loss"))?;
        ensure(radio.retries <= RETRIES_MAX, at("retries"), || format!("at most {RETRIES_MAX}"))?;
        for (index, receiver) in radio.receivers.iter().enumerate() {
            let at = |field: &str| at(&format!("receivers.{index}.{field}"));
            self.flow_of(&receiver.flow, at("flow"))?.has_path(&receiver.flow, receiver.path, at("path"))?;
            probability(receiver.loss, at("loss"))?;
            self.positive(receiver.rate, at("rate"), "leave the receiver out")?;
        }
        Ok(())
    }

    fn positive(&self, rate: Option<RateSpec>, key: String, instead: &str) -> Checked {
        let Some(rate) = rate else { return Ok(()) };
        let SizeSpec::Bytes(packet) = self.packet else { return Ok(()) };
        let so = rate.rate(packet).as_bytes() > 0;
        ensure(so, key, || {
            format!("{rate} is nothing{}{instead}", if instead.is_empty() { "" } else { ": " })
        })
    }

    fn check_flow(&self, flow: &Flow, key: &str) -> Checked {
        let at = |field: &str| format!("{key}.{field}");
        if let Some(name) = &flow.controller {
            self.controller(name, at("controller"))?;
        }
        ensure(flow.count > 0, at("count"), || "at least 1".into())?;
        ensure(!flow.paths.is_empty(), at("paths"), || "a flow needs at least one path".into())?;
        ensure(flow.start < self.duration, at("start"), || {
            format!("{} is not before the end ({})", flow.start, self.duration)
        })?;
        ensure(flow.stop.is_none_or(|stop| flow.start < stop), at("stop"), || {
            "stops before it starts".into()
        })?;
        ensure(!matches!(flow.size, Some(SizeSpec::Time(_))), at("size"), || {
            "write it in bytes or packets: \"10 MB\", \"500 pkt\"".into()
        })?;
        ensure(!matches!(flow.size, Some(SizeSpec::Bytes(0) | SizeSpec::Packets(0))), at("size"), || {
            "nothing to transfer; leave `size` out for a flow without end".into()
        })?;
        let batches = flow.coalesce.0 > Span::ZERO;
        ensure(!batches || flow.transport == Transport::Mmtp, at("coalesce"), || {
            "only mmtp hands packets over in batches".into()
        })?;
        ensure(
            flow.steering == Steering::None || flow.transport == Transport::Packet,
            at("steering"),
            || "only the receivers of `transport = \"packet\"` steer".into(),
        )?;
        self.check_handover(flow, key)?;
        self.check_arrivals(flow, key)?;
        stack::check(self, flow, key)?;
        for (index, path) in flow.paths.iter().enumerate() {
            self.check_path(path, &at(&format!("paths.{index}")))?;
        }
        Ok(())
    }

    /// Returns the name of the access point of a path: of the last link that is on a medium.
    pub(crate) fn access_point<'a>(&self, path: &'a Path) -> Option<&'a String> {
        path.via.iter().rev().find(|name| self.link.get(*name).is_some_and(|link| link.medium.is_some()))
    }

    /// Checks that access points which hold their packets while a receiver moves have no other receiver.
    fn check_handover(&self, flow: &Flow, key: &str) -> Checked {
        if flow.steering != Steering::Handover {
            return Ok(());
        }
        let at = format!("{key}.steering");
        ensure(flow.count == 1, at.clone(), || "`handover` is for one receiver: `count = 1`".into())?;
        let aps: Vec<&String> = flow.paths.iter().filter_map(|path| self.access_point(path)).collect();
        let others = self.flow.iter().filter(|(_, other)| !std::ptr::eq(*other, flow));
        let uses =
            |other: &Flow| other.paths.iter().flat_map(|path| &path.via).any(|link| aps.contains(&link));
        match others.into_iter().find(|(_, other)| uses(other)) {
            Some((name, _)) => {
                let what =
                    format!("an access point holds all its packets meanwhile, also those of flow {name}");
                Err(ScenarioError::at(at, what))
            }
            None => Ok(()),
        }
    }

    fn check_arrivals(&self, flow: &Flow, key: &str) -> Checked {
        let at = |field: &str| format!("{key}.{field}");
        if let Some(delay) = flow.delayed_acks {
            ensure(flow.transport != Transport::Mmtp, at("delayed_acks"), || {
                "mmtp has no acknowledgements: its data answers requests".into()
            })?;
            ensure((Span::from_micros(1)..RTO_MIN).contains(&delay.0), at("delayed_acks"), || {
                "longer than 0 and shorter than 200 ms, the sender's shortest timeout".into()
            })?;
        }
        let Some(arrivals) = &flow.arrivals else { return Ok(()) };
        ensure(flow.transport != Transport::Mmtp, at("arrivals"), || {
            "only packets, mirrors, tcp and mptcp arrive one after the other".into()
        })?;
        ensure(arrivals.every.0 > Span::ZERO, at("arrivals.every"), || "some time passes".into())?;
        ensure(self.subflows(flow) <= SUBFLOWS_MAX, at("arrivals.every"), || {
            format!("more than {SUBFLOWS_MAX} subflows arrive in {}", self.duration)
        })?;
        let is_list = arrivals.sizes == Sizes::List;
        ensure(is_list != arrivals.list.is_empty(), at("arrivals.list"), || {
            "`sizes = \"list\"` and a `list` of sizes belong together".into()
        })?;
        ensure(flow.is_finite(), at("size"), || "transfers that arrive have a mean size".into())?;
        for (index, size) in arrivals.list.iter().enumerate() {
            let so = matches!(size, SizeSpec::Bytes(1..) | SizeSpec::Packets(1..));
            ensure(so, at(&format!("arrivals.list.{index}")), || "in bytes or packets".into())?;
        }
        let is_pareto = arrivals.sizes == Sizes::Pareto;
        ensure(is_pareto || arrivals.most.is_none(), at("arrivals.most"), || {
            "only sizes of `pareto` have a bound".into()
        })?;
        ensure(
            !is_pareto || (arrivals.shape > 1.0 && arrivals.shape <= 100.0),
            at("arrivals.shape"),
            || "above 1, or the mean has no end, and at most 100".into(),
        )?;
        let larger = match (flow.size, arrivals.most) {
            (Some(SizeSpec::Bytes(mean)), Some(SizeSpec::Bytes(most)))
            | (Some(SizeSpec::Packets(mean)), Some(SizeSpec::Packets(most))) => most > mean,
            (_, Some(_)) => false,
            (_, None) => true,
        };
        ensure(larger, at("arrivals.most"), || "more than `size`, and in the same unit".into())
    }

    fn check_path(&self, path: &Path, key: &str) -> Checked {
        let at = |field: &str| format!("{key}.{field}");
        self.positive(path.access, at("access"), "")?;
        let mut least = Span::ZERO;
        for (field, links) in [("via", &path.via), ("back", &path.back)] {
            for (index, name) in links.iter().enumerate() {
                least = least + self.link_of(name, at(&format!("{field}.{index}")))?.delay.0;
            }
        }
        // Without `rtt` the delays of the links decide.
        ensure(path.rtt.0 == Span::ZERO || path.rtt.0 >= least, at("rtt"), || {
            let least = super::Duration(least);
            format!(
                "{} is less than the delays of its links alone ({least}): leave it out, or raise it",
                path.rtt
            )
        })?;
        let limited = path.access.is_some()
            || path.via.iter().any(|name| self.link.get(name).is_some_and(Link::is_limited));
        ensure(limited, at("via"), || {
            "nothing on this path limits the flow: give one of its links a `rate`, or the path an `access`"
                .into()
        })
    }

    fn check_cbr(&self, cbr: &Cbr, key: &str) -> Checked {
        let at = |field: &str| format!("{key}.{field}");
        ensure(!cbr.via.is_empty(), at("via"), || "name at least one link".into())?;
        for (index, name) in cbr.via.iter().enumerate() {
            self.link_of(name, at(&format!("via.{index}")))?;
        }
        self.positive(Some(cbr.rate), at("rate"), "leave the traffic out")?;
        ensure(cbr.on.is_none_or(|on| on.0 > Span::ZERO), at("on"), || "a burst takes some time".into())?;
        ensure(cbr.off.0 == Span::ZERO || cbr.on.is_some(), at("off"), || {
            "traffic without bursts (`on`) has no pauses".into()
        })?;
        ensure(cbr.stop.is_none_or(|stop| cbr.start < stop), at("stop"), || "stops before it starts".into())
    }

    fn check_fault(&self, fault: &Fault, key: &str) -> Checked {
        let at = |field: &str| format!("{key}.{field}");
        ensure(fault.at < self.duration, at("at"), || {
            format!("{} is not before the end ({})", fault.at, self.duration)
        })?;
        ensure(fault.until.is_none_or(|until| fault.at < until), at("until"), || {
            "ends before it begins".into()
        })?;
        let changes = fault.down || fault.rate.is_some() || fault.delay.is_some() || fault.loss.is_some();
        match (&fault.link, &fault.source) {
            (Some(link), None) => {
                self.link_of(link, at("link"))?;
                ensure(changes, key, || {
                    "what happens? `down = true`, or a `rate`, `delay` or `loss`".into()
                })?;
                ensure(fault.until.is_none() || fault.down, at("until"), || {
                    "only `down` ends by itself: write a second fault for the change back".into()
                })?;
                self.positive(fault.rate, at("rate"), "use `down = true`")?;
                probability(fault.loss.unwrap_or(0.0), at("loss"))
            }
            (None, Some(source)) => {
                ensure(!changes, key, || {
                    "a source dies: `down`, `rate`, `delay` and `loss` are of links".into()
                })?;
                let mmtp = self.flow.values().filter(|flow| flow.transport == Transport::Mmtp);
                let sources =
                    || mmtp.clone().flat_map(|f| &f.paths).filter_map(|path| path.source.as_deref());
                ensure(sources().any(|name| name == source), at("source"), || {
                    format!("no path of an mmtp flow has the source `{source}`{}", hint(source, sources()))
                })
            }
            _ => Err(ScenarioError::at(key, "name one `link` or one `source`")),
        }
    }

    /// Checks that a controller with this name exists.
    fn controller(&self, name: &str, key: String) -> Checked {
        self.controllers.known.check(name).map_err(|what| ScenarioError::at(key, what))
    }

    /// Returns the link with this name.
    fn link_of(&self, name: &str, key: String) -> Result<&Link, ScenarioError> {
        self.link.get(name).ok_or_else(|| {
            ScenarioError::at(key, missing("link", name, self.link.keys().map(String::as_str)))
        })
    }

    /// Returns the flow with this name.
    fn flow_of(&self, name: &str, key: String) -> Result<&Flow, ScenarioError> {
        self.flow.get(name).ok_or_else(|| {
            ScenarioError::at(key, missing("flow", name, self.flow.keys().map(String::as_str)))
        })
    }
}

impl Flow {
    /// Checks that this flow, called `name`, has a path with this number.
    fn has_path(&self, name: &str, path: usize, key: String) -> Checked {
        ensure(path < self.paths.len(), key, || {
            let last = self.paths.len().saturating_sub(1);
            format!("flow `{name}` has no path {path}: they are counted from 0 to {last}")
        })
    }
}

/// Checks a name: names are parts of dotted keys and of lines like `mp/0`.
fn named(name: &str, what: &str) -> Checked {
    let so = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "-_+".contains(c));
    ensure(so, what, || format!("`{name}` is no name: letters, digits, `-` and `_`"))
}

/// Checks the parameters of RED; `is_limited` tells whether the link has a rate.
fn check_red(red: &Red, is_limited: bool, key: &str) -> Checked {
    let at = |field: &str| format!("{key}.{field}");
    let (min, max, kind) = match (red.min, red.max) {
        (SizeSpec::Bytes(min), SizeSpec::Bytes(max)) => (min, max, "B"),
        (SizeSpec::Packets(min), SizeSpec::Packets(max)) => (min, max, "pkt"),
        (SizeSpec::Time(min), SizeSpec::Time(max)) => (min.as_nanos(), max.as_nanos(), "ns"),
        _ => {
            return Err(ScenarioError::at(
                key,
                "`min` and `max` in one unit, please: the defaults are times",
            ));
        }
    };
    ensure(min < max, key, || "`min` must be less than `max`".into())?;
    ensure(is_limited || kind != "ns", key, || {
        "`min` and `max` are times, what the link sends in it, so the link needs a `rate`".into()
    })?;
    probability(red.drop, at("drop"))?;
    probability(red.weight, at("weight"))?;
    ensure(red.weight > 0.0, at("weight"), || "with a weight of 0 the average never changes".into())
}

#[cfg(test)]
mod tests {
    use super::super::Scenario;

    /// A complete and correct scenario; each test breaks one thing.
    pub(super) const TEXT: &str = r#"
        title = "t"
        duration = "60 s"
        count_from = "20 s"
        controllers = ["nmcc", "reno"]
        [link.bottleneck]
        rate = "20 Mbit/s"
        delay = "5 ms"
        queue = "50 ms"
        [link.other]
        rate = "500 pkt/s"
        delay = "5 ms"
        [flow.mp]
        paths = [{ via = ["bottleneck"], rtt = "50 ms" }, { via = ["other"], back = ["other"] }]
        [flow.sp]
        transport = "mmtp"
        paths = [{ via = ["bottleneck"], rtt = "50 ms", source = "london" }]
        size = "10 MB"
        [cbr.noise]
        via = ["other"]
        rate = "1 Mbit/s"
        [[fault]]
        at = "10 s"
        until = "17 s"
        link = "other"
        down = true
        [[fault]]
        at = "10 s"
        source = "london"
        [[case]]
        name = "slow"
        set = { "link.other.rate" = "250 pkt/s" }
        [[case]]
        name = "fast"
        [[measure]]
        metric = "mp_share"
        kind = "share"
        flows = ["mp"]
        expect = { "slow/nmcc" = "47..53", fast = "..3", reno = "97..", "*" = "0..100" }
        paper = { nmcc = 50 }
        [[measure]]
        metric = "gain"
        kind = "completion"
        flows = ["sp"]
        versus = "slow"
        [[measure]]
        metric = "loss"
        kind = "loss"
        links = ["bottleneck"]
        from = "30 s"
        until = "40 s"
        [[assert]]
        what = "drops"
        link = "bottleneck"
        at_least = 10
        [[assert]]
        what = "rtt"
        flow = "mp"
        at_least = 49
        at_most = 120
    "#;

    /// Returns the error after `from` is replaced by `to`.
    pub(super) fn broken(from: &str, to: &str) -> String {
        assert!(TEXT.contains(from), "{from}");
        Scenario::parse(&TEXT.replacen(from, to, 1), "x").expect_err(to).to_string()
    }

    #[test]
    fn a_right_one_passes() {
        let scenario = Scenario::parse(TEXT, "x").expect("a scenario");
        assert_eq!(scenario.cases().expect("cases").len(), 2);
    }

    #[test]
    fn what_does_not_exist_is_named_with_the_nearest() {
        for (from, to, said) in [
            (
                "via = [\"bottleneck\"]",
                "via = [\"botleneck\"]",
                "no link `botleneck`: did you mean `bottleneck`?",
            ),
            ("\"nmcc\", \"reno\"]", "\"nmcc\", \"rno\"]", "no controller `rno`: did you mean `reno`?"),
            ("via = [\"other\"]\n", "via = [\"oter\"]\n", "cbr.noise.via.0: there is no link `oter`"),
            ("link = \"other\"", "link = \"ohter\"", "fault.0.link: there is no link `ohter`"),
            ("source = \"london\"\n", "source = \"londen\"\n", "did you mean `london`?"),
        ] {
            let what = broken(from, to);
            assert!(what.contains(said), "{what}");
        }
    }

    #[test]
    fn times_and_numbers_are_sane() {
        for (from, to, said) in [
            ("count_from = \"20 s\"", "count_from = \"60 s\"", "x:4: count_from: 60 s is not before the end"),
            ("duration = \"60 s\"", "duration = \"0 s\"", "duration"),
            ("until = \"17 s\"", "until = \"7 s\"", "fault.0.until: ends before it begins"),
            ("down = true", "loss = 0.1", "only `down` ends by itself"),
            ("down = true", "", "what happens?"),
            ("queue = \"50 ms\"", "loss = 1.5", "link.bottleneck.loss: 1.5 is no probability"),
            ("queue = \"50 ms\"", "reorder = { probability = 0.5 }", "missing key `by`"),
            (
                "queue = \"50 ms\"",
                "reorder = { probability = 5, by = \"1 ms\" }",
                "reorder.probability: 5 is no",
            ),
            ("queue = \"50 ms\"", "codel = { flows = 1024, quantum = \"1 B\" }", "codel.quantum: from 256"),
            ("queue = \"50 ms\"", "pie = {}\ncodel = {}", "not codel and pie"),
            ("queue = \"50 ms\"", "pie = {}\nred = {}", "not pie and red"),
            ("queue = \"50 ms\"", "red = { max = \"5 ms\" }", "red: `min` must be less than `max`"),
            ("queue = \"50 ms\"", "red = { max = \"20 pkt\" }", "red: `min` and `max` in one unit"),
            ("queue = \"50 ms\"", "red = { weight = 0 }", "red.weight: "),
            ("queue = \"50 ms\"", "red = { drop = 2.0 }", "red.drop: "),
            ("size = \"10 MB\"", "delayed_acks = \"40 ms\"", "flow.sp.delayed_acks: mmtp has no"),
            ("[flow.sp]\n", "delayed_acks = \"200 ms\"\n[flow.sp]\n", "shorter than 200 ms"),
            ("[flow.sp]\n", "arrivals = { every = \"1 s\" }\n[flow.sp]\n", "flow.mp.size: transfers that"),
            (
                "[flow.sp]\n",
                "size = \"1 MB\"\narrivals = { every = \"1 us\" }\n[flow.sp]\n",
                "more than 1000000",
            ),
            (
                "[flow.sp]\n",
                "arrivals = { every = \"1 s\", sizes = \"list\" }\n[flow.sp]\n",
                "belong together",
            ),
            ("queue = \"50 ms\"", "codel = {}\nrandom = {}", "not random and codel"),
            ("queue = \"50 ms\"", "radio = { weight = 3 }", "a radio contends for a `medium`"),
            ("queue = \"50 ms\"", "drop = [0]", "link.bottleneck.drop.0: packets are counted from 1"),
            ("queue = \"50 ms\"", "drop_of = [{ flow = \"mp\", path = 2, nth = 1 }]", "has no path 2"),
            ("queue = \"50 ms\"", "trace = \"no-such\"", "trace no-such cannot be read"),
            ("queue = \"50 ms\"", "gilbert = { to_bad = 2, to_good = 1 }", "gilbert.to_bad"),
            ("rate = \"20 Mbit/s\"", "", "link.bottleneck.queue: a time means"),
            ("rate = \"500 pkt/s\"", "", "nothing on this path limits the flow"),
            ("rate = \"500 pkt/s\"", "rate = \"0 B/s\"", "use a fault"),
            ("rtt = \"50 ms\"", "rtt = \"4 ms\"", "flow.mp.paths.0.rtt: 4 ms is less than"),
            ("size = \"10 MB\"", "size = \"10 s\"", "in bytes or packets"),
            ("size = \"10 MB\"", "count = 2000000", "subflows"),
            ("[flow.sp]\n", "coalesce = \"1 ms\"\n[flow.sp]\n", "flow.mp.coalesce: only mmtp"),
            ("size = \"10 MB\"", "start = \"60 s\"", "flow.sp.start: 60 s is not before the end"),
            ("[flow.sp]", "[flow.\"s.p\"]", "`s.p` is no name"),
            ("\"nmcc\", \"reno\"]", "\"nmcc\", \"nmcc\"]", "`nmcc` twice"),
            ("name = \"fast\"", "name = \"slow\"", "two cases `slow`"),
            ("name = \"fast\"", "name = \"reno\"", "a controller's name too"),
            ("duration = \"60 s\"", "duration = \"60 s\"\npacket = \"10 ms\"", "size of a packet in bytes"),
            ("duration = \"60 s\"", "duration = \"60 s\"\nseeds = 0", "x:4: seeds: from 1"),
        ] {
            let what = broken(from, to);
            assert!(what.contains(said), "{to}: {what}");
        }
    }

    #[test]
    fn a_case_is_checked_as_it_will_be_run() {
        let what = broken("\"link.other.rate\" = \"250 pkt/s\"", "\"link.other.loss\" = 7");
        assert!(what.contains("case `slow`: link.other.loss: 7 is no probability"), "{what}");
        let what = broken("\"link.other.rate\" = \"250 pkt/s\"", "\"count_from\" = \"2 min\"");
        assert!(what.contains("case `slow`: count_from"), "{what}");
    }

    #[test]
    fn traces_are_read() {
        let dir = std::env::temp_dir();
        let file = dir.join(format!("anabranch-trace-{}", std::process::id()));
        let text = |trace: &str| TEXT.replacen("queue = \"50 ms\"", &format!("trace = {trace:?}"), 1);
        let scenario = text(&file.display().to_string());
        for (lines, so) in
            [("1\n5\n5\n9\n", true), ("5\n1\n", false), ("x\n", false), ("", false), ("0\n", false)]
        {
            std::fs::write(&file, lines).expect("written");
            assert_eq!(Scenario::parse(&scenario, "x").is_ok(), so, "{lines:?}");
        }
        std::fs::remove_file(&file).expect("removed");
    }
}
