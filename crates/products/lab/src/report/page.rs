//! Writes the page around the studies: head, contents, and each study's sections.

use super::text::{count, escape, put};
use super::{Keys, Study, cdf, dots, table, time_series};
use crate::scenario::notes::Verdict;

/// Style sheet, in a file of its own so that editors know its language.
const STYLE: &str = include_str!("style.css");

/// Explanation of the numbers, once for the whole page.
const READING: &str = "<p class=\"reading\">Values are means over the seeds; ± is half of the 95 % \
    confidence interval of the mean (Student’s t), which takes at least two seeds. <em>Paper</em> is what \
    the source reports, <em>model</em> what a fluid model gives. A verdict compares the mean with the range \
    that the scenario expects.</p>\n";

/// Writes the whole page, with about `points` points of lines over time for each study.
pub(super) fn page(studies: &[Study<'_>], points: usize) -> String {
    let title = match studies {
        [study] => title(study).to_string(),
        _ => "anabranch lab: report".to_string(),
    };
    let mut out = String::from("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n");
    out.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n");
    put!(out, "<title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n", escape(&title));
    if studies.len() != 1 {
        put!(out, "<header>\n<h1>{}</h1>\n{READING}", escape(&title));
        out.push_str(&contents(studies));
        out.push_str("</header>\n");
    }
    for (i, study) in studies.iter().enumerate() {
        out.push_str(&section(study, i + 1, studies.len() == 1, points));
    }
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn title<'a>(study: &Study<'a>) -> &'a str {
    if study.scenario.title.is_empty() { study.name } else { &study.scenario.title }
}

/// Describes how many expectations were met, and whether all conditions were met.
fn verdicts(study: &Study<'_>) -> (String, String) {
    let judged = || study.rows.iter().filter_map(|row| row.reference.verdict);
    let met = judged().filter(|verdict| *verdict == Verdict::Ok).count();
    let expected = match judged().count() {
        0 => "none".into(),
        n if n == met => format!("✓ all {n} met"),
        n => format!("✗ {met} of {n} met"),
    };
    let conditions = match study.rows.iter().filter(|row| !row.violations.is_empty()).count() {
        0 if study.rows.is_empty() => "nothing measured".into(),
        0 => "met".into(),
        n => format!("✗ unmet in {}", count(n, "row")),
    };
    (expected, conditions)
}

fn contents(studies: &[Study<'_>]) -> String {
    if studies.is_empty() {
        return "<p class=\"none\">No studies.</p>\n".into();
    }
    let mut out = String::from(
        "<nav aria-label=\"Contents\"><div class=\"scroll\"><table>\n<thead><tr><th>scenario</th>\
         <th>what it is</th><th>expectations</th><th>conditions</th></tr></thead>\n<tbody>",
    );
    for (i, study) in studies.iter().enumerate() {
        let (expected, conditions) = verdicts(study);
        put!(out, "<tr><td class=\"w\"><a href=\"#s{}\">{}</a></td>", i + 1, escape(study.name));
        put!(out, "<td>{}</td><td class=\"w\">{expected}</td>", escape(title(study)));
        put!(out, "<td class=\"w\">{conditions}</td></tr>\n");
    }
    out + "</tbody></table></div></nav>\n"
}

/// Splits `text` into paragraphs at empty lines.
fn paragraphs(text: &str) -> String {
    let parts = text.split("\n\n").map(str::trim).filter(|part| !part.is_empty());
    parts.map(|part| format!("<p>{}</p>\n", escape(part))).collect()
}

fn section(study: &Study<'_>, number: usize, alone: bool, points: usize) -> String {
    let scenario = study.scenario;
    let keys = Keys::of(study);
    let id = format!("s{number}");
    let h = if alone { "h1" } else { "h2" };
    let mut out = format!("<section class=\"study\" id=\"{id}\">\n<{h}>{}</{h}>\n", escape(title(study)));
    put!(out, "<p class=\"facts\"><code>{}</code>", escape(study.name));
    if !scenario.source.is_empty() {
        put!(out, " · {}", escape(&scenario.source));
    }
    put!(out, " · {}", scenario.duration);
    if scenario.count_from.secs() > 0.0 {
        put!(out, ", counted from {}", scenario.count_from);
    }
    let seeds = study.rows.iter().map(|row| row.seeds.len()).max().unwrap_or(0);
    if seeds > 0 {
        put!(out, " · {}", count(seeds, "seed"));
    }
    let (expected, conditions) = verdicts(study);
    put!(out, "<br/>Expectations: {expected} · conditions: {conditions}</p>\n");
    put!(out, "<div class=\"prose\">{}</div>\n", paragraphs(&scenario.about));
    if alone {
        out.push_str(READING);
    }
    if !study.rows.is_empty() {
        put!(out, "<h3>Values and intervals</h3>\n{}{}", dots::LEGEND, dots::plots(study, &keys));
    }
    out.push_str(&time_series::plots(study, &keys, &id, points));
    let distributions = cdf::plots(study, &keys, &id);
    if distributions.is_empty() && !study.runs.is_empty() {
        let least = cdf::SEEDS_MIN;
        put!(out, "<p class=\"none\">Distributions are drawn from {least} seeds on; there are fewer.</p>\n");
    }
    // Show the pictures first: a table may have hundreds of rows.
    put!(out, "{distributions}<h3>Table</h3>\n{}", table::table(study, &keys));
    if study.rows.iter().any(|row| row.spread.alike) {
        out.push_str("<p class=\"none\">Rows without ±: all seeds gave the same run.</p>\n");
    }
    out + "</section>\n"
}
