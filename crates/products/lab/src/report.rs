//! The report: experiments as one page of HTML, to be read on a screen, in print, or years later.
//!
//! The page needs nothing from elsewhere and no script; the same input gives the same bytes. What a picture
//! shows by colour it shows by a label or a shape as well. The palette is that of Okabe and Ito (2008), which
//! people with any kind of colour vision can tell apart.
//!
//! It is home-made. A library of plots (`plotters`) would take the place of its axes and frames, a fifth of
//! its lines, and bring fonts to measure text with; what is left is labels that avoid each other, tooltips
//! and a style sheet that follows dark screens and print, for which it has no place.

mod axis;
mod cdf;
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
use text::short;

/// Cases whose runs are drawn; the table and the dots have all.
const CASES_MAX: usize = 6;
/// Points of lines over time on a page, and for a study at least and at most: a few megabytes in all.
const POINTS_PAGE: usize = 250_000;
const POINTS_STUDY_MIN: usize = 6_000;
const POINTS_STUDY_MAX: usize = 50_000;

/// A scenario and what came out of it.
#[derive(Clone, Copy, Debug)]
pub struct Study<'a> {
    /// The scenario's file name without `.toml`.
    pub name: &'a str,
    /// The scenario as it was run.
    pub scenario: &'a Scenario,
    /// Its table.
    pub rows: &'a [Row],
    /// Its runs: plots over time are of the first seed that has a [`Series`](crate::outcome::Series),
    /// distributions of all whose conditions were met. May be empty.
    pub runs: &'a [Run],
}

/// The page: for each study its table; each metric with its confidence interval beside the paper's and the
/// model's value; the first seed over time; the distribution over the seeds if there are at least 8.
#[must_use]
pub fn html(studies: &[Study<'_>]) -> String {
    let points = POINTS_PAGE / studies.len().max(1);
    page::page(studies, points.clamp(POINTS_STUDY_MIN, POINTS_STUDY_MAX))
}

/// What a study's rows and runs are called, each in the scenario's order, then in that of appearance.
struct Keys<'a> {
    cases: Vec<Option<&'a str>>,
    controllers: Vec<&'a str>,
    metrics: Vec<&'a str>,
    worlds: Vec<World>,
    /// The rows by case, metric, controller.
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

    /// A controller's style, the same in all plots of the study.
    fn slot(&self, controller: &str) -> usize {
        self.controllers.iter().position(|name| *name == controller).unwrap_or(0)
    }

    /// A controller, and where it ran if not everything ran there.
    fn label(&self, controller: &str, world: World) -> String {
        if self.worlds.len() > 1 { format!("{controller}, {world}") } else { controller.into() }
    }

    /// Controllers and where they ran: what gets a figure of its own.
    fn series(&self) -> impl Iterator<Item = (&'a str, World)> {
        self.controllers.iter().flat_map(|controller| self.worlds.iter().map(|world| (*controller, *world)))
    }

    /// The caption of a figure: the controller; where there is but one, the case.
    fn caption(&self, controller: &str, world: World, case: Option<&str>) -> String {
        self.label(case.filter(|_| self.controllers.len() == 1).unwrap_or(controller), world)
    }

    /// That not all cases are drawn, if so.
    fn left_out(&self) -> String {
        match self.cases.len() {
            n if n > CASES_MAX => format!(" The first {CASES_MAX} of {n} cases are drawn."),
            _ => String::new(),
        }
    }
}

/// The heading of a group of plots, with what one should know to read them.
fn heading(title: &str, about: &str) -> String {
    format!("<h3>{title}</h3>\n<p class=\"about\">{}</p>\n", text::escape(about))
}

/// Where the scenario expects the mean of a row to be.
fn expected(scenario: &Scenario, row: &Row) -> Option<Range> {
    let case = row.case.as_deref().unwrap_or_default();
    // In a sweep the case is followed by what was set.
    let is_of = |name: &String| {
        case.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with("; "))
    };
    let mut measures = scenario.measure.iter().filter(|measure| measure.metric == row.metric);
    let measure = measures.find(|measure| measure.cases.is_empty() || measure.cases.iter().any(is_of))?;
    lookup_in(row.world, &measure.expect, row.case.as_deref(), &row.controller)?.parse().ok()
}

/// A range in words. At least one of its ends is finite.
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
