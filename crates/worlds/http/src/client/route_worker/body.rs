//! Bodies: handed over, or read to the end so that the connection can be kept.

use std::time::Duration;

use anabranch_algo::Span;
use bytes::BytesMut;
use tokio::time::{sleep, timeout};

use super::RouteWorker;
use super::queued_fetch::DRAINED_BYTES_MAX;
use crate::client::api::{Event, FetchId, METADATA_BYTES};
use crate::client::connect::Connection;
use crate::client::error::FetchError;
use crate::client::validate::BodyPolicy;

/// Connections a route keeps between fetches, each to another origin.
const IDLE_CONNECTIONS_MAX: usize = 4;
/// How long the end of a body is waited for after its last byte.
const LAST_CHUNK_WAIT: Duration = Duration::from_secs(1);
/// How long what a file begins with is waited for.
const OPENING_WAIT: Duration = Duration::from_secs(3);

impl RouteWorker {
    /// Hands the body over as it comes, and keeps the connection if the body ends as it should.
    pub(super) async fn deliver(
        &mut self,
        id: FetchId,
        mut connection: Connection,
        policy: BodyPolicy,
    ) -> Result<(), FetchError> {
        let (most, exactly) = match policy {
            BodyPolicy::Exactly(bytes) => (bytes, true),
            BodyPolicy::AtMost(bytes) => (bytes, false),
            BodyPolicy::Opening => {
                self.opening(id, connection).await;
                return Ok(());
            }
            BodyPolicy::Nothing => {
                self.drain(connection).await;
                return Ok(());
            }
        };
        let idle = self.settings.idle_timeout;
        let (clock, limits) = (self.settings.clock, self.settings.limits.of(&self.via));
        let mut taken = 0_u64;
        loop {
            let complete = exactly && taken == most;
            if !complete {
                self.queue.room().await;
                let early = self.due.since(clock.now());
                if early > Span::ZERO {
                    sleep(Duration::from_nanos(early.as_nanos())).await;
                }
            }
            let wait = if complete { LAST_CHUNK_WAIT } else { idle };
            let data = match timeout(wait, self.data(&mut connection)).await {
                Ok(Ok(None)) => break,
                Ok(Ok(Some(data))) => data,
                // All is here; only the connection is of no use.
                Ok(Err(_)) | Err(_) if complete => {
                    self.on_lost(connection, false);
                    return Ok(());
                }
                Ok(Err(e)) => {
                    self.on_lost(connection, false);
                    return Err(FetchError::Broken(format!("it broke off after {}: {e}", part(taken, most))));
                }
                Err(_) => {
                    self.on_lost(connection, false);
                    let why = format!("no byte for {} s, after {}", idle.as_secs_f32(), part(taken, most));
                    return Err(FetchError::Broken(why));
                }
            };
            taken = taken.saturating_add(data.len() as u64);
            if taken > most {
                return Err(if exactly {
                    FetchError::Broken(format!("more came than the {most} bytes there are"))
                } else {
                    FetchError::Refused(format!("it has more than the {most} bytes that are taken"))
                });
            }
            self.due = limits.charge(clock.now(), data.len());
            self.queue.push(Event::Body { id, bytes: data });
            if let Some(sample) = connection.sample(&self.window) {
                self.queue.push(Event::Sample { route: self.id, sample });
            }
        }
        if exactly && taken != most {
            return Err(FetchError::Broken(format!("it ended after {taken} of {most} bytes")));
        }
        self.keep(connection);
        Ok(())
    }

    /// Hands over what a body begins with, if that comes in a moment. That it does not is no error.
    async fn opening(&mut self, id: FetchId, mut connection: Connection) {
        let mut opening = BytesMut::new();
        let mut has_ended = false;
        let read = async {
            while opening.len() < METADATA_BYTES as usize && !has_ended {
                match connection.data().await? {
                    Some(data) => opening.extend_from_slice(&data),
                    None => has_ended = true,
                }
            }
            Ok::<(), String>(())
        };
        if timeout(OPENING_WAIT, read).await != Ok(Ok(())) {
            return;
        }
        opening.truncate(METADATA_BYTES as usize);
        self.queue.push(Event::Opening { id, bytes: opening.freeze() });
        match has_ended {
            true => self.keep(connection),
            false => self.drain(connection).await,
        }
    }

    /// Reads an unwanted body to its end and keeps the connection, if that is cheap.
    pub(super) async fn drain(&mut self, mut connection: Connection) {
        let drain = async {
            let mut read = 0_u64;
            while !connection.abandon_body() {
                if !connection.persists() || read + connection.left_bytes() > DRAINED_BYTES_MAX {
                    return false;
                }
                match connection.data().await {
                    Ok(Some(data)) => read += data.len() as u64,
                    Ok(None) => break,
                    Err(_) => return false,
                }
            }
            true
        };
        if timeout(LAST_CHUNK_WAIT, drain).await == Ok(true) {
            self.keep(connection);
        }
    }

    /// Keeps a connection whose body has ended, if the server keeps it.
    pub(super) fn keep(&mut self, mut connection: Connection) {
        // An HTTP/2 server that sends GOAWAY still answers the requests before it (RFC 9113 section 6.8).
        if connection.unanswered() > 0 && (connection.persists() || connection.is_h2()) {
            self.pipelined = Some(connection);
            return;
        }
        if !connection.persists() {
            return;
        }
        self.idle.retain_mut(|other| other.origin != connection.origin && !other.is_closed());
        if connection.is_closed() {
            return;
        }
        if self.idle.len() >= IDLE_CONNECTIONS_MAX {
            self.idle.remove(0);
        }
        self.idle.push(connection);
    }
}

/// How much of a body has come, of which nobody may know the length.
fn part(taken: u64, most: u64) -> String {
    if most == u64::MAX { format!("{taken} bytes") } else { format!("{taken} of {most} bytes") }
}
