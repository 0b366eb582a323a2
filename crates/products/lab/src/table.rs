//! Turns runs into rows: means over the seeds beside the expected values, as text and CSV.

mod text;

use std::collections::BTreeMap;

pub use crate::stats::{SampleSummary, summary, t95, variance};
pub use text::{WIDTH_MAX, lateness, text};

use crate::World;
use crate::metric::{NOT_SETTLED, metric};
use crate::outcome::{Reference, Row, Run, Spread};
use crate::scenario::notes::{Range, Verdict, lookup, lookup_in};
use crate::scenario::{Measure, Statistic};
use crate::share_curve::ShareCurve;
use crate::stats::jackknife95;
use crate::sweep::{self, Plan, Variant};

/// Returns the rows of a plan from its finished runs, by case, measure, controller and world. A run that
/// violated a condition counts in no row.
#[must_use]
pub fn rows(plan: &Plan, runs: &[Run]) -> Vec<Row> {
    let mut by: BTreeMap<(Option<String>, String, World), Vec<&Run>> = BTreeMap::new();
    // The variants of a case's own sweep share a row.
    let row_labels: BTreeMap<Option<String>, Option<String>> =
        plan.variants.iter().map(|variant| (variant.label(), variant.row_label())).collect();
    for run in runs {
        let case = row_labels.get(&run.case).unwrap_or(&run.case).clone();
        by.entry((case, run.controller.clone(), run.world)).or_default().push(run);
    }
    by.values_mut().for_each(|runs| runs.sort_by_key(|run| run.seed));
    let of = |variant: &Variant, controller: &str, world: World| {
        by.get(&(variant.row_label(), controller.to_owned(), world)).map_or(&[][..], Vec::as_slice)
    };
    let mut rows = Vec::new();
    for group in plan.variants.chunk_by(|a, b| (&a.case, &a.sets) == (&b.case, &b.sets)) {
        let variant = &group[0];
        for (index, measure) in variant.scenario.measure.iter().enumerate() {
            // The case that others are compared with would differ from itself by 0 %.
            if measure.versus.is_some() && measure.versus == variant.case {
                continue;
            }
            let base = measure.versus.as_deref().map(|versus| plan.beside(variant, versus));
            let in_base = base.flatten().and_then(|base| place_of(base, &measure.metric));
            let pairs = plan.controllers_of(variant).flat_map(|c| plan.worlds.iter().map(move |w| (c, *w)));
            for (controller, world) in pairs {
                let mine = &seeded(of(variant, controller, world), measure)[..];
                let mut row = blank(plan, variant, measure, (controller, world), mine);
                row.no_value = no_value(mine, index);
                row.doubtful =
                    base.is_none() && counted(mine, index).is_empty() && !late(mine, index).is_empty();
                let values = match base {
                    None if row.doubtful => late(mine, index),
                    None => counted(mine, index),
                    Some(base) => {
                        row.unit = "%".into();
                        let other = base.map_or(&[][..], |base| of(base, controller, world));
                        let each = |runs, index| per_seed(&counted(runs, index), measure.statistic);
                        let values = difference(
                            &each(mine, index),
                            &in_base.map_or(Vec::new(), |index| each(other, index)),
                        );
                        if values.is_empty() && row.no_value.is_empty() {
                            let versus = measure.versus.as_deref().unwrap_or_default();
                            row.no_value
                                .push(format!("case {versus} has no value, or nothing, to compare with"));
                        }
                        values
                    }
                };
                let values = per_seed(&values, measure.statistic);
                row.seeds = values.iter().map(|(seed, _)| *seed).collect();
                let values: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
                match measure.statistic {
                    Statistic::Mean | Statistic::Median | Statistic::Least => mean(&mut row, &values),
                    Statistic::Variance => spread(&mut row, &values),
                    Statistic::Pooled => pooled(&mut row, measure, &curves(mine, index)),
                }
                if row.value.is_none() && row.no_value.is_empty() {
                    row.no_value.push(why_none(mine, measure.statistic).into());
                }
                let expect = lookup_in(world, &measure.expect, variant.case.as_deref(), controller);
                // Without runs there is no verdict.
                let range = expect.filter(|_| !mine.is_empty()).and_then(|range| range.parse::<Range>().ok());
                let verdict = |range: Range| match row.value {
                    Some(_) if row.doubtful => Verdict::Unclear,
                    Some(value) => range.verdict(value, row.spread.ci95),
                    None => Verdict::Not,
                };
                row.reference.verdict = range.map(verdict);
                rows.push(row);
            }
        }
    }
    rows
}

