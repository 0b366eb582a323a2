//! The tests of a plan: every combination that makes sense, in an order that the seed decides.

use std::collections::BTreeMap;
use std::fmt;

use anabranch_algo::SplitMix64;

use crate::network::Interface;
use crate::plan::Plan;
use crate::profile::{Event, Profile, Victim};
use crate::setting::{Interfaces, Transport};

/// One run of a profile in a setting.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Test {
    /// The name of the profile.
    pub profile: String,
    /// The transport.
    pub transport: Transport,
    /// The interfaces that are on.
    pub interfaces: Interfaces,
    /// The interface with the default route.
    pub default: Interface,
    /// The name of the network.
    pub network: String,
    /// The number of the repetition, from 1.
    pub repetition: u32,
}

impl fmt::Display for Test {
    /// Writes the test's name: `web/mptcp/both/wifi/home/1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { profile, transport, interfaces, default, network, repetition } = self;
        let (transport, interfaces) = (transport.word(), interfaces.word());
        write!(f, "{profile}/{transport}/{interfaces}/{}/{network}/{repetition}", default.word())
    }
}

impl Test {
    /// Returns the interfaces that are on, the one with the default route first.
    #[must_use]
    pub fn interfaces(&self) -> Vec<Interface> {
        let order = [self.default, self.default.other()];
        order.into_iter().filter(|interface| self.interfaces.has(*interface)).collect()
    }

    /// Returns the seed of everything random in the test.
    #[must_use]
    pub fn seed(&self, plan: &Plan) -> u64 {
        let fold = |seed: u64, byte: u8| SplitMix64(seed ^ u64::from(byte)).bits();
        self.to_string().bytes().fold(SplitMix64(plan.seed).bits(), fold)
    }
}

/// The tests of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// The tests in the order in which they run.
    pub tests: Vec<Test>,
    /// How many combinations each rule left out, by the rule's sentence.
    pub left_out: BTreeMap<&'static str, usize>,
}

impl Schedule {
    /// Makes the tests of a plan.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        let mut schedule = Self::default();
        for network in &plan.networks {
            for name in &plan.profiles {
                let profile = plan.profile(name);
                for test in combinations(plan, name, network) {
                    schedule.add(&profile, test, profile.repeat.unwrap_or(plan.repeat));
                }
            }
        }
        shuffle(&mut schedule.tests, plan.seed);
        schedule
    }

    fn add(&mut self, profile: &Profile, test: Test, repeat: u32) {
        if let Some(rule) = left_out(profile, &test) {
            *self.left_out.entry(rule).or_default() += repeat as usize;
            return;
        }
        self.tests.extend((1..=repeat).map(|repetition| Test { repetition, ..test.clone() }));
    }
}

fn combinations(plan: &Plan, profile: &str, network: &str) -> Vec<Test> {
    let mut tests = Vec::new();
    for &transport in &plan.transports {
        for &interfaces in &plan.interfaces {
            for &default in &plan.default {
                tests.push(Test {
                    profile: profile.to_owned(),
                    transport,
                    interfaces,
                    default,
                    network: network.to_owned(),
                    repetition: 1,
                });
            }
        }
    }
    tests
}

/// Returns the rule that leaves a combination out.
fn left_out(profile: &Profile, test: &Test) -> Option<&'static str> {
    let Test { transport, interfaces, default, .. } = test;
    let only = &profile.only;
    let misses = |is_empty: bool, has: bool| !is_empty && !has;
    let is_both = *interfaces == Interfaces::Both;
    if misses(only.transports.is_empty(), only.transports.contains(transport))
        || misses(only.interfaces.is_empty(), only.interfaces.contains(interfaces))
        || misses(only.default.is_empty(), only.default.contains(default))
        || misses(only.networks.is_empty(), only.networks.contains(&test.network))
    {
        return Some("the profile says `only`");
    }
    if !interfaces.has(*default) {
        return Some("the default route would lead over an interface that is off");
    }
    if is_both && *transport == Transport::Tcp {
        return Some("TCP uses the default route alone: one interface shows the same");
    }
    if !is_both && *transport != Transport::Tcp {
        return Some("Multipath TCP and proxies have nothing to choose with one interface");
    }
    if profile.is_udp(&test.profile) && *transport == Transport::Mptcp {
        return Some("Multipath TCP carries no UDP");
    }
    let kills_proxy = |event: &Event| event.kill == Some(Victim::Proxy);
    if profile.events.iter().any(kills_proxy) && !transport.is_proxy() {
        return Some("an event kills the proxy, and there is none");
    }
    let absent = |event: &Event| event.interface().is_some_and(|on| !interfaces.has(on));
    if profile.events.iter().any(absent) {
        return Some("an event changes an interface that is off");
    }
    None
}

