//! Draws distributions as one file of SVG: two figures of four pictures.

use std::fmt::Write as _;

use crate::policy::Policy;
use crate::study::{Measure, Row};

/// Size of a picture and its margins, pixels.
const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 40.0;
const LEGEND: f64 = 64.0;
/// The palette of Okabe and Ito (2008); dashes differ where colours repeat.
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#1b1e23"];
const STYLE: &str = "text{font:12px sans-serif;fill:#1b1e23}.t{font-weight:bold}.m{text-anchor:middle}\
    .e{text-anchor:end}.gl{stroke:#ddd}path{fill:none;stroke-width:1.6}";

/// Returns where a value is on the axis of its measure, 0 to 1, and the values that are labelled.
fn axis(measure: Measure) -> (fn(f64) -> f64, &'static [f64]) {
    match measure {
        // From 0.1 to 100 s, by powers of ten.
        Measure::Start => (|value| (value.clamp(0.1, 100.0).log10() + 1.0) / 3.0, &[0.1, 1.0, 10.0, 100.0]),
        Measure::Stalls => (|value| value.clamp(0.0, 6.0) / 6.0, &[0.0, 2.0, 4.0, 6.0]),
        _ => (|value| value.clamp(0.0, 100.0) / 100.0, &[0.0, 20.0, 40.0, 60.0, 80.0, 100.0]),
    }
}

/// Draws the figures: above the traditional caches beside the ephemeral ones that boot in `boot_s`, below the
/// boot times. Each line is the mean distribution over all seeds.
#[must_use]
pub fn figure(rows: &[Row], boot_s: f64) -> String {
    let is_first = |row: &&Row| match row.policy {
        Policy::Origin => false,
        Policy::Traditional { .. } => true,
        Policy::Ephemeral { boot_s: boot, .. } => boot == boot_s,
    };
    let above: Vec<&Row> = rows.iter().filter(is_first).collect();
    let below: Vec<&Row> = rows.iter().filter(|row| matches!(row.policy, Policy::Ephemeral { .. })).collect();
    let block = LEGEND + 2.0 * HEIGHT;
    let mut body = String::new();
    for (number, rows) in [(0.0, &above), (1.0, &below)] {
        let title = if number == 0.0 { "3.9" } else { "3.10" };
        legend(rows, title, number * block, &mut body);
        for (place, measure) in Measure::ALL.into_iter().enumerate() {
            let (x, y) = ((place % 2) as f64 * WIDTH, (place / 2) as f64 * HEIGHT);
            picture(rows, measure, place, (x, number * block + LEGEND + y), &mut body);
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" role=\"img\">\
         <title>What viewers feel, by policy</title><style>{STYLE}</style>\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{body}</svg>\n",
        2.0 * WIDTH,
        2.0 * block
    )
}

fn line_style(slot: usize) -> String {
    let dash = if slot < COLOURS.len() { "" } else { " stroke-dasharray=\"5 3\"" };
    format!("stroke=\"{}\"{dash}", COLOURS[slot % COLOURS.len()])
}

fn legend(rows: &[&Row], title: &str, y0: f64, out: &mut String) {
    let _ = writeln!(out, "<text class=\"t\" x=\"10\" y=\"{:.0}\">as Fig. {title}</text>", y0 + 18.0);
    for (slot, row) in rows.iter().enumerate() {
        let (x, y) = (10.0 + 185.0 * (slot % 4) as f64, y0 + 36.0 + 18.0 * (slot / 4) as f64);
        let _ = writeln!(
            out,
            "<path {} d=\"M{x:.0} {:.0}h22\"/><text x=\"{:.0}\" y=\"{y:.0}\">{}</text>",
            line_style(slot),
            y - 4.0,
            x + 28.0,
            row.policy.name()
        );
    }
}

fn picture(rows: &[&Row], measure: Measure, place: usize, (x0, y0): (f64, f64), out: &mut String) {
    let (left, right) = (x0 + LEFT, x0 + WIDTH - RIGHT);
    let (top, bottom) = (y0 + TOP, y0 + HEIGHT - BOTTOM);
    let (position, labels) = axis(measure);
    let x = |value: f64| left + (right - left) * position(value);
    let y = |percent: f64| bottom - (bottom - top) * percent / 100.0;
    let letter = ["a", "b", "c", "d"][place % 4];
    let _ = writeln!(
        out,
        "<text class=\"t\" x=\"{left:.0}\" y=\"{:.0}\">{letter}: {}</text>",
        y0 + 16.0,
        measure.name()
    );
    for label in labels {
        let at = x(*label);
        let _ = writeln!(out, "<path class=\"gl\" d=\"M{at:.1} {top:.0}V{bottom:.0}\"/>");
        let _ = writeln!(out, "<text class=\"m\" x=\"{at:.1}\" y=\"{:.0}\">{label}</text>", bottom + 15.0);
    }
    for percent in [0.0, 20.0, 40.0, 60.0, 80.0, 100.0] {
        let at = y(percent);
        let _ = writeln!(out, "<path class=\"gl\" d=\"M{left:.0} {at:.1}H{right:.0}\"/>");
        let (text_x, text_y) = (left - 6.0, at + 4.0);
        let _ = writeln!(out, "<text class=\"e\" x=\"{text_x:.0}\" y=\"{text_y:.1}\">{percent} %</text>");
    }
    for (slot, row) in rows.iter().enumerate() {
        let mut d = String::new();
        for percent in 0..=100 {
            let value = row.mean(|_| true, |run| run.at(measure, percent));
            if value.is_finite() {
                let command = if d.is_empty() { 'M' } else { 'L' };
                let _ = write!(d, "{command}{:.1} {:.1}", x(value), y(f64::from(percent as u32)));
            }
        }
        let _ = writeln!(out, "<path {} d=\"{d}\"/>", line_style(slot));
    }
}
