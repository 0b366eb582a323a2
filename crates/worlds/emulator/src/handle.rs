//! The handles by which a program controls its running emulators.

use std::io;
use std::sync::{Arc, mpsc};

use anabranch_algo::Time;
use anabranch_sim::{LinkChange, LinkId};

use super::driver::Request;
use super::{Driver, Emulator, Snapshot};
use anabranch_net::Tun;

impl Emulator {
    /// Starts the emulator's clock, and a thread for this emulator alone. For many emulators, see [`Driver`].
    ///
    /// # Errors
    /// If there are no more descriptors or threads, or the kernel is older than Linux 5.11.
    pub fn start(self) -> io::Result<EmulatorHandle> {
        Driver::new()?.start(self)
    }
}

impl Driver {
    /// Starts an emulator, and its clock.
    ///
    /// # Errors
    /// If the kernel has no memory to watch the devices.
    pub fn start(&self, emulator: Emulator) -> io::Result<EmulatorHandle> {
        let (links, tuns) = (emulator.links, emulator.tuns());
        let (number, origin) = self.add(emulator)?;
        Ok(EmulatorHandle { driver: self.clone(), number, origin, links, tuns, stopped: false })
    }
}

/// A running [`Emulator`], which ends when this is dropped.
#[derive(Debug)]
pub struct EmulatorHandle {
    driver: Driver,
    number: u32,
    origin: Time,
    links: u32,
    tuns: Vec<Arc<Tun>>,
    /// Whether it has been stopped.
    stopped: bool,
}

impl EmulatorHandle {
    /// Returns the time since the start, which is also the net's time.
    #[must_use]
    pub fn now(&self) -> Time {
        Time::from_nanos(self.driver.now().since(self.origin).as_nanos())
    }

    /// Returns the present state and counters.
    ///
    /// # Panics
    /// If the thread has panicked, for example because a connection's route is not one of its net.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.answer(Request::Snapshot)
    }

    /// Changes a link immediately.
    ///
    /// # Panics
    /// If the link is not one of its net.
    pub fn command(&self, link: LinkId, command: LinkChange) {
        assert!(link.0 < self.links, "a link of another network");
        self.driver.request(Request::Command(self.number, link, command));
    }

    /// Ends the emulator and returns its last state. Packets under way are lost. The devices are gone on
    /// return.
    ///
    /// # Panics
    /// If the thread has panicked, for example because a connection's route is not one of its net.
    #[must_use]
    pub fn stop(mut self) -> Snapshot {
        self.stopped = true;
        self.answer(Request::Stop)
    }

    fn answer(&self, request: impl FnOnce(u32, mpsc::Sender<Snapshot>) -> Request) -> Snapshot {
        let (answer, answered) = mpsc::channel();
        self.driver.request(request(self.number, answer));
        let mut snapshot = self.driver.answer(&answered);
        // This is done here so as not to disturb the thread. A device that was renamed is not counted.
        for (stats, tun) in snapshot.ports.iter_mut().zip(&self.tuns) {
            stats.overflowed = tun.overflowed().unwrap_or(0);
        }
        snapshot
    }
}

impl Drop for EmulatorHandle {
    fn drop(&mut self) {
        if !self.stopped {
            let (answer, answered) = mpsc::channel();
            self.driver.request(Request::Stop(self.number, answer));
            // Waits until the thread has closed the devices, or has panicked.
            let _ = answered.recv();
        }
    }
}
