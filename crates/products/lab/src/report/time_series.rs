//! Draws runs over time: goodput, shares, congestion windows and queues, a small plot for each controller.

use super::axis::Axis;
use super::plot::{Frame, LineEnd, defs, figure, label_room, path, px, style};
use super::text::{escape, put};
use super::{CASES_MAX, Keys, Study, heading};
use crate::World;
use crate::outcome::{Line, Run, SeriesKind};
use crate::scenario::Scenario;

/// Most lines of one plot; more lines are drawn as the mean and range of each kind.
const LINES_MAX: usize = 7;
/// Most and least points of a line.
const POINTS_MAX: usize = 400;
const POINTS_MIN: usize = 32;
/// Most points of a share: over shorter times a share is mostly noise.
const SHARE_POINTS_MAX: usize = 120;
const SIZE: (f64, f64) = (330.0, 172.0);

/// The quantity that a plot shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    Goodput,
    Share,
    Cwnd,
    Queue,
}

impl View {
    const ALL: [Self; 4] = [Self::Goodput, Self::Share, Self::Cwnd, Self::Queue];

    const fn series_kind(self) -> SeriesKind {
        match self {
            Self::Goodput | Self::Share => SeriesKind::Goodput,
            Self::Cwnd => SeriesKind::Cwnd,
            Self::Queue => SeriesKind::Queue,
        }
    }
    const fn title(self) -> &'static str {
        match self {
            Self::Goodput => "Goodput over time",
            Self::Share => "Shares over time",
            Self::Cwnd => "Congestion windows over time",
            Self::Queue => "Queues over time",
        }
    }
    const fn axis(self) -> &'static str {
        match self {
            Self::Goodput => "Mbit/s",
            Self::Share => "% of the goodput",
            Self::Cwnd => "cwnd, packets",
            Self::Queue => "queue, packets",
        }
    }
    /// Whether plots keep extremes: windows and queues are sawtooths, whose teeth a mean would cut off.
    const fn keeps_extremes(self) -> bool {
        matches!(self, Self::Cwnd | Self::Queue)
    }
}

