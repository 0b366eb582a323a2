//! Formats the table for people, as in the file `NAME.table` beside a scenario. The table contains no dates,
//! hosts or times, so that a difference in it is a difference in behaviour.

use std::fmt::Write as _;

use crate::World;
use crate::metric::{kinds, metric};
use crate::outcome::Row;
use crate::scenario::MeasureKind;
use crate::scenario::notes::{Verdict, lookup_in};
use crate::sweep::{Plan, seeds_text};

/// Greatest width of a line, characters.
pub const WIDTH_MAX: usize = 110;
/// Most unmet conditions that are listed; the others are only counted.
const VIOLATIONS_SHOWN_MAX: usize = 30;
/// Blanks between columns.
const GAP: usize = 2;

/// Describes how late packets were; `p99_us` is the 99th percentile of the worst path of the worst run.
#[must_use]
pub fn lateness(p99_us: f64) -> String {
    format!(
        "Lateness of the emulated links: 99 % of the packets of each path within {:.3} ms, in the worst run.",
        p99_us / 1e3
    )
}

/// Formats the whole table of a plan: header, rows, unmet conditions, unexpected values, and reasons.
#[must_use]
pub fn text(plan: &Plan, rows: &[Row]) -> String {
    let mut out = String::new();
    let scenario = &plan.scenario;
    wrap(&mut out, "", &format!("{}: {}", plan.name, scenario.title));
    if !scenario.source.is_empty() {
        wrap(&mut out, "source: ", &scenario.source);
    }
    let seeds = seeds_text(plan.seeds.clone());
    let time = format!("{}, counted from {}", scenario.duration, scenario.count_from);
    let place = |world: &World| match world {
        World::Sim => "simulated",
        World::Kernel => "in the kernel, over emulated links",
    };
    let places: Vec<&str> = plan.worlds.iter().map(place).collect();
    let places = places.join(" and ");
    let runs = if plan.len() == 1 { "1 run".to_owned() } else { format!("{} runs", plan.len()) };
    wrap(&mut out, "run:    ", &format!("{places}; {time}; seeds {seeds}; {runs}"));
    if !plan.with.is_empty() {
        wrap(&mut out, "with:   ", &plan.with.join("; "));
    }
    for paragraph in scenario.about.split("\n\n").filter(|text| !text.trim().is_empty()) {
        out.push('\n');
        wrap(&mut out, "", paragraph);
    }
    out.push('\n');
    if scenario.measure.is_empty() {
        no_measures(&mut out);
    } else {
        columns(&mut out, plan, rows);
    }
    same_runs(&mut out, rows);
    tail(&mut out, plan, rows);
    out
}

/// Writes that the scenario measures nothing, and lists the kinds of measures.
fn no_measures(out: &mut String) {
    wrap(
        out,
        "",
        "This scenario measures nothing. A [[measure]] has a name (metric), a kind, and flows or links:",
    );
    for (about, is_of_flows) in [("of flows", true), ("of links", false)] {
        let those = kinds().filter(|(_, kind)| kind.is_of_flows() == is_of_flows);
        let one = |(name, kind): (&str, MeasureKind)| match metric(kind).unit {
            "" => name.to_owned(),
            unit => format!("{name} ({unit})"),
        };
        wrap(out, "* ", &format!("{about}: {}", those.map(one).collect::<Vec<_>>().join(", ")));
    }
}

/// Writes that runs of all seeds are identical, if some are.
fn same_runs(out: &mut String, rows: &[Row]) {
    let text = match rows.iter().filter(|row| row.spread.alike).count() {
        0 => return,
        n if n == rows.len() => "All seeds gave the same run",
        _ => "Where there is no ±, all seeds gave the same run",
    };
    out.push('\n');
    wrap(out, "", &format!("{text}: nothing is left to chance (start_within, jitter or loss would do so)."));
}

