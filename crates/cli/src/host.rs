//! What `serve` asks of the host.

pub use crate::signals::stop_signals;

use crate::exit::{Failure, Outcome};

/// A secret: the key of a source's cookies.
///
/// # Errors
/// If the system has no random numbers.
#[expect(clippy::disallowed_methods, reason = "tags and cookies must be unpredictable")]
pub fn secret() -> Outcome<[u8; 32]> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret)
        .map_err(|e| Failure::other(format!("the system has no random numbers: {e}")))?;
    Ok(secret)
}