/// Puts the tests in an order that the seed decides (Fisher and Yates).
fn shuffle(tests: &mut [Test], seed: u64) {
    let mut numbers = SplitMix64(seed);
    for last in (1..tests.len()).rev() {
        tests.swap(last, numbers.index(last + 1));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    const PLAN: &str = r#"
repeat = 2
transports = ["tcp", "mptcp", "proxy", "proxy-udp"]
interfaces = ["wifi", "cell", "both"]
default = ["wifi", "cell"]
networks = ["home", "dsl"]
profiles = ["web", "call", "cut"]
[network.home]
wifi = "wifi-70"
cell = "4g"
[network.dsl]
wifi = "dsl"
cell = "4g"
[profile.cut]
kind = "download"
only = { networks = ["dsl"] }
events = [{ at = "1 s", down = "cell" }]
"#;

    fn schedule(change: impl FnOnce(&mut Plan)) -> Schedule {
        let mut plan = Plan::parse(PLAN, Path::new("")).expect("a plan");
        change(&mut plan);
        Schedule::of(&plan)
    }

    #[test]
    fn every_combination_runs_or_is_left_out_by_a_rule() {
        let schedule = schedule(|_| ());
        let left: usize = schedule.left_out.values().sum();
        assert_eq!(schedule.tests.len() + left, 2 * 3 * 4 * 3 * 2 * 2);
        // web: TCP over either, three transports over both with either default.
        let of = |name: &str| schedule.tests.iter().filter(|test| test.profile == name).count();
        assert_eq!((of("web"), of("call"), of("cut")), (2 * 2 * 8, 2 * 2 * 6, 2 * 7));
        assert_eq!(schedule.left_out["Multipath TCP carries no UDP"], 2 * 2 * 2);
        assert_eq!(schedule.left_out["an event changes an interface that is off"], 2);
        let names: BTreeSet<String> = schedule.tests.iter().map(Test::to_string).collect();
        assert_eq!(names.len(), schedule.tests.len(), "each name once");
        assert!(names.contains("web/mptcp/both/cell/dsl/2"));
    }

    #[test]
    fn the_seed_decides_the_order_alone() {
        let (one, again, two) = (schedule(|_| ()), schedule(|_| ()), schedule(|plan| plan.seed = 2));
        assert_eq!(one, again);
        assert_ne!(one.tests, two.tests);
        let sorted = |schedule: &Schedule| {
            let mut tests = schedule.tests.clone();
            tests.sort();
            tests
        };
        assert_eq!(sorted(&one), sorted(&two));
        assert_ne!(one.tests, sorted(&one), "it is shuffled");
    }

    #[test]
    fn the_default_route_comes_first() {
        let both = schedule(|_| ())
            .tests
            .into_iter()
            .find(|test| test.default == Interface::Cell && test.interfaces == Interfaces::Both);
        let both = both.expect("such a test");
        assert_eq!(both.interfaces(), [Interface::Cell, Interface::Wifi]);
        let single = Test { interfaces: Interfaces::Cell, ..both.clone() };
        assert_eq!(single.interfaces(), [Interface::Cell]);
        let plan = Plan::parse(PLAN, Path::new("")).expect("a plan");
        assert_ne!(both.seed(&plan), single.seed(&plan));
    }
}
