//! Tries several ways to the same connection and keeps the first that connects (Happy Eyeballs, RFC 8305
//! section 5). The next attempt begins [`ATTEMPT_DELAY`] after the one before, or as soon as a running
//! attempt fails.

use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::sleep;

/// The time between the beginnings of two attempts (RFC 8305 section 5, Connection Attempt Delay).
pub const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Starts an `attempt` of each of the `ways` in turn and returns the result of the first that succeeds; the
/// others are dropped. Returns `None` if all attempts fail or there are no ways. Calls `failed` for each
/// attempt that fails before that, with an error of the runtime if the attempt panicked.
pub async fn race<W, A, T, E>(
    ways: impl IntoIterator<Item = W>,
    mut attempt: impl FnMut(W) -> A,
    mut failed: impl FnMut(Result<E, JoinError>),
) -> Option<T>
where
    A: Future<Output = Result<T, E>> + Send + 'static,
    T: Send + 'static,
    E: Send + 'static,
{
    let mut waiting = ways.into_iter().peekable();
    // Dropping the set ends the attempts that still run.
    let mut running = JoinSet::new();
    loop {
        if let Some(way) = waiting.next() {
            running.spawn(attempt(way));
        }
        let ended = tokio::select! {
            ended = running.join_next() => ended,
            () = sleep(ATTEMPT_DELAY), if waiting.peek().is_some() => continue,
        };
        match ended {
            Some(Ok(Ok(connected))) => return Some(connected),
            Some(Ok(Err(error))) => failed(Ok(error)),
            Some(Err(error)) => failed(Err(error)),
            None => {}
        }
        if running.is_empty() && waiting.peek().is_none() {
            return None;
        }
    }
}
