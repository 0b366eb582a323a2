//! Compares the body of an answer with the length that was promised for it. Decides what an end, an error or
//! a silence of the connection means. The module uses no connection and no clock.

use std::time::Duration;

use super::error::FetchError;

/// How long to wait for the end of a body after its last byte.
pub(super) const LAST_CHUNK_WAIT: Duration = Duration::from_secs(1);

/// Counts the bytes of a body as they are handed over.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyCount {
    taken: u64,
    most: u64,
    is_exact: bool,
}

impl BodyCount {
    /// Counts a body that must have exactly `bytes` bytes.
    pub(super) const fn exactly(bytes: u64) -> Self {
        Self { taken: 0, most: bytes, is_exact: true }
    }

    /// Counts a body that may have at most `bytes` bytes.
    pub(super) const fn at_most(bytes: u64) -> Self {
        Self { taken: 0, most: bytes, is_exact: false }
    }

    /// Whether every byte has come, so that only the end of the body is missing.
    pub(super) const fn is_complete(&self) -> bool {
        self.is_exact && self.taken == self.most
    }

    /// Returns how long to wait for the next bytes, if a server may be silent for `idle`.
    pub(super) const fn patience(&self, idle: Duration) -> Duration {
        if self.is_complete() { LAST_CHUNK_WAIT } else { idle }
    }

    /// Records that `bytes` more bytes have come.
    ///
    /// # Errors
    /// If more bytes have come than the body may have.
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

    /// Checks the length of a body that has ended.
    ///
    /// # Errors
    /// If the body is too short.
    pub(super) fn end(&self) -> Result<(), FetchError> {
        match self.is_exact && self.taken != self.most {
            true => Err(FetchError::Broken(format!("it ended after {} of {} bytes", self.taken, self.most))),
            false => Ok(()),
        }
    }

    /// Checks whether the body is complete after its connection has failed. `why` is one clause.
    ///
    /// # Errors
    /// If bytes are missing.
    pub(super) fn broke_off(&self, why: &str) -> Result<(), FetchError> {
        match self.is_complete() {
            true => Ok(()),
            false => Err(FetchError::Broken(format!("it broke off after {}: {why}", self.part()))),
        }
    }

    /// Checks whether the body is complete after nothing has come for [`patience`](Self::patience).
    ///
    /// # Errors
    /// If bytes are missing.
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

    /// Returns how much has come, in words. The length may be unknown.
    fn part(&self) -> String {
        let Self { taken, most, .. } = self;
        if *most == u64::MAX { format!("{taken} bytes") } else { format!("{taken} of {most} bytes") }
    }
}
