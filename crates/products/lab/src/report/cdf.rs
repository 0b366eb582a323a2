//! Draws the distribution of a metric over the seeds: empirical, with a confidence band.
//!
//! Source of the band: Dvoretzky, Kiefer and Wolfowitz (1956) with the constant of Massart (1990): the whole
//! true distribution is within ±√(ln(2/α)/2n) of the empirical one with probability 1 - α.

use super::axis::{Axis, range};
use super::plot::{Frame, colour, defs, figure, path};
use super::text::{count, escape, put};
use super::{CASES_MAX, Keys, Study, heading};
use crate::World;
use crate::metric::metric;
use crate::outcome::Run;
use crate::scenario::Measure;

/// Least number of seeds for which a distribution is drawn.
pub(super) const SEEDS_MIN: usize = 8;
const SIZE: (f64, f64) = (216.0, 158.0);
/// Most steps of a drawn distribution.
const STEPS_MAX: usize = 200;

/// Returns half the height of the 95 % band of `n` values.
fn band(n: usize) -> f64 {
    ((2.0_f64 / 0.05).ln() / (2.0 * n as f64)).sqrt()
}

/// The values of a controller for all seeds, ascending.
struct Sample<'a> {
    controller: &'a str,
    world: World,
    values: Vec<f64>,
    /// Number of runs that counted, including runs without this value.
    runs: usize,
}

/// Draws the distributions of all metrics.
pub(super) fn plots(study: &Study<'_>, keys: &Keys<'_>, id: &str) -> String {
    let mut out = String::new();
    for (m, measure) in study.scenario.measure.iter().enumerate() {
        let mut tiles = String::new();
        for (c, case) in keys.cases.iter().take(CASES_MAX).enumerate() {
            let runs: Vec<&Run> = study.runs.iter().filter(|run| run.case.as_deref() == *case).collect();
            let samples = samples(keys, &runs, m);
            if samples.is_empty() {
                continue;
            }
            if let Some(case) = case.filter(|_| keys.controllers.len() > 1) {
                put!(tiles, "<p class=\"case\">{}</p>\n", escape(case));
            }
            tiles.push_str(&group(keys, measure, *case, &samples, &format!("{id}m{m}c{c}")));
        }
        if !tiles.is_empty() {
            let versus = measure.versus.as_ref();
            let note =
                versus.map(|v| format!(", before the comparison with {}", escape(v))).unwrap_or_default();
            put!(
                out,
                "<h4>{}{note}</h4>\n<div class=\"grid small\">{tiles}</div>\n",
                escape(&measure.metric)
            );
        }
    }
    if out.is_empty() {
        return out;
    }
    let about = "Fraction of the seeds with at most that value. Band: 95 % confidence band of the whole \
        distribution, after Dvoretzky, Kiefer and Wolfowitz (DKW), drawn where there are values. Grey: \
        the other controllers.";
    heading("Distributions over the seeds", &format!("{about}{}", keys.left_out())) + &out
}

fn samples<'a>(keys: &Keys<'a>, runs: &[&Run], measure: usize) -> Vec<Sample<'a>> {
    let of = |(controller, world): (&'a str, World)| {
        let mine = |run: &&&Run| run.controller == controller && run.world == world;
        let counted = || runs.iter().filter(mine).filter(|run| run.outcome.violations.is_empty());
        let values = counted().filter_map(|run| run.outcome.values.get(measure).copied().flatten());
        let mut values: Vec<f64> = values.filter(|v| v.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        Sample { controller, world, values, runs: counted().count() }
    };
    keys.series().map(of).filter(|sample| sample.values.len() >= SEEDS_MIN).collect()
}

