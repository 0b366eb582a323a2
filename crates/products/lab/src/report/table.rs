//! Formats the table of a study: one line for each case, metric and controller.

use super::text::{count, decimals, escape, finite, number, put, short};
use super::{Keys, Study, expected, words};
use crate::outcome::Row;
use crate::scenario::notes::Verdict;

/// Most unmet conditions of a row that are written out.
const VIOLATIONS_MAX: usize = 6;

/// Returns the number of decimals for all values of a metric.
pub(super) fn metric_decimals<'a>(rows: impl Iterator<Item = &'a Row>) -> usize {
    decimals(rows.filter_map(|row| finite(row.value)))
}

/// Formats the table, or a sentence if there are no rows.
pub(super) fn table(study: &Study<'_>, keys: &Keys<'_>) -> String {
    if study.rows.is_empty() {
        return "<p class=\"none\">Nothing was measured.</p>\n".into();
    }
    let cases = study.rows.iter().any(|row| row.case.is_some());
    let worlds = keys.worlds.len() > 1;
    let mut out = String::from("<div class=\"scroll\"><table>\n<thead><tr>");
    if cases {
        out.push_str("<th>case</th>");
    }
    out.push_str("<th>metric</th><th>controller</th>");
    for world in &keys.worlds {
        let name = if worlds { world.name() } else { "value" };
        put!(out, "<th class=\"n\">{name}</th><th class=\"ci\">± 95 % CI</th>");
    }
    out.push_str(
        "<th>unit</th><th class=\"n\">seeds</th>\
         <th class=\"n\">paper</th><th class=\"n\">model</th><th>verdict</th></tr></thead>\n",
    );
    let mut last: Option<(&Option<String>, &str)> = None;
    let same =
        |a: &&Row, b: &&Row| (&a.case, &a.metric, &a.controller) == (&b.case, &b.metric, &b.controller);
    for rows in keys.rows.chunk_by(same) {
        let row = rows[0];
        let group = (&row.case, row.metric.as_str());
        // Group lines that belong together: a metric's controllers, or a case's metrics if there is one
        // controller.
        if last.is_none_or(|last| last.0 != group.0 || keys.controllers.len() > 1 && last.1 != group.1) {
            out.push_str(if last.is_some() { "</tbody>\n<tbody>" } else { "<tbody>" });
        }
        let same_case = last.is_some_and(|(case, _)| *case == row.case);
        out.push_str("<tr>");
        if cases {
            repeated(&mut out, row.case.as_deref().unwrap_or("–"), same_case);
        }
        repeated(&mut out, &row.metric, last == Some(group));
        put!(out, "<td class=\"w\">{}</td>", escape(&row.controller));
        let decimals = metric_decimals(study.rows.iter().filter(|other| other.metric == row.metric));
        for world in &keys.worlds {
            value(&mut out, rows.iter().find(|row| row.world == *world).copied(), decimals);
        }
        let mut seeds: Vec<String> = rows.iter().map(|row| row.seeds.len().to_string()).collect();
        seeds.dedup();
        put!(out, "<td class=\"w\">{}</td><td class=\"n\">{}</td>", escape(&row.unit), seeds.join(", "));
        references(&mut out, row, decimals);
        out.push_str("<td class=\"verdict\">");
        for row in rows {
            match (worlds, verdict(study, row)) {
                (true, text) if text != "–" => put!(out, "<div>{}: {text}</div>", row.world),
                (true, _) => {}
                (false, text) => out.push_str(&text),
            }
        }
        out.push_str("</td></tr>\n");
        last = Some(group);
    }
    out.push_str("</tbody></table></div>\n");
    out + &lateness(study)
}

/// Describes how late packets were, if known.
fn lateness(study: &Study<'_>) -> String {
    let late = study.rows.iter().filter_map(|row| row.late_p99_us).reduce(f64::max);
    late.map_or_else(String::new, |late| {
        format!("<p class=\"facts\">{}</p>\n", escape(&crate::table::lateness(late)))
    })
}

/// Writes a cell. A repeated text is hidden, but is still there for copying.
fn repeated(out: &mut String, text: &str, again: bool) {
    put!(out, "<td{}>{}</td>", if again { " class=\"same\"" } else { "" }, escape(text));
}

/// Writes a value with its interval.
fn value(out: &mut String, row: Option<&Row>, decimals: usize) {
    match row.and_then(|row| row.value) {
        Some(value) => {
            // Mark doubtful values.
            let mark = if row.is_some_and(|row| row.doubtful) { "~" } else { "" };
            put!(out, "<td class=\"n\">{mark}{}</td>", number(value, decimals));
        }
        None => out.push_str("<td class=\"n\">–</td>"),
    }
    match row.and_then(|row| row.interval().filter(|_| row.seeds.len() > 1 && row.value.is_some())) {
        Some(ci) => put!(out, "<td class=\"ci\">± {}</td>", number(ci, decimals)),
        None => out.push_str("<td class=\"ci\"></td>"),
    }
}

/// Writes the paper's and the model's value.
fn references(out: &mut String, row: &Row, decimals: usize) {
    for reference in [row.reference.paper, row.reference.model] {
        match reference {
            None => out.push_str("<td class=\"n\"></td>"),
            Some(value) => {
                let text = short(value, decimals.max(1));
                // Missing decimals are padded, so that the decimal points are aligned.
                let has = text.split_once('.').map_or(0, |(_, part)| part.len());
                let zeros = "0".repeat(decimals.max(1).saturating_sub(has));
                let pad = if has == 0 { format!(".{zeros}") } else { zeros };
                put!(out, "<td class=\"n\" data-pad=\"{pad}\">{text}</td>");
            }
        }
    }
}

fn verdict(study: &Study<'_>, row: &Row) -> String {
    let expected = expected(study.scenario, row);
    let range = expected.map(|range| format!(" ({})", escape(&words(range)))).unwrap_or_default();
    let mut out = match row.reference.verdict {
        Some(Verdict::Ok) => format!("✓ as expected{range}"),
        Some(Verdict::Not) => format!("<strong>✗ not as expected</strong>{range}"),
        Some(Verdict::Unclear) => format!("<strong>? the interval is too wide</strong>{range}"),
        None if expected.is_some() => format!("nothing to compare{range}"),
        None => "–".into(),
    };
    if !row.no_value.is_empty() {
        put!(out, "<div class=\"why\">No value: {}</div>", escape(&row.no_value.join("; ")));
    }
    if let Some(why) = &row.reference.why {
        put!(out, "<div class=\"why\">Why: {}</div>", escape(why));
    }
    if !row.violations.is_empty() {
        let n = row.violations.len();
        put!(out, "<div class=\"why\"><strong>{} not met:</strong> ", count(n, "condition"));
        let shown: Vec<String> = row.violations.iter().take(VIOLATIONS_MAX).map(|f| escape(f)).collect();
        out.push_str(&shown.join("; "));
        if n > VIOLATIONS_MAX {
            put!(out, "; and {} more", n - VIOLATIONS_MAX);
        }
        out.push_str("</div>");
    }
    out
}
