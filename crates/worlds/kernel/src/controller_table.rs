//! The table of the controllers that the kernel can run, and the directories where they are pinned.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::bpf_abi::ENTRIES;
use crate::{Error, Result};

/// The directory in the BPF file system where loaded controllers and rules are pinned.
pub const PIN_DIR: &str = "/sys/fs/bpf/anabranch";

/// A congestion controller that the kernel can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controller {
    /// The name in `algo`'s table.
    pub name: &'static str,
    /// The kernel's name, for `TCP_CONGESTION` and sysctls.
    pub linux: &'static str,
}

/// Every controller for the kernel, in the order of `algo`'s table.
pub const CONTROLLERS: &[Controller] = &{
    let mut all = [Controller { name: "", linux: "" }; ENTRIES.len()];
    let mut i = 0;
    while i < all.len() {
        all[i] = Controller { name: ENTRIES[i].name, linux: ENTRIES[i].linux };
        i += 1;
    }
    all
};

impl Controller {
    /// Returns the controller with this name, in `algo`'s table or in the kernel.
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is none.
    pub fn by_name(name: &str) -> Result<&'static Self> {
        let found = CONTROLLERS.iter().find(|controller| controller.name == name || controller.linux == name);
        found.ok_or_else(|| Error::Unknown(name.into()))
    }

    /// Returns the directory where the controller is pinned.
    #[must_use]
    pub fn pin_dir(&self) -> PathBuf {
        Path::new(PIN_DIR).join(self.linux)
    }

    /// Whether anabranch has loaded the controller.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.pin_dir().join("link").exists()
    }
}

/// The kernel's counters of one program of a controller. They count only while the sysctl
/// `kernel.bpf_stats_enabled` is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Program {
    /// The hook that calls the program: `ack`, `cut`, `init`, `release`, `undo`.
    pub on: &'static str,
    /// How often the program was called.
    pub calls: u64,
    /// The total running time in nanoseconds, including two readings of the clock per call.
    pub time_ns: u64,
}
