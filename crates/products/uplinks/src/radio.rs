//! The statistics of radios, behind a trait: nl80211 in a daemon, a recording in tests and experiments.

use std::collections::BTreeSet;

use anabranch_algo::wifi::Reading;
use anabranch_net::netlink::Nl80211;

/// Something that knows the radios of this host.
pub trait Radio {
    /// Returns the present reading of an interface's radio, given by name and index; `None` if it has none,
    /// or is not associated.
    fn read(&mut self, name: &str, index: u32) -> Option<Reading>;

    /// Whether there can be radios at all, so that asking makes sense.
    fn is_there(&self) -> bool {
        true
    }
}

/// The radios that the kernel's nl80211 knows.
#[derive(Debug)]
pub struct KernelRadio {
    netlink: Option<Nl80211>,
    /// Interfaces that are no radios.
    others: BTreeSet<u32>,
}

impl KernelRadio {
    /// Opens nl80211 in the calling thread's namespace. Where the kernel has no WiFi, there is no radio.
    #[must_use]
    pub fn open() -> Self {
        Self { netlink: Nl80211::open().ok(), others: BTreeSet::new() }
    }
}

impl Radio for KernelRadio {
    fn read(&mut self, _name: &str, index: u32) -> Option<Reading> {
        let netlink = self.netlink.as_ref().filter(|_| !self.others.contains(&index))?;
        match netlink.stations(index) {
            // The station of a client is its access point. An access point itself is no uplink.
            Ok(stations) => stations.first().map(anabranch_net::netlink::Station::reading),
            Err(_) => {
                self.others.insert(index);
                None
            }
        }
    }

    fn is_there(&self) -> bool {
        self.netlink.is_some()
    }
}
