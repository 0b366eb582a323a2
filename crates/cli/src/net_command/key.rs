//! `anabranch net key`: makes the secret key of a scope.

use std::path::Path;

use anabranch_overlay::publication::{Scope, ScopeKey};

use super::domain_args::Key;
use crate::exit::{Failure, Outcome};
use crate::network_options::scope_key;
use crate::new_file::create_secret;
use crate::stdout::print;
use crate::toml_name::stem;

/// Makes a key, or shows the public part of one.
///
/// # Errors
/// 6 if the file cannot be written or exists already, 2 if the file to show is no key.
pub(super) fn key(args: &Key) -> Outcome {
    let key = if args.show { scope_key(&args.file)? } else { make(&args.file)? };
    print(format!("{} = \"{}\"\n", scope_of(&args.file), key.public()).as_bytes())
}

/// Makes a key and writes its file.
///
/// # Errors
/// 6 if the file cannot be written or exists already.
pub(super) fn make(file: &Path) -> Outcome<ScopeKey> {
    let mut seed = [0; 32];
    #[expect(clippy::disallowed_methods, reason = "a secret is no seed of a run")]
    getrandom::fill(&mut seed).map_err(|e| Failure::other(format!("no random numbers: {e}")))?;
    let key = ScopeKey::new(seed).map_err(|e| Failure::other(e.to_string()))?;
    create_secret(file, &(key.secret_text() + "\n"))?;
    Ok(key)
}

/// Returns a name for the scope whose key is in this file.
fn scope_of(file: &Path) -> String {
    let name = stem(file).to_ascii_lowercase();
    if name.parse::<Scope>().is_ok() { name } else { "films".into() }
}
