//! Adds the results up: by setting, by profile, and beside the numbers of papers.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::compare::{Compare, Measure};
use crate::network::Interface;
use crate::plan::Plan;
use crate::results::{Captured, Ending, Sent, TestResult};
use crate::setting::{Interfaces, Transport};

/// How many tests ended in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Endings {
    /// Tests that ended well.
    pub ok: usize,
    /// Tests that failed.
    pub failed: usize,
    /// Tests that took too long.
    pub timeout: usize,
    /// Tests that need something that is not installed.
    pub skipped: usize,
}

impl Endings {
    fn add(&mut self, ending: Ending) {
        *match ending {
            Ending::Ok => &mut self.ok,
            Ending::Failed => &mut self.failed,
            Ending::Timeout => &mut self.timeout,
            Ending::Skipped => &mut self.skipped,
        } += 1;
    }
}

/// A network, a transport, interfaces and a default route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// The network.
    pub network: String,
    /// The transport.
    pub transport: Transport,
    /// The interfaces that are on.
    pub interfaces: Interfaces,
    /// The interface with the default route.
    pub default: Interface,
}

/// The sums of some results that ended well; shares are percent, `None` where nothing is counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Shares {
    /// The bytes on the links of WiFi and of the mobile interface.
    pub wire_bytes: (u64, u64),
    /// The share of the bytes on links that went over the mobile interface.
    pub cell_bytes: Option<f64>,
    /// The connections with data that were captured.
    pub connections: u64,
    /// The share of the connections whose data went over WiFi alone, and of all data the part in them.
    pub wifi_connections: Option<(f64, f64)>,
    /// The share of the connections whose data went over the mobile interface alone, and the part of data.
    pub cell_connections: Option<(f64, f64)>,
    /// The reinjected part of the data from the phone, and of the data towards it.
    pub reinjected: (Option<f64>, Option<f64>),
    /// The handovers.
    pub handovers: u64,
}

/// The results of one setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SettingRow {
    /// The setting.
    #[serde(flatten)]
    pub setting: Setting,
    /// How the tests ended.
    pub endings: Endings,
    /// The sums of the tests that ended well.
    pub shares: Shares,
}

/// One number of a profile in a setting, over the tests that ended well.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ValueRow {
    /// The profile.
    pub profile: String,
    /// The name of the number, with its unit.
    pub value: String,
    /// The setting.
    #[serde(flatten)]
    pub setting: Setting,
    /// How many tests have the number.
    pub tests: usize,
    /// The least, the median and the greatest value.
    pub range: (f64, f64, f64),
}

/// A number of ours beside the paper's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// What is compared.
    pub what: String,
    /// The paper's number, percent.
    pub paper: f64,
    /// Our number, percent; `None` if no test measured it.
    pub ours: Option<f64>,
    /// How many tests were counted.
    pub tests: usize,
    /// Whether our number is as near as the plan expects; `None` if it expects nothing.
    pub is_near: Option<bool>,
}

/// All sums.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tally {
    /// The plan's title.
    pub title: String,
    /// How all tests ended.
    pub endings: Endings,
    /// The tests that have no result yet.
    pub missing: usize,
    /// The settings, in the plan's order.
    pub settings: Vec<SettingRow>,
    /// The numbers of the profiles, in the plan's order.
    pub values: Vec<ValueRow>,
    /// The numbers of papers.
    pub compared: Vec<Compared>,
}

impl Tally {
    /// Adds up the results of a plan.
    #[must_use]
    pub fn of(plan: &Plan, results: &[TestResult], missing: usize) -> Self {
        let mut endings = Endings::default();
        results.iter().for_each(|result| endings.add(result.ending));
        let settings = settings(plan, results);
        let mut values = Vec::new();
        for profile in &plan.profiles {
            for setting in &settings {
                values.extend(value_rows(profile, setting, results));
            }
        }
        let row = |setting: &Setting| {
            let mine: Vec<&TestResult> = results.iter().filter(|result| is_of(result, setting)).collect();
            let mut endings = Endings::default();
            mine.iter().for_each(|result| endings.add(result.ending));
            SettingRow { setting: setting.clone(), endings, shares: Shares::of(&mine) }
        };
        Self {
            title: plan.title.clone(),
            endings,
            missing,
            settings: settings.iter().map(row).collect(),
            values,
            compared: plan.compare.iter().map(|compare| compared(compare, results)).collect(),
        }
    }

    /// Whether all tests ended well and all numbers are where the plan expects them. Tests that were skipped
    /// do not count.
    #[must_use]
    pub fn is_well(&self) -> bool {
        let near = self.compared.iter().all(|compared| compared.is_near != Some(false));
        self.endings.failed == 0 && self.endings.timeout == 0 && near
    }
}

