//! Writes the page of results: one file of HTML without a script, which needs nothing but a browser.

use std::fmt::Write as _;

use anabranch_trace::html::{Escaped, STYLE};

use crate::cdf::{self, Line};
use crate::network::Interface;
use crate::plan::Plan;
use crate::results::{Ending, TestResult};
use crate::tally::{Compared, Setting, SettingRow, Tally, ValueRow};

/// Most lists of tests and notes on the page have this many lines.
const LINES_MAX: usize = 200;

/// Writes the page.
#[must_use]
pub fn html(plan: &Plan, tally: &Tally, results: &[TestResult]) -> String {
    let title = if tally.title.is_empty() { "Real programs through many settings" } else { &tally.title };
    let title = Escaped(title);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style></head>\n<body><main>\n<h1>{title}</h1>\n"
    );
    let _ = writeln!(page, "<p>{}</p>", Escaped(&sentence(tally)));
    papers(&mut page, &tally.compared);
    shares(&mut page, &tally.settings);
    values(&mut page, plan, &tally.values);
    round_trips(&mut page, plan, results);
    troubles(&mut page, results);
    page.push_str("</main></body></html>\n");
    page
}

/// Says in a sentence how the tests ended.
#[must_use]
pub fn sentence(tally: &Tally) -> String {
    let endings = &tally.endings;
    let all = endings.ok + endings.failed + endings.timeout + endings.skipped;
    let mut text = format!("{all} tests: {} ended well", endings.ok);
    for (count, what) in [
        (endings.failed, "failed"),
        (endings.timeout, "took too long"),
        (endings.skipped, "skipped"),
        (tally.missing, "still missing"),
    ] {
        if count > 0 {
            let _ = write!(text, ", {count} {what}");
        }
    }
    text + "."
}

/// Returns the numbers beside those of papers, as lines of text.
#[must_use]
pub fn comparisons(tally: &Tally) -> Vec<String> {
    let line = |compared: &Compared| {
        let ours = percent(compared.ours);
        format!("{}: {ours} % (paper {} %) {}", compared.what, compared.paper, verdict(compared))
    };
    tally.compared.iter().map(|compared| line(compared).trim_end().to_owned()).collect()
}

const fn verdict(compared: &Compared) -> &'static str {
    match compared.is_near {
        Some(true) => "ok",
        Some(false) => "NOT",
        None => "",
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "–".to_owned(), |share| format!("{share:.1}"))
}

fn row(page: &mut String, cells: &[String], tag: &str) {
    page.push_str("<tr>");
    for cell in cells {
        let class = if cell == "NOT" { " class=\"bad\"" } else { "" };
        let _ = write!(page, "<{tag}{class}>{}</{tag}>", Escaped(cell));
    }
    page.push_str("</tr>\n");
}

fn table(page: &mut String, heads: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    page.push_str("<div class=\"scroll\"><table>\n");
    row(page, &heads.iter().map(|head| (*head).to_owned()).collect::<Vec<_>>(), "th");
    rows.for_each(|cells| row(page, &cells, "td"));
    page.push_str("</table></div>\n");
}

fn papers(page: &mut String, compared: &[Compared]) {
    if compared.is_empty() {
        return;
    }
    page.push_str("<h2>Beside the papers</h2>\n");
    let cells = |compared: &Compared| {
        let verdict = verdict(compared).to_owned();
        let (paper, ours) = (compared.paper.to_string(), percent(compared.ours));
        vec![compared.what.clone(), paper, ours, compared.tests.to_string(), verdict]
    };
    table(page, &["", "paper, %", "ours, %", "tests", ""], compared.iter().map(cells));
}

fn words(setting: &Setting) -> [String; 4] {
    let Setting { network, transport, interfaces, default } = setting;
    [network.clone(), transport.word().into(), interfaces.word().into(), default.word().into()]
}

fn shares(page: &mut String, settings: &[SettingRow]) {
    page.push_str(
        "<h2>Which interface carried what</h2>\n<p class=\"soft\">Bytes are those on links, with headers. \
         Connections are those with data in the phone’s capture; through a proxy they are its trunks. \
         Reinjected: part of the data that was sent again on another subflow.</p>\n",
    );
    let heads = [
        "network",
        "transport",
        "on",
        "default",
        "ended well",
        "MB",
        "over cell, %",
        "connections",
        "WiFi alone, %",
        "their data, %",
        "cell alone, %",
        "their data, %",
        "reinjected up, %",
        "down, %",
        "handovers",
    ];
    let cells = |row: &SettingRow| {
        let (shares, endings) = (&row.shares, &row.endings);
        let all = endings.ok + endings.failed + endings.timeout + endings.skipped;
        let megabytes = (shares.wire_bytes.0 + shares.wire_bytes.1) as f64 / 1e6;
        let pair = |pair: Option<(f64, f64)>| [percent(pair.map(|p| p.0)), percent(pair.map(|p| p.1))];
        let small = |part: Option<f64>| part.map_or_else(|| "–".to_owned(), |part| format!("{part:.2}"));
        let mut cells = words(&row.setting).to_vec();
        cells.extend([format!("{} of {all}", endings.ok), format!("{megabytes:.1}")]);
        cells.extend([percent(shares.cell_bytes), shares.connections.to_string()]);
        cells.extend(pair(shares.wifi_connections).into_iter().chain(pair(shares.cell_connections)));
        cells.extend([small(shares.reinjected.0), small(shares.reinjected.1)]);
        cells.push(shares.handovers.to_string());
        cells
    };
    table(page, &heads, settings.iter().map(cells));
}

