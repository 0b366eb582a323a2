//! Sums up the outcomes of several files of one request, and makes their common report or error.

use super::server_status::most_specific;
use super::small_files::ByteTotals;
use crate::error::ErrorKind;
use crate::filenames::{first_few, show};
use crate::report::{add, share};
use crate::{BannedSource, Error, PathProgress, Progress, Report, Verified};

/// Holds the sum of the outcomes of several files so far.
#[derive(Default)]
pub(super) struct FileTotals {
    /// The number of files in the request.
    pub(super) files: usize,
    pub(super) totals: ByteTotals,
    pub(super) elapsed_s: f64,
    pub(super) rows: Vec<PathProgress>,
    pub(super) banned: Vec<BannedSource>,
    /// The number of complete files that were not compared with a hash from a voucher.
    pub(super) unverified: usize,
    /// The files that could not be fetched, each with the kind of its error and the message.
    pub(super) missing: Vec<(String, ErrorKind, String)>,
}

impl FileTotals {
    /// Adds the time that a file took and the bytes that arrived over each route.
    pub(super) fn add(&mut self, last: &Progress) {
        self.elapsed_s += last.elapsed_s;
        add(&mut self.rows, &last.paths);
    }

    /// Records that the file `name` could not be fetched.
    pub(super) fn lacks(&mut self, name: String, error: &Error) {
        self.missing.push((name, error.kind(), error.to_string()));
    }

    /// Returns the kind of the error that is most useful to the user, if some files could not be fetched.
    pub(super) fn most_specific(&self) -> Option<ErrorKind> {
        let codes = self.missing.iter().map(|(_, code, _)| *code);
        (!self.missing.is_empty()).then(|| most_specific(codes))
    }

    /// Returns an error of kind `code` that says why files could not be fetched. `hint` is appended if no
    /// server has any of them.
    pub(super) fn failure(&self, code: ErrorKind, hint: &str) -> Error {
        // The reasons of errors of kind `code` come first.
        let mut reasons: Vec<(bool, &str)> = Vec::new();
        for (_, each, why) in &self.missing {
            if !reasons.iter().any(|(_, known)| known == why) {
                reasons.push((*each != code, why));
            }
        }
        reasons.sort_by_key(|(is_other, _)| *is_other);
        let describe = |of: &str| {
            let names = self.missing.iter().filter(|(.., why)| why == of).map(|(name, ..)| show(name));
            format!("({}): {of}", first_few(names, ", "))
        };
        let why = first_few(reasons.iter().map(|(_, why)| describe(why)), "; ");
        let (lost, files) = (self.missing.len(), self.files);
        let is_nowhere = self.missing.iter().all(|(_, code, _)| *code == ErrorKind::NotFound);
        let rest = match (lost < files, is_nowhere) {
            (true, _) => "the others are here".to_owned(),
            (false, true) => format!("none is here{hint}"),
            (false, false) => "none is here".to_owned(),
        };
        code.error(format!("{lost} of {files} files could not be had {why}; {rest}"))
    }

    /// Returns the report of all files together.
    pub(super) fn report(mut self, target: String, complete: bool) -> Report {
        share(&mut self.rows);
        let seconds = self.elapsed_s.max(1e-9);
        for row in &mut self.rows {
            row.rate_bytes = (row.bytes as f64 / seconds) as u64;
        }
        let ByteTotals { total_bytes, done_bytes, resumed_bytes } = self.totals;
        let advice = (complete && self.unverified > 0).then(|| {
            let files = if self.unverified == 1 { "file" } else { "files" };
            format!(
                "there is no hash of {} {files}: a Metalink with hashes, or with `each` a list such as \
                 SHA256SUMS for `checksum`, verifies them",
                self.unverified
            )
        });
        let is_nothing = !complete && (done_bytes == 0 || self.missing.len() == self.files);
        Report {
            last: Progress {
                total_bytes: Some(total_bytes),
                done_bytes,
                resumed_bytes,
                elapsed_s: self.elapsed_s,
                paths: self.rows,
                ..Progress::default()
            },
            target,
            content: Some(format!("{} files", self.files)),
            banned: self.banned,
            complete,
            verified: if self.unverified > 0 || is_nothing { Verified::Nothing } else { Verified::Files },
            verified_by: None,
            unverified_since: None,
            advice,
        }
    }
}
