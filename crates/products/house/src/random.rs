//! Random bytes of the system.

use ring::rand::{SecureRandom as _, SystemRandom};

/// Returns bytes that others cannot guess, or `None` if the system has none.
#[must_use]
pub fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).ok().map(|()| bytes)
}
