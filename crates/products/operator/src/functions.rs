//! The functions that come with this: modules that were compiled with it, by `build.rs`.

use crate::error::{Error, Result};

/// The names and modules; none if Rust had no library for WebAssembly when this was built.
pub const ALL: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/functions.rs"));

/// Returns the module of a function.
///
/// # Errors
/// `NotFound` if there is none of this name; the text says which there are.
pub fn find(name: &str) -> Result<&'static [u8]> {
    if let Some((_, module)) = ALL.iter().find(|(known, _)| *known == name) {
        return Ok(module);
    }
    let known: Vec<&str> = ALL.iter().map(|(known, _)| *known).collect();
    Err(Error::NotFound(match known.is_empty() {
        true => format!(
            "there is no function `{}`: this program was built without any, as Rust had no target \
             wasm32-unknown-unknown (`rustup target add wasm32-unknown-unknown`, then build it again)",
            name.escape_default()
        ),
        false => format!(
            "there is no function `{}`: there are {}, and any module that is a file (NAME.wasm)",
            name.escape_default(),
            known.join(", ")
        ),
    }))
}