fn is_of(result: &TestResult, setting: &Setting) -> bool {
    result.network == setting.network
        && result.transport == setting.transport
        && result.interfaces == setting.interfaces
        && result.default == setting.default
}

/// Returns the settings that have results, in the plan's order.
fn settings(plan: &Plan, results: &[TestResult]) -> Vec<Setting> {
    let mut settings = Vec::new();
    for network in &plan.networks {
        for transport in Transport::ALL {
            for interfaces in Interfaces::ALL {
                for default in Interface::ALL {
                    let setting = Setting { network: network.clone(), transport, interfaces, default };
                    if results.iter().any(|result| is_of(result, &setting)) {
                        settings.push(setting);
                    }
                }
            }
        }
    }
    settings
}

fn value_rows(profile: &str, setting: &Setting, results: &[TestResult]) -> Vec<ValueRow> {
    let mut all: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mine = results
        .iter()
        .filter(|result| result.ending == Ending::Ok && result.profile == profile && is_of(result, setting));
    for (name, value) in mine.flat_map(|result| &result.values) {
        all.entry(name).or_default().push(*value);
    }
    let row = |(name, mut values): (&str, Vec<f64>)| {
        values.sort_by(f64::total_cmp);
        let (first, last) = (values[0], values[values.len() - 1]);
        ValueRow {
            profile: profile.to_owned(),
            value: name.to_owned(),
            setting: setting.clone(),
            tests: values.len(),
            range: (first, median(&values), last),
        }
    };
    all.into_iter().map(row).collect()
}

/// Returns the median of sorted values: of an even number, the mean of the two in the middle.
fn median(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { f64::midpoint(sorted[half - 1], sorted[half]) }
}

fn percent(part: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| part as f64 * 100.0 / of as f64)
}

impl Shares {
    /// Adds up the results that ended well.
    #[must_use]
    pub fn of(results: &[&TestResult]) -> Self {
        let well = || results.iter().filter(|result| result.ending == Ending::Ok);
        let wire = |interface| -> u64 {
            well().filter_map(|result| result.wire.get(&interface)).map(|wire| wire.bytes()).sum()
        };
        let (wifi, cell) = (wire(Interface::Wifi), wire(Interface::Cell));
        let captured = || well().filter_map(|result| result.captured.as_ref());
        let sum = |of: fn(&Captured) -> u64| captured().map(of).sum::<u64>();
        let count = sum(|captured| captured.connections.count());
        let bytes = sum(|captured| captured.connections.bytes());
        let part = |connections: u64, data: u64| percent(connections, count).zip(percent(data, bytes));
        let reinjected = |of: fn(&Captured) -> Sent| {
            let again: u64 = captured().map(|captured| of(captured).reinjected_bytes).sum();
            percent(again, captured().map(|captured| of(captured).unique_bytes).sum())
        };
        Self {
            wire_bytes: (wifi, cell),
            cell_bytes: percent(cell, wifi + cell),
            connections: count,
            wifi_connections: part(sum(|c| c.connections.wifi.0), sum(|c| c.connections.wifi.1)),
            cell_connections: part(sum(|c| c.connections.cell.0), sum(|c| c.connections.cell.1)),
            reinjected: (reinjected(|captured| captured.up), reinjected(|captured| captured.down)),
            handovers: sum(|captured| captured.handovers),
        }
    }

    /// Returns a share, percent.
    #[must_use]
    pub fn get(&self, measure: Measure) -> Option<f64> {
        match measure {
            Measure::WifiBytes => self.cell_bytes.map(|cell| 100.0 - cell),
            Measure::CellBytes => self.cell_bytes,
            Measure::WifiConnections => self.wifi_connections.map(|part| part.0),
            Measure::CellConnections => self.cell_connections.map(|part| part.0),
            Measure::WifiConnectionBytes => self.wifi_connections.map(|part| part.1),
            Measure::CellConnectionBytes => self.cell_connections.map(|part| part.1),
            Measure::ReinjectedUp => self.reinjected.0,
            Measure::ReinjectedDown => self.reinjected.1,
        }
    }
}