/// Returns the index of the measure with this name in a variant.
fn place_of(variant: &Variant, metric: &str) -> Option<usize> {
    variant.scenario.measure.iter().position(|measure| measure.metric == metric)
}

/// Returns the runs whose seeds belong to the measure.
fn seeded<'a>(runs: &[&'a Run], measure: &Measure) -> Vec<&'a Run> {
    let seeds = measure.seeds.as_deref().and_then(|text| sweep::seeds(text, u64::MAX).ok());
    runs.iter().filter(|run| seeds.as_ref().is_none_or(|seeds| seeds.contains(&run.seed))).copied().collect()
}

/// Returns one value for each seed: of a case with a sweep, the mean, median or least of its combinations.
fn per_seed(values: &[(u64, f64)], statistic: Statistic) -> Vec<(u64, f64)> {
    let one = |values: &[(u64, f64)]| {
        let mut sorted: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        match statistic {
            Statistic::Median => (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0,
            Statistic::Least => sorted[0],
            Statistic::Mean | Statistic::Variance | Statistic::Pooled => {
                sorted.iter().sum::<f64>() / sorted.len() as f64
            }
        }
    };
    values.chunk_by(|a, b| a.0 == b.0).map(|chunk| (chunk[0].0, one(chunk))).collect()
}

fn mean(row: &mut Row, values: &[f64]) {
    if let Some(summary) = summary(values) {
        (row.value, row.spread.sd, row.spread.ci95) = (Some(summary.mean), summary.sd, summary.ci95);
    }
}

fn spread(row: &mut Row, values: &[f64]) {
    let without = |i: usize| variance(&[&values[..i], &values[i + 1..]].concat());
    (row.value, row.spread.ci95) = (variance(values), jackknife95(values.len(), without));
    row.spread.sd = summary(values).and_then(|summary| summary.sd);
    if !row.unit.is_empty() {
        row.unit.push('²');
    }
}

fn pooled(row: &mut Row, measure: &Measure, curves: &[(u64, &ShareCurve)]) {
    let but = |out: Option<usize>| {
        let kept = curves.iter().enumerate().filter(|(i, _)| Some(*i) != out);
        ShareCurve::sum(kept.map(|(_, (_, curve))| *curve))?.settled(measure.mean)
    };
    (row.value, row.spread.ci95) = (but(None), jackknife95(curves.len(), |i| but(Some(i))));
    row.seeds = curves.iter().map(|(seed, _)| *seed).collect();
}

/// Returns seed and share curve of each run that counts, for measure `index`.
fn curves<'a>(runs: &[&'a Run], index: usize) -> Vec<(u64, &'a ShareCurve)> {
    let counts = runs.iter().filter(|run| run.outcome.violations.is_empty());
    let curve = |run: &&'a Run| {
        let curve = run.outcome.curves.iter().find(|(measure, _)| *measure == index)?;
        Some((run.seed, &curve.1))
    };
    counts.filter_map(curve).collect()
}

