//! Draws panels of rows of dots, one dot for each series, as one SVG file with its own style.

use super::axis::Axis;
use super::plot::{colour, px};
use super::text::{escape, put, width};

/// Width of a panel and of the gap between two panels, pixels.
const PANEL_WIDTH: f64 = 400.0;
const GAP: f64 = 20.0;
const ROW_HEIGHT: f64 = 17.0;
/// Height of a panel's title, and of its axis with the unit, pixels.
const TITLE_HEIGHT: f64 = 24.0;
const AXIS_HEIGHT: f64 = 36.0;
const LEGEND_HEIGHT: f64 = 26.0;
const RADIUS: f64 = 3.8;

/// Style of the file: the palette of Okabe and Ito (2008), shapes beside colours.
const STYLE: &str = "text{font:12px sans-serif;fill:#222}.m{text-anchor:middle}.e{text-anchor:end}\
    .t{font-weight:bold}.gl{stroke:#ddd}.k0{fill:#0072b2}.k1{fill:#d55e00}.k2{fill:#009e73}.k3{fill:#555}\
    .k4{fill:#cc79a7}.k5{fill:#56b4e9}.k6{fill:#b8860b}";

/// A chart of dots.
pub(crate) struct DotChart {
    /// Names of the series.
    pub(crate) series: Vec<String>,
    /// Title of the horizontal axes, with the unit.
    pub(crate) quantity: String,
    /// Panels, two side by side.
    pub(crate) panels: Vec<DotPanel>,
}

/// A panel of a [`DotChart`], with an axis of its own from zero on.
pub(crate) struct DotPanel {
    /// Title.
    pub(crate) title: String,
    /// Rows: a label, and a value for each series.
    pub(crate) rows: Vec<(String, Vec<f64>)>,
}

impl DotChart {
    /// Returns the file. Equal charts give equal texts.
    pub(crate) fn svg(&self) -> String {
        let height = |panel: &DotPanel| TITLE_HEIGHT + ROW_HEIGHT * panel.rows.len() as f64 + AXIS_HEIGHT;
        let (mut body, mut top) = (self.legend(), LEGEND_HEIGHT);
        for pair in self.panels.chunks(2) {
            for (at, panel) in pair.iter().enumerate() {
                self.panel(panel, (PANEL_WIDTH + GAP) * at as f64, top, &mut body);
            }
            top += pair.iter().map(height).fold(0.0, f64::max);
        }
        let size = (2.0 * PANEL_WIDTH + GAP, top);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" role=\"img\">\
             <title>{}</title><style>{STYLE}</style>\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{body}</svg>\n",
            px(size.0),
            px(size.1),
            escape(&self.quantity)
        )
    }

    fn legend(&self) -> String {
        let (mut out, mut x) = (String::new(), 10.0);
        for (slot, name) in self.series.iter().enumerate() {
            out.push_str(&mark(slot, x, 12.0));
            put!(out, "<text x=\"{}\" y=\"16\">{}</text>", px(x + 9.0), escape(name));
            x += 28.0 + width(name) * 1.1;
        }
        out + "\n"
    }

    fn panel(&self, panel: &DotPanel, x0: f64, y0: f64, out: &mut String) {
        let label_px = panel.rows.iter().map(|(label, _)| width(label) * 1.1).fold(0.0, f64::max);
        let (left, right) = (x0 + label_px + 12.0, x0 + PANEL_WIDTH - 14.0);
        let most = panel.rows.iter().flat_map(|(_, values)| values.iter().copied()).fold(0.0, f64::max);
        let axis = Axis::round(0.0, most.max(1e-9), 5);
        let (top, bottom) = (y0 + TITLE_HEIGHT, y0 + TITLE_HEIGHT + ROW_HEIGHT * panel.rows.len() as f64);
        put!(
            out,
            "<text class=\"t\" x=\"{}\" y=\"{}\">{}</text>",
            px(left),
            px(y0 + 16.0),
            escape(&panel.title)
        );
        for tick in &axis.ticks {
            let x = px(axis.at(*tick, left, right));
            put!(out, "<path class=\"gl\" d=\"M{x} {}V{}\"/>", px(top), px(bottom));
            put!(out, "<text class=\"m\" x=\"{x}\" y=\"{}\">{}</text>", px(bottom + 14.0), axis.label(*tick));
        }
        put!(
            out,
            "<text class=\"e\" x=\"{}\" y=\"{}\">{}</text>\n",
            px(right),
            px(bottom + 28.0),
            escape(&self.quantity)
        );
        for (i, (label, values)) in panel.rows.iter().enumerate() {
            let y = top + ROW_HEIGHT * (i as f64 + 0.5);
            put!(
                out,
                "<text class=\"e\" x=\"{}\" y=\"{}\">{}</text>",
                px(left - 8.0),
                px(y + 4.0),
                escape(label)
            );
            for (slot, value) in values.iter().enumerate().filter(|(_, value)| value.is_finite()) {
                out.push_str(&mark(slot, axis.at(*value, left, right), y));
            }
            out.push('\n');
        }
    }
}

/// Draws the mark of a series: shapes differ as colours do.
fn mark(slot: usize, x: f64, y: f64) -> String {
    let (class, r) = (colour(slot), RADIUS);
    match slot % 4 {
        0 => format!("<circle class=\"{class}\" cx=\"{}\" cy=\"{}\" r=\"{r}\"/>", px(x), px(y)),
        1 => format!("<path class=\"{class}\" d=\"M{} {}l4 4-4 4-4-4z\"/>", px(x), px(y - 4.0)),
        2 => format!("<path class=\"{class}\" d=\"M{} {}h7v7h-7z\"/>", px(x - 3.5), px(y - 3.5)),
        _ => format!("<path class=\"{class}\" d=\"M{} {}l4 7h-8z\"/>", px(x), px(y - 4.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_a_mark_and_text_is_escaped() {
        let panel = |title: &str| DotPanel {
            title: title.into(),
            rows: vec![("a <b>".into(), vec![1.0, 2.0]), ("c".into(), vec![3.0, f64::NAN])],
        };
        let chart = DotChart {
            series: vec!["x".into(), "y".into()],
            quantity: "time, ms".into(),
            panels: vec![panel("one"), panel("two"), panel("three")],
        };
        let svg = chart.svg();
        assert_eq!(svg.matches("<circle").count(), 1 + 3 * 2);
        assert_eq!(svg.matches("class=\"k1\"").count(), 1 + 3);
        assert!(svg.contains("a &lt;b&gt;") && !svg.contains("NaN"));
        assert_eq!(svg, chart.svg());
    }
}