fn compared(compare: &Compare, results: &[TestResult]) -> Compared {
    let fits = |result: &&TestResult| {
        compare.profile.as_ref().is_none_or(|profile| *profile == result.profile)
            && compare.network.as_ref().is_none_or(|network| *network == result.network)
            && compare.transport.is_none_or(|transport| transport == result.transport)
            && compare.default.is_none_or(|default| default == result.default)
            && result.ending == Ending::Ok
    };
    let mine: Vec<&TestResult> = results.iter().filter(fits).collect();
    let ours = Shares::of(&mine).get(compare.measure);
    let is_near =
        compare.within.map(|within| ours.is_some_and(|ours| (ours - compare.paper).abs() <= within));
    Compared { what: compare.what.clone(), paper: compare.paper, ours, tests: mine.len(), is_near }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use super::*;
    use crate::results::{Connections, RoundTrips, Wire};
    use crate::schedule::{Schedule, Test};

    /// Returns the plan `quick` and a result of each of its tests; the mobile interface carries a quarter.
    pub(crate) fn night() -> (Plan, Vec<TestResult>) {
        let plan = Plan::parse(Plan::built_in("quick").expect("a plan"), Path::new("")).expect("a plan");
        let result = |(number, test): (usize, &Test)| {
            let mut result = TestResult::new(test, Ending::Ok, None);
            result.values.insert("s".into(), number as f64);
            result.wire.insert(Interface::Wifi, Wire { up_bytes: 100, down_bytes: 200 });
            result.wire.insert(Interface::Cell, Wire { up_bytes: 50, down_bytes: 50 });
            let connections = Connections { wifi: (3, 25), both: (1, 75), ..Connections::default() };
            let up = Sent { unique_bytes: 1_000, reinjected_bytes: 5, retransmitted_bytes: 0 };
            let mut captured = Captured { connections, up, ..Captured::default() };
            let trips = RoundTrips { up: vec![14.0, 20.0], down: vec![15.5] };
            captured.rtt_ms.insert(Interface::Wifi, trips);
            result.captured = Some(captured);
            result
        };
        let results = Schedule::of(&plan).tests.iter().enumerate().map(result).collect();
        (plan, results)
    }

    #[test]
    fn shares_are_of_what_ended_well() {
        let (plan, mut results) = night();
        results[0].ending = Ending::Failed;
        results[0].wire.insert(Interface::Cell, Wire { up_bytes: 1 << 40, down_bytes: 0 });
        let tally = Tally::of(&plan, &results, 0);
        assert_eq!((tally.endings.failed, tally.endings.ok), (1, results.len() - 1));
        assert!(!tally.is_well());
        let all: Vec<&TestResult> = results.iter().collect();
        let shares = Shares::of(&all);
        assert_eq!(shares.get(Measure::CellBytes), Some(25.0));
        assert_eq!(shares.get(Measure::WifiBytes), Some(75.0));
        assert_eq!(shares.get(Measure::WifiConnections), Some(75.0));
        assert_eq!(shares.get(Measure::WifiConnectionBytes), Some(25.0));
        assert_eq!(shares.get(Measure::CellConnections), Some(0.0));
        assert_eq!(shares.get(Measure::ReinjectedUp), Some(0.5));
        assert_eq!(shares.get(Measure::ReinjectedDown), None);
    }

    #[test]
    fn a_number_is_near_the_papers_or_not() {
        let (plan, results) = night();
        let compare = |paper, within| Compare {
            what: "x".into(),
            paper,
            within,
            measure: Measure::CellBytes,
            profile: None,
            network: None,
            transport: None,
            default: None,
        };
        assert_eq!(compared(&compare(29.0, Some(5.0)), &results).is_near, Some(true));
        assert_eq!(compared(&compare(31.0, Some(5.0)), &results).is_near, Some(false));
        assert_eq!(compared(&compare(31.0, None), &results).is_near, None);
        let nothing = compared(&compare(29.0, Some(5.0)), &[]);
        assert_eq!((nothing.ours, nothing.is_near, nothing.tests), (None, Some(false), 0));
        assert_eq!(compared(&compare(29.0, Some(5.0)), &results).tests, results.len());
        drop(plan);
    }

    #[test]
    fn values_have_a_median_in_each_setting() {
        assert_eq!([median(&[1.0]), median(&[1.0, 4.0]), median(&[1.0, 2.0, 9.0])], [1.0, 2.5, 2.0]);
        let (plan, mut results) = night();
        let first = results[0].clone();
        results = [3.0, 1.0, 2.0]
            .map(|value| {
                let mut result = first.clone();
                result.values.insert("s".into(), value);
                result
            })
            .into();
        let tally = Tally::of(&plan, &results, 7);
        assert_eq!((tally.values.len(), tally.missing), (1, 7));
        assert_eq!((tally.values[0].tests, tally.values[0].range), (3, (1.0, 2.0, 3.0)));
    }
}
