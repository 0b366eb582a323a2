//! Writes the report: experiments as one page of HTML, for the screen, for print and for later years.
//!
//! The page needs no other file and no script; equal inputs give equal bytes. Everything that a picture
//! shows by colour it also shows by a label or a shape. The palette is that of Okabe and Ito (2008), which
//! people with any kind of colour vision can tell apart.
//!
//! The plots are written here, without a library. A plot library (`plotters`) would replace the axes and
//! frames, a fifth of these lines, and would need fonts to measure text. It has no labels that avoid each
//! other, no tooltips, and no style sheet that follows dark screens and print.

mod axis;
mod cdf;
pub(crate) mod dot_chart;
mod dots;
mod page;
mod plot;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod time_series;

use crate::World;
use crate::outcome::{Row, Run};
use crate::scenario::Scenario;
use crate::scenario::notes::{Range, lookup_in};
pub(crate) use text::fill;
use text::short;

/// Most cases whose runs are drawn; the table and the dots show all cases.
const CASES_MAX: usize = 6;
/// Points of lines over time on one page, then the least and the most points of one study: a few megabytes
/// in all.
const POINTS_PAGE: usize = 250_000;
const POINTS_STUDY_MIN: usize = 6_000;
const POINTS_STUDY_MAX: usize = 50_000;

/// A scenario and its results.
#[derive(Clone, Copy, Debug)]
pub struct Study<'a> {
    /// The scenario's file name without `.toml`.
    pub name: &'a str,
    /// The scenario as it was run.
    pub scenario: &'a Scenario,
    /// Rows of its table.
    pub rows: &'a [Row],
    /// Runs, may be empty. Plots over time show the first seed that has a
    /// [`Series`](crate::outcome::Series); distributions show all runs that met their conditions.
    pub runs: &'a [Run],
}

/// Writes the page. Each study has its table, each metric with its confidence interval beside the paper's
/// and the model's value, the first seed over time, and the distribution over the seeds if there are at
/// least 8.
#[must_use]
pub fn html(studies: &[Study<'_>]) -> String {
    let points = POINTS_PAGE / studies.len().max(1);
    page::page(studies, points.clamp(POINTS_STUDY_MIN, POINTS_STUDY_MAX))
}

/// Names in a study's rows and runs, in the scenario's order, then in the order of appearance.
struct Keys<'a> {
    cases: Vec<Option<&'a str>>,
    controllers: Vec<&'a str>,
    metrics: Vec<&'a str>,
    worlds: Vec<World>,
    /// Rows, sorted by case, metric, controller.
    rows: Vec<&'a Row>,
}

impl<'a> Keys<'a> {
    fn of(study: &Study<'a>) -> Self {
        let Study { scenario, rows, runs, .. } = *study;
        fn ordered<'a, T: PartialEq + 'a>(known: impl Iterator<Item = T>, there: Vec<T>) -> Vec<T> {
            let mut names: Vec<T> = known.filter(|name| there.contains(name)).collect();
            for name in there {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            names
        }
        let in_rows = rows.iter().map(|row| row.case.as_deref());
        let cases = in_rows.chain(runs.iter().map(|run| run.case.as_deref())).collect();
        let in_rows = rows.iter().map(|row| row.controller.as_str());
        let controllers = in_rows.chain(runs.iter().map(|run| run.controller.as_str())).collect();
        let metrics = rows.iter().map(|row| row.metric.as_str()).collect();
        let in_rows = rows.iter().map(|row| row.world);
        let mut keys = Self {
            cases: ordered(scenario.case.iter().map(|case| Some(case.name.as_str())), cases),
            controllers: ordered(scenario.controllers.iter().map(String::as_str), controllers),
            metrics: ordered(scenario.measure.iter().map(|measure| measure.metric.as_str()), metrics),
            worlds: ordered(
                World::ALL.into_iter(),
                in_rows.chain(runs.iter().map(|run| run.world)).collect(),
            ),
            rows: rows.iter().collect(),
        };
        let place = |row: &Row| {
            let case = keys.cases.iter().position(|case| *case == row.case.as_deref());
            let metric = keys.metrics.iter().position(|metric| *metric == row.metric);
            (case, metric, keys.slot(&row.controller))
        };
        let mut sorted = keys.rows.clone();
        sorted.sort_by_key(|row| place(row));
        keys.rows = sorted;
        keys
    }

    /// Returns the number of a controller's style, equal in all plots of the study.
    fn slot(&self, controller: &str) -> usize {
        self.controllers.iter().position(|name| *name == controller).unwrap_or(0)
    }

    /// Returns the label of a controller, with its world if the study has several.
    fn label(&self, controller: &str, world: World) -> String {
        if self.worlds.len() > 1 { format!("{controller}, {world}") } else { controller.into() }
    }

    /// Returns each pair of controller and world; each has a figure of its own.
    fn series(&self) -> impl Iterator<Item = (&'a str, World)> {
        self.controllers.iter().flat_map(|controller| self.worlds.iter().map(|world| (*controller, *world)))
    }

    /// Returns the caption of a figure: the controller, or the case if there is only one controller.
    fn caption(&self, controller: &str, world: World, case: Option<&str>) -> String {
        self.label(case.filter(|_| self.controllers.len() == 1).unwrap_or(controller), world)
    }

    /// Returns a note if not all cases are drawn.
    fn left_out(&self) -> String {
        match self.cases.len() {
            n if n > CASES_MAX => format!(" The first {CASES_MAX} of {n} cases are drawn."),
            _ => String::new(),
        }
    }
}

/// Formats the heading of a group of plots, with an explanation.
fn heading(title: &str, about: &str) -> String {
    format!("<h3>{title}</h3>\n<p class=\"about\">{}</p>\n", text::escape(about))
}

/// Returns the range in which the scenario expects the mean of a row.
fn expected(scenario: &Scenario, row: &Row) -> Option<Range> {
    let case = row.case.as_deref().unwrap_or_default();
    // In a sweep the case is followed by the values that were set.
    let is_of = |name: &String| {
        case.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with("; "))
    };
    let mut measures = scenario.measure.iter().filter(|measure| measure.metric == row.metric);
    let measure = measures.find(|measure| measure.cases.is_empty() || measure.cases.iter().any(is_of))?;
    lookup_in(row.world, &measure.expect, row.case.as_deref(), &row.controller)?.parse().ok()
}

/// Describes a range in words. At least one of its ends is finite.
fn words(range: Range) -> String {
    let number = |value: f64| short(value, 6);
    if range.high.is_infinite() {
        format!("at least {}", number(range.low))
    } else if range.low.is_infinite() {
        format!("at most {}", number(range.high))
    } else {
        format!("{} to {}", number(range.low), number(range.high))
    }
}
