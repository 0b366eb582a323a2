//! Networks by their names, or from files in GML, GraphML or our own form.

use std::fs;
use std::path::Path;

use anabranch_topology::import::{self, Defaults, Network, TEXT_MAX};
use anabranch_topology::zoo::{BUILTIN, Builtin};

use crate::hint::nearest;

/// The network of this name that is built in, or the one in this file, which `dir` is put before.
///
/// # Errors
/// That there is no such network, with the nearest; or what is wrong in the file, and where.
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
