//! Formats the figures as Markdown tables, with the dissertation's averages, and the page that holds them.

use super::check::{Check, Compared};
use super::draw::Policy;
use super::network::Rule;
use super::rank_gain::{RANKS, RankGain};
use super::rank_pairs::{PAIR_DRAWS_MAX, PairGain, SETTINGS};
use super::study::{CAPACITIES_MBITS, Clients, Gain, Mean, POLICIES, Study, World};
use crate::report::fill;

/// Text of the page; `{{NAME}}` stands for a table.
const PAGE: &str = include_str!("report.md");

/// Averages that the dissertation prints for Fig. 4.17, percent: capacity in Mbit/s, index in [`POLICIES`],
/// gain without and with the topology manager. Where it prints the gain with the manager and the gain that
/// the manager adds, the value without it is the difference.
const DISSERTATION: [(u64, usize, Option<f64>, f64); 6] = [
    (10, 0, Some(14.0), 14.0),
    (10, 1, Some(24.0), 24.0),
    (100, 1, Some(55.0), 57.0),
    (1_000, 0, Some(63.0), 69.0),
    (1_000, 1, Some(79.0), 87.0),
    (1_000, 2, Some(76.0), 87.0),
];
/// Fraction of the clients with disjoint paths by [`POLICIES`], percent, in the dissertation.
const DISSERTATION_DISJOINT: [f64; 3] = [32.0, 51.0, 86.0];
/// Statements of the dissertation on Fig. 4.16: rate of the links in Mbit/s, the longest access delay in ms,
/// the gain of the slowest, and the fraction of the ranks that gain. It says that the curves of 1 Gbit/s
/// equal those of 100 Mbit/s.
const DISSERTATION_RANKS: [(u64, u64, &str, &str); 5] = [
    (1_000, 125, "as 100 Mbit/s", "-"),
    (100, 125, "less than 100 %", "-"),
    (10, 125, "up to 100 %", "some 80 %"),
    (10, 250, "less than 100 %", "some 80 %"),
    (10, 500, "less than 100 %", "some 80 %"),
];

/// The contents of the page.
#[derive(Clone, Debug)]
pub struct Page {
    /// Study by the fluid model, with the dissertation's settings.
    pub study: Study,
    /// Study by the fluid model with queues ten times as long.
    pub long_queues: Study,
    /// Some draws in the packet simulator, soon after the start.
    pub packets: Study,
    /// Possible origins of the printed gains by rank.
    pub pairs: Vec<PairGain>,
    /// Comparisons of the model with packets.
    pub checks: Vec<(Check, Compared)>,
}

impl Page {
    /// Formats the page as Markdown. Equal pages give equal texts.
    #[must_use]
    pub fn markdown(&self) -> String {
        let options = &self.study.options;
        let places = [
            ("seed", options.seed.to_string()),
            ("draws", options.draws.to_string()),
            ("packet_draws", self.packets.options.draws.to_string()),
            ("summary", self.summary()),
            ("friendliness", friendliness(&self.study)),
            ("friendliness_packets", friendliness(&self.packets)),
            ("gains", gains(&self.study)),
            ("pair_draws", options.draws.min(PAIR_DRAWS_MAX).to_string()),
            ("pairs", pairs(&self.pairs)),
            ("checks", checks(&self.checks)),
            ("residual", format!("{:.1}", 100.0 * self.study.residual.0.max(self.long_queues.residual.0))),
        ];
        fill(PAGE, &places)
    }

    fn summary(&self) -> String {
        let mut rows = vec![
            ["", "dissertation", "ours", "queues of 1,000", "packets, 10 to 13 s"].map(String::from).to_vec(),
        ];
        let studies = [&self.study, &self.long_queues, &self.packets];
        for (policy, printed) in DISSERTATION_DISJOINT.iter().enumerate() {
            let what = format!("clients with disjoint paths, {}", title(POLICIES[policy]));
            let ours = studies.map(|study| format!("{:.0} %", study.mean.disjoint[policy]));
            rows.push([what, format!("{printed:.0} %")].into_iter().chain(ours).collect());
        }
        for (mbits, policy, without, with) in DISSERTATION {
            let Some(capacity) = CAPACITIES_MBITS.iter().position(|m| *m == mbits) else { continue };
            let where_ = format!("{}, {}", rate(mbits), title(POLICIES[policy]));
            let of = |value: fn(&Gain) -> Mean| {
                studies.map(|study| interval(value(&study.mean.gains[capacity][policy])))
            };
            let printed = [format!("{with:.0} %"), without.map_or("-".into(), |w| points(with - w))];
            let gain = [format!("gain with TM, {where_}"), printed[0].clone()];
            rows.push(gain.into_iter().chain(of(|gain| gain.with)).collect());
            let added = [format!("of it by the TM, {where_}"), printed[1].clone()];
            rows.push(added.into_iter().chain(of(|gain| gain.added)).collect());
        }
        type Printed = fn(&str, &str) -> String;
        type Cell = fn(&RankGain) -> String;
        let of_ranks: [(&str, Printed, Cell); 3] = [
            ("slowest rank", |slowest, _| slowest.to_owned(), |ranks| interval(ranks.slowest)),
            ("ranks that gain", |_, gaining| gaining.to_owned(), |ranks| format!("{:.0} %", ranks.gaining)),
            ("all together", |_, _| "0".to_owned(), |ranks| interval(ranks.aggregate)),
        ];
        for (what, printed, cell) in of_ranks {
            for (mbits, delay_max_ms, slowest, gaining) in DISSERTATION_RANKS {
                let of = |study: &Study| {
                    let is = |s: &&super::study::Friendliness| {
                        (s.core_mbits, s.delay_max_ms) == (mbits, delay_max_ms)
                    };
                    study.friendliness.iter().find(is).map_or("-".to_owned(), |s| cell(&s.ranks))
                };
                let what = format!("NMCC over LIA, {what}, {}", setting((mbits, delay_max_ms)));
                rows.push([what, printed(slowest, gaining)].into_iter().chain(studies.map(of)).collect());
            }
        }
        table(&rows)
    }
}

