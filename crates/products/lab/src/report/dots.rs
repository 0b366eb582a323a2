//! Draws a dot with a whisker for each row: our value with its interval, beside the paper's and the model's.

use super::axis::{Axis, range};
use super::plot::{colour, figure, px};
use super::text::{escape, finite, fitted, put, width};
use super::{Keys, Study, expected};
use crate::outcome::Row;
use crate::scenario::notes::Verdict;

const WIDTH: f64 = 330.0;
/// Width of a figure whose labels do not fit the narrow figure, pixels.
const WIDTH_WIDE: f64 = 690.0;
const LABEL_MAX: f64 = 120.0;
const LABEL_WIDE_MAX: f64 = 320.0;
/// Width of tick labels above which an axis has fewer ticks, pixels.
const TICK_LABEL_MAX: f64 = 30.0;
const ROW_HEIGHT: f64 = 18.0;
/// Most rows of one figure, so that it fits on a printed page.
const ROWS_MAX: usize = 32;

/// Legend of the marks.
pub(super) const LEGEND: &str = "<p class=\"legend\">\
    <span><svg viewBox=\"0 0 34 12\"><path class=\"l k0\" d=\"M3 6h28\"/>\
    <circle class=\"f k0\" cx=\"17\" cy=\"6\" r=\"3.6\"/></svg> ours, with the 95 % confidence interval of \
    the mean</span> \
    <span><svg viewBox=\"0 0 14 12\"><path class=\"paper\" d=\"M7 1l5 5-5 5-5-5z\"/></svg> paper</span> \
    <span><svg viewBox=\"0 0 14 12\"><path class=\"model\" d=\"M7 0v12\"/></svg> model</span> \
    <span><svg viewBox=\"0 0 24 12\"><path class=\"band\" d=\"M1 1h22v10h-22z\"/></svg> expected</span> \
    <span><svg viewBox=\"0 0 12 12\"><path class=\"miss\" d=\"M2 2l8 8M10 2l-8 8\"/></svg> not as \
    expected</span> \
    <span><svg viewBox=\"0 0 12 12\"><circle class=\"hollow k0\" cx=\"6\" cy=\"6\" r=\"3.6\"/></svg> not all \
    conditions met</span></p>\n";

/// One of several figures for a metric.
struct Panel<'a> {
    caption: String,
    rows: Vec<(String, &'a Row)>,
}

/// Draws the plots of all metrics.
pub(super) fn plots(study: &Study<'_>, keys: &Keys<'_>) -> String {
    let (mut out, mut side_by_side) = (String::new(), String::new());
    let cases = keys.rows.iter().any(|row| row.case.is_some());
    for metric in &keys.metrics {
        let rows: Vec<&Row> = keys.rows.iter().copied().filter(|row| row.metric == *metric).collect();
        if rows.is_empty() {
            continue;
        }
        let panels = panels(keys, &rows, metric, cases);
        let axis = axis(study, &rows);
        let labels = || panels.iter().flat_map(|panel| panel.rows.iter()).map(|(label, _)| width(label));
        let label_px = labels().fold(0.0, f64::max).min(LABEL_WIDE_MAX);
        let draw = |panel| draw(study, keys, panel, &axis, label_px, metric);
        let figures: String = panels.iter().map(draw).collect();
        if cases {
            put!(out, "<h4>{}</h4>\n<div class=\"grid\">{figures}</div>\n", escape(metric));
        } else {
            side_by_side.push_str(&figures);
        }
    }
    if !side_by_side.is_empty() {
        put!(out, "<div class=\"grid\">{side_by_side}</div>\n");
    }
    out
}

/// Groups rows into panels: one for each case if cases have several controllers, else one with a row for
/// each case.
fn panels<'a>(keys: &Keys<'_>, rows: &[&'a Row], metric: &str, cases: bool) -> Vec<Panel<'a>> {
    let label = |row: &Row| keys.label(&row.controller, row.world);
    let groups: Vec<(&Option<String>, Vec<&'a Row>)> = rows.iter().fold(Vec::new(), |mut groups, row| {
        match groups.iter_mut().find(|(case, _): &&mut (&Option<String>, Vec<&Row>)| **case == row.case) {
            Some((_, group)) => group.push(*row),
            None => groups.push((&row.case, vec![*row])),
        }
        groups
    });
    let mut panels = Vec::new();
    let mut push = |caption: String, rows: Vec<(String, &'a Row)>| {
        for part in rows.chunks(ROWS_MAX) {
            panels.push(Panel { caption: caption.clone(), rows: part.to_vec() });
        }
    };
    if cases && groups.iter().all(|(_, group)| group.len() == 1) {
        let one = rows.iter().all(|row| label(row) == label(rows[0]));
        let name = |row: &Row| row.case.clone().unwrap_or_else(|| "–".into());
        let full = |row: &Row| if one { name(row) } else { format!("{}, {}", name(row), label(row)) };
        let caption = if one { format!("<b>{}</b>", escape(&label(rows[0]))) } else { String::new() };
        push(caption, rows.iter().map(|row| (full(row), *row)).collect());
    } else {
        for (case, group) in groups {
            let caption = if cases { case.as_deref().unwrap_or("–") } else { metric };
            push(format!("<b>{}</b>", escape(caption)), group.iter().map(|row| (label(row), *row)).collect());
        }
    }
    panels
}

