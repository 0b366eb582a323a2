//! Tests whole pages, on made-up runs that look like real ones.

use anabranch_sim::Rng;

use super::*;
use crate::outcome::{Line, Outcome, Reference, Series, SeriesKind, Spread};
use crate::scenario::notes::Verdict;

pub(super) fn scenario() -> Scenario {
    toml::from_str(
        r#"
        title = "One bottleneck, shared by a flow of two paths and a flow of one"
        source = "Thomas, dissertation, Fig. 4.12"
        about = """
        The multipath flow joins after 30 s. The source does not give the queue: 50 ms is assumed,
        <drop-tail>.

        NMCC's share counts from 20 s on; R&D networks had no cross traffic."""
        duration = "60 s"
        count_from = "20 s"
        seeds = 10
        controllers = ["nmcc", "lia", "olia", "balia", "ewtcp", "wvegas", "coupled", "cubic", "reno"]
        fault = [{ at = "40 s", until = "45 s", link = "bottleneck", down = true }]
        [link.bottleneck]
        rate = "20 Mbit/s"
        [[measure]]
        metric = "mp_share"
        kind = "share"
        flows = ["mp"]
        expect = { nmcc = "47..53", lia = "40..55", "*" = "30.." }
        [[measure]]
        metric = "loss_ratio"
        kind = "loss_ratio"
        [[measure]]
        metric = "goodput"
        kind = "goodput"
        "#,
    )
    .expect("a scenario")
}

/// Returns a made-up run: sawtooth windows of `mp` on two paths, and of `flows` single-path flows.
fn run(case: Option<&str>, controller: &str, seed: u64, flows: usize, steps: usize) -> Run {
    let id = controller
        .bytes()
        .fold(7, |h, b| u64::wrapping_add(u64::wrapping_mul(h, 31) % 1_000_003, u64::from(b)))
        + case.map_or(0, str::len) as u64;
    let mut luck = Rng::new(id * 1_000 + seed);
    let step_s = 60.0 / steps as f64;
    let mut lines = Vec::new();
    let mut queue = vec![0_f32; steps];
    let mut names: Vec<String> = vec!["mp/0".into(), "mp/1".into()];
    names.extend((0..flows).map(|i| if flows == 1 { "sp/0".into() } else { format!("sp.{i}/0") }));
    let mut goodput: Vec<(String, Vec<f32>)> = Vec::new();
    for (i, name) in names.iter().enumerate() {
        let (mut cwnd, peak) = (10.0, 40.0 + 30.0 * luck.unit());
        let mut values = Vec::new();
        for (step, queue) in queue.iter_mut().enumerate() {
            let dead = name == "mp/1" && (40.0..45.0).contains(&(step as f64 * step_s));
            cwnd += step_s * if i < 2 { 6.0 } else { 12.0 };
            if cwnd > peak * (0.8 + 0.4 * luck.unit()) {
                cwnd /= 2.0;
            }
            if dead {
                cwnd = 1.0;
            }
            *queue += (cwnd / names.len() as f64) as f32;
            values.push(cwnd as f32);
        }
        let flow = name.split('/').next().unwrap_or(name).to_string();
        let rate: Vec<f32> = values.iter().map(|w| w * 0.24 * (0.9 + 0.2 * luck.unit() as f32)).collect();
        match goodput.iter_mut().find(|(other, _)| *other == flow) {
            Some((_, sum)) => sum.iter_mut().zip(rate).for_each(|(sum, rate)| *sum += rate),
            None => goodput.push((flow, rate)),
        }
        lines.push(Line { kind: SeriesKind::Cwnd, name: name.clone(), values });
    }
    lines.push(Line { kind: SeriesKind::Queue, name: "bottleneck".into(), values: queue });
    lines.extend(goodput.into_iter().map(|(name, values)| Line { kind: SeriesKind::Goodput, name, values }));
    let spread = luck.unit() + luck.unit() + luck.unit() - 1.5;
    let values = vec![
        Some(38.0 + (id % 23) as f64 + 3.0 * spread),
        (seed != 3).then_some(0.012 * (1.0 + 0.3 * spread)),
        Some(18.9 + spread),
    ];
    Run {
        world: World::Sim,
        case: case.map(str::to_string),
        controller: controller.into(),
        seed,
        outcome: Outcome { values, series: Series { step_s, lines }, ..Outcome::default() },
    }
}

