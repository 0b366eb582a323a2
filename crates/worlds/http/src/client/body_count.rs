//! Holds the body of an answer against what was promised of it: how much has come, whether that is all, and
//! what its end, an error or a silence means. It knows no connection and no clock.

use std::time::Duration;

use super::error::FetchError;

/// How long the end of a body is waited for after its last byte.
pub(super) const LAST_CHUNK_WAIT: Duration = Duration::from_secs(1);

/// A body that is handed over, as far as it has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyCount {
    taken: u64,
    most: u64,
    is_exact: bool,
}

impl BodyCount {
    /// A body that must have exactly so many bytes.
    pub(super) const fn exactly(bytes: u64) -> Self {
        Self { taken: 0, most: bytes, is_exact: true }
    }

    /// A body that may have at most so many bytes.
    pub(super) const fn at_most(bytes: u64) -> Self {
        Self { taken: 0, most: bytes, is_exact: false }
    }

    /// Whether every byte is here, and only the end of the body is not.
    pub(super) const fn is_complete(&self) -> bool {
        self.is_exact && self.taken == self.most
    }

    /// How long to wait for what comes next, where a server may be silent for `idle`.
    pub(super) const fn patience(&self, idle: Duration) -> Duration {
        if self.is_complete() { LAST_CHUNK_WAIT } else { idle }
    }

    /// So many bytes more have come.
    ///
    /// # Errors
    /// They are more than there may be.
    pub(super) fn take(&mut self, bytes: usize) -> Result<(), FetchError> {
        self.taken = self.taken.saturating_add(bytes as u64);
        let most = self.most;
        match self.taken > most {
            false => Ok(()),
            true if self.is_exact => {
                Err(FetchError::Broken(format!("more came than the {most} bytes there are")))
            }
            true => Err(FetchError::Refused(format!("it has more than the {most} bytes that are taken"))),
        }
    }

    /// The body has ended.
    ///
    /// # Errors
    /// It is too short.
    pub(super) fn end(&self) -> Result<(), FetchError> {
        match self.is_exact && self.taken != self.most {
            true => Err(FetchError::Broken(format!("it ended after {} of {} bytes", self.taken, self.most))),
            false => Ok(()),
        }
    }

    /// The connection has failed, for a reason that is one clause.
    ///
    /// # Errors
    /// Bytes are missing.
    pub(super) fn broke_off(&self, why: &str) -> Result<(), FetchError> {
        match self.is_complete() {
            true => Ok(()),
            false => Err(FetchError::Broken(format!("it broke off after {}: {why}", self.part()))),
        }
    }

    /// Nothing has come for as long as [`patience`](Self::patience) allows.
    ///
    /// # Errors
    /// Bytes are missing.
    pub(super) fn fell_silent(&self, idle: Duration) -> Result<(), FetchError> {
        match self.is_complete() {
            true => Ok(()),
            false => Err(FetchError::Broken(format!(
                "no byte for {} s, after {}",
                idle.as_secs_f32(),
                self.part()
            ))),
        }
    }

    /// How much has come, where the length may be unknown.
    fn part(&self) -> String {
        let Self { taken, most, .. } = self;
        if *most == u64::MAX { format!("{taken} bytes") } else { format!("{taken} of {most} bytes") }
    }
}
