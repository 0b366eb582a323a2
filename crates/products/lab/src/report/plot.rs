//! Draws the parts of all plots: frame, lines, labels at their ends. The output is SVG, styled by the page's
//! style sheet.

use super::axis::Axis;
use super::text::{escape, fitted, put, width};

/// Number of colours in the palette; later styles also differ in their dash pattern.
const COLOURS: usize = 7;
/// Number of dash patterns.
const DASHES: usize = 5;
/// Least distance between the base lines of labels, pixels.
const LABEL_STEP: f64 = 11.5;
/// Distance from the end of a line to its label, pixels.
const LABEL_GAP: f64 = 14.0;
/// Greatest width of a label at the end of a line, pixels.
const LABEL_WIDTH_MAX: f64 = 92.0;

/// Returns the classes of colour and dash pattern of series `slot`.
pub(super) fn style(slot: usize) -> String {
    format!("k{} d{}", slot % COLOURS, (slot + slot / COLOURS) % DASHES)
}

/// Returns the class of the colour alone, for marks that are not lines.
pub(super) fn colour(slot: usize) -> String {
    format!("k{}", slot % COLOURS)
}

/// Formats a figure: caption (HTML) above a drawing of `size` pixels; screen readers read `name`.
pub(super) fn figure(class: &str, caption: &str, name: &str, size: (f64, f64), body: &str) -> String {
    let (width, height) = size;
    let caption =
        if caption.is_empty() { String::new() } else { format!("<figcaption>{caption}</figcaption>") };
    format!(
        "<figure class=\"{class}\">{caption}<svg viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-label=\"{}\">{body}</svg></figure>\n",
        escape(name)
    )
}

/// Formats a coordinate: tenths of a pixel are enough.
pub(super) fn px(value: f64) -> String {
    let text = format!("{:.1}", value + 0.0);
    text.strip_suffix(".0").map_or(text.clone(), str::to_string)
}

/// Formats a path through `points` (pixels), in relative tenths to be short. A point that is not finite ends
/// a line, and the next point begins another.
pub(super) fn path(points: impl Iterator<Item = (f64, f64)>) -> String {
    let mut out = String::new();
    let mut line: Vec<(i64, i64)> = Vec::new();
    let mut end = |line: &mut Vec<(i64, i64)>| {
        for (i, (x, y)) in line.iter().copied().enumerate() {
            out.push_str(["M", "l", ""][i.min(2)]);
            let (x0, y0) = if i == 0 { (0, 0) } else { line[i - 1] };
            tenths(&mut out, x - x0, i > 1);
            tenths(&mut out, y - y0, true);
        }
        if line.len() == 1 {
            // This line has no length: its round ends make it a dot.
            out.push_str("h0");
        }
        line.clear();
    };
    for (x, y) in points {
        if !x.is_finite() || !y.is_finite() {
            end(&mut line);
            continue;
        }
        let point = ((x * 10.0).round() as i64, (y * 10.0).round() as i64);
        if line.last() != Some(&point) {
            line.push(point);
        }
    }
    end(&mut line);
    out
}

/// Writes `value` tenths without a leading zero; `follows` says whether a number stands before it.
fn tenths(out: &mut String, value: i64, follows: bool) {
    let (whole, part) = (value.unsigned_abs() / 10, value.unsigned_abs() % 10);
    if value < 0 {
        out.push('-');
    } else if follows {
        out.push(' ');
    }
    match (whole, part) {
        (whole, 0) => put!(out, "{whole}"),
        (0, part) => put!(out, ".{part}"),
        (whole, part) => put!(out, "{whole}.{part}"),
    }
}

/// Formats drawings that several figures show with `<use>`.
pub(super) fn defs(body: &str) -> String {
    format!("<svg class=\"defs\" aria-hidden=\"true\"><defs>{body}</defs></svg>\n")
}

/// The area in which a plot's lines are drawn, and its ranges of values.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    /// Left end of the lines, pixels from the left.
    pub(super) left: f64,
    /// Right end of the lines, pixels from the left.
    pub(super) right: f64,
    /// Upper end of the lines, pixels from the top.
    pub(super) top: f64,
    /// Lower end of the lines, pixels from the top.
    pub(super) bottom: f64,
    /// Horizontal axis.
    pub(super) x: Axis,
    /// Vertical axis.
    pub(super) y: Axis,
}

