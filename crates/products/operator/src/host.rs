//! The thread that moves packets between the devices of a host and its instances, and what can be asked of
//! it.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use anabranch_algo::Time;
use anabranch_function::abi::Side;
use anabranch_net::{Clock, Interest, Poller, Tun, WakeReceiver, Waker};

use crate::error::{Error, Result};
use crate::plane::{Plane, SIDES, Sink};

/// The most frames that are read of one device before the other one has its turn.
const BATCH: usize = 64;
/// The room for a frame, bytes.
const FRAME_BYTES_MAX: usize = 2_048;

type Job = Box<dyn FnOnce(&mut Plane, Time, Sink<'_>) + Send>;

/// What a host's devices have refused.
#[derive(Debug, Default)]
struct Refused {
    /// Frames that the kernel did not take.
    frames: AtomicU64,
}

/// A plane with its devices and its thread, which ends when this is dropped.
pub struct Host {
    jobs: Sender<Job>,
    waker: Waker,
    clock: Clock,
    refused: Arc<Refused>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    /// Starts to move packets between these devices.
    ///
    /// # Errors
    /// `Failed` if there are no more descriptors or threads.
    pub fn start(devices: [Option<Tun>; 2], clock: Clock) -> Result<Self> {
        let failed = |e: io::Error| Error::Failed(e.to_string());
        let receiver = WakeReceiver::new().map_err(failed)?;
        let (jobs, todo) = mpsc::channel();
        let (waker, is_over) = (receiver.waker(), Arc::new(AtomicBool::new(false)));
        let refused = Arc::<Refused>::default();
        let (over, theirs) = (Arc::clone(&is_over), Arc::clone(&refused));
        let work = move || Wheel { devices, receiver, todo, clock, refused: theirs }.turn(&over);
        let thread = thread::Builder::new().name("plane".to_owned()).spawn(work).map_err(failed)?;
        Ok(Self { jobs, waker, clock, refused, is_over, thread: Some(thread) })
    }

    /// Returns the clock of the host.
    #[must_use]
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// Returns how many frames the kernel did not take.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.frames.load(Ordering::Relaxed)
    }

    /// Has the thread do something between two packets, and returns the result.
    ///
    /// # Errors
    /// `Failed` if the thread has ended.
    pub fn ask<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Plane, Time, Sink<'_>) -> R + Send + 'static,
    ) -> Result<R> {
        let ended = || Error::Failed("the thread that moves packets has ended".to_owned());
        let (tell, told) = mpsc::sync_channel(1);
        let job = move |plane: &mut Plane, now: Time, send: Sink<'_>| drop(tell.send(work(plane, now, send)));
        self.jobs.send(Box::new(job)).map_err(|_| ended())?;
        self.waker.wake();
        told.recv().map_err(|_| ended())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread of a host.
struct Wheel {
    devices: [Option<Tun>; 2],
    receiver: WakeReceiver,
    todo: Receiver<Job>,
    clock: Clock,
    refused: Arc<Refused>,
}

impl Wheel {
    fn turn(&self, is_over: &AtomicBool) {
        let mut plane = Plane::new();
        let mut poller = Poller::new(self.clock);
        let mut buffer = [0; FRAME_BYTES_MAX];
        let mut send = |side: Side, frame: &[u8]| {
            if let Some(device) = &self.devices[side as usize]
                && device.write(frame).is_err()
            {
                self.refused.frames.fetch_add(1, Ordering::Relaxed);
            }
        };
        while !is_over.load(Ordering::SeqCst) {
            let devices = self.devices.iter().flatten().map(|device| device.as_fd());
            let set = devices.chain([self.receiver.as_fd()]).map(|fd| (fd, Interest::Read));
            if poller.wait(set, Time::NEVER).is_err() {
                return;
            }
            self.receiver.drain();
            while let Ok(job) = self.todo.try_recv() {
                job(&mut plane, self.clock.now(), &mut send);
            }
            for side in SIDES {
                let Some(device) = &self.devices[side as usize] else { continue };
                let now = self.clock.now();
                for _ in 0..BATCH {
                    let Ok(len) = device.read(&mut buffer) else { break };
                    plane.handle(now, side, &buffer[..len], &mut send);
                }
            }
        }
    }
}
