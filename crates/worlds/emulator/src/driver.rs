//! The thread in which emulators work. Each does what is due, then the thread waits for all of them.

use std::io;
use std::os::fd::AsFd as _;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anabranch_algo::{Span, Time};
use anabranch_sim::{LinkChange, LinkId};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::signal::SigSet;
use nix::sys::time::{TimeSpec, TimeValLike as _};
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

use super::buffer_pool::BufferPool;
use super::emulation::Emulation;
use super::{Emulator, Snapshot};
use anabranch_net::Clock;
use anabranch_net::poll::{WakeReceiver, Waker};

use crate::syscalls;

/// The number of the wake-up in the events of epoll, which no device has.
const WAKE: u64 = u64::MAX;
/// The most events that one wait returns.
const EVENTS: usize = 64;
/// The real-time priority of the thread, just above the lowest.
const PRIORITY: i32 = 10;
/// The number and the length of the sleeps by which the thread measures how late sleeps end.
const SLEEP_TRIALS: usize = 15;
const SLEEP_TRIAL: Span = Span::from_micros(60);
/// The longest time that the thread spins before a deadline.
const SPIN_MAX: Span = Span::from_micros(40);
/// The least mean time between two waits; events in between are handled together. On the virtual machine
/// where this was measured, a sleep costs 25 us of CPU time, a packet 3 us. There, 20 emulators of 4,000
/// packets a second took 88 % of a CPU with 50 us, 72 % with 100 us, and 66 % with 200 us. Their p99 lateness
/// was 0.22 ms, 0.17 ms and 0.28 ms.
const REST_INTERVAL: Span = Span::from_micros(100);
/// The number of waits that may follow each other faster, after as many slower ones. So no packet is late
/// while there are few packets.
const REST_BURST: u64 = 10;

/// The requests to the thread.
#[derive(Debug)]
pub(super) enum Request {
    Start(Box<Emulation>),
    Snapshot(u32, Sender<Snapshot>),
    Command(u32, LinkId, LinkChange),
    Stop(u32, Sender<Snapshot>),
    End,
}

