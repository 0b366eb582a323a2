//! Writes tables to standard output and to a page.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anabranch_lab::outcome::{Row, Run};
use anabranch_lab::report::{Study, html};
use anabranch_lab::sweep::Plan;
use anabranch_lab::{series, table};

use super::args::Choice;
use crate::exit::{Code, Failure, Outcome};
use crate::json;
use crate::names::show;
use crate::stdout::print;
use crate::view::note;

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Text,
    Json,
    Csv,
}

/// Prints tables, and keeps the data of the page.
pub(super) struct Output {
    form: Form,
    report: Option<PathBuf>,
    series: Option<(PathBuf, File)>,
    kept: Vec<(Plan, Vec<Row>, Vec<Run>)>,
    tables: usize,
    /// The number of rows whose conditions were not met, and of rows with a value outside of its expected
    /// range.
    unmet: (usize, usize),
}

impl Output {
    /// Creates the output that the command line asks for.
    ///
    /// # Errors
    /// 6 if the page or the series cannot be written, which is checked before the first run.
    pub(super) fn new(choice: &Choice) -> Result<Self, Failure> {
        choice.report.as_deref().map_or(Ok(()), check_writable)?;
        let made = |path: &PathBuf| match File::create(path) {
            Ok(file) => Ok((path.clone(), file)),
            Err(e) => Err(unwritten(path, &e)),
        };
        let series = choice.series.as_ref().map(made).transpose()?;
        let form = match (choice.json, choice.csv) {
            (true, _) => Form::Json,
            (_, true) => Form::Csv,
            _ => Form::Text,
        };
        let report = choice.report.clone();
        Ok(Self { form, report, series, kept: Vec::new(), tables: 0, unmet: (0, 0) })
    }

    /// Prints the table of a plan.
    pub(super) fn table(&mut self, plan: &Plan, rows: Vec<Row>, runs: Vec<Run>) -> Outcome {
        let text = match self.form {
            Form::Json => rows.iter().map(|row| json::text("row", row)).collect(),
            Form::Csv if self.tables == 0 => table::csv_head(plan) + &table::csv(plan, &rows),
            Form::Csv => table::csv(plan, &rows),
            Form::Text if self.tables == 0 => table::text(plan, &rows),
            Form::Text => format!("\n\n{}", table::text(plan, &rows)),
        };
        self.write_series(plan, &runs)?;
        self.tables += 1;
        self.unmet.0 += rows.iter().filter(|row| !row.violations.is_empty()).count();
        if rows.is_empty() {
            // Without measures there are no rows, so the violations are printed here.
            for run in &runs {
                run.outcome
                    .violations
                    .iter()
                    .for_each(|violation| note(&format!("seed {}: {violation}", run.seed)));
                self.unmet.0 += usize::from(!run.outcome.violations.is_empty());
            }
        }
        self.unmet.1 += rows.iter().filter(|row| !row.is_right()).count();
        if self.report.is_some() {
            self.kept.push((plan.clone(), rows, runs));
        }
        print(text.as_bytes())
    }

    /// Appends the runs' values over time to the series, after those of other tables.
    fn write_series(&mut self, plan: &Plan, runs: &[Run]) -> Outcome {
        let Some((path, file)) = &mut self.series else { return Ok(()) };
        let head = if self.tables == 0 { series::head(plan) } else { String::new() };
        let parts = std::iter::once(head).chain(runs.iter().map(|run| series::lines(plan, run)));
        for part in parts {
            file.write_all(part.as_bytes()).map_err(|e| unwritten(path, &e))?;
        }
        Ok(())
    }

    /// Writes the page.
    pub(super) fn page(&self) -> Outcome {
        let Some(path) = &self.report else { return Ok(()) };
        save(path, &page(&self.kept))?;
        note(&format!("{} is written", show(path)));
        Ok(())
    }

    /// Writes the page. Fails if a condition was not met.
    ///
    /// # Errors
    /// 7 if a condition was not met, or if a value is not clearly in its expected range.
    pub(super) fn finish(&self) -> Outcome {
        self.page()?;
        let rows = |n: usize| if n == 1 { "1 row".into() } else { format!("{n} rows") };
        let message = match self.unmet {
            (0, 0) => return Ok(()),
            (unmet, 0) => format!("conditions were not met in the runs of {}", rows(unmet)),
            (0, odd) => format!("{} not where expected, or not surely", rows(odd)),
            (unmet, odd) => {
                format!(
                    "conditions were not met in the runs of {}; {} not where expected",
                    rows(unmet),
                    rows(odd)
                )
            }
        };
        Err(Failure::new(Code::Unmet, message))
    }
}

/// Makes one page for all studies.
fn page(kept: &[(Plan, Vec<Row>, Vec<Run>)]) -> String {
    let studies: Vec<Study<'_>> = kept
        .iter()
        .map(|(plan, rows, runs)| Study { name: &plan.name, scenario: &plan.scenario, rows, runs })
        .collect();
    html(&studies)
}

/// Checks whether [`save`] will be able to write a file. An existing file is not changed.
///
/// # Errors
/// 6 if the file cannot be written.
pub(super) fn check_writable(path: &Path) -> Outcome {
    // Opening a pipe would wait for its reader.
    if fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir()) {
        return Ok(());
    }
    let is_new = fs::symlink_metadata(path).is_err();
    let opened = fs::OpenOptions::new().append(true).create(true).open(path);
    opened.and_then(|_| if is_new { fs::remove_file(path) } else { Ok(()) }).map_err(|e| unwritten(path, &e))
}

/// Writes a file.
pub(super) fn save(path: &Path, text: &str) -> Outcome {
    fs::write(path, text).map_err(|e| unwritten(path, &e))
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    Failure::target(format!("cannot write {}: {error}", show(path))).at(path)
}
