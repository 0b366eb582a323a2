//! Names of files that end in `.toml`, which people may leave out.

use std::path::{Path, PathBuf};

use crate::names::show;

/// Returns the file's name without `.toml`.
pub(crate) fn stem(path: &Path) -> String {
    path.file_stem().map(show).unwrap_or_default()
}

/// Whether a name ends in `.toml`.
pub(crate) fn has_toml(name: &Path) -> bool {
    name.extension().is_some_and(|end| end == "toml")
}

/// Returns `NAME.toml` if only `NAME` was given.
pub(crate) fn with_toml(name: &Path) -> PathBuf {
    if has_toml(name) {
        return name.to_owned();
    }
    // `with_extension` would not do, because it would replace ".9" in "fig-4.9".
    let mut name = name.as_os_str().to_owned();
    name.push(".toml");
    PathBuf::from(name)
}