/// Computes rows from runs, as the laboratory does.
fn rows(scenario: &Scenario, runs: &[Run]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for run in runs {
        for (i, measure) in scenario.measure.iter().enumerate() {
            let same = |row: &&Row| {
                row.case == run.case && row.controller == run.controller && row.metric == measure.metric
            };
            if rows.iter().find(same).is_some() {
                continue;
            }
            let mine = runs.iter().filter(|r| r.case == run.case && r.controller == run.controller);
            let values: Vec<f64> = mine.clone().filter_map(|r| r.outcome.values[i]).collect();
            let n = values.len() as f64;
            let mean = values.iter().sum::<f64>() / n;
            let sd = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
            let mut row = Row {
                scenario: "lan-shared".into(),
                world: World::Sim,
                case: run.case.clone(),
                seeds: mine.map(|r| r.seed).collect(),
                controller: run.controller.clone(),
                metric: measure.metric.clone(),
                value: Some(mean),
                unit: crate::metric::metric(measure.kind).unit.into(),
                spread: Spread {
                    sd: Some(sd),
                    ci95: (n > 1.0).then_some(2.26 * sd / n.sqrt()),
                    alike: false,
                },
                no_value: Vec::new(),
                reference: Reference {
                    paper: (i == 0).then_some(mean.round() + 1.5),
                    model: (i == 0 && run.controller != "nmcc").then_some(50.0 + mean / 30.0),
                    ..Reference::default()
                },
                violations: if run.controller == "ewtcp" && i == 0 {
                    vec!["seed 4: bottleneck dropped 3 packets, at least 10 expected".into()]
                } else {
                    Vec::new()
                },
                late_p99_us: None,
                doubtful: false,
                set: std::collections::BTreeMap::new(),
            };
            row.reference.verdict =
                expected(scenario, &row).map(|range| range.verdict(mean, row.spread.ci95));
            row.reference.why = (row.reference.verdict == Some(Verdict::Not))
                .then(|| "the source's queue is not known; ours holds 50 ms".into());
            rows.push(row);
        }
    }
    rows
}

fn some_runs(scenario: &Scenario, cases: &[Option<&str>], seeds: u64, flows: usize) -> Vec<Run> {
    let all = |case: Option<&'static str>| {
        let each = |controller: String| {
            (1..=seeds).map(move |seed| run(case, &controller, seed, flows, if seed == 1 { 600 } else { 1 }))
        };
        scenario.controllers.iter().cloned().flat_map(each).collect::<Vec<_>>()
    };
    let leak = |case: &Option<&str>| case.map(|case| &*case.to_string().leak());
    cases.iter().map(leak).flat_map(all).collect()
}

/// Returns the page of one study, and checks its form.
fn page(scenario: &Scenario, rows: &[Row], runs: &[Run]) -> String {
    let page = html(&[Study { name: "lan-shared", scenario, rows, runs }]);
    well_formed(&page);
    page
}

/// Checks that elements are closed in order, attributes are quoted, and entities are known.
fn well_formed(page: &str) {
    let mut rest = page.strip_prefix("<!DOCTYPE html>\n").expect("a doctype");
    let mut open = Vec::new();
    while let Some(at) = rest.find('<') {
        let text = &rest[..at];
        assert!(!text.contains('>') || open.last() == Some(&"style"), "a bare > in {text:?}");
        for part in text.split('&').skip(1) {
            let name = part.split(';').next().unwrap_or_default();
            assert!(["amp", "lt", "gt", "quot", "#39"].contains(&name), "&{name}");
        }
        let end = at + rest[at..].find('>').expect("a tag ends");
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        assert!(tag.matches('"').count().is_multiple_of(2), "<{tag}>");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "</{name}>");
        } else if !tag.ends_with('/') {
            open.push(tag.split([' ', '\n']).next().expect("a name"));
        }
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} {rest:?}");
    for bad in ["NaN", "inf", "http", "<script", "url("] {
        assert!(!page.contains(bad), "the page has {bad:?}");
    }
    let mut ids: Vec<&str> = page.split(" id=\"").skip(1).filter_map(|p| p.split('"').next()).collect();
    let n = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), n, "each id once");
    for target in page.split("href=\"#").skip(1).filter_map(|p| p.split('"').next()) {
        assert!(ids.binary_search(&target).is_ok(), "{target} is there");
    }
}

/// Returns the texts of all table cells.
fn cells(page: &str) -> Vec<String> {
    let cell = |part: &str| Some(part.split_once('>')?.1.split("</td>").next()?.to_string());
    page.split("<td").skip(1).filter_map(cell).collect()
}

