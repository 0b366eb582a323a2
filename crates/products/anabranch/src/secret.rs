//! Random secrets: the seed of a receiver's request tags, and the key of a source's cookies.

use crate::{Error, Result};

/// Returns 256 unpredictable random bits.
///
/// # Errors
/// If the system has no random numbers.
#[expect(clippy::disallowed_methods, reason = "tags and cookies must be unpredictable")]
pub fn secret() -> Result<[u8; 32]> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret)
        .map_err(|e| Error::system(format!("the system has no random numbers: {e}")).because(e))?;
    Ok(secret)
}
