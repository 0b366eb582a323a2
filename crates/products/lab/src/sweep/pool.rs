//! Runs tasks on all cores: each thread takes the next number until there is none. The threads share only
//! that number and the list of tasks.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Longest time without an event, after which [`Event::Tick`] comes.
const TICK: Duration = Duration::from_millis(100);
/// Most threads.
pub const THREADS_MAX: usize = 4_096;

/// An event while tasks run.
#[derive(Debug)]
pub enum Event<R> {
    /// The task with this number has ended, with this result.
    Done(usize, R),
    /// Some time has passed.
    Tick,
}

/// Returns the default number of threads: one for each core that this process may use.
#[must_use]
pub fn threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Runs `work` for each of `tasks` on `threads` threads, and calls `event` with each result in the order in
/// which the tasks end. If `event` breaks off, no further task begins and this function returns at once,
/// without waiting for running tasks.
///
/// # Panics
/// If the system starts no thread at all, or if `work` panics before `event` has all results.
pub fn run<J, R>(
    tasks: Vec<J>,
    threads: usize,
    work: impl Fn(&J) -> R + Send + Sync + 'static,
    mut event: impl FnMut(Event<R>) -> ControlFlow<()>,
) where
    J: Send + Sync + 'static,
    R: Send + 'static,
{
    let count = tasks.len();
    let shared = Arc::new((tasks, work, AtomicUsize::new(0), AtomicBool::new(false)));
    let (sender, results) = mpsc::channel();
    let panicked = Arc::new(Mutex::new(false));
    let mut started = 0;
    for _ in 0..threads.clamp(1, THREADS_MAX).min(count) {
        let (shared, sender, panicked) = (Arc::clone(&shared), sender.clone(), Arc::clone(&panicked));
        let worker = move || {
            let guard = Guard(panicked);
            let (tasks, work, next, stop) = &*shared;
            while !stop.load(Ordering::Relaxed) {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(task) = tasks.get(index) else { break };
                if sender.send((index, work(task))).is_err() {
                    break;
                }
            }
            drop(guard);
        };
        // Fewer threads than requested are enough.
        started += usize::from(thread::Builder::new().name("run".into()).spawn(worker).is_ok());
    }
    assert!(started > 0 || count == 0, "the system gives no thread");
    drop(sender);
    let mut left = count;
    while left > 0 {
        let next = match results.recv_timeout(TICK) {
            Ok((index, result)) => {
                left -= 1;
                Event::Done(index, result)
            }
            Err(RecvTimeoutError::Timeout) => Event::Tick,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        if event(next).is_break() {
            shared.3.store(true, Ordering::Relaxed);
            return;
        }
    }
    let panicked = *panicked.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(!panicked && left == 0, "a worker panicked");
}

/// Records that its thread panicked.
struct Guard(Arc<Mutex<bool>>);

impl Drop for Guard {
    fn drop(&mut self) {
        if thread::panicking() {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_is_done_once_on_any_number_of_threads() {
        for threads in [0, 1, 2, 7, 200] {
            let mut seen = [0; 100];
            run(
                (0..100).collect(),
                threads,
                |n: &usize| n * n,
                |event| {
                    if let Event::Done(index, result) = event {
                        assert_eq!(result, index * index);
                        seen[index] += 1;
                    }
                    ControlFlow::Continue(())
                },
            );
            assert_eq!(seen, [1; 100]);
        }
        run(Vec::<u8>::new(), 2, |_| (), |_| ControlFlow::Continue(()));
    }

    #[test]
    fn breaking_off_returns_at_once_and_begins_nothing_more() {
        let begun = Arc::new(AtomicUsize::new(0));
        let (count, mut done) = (Arc::clone(&begun), 0);
        let work = move |n: &u64| {
            count.fetch_add(1, Ordering::Relaxed);
            // The second task would take an hour.
            thread::sleep(Duration::from_millis(if *n == 0 { 0 } else { 3_600_000 }));
        };
        run((0..100).collect(), 2, work, |event| {
            done += usize::from(matches!(event, Event::Done(..)));
            if done > 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(done, 1);
        assert!(begun.load(Ordering::Relaxed) <= 3);
    }

    #[test]
    fn long_tasks_do_not_stop_the_ticks() {
        let mut ticks = 0;
        run(
            vec![()],
            1,
            |()| thread::sleep(TICK * 4),
            |event| {
                ticks += usize::from(matches!(event, Event::Tick));
                ControlFlow::Continue(())
            },
        );
        assert!(ticks >= 2);
    }
}