/// Creates a row without measured values.
fn blank(
    plan: &Plan,
    variant: &Variant,
    measure: &Measure,
    (controller, world): (&str, World),
    runs: &[&Run],
) -> Row {
    let case = variant.case.as_deref();
    let reference =
        |notes| lookup_in(world, notes, case, controller).or_else(|| lookup(notes, case, controller));
    let late = runs.iter().filter_map(|run| run.outcome.lateness).map(|late| late.p99_us);
    Row {
        scenario: plan.name.clone(),
        world,
        case: variant.row_label(),
        seeds: Vec::new(),
        controller: controller.into(),
        metric: measure.metric.clone(),
        value: None,
        unit: metric(measure.kind).unit.into(),
        spread: Spread { alike: are_alike(runs), ..Spread::default() },
        no_value: Vec::new(),
        reference: Reference {
            paper: reference(&measure.paper).copied(),
            model: reference(&measure.model).copied(),
            verdict: None,
            why: lookup_in(world, &measure.why, case, controller).cloned(),
        },
        violations: violations(runs),
        late_p99_us: late.reduce(f64::max),
        doubtful: false,
        set: plan.set_in(variant).collect(),
    }
}

/// Whether these are several simulated runs with equal digests.
fn are_alike(runs: &[&Run]) -> bool {
    let mut digests = runs.iter().map(|run| run.outcome.digest);
    let first = digests.next().filter(|digest| *digest != 0);
    runs.len() > 1 && first.is_some_and(|first| digests.all(|digest| digest == first))
}

/// Returns seed and value of each run that counts and has a value of measure `index`.
fn counted(runs: &[&Run], index: usize) -> Vec<(u64, f64)> {
    values(runs.iter().filter(|run| run.outcome.violations.is_empty()), index)
}

/// Returns seed and value of each run that does not count because its links were late, for measure `index`.
fn late(runs: &[&Run], index: usize) -> Vec<(u64, f64)> {
    values(runs.iter().filter(|run| run.outcome.is_late()), index)
}

fn values<'a>(runs: impl Iterator<Item = &'a &'a Run>, index: usize) -> Vec<(u64, f64)> {
    let value =
        |run: &Run| run.outcome.values.get(index).copied().flatten().filter(|value| value.is_finite());
    runs.filter_map(|run| Some((run.seed, value(run)?))).collect()
}

/// Returns the difference of `ours` to `other` for each seed, in percent of the mean of `other`. The mean of
/// the differences is the difference of the means; their spread is that of pairs with equal seeds.
fn difference(ours: &[(u64, f64)], other: &[(u64, f64)]) -> Vec<(u64, f64)> {
    let other: BTreeMap<u64, f64> = other.iter().copied().collect();
    let pairs: Vec<_> = ours.iter().filter_map(|(seed, v)| Some((*seed, *v, *other.get(seed)?))).collect();
    let base = pairs.iter().map(|(_, _, other)| other).sum::<f64>() / pairs.len().max(1) as f64;
    if base == 0.0 {
        return Vec::new();
    }
    pairs.iter().map(|(seed, ours, other)| (*seed, 100.0 * (ours - other) / base)).collect()
}

/// Returns the conditions that were not met, each with its seeds.
fn violations(runs: &[&Run]) -> Vec<String> {
    let each = |run: &&Run| run.outcome.violations.iter().map(|what| (what.clone(), run.seed)).collect();
    with_seeds(runs.iter().map(each).collect::<Vec<Vec<_>>>().concat())
}

/// Returns the reasons why runs that count have no value of measure `index`, each with its seeds.
fn no_value(runs: &[&Run], index: usize) -> Vec<String> {
    let counts = runs.iter().filter(|run| run.outcome.violations.is_empty());
    let why = |run: &&Run| {
        let (_, why) = run.outcome.no_value.iter().find(|(measure, _)| *measure == index)?;
        Some((why.clone(), run.seed))
    };
    with_seeds(counts.filter_map(why).collect())
}

/// Returns the reason why a row has no value although no run gives a reason.
fn why_none(runs: &[&Run], statistic: Statistic) -> &'static str {
    match statistic {
        _ if runs.is_empty() => "there is no run",
        _ if runs.iter().all(|run| !run.outcome.violations.is_empty()) => "no run met its conditions",
        Statistic::Variance => "a variance is of two runs at least",
        Statistic::Pooled => NOT_SETTLED,
        Statistic::Mean | Statistic::Median | Statistic::Least => "no run has one",
    }
}

