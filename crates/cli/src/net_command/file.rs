//! Finds and reads the file of a domain that a command names.

use std::fs;
use std::path::{Path, PathBuf};

use anabranch_overlay::domain::Domain;
use anabranch_overlay::domain_file;

use crate::exit::{Failure, Outcome};
use crate::names::show;
use crate::toml_name::with_toml;

/// Returns the path of the file; NAME alone means NAME.toml.
///
/// # Errors
/// 2 if there is no such file.
pub(super) fn find(file: &Path) -> Outcome<PathBuf> {
    let full = with_toml(file);
    match [file.to_owned(), full.clone()].into_iter().find(|path| path.is_file()) {
        Some(path) => Ok(path),
        None => Err(Failure::usage(format!(
            "there is no file {}: `anabranch net new {}` writes one",
            show(&full),
            show(full.with_extension(""))
        ))),
    }
}

/// Returns the text of the file and the domain that it defines.
///
/// # Errors
/// 2 if the file cannot be read or is invalid.
pub(super) fn read(path: &Path) -> Outcome<(String, Domain)> {
    let wrong = |why: String| Failure::usage(format!("{}: {why}", show(path)));
    let text = fs::read_to_string(path).map_err(|e| wrong(format!("cannot read it: {e}")))?;
    let domain = domain_file::read(&text).map_err(|e| wrong(e.to_string()))?;
    Ok((text, domain))
}