impl Frame {
    /// Returns the pixels of the values `(x, y)`.
    pub(super) fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (self.x.at(x, self.left, self.right), self.y.at(y, self.bottom, self.top))
    }

    /// Draws the axes with ticks and titles; a title names the quantity and the unit.
    pub(super) fn axes(&self, x_title: &str, y_title: &str) -> String {
        let mut out = String::new();
        let (left, right, bottom) = (px(self.left), px(self.right), px(self.bottom));
        for tick in &self.y.ticks {
            let y = self.y.at(*tick, self.bottom, self.top);
            let class = if *tick == self.y.min { "ax" } else { "gl" };
            put!(out, "<path class=\"{class}\" d=\"M{left} {0}H{right}\"/>", px(y));
            let label = self.y.label(*tick);
            put!(out, "<text class=\"e\" x=\"{}\" y=\"{}\">{label}</text>", px(self.left - 5.0), px(y + 3.8));
        }
        let places = self.x.ticks.iter().map(|t| (self.x.at(*t, self.left, self.right), self.x.label(*t)));
        let mut free = f64::NEG_INFINITY;
        for (x, label) in places {
            put!(out, "<path class=\"ax\" d=\"M{} {bottom}v3.5\"/>", px(x));
            // Where labels would touch, every second one is enough.
            let half = width(&label) / 2.0;
            if x - half > free {
                let y = px(self.bottom + 15.0);
                put!(out, "<text class=\"m\" x=\"{}\" y=\"{y}\">{label}</text>", px(x));
                free = x + half + 3.0;
            }
        }
        let (x, y) = (px(self.right), px(self.bottom + 28.0));
        put!(out, "<text class=\"e\" x=\"{x}\" y=\"{y}\">{}</text>", fitted(x_title, self.right));
        put!(out, "<text x=\"0\" y=\"{}\">{}</text>", px(self.top - 9.0), escape(y_title));
        out
    }

    /// Draws labels to the right of the ends of lines, moved apart where they would touch.
    pub(super) fn end_labels(&self, ends: &[LineEnd]) -> String {
        let mut order: Vec<usize> = (0..ends.len()).collect();
        order.sort_by(|a, b| ends[*a].y.total_cmp(&ends[*b].y).then(a.cmp(b)));
        let wanted: Vec<f64> = order.iter().map(|i| ends[*i].y).collect();
        let placed = apart(&wanted, LABEL_STEP, self.top, self.bottom);
        let mut out = String::new();
        for (i, y) in order.into_iter().zip(placed) {
            let LineEnd { slot, label, x: end_x, y: end_y } = &ends[i];
            let x = self.right + LABEL_GAP;
            put!(out, "<path class=\"l lead {}\" d=\"M{} {}", style(*slot), px(*end_x), px(*end_y));
            put!(out, "L{} {}H{}\"/>", px(self.right + LABEL_GAP - 8.0), px(y), px(x - 2.5));
            let text = fitted(label, LABEL_WIDTH_MAX);
            put!(out, "<text class=\"v\" x=\"{}\" y=\"{}\">{text}</text>", px(x), px(y + 3.8));
        }
        out
    }
}

/// The labelled end of a line.
#[derive(Clone, Debug)]
pub(super) struct LineEnd {
    /// Number of the line's style.
    pub(super) slot: usize,
    /// Text of the label.
    pub(super) label: String,
    /// Horizontal place of the end, pixels from the left.
    pub(super) x: f64,
    /// Vertical place of the end, pixels from the top.
    pub(super) y: f64,
}

/// Returns the room that the widest of `labels` takes at the end of a line, pixels.
pub(super) fn label_room<'a>(labels: impl Iterator<Item = &'a str>) -> f64 {
    LABEL_GAP + labels.map(width).fold(0.0, f64::max).min(LABEL_WIDTH_MAX)
}

/// Moves `wanted` places, in order, as little as necessary to be `step` apart and between `min` and `max`.
fn apart(wanted: &[f64], step: f64, min: f64, max: f64) -> Vec<f64> {
    // Runs of labels that touch: (sum of the places that their first label wants, number of labels).
    let mut runs: Vec<(f64, usize)> = Vec::new();
    let room = |n: usize| (max - step * (n as f64 - 1.0)).max(min);
    let first = |run: &(f64, usize)| (run.0 / run.1 as f64).clamp(min, room(run.1));
    for y in wanted {
        let mut run = (if y.is_finite() { *y } else { max }, 1);
        while let Some(last) = runs.last().copied() {
            if first(&last) + last.1 as f64 * step <= first(&run) {
                break;
            }
            runs.pop();
            run = (last.0 + run.0 - step * (last.1 * run.1) as f64, last.1 + run.1);
        }
        runs.push(run);
    }
    runs.iter().flat_map(|run| (0..run.1).map(move |i| first(run) + i as f64 * step)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_short_and_exact() {
        let d = path([(1.0, 2.0), (1.26, 2.0), (3.0, 1.5)].into_iter());
        assert_eq!(d, "M1 2l.3 0 1.7-.5");
        assert_eq!(path([(1.0, 1.0)].into_iter()), "M1 1h0");
        let nan = f64::NAN;
        assert_eq!(path([(0.0, 0.0), (nan, 1.0), (2.0, 2.0), (3.0, 2.0)].into_iter()), "M0 0h0M2 2l1 0");
        assert_eq!(path([(nan, nan)].into_iter()), "");
    }

    #[test]
    fn labels_keep_apart() {
        assert_eq!(apart(&[10.0, 50.0], 10.0, 0.0, 100.0), [10.0, 50.0]);
        assert_eq!(apart(&[50.0, 50.0], 10.0, 0.0, 100.0), [45.0, 55.0]);
        assert_eq!(apart(&[99.0, 100.0, 100.0], 10.0, 0.0, 100.0), [80.0, 90.0, 100.0]);
        assert_eq!(apart(&[0.0, 0.0], 10.0, 0.0, 100.0), [0.0, 10.0]);
        let many = apart(&[5.0; 30], 10.0, 0.0, 100.0);
        assert!(many.windows(2).all(|w| w[1] - w[0] > 9.9));
        assert!(apart(&[], 10.0, 0.0, 1.0).is_empty());
    }

    #[test]
    fn styles_differ() {
        let styles: Vec<String> = (0..35).map(style).collect();
        assert!(styles.iter().enumerate().all(|(i, s)| !styles[..i].contains(s)));
    }
}
