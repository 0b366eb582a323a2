//! Emulators that are at work, as who started them sees them.

use std::io;
use std::sync::{Arc, mpsc};

use anabranch_algo::Time;
use anabranch_sim::{LinkChange, LinkId};

use super::driver::Request;
use super::{Driver, Emulator, Snapshot};
use anabranch_net::Tun;

impl Emulator {
    /// Starts the clock, and a thread for this emulator alone; see [`Driver`] for many.
    ///
    /// # Errors
    /// Out of descriptors, of threads; a kernel before Linux 5.11.
    pub fn start(self) -> io::Result<EmulatorHandle> {
        Driver::new()?.start(self)
    }
}

impl Driver {
    /// Starts an emulator, and its clock.
    ///
    /// # Errors
    /// Out of memory for the kernel's watch on the devices.
    pub fn start(&self, emulator: Emulator) -> io::Result<EmulatorHandle> {
        let (links, tuns) = (emulator.links, emulator.tuns());
        let (number, origin) = self.add(emulator)?;
        Ok(EmulatorHandle { driver: self.clone(), number, origin, links, tuns, stopped: false })
    }
}

/// An [`Emulator`] at work, until it is dropped.
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
    /// The time since the start, which is also the net's.
    #[must_use]
    pub fn now(&self) -> Time {
        Time::from_nanos(self.driver.now().since(self.origin).as_nanos())
    }

    /// How it is doing.
    ///
    /// # Panics
    /// If its thread has: a connection's route is not of its net.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.answer(Request::Snapshot)
    }

    /// Changes a link, now.
    ///
    /// # Panics
    /// If the link is not of its net.
    pub fn command(&self, link: LinkId, command: LinkChange) {
        assert!(link.0 < self.links, "a link of another network");
        self.driver.request(Request::Command(self.number, link, command));
    }

    /// Ends it, and says how it has been. What is still under way is lost; the devices are gone on return.
    ///
    /// # Panics
    /// If its thread has: a connection's route is not of its net.
    #[must_use]
    pub fn stop(mut self) -> Snapshot {
        self.stopped = true;
        self.answer(Request::Stop)
    }

    fn answer(&self, request: impl FnOnce(u32, mpsc::Sender<Snapshot>) -> Request) -> Snapshot {
        let (answer, answered) = mpsc::channel();
        self.driver.request(request(self.number, answer));
        let mut snapshot = self.driver.answer(&answered);
        // That need not disturb the thread. A device that somebody renamed is not counted.
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
            // Until the thread has let go of the devices, or has panicked.
            let _ = answered.recv();
        }
    }
}