/// The lines of a plot.
#[derive(Clone, Debug, PartialEq)]
enum Slots<'a> {
    /// Each is a line of the series.
    Each(Vec<&'a str>),
    /// Each is the mean and range of all lines of one kind.
    Kinds(Vec<&'a str>),
    /// The only line is the mean and range of all lines.
    All,
}

/// One line, ready to be drawn.
struct Drawn {
    slot: usize,
    label: String,
    /// Times (s) and values.
    points: Vec<(f64, f64)>,
    /// Lowest and highest values of the lines that `points` is the mean of.
    range: Option<[Vec<(f64, f64)>; 2]>,
}

/// Draws all plots over time of a study, with about `budget` points.
pub(super) fn plots(study: &Study<'_>, keys: &Keys<'_>, id: &str, budget: usize) -> String {
    let mut shown: Vec<(Option<&str>, Vec<&Run>)> = Vec::new();
    for case in keys.cases.iter().take(CASES_MAX) {
        let first = |(controller, world): (&str, World)| {
            let mine = |run: &&Run| {
                run.case.as_deref() == *case && run.controller == controller && run.world == world
            };
            study.runs.iter().filter(mine).filter(|run| drawable(run)).min_by_key(|run| run.seed)
        };
        let runs: Vec<&Run> = keys.series().filter_map(first).collect();
        if !runs.is_empty() {
            shown.push((*case, runs));
        }
    }
    let all: Vec<&Run> = shown.iter().flat_map(|(_, runs)| runs.iter().copied()).collect();
    let views: Vec<(View, Slots<'_>)> =
        View::ALL.into_iter().filter_map(|view| Some((view, slots(view, study.scenario, &all)?))).collect();
    // A mean has two more lines: its range.
    let lines: usize = views.iter().map(|(_, slots)| slots.len() * slots.lines()).sum();
    let points = (budget / (lines * all.len()).max(1)).clamp(POINTS_MIN, POINTS_MAX);
    let mut out = String::new();
    for (v, (view, slots)) in views.iter().enumerate() {
        let mut about = note(study.scenario, &shown);
        if !matches!(slots, Slots::Each(_)) {
            about.push_str(match view {
                View::Share => " Shares of all flows of a kind together.",
                _ => " Line: mean of all of a kind; band: from the lowest to the highest.",
            });
        }
        let mut tiles = String::new();
        for (c, (case, runs)) in shown.iter().enumerate() {
            if let Some(case) = case.filter(|_| keys.controllers.len() > 1) {
                put!(tiles, "<p class=\"case\">{}</p>\n", escape(case));
            }
            let id = format!("{id}v{v}c{c}");
            tiles.push_str(&group(*view, slots, (keys, study.scenario), *case, runs, &id, points));
        }
        out.push_str(&heading(view.title(), &(about + &keys.left_out())));
        put!(out, "<div class=\"grid\">{tiles}</div>\n");
    }
    out
}

fn drawable(run: &Run) -> bool {
    let series = &run.outcome.series;
    series.step_s.is_finite()
        && series.step_s > 0.0
        && series.lines.iter().any(|line| !line.values.is_empty())
}

fn of(run: &Run, kind: SeriesKind) -> impl Iterator<Item = &Line> {
    run.outcome.series.lines.iter().filter(move |line| line.kind == kind && !line.values.is_empty())
}

/// Returns the flow of the scenario that a line belongs to: "sp" for "sp/0" or "sp.3".
fn kind<'a>(scenario: &'a Scenario, name: &'a str) -> &'a str {
    let is = |flow: &&String| {
        let rest = name.strip_prefix(flow.as_str());
        rest.is_some_and(|rest| !rest.starts_with(char::is_alphabetic))
    };
    scenario.flow.keys().filter(is).max_by_key(|flow| flow.len()).map_or(name, String::as_str)
}

/// Returns the lines of a view's plots; `None` if there is nothing to show.
fn slots<'a>(view: View, scenario: &'a Scenario, runs: &[&'a Run]) -> Option<Slots<'a>> {
    let distinct = |names: &mut dyn Iterator<Item = &'a str>| {
        let mut seen = Vec::new();
        names.for_each(|name| {
            // Past the limit the exact number does not matter.
            if seen.len() <= LINES_MAX && !seen.contains(&name) {
                seen.push(name);
            }
        });
        seen
    };
    let names = || runs.iter().flat_map(|run| of(run, view.series_kind())).map(|line| line.name.as_str());
    let each = distinct(&mut names());
    let kinds = distinct(&mut names().map(|name| kind(scenario, name)));
    let least = if view == View::Share { 2 } else { 1 };
    match () {
        () if each.len() < least => None,
        () if each.len() <= LINES_MAX => Some(Slots::Each(each)),
        () if kinds.len() <= LINES_MAX && kinds.len() >= least => Some(Slots::Kinds(kinds)),
        () if view == View::Share => None,
        () => Some(Slots::All),
    }
}

impl Slots<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Each(names) | Self::Kinds(names) => names.len(),
            Self::All => 1,
        }
    }
    /// Returns the number of lines drawn for each slot.
    const fn lines(&self) -> usize {
        if matches!(self, Self::Each(_)) { 1 } else { 3 }
    }
    fn has(&self, slot: usize, scenario: &Scenario, name: &str) -> bool {
        match self {
            Self::Each(names) => names[slot] == name,
            Self::Kinds(names) => names[slot] == kind(scenario, name),
            Self::All => true,
        }
    }
}

/// Returns the times of counting and of faults, s; none where the case itself changes them.
fn events(scenario: &Scenario, case: Option<&str>) -> (Option<f64>, Vec<f64>) {
    let set = scenario.case.iter().find(|c| Some(c.name.as_str()) == case).map(|c| &c.set);
    let changed = |key: &str| set.is_some_and(|set| set.keys().any(|k| k.starts_with(key)));
    let from = scenario.count_from.secs();
    let counted = (from > 0.0 && !changed("count_from")).then_some(from);
    let faults = scenario.fault.iter().flat_map(|f| [Some(f.at), f.until]).flatten().map(|at| at.secs());
    (counted, if changed("fault") { Vec::new() } else { faults.collect() })
}

/// Returns a note that names the seed and explains the shades.
fn note(scenario: &Scenario, shown: &[(Option<&str>, Vec<&Run>)]) -> String {
    let seeds: Vec<u64> = shown.iter().flat_map(|(_, runs)| runs.iter().map(|run| run.seed)).collect();
    let mut text = match seeds.first() {
        Some(seed) if seeds.iter().all(|other| other == seed) => format!("Seed {seed}."),
        _ => "First seed of each.".into(),
    };
    let events: Vec<_> = shown.iter().map(|(case, _)| events(scenario, *case)).collect();
    if events.iter().any(|(counted, _)| counted.is_some()) {
        text.push_str(" Shaded: before counting begins.");
    }
    if events.iter().any(|(_, faults)| !faults.is_empty()) {
        text.push_str(" Dotted upright: the net changes.");
    }
    text
}

