//! Fetches several files one after the other, where every URL has a separate file.
//!
//! Each file is fetched as if it were alone. A failure of one file does not stop the others; only the caller
//! can stop all of them.

use std::path::Path;

use anabranch_mirror::url::Url;

use super::fetch::{failed, outcome};
use super::file_totals::FileTotals;
use super::locators::Locators;
use super::outcome::Outcome;
use super::request::Request;
use crate::error::ErrorKind;
use crate::event::{Event, Observer};
use crate::filenames::{lossy, show};
use crate::{Error, FileReport, Report, Result, Verified, VouchedBy};

/// Fetches the file of each URL, in order, into `directory`. `request` checks the options of a file when its
/// turn comes.
///
/// # Errors
/// Fails with the error in `files`, if `files` is an error, before anything is fetched. Fails with
/// [`ErrorKind::Interrupted`] if the caller stops before the end. If some files could not be fetched, fails
/// with the kind of error of the first such file.
pub(super) fn fetch<File>(
    files: Result<Vec<(Url, File)>>,
    request: impl Fn(File) -> Result<(Request, Locators)>,
    directory: &Path,
    observer: &mut Observer<'_>,
) -> Result<Report> {
    let files = match files {
        Ok(files) => files,
        Err(error) => return failed(error, observer),
    };
    let mut sum = FileTotals { files: files.len(), ..FileTotals::default() };
    let mut vouched_by: Vec<Option<VouchedBy>> = Vec::new();
    let mut is_stopped = false;
    for (url, file) in files {
        let name = url.file_name().map_or_else(|| url.to_string(), |name| shown(&name));
        observer.begin_anew();
        observer.about(Some(name.clone()));
        let ended = match observer.is_stopped() {
            true => Err(Error::interrupted("interrupted; nothing of it was fetched")),
            false => request(file).and_then(|(request, locators)| outcome(&request, locators, observer)),
        };
        observer.about(None);
        let Outcome { report, result } =
            ended.unwrap_or_else(|error| Outcome { report: Report::default(), result: Err(error) });
        sum.add(&report.last);
        sum.totals.total_bytes += report.last.total_bytes.unwrap_or_default();
        sum.totals.done_bytes += report.last.done_bytes;
        sum.totals.resumed_bytes += report.last.resumed_bytes;
        sum.banned.extend(report.banned.iter().cloned());
        match &result {
            Ok(()) => {
                let is_verified = !matches!(report.verified, Verified::Nothing | Verified::Unchanged);
                sum.unverified += usize::from(!is_verified);
                vouched_by.push(report.verified_by.clone());
            }
            Err(error) => sum.lacks(name, error),
        }
        is_stopped = observer.is_stopped();
        let error = result.err();
        observer.send(Event::FileFinished(Box::new(FileReport { url: url.to_string(), report, error })));
        if is_stopped {
            break;
        }
    }
    let result = match sum.missing.first() {
        _ if is_stopped && vouched_by.len() + lost(&sum) < sum.files => Err(stopped(&sum)),
        Some((_, first, _)) => Err(sum.failure(*first, "")),
        None => Ok(()),
    };
    let target = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let report = sum.report(lossy(target), result.is_ok());
    // If the vouchers of the files differ, only the report of each file names its voucher.
    let by = vouched_by
        .first()
        .cloned()
        .flatten()
        .filter(|first| vouched_by.iter().all(|by| by.as_ref() == Some(first)));
    let verified_by = by.filter(|_| report.verified == Verified::Files);
    let report = Report { verified_by, ..report };
    observer.send(Event::Finished(Box::new(report.clone())));
    result.map(|()| report)
}

/// Returns a file name in a form that can stand in a sentence.
fn shown(name: &[u8]) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    show(std::ffi::OsStr::from_bytes(name))
}

/// Returns the number of files that could not be fetched for other reasons than the caller's stop.
fn lost(sum: &FileTotals) -> usize {
    sum.missing.iter().filter(|(_, kind, _)| *kind != ErrorKind::Interrupted).count()
}

/// Returns the error that says that the caller stopped, and how many files could not be fetched before.
fn stopped(sum: &FileTotals) -> Error {
    let before = match lost(sum) {
        0 => String::new(),
        lost => format!("; {lost} files could not be had before"),
    };
    Error::interrupted(format!(
        "interrupted; what arrived is kept{before}: run the same `Get` again to go on"
    ))
}