/// Formats Fig. 4.16 and 4.17 of a study.
#[must_use]
pub fn tables(study: &Study) -> String {
    format!("{}\n{}", friendliness(study), gains(study))
}

/// Formats Fig. 4.16: curves by rank, then the gains.
fn friendliness(study: &Study) -> String {
    let head = |last: &[&str]| {
        let ranks = (0..RANKS).map(|rank| format!("{} %", 100 * rank / (RANKS - 1)));
        let rows = ["links, access delay".to_owned()].into_iter().chain(ranks);
        rows.chain(last.iter().map(|text| (*text).to_owned())).collect::<Vec<_>>()
    };
    let (mut relative, mut gain) = (vec![head(&[])], vec![head(&["all", "ranks that gain"])]);
    for row in &study.friendliness {
        let (name, ranks) = (setting((row.core_mbits, row.delay_max_ms)), &row.ranks);
        for (rule, curve) in ["NMCC", "LIA"].iter().zip(&ranks.relative) {
            let cells = curve.iter().map(|value| format!("{value:.0}"));
            relative.push([format!("{name}, {rule}")].into_iter().chain(cells).collect());
        }
        let cells = ranks.gain.iter().map(|value| format!("{value:+.0}"));
        let last = [format!("{:+.1}", ranks.aggregate.mean), format!("{:.0} %", ranks.gaining)];
        gain.push([name].into_iter().chain(cells).chain(last).collect());
    }
    format!(
        "Fig. 4.16 (a.1, b.1): throughput in percent of the fastest client's, by rank, the slowest first:\n\n\
         {}\n\
         Fig. 4.16 (a.2, b.2): what NMCC gives each rank more than LIA, percent:\n\n{}",
        table(&relative),
        table(&gain)
    )
}

/// Formats gains by rank of other pairs, one table a setting.
fn pairs(pairs: &[PairGain]) -> String {
    let head = [
        "",
        "slowest",
        "20 %",
        "50 %",
        "fastest",
        "slowest, median",
        "slowest, of means",
        "ranks that gain",
        "all",
        "TCP clients",
        "multipath : TCP",
    ];
    let mut out = Vec::new();
    for of_setting in SETTINGS {
        let mut rows = vec![head.map(String::from).to_vec()];
        for PairGain { pair, ranks, multipath_share: [rule, other], single_gain, .. } in
            pairs.iter().filter(|pair| pair.setting == of_setting)
        {
            let name = |rule| match rule {
                Rule::Reno => "uncoupled",
                Rule::Nmcc => "NMCC",
                Rule::Lia => "LIA",
            };
            let [of, over] = pair.rules.map(name);
            let restarted = if pair.is_restarted { ", started anew" } else { "" };
            let when = match pair.world {
                World::Fluid => "steady".to_owned(),
                World::Packets { from_s, until_s } => format!("{from_s} to {until_s} s"),
            };
            let gain = [0, 2, 5, 10].map(|rank: usize| format!("{:+.0}", ranks.gain[rank]));
            rows.push(
                [format!("{of} over {over}{restarted}, k = {}, {when}", pair.paths)]
                    .into_iter()
                    .chain(gain)
                    .chain([ranks.slowest_median, ranks.slowest_of_means].map(|value| format!("{value:+.0}")))
                    .chain([format!("{:.0} %", ranks.gaining), format!("{:+.1}", ranks.aggregate.mean)])
                    .chain([format!("{single_gain:+.0}"), format!("{rule:.2}, {other:.2}")])
                    .collect(),
            );
        }
        out.push(format!("{}:\n\n{}", setting(of_setting), table(&rows)));
    }
    out.join("\n")
}

