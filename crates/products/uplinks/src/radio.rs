//! The statistics of radios, behind a trait: nl80211 in a daemon, a recording in tests and experiments.

use std::collections::BTreeSet;

use anabranch_algo::wifi::Reading;
use anabranch_net::netlink::Nl80211;
use nix::libc::{ENODEV, EOPNOTSUPP};

/// Something that knows the radios of this host.
pub trait Radio {
    /// Returns the present reading of an interface's radio, given by name and index; `None` if it has none,
    /// or is not associated.
    fn read(&mut self, name: &str, index: u32) -> Option<Reading>;

    /// Looks again for radios that were not there, or did not answer. This is called every few seconds.
    fn look(&mut self) {}

    /// Whether there can be radios at all, so that asking makes sense.
    fn is_there(&self) -> bool {
        true
    }
}

/// The radios that the kernel's nl80211 knows.
#[derive(Debug)]
pub struct KernelRadio {
    netlink: Option<Nl80211>,
    skipped: Skipped,
}

impl KernelRadio {
    /// Opens nl80211 in the calling thread's namespace. While the kernel has no WiFi, there is no radio.
    #[must_use]
    pub fn open() -> Self {
        Self { netlink: Nl80211::open().ok(), skipped: Skipped::default() }
    }
}

impl Radio for KernelRadio {
    fn read(&mut self, _name: &str, index: u32) -> Option<Reading> {
        let netlink = self.netlink.as_ref().filter(|_| !self.skipped.has(index))?;
        match netlink.stations(index) {
            // The station of a client is its access point. An access point itself is no uplink.
            Ok(stations) => stations.first().map(anabranch_net::netlink::Station::reading),
            Err(e) => {
                self.skipped.add(index, e.errno());
                None
            }
        }
    }

    fn look(&mut self) {
        self.skipped.ask_again();
        if self.netlink.is_none() {
            self.netlink = Nl80211::open().ok();
        }
    }

    fn is_there(&self) -> bool {
        self.netlink.is_some()
    }
}

/// The interfaces that are not asked, by index.
#[derive(Debug, Default)]
struct Skipped {
    /// Those that are no radios, or whose driver has no statistics.
    for_good: BTreeSet<u32>,
    /// Those that did not answer lately: a driver that is busy or restarts.
    for_now: BTreeSet<u32>,
}

impl Skipped {
    fn has(&self, index: u32) -> bool {
        self.for_good.contains(&index) || self.for_now.contains(&index)
    }

    fn add(&mut self, index: u32, errno: Option<i32>) {
        let is_for_good = errno.is_some_and(|errno| [ENODEV, EOPNOTSUPP].contains(&errno));
        let list = if is_for_good { &mut self.for_good } else { &mut self.for_now };
        list.insert(index);
    }

    fn ask_again(&mut self) {
        self.for_now.clear();
    }
}

#[cfg(test)]
mod tests {
    use nix::libc::{EBUSY, ENETDOWN};

    use super::*;

    #[test]
    fn only_what_is_no_radio_is_skipped_for_good() {
        let mut skipped = Skipped::default();
        let errors = [Some(ENODEV), Some(EOPNOTSUPP), Some(EBUSY), Some(ENETDOWN), None];
        (1..).zip(errors).for_each(|(index, errno)| skipped.add(index, errno));
        assert!((1..=5).all(|index| skipped.has(index)) && !skipped.has(6));
        skipped.ask_again();
        assert_eq!((1..=6).filter(|index| skipped.has(*index)).collect::<Vec<_>>(), [1, 2]);
    }
}