/// Formats a number with three digits that count.
#[must_use]
pub fn number(value: f64) -> String {
    let decimals = match value.abs() {
        size if size.fract() == 0.0 => 0,
        size if size < 1.0 => 3,
        size if size < 10.0 => 2,
        size if size < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

fn values(page: &mut String, plan: &Plan, values: &[ValueRow]) {
    page.push_str("<h2>What the programs took</h2>\n<p class=\"soft\">Median (least to greatest).</p>\n");
    for profile in &plan.profiles {
        let mine = || values.iter().filter(|row| row.profile == *profile);
        let mut names: Vec<&str> = mine().map(|row| row.value.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() {
            continue;
        }
        let _ = writeln!(page, "<h3>{}</h3>", Escaped(profile));
        let mut settings: Vec<&Setting> = mine().map(|row| &row.setting).collect();
        settings.dedup();
        let cell = |setting: &Setting, name: &str| {
            let row = mine().find(|row| row.setting == *setting && row.value == name);
            row.map_or_else(String::new, |row| match (row.tests, row.range) {
                (1, (_, median, _)) => number(median),
                (_, (least, median, most)) => {
                    format!("{} ({} to {})", number(median), number(least), number(most))
                }
            })
        };
        let cells = |setting: &&Setting| {
            let mut cells = words(setting).to_vec();
            cells.extend(names.iter().map(|name| cell(setting, name)));
            cells
        };
        let heads = [&["network", "transport", "on", "default"], &names[..]].concat();
        table(page, &heads, settings.iter().map(cells));
    }
}

fn round_trips(page: &mut String, plan: &Plan, results: &[TestResult]) {
    let mut figures = String::new();
    for network in &plan.networks {
        let mut lines = Vec::new();
        for (number, interface) in Interface::ALL.into_iter().enumerate() {
            for (place, way) in ["up", "down"].into_iter().enumerate() {
                let mine = results.iter().filter(|result| result.network == *network);
                let trips = mine.filter_map(|result| result.captured.as_ref()?.rtt_ms.get(&interface));
                let values = trips.flat_map(|trips| if place == 0 { &trips.up } else { &trips.down });
                let values = values.copied().collect();
                lines.push(Line {
                    name: format!("{} {way}", interface.word()),
                    color: number + 2 * place,
                    values,
                });
            }
        }
        figures.push_str(&cdf::figure(network, &lines));
    }
    if !figures.is_empty() {
        let _ = write!(
            page,
            "<h2>Round trips</h2>\n<p class=\"soft\">Of all tests: the part of subflows with at most this \
             median. Up: the phone’s data, seen there; down: the server’s, seen there.</p>\n{figures}"
        );
    }
}

fn troubles(page: &mut String, results: &[TestResult]) {
    let why = |result: &TestResult| {
        let ending = match result.ending {
            Ending::Ok => return None,
            Ending::Failed => "failed",
            Ending::Timeout => "took too long",
            Ending::Skipped => "skipped",
        };
        let why = result.why.as_deref().unwrap_or("no reason");
        Some(format!("{} {ending}: {why}", result.test))
    };
    let notes = |result: &TestResult| -> Vec<String> {
        result.notes.iter().map(|note| format!("{}: {note}", result.test)).collect()
    };
    list(page, "Tests that did not end well", &results.iter().filter_map(why).collect::<Vec<_>>());
    list(page, "Notes", &results.iter().flat_map(notes).collect::<Vec<_>>());
}

fn list(page: &mut String, title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(page, "<h2>{title}</h2>\n<ul>");
    for line in lines.iter().take(LINES_MAX) {
        let _ = writeln!(page, "<li>{}</li>", Escaped(line));
    }
    if lines.len() > LINES_MAX {
        let _ = writeln!(page, "<li>and {} more</li>", lines.len() - LINES_MAX);
    }
    page.push_str("</ul>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::tests::night;

    #[test]
    fn the_page_has_everything_and_needs_nothing() {
        let (plan, mut results) = night();
        results[0].ending = Ending::Failed;
        results[0].why = Some("curl exited with 7: <refused>".into());
        results[1].notes.push("no tcpdump".into());
        let tally = Tally::of(&plan, &results, 3);
        let page = html(&plan, &tally, &results);
        for wanted in [
            "A phone, quickly",
            "1 failed, 3 still missing",
            "<td>25.0</td>",
            "curl exited with 7: &lt;refused&gt;",
            "wifi up (",
            "no tcpdump",
        ] {
            assert!(page.contains(wanted), "{wanted} is not on the page");
        }
        assert!(!page.contains("<script") && !page.contains("http://") && !page.contains("src="));
        assert_eq!(page, html(&plan, &tally, &results), "equal results give equal pages");
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!([0.0, 0.0123, 1.234, 12.34, 30.0].map(number), ["0", "0.012", "1.23", "12.3", "30"]);
    }
}
