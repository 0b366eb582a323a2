//! Writes the report as one HTML page without other files: tables, findings, and a sequence plot of each
//! direction.
//!
//! All text is escaped, even if it looks harmless, because names of files come from outside. The page's
//! policy (CSP) forbids it to load anything. The script draws only numbers and words of a fixed set.

use std::fmt::{self, Write as _};
use std::io;

use crate::journal::What;
use crate::plot::{Kind, Plot};
use crate::report::ConnectionReport;
use crate::subflow::Side;
use crate::summary::Summary;
use crate::table::Totals;
use crate::words;

/// The style sheet of the page, for other pages of this kind.
pub const STYLE: &str = include_str!("html/style.css");
const SCRIPT: &str = include_str!("html/script.js");
/// Only subflows with numbers below this can be switched off one by one.
const SUBFLOWS_SHOWN: usize = 12;
/// The number of colours of subflows in the style sheet.
const COLORS: u16 = 6;

/// Text that is escaped for HTML, as content or in a quoted attribute.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                // Invisible letters could reverse the direction of the text.
                letter if letter.is_control() || is_format(letter) => f.write_char('\u{fffd}')?,
                letter => f.write_char(letter)?,
            }
        }
        Ok(())
    }
}

/// Returns whether a letter changes the direction of text or has no width.
const fn is_format(letter: char) -> bool {
    matches!(letter, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Writes the page of a capture that is called `name`.
///
/// # Errors
/// If writing to `out` fails.
pub fn write(out: &mut impl io::Write, name: &str, summary: &Summary, totals: &Totals) -> io::Result<()> {
    let name = Escaped(name);
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{name}</title>\n<style>\n{STYLE}</style></head>\n<body><main>\n<h1>{name}</h1>\n"
    )?;
    for line in summary.lines(totals) {
        writeln!(out, "<p>{}</p>", Escaped(&line))?;
    }
    for report in summary.shown() {
        out.write_all(connection(report).as_bytes())?;
    }
    if let Some(left) = summary.left_out(totals) {
        writeln!(out, "<h2>{}</h2>", Escaped(&left))?;
    }
    write!(out, "</main>\n<script>\n{SCRIPT}</script></body></html>\n")
}

fn connection(report: &ConnectionReport) -> String {
    let mut html = String::new();
    let [head, facts] = words::headline(report);
    let _ = writeln!(html, "<h2>{}</h2>\n<p class=\"soft\">{}</p>", Escaped(&head), Escaped(&facts));
    if let Some(why) = report.fallback {
        let _ = writeln!(html, "<p class=\"bad\">Fell back to plain TCP: {}</p>", words::fallback(why));
    }
    let joins = report.subflows.iter().skip(1).map(words::join);
    let lines: Vec<String> = joins.chain(words::handovers(report)).chain(words::audits(report)).collect();
    list(&mut html, &lines);
    for side in Side::BOTH {
        if words::is_bulk(report, side) {
            direction(&mut html, report, side);
        } else if report.streams.from(side).unique_bytes > 0 {
            let bytes = words::bytes(report.streams.from(side).unique_bytes);
            let _ = writeln!(html, "<h3>{}: {bytes}</h3>", words::towards(side));
        }
    }
    html
}

fn list(html: &mut String, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    html.push_str("<ul>\n");
    for line in lines {
        let is_bad = ["HANDOVER", "WRONG", "NOT EXACT"].iter().any(|word| line.contains(word))
            && !line.contains(" 0 WRONG");
        let class = if is_bad { " class=\"bad\"" } else { "" };
        let _ = writeln!(html, "<li{class}>{}</li>", Escaped(line));
    }
    html.push_str("</ul>\n");
}

fn direction(html: &mut String, report: &ConnectionReport, side: Side) {
    let _ = writeln!(html, "<h3>{}</h3>\n<div class=\"scroll\"><table>", words::direction(report, side));
    let row = |html: &mut String, cells: &[String], tag: &str| {
        html.push_str("<tr>");
        for cell in cells {
            let _ = write!(html, "<{tag}>{}</{tag}>", Escaped(cell));
        }
        html.push_str("</tr>\n");
    };
    row(html, &words::COLUMNS.map(str::to_owned), "th");
    for cells in words::rows(report, side) {
        row(html, &cells, "td");
    }
    html.push_str("</table></div>\n");
    list(html, &words::notes(report, side));
    if let Some(plot) = &report.streams.from(side).plot {
        figure(html, report, side, plot);
    }
}

/// Writes a plot with its legend and its numbers.
fn figure(html: &mut String, report: &ConnectionReport, side: Side, plot: &Plot) {
    let name = words::towards(side);
    let _ = writeln!(
        html,
        "<figure><canvas tabindex=\"0\" role=\"img\" aria-label=\"Data sent over time, {name}\"></canvas>\n\
         <p class=\"at\"></p>\n<div class=\"legend\">"
    );
    for subflow in report.subflows.iter().take(SUBFLOWS_SHOWN) {
        let (id, color) = (subflow.id, subflow.id % COLORS);
        let _ = writeln!(
            html,
            "<label><input type=\"checkbox\" checked value=\"s{id}\">\
             <span class=\"swatch\" style=\"background:var(--k{color})\"></span>subflow {id}</label>"
        );
    }
    let kinds = [
        (Kind::Retransmitted, "× sent again by TCP: lost, or thought lost"),
        (Kind::Reinjected, "△ reinjected"),
        (Kind::Resent, "□ re-sent"),
        (Kind::Acknowledged, "— acknowledged"),
        (Kind::Missing, "▮ never passed here"),
    ];
    for (kind, words) in kinds {
        if plot.marks.iter().any(|mark| mark.kind == kind) {
            let value = kind as u8;
            let _ =
                writeln!(html, "<label><input type=\"checkbox\" checked value=\"k{value}\">{words}</label>");
        }
    }
    if plot.dropped > 0 {
        let dropped = words::plural(plot.dropped, "mark");
        let _ = writeln!(html, "<span>{dropped} dropped: too many subflows at one time</span>");
    }
    let _ = writeln!(
        html,
        "</div>\n<p class=\"soft\"><button value=\"+\">+</button><button value=\"-\">−</button>\
         <button value=\"0\">whole</button> Wheel: zoom (with Shift only bytes, with Alt only time). \
         Drag: move. Shaded: the receiver’s stream stood still.</p>\n\
         <noscript><p>The plot needs the page’s own script.</p></noscript>\n\
         <script type=\"application/json\">{}</script></figure>",
        numbers(report, side, plot)
    );
}

/// Returns the data of a plot as JSON, in microseconds since the connection began and bytes since the first
/// of the direction. Each mark has its begin (since the begin of the mark before), duration, first byte,
/// length, subflow and kind. Each event has its time, 1 if it is a handover and else 0, its subflow and its
/// words.
fn numbers(report: &ConnectionReport, side: Side, plot: &Plot) -> String {
    let stream = report.streams.from(side);
    let micros = |seconds: f64| (seconds * 1e6) as u64;
    let duration_us = micros(report.duration_s);
    let mut text = format!(
        "{{\"us\":{duration_us},\"bytes\":{},\"marks\":[",
        stream.unique_bytes + stream.missing_bytes
    );
    let mut before = 0_i64;
    for (number, mark) in plot.marks.iter().enumerate() {
        let begin = (mark.time_ns.0 / 1000) as i64;
        let long = mark.time_ns.1 / 1000 - mark.time_ns.0 / 1000;
        let comma = if number == 0 { "" } else { "," };
        let (start, bytes) = (mark.bytes.0, mark.bytes.1 - mark.bytes.0);
        let (delta, kind) = (begin - before, mark.kind as u8);
        let _ = write!(text, "{comma}{delta},{long},{start},{bytes},{},{kind}", mark.subflow);
        before = begin;
    }
    text.push_str("],\"stalls\":[");
    for (number, stall) in stream.stalls.list.iter().enumerate() {
        let comma = if number == 0 { "" } else { "," };
        let _ = write!(text, "{comma}[{},{}]", micros(stall.at_s), micros(stall.ms / 1e3));
    }
    text.push_str("],\"events\":[");
    for (number, (at_us, is_handover, subflow, words)) in signs(report).into_iter().enumerate() {
        let comma = if number == 0 { "" } else { "," };
        let _ = write!(text, "{comma}[{at_us},{},{subflow},\"{words}\"]", u8::from(is_handover));
    }
    text.push_str("]}");
    text
}

/// Returns the events that are written along the time axis, in the order of time, in words that need no
/// escape.
fn signs(report: &ConnectionReport) -> Vec<(u64, bool, u16, String)> {
    let mut signs = Vec::new();
    for handover in &report.handovers {
        let words = format!("handover {} → {}", handover.from, handover.to);
        signs.push(((handover.at_s * 1e6) as u64, true, handover.from, words));
    }
    for event in &report.events {
        let words = match event.what {
            What::Join { .. } if event.subflow > 0 => "join",
            What::AddAddr { .. } => "ADD_ADDR",
            What::RemoveAddr { .. } => "REMOVE_ADDR",
            What::Prio { backup: true } => "backup",
            What::Prio { backup: false } => "no backup",
            What::Fail => "MP_FAIL",
            What::FastClose => "MP_FASTCLOSE",
            What::Reset { .. } => "RST",
            What::Fallback => "fallback",
            _ => continue,
        };
        signs.push((event.at_ns / 1000, false, event.subflow, format!("{words} {}", event.subflow)));
    }
    signs.sort_by_key(|sign| sign.0);
    signs
}
