//! Defines the settings of this project's TCP and Multipath TCP in a scenario.

use anabranch_mptcp::{Config, PathManager, SCHEDULERS, SchedulerKind, TAIL_LOSS_POLICIES, TailLoss};
use serde::{Deserialize, Serialize};

use super::units::SizeSpec;
use crate::hint::missing;

/// Settings of the stack of a flow of TCP or Multipath TCP, at both ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StackSettings {
    /// Scheduler of MPTCP: a name of [`SCHEDULERS`]; default: `minrtt`.
    pub scheduler: Option<String>,
    /// Path manager of MPTCP: `fullmesh` (the default), `backup`, `default`, or the number of subflows over
    /// the first path.
    pub path_manager: Option<String>,
    /// Reaction to a tail that may be lost: a name of [`TAIL_LOSS_POLICIES`]; default: `overtake`.
    pub tail_loss: Option<String>,
    /// Receive buffer of a connection, bytes; default: 4 MiB.
    pub receive_buffer: Option<SizeSpec>,
}

/// Smallest receive buffer, bytes.
const BUFFER_BYTES_MIN: u64 = 4_096;
/// Largest receive buffer, bytes: the largest window of TCP (RFC 7323 section 2.2).
const BUFFER_BYTES_MAX: u64 = 1 << 30;

impl StackSettings {
    /// Whether nothing is set.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether something is set that only MPTCP has.
    pub(crate) const fn is_of_mptcp(&self) -> bool {
        self.scheduler.is_some() || self.path_manager.is_some()
    }

    /// Applies the settings to `config`.
    ///
    /// # Errors
    /// If a value does not exist or is out of range; the error names the key and says what there is.
    pub(crate) fn apply(&self, config: &mut Config) -> Result<(), (&'static str, String)> {
        if let Some(name) = &self.scheduler {
            let names = SCHEDULERS.iter().map(|row| row.name);
            let kind = SchedulerKind::by_name(name);
            config.scheduler = kind.ok_or_else(|| ("scheduler", missing("scheduler", name, names)))?;
        }
        if let Some(name) = &self.path_manager {
            let names = PathManager::NAMES.iter().copied();
            let manager = PathManager::by_name(name);
            config.path_manager =
                manager.ok_or_else(|| ("path_manager", missing("path manager", name, names)))?;
        }
        if let Some(name) = &self.tail_loss {
            let names = TAIL_LOSS_POLICIES.iter().map(|row| row.name);
            let policy = TailLoss::by_name(name);
            config.tcp.tail_loss = policy.ok_or_else(|| ("tail_loss", missing("policy", name, names)))?;
        }
        match self.receive_buffer {
            None => Ok(()),
            Some(SizeSpec::Bytes(bytes @ BUFFER_BYTES_MIN..=BUFFER_BYTES_MAX)) => {
                config.receive_buffer_bytes = bytes as u32;
                Ok(())
            }
            Some(_) => Err((
                "receive_buffer",
                format!("in bytes, from {BUFFER_BYTES_MIN} B to {BUFFER_BYTES_MAX} B"),
            )),
        }
    }
}