/// A thread for any number of [emulators](Emulator). It ends when the driver and all its emulators are
/// dropped.
///
/// Many emulators on one thread cost much less than on a thread each. Most of the cost is going to sleep and
/// being woken: 25 µs of CPU time on a virtual machine, where a packet takes 3 µs. One thread sleeps less
/// often than many.
///
/// *How it waits.* The thread sleeps until shortly before a deadline, and spins for the rest. It measures how
/// long waking takes when it starts, and wakes up earlier by that time (40 µs at most). Beyond 10,000 waits a
/// second, the thread rests instead, 0.1 ms at a time, and then handles together everything that has become
/// due. So its cost does not grow with the number of deadlines. Packets are then up to 0.1 ms late, as [their
/// lateness](super::ConnectionStats::lateness) shows.
#[derive(Clone, Debug)]
pub struct Driver(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    clock: Clock,
    epoll: Arc<Epoll>,
    requests: Sender<Request>,
    waker: Waker,
    numbers: AtomicU32,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Driver {
    /// Starts the thread.
    ///
    /// # Errors
    /// If there are no more descriptors or threads, or the kernel is older than Linux 5.11.
    pub fn new() -> io::Result<Self> {
        let epoll = Arc::new(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?);
        let wake = WakeReceiver::new()?;
        epoll.add(&wake, EpollEvent::new(EpollFlags::EPOLLIN, WAKE))?;
        syscalls::epoll_wait(epoll.0.as_fd(), &mut [EpollEvent::empty()], Some(Span::ZERO))
            .map_err(|e| io::Error::new(e.kind(), format!("epoll_pwait2 (Linux 5.11): {e}")))?;
        let (clock, waker) = (Clock::start(), wake.waker());
        let (requests, incoming) = mpsc::channel();
        let driver_thread = DriverThread {
            clock,
            epoll: epoll.clone(),
            wake,
            incoming,
            emulations: Vec::new(),
            pool: BufferPool::default(),
            realtime: false,
            wake_latency: Span::ZERO,
            waits: 0,
            rest_until: Time::ZERO,
            failure: None,
            ended: false,
        };
        let thread = thread::Builder::new().name("emulator".into()).spawn(move || driver_thread.run())?;
        let (numbers, thread) = (AtomicU32::new(0), Mutex::new(Some(thread)));
        Ok(Self(Arc::new(Handle { clock, epoll, requests, waker, numbers, thread })))
    }

    /// Adds an emulator and starts its clock. Returns its number in this driver, and the time of its start.
    pub(super) fn add(&self, emulator: Emulator) -> io::Result<(u32, Time)> {
        let number = self.0.numbers.fetch_add(1, Ordering::Relaxed);
        // The thread ignores events of an emulator that it does not know yet. Once it does, it reads from all
        // devices.
        for (port, tun) in (0..).zip(emulator.tuns()) {
            let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
            self.0.epoll.add(&*tun, EpollEvent::new(flags, u64::from(number) << 32 | port))?;
        }
        let origin = self.0.clock.now();
        self.request(Request::Start(Box::new(Emulation::new(emulator, number, self.0.clock, origin))));
        Ok((number, origin))
    }

    /// Returns the driver's time, in which each emulator has its origin.
    pub(super) fn now(&self) -> Time {
        self.0.clock.now()
    }

    pub(super) fn request(&self, request: Request) {
        // If this fails, the thread has panicked. A caller that waits for an answer finds that out.
        let _ = self.0.requests.send(request);
        self.0.waker.wake();
    }

    /// Waits for the answer to a request.
    ///
    /// # Panics
    /// If the thread has panicked.
    pub(super) fn answer(&self, answered: &Receiver<Snapshot>) -> Snapshot {
        answered.recv().unwrap_or_else(|_| {
            self.0.join();
            panic!("the emulator's thread has ended")
        })
    }
}

impl Handle {
    /// Waits for the end of the thread, and panics if the thread has panicked.
    fn join(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(panic)) = thread.map(JoinHandle::join)
            && !thread::panicking()
        {
            resume_unwind(panic);
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let _ = self.requests.send(Request::End);
        self.waker.wake();
        self.join();
    }
}

/// The state of the thread.
struct DriverThread {
    clock: Clock,
    epoll: Arc<Epoll>,
    wake: WakeReceiver,
    incoming: Receiver<Request>,
    /// The emulators, sorted by number.
    emulations: Vec<Emulation>,
    pool: BufferPool,
    realtime: bool,
    /// How long waking up takes.
    wake_latency: Span,
    waits: u64,
    /// The time from which the next wait needs no rest before it.
    rest_until: Time,
    failure: Option<String>,
    ended: bool,
}

impl DriverThread {
    fn run(mut self) {
        // Signals are for the other threads of the program. If one of these settings fails, that is no error:
        // the resulting delays are measured anyway.
        let _ = SigSet::all().thread_block();
        let _ = nix::sys::prctl::set_timerslack(1);
        self.realtime = syscalls::set_realtime(PRIORITY).is_ok();
        if let Err(e) = self.measure_wake_latency().and_then(|()| self.work()) {
            self.failure = Some(e.to_string());
            while !self.ended {
                let Ok(request) = self.incoming.recv() else { return };
                self.handle(request);
            }
        }
    }

    /// Measures how late sleeps end: the median of [`SLEEP_TRIALS`].
    fn measure_wake_latency(&mut self) -> io::Result<()> {
        let nothing = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let mut late = [Span::ZERO; SLEEP_TRIALS];
        for late in &mut late {
            let until = self.clock.now() + SLEEP_TRIAL;
            syscalls::epoll_wait(nothing.0.as_fd(), &mut [EpollEvent::empty()], Some(SLEEP_TRIAL))?;
            *late = self.clock.now().since(until);
        }
        late.sort();
        self.wake_latency = late[SLEEP_TRIALS / 2].min(SPIN_MAX);
        Ok(())
    }

    fn work(&mut self) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); EVENTS];
        while !self.ended {
            let now = self.clock.now();
            let mut next = Time::NEVER;
            for emulation in &mut self.emulations {
                if emulation.deadline() <= now {
                    emulation.work(&mut self.pool);
                }
                next = next.min(emulation.deadline());
            }
            let count = self.wait(next, &mut events)?;
            for event in &events[..count] {
                if event.data() == WAKE {
                    self.handle_requests();
                } else if let Some(emulation) = self.emulation((event.data() >> 32) as u32) {
                    emulation.mark_readable(event.data() as u32);
                }
            }
        }
        Ok(())
    }

    /// Waits until `next`, or until devices have something to read. Returns the number of filled `events`.
    ///
    /// Sleeps until `wake_latency` before `next`, and spins for the rest. If it has waited too often, it
    /// rests.
    fn wait(&mut self, next: Time, events: &mut [EpollEvent]) -> io::Result<usize> {
        let look = Some(Span::ZERO);
        let now = self.clock.now();
        let left = next.since(now);
        if left == Span::ZERO {
            return syscalls::epoll_wait(self.epoll.0.as_fd(), events, look);
        }
        self.waits += 1;
        let spare = REST_INTERVAL.times(REST_BURST).as_nanos();
        self.rest_until =
            self.rest_until.max(Time::from_nanos(now.as_nanos().saturating_sub(spare))) + REST_INTERVAL;
        let rest = self.rest_until.since(now);
        if rest > self.wake_latency {
            let nanos = rest.as_nanos() - self.wake_latency.as_nanos();
            let rest = TimeSpec::nanoseconds(i64::try_from(nanos).unwrap_or(i64::MAX));
            // All signals are blocked, so the sleep is not interrupted; an interruption would do no harm.
            let _ = clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::empty(), &rest);
            return syscalls::epoll_wait(self.epoll.0.as_fd(), events, look);
        }
        if left > self.wake_latency {
            let sleep = Span::from_nanos(left.as_nanos() - self.wake_latency.as_nanos());
            let timeout = (next < Time::NEVER).then_some(sleep);
            let count = syscalls::epoll_wait(self.epoll.0.as_fd(), events, timeout)?;
            if count > 0 {
                return Ok(count);
            }
        }
        loop {
            let count = syscalls::epoll_wait(self.epoll.0.as_fd(), events, look)?;
            if count > 0 || self.clock.now() >= next {
                return Ok(count);
            }
        }
    }

    fn place(&self, number: u32) -> Option<usize> {
        self.emulations.binary_search_by_key(&number, |emulation| emulation.number()).ok()
    }

    fn emulation(&mut self, number: u32) -> Option<&mut Emulation> {
        self.place(number).map(|place| &mut self.emulations[place])
    }

    fn handle_requests(&mut self) {
        self.wake.drain();
        while let Ok(request) = self.incoming.try_recv() {
            self.handle(request);
        }
    }

    fn handle(&mut self, request: Request) {
        // If the receiver of an answer is gone, the answer is not needed.
        match request {
            Request::Start(emulation) => {
                let place = self.emulations.partition_point(|other| other.number() < emulation.number());
                self.emulations.insert(place, *emulation);
            }
            Request::Snapshot(number, answer) => {
                if let Some(snapshot) = self.snapshot(number) {
                    let _ = answer.send(snapshot);
                }
            }
            Request::Command(number, link, command) => {
                if let Some(emulation) = self.emulation(number) {
                    emulation.command(link, command);
                }
            }
            Request::Stop(number, answer) => {
                let snapshot = self.snapshot(number);
                if let Some(place) = self.place(number) {
                    let emulation = self.emulations.remove(place);
                    for tun in emulation.tuns() {
                        let _ = self.epoll.delete(tun);
                    }
                }
                if let Some(snapshot) = snapshot {
                    let _ = answer.send(snapshot);
                }
            }
            Request::End => self.ended = true,
        }
    }

    fn snapshot(&mut self, number: u32) -> Option<Snapshot> {
        let cpu = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from);
        let cpu = cpu.map_or(0, |cpu| u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX));
        let emulation = self.emulation(number)?;
        let (at, links, connections, ports) = emulation.stats();
        let sojourns = emulation.sojourns();
        let (realtime, waits, failure) = (self.realtime, self.waits, self.failure.clone());
        let cpu = Span::from_nanos(cpu);
        Some(Snapshot { at, realtime, cpu, waits, links, sojourns, connections, ports, failure })
    }
}