/// Joins equal sentences, each with the seeds of the runs that contain it.
fn with_seeds(said: Vec<(String, u64)>) -> Vec<String> {
    let mut by: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    said.into_iter().for_each(|(what, seed)| by.entry(what).or_default().push(seed));
    let list = |seeds: Vec<u64>| {
        let word = if seeds.len() == 1 { "seed" } else { "seeds" };
        let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
        format!("{word} {}", seeds.join(", "))
    };
    by.into_iter().map(|(what, seeds)| format!("{what} ({})", list(seeds))).collect()
}

/// Whether every condition was met and every value lies, beyond doubt, where the scenario expects it.
#[must_use]
pub fn is_right(rows: &[Row]) -> bool {
    rows.iter().all(|row| row.violations.is_empty() && row.is_right())
}

/// Returns the header line of [`csv`] for a plan: the common columns, then one column for each key that is
/// set.
#[must_use]
pub fn csv_head(plan: &Plan) -> String {
    let keys = plan.keys_set().map(|key| format!(",{}", quoted(key))).collect::<String>();
    format!("{}{keys}\n", CSV_HEAD.trim_end())
}

/// The common columns of [`csv`].
pub const CSV_HEAD: &str = "scenario,world,case,controller,seeds,metric,value,unit,sd,ci95,paper,model,\
                            verdict,why,faults,no_value\n";

/// Formats rows as comma-separated values, without the header line (RFC 4180, except for line ends). Blanks
/// separate seeds, semicolons separate violations; missing values are empty.
#[must_use]
pub fn csv(plan: &Plan, rows: &[Row]) -> String {
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let line = |row: &Row| {
        let seeds: Vec<String> = row.seeds.iter().map(u64::to_string).collect();
        let fields = [
            row.scenario.clone(),
            row.world.to_string(),
            row.case.clone().unwrap_or_default(),
            row.controller.clone(),
            seeds.join(" "),
            row.metric.clone(),
            number(row.value),
            row.unit.clone(),
            number(row.spread.sd),
            number(row.spread.ci95),
            number(row.reference.paper),
            number(row.reference.model),
            row.reference.verdict.map_or_else(String::new, |verdict| verdict.to_string()),
            row.reference.why.clone().unwrap_or_default(),
            row.violations.join("; "),
            row.no_value.join("; "),
        ];
        let set = plan.keys_set().map(|key| row.set.get(key).cloned().unwrap_or_default());
        fields.into_iter().chain(set).map(|field| quoted(&field)).collect::<Vec<_>>().join(",") + "\n"
    };
    rows.iter().map(line).collect()
}