#[test]
fn every_number_is_in_the_table() {
    let scenario = scenario();
    let runs = some_runs(&scenario, &[None], 10, 1);
    let rows = rows(&scenario, &runs);
    let page = page(&scenario, &rows, &runs);
    let cells = cells(&page);
    for row in &rows {
        let decimals = table::metric_decimals(rows.iter().filter(|r| r.metric == row.metric));
        assert!(decimals >= 2, "{decimals}");
        let value = text::number(row.value.expect("a value"), decimals);
        let ci = text::number(row.spread.ci95.expect("an interval"), decimals);
        assert!(cells.contains(&value), "{value}");
        assert!(cells.contains(&format!("± {ci}")), "{ci}");
        for value in [row.reference.paper, row.reference.model].into_iter().flatten() {
            assert!(cells.contains(&short(value, decimals)), "{value}");
        }
    }
    for text in ["✓ as expected (at least 30)", "<strong>✗ not as expected</strong> (47 to 53)"] {
        assert!(page.contains(text), "{text}");
    }
    assert!(page.contains("Why: the source&#39;s queue is not known"));
    assert!(page.contains("1 condition not met:</strong> seed 4: bottleneck dropped 3 packets"));
    assert!(page.contains("&lt;drop-tail&gt;.</p>\n<p>NMCC&#39;s share"));
    assert!(page.contains("R&amp;D"));
}

#[test]
fn distributions_need_eight_seeds() {
    let scenario = scenario();
    for (seeds, drawn) in [(1, false), (7, false), (8, true)] {
        let runs = some_runs(&scenario, &[None], seeds, 1);
        let page = page(&scenario, &rows(&scenario, &runs), &runs);
        assert_eq!(page.contains("Distributions over the seeds"), drawn, "{seeds}");
        assert_eq!(page.contains("(DKW)"), drawn);
        assert_eq!(page.contains("± 0."), seeds > 1, "one seed has no interval");
    }
    // A run that violated a condition does not count.
    let mut runs = some_runs(&scenario, &[None], 8, 1);
    runs.iter_mut().for_each(|run| run.outcome.violations = vec!["no drops".into()]);
    assert!(!page(&scenario, &[], &runs).contains("(DKW)"));
}

#[test]
fn what_is_no_number_is_said_and_not_drawn() {
    let scenario = scenario();
    let mut runs = some_runs(&scenario, &[None], 9, 1);
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, -0.0, 5e-324];
    for (i, run) in runs.iter_mut().enumerate() {
        run.outcome.values = vec![Some(odd[i % 6]), None];
        for line in &mut run.outcome.series.lines {
            line.values.iter_mut().step_by(i + 2).for_each(|v| *v = odd[i % 4] as f32);
        }
    }
    runs[0].outcome.series.step_s = f64::NAN;
    let mut rows = rows(&scenario, &some_runs(&scenario, &[None], 2, 1));
    for (i, row) in rows.iter_mut().enumerate() {
        row.value = [None, Some(odd[i % 6])][i % 2];
        (row.spread.ci95, row.reference.paper, row.reference.model) =
            (Some(odd[(i + 1) % 6]), Some(odd[(i + 2) % 6]), None);
    }
    // The table has "not a number" and "∞", never "NaN" or "inf", which `page` checks.
    let page = page(&scenario, &rows, &runs);
    assert!(page.contains("<td class=\"n\">–</td>") && page.contains("not a number") && page.contains('∞'));
    assert!(page.contains("no value"));
}

#[test]
fn pages_of_little() {
    let empty = html(&[]);
    well_formed(&empty);
    assert!(empty.contains("No studies."));
    let mut scenario = scenario();
    let page_of_nothing = page(&scenario, &[], &[]);
    assert!(page_of_nothing.contains("Nothing was measured.") && !page_of_nothing.contains("<svg"));
    // Runs without series, rows without runs.
    let mut runs = some_runs(&scenario, &[None], 10, 1);
    runs.iter_mut().for_each(|run| run.outcome.series = Series::default());
    let page_of_runs = page(&scenario, &rows(&scenario, &runs), &runs);
    assert!(!page_of_runs.contains("over time") && page_of_runs.contains("(DKW)"));
    assert!(page(&scenario, &rows(&scenario, &runs), &[]).contains("Values and intervals"));
    // This scenario does not know the rows.
    scenario.measure.clear();
    scenario.controllers.clear();
    runs.iter_mut().for_each(|run| run.outcome.values.clear());
    page(&scenario, &[], &runs);
}

