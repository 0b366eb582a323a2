//! The file of a domain that a command names.

use std::fs;
use std::path::{Path, PathBuf};

use anabranch_overlay::domain::Domain;
use anabranch_overlay::domain_file;

use crate::exit::{Failure, Outcome};
use crate::names::show;
use crate::toml_name::with_toml;

/// Where it is: NAME alone means NAME.toml.
///
/// # Errors
/// 2 if it is nowhere.
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

/// Its text, and what that means.
///
/// # Errors
/// 2 if it cannot be read or makes no sense.
pub(super) fn read(path: &Path) -> Outcome<(String, Domain)> {
    let wrong = |why: String| Failure::usage(format!("{}: {why}", show(path)));
    let text = fs::read_to_string(path).map_err(|e| wrong(format!("cannot read it: {e}")))?;
    let domain = domain_file::read(&text).map_err(|e| wrong(e.to_string()))?;
    Ok((text, domain))
}