/// Writes the header and the rows: a line for each case, measure and controller, with a value for each
/// world.
fn columns(out: &mut String, plan: &Plan, rows: &[Row]) {
    let mut lines: Vec<Vec<String>> = Vec::new();
    let values: Vec<&str> = match plan.worlds.len() {
        1 => vec!["value"],
        _ => plan.worlds.iter().map(|world| world.name()).collect(),
    };
    let head =
        [&["case", "metric", "controller"][..], &values, &["unit", "paper", "model", "verdict"]].concat();
    lines.push(head.iter().map(|name| (*name).into()).collect());
    let same = |a: &Row, b: &Row| (&a.case, &a.metric, &a.controller) == (&b.case, &b.metric, &b.controller);
    for rows in rows.chunk_by(same) {
        let row = &rows[0];
        let given = |value: Option<f64>| value.map_or_else(String::new, plain);
        let mut line = vec![row.case.clone().unwrap_or_default(), row.metric.clone(), row.controller.clone()];
        for world in &plan.worlds {
            let row = rows.iter().find(|row| row.world == *world);
            line.push(match row.map_or((None, None), |row| (row.value, row.interval())) {
                (None, _) => "-".into(),
                (Some(value), ci) => marked(row, with_interval(value, ci)),
            });
        }
        line.extend([row.unit.clone(), given(row.reference.paper), given(row.reference.model)]);
        let verdicts = rows.iter().flat_map(|row| verdict(plan, row));
        line.push(verdicts.collect::<Vec<_>>().join(", "));
        lines.push(line);
    }
    let count = head.len();
    // Numbers (values, paper, model) are aligned right.
    let is_number = |i: usize| (3..3 + values.len()).contains(&i) || i == count - 3 || i == count - 2;
    let mut widths: Vec<usize> =
        (0..head.len()).map(|i| lines.iter().map(|l| l[i].chars().count()).max().unwrap_or(0)).collect();
    // Columns without contents are left out.
    for (i, width) in widths.iter_mut().enumerate() {
        if lines[1..].iter().all(|line| line[i].is_empty()) {
            *width = 0;
        }
    }
    // Shorten names before numbers.
    for column in [0, 1, 2, count - 1] {
        let total: usize = widths.iter().filter(|w| **w > 0).map(|w| w + GAP).sum::<usize>() - GAP.min(1);
        let over = total.saturating_sub(WIDTH_MAX + 1);
        widths[column] -= over.min(widths[column].saturating_sub(8));
    }
    for line in &lines {
        let mut text = String::new();
        for (i, (cell, width)) in line.iter().zip(&widths).enumerate().filter(|(_, (_, w))| **w > 0) {
            if !text.is_empty() {
                text.push_str("  ");
            }
            let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
            match is_number(i) {
                true => text.extend([pad.as_str(), cell]),
                false => text.extend([cut(cell, *width).as_str(), &pad]),
            }
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
}

/// Returns the remarks on a row, with its world if there are several.
fn verdict(plan: &Plan, row: &Row) -> Vec<String> {
    let all = (plan.seeds.end() + 1 - plan.seeds.start()) as usize;
    let world = if plan.worlds.len() > 1 { format!("{} ", row.world) } else { String::new() };
    let mut said: Vec<String> = match row.reference.verdict {
        None => Vec::new(),
        Some(Verdict::Ok) => vec![format!("{world}ok")],
        Some(Verdict::Not) => vec![format!("{world}NOT {}", expected(plan, row))],
        Some(Verdict::Unclear) => vec![format!("{world}? {}", expected(plan, row))],
    };
    if row.doubtful {
        said.push(format!("{world}doubtful: links late"));
    } else if row.value.is_none() {
        said.push(format!("{world}no value"));
    } else if row.seeds.len() < all {
        said.push(format!("{world}{}/{all} seeds", row.seeds.len()));
    }
    said
}

/// Writes the unmet conditions, the unexpected values, and the reasons for differences.
fn tail(out: &mut String, plan: &Plan, rows: &[Row]) {
    if let Some(late) = rows.iter().filter_map(|row| row.late_p99_us).reduce(f64::max) {
        out.push('\n');
        wrap(out, "", &lateness(late));
    }
    let several = plan.worlds.len() > 1;
    let whose = |row: &Row| if several { format!("{}, {}", whose(row), row.world) } else { whose(row) };
    let mut violations: Vec<String> = Vec::new();
    for row in rows {
        violations.extend(row.violations.iter().map(|violation| format!("{}: {violation}", whose(row))));
    }
    dedup(&mut violations);
    list(out, "Conditions that were not met (those runs do not count):", &violations);
    let none = rows
        .iter()
        .flat_map(|row| row.no_value.iter().map(move |why| format!("{} {}: {why}", row.metric, whose(row))));
    list(out, "No value:", &none.collect::<Vec<_>>());
    let judged = |verdict: Verdict| -> Vec<String> {
        let those = rows.iter().filter(|row| row.reference.verdict == Some(verdict));
        let item = |row: &Row| {
            let value =
                row.value.map_or_else(|| "no value".into(), |value| with_interval(value, row.interval()));
            format!("{} {}: {value} {}, expected {}", row.metric, whose(row), row.unit, expected(plan, row))
        };
        those.map(item).collect()
    };
    list(out, "Not where the scenario expects it:", &judged(Verdict::Not));
    list(
        out,
        "Not decided, for the interval is wider than what is expected, or not known:",
        &judged(Verdict::Unclear),
    );
    let mut notes: Vec<(String, Vec<String>)> = Vec::new();
    for row in rows {
        let Some(why) = &row.reference.why else { continue };
        let whose = format!("{} {}", row.metric, whose(row));
        match notes.iter_mut().find(|(text, _)| text == why) {
            Some((_, of)) => of.push(whose),
            None => notes.push((why.clone(), vec![whose])),
        }
    }
    let notes: Vec<String> =
        notes.iter().map(|(why, of)| format!("{}: {}", of.join(", "), why.trim())).collect();
    list(out, "Why it differs:", &notes);
}

fn list(out: &mut String, title: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{title}");
    for item in items.iter().take(VIOLATIONS_SHOWN_MAX) {
        wrap(out, "* ", item);
    }
    if let more @ 1.. = items.len().saturating_sub(VIOLATIONS_SHOWN_MAX) {
        let _ = writeln!(out, "* and {more} more");
    }
}

/// Removes repetitions; the first of equal items stays.
fn dedup(items: &mut Vec<String>) {
    let mut seen = std::collections::BTreeSet::new();
    items.retain(|item| seen.insert(item.clone()));
}

fn whose(row: &Row) -> String {
    match &row.case {
        Some(case) => format!("{case}/{}", row.controller),
        None => row.controller.clone(),
    }
}

/// Returns the range in which the scenario expects the row's value.
fn expected<'a>(plan: &'a Plan, row: &Row) -> &'a str {
    let variant = plan.variants.iter().find(|variant| variant.row_label() == row.case);
    let find = |variant: &'a crate::sweep::Variant| {
        let measure = variant.scenario.measure.iter().find(|measure| measure.metric == row.metric)?;
        lookup_in(row.world, &measure.expect, variant.case.as_deref(), &row.controller)
    };
    variant.and_then(find).map_or("", String::as_str)
}