/// Draws the plots of one case, one for each controller, with common axes.
fn group(
    view: View,
    slots: &Slots<'_>,
    (keys, scenario): (&Keys<'_>, &Scenario),
    case: Option<&str>,
    runs: &[&Run],
    id: &str,
    points: usize,
) -> String {
    let drawn: Vec<Vec<Drawn>> = runs.iter().map(|run| lines(view, slots, scenario, run, points)).collect();
    let all = || drawn.iter().flatten();
    let ranges = all().filter_map(|line| line.range.as_ref()).map(|[_, most]| most);
    let values = all().map(|line| &line.points).chain(ranges).flatten().map(|point| point.1);
    let most = values.filter(|v| v.is_finite()).fold(0.0, f64::max);
    let y = if view == View::Share { Axis::exact(0.0, 100.0, 2) } else { Axis::round(0.0, most, 3) };
    let end = |run: &&Run| {
        let steps = of(run, view.series_kind()).map(|line| line.values.len()).max().unwrap_or(0);
        run.outcome.series.step_s * steps as f64
    };
    let x = Axis::exact(0.0, runs.iter().map(end).fold(0.0, f64::max), 4);
    let room = label_room(all().map(|line| line.label.as_str()));
    let (right, bottom) = (SIZE.0 - room, SIZE.1 - 34.0);
    let frame = Frame { left: 34.0, right, top: 18.0, bottom, x, y };
    let (counted, faults) = events(scenario, case);
    let mut ground = String::new();
    let across = |t: f64| px(frame.x.at(t, frame.left, frame.right));
    let upright = format!("V{}", px(frame.top));
    if let Some(from) = counted {
        put!(ground, "<path class=\"early\" d=\"M{} {}", px(frame.left), px(frame.bottom));
        put!(ground, "{upright}H{}V{}z\"/>", across(from), px(frame.bottom));
    }
    ground.push_str(&frame.axes("time, s", view.axis()));
    for at in faults.iter().filter(|at| **at <= frame.x.max) {
        put!(ground, "<path class=\"event\" d=\"M{} {}{upright}\"/>", across(*at), px(frame.bottom));
    }
    let seeds_differ = runs.iter().any(|run| run.seed != runs[0].seed);
    let mut out = defs(&format!("<g id=\"{id}\">{ground}</g>"));
    for (run, lines) in runs.iter().zip(&drawn) {
        let body = format!("<use href=\"#{id}\"/>{}", draw(&frame, lines));
        let seed = if seeds_differ { format!(" <span>seed {}</span>", run.seed) } else { String::new() };
        let caption = format!("<b>{}</b>{seed}", escape(&keys.caption(&run.controller, run.world, case)));
        let case = case.map(|case| format!(", {case}")).unwrap_or_default();
        let name = format!("{} with {}{case}", view.title(), keys.label(&run.controller, run.world));
        out.push_str(&figure("", &caption, &name, SIZE, &body));
    }
    out
}

fn draw(frame: &Frame, lines: &[Drawn]) -> String {
    let mut out = String::new();
    let mut ends = Vec::new();
    for line in lines {
        let style = style(line.slot);
        if let Some([least, most]) = &line.range {
            // A band cannot have holes: leave out values that are not finite.
            let drawn = |points: &[(f64, f64)]| -> Vec<(f64, f64)> {
                points.iter().filter(|p| p.1.is_finite()).map(|p| frame.at(*p)).collect()
            };
            let around = drawn(most).into_iter().chain(drawn(least).into_iter().rev());
            put!(out, "<path class=\"area {style}\" d=\"{}z\"/>", path(around));
        }
        let at = |p: &(f64, f64)| if p.1.is_finite() { frame.at(*p) } else { (f64::NAN, f64::NAN) };
        put!(out, "<path class=\"l {style}\" d=\"{}\"/>", path(line.points.iter().map(at)));
        if let Some((x, y)) = line.points.iter().rev().find(|p| p.1.is_finite()).map(|p| frame.at(*p)) {
            ends.push(LineEnd { slot: line.slot, label: line.label.clone(), x, y });
        }
    }
    out + &frame.end_labels(&ends)
}

/// Returns the lines of one plot.
fn lines(view: View, slots: &Slots<'_>, scenario: &Scenario, run: &Run, points: usize) -> Vec<Drawn> {
    let step_s = run.outcome.series.step_s;
    let total =
        if view == View::Share { sum(&of(run, view.series_kind()).collect::<Vec<_>>()) } else { Vec::new() };
    let mut drawn = Vec::new();
    for slot in 0..slots.len() {
        let members: Vec<&Line> =
            of(run, view.series_kind()).filter(|line| slots.has(slot, scenario, &line.name)).collect();
        if members.is_empty() {
            continue;
        }
        let label = match slots {
            Slots::Each(names) => names[slot].to_string(),
            Slots::Kinds(names) if members.len() == 1 => names[slot].to_string(),
            Slots::Kinds(names) => format!("{} ×{}", names[slot], members.len()),
            Slots::All => format!("all {}", members.len()),
        };
        let values = sum(&members);
        if view == View::Share {
            let n = points.min(SHARE_POINTS_MAX);
            let totals = means(&total, step_s, n);
            let share = |((t, part), (_, all)): ((f64, f64), (f64, f64))| (t, part / all * 100.0);
            let points = means(&values, step_s, n).into_iter().zip(totals).map(share).collect();
            drawn.push(Drawn { slot, label, points, range: None });
            continue;
        }
        let mean: Vec<f64> = values.iter().map(|value| value / members.len() as f64).collect();
        let reduce = |values: &[f64]| match view.keeps_extremes() {
            true => extremes(values, step_s, points),
            false => means(values, step_s, points),
        };
        let bound = |pick: fn(f64, f64) -> f64| {
            let at =
                |i: usize| members.iter().filter_map(move |line| line.values.get(i)).map(|v| f64::from(*v));
            let values: Vec<f64> = (0..mean.len()).map(|i| at(i).fold(f64::NAN, pick)).collect();
            means(&values, step_s, points)
        };
        let range = (members.len() > 1).then(|| [bound(f64::min), bound(f64::max)]);
        drawn.push(Drawn { slot, label, points: reduce(&mean), range });
    }
    drawn
}

/// Returns the sum of lines, step by step; a line that has ended counts as zero.
fn sum(lines: &[&Line]) -> Vec<f64> {
    let len = lines.iter().map(|line| line.values.len()).max().unwrap_or(0);
    let at = |i: usize| lines.iter().filter_map(|line| line.values.get(i)).map(|v| f64::from(*v)).sum();
    (0..len).map(at).collect()
}

/// Reduces values to at most `n` points: the means of `n` equal parts, each at the middle of its part.
fn means(values: &[f64], step_s: f64, n: usize) -> Vec<(f64, f64)> {
    let each = values.len().div_ceil(n.max(1)).max(1);
    let mean = |(i, part): (usize, &[f64])| {
        let finite = || part.iter().filter(|v| v.is_finite());
        let middle = (i * each) as f64 + part.len() as f64 / 2.0;
        (middle * step_s, finite().sum::<f64>() / finite().count() as f64)
    };
    values.chunks(each).enumerate().map(mean).collect()
}

/// Reduces values to at most `n` points: the least and the greatest of n/2 parts, in their order.
fn extremes(values: &[f64], step_s: f64, n: usize) -> Vec<(f64, f64)> {
    let at = |i: usize| ((i + 1) as f64 * step_s, values[i]);
    if values.len() <= n {
        return (0..values.len()).map(at).collect();
    }
    let each = values.len().div_ceil((n / 2).max(1));
    let mut points = Vec::new();
    for (p, part) in values.chunks(each).enumerate() {
        let finite = || (0..part.len()).filter(|i| part[*i].is_finite()).map(|i| p * each + i);
        let least = finite().min_by(|a, b| values[*a].total_cmp(&values[*b]));
        let most = finite().max_by(|a, b| values[*a].total_cmp(&values[*b]));
        match (least, most) {
            (Some(a), Some(b)) if a == b => points.push(at(a)),
            (Some(a), Some(b)) => points.extend([at(a.min(b)), at(a.max(b))]),
            _ => points.push((at(p * each).0, f64::NAN)),
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_become_short() {
        let mut values: Vec<f64> = (0..10_007).map(|i| f64::from(i % 10)).collect();
        values[5_000] = 99.0;
        let points = extremes(&values, 0.1, 400);
        assert!(points.len() <= 400);
        assert!(points.windows(2).all(|w| w[0].0 < w[1].0));
        assert!(points.iter().any(|p| p.1 == 99.0), "the peak is kept");
        let points = means(&values, 0.1, 400);
        assert!(points.len() <= 400 && points.iter().all(|p| p.1 > 3.0 && p.1 < 9.0));
        assert_eq!(means(&[1.0, 3.0, 5.0], 2.0, 2), [(2.0, 2.0), (5.0, 5.0)]);
        assert!(means(&[], 1.0, 4).is_empty() && extremes(&[], 1.0, 4).is_empty());
        assert!(means(&[f64::NAN], 1.0, 4)[0].1.is_nan());
        assert!(extremes(&[f64::NAN; 9], 1.0, 4).iter().all(|p| p.1.is_nan()));
    }

    #[test]
    fn lines_know_their_flow() {
        let mut scenario = super::super::tests::scenario();
        for flow in ["sp", "sp2", "mp"] {
            scenario.flow.insert(flow.into(), Default::default());
        }
        assert_eq!(kind(&scenario, "sp/0"), "sp");
        assert_eq!(kind(&scenario, "sp.17"), "sp");
        assert_eq!(kind(&scenario, "sp2/1"), "sp2");
        assert_eq!(kind(&scenario, "spot"), "spot");
    }
}
