//! Formats the study: tables for a terminal, and the page that holds them.

use std::fmt::Write as _;

use crate::plan::Plan;
use crate::requests::mean_mbits;
use crate::study::{FACTOR, KNEE_S, Measure, PRINTED, Printed, Row, in_order, is_near, knee_s};

/// Text of the page; `{{NAME}}` stands for a part that is computed.
const PAGE: &str = include_str!("report.md");

/// Formats a number: none, one or no decimals by its size; `never` if it is infinite.
fn short(value: f64) -> String {
    match value {
        value if value.is_nan() => "–".into(),
        value if value.is_infinite() => "never".into(),
        value if value.abs() >= 99.5 => format!("{value:.0}"),
        value if value.abs() >= 9.95 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}

/// Formats the measures of all policies as a table in Markdown: means over all seeds.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let mut out = String::from(
        "| caches | start, s: 50 / 60 / 80 / 90 % of streams | buffering, %: 60 / 80 / 100 % | \
         mean buffering, % | interruptions a minute: 80 % | playback, %: 20 / 40 % | from a cache, % | boots \
         | from origins, TB |\n\
         | --- |",
    );
    out += &" ---: |".repeat(8);
    out.push('\n');
    for row in rows {
        let all = |number: &dyn Fn(&crate::study::Summary) -> f64| short(row.mean(|_| true, number));
        let at = |measure, percent| all(&|run| run.at(measure, percent));
        let _ = writeln!(
            out,
            "| {} | {} / {} / {} / {} | {} / {} / {} | {} | {} | {} / {} | {} | {} | {} |",
            row.policy.name(),
            at(Measure::Start, 50),
            at(Measure::Start, 60),
            at(Measure::Start, 80),
            at(Measure::Start, 90),
            at(Measure::Buffering, 60),
            at(Measure::Buffering, 80),
            at(Measure::Buffering, 100),
            all(&|run| run.mean_buffering),
            at(Measure::Stalls, 80),
            at(Measure::Playback, 20),
            at(Measure::Playback, 40),
            all(&|run| run.cached_percent),
            all(&|run| f64::from(run.boots)),
            all(&|run| run.origin_terabytes),
        );
    }
    out
}

/// Returns our number for one of the paper's: the mean over the seeds that are wanted.
#[must_use]
pub fn ours(rows: &[Row], printed: &Printed, wanted: impl Fn(u64) -> bool) -> Option<f64> {
    let row = printed.of.row(rows)?;
    Some(row.mean(wanted, |run| run.at(printed.measure, printed.percent)))
}

/// Formats the paper's numbers beside ours: of the odd seeds, on which the free inputs are chosen, and of the
/// even ones.
#[must_use]
pub fn beside(rows: &[Row]) -> String {
    let mut out = format!(
        "| figure | caches | measure | percentile | paper | odd seeds | even seeds \
         | even seeds within {FACTOR} × |\n\
         | --- | --- | --- | ---: | ---: | ---: | ---: | --- |\n"
    );
    for printed in &PRINTED {
        let Some(row) = printed.of.row(rows) else { continue };
        let of = |odd: u64| ours(rows, printed, |seed| seed % 2 == odd).unwrap_or(f64::NAN);
        let (chosen, tested) = (of(1), of(0));
        let near = match tested {
            tested if tested.is_nan() => "–",
            tested if is_near(tested, printed.value) => "yes",
            _ => "NOT",
        };
        let paper = if printed.value == 0.0 { "about 0".into() } else { short(printed.value) };
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {paper} | {} | {} | {near} |",
            printed.figure,
            row.policy.name(),
            printed.measure.name(),
            printed.percent,
            short(chosen),
            short(tested),
        );
    }
    out
}

/// Formats what holds in each seed: the order of the policies, and the knee.
#[must_use]
pub fn claims(rows: &[Row], boot_s: f64) -> String {
    let seeds: Vec<u64> = rows.first().map_or(Vec::new(), |row| row.runs.iter().map(|run| run.0).collect());
    let tally = |holds: &dyn Fn(u64) -> bool| {
        let held = seeds.iter().filter(|seed| holds(**seed)).count();
        let verdict = if held == seeds.len() { "yes" } else { "NOT" };
        format!("{held} of {} | {verdict}", seeds.len())
    };
    let knees: Vec<String> =
        seeds.iter().map(|seed| knee_s(rows, *seed).map_or("–".into(), |knee| format!("{knee}"))).collect();
    let mut out = String::from("| claim of the paper | seeds | in all |\n| --- | ---: | --- |\n");
    let _ = writeln!(
        out,
        "| order: the more traditional caches the better, ephemeral ones better than 80 %, 100 % as good or \
         better \
         | {} |",
        tally(&|seed| in_order(rows, seed, boot_s))
    );
    let _ = writeln!(
        out,
        "| a knee at about 1 s of boot time (ours at {} s) | {} |",
        knees.join(", "),
        tally(&|seed| knee_s(rows, seed).is_some_and(|knee| KNEE_S.contains(&knee)))
    );
    out
}

/// Formats the page as Markdown. Equal rows give equal texts.
#[must_use]
pub fn markdown(rows: &[Row], plan: &Plan, command: &str) -> String {
    let demand = &plan.demand;
    let places = [
        ("command", command.to_owned()),
        ("beside", beside(rows)),
        ("claims", claims(rows, plan.caches.boot_s)),
        ("table", table(rows)),
        ("zipf", demand.zipf.to_string()),
        ("access_zipf", demand.access_zipf.to_string()),
        ("quality_mean", demand.quality_mean.to_string()),
        ("mean_mbits", format!("{:.1}", mean_mbits(demand.quality_mean))),
        ("start_s", plan.player.start_s.to_string()),
        ("buffer_s", plan.player.buffer_s.to_string()),
        ("minutes", demand.minutes.to_string()),
        ("seeds", rows.first().map_or(0, |row| row.runs.len()).to_string()),
        (
            "streams",
            rows.first()
                .map_or("–".into(), |row| format!("{:.0}", row.mean(|_| true, |run| run.streams as f64))),
        ),
    ];
    let put = |page: String, (name, text): &(&str, String)| {
        page.replace(&format!("{{{{{name}}}}}"), text.trim_end())
    };
    places.iter().fold(PAGE.to_owned(), put)
}