/// Quotes a field of comma-separated values if necessary.
pub(crate) fn quoted(field: &str) -> String {
    match field.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Outcome;
    use crate::scenario::Scenario;

    const TEXT: &str = r#"
        title = "A long title of a scenario"
        source = "A paper, figure 4"
        about = """
        First paragraph.

        Second paragraph.
        """
        duration = "60 s"
        seeds = 3
        controllers = ["nmcc", "reno"]
        [link.c]
        rate = "500 pkt/s"
        [flow.mp]
        paths = [{ via = ["c"], rtt = "50 ms" }]
        [[case]]
        name = "one"
        [[case]]
        name = "two"
        [[measure]]
        metric = "mp_share"
        kind = "share"
        flows = ["mp"]
        paper = { "one/nmcc" = 50, one = 51, reno = 52, "*" = 53 }
        model = { nmcc = 33.33333 }
        expect = { "one" = "40..60", "two/reno" = "..3" }
        why = { "two/reno" = "because" }
        [[measure]]
        metric = "gain"
        kind = "goodput"
        versus = "one"
    "#;

    fn plan() -> Plan {
        Plan::new("demo", Scenario::parse(TEXT, "demo").expect("a scenario"), &[]).expect("a plan")
    }

    fn run(case: &str, controller: &str, seed: u64, values: [f64; 2]) -> Run {
        let outcome = Outcome { values: values.map(Some).to_vec(), ..Outcome::default() };
        Run { world: World::Sim, case: Some(case.into()), controller: controller.into(), seed, outcome }
    }

    fn runs() -> Vec<Run> {
        let mut runs = Vec::new();
        for seed in 1..=3 {
            for controller in ["reno", "nmcc"] {
                let luck = seed as f64;
                runs.push(run("two", controller, seed, [50.0 + luck, 3.0 * luck]));
                runs.push(run("one", controller, seed, [49.0 + luck, 2.0 * luck]));
            }
        }
        // The order in which runs end must not matter.
        runs.reverse();
        runs
    }

    #[test]
    fn rows_are_means_with_their_notes() {
        let rows = rows(&plan(), &runs());
        let of = |case: &str, metric: &str, controller: &str| {
            let mine = |row: &&Row| {
                row.case.as_deref() == Some(case) && row.metric == metric && row.controller == controller
            };
            rows.iter().find(mine).expect("a row")
        };
        assert_eq!(rows.len(), 6, "two cases of the share, one of the gain");
        let row = of("one", "mp_share", "nmcc");
        assert_eq!((row.value, row.spread.sd, row.unit.as_str()), (Some(51.0), Some(1.0), "%"));
        assert!((row.spread.ci95.expect("ci") - 4.3027 / 3f64.sqrt()).abs() < 1e-9);
        assert_eq!(
            (row.reference.paper, row.reference.model, row.reference.verdict),
            (Some(50.0), Some(33.33333), Some(Verdict::Ok))
        );
        assert_eq!((&row.seeds[..], row.world), (&[1, 2, 3][..], World::Sim));
        assert_eq!(of("one", "mp_share", "reno").reference.paper, Some(51.0));
        assert_eq!(of("two", "mp_share", "reno").reference.paper, Some(52.0));
        assert_eq!(of("two", "mp_share", "nmcc").reference.paper, Some(53.0));
        assert_eq!(of("two", "mp_share", "nmcc").reference.verdict, None);
        let odd = of("two", "mp_share", "reno");
        assert_eq!(
            (odd.reference.verdict, odd.reference.why.as_deref()),
            (Some(Verdict::Not), Some("because"))
        );
        let gain = of("two", "gain", "nmcc");
        assert!((gain.value.expect("a gain") - 50.0).abs() < 1e-9 && gain.unit == "%", "{gain:?}");
        assert!(!is_right(&rows));
    }

    #[test]
    fn runs_whose_conditions_were_not_met_do_not_count() {
        let mut runs = runs();
        for run in &mut runs {
            if run.seed != 2 && run.controller == "nmcc" && run.case.as_deref() == Some("one") {
                run.outcome.violations = vec!["drops: 0".into()];
            }
        }
        let plan = plan();
        let rows = rows(&plan, &runs);
        let row = &rows[0];
        assert_eq!((&row.seeds[..], row.value, row.spread.sd), (&[2][..], Some(51.0), None));
        assert_eq!(row.violations, ["drops: 0 (seeds 1, 3)"]);
        let text = text(&plan, &rows);
        // One seed gives no interval, so the verdict is open.
        assert!(text.contains("? 40..60, 1/3 seeds"), "{text}");
        assert!(text.contains("\nNot decided"), "{text}");
        assert_eq!(text.matches("* one/nmcc: drops: 0 (seeds 1, 3)").count(), 1, "{text}");
    }

    #[test]
    fn values_of_late_runs_are_shown_as_doubtful_where_there_are_no_others() {
        let mut runs = runs();
        for run in runs.iter_mut().filter(|run| run.case.as_deref() == Some("one")) {
            let lateness = crate::outcome::Lateness { too_late: true, ..Default::default() };
            (run.outcome.lateness, run.outcome.violations) = (Some(lateness), vec!["late".into()]);
        }
        let plan = plan();
        let rows = rows(&plan, &runs);
        let row = &rows[0];
        assert_eq!(
            (row.value, row.doubtful, row.reference.verdict),
            (Some(51.0), true, Some(Verdict::Unclear))
        );
        assert!(!is_right(&rows) && !rows[2].doubtful);
        let text = text(&plan, &rows);
        assert!(text.contains("~51.0 ± 2.5") && text.contains("doubtful: links late"), "{text}");
        // Runs that do not count for a reason other than lateness are not shown.
        runs.iter_mut().for_each(|run| run.outcome.lateness = None);
        assert_eq!(super::rows(&plan, &runs)[0].value, None);
    }

    #[test]
    fn the_text_is_always_the_same() {
        let plan = plan();
        let text = text(&plan, &rows(&plan, &runs()));
        let expected = "\
demo: A long title of a scenario
source: A paper, figure 4
run:    simulated; 60 s, counted from 0 s; seeds 1..3; 12 runs

First paragraph.

Second paragraph.

case  metric    controller        value  unit  paper   model  verdict
one   mp_share  nmcc         51.0 ± 2.5  %        50  33.333  ok
one   mp_share  reno         51.0 ± 2.5  %        51          ok
two   mp_share  nmcc         52.0 ± 2.5  %        53  33.333
two   mp_share  reno         52.0 ± 2.5  %        52          NOT ..3
two   gain      nmcc        50.0 ± 62.1  %
two   gain      reno        50.0 ± 62.1  %
";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains(
            "\nNot where the scenario expects it:\n* mp_share two/reno: 52.0 ± 2.5 %, expected ..3"
        ));
        assert!(text.ends_with("\nWhy it differs:\n* mp_share two/reno: because\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH_MAX));
    }

    #[test]
    fn long_names_give_way() {
        let long = "a case of which there is much to be said, more than fits on a line of a hundred and ten";
        let scenario = TEXT.replace("\"one\"", &format!("{long:?}")).replace("\"one/nmcc\"", "nmcc");
        let scenario = Scenario::parse(&scenario.replace("one = 51, ", ""), "demo").expect("a scenario");
        let plan = Plan::new("demo", scenario, &[]).expect("a plan");
        let text = text(&plan, &rows(&plan, &[run(long, "nmcc", 1, [50.0, 1.0])]));
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH_MAX), "{text}");
        assert!(text.contains("…  mp_share  nmcc"), "{text}");
    }

    #[test]
    fn nothing_ran() {
        let plan = plan();
        let rows = rows(&plan, &[]);
        assert!(rows.iter().all(|row| row.value.is_none() && row.seeds.is_empty()));
        let text = text(&plan, &rows);
        assert!(text.contains("no value") && !text.contains("NOT"), "{text}");
        for row in &rows {
            let row = serde_json::to_value(row).expect("JSON");
            assert!(
                row["value"].is_null() && row["scenario"] == "demo" && row["seeds"] == serde_json::json!([])
            );
        }
    }

    #[test]
    fn for_programs() {
        let rows = rows(&plan(), &runs());
        let csv = csv(&plan(), &rows);
        assert!(csv.lines().all(|line| !line.contains("late")));
        assert_eq!(CSV_HEAD.matches(',').count(), 15);
        assert!(csv.starts_with("demo,sim,one,nmcc,1 2 3,mp_share,51,%,1,"), "{csv}");
        assert_eq!(quoted("a,b \"c\""), "\"a,b \"\"c\"\"\"");
        let first = serde_json::to_value(&rows[0]).expect("JSON");
        for key in
            ["scenario", "world", "case", "seeds", "controller", "metric", "value", "unit", "sd", "ci95"]
        {
            assert!(!first[key].is_null(), "{key}");
        }
        for key in ["paper", "model", "verdict", "why", "faults"] {
            assert!(first.get(key).is_some(), "{key}");
        }
    }
}