/// Creates an axis over all drawn values; it starts at zero if zero is not far.
fn axis(study: &Study<'_>, rows: &[&Row]) -> Axis {
    let values = rows.iter().flat_map(|row| {
        let value = finite(row.value);
        let ci = interval(row).unwrap_or(0.0);
        let ends =
            expected(study.scenario, row).map_or([None; 2], |e| [e.low, e.high].map(|end| finite(Some(end))));
        [
            value.map(|v| v - ci),
            value.map(|v| v + ci),
            finite(row.reference.paper),
            finite(row.reference.model),
            ends[0],
            ends[1],
        ]
    });
    let Some((min, max)) = range(values.flatten()) else { return Axis::exact(0.0, 1.0, 4) };
    let pad = (max - min) * 0.06;
    let near_zero = min >= 0.0 && min < (max - min) * 0.4;
    let (min, max) = (if near_zero { 0.0 } else { min - pad }, max + pad);
    let axis = Axis::exact(min, max, 5);
    let fits = axis.ticks.iter().all(|tick| width(&axis.label(*tick)) <= TICK_LABEL_MAX);
    if fits { axis } else { Axis::exact(min, max, 3) }
}

/// Returns half of the confidence interval, if there is one: a single seed has none.
fn interval(row: &Row) -> Option<f64> {
    finite(row.interval()).filter(|_| row.seeds.len() > 1)
}

fn draw(
    study: &Study<'_>,
    keys: &Keys<'_>,
    panel: &Panel<'_>,
    axis: &Axis,
    label_px: f64,
    metric: &str,
) -> String {
    let wide = label_px > LABEL_MAX;
    let (left, top) = (label_px + 12.0, 4.0);
    let size_x = if wide { WIDTH_WIDE } else { WIDTH };
    let (right, bottom) = (size_x - 20.0, top + ROW_HEIGHT * panel.rows.len() as f64);
    let x = |value: f64| axis.at(value, left, right);
    let mut out = String::new();
    for tick in &axis.ticks {
        let at = px(x(*tick));
        put!(out, "<path class=\"gl\" d=\"M{at} {}V{}\"/>", px(top), px(bottom));
        put!(out, "<text class=\"m\" x=\"{at}\" y=\"{}\">{}</text>", px(bottom + 15.0), axis.label(*tick));
    }
    put!(out, "<path class=\"ax\" d=\"M{} {}H{}\"/>", px(left), px(bottom), px(right));
    let unit = panel.rows.iter().map(|(_, row)| row.unit.as_str()).find(|unit| !unit.is_empty());
    let title = unit.map_or_else(|| metric.to_string(), |unit| format!("{metric}, {unit}"));
    let room = size_x - 20.0;
    put!(out, "<text class=\"e\" x=\"{}\" y=\"{}\">", px(right), px(bottom + 29.0));
    put!(out, "{}</text>", fitted(&title, room));
    for (i, (label, row)) in panel.rows.iter().enumerate() {
        let y = top + ROW_HEIGHT * (i as f64 + 0.5);
        let text = fitted(label, label_px);
        put!(out, "<text class=\"e name\" x=\"{}\" y=\"{}\">{text}</text>", px(left - 8.0), px(y + 3.8));
        if let Some(range) = expected(study.scenario, row) {
            let end = |end, open| x(finite(Some(end)).unwrap_or(open));
            let (from, to) = (end(range.low, axis.min), end(range.high, axis.max));
            // A range of a single value must be visible too.
            let width = px((to - from).max(1.0));
            let (y, height) = (px(y - ROW_HEIGHT * 0.38), px(ROW_HEIGHT * 0.76));
            put!(
                out,
                "<rect class=\"band\" x=\"{}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>",
                px(from)
            );
        }
        out.push_str(&marks(keys, row, &x, y, left));
        match row.reference.verdict {
            Some(Verdict::Not) => {
                put!(out, "<path class=\"miss\" d=\"M{} {}l7 7m0-7l-7 7\"/>", px(right + 9.0), px(y - 3.5));
            }
            Some(Verdict::Unclear) => {
                put!(out, "<text class=\"v over\" x=\"{}\" y=\"{}\">?</text>", px(right + 9.0), px(y + 3.8));
            }
            Some(Verdict::Ok) | None => {}
        }
    }
    let name = format!("{metric}: mean and 95 % confidence interval; the numbers are in the table");
    let class = if wide { "wide" } else { "" };
    figure(class, &panel.caption, &name, (size_x, bottom + 34.0), &out)
}

fn marks(keys: &Keys<'_>, row: &Row, x: &dyn Fn(f64) -> f64, y: f64, left: f64) -> String {
    let mut out = String::new();
    let colour = colour(keys.slot(&row.controller));
    if let Some(model) = finite(row.reference.model) {
        put!(out, "<path class=\"model\" d=\"M{} {}v13\"/>", px(x(model)), px(y - 6.5));
    }
    match finite(row.value) {
        Some(value) => {
            if let Some(ci) = interval(row) {
                let (from, to) = (px(x(value - ci)), px(x(value + ci)));
                put!(out, "<path class=\"l {colour}\" d=\"M{from} {}H{to}\"/>", px(y));
            }
            let class = if row.violations.is_empty() { "f" } else { "hollow" };
            let (x, y) = (px(x(value)), px(y));
            put!(out, "<circle class=\"{class} {colour}\" cx=\"{x}\" cy=\"{y}\" r=\"3.6\"/>");
        }
        None => {
            let (x, y) = (px(left + 6.0), px(y + 3.8));
            put!(out, "<text class=\"v over\" x=\"{x}\" y=\"{y}\">no value</text>");
        }
    }
    if let Some(paper) = finite(row.reference.paper) {
        put!(out, "<path class=\"paper\" d=\"M{} {}l5 5-5 5-5-5z\"/>", px(x(paper)), px(y - 5.0));
    }
    out
}
