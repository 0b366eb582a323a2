//! Compares the fluid model with the packet simulator: some draws, long enough to be steady.

use anabranch_topology::zoo::Builtin;

use super::draw::Policy;
use super::network::Rule;
use super::study::{Both, Case, Clients, QUEUE_PACKETS, StudyNetwork};
use super::{fluid, packets};

/// Divisor of a run's length: this first part is not counted, because flows have not settled.
const UNSETTLED: u64 = 5;

/// A case of one draw in both worlds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Check {
    /// Name of the network.
    pub network: &'static str,
    /// Number of the draw.
    pub draw: u64,
    /// Setting of the clients.
    pub case: Case,
    /// Length of the packet simulation, seconds of virtual time. The first fifth is not counted.
    pub seconds: u64,
}

/// The rates of each client in both worlds, packets a second.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// Rates by the fluid model.
    pub fluid: Vec<f64>,
    /// Rates by the packet simulator.
    pub packets: Vec<f64>,
}

impl Compared {
    /// Returns by how much the sum of the fluid model's rates exceeds that of the packet simulator, percent.
    #[must_use]
    pub fn aggregate_error(&self) -> f64 {
        let (fluid, packets): (f64, f64) = (self.fluid.iter().sum(), self.packets.iter().sum());
        100.0 * (fluid / packets.max(f64::MIN_POSITIVE) - 1.0)
    }

    /// Returns the mean difference of a client's two rates, in percent of the mean rate.
    #[must_use]
    pub fn client_error(&self) -> f64 {
        let differ: f64 = self.fluid.iter().zip(&self.packets).map(|(a, b)| (a - b).abs()).sum();
        100.0 * differ / self.packets.iter().sum::<f64>().max(f64::MIN_POSITIVE)
    }
}

/// Returns the cases that the report shows. With links of 1 Gbit/s a window needs minutes to recover from a
/// loss, so these cases last long.
#[must_use]
pub fn checks() -> Vec<Check> {
    let half = |network, rule| {
        let case = Case { core_mbits: 10, delay_max_ms: 125, clients: Clients::Half { rule, paths: 2 } };
        Check { network, draw: 0, case, seconds: 600 }
    };
    let all = |network, core_mbits, policy, assisted| {
        let case = Case { core_mbits, delay_max_ms: 125, clients: Clients::All { policy, assisted } };
        Check { network, draw: 0, case, seconds: if core_mbits > 100 { 1_500 } else { 600 } }
    };
    let (two, three) = (Policy::Shortest(2), Policy::Shortest(3));
    vec![
        half("SwitchL3", Rule::Nmcc),
        half("SwitchL3", Rule::Lia),
        half("Geant2012", Rule::Nmcc),
        half("Geant2012", Rule::Lia),
        all("Geant2012", 10, Policy::Single, false),
        all("Geant2012", 10, three, false),
        all("Geant2012", 10, three, true),
        all("Goodnet", 10, Policy::Disjoint, true),
        all("Goodnet", 100, three, false),
        all("Goodnet", 100, three, true),
        all("Nsfnet", 1_000, Policy::Single, false),
        all("Nsfnet", 1_000, two, false),
        all("Nsfnet", 1_000, two, true),
        all("Gridnet", 1_000, Policy::Disjoint, false),
        all("Gridnet", 1_000, Policy::Disjoint, true),
    ]
}

impl Check {
    /// Runs both worlds; `None` if there is no such network.
    #[must_use]
    pub fn run(&self, seed: u64) -> Option<Compared> {
        let studied = StudyNetwork::from(Builtin::named(self.network)?);
        let both = Both::new(&studied, seed, self.draw).ok()?;
        let network = both.network(&self.case, QUEUE_PACKETS);
        let marks = [self.seconds / UNSETTLED, self.seconds];
        let packets = packets::rates(&network, seed, &marks).pop()?;
        Some(Compared { fluid: fluid::solve(&network).flow_rates(), packets })
    }
}
