//! Runs a transfer on a separate thread, and returns its handle.

use std::collections::VecDeque;
use std::sync::Arc;
#[cfg(feature = "tokio")]
use std::task::{Context, Poll, Waker};
use std::thread;

use crate::monitor::Monitor;
use crate::{Client, Control, Error, Event, Report, Result, Stop};

/// The largest number of events that wait for a listener; the oldest are dropped.
const EVENTS_MAX: usize = 1_024;

/// Handles a transfer that runs on a separate thread.
///
/// A program can wait for the transfer ([`wait`](Self::wait)), listen to it ([`events`](Self::events)) and
/// [stop](Self::stop) it. With the feature `tokio` it is a [`Future`] of its report, and its events are a
/// `Stream`; it needs no particular executor.
///
/// Dropping the handle stops the transfer without waiting for its end. The bytes that have arrived are kept.
/// The destination stays in use until the thread has ended, some milliseconds later. To wait for that, call
/// [`stop`](Self::stop) and then [`wait`](Self::wait).
#[must_use = "dropping it stops the transfer"]
#[derive(Debug)]
pub struct Transfer {
    shared: Arc<Shared>,
    stop: Stop,
}

/// The events of a [`Transfer`]: an iterator that waits for the next event and ends after
/// [`Event::Finished`]. With the feature `tokio` it is also a `Stream`, but see `stream`.
///
/// If a transfer has several `Events`, each event goes to only one of them. Up to 1,024 events wait to be
/// taken, and only the newest one about progress; older ones are dropped.
#[derive(Debug)]
pub struct Events {
    shared: Arc<Shared>,
}

/// The events of a [`Transfer`] for async code: a `Stream`, and no iterator, so that `next` does not block
/// the executor.
///
/// ```
/// async fn watch(transfer: &anabranch::Transfer) {
///     let mut events = transfer.events().stream();
///     while let Some(event) = events.next().await {
///         println!("{event:?}");
///     }
/// }
/// ```
#[cfg(feature = "tokio")]
#[derive(Debug)]
pub struct EventStream(Events);

type Shared = Monitor<State>;

#[derive(Debug, Default)]
struct State {
    events: VecDeque<Event>,
    /// The result of the transfer; `None` while it runs.
    result: Option<Result<Report>>,
    /// The tasks that poll the transfer or its events.
    #[cfg(feature = "tokio")]
    wakers: Vec<Waker>,
}

impl Transfer {
    /// Calls `run`, which `stop` stops, on a new thread or on a thread of the client.
    pub(super) fn spawn(
        stop: Stop,
        client: Option<&Client>,
        run: impl FnOnce(&mut dyn FnMut(Event) -> Control) -> Result<Report> + Send + 'static,
    ) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let guard = CompletionGuard { shared: Arc::clone(&shared), result: None };
        let work = move || {
            let shared = Arc::clone(&guard.shared);
            let mut listener = |event| {
                shared.change(|state| state.push(event));
                Control::Continue
            };
            guard.finish(run(&mut listener));
        };
        let started = match client {
            Some(client) => client.run(Box::new(work)),
            None => thread::Builder::new().name("transfer".into()).spawn(work).map(drop),
        };
        started.map_err(|e| Error::system(format!("cannot start a thread: {e}")).because(e))?;
        Ok(Self { shared, stop })
    }

    /// Waits until the transfer has ended, and returns its report.
    ///
    /// # Errors
    /// The errors of [`Download::run`](super::Download::run).
    pub fn wait(self) -> Result<Report> {
        self.join()
    }

    pub(super) fn join(&self) -> Result<Report> {
        let mut state = self.shared.lock();
        loop {
            match &state.result {
                Some(result) => return result.clone(),
                None => state = self.shared.wait(state),
            }
        }
    }

    /// Returns whether the transfer has ended: [`wait`](Self::wait) then returns at once.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.shared.lock().result.is_some()
    }

    /// Stops the transfer soon and keeps the bytes that have arrived. It then fails with
    /// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted), unless it was already complete.
    pub fn stop(&self) {
        self.stop.stop();
    }

    /// Returns the events of the transfer that have not been taken yet, and all further ones.
    #[must_use]
    pub fn events(&self) -> Events {
        Events { shared: Arc::clone(&self.shared) }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let mut state = self.shared.lock();
        loop {
            if let Some(event) = state.events.pop_front() {
                return Some(event);
            }
            if state.result.is_some() {
                return None;
            }
            state = self.shared.wait(state);
        }
    }
}

impl Shared {
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        #[cfg(feature = "tokio")]
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.notify();
        #[cfg(feature = "tokio")]
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl State {
    fn push(&mut self, event: Event) {
        if matches!(event, Event::Progress(_)) {
            self.events.retain(|other| !matches!(other, Event::Progress(_)));
        }
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Wakes the task of `context` when something changes.
    #[cfg(feature = "tokio")]
    fn register(&mut self, context: &Context<'_>) {
        if !self.wakers.iter().any(|known| known.will_wake(context.waker())) {
            self.wakers.push(context.waker().clone());
        }
    }
}

#[cfg(feature = "tokio")]
impl Future for Transfer {
    type Output = Result<Report>;

    fn poll(self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Report>> {
        let mut state = self.shared.lock();
        if let Some(result) = &state.result {
            return Poll::Ready(result.clone());
        }
        state.register(context);
        Poll::Pending
    }
}

#[cfg(feature = "tokio")]
impl Events {
    /// Turns the events into a stream for async code. The method `next` of [`Events`] itself belongs to an
    /// iterator, and blocks.
    #[must_use]
    pub fn stream(self) -> EventStream {
        EventStream(self)
    }

    fn poll(&self, context: &Context<'_>) -> Poll<Option<Event>> {
        let mut state = self.shared.lock();
        if let Some(event) = state.events.pop_front() {
            return Poll::Ready(Some(event));
        }
        if state.result.is_some() {
            return Poll::Ready(None);
        }
        state.register(context);
        Poll::Pending
    }
}

#[cfg(feature = "tokio")]
impl futures_core::Stream for Events {
    type Item = Event;

    fn poll_next(self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.poll(context)
    }
}

#[cfg(feature = "tokio")]
impl EventStream {
    /// Returns the next event; `None` after [`Event::Finished`]. A dropped future loses no event.
    pub async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|context| self.0.poll(context)).await
    }
}

#[cfg(feature = "tokio")]
impl futures_core::Stream for EventStream {
    type Item = Event;

    fn poll_next(self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.0.poll(context)
    }
}

/// Sets the result even if the thread panics, so that no caller waits for ever.
struct CompletionGuard {
    shared: Arc<Shared>,
    /// The result; `None` if the thread panics.
    result: Option<Result<Report>>,
}

impl CompletionGuard {
    fn finish(mut self, result: Result<Report>) {
        self.result = Some(result);
    }
}

impl Drop for CompletionGuard {
    fn drop(&mut self) {
        let panicked = || Err(Error::system("the thread of a transfer has panicked"));
        let result = self.result.take().unwrap_or_else(panicked);
        self.shared.change(|state| state.result = Some(result));
    }
}
