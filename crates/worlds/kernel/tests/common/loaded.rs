//! Controllers that are loaded as long as a test needs them. Those that are loaded already are used and left.

use anabranch_kernel::Error;
use anabranch_kernel::controllers::{Controller, Options, load, unload};

/// The ones that were not loaded before, and are unloaded again.
pub(crate) struct Loaded(Vec<&'static Controller>);

impl Loaded {
    pub(crate) fn new(controllers: impl IntoIterator<Item = &'static Controller>) -> Self {
        let mut ours = Self(Vec::new());
        for controller in controllers {
            match load(&[controller], Options { tcp: true, verbose: false }) {
                Ok(()) => ours.0.push(controller),
                Err(Error::Loaded(_)) => {}
                Err(e) => panic!("{}: {e}", controller.name),
            }
        }
        ours
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let _ = unload(&self.0);
    }
}