#[test]
fn one_flow_and_many() {
    let mut scenario = scenario();
    scenario.flow.insert("sp".into(), Default::default());
    scenario.flow.insert("mp".into(), Default::default());
    scenario.controllers.truncate(3);
    let runs = some_runs(&scenario, &[None], 1, 63);
    let many = page(&scenario, &rows(&scenario, &runs), &runs);
    assert!(many.contains(">sp ×63</text>") && many.contains("mean of all of a kind"));
    let mut runs = some_runs(&scenario, &[None], 1, 1);
    let few = page(&scenario, &rows(&scenario, &runs), &runs);
    assert!(few.contains(">mp/1</text>") && few.contains("Shares over time"));
    runs.iter_mut().for_each(|run| run.outcome.series.lines.retain(|line| line.name.starts_with("mp")));
    assert!(!page(&scenario, &[], &runs).contains("Shares over time"), "one flow has no shares");
}

#[test]
fn strange_names_are_text() {
    let mut scenario = scenario();
    let name = "<img src=x onerror='alert(1)'> & \"quotes\" \u{1b}[31m";
    scenario.title = name.into();
    scenario.source = name.into();
    scenario.about = name.into();
    scenario.controllers = vec![name.into()].into();
    scenario.measure[0].metric = name.into();
    scenario.measure[0].versus = Some(name.into());
    scenario.measure[0].expect = [(name.to_string(), "1..".to_string())].into();
    let mut runs = some_runs(&scenario, &[Some(name)], 8, 1);
    for line in runs.iter_mut().flat_map(|run| run.outcome.series.lines.iter_mut()) {
        line.name.insert_str(0, name);
    }
    let mut rows = rows(&scenario, &runs);
    for row in &mut rows {
        (row.unit, row.reference.why, row.violations) =
            (name.into(), Some(name.into()), vec![name.into(); 9]);
    }
    let study = Study { name, scenario: &scenario, rows: &rows, runs: &runs };
    let page = html(&[study, study]);
    well_formed(&page);
    assert!(!page.contains("<img") && !page.contains('\u{1b}') && page.contains("and 3 more"));
}

#[test]
fn many_studies_stay_small_and_the_same() {
    let scenario = scenario();
    let runs = some_runs(&scenario, &[Some("1 competitor"), Some("4 competitors")], 10, 3);
    let rows = rows(&scenario, &runs);
    let studies = vec![Study { name: "lan-shared", scenario: &scenario, rows: &rows, runs: &runs }; 30];
    let page = html(&studies);
    well_formed(&page);
    assert!(page.contains("<nav"), "several studies have a table of contents");
    assert!(page.len() < 7_000_000, "{} bytes", page.len());
    assert!(page == html(&studies), "the same input gives the same page");
}

#[test]
fn expectations_are_found_and_said() {
    let words = |text: &str| text.parse().ok().map(words);
    assert_eq!(words("47..53").as_deref(), Some("47 to 53"));
    assert_eq!(words("97..").as_deref(), Some("at least 97"));
    assert_eq!(words("..3.5").as_deref(), Some("at most 3.5"));
    assert_eq!(words("-2..-1").as_deref(), Some("-2 to -1"));
    assert_eq!(words("many"), None);
}

/// Writes pages for a person to look at, to the directory for temporary files.
#[test]
#[ignore = "writes files"]
fn write_pages_to_look_at() {
    let mut scenario = scenario();
    let plain_runs = some_runs(&scenario, &[None], 10, 1);
    let plain_rows = rows(&scenario, &plain_runs);
    let plain = scenario.clone();
    scenario.flow.insert("sp".into(), Default::default());
    scenario.flow.insert("mp".into(), Default::default());
    scenario.controllers.truncate(4);
    let cases = [Some("1 competitor"), Some("4 competitors, started 30 s before")];
    let case_runs = some_runs(&scenario, &cases, 30, 40);
    let case_rows = rows(&scenario, &case_runs);
    let mut single = scenario.clone();
    single.controllers.truncate(1);
    let grid: Vec<String> =
        (1..=9).map(|i| format!("C2 = {} pkt/s, RTT2 = {} ms", 125 << i, 10 * i)).collect();
    let grid: Vec<Option<&str>> = grid.iter().map(|case| Some(case.as_str())).collect();
    let single_runs = some_runs(&single, &grid, 2, 3);
    let mut single_rows = rows(&single, &single_runs);
    single_rows[3].value = None;
    let studies = [
        Study { name: "lan-shared", scenario: &plain, rows: &plain_rows, runs: &plain_runs },
        Study { name: "lan-cases", scenario: &scenario, rows: &case_rows, runs: &case_runs },
        Study { name: "c2-rtt2", scenario: &single, rows: &single_rows, runs: &single_runs },
    ];
    let page = html(&studies);
    well_formed(&page);
    std::fs::write(std::env::temp_dir().join("anabranch-report.html"), page).expect("a place for the page");
    let one = html(&studies[..1]);
    std::fs::write(std::env::temp_dir().join("anabranch-report-one.html"), one)
        .expect("a place for the page");
}
