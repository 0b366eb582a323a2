//! The table as people read it: what lies beside a scenario as `NAME.table`. It holds no date, no host and
//! no times, so that a difference in it is a difference in behaviour.

use std::fmt::Write as _;

use super::lookup;
use crate::outcome::Row;
use crate::sweep::{Plan, seeds_text};

/// No line is wider.
pub const WIDTH_MAX: usize = 110;
/// At most so many unmet conditions are listed; the rest is counted.
const FAULTS_SHOWN_MAX: usize = 30;
/// Between columns.
const GAP: usize = 2;

/// The whole table of a plan: head, rows, what was not met or not expected, and why.
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
    wrap(&mut out, "run:    ", &format!("simulated; {time}; seeds {seeds}; {} runs", plan.len()));
    if !plan.with.is_empty() {
        wrap(&mut out, "with:   ", &plan.with.join("; "));
    }
    for paragraph in scenario.about.split("\n\n").filter(|text| !text.trim().is_empty()) {
        out.push('\n');
        wrap(&mut out, "", paragraph);
    }
    out.push('\n');
    columns(&mut out, plan, rows);
    if rows.is_empty() {
        out.push_str("(no measures)\n");
    }
    tail(&mut out, plan, rows);
    out
}

/// Head and rows.
fn columns(out: &mut String, plan: &Plan, rows: &[Row]) {
    let all = (plan.seeds.end() + 1 - plan.seeds.start()) as usize;
    let mut lines: Vec<[String; 8]> = Vec::new();
    let head = ["case", "metric", "controller", "value", "unit", "paper", "model", "verdict"];
    lines.push(head.map(String::from));
    for row in rows {
        let value = match (row.value, row.ci95) {
            (None, _) => "-".into(),
            (Some(value), None) => number(value, value),
            (Some(value), Some(ci)) => format!("{} ± {}", number(value, value), number(ci, value)),
        };
        let given = |value: Option<f64>| value.map_or_else(String::new, plain);
        let mut verdict: Vec<String> = match row.expected {
            None => Vec::new(),
            Some(true) => vec!["ok".into()],
            Some(false) => vec![format!("NOT {}", expected(plan, row))],
        };
        if row.value.is_none() {
            verdict.push("no value".into());
        } else if row.seeds.len() < all {
            verdict.push(format!("{}/{all} seeds", row.seeds.len()));
        }
        lines.push([
            row.case.clone().unwrap_or_default(),
            row.metric.clone(),
            row.controller.clone(),
            value,
            row.unit.clone(),
            given(row.paper),
            given(row.model),
            verdict.join(", "),
        ]);
    }
    let mut widths: Vec<usize> =
        (0..head.len()).map(|i| lines.iter().map(|l| l[i].chars().count()).max().unwrap_or(0)).collect();
    // A column without contents is left out: cases, units, papers, verdicts.
    for (i, width) in widths.iter_mut().enumerate() {
        if lines[1..].iter().all(|line| line[i].is_empty()) {
            *width = 0;
        }
    }
    // Names give way to numbers.
    for column in [0, 1, 2, 7] {
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
            match i {
                // Numbers stand to the right.
                3 | 5 | 6 => text.extend([pad.as_str(), cell]),
                _ => text.extend([cut(cell, *width).as_str(), &pad]),
            }
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
}

/// What was not met, what was not expected, and why what differs does.
fn tail(out: &mut String, plan: &Plan, rows: &[Row]) {
    let mut faults: Vec<String> = Vec::new();
    for row in rows {
        faults.extend(row.faults.iter().map(|fault| format!("{}: {fault}", whose(row))));
    }
    dedup(&mut faults);
    list(out, "Conditions that were not met (those runs do not count):", &faults);
    let odd = rows.iter().filter(|row| row.expected == Some(false)).map(|row| {
        let value = row.value.map_or_else(|| "no value".into(), |value| number(value, value));
        format!("{} {}: {value} {}, expected {}", row.metric, whose(row), row.unit, expected(plan, row))
    });
    list(out, "Not where the scenario expects it:", &odd.collect::<Vec<_>>());
    let mut notes: Vec<(String, Vec<String>)> = Vec::new();
    for row in rows {
        let Some(why) = &row.why else { continue };
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
    for item in items.iter().take(FAULTS_SHOWN_MAX) {
        wrap(out, "* ", item);
    }
    if let more @ 1.. = items.len().saturating_sub(FAULTS_SHOWN_MAX) {
        let _ = writeln!(out, "* and {more} more");
    }
}

/// Without repetitions; the first stays.
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

/// The range in which the row is expected.
fn expected<'a>(plan: &'a Plan, row: &Row) -> &'a str {
    let variant = plan.variants.iter().find(|variant| variant.label() == row.case);
    let find = |variant: &'a crate::sweep::Variant| {
        let measure = variant.scenario.measure.iter().find(|measure| measure.metric == row.metric)?;
        lookup(&measure.expect, variant.case.as_deref(), &row.controller)
    };
    variant.and_then(find).map_or("", String::as_str)
}

/// Three or four digits that matter, for the size of `scale`.
fn number(value: f64, scale: f64) -> String {
    let digits = match scale.abs() {
        s if s >= 10_000.0 => 0,
        s if s >= 10.0 => 1,
        s if s >= 1.0 || s == 0.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    // Minus nothing is nothing.
    match text.strip_prefix('-') {
        Some(rest) if !rest.contains(|c: char| c.is_ascii_digit() && c != '0') => rest.into(),
        _ => text,
    }
}

/// A number as it was given, but for digits beyond the third.
fn plain(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

/// At most `width` letters.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.into();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    kept + "…"
}

/// Writes `text` behind `lead`, in lines of at most [`WIDTH_MAX`]; further lines are indented by as much.
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
