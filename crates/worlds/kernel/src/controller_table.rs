//! Which controllers there are for the kernel, and where they are pinned.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::bpf_abi::ENTRIES;
use crate::{Error, Result};

/// Where what is loaded is pinned.
pub const PIN_DIR: &str = "/sys/fs/bpf/anabranch";

/// A controller for the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controller {
    /// Its name in `algo`'s table.
    pub name: &'static str,
    /// What the kernel calls it: what goes into `TCP_CONGESTION` and sysctls.
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
    /// That of this name, in `algo`'s table or the kernel's.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn by_name(name: &str) -> Result<&'static Self> {
        let found = CONTROLLERS.iter().find(|controller| controller.name == name || controller.linux == name);
        found.ok_or_else(|| Error::Unknown(name.into()))
    }

    /// Where it is pinned.
    #[must_use]
    pub fn pin_dir(&self) -> PathBuf {
        Path::new(PIN_DIR).join(self.linux)
    }

    /// Whether we have loaded it.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.pin_dir().join("link").exists()
    }
}

/// What the kernel has counted of one program of a controller, while the sysctl `kernel.bpf_stats_enabled`
/// was 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Program {
    /// When it is called: `ack`, `cut`, `init`, `release`, `undo`.
    pub on: &'static str,
    /// How often it was.
    pub calls: u64,
    /// For how long it ran in all, ns; reading the clock twice a call is in it.
    pub time_ns: u64,
}