/// Returns the corners of the distribution's steps: (value, fraction), from one end of the axis to the
/// other.
fn steps(values: &[f64], axis: &Axis) -> Vec<(f64, f64)> {
    let n = values.len();
    let each = n.div_ceil(STEPS_MAX);
    let mut points = vec![(axis.min, 0.0)];
    let mut fraction = 0.0;
    for (i, value) in values.iter().enumerate() {
        if (i + 1) % each == 0 || i + 1 == n {
            points.push((*value, fraction));
            fraction = (i + 1) as f64 / n as f64;
            points.push((*value, fraction));
        }
    }
    points.push((axis.max, 1.0));
    points
}

/// Draws a figure for each controller; the lines are defined once and shown in all of them.
fn group(keys: &Keys<'_>, measure: &Measure, case: Option<&str>, samples: &[Sample<'_>], id: &str) -> String {
    let all = samples.iter().flat_map(|sample| sample.values.iter().copied());
    let Some((min, max)) = range(all) else { return String::new() };
    let pad = (max - min) * 0.08;
    let x = Axis::exact(min - pad, max + pad, 3);
    let y = Axis::exact(0.0, 1.0, 2);
    let frame = Frame { left: 26.0, right: SIZE.0 - 10.0, top: 18.0, bottom: SIZE.1 - 34.0, x, y };
    let title = match metric(measure.kind).unit {
        "" => measure.metric.clone(),
        unit => unit.to_string(),
    };
    let mut shared = String::new();
    put!(shared, "<g id=\"{id}\">{}</g>", frame.axes(&title, "fraction of seeds"));
    let lines: Vec<Vec<(f64, f64)>> = samples.iter().map(|s| steps(&s.values, &frame.x)).collect();
    for (i, line) in lines.iter().enumerate() {
        put!(shared, "<path id=\"{id}l{i}\" d=\"{}\"/>", path(line.iter().map(|p| frame.at(*p))));
    }
    let mut out = defs(&shared);
    for (i, sample) in samples.iter().enumerate() {
        let n = sample.values.len();
        let half = band(n);
        let at = |(value, fraction): (f64, f64), by: f64| frame.at((value, fraction + by));
        // Omit the ends: the band is drawn only where there are values.
        let own = &lines[i][1..lines[i].len() - 1];
        let upper = own.iter().map(|p| at(*p, half));
        let lower = own.iter().rev().map(|p| at(*p, -half));
        let colour = colour(keys.slot(sample.controller));
        let mut body = format!("<use href=\"#{id}\"/><path class=\"area {colour}\" d=\"");
        put!(body, "{}z\"/>", path(upper.chain(lower)));
        for other in (0..samples.len()).filter(|other| *other != i) {
            put!(body, "<use class=\"l context\" href=\"#{id}l{other}\"/>");
        }
        put!(body, "<use class=\"l {colour}\" href=\"#{id}l{i}\"/>");
        let seeds = match sample.runs - n {
            0 => count(n, "seed"),
            _ => format!("{n} of {}", count(sample.runs, "seed")),
        };
        let caption = format!(
            "<b>{}</b> <span>{seeds}</span>",
            escape(&keys.caption(sample.controller, sample.world, case))
        );
        let name = format!("Distribution of {} with {}", measure.metric, sample.controller);
        out.push_str(&figure("", &caption, &name, SIZE, &body));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_band_is_dkw() {
        // n = 30: sqrt(ln 40 / 60) = 0.2480.
        assert!((band(30) - 0.248).abs() < 1e-4);
    }

    #[test]
    fn distributions_are_steps() {
        let axis = Axis::exact(0.0, 4.0, 4);
        let points = steps(&[1.0, 3.0], &axis);
        assert_eq!(points, [(0.0, 0.0), (1.0, 0.0), (1.0, 0.5), (3.0, 0.5), (3.0, 1.0), (4.0, 1.0)]);
        let many: Vec<f64> = (0..5_000).map(f64::from).collect();
        let points = steps(&many, &Axis::exact(0.0, 5_000.0, 4));
        assert!(points.len() <= 2 * STEPS_MAX + 4);
        assert_eq!(points.last().map(|p| p.1), Some(1.0));
        assert_eq!(points[points.len() - 2], (4_999.0, 1.0));
    }
}
