//! Counts all captures of a directory in one table, beside the numbers of a paper.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use anabranch_trace::Analysis;
use anabranch_trace::study::{Study, StudyRow};
use serde::Serialize;

use super::{Trace, is_pipe, open_input, wrong};
use crate::exit::{Code, Failure, Outcome};
use crate::json;
use crate::names::show;
use crate::signals::stop_signals;
use crate::stdout::print;
use crate::view::{plural, say};

/// Reports the table as JSON.
#[derive(Serialize)]
struct Table {
    /// The number of captures that were read whole.
    captures: u64,
    /// The number of captures that were not read, or not to their end.
    damaged: u64,
    connections: u64,
    rows: Vec<StudyRow>,
}

/// Returns the captures of a directory in the order of their names, or the one capture that is named.
fn captures(path: &Path) -> Outcome<Vec<PathBuf>> {
    if is_pipe(path) || !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let cannot = |e| Failure::usage(format!("cannot read {}: {e}", show(path))).at(path);
    let mut paths = Vec::new();
    for entry in fs::read_dir(path).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        if path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Adds a capture to the study.
fn add(study: &mut Study, path: &Path, is_stopped: impl Fn() -> bool) -> Outcome {
    let mut capture = open_input(path)?;
    let mut analysis = Analysis::new(|report| study.add(&report)).with_study();
    let ended = loop {
        match capture.next_frame() {
            Ok(Some(frame)) => analysis.frame(&frame),
            Ok(None) => break Ok(()),
            Err(error) => break Err(wrong(&error, path)),
        }
        if !is_pipe(path) && is_stopped() {
            break Err(Failure::new(Code::Interrupted, "interrupted: only a part of the captures was read"));
        }
    };
    analysis.finish();
    ended
}

/// Prints the table. Files of a directory that cannot be read are named and left out.
///
/// # Errors
/// The errors of a single capture; 2 for a directory without a capture.
pub(super) fn study(args: &Trace) -> Outcome {
    let paths = captures(&args.capture)?;
    let is_one = paths.len() == 1 && paths[0] == args.capture;
    let (_wake, stop) = stop_signals()?;
    let (mut study, mut whole, mut damaged) = (Study::default(), 0, 0);
    let mut ended = Ok(());
    for path in &paths {
        match add(&mut study, path, || stop.load(Ordering::Relaxed)) {
            Ok(()) => whole += 1,
            Err(failure) if is_one || failure.code == Code::Interrupted => {
                damaged += 1;
                ended = Err(failure);
                break;
            }
            Err(failure) => {
                damaged += 1;
                say(&format!("{failure}"));
                // Captures may well lie beside files that are none.
                if failure.code != Code::Usage && ended.is_ok() {
                    ended = Err(failure);
                }
            }
        }
    }
    if whole == 0 && study.connections() == 0 {
        let none = || Failure::usage(format!("no capture in {}", show(&args.capture))).at(&*args.capture);
        return ended.and_then(|()| Err(none()));
    }
    if args.json {
        let table = Table { captures: whole, damaged, connections: study.connections(), rows: study.rows() };
        print(json::text("study", &table))?;
        print(json::text("summary", &json::End::new(ended.as_ref().err())))?;
    } else {
        print(format!("{}, {}", plural(whole as usize, "capture"), study.text()))?;
    }
    ended
}