/// Formats Fig. 4.17: gains of every network, one table a capacity.
fn gains(study: &Study) -> String {
    let mut out = String::new();
    for (capacity, mbits) in CAPACITIES_MBITS.into_iter().enumerate() {
        let mut rows = vec![vec!["network, by density".to_owned()]];
        for policy in POLICIES {
            rows[0].extend(["", " + TM"].map(|tm| title(policy) + tm));
        }
        for (studied, network) in study.options.networks.iter().zip(&study.networks) {
            let cells = network.gains[capacity].iter();
            let cells = cells.flat_map(|gain| [gain.without, gain.with].map(|m| format!("{:.1}", m.mean)));
            rows.push([studied.name.clone()].into_iter().chain(cells).collect());
        }
        let mean = &study.mean.gains[capacity];
        let cells = mean.iter().flat_map(|gain| [gain.without, gain.with].map(interval));
        rows.push(["**mean**".to_owned()].into_iter().chain(cells).collect());
        let cells = (0..POLICIES.len()).flat_map(|policy| printed(mbits, policy));
        rows.push(["dissertation".to_owned()].into_iter().chain(cells).collect());
        let over_fast = mean.iter().flat_map(|gain| [gain.over_fast.0, gain.over_fast.1]);
        let cells = over_fast.map(|value| format!("{value:.1}"));
        rows.push(["mean, over the fast link".to_owned()].into_iter().chain(cells).collect());
        let figure = ["a", "b", "c, d"][capacity];
        out += &format!(
            "Fig. 4.17 ({figure}): gain over single paths, percent, links of {}:\n\n{}\n",
            rate(mbits),
            table(&rows)
        );
    }
    out
}

fn printed(mbits: u64, policy: usize) -> [String; 2] {
    let found = DISSERTATION.iter().find(|(m, p, ..)| (*m, *p) == (mbits, policy));
    let text = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.0}"));
    [text(found.and_then(|row| row.2)), text(found.map(|row| row.3))]
}

fn checks(checks: &[(Check, Compared)]) -> String {
    let head = ["network, draw", "case", "model, Mbit/s", "packets, Mbit/s", "sum", "a client"];
    let mut rows = vec![head.map(String::from).to_vec()];
    for (check, compared) in checks {
        let mbits = |rates: &[f64]| format!("{:.1}", megabits(rates));
        let what = match check.case.clients {
            Clients::Half { rule, .. } => format!("half {}, half TCP", rule.name()),
            Clients::All { policy, assisted } => title(policy) + if assisted { " + TM" } else { "" },
        };
        rows.push(vec![
            format!("{}, {}", check.network, check.draw),
            format!("{}, {what}", rate(check.case.core_mbits)),
            mbits(&compared.fluid),
            mbits(&compared.packets),
            format!("{:+.1} %", compared.aggregate_error()),
            format!("{:.1} %", compared.client_error()),
        ]);
    }
    table(&rows)
}

/// Returns the sum of packet rates in Mbit/s.
fn megabits(rates: &[f64]) -> f64 {
    rates.iter().sum::<f64>() * 8.0 * f64::from(super::network::PACKET_BYTES) / 1e6
}

/// Returns the name of a policy in a table.
fn title(policy: Policy) -> String {
    match policy {
        Policy::Shortest(k) => format!("k = {k}"),
        Policy::Disjoint => "Bhandari".into(),
        Policy::Single => "single".into(),
        Policy::SingleFast => "single, fast link".into(),
    }
}

fn rate(mbits: u64) -> String {
    if mbits >= 1_000 { format!("{} Gbit/s", mbits / 1_000) } else { format!("{mbits} Mbit/s") }
}

/// Formats a setting of Fig. 4.16.
fn setting((core_mbits, delay_max_ms): (u64, u64)) -> String {
    format!("{}, 5–{delay_max_ms} ms", rate(core_mbits))
}

fn interval(mean: Mean) -> String {
    format!("{:.1} ± {:.1}", mean.mean, mean.half)
}

fn points(value: f64) -> String {
    format!("{value:.0}")
}

/// Formats a Markdown table that is readable as text: the first column is aligned left, the others right.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let widest = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(widest).collect();
    let mut out = String::new();
    for (number, row) in rows.iter().enumerate() {
        for (column, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[column] - cell.chars().count());
            out += &if column == 0 { format!("| {cell}{pad} ") } else { format!("| {pad}{cell} ") };
        }
        out += "|\n";
        if number == 0 {
            for (column, width) in widths.iter().enumerate() {
                let dashes = "-".repeat(width.saturating_sub(1).max(2));
                out += &if column == 0 { format!("| {dashes}- ") } else { format!("| {dashes}: ") };
            }
            out += "|\n";
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::study::FRIENDLINESS;
    use super::*;

    #[test]
    fn a_table_is_aligned() {
        let row = |cells: [&str; 2]| cells.map(String::from).to_vec();
        let text = table(&[row(["network", "±"]), row(["a", "12.5"])]);
        assert_eq!(text, "| network |    ± |\n| ------- | ---: |\n| a       | 12.5 |\n");
    }

    #[test]
    fn every_setting_of_the_dissertation_is_one_of_ours() {
        for (mbits, policy, ..) in DISSERTATION {
            assert!(CAPACITIES_MBITS.contains(&mbits) && policy < POLICIES.len());
        }
        assert_eq!(DISSERTATION_RANKS.map(|row| (row.0, row.1)), FRIENDLINESS);
        assert_eq!(FRIENDLINESS.map(|setting| rate(setting.0))[..3], ["1 Gbit/s", "100 Mbit/s", "10 Mbit/s"]);
    }
}