/// Marks the text of a doubtful value with `~`.
fn marked(row: Option<&Row>, text: String) -> String {
    if row.is_some_and(|row| row.doubtful) { format!("~{text}") } else { text }
}

/// Formats a value and half of its interval, if known.
fn with_interval(value: f64, ci95: Option<f64>) -> String {
    let half = ci95.map(|ci| format!(" ± {}", number(ci, value)));
    number(value, value) + &half.unwrap_or_default()
}

/// Formats a value with three or four significant digits for numbers of the size of `scale`.
fn number(value: f64, scale: f64) -> String {
    let digits = match scale.abs() {
        s if s >= 10_000.0 => 0,
        s if s >= 10.0 => 1,
        s if s >= 1.0 || s == 0.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    // Do not print "-0".
    match text.strip_prefix('-') {
        Some(rest) if !rest.contains(|c: char| c.is_ascii_digit() && c != '0') => rest.into(),
        _ => text,
    }
}

/// Formats a number with at most three decimal places, without trailing zeros.
fn plain(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

/// Cuts a text to at most `width` characters.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.into();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    kept + "…"
}

/// Writes `text` after `lead`, in lines of at most [`WIDTH_MAX`]; later lines are indented by the width of
/// `lead`.
fn wrap(out: &mut String, lead: &str, text: &str) {
    let indent = " ".repeat(lead.chars().count());
    let mut line = String::from(lead);
    let mut letters = 0;
    for word in text.split_whitespace() {
        let word_letters = word.chars().count();
        if letters > 0 && indent.len() + letters + 1 + word_letters > WIDTH_MAX {
            out.push_str(&line);
            out.push('\n');
            line.clone_from(&indent);
            letters = 0;
        }
        if letters > 0 {
            line.push(' ');
            letters += 1;
        }
        line.push_str(word);
        letters += word_letters;
    }
    out.push_str(line.trim_end());
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let text = |value: f64| number(value, value);
        assert_eq!(text(49.96), "50.0");
        assert_eq!(text(0.98765), "0.988");
        assert_eq!(text(12_345.6), "12346");
        assert_eq!((text(3.456), text(0.0), text(-0.0)), ("3.46".into(), "0.00".into(), "0.00".into()));
        assert_eq!(number(0.04, 50.0), "0.0");
        assert_eq!(number(-0.04, 50.0), "0.0");
        assert_eq!((plain(50.0), plain(33.33333), plain(0.5)), ("50".into(), "33.333".into(), "0.5".into()));
        assert_eq!(plain(100.0), "100");
    }

    #[test]
    fn wrapped() {
        let mut out = String::new();
        wrap(&mut out, "* ", &"word ".repeat(40));
        assert!(out.lines().all(|line| line.chars().count() <= WIDTH_MAX && !line.ends_with(' ')), "{out}");
        assert!(out.lines().nth(1).expect("two lines").starts_with("  word"));
    }
}
