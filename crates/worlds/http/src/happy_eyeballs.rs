//! Several ways to the same connection: each is tried [`ATTEMPT_DELAY`] after the one before, or as soon as
//! that one has failed; the first that is connected wins (Happy Eyeballs, RFC 8305 section 5).

use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::sleep;

/// Between the beginnings of two attempts: RFC 8305 section 5, Connection Attempt Delay.
pub const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Makes an `attempt` of each of these ways, and returns what the first that succeeds has connected; the
/// others are dropped. `None` if all have failed, or there is none. `failed` is called for each that fails
/// before that, with an error of the runtime if it panicked.
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
    // Dropping it ends what is under way.
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
