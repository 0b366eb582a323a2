//! Draws distributions of round-trip times as SVG, on a logarithmic axis of milliseconds.

use std::fmt::Write as _;

use anabranch_trace::html::Escaped;

/// The size of a figure, pixels.
const SIZE: (f64, f64) = (520.0, 240.0);
/// The frame: left, right, top, bottom.
const FRAME: (f64, f64, f64, f64) = (40.0, 508.0, 12.0, 204.0);
/// The decades of the axis, powers of ten of milliseconds.
const DECADES: (f64, f64) = (0.0, 4.0);

/// A line of a figure.
#[derive(Clone, Debug)]
pub struct Line {
    /// The line's name.
    pub name: String,
    /// The number of the line's colour.
    pub color: usize,
    /// The values, ms.
    pub values: Vec<f64>,
}

fn x(value: f64) -> f64 {
    let place = (value.max(1e-3).log10() - DECADES.0) / (DECADES.1 - DECADES.0);
    FRAME.0 + place.clamp(0.0, 1.0) * (FRAME.1 - FRAME.0)
}

fn y(fraction: f64) -> f64 {
    FRAME.3 - fraction * (FRAME.3 - FRAME.2)
}

/// Draws the distributions; lines without values are left out. Returns nothing if no line has any.
#[must_use]
pub fn figure(caption: &str, lines: &[Line]) -> String {
    let lines: Vec<&Line> = lines.iter().filter(|line| !line.values.is_empty()).collect();
    if lines.is_empty() {
        return String::new();
    }
    let mut svg = String::new();
    let (width, height) = SIZE;
    let _ = write!(
        svg,
        "<figure><figcaption>{}</figcaption>\n<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         role=\"img\" aria-label=\"{}\" style=\"max-width:100%;font-size:11px;fill:var(--soft)\">\n",
        Escaped(caption),
        Escaped(caption)
    );
    axes(&mut svg);
    for line in &lines {
        let _ = writeln!(
            svg,
            "<path d=\"{}\" fill=\"none\" stroke=\"var(--k{})\" stroke-width=\"2\"><title>{}</title></path>",
            steps(&line.values),
            line.color,
            Escaped(&line.name)
        );
    }
    svg.push_str("</svg>\n<div class=\"legend\">");
    for line in &lines {
        let _ = write!(
            svg,
            "<span><span class=\"swatch\" style=\"background:var(--k{})\"></span>{} ({} subflows, \
             median {:.1} ms)</span>",
            line.color,
            Escaped(&line.name),
            line.values.len(),
            median(&line.values)
        );
    }
    svg.push_str("</div></figure>\n");
    svg
}

fn axes(svg: &mut String) {
    for decade in 0..=DECADES.1 as u32 {
        let value = 10_f64.powi(decade as i32);
        let _ = writeln!(
            svg,
            "<path d=\"M{0:.1} {1}V{2}\" stroke=\"var(--grid)\"/><text x=\"{0:.1}\" y=\"{3}\" \
             text-anchor=\"middle\">{value}</text>",
            x(value),
            FRAME.2,
            FRAME.3,
            FRAME.3 + 15.0
        );
    }
    for fraction in [0.0, 0.5, 1.0] {
        let _ = writeln!(
            svg,
            "<path d=\"M{} {1:.1}H{2}\" stroke=\"var(--grid)\"/><text x=\"{3}\" y=\"{4:.1}\" \
             text-anchor=\"end\">{fraction}</text>",
            FRAME.0,
            y(fraction),
            FRAME.1,
            FRAME.0 - 5.0,
            y(fraction) + 4.0
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">median round trip of a subflow, ms</text>",
        f64::midpoint(FRAME.0, FRAME.1),
        FRAME.3 + 31.0
    );
}

/// Returns the path of the steps of a distribution.
fn steps(values: &[f64]) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let mut path = format!("M{:.1} {:.1}", FRAME.0, y(0.0));
    for (number, value) in sorted.iter().enumerate() {
        let _ = write!(path, "H{:.1}V{:.1}", x(*value), y((number + 1) as f64 / sorted.len() as f64));
    }
    let _ = write!(path, "H{:.1}", FRAME.1);
    path
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_rises_to_one_within_the_frame() {
        let line = |values: &[f64]| Line { name: "a<b".into(), color: 0, values: values.to_vec() };
        let svg = figure("x", &[line(&[100.0, 10.0, 1e9, 1e-9]), line(&[])]);
        assert!(svg.contains("a&lt;b (4 subflows, median 100.0 ms)"), "{svg}");
        assert_eq!(svg.matches("<path d=\"M40.0 204.0H").count(), 1);
        assert!(svg.contains("V12.0H508.0\""), "{svg}");
        assert_eq!(figure("x", &[line(&[])]), "");
    }
}
