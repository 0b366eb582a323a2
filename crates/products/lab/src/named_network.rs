//! Reads networks by their built-in names, or from files in GML, GraphML or Anabranch's own form.

use std::fs;
use std::path::Path;

use anabranch_topology::import::{self, Defaults, Network, TEXT_MAX};
use anabranch_topology::zoo::{BUILTIN, Builtin};

use crate::hint::nearest;

/// Returns the built-in network with this name, or else the one in this file, relative to `dir`.
///
/// # Errors
/// If there is no such network (the error names the nearest), or the file is wrong (the error says where).
pub fn read(name: &str, dir: &Path, defaults: &Defaults) -> Result<Network, String> {
    if let Some(builtin) = Builtin::named(name) {
        return Ok(builtin.network(defaults));
    }
    let path = dir.join(name);
    let shown = path.display();
    let length = fs::metadata(&path).map(|meta| meta.len()).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            let near = nearest(name, BUILTIN.iter().map(|builtin| builtin.name));
            let near = near.map_or(String::new(), |near| format!(": did you mean `{near}`?"));
            format!("{shown} is neither a file nor a network that is built in{near}")
        }
        _ => format!("{shown} cannot be read: {e}"),
    })?;
    if length > TEXT_MAX as u64 {
        return Err(format!("{shown} is larger than a network may be ({TEXT_MAX} bytes)"));
    }
    let bytes = fs::read(&path).map_err(|e| format!("{shown} cannot be read: {e}"))?;
    import::read(&bytes, defaults).map_err(|error| match error.line {
        0 => format!("{shown}: {}", error.kind),
        line => format!("{shown}:{line}: {}", error.kind),
    })
}
