//! Hands bodies over, or reads them to the end so that the connection can be kept.

use std::time::Duration;

use anabranch_algo::Span;
use bytes::BytesMut;
use tokio::time::{sleep, timeout};

use super::RouteWorker;
use super::queued_fetch::DRAINED_BYTES_MAX;
use crate::client::api::{Event, FetchId, METADATA_BYTES};
use crate::client::body_count::{BodyCount, LAST_CHUNK_WAIT};
use crate::client::connect::Connection;
use crate::client::error::FetchError;
use crate::client::validate::BodyPolicy;

/// The most connections that a route keeps between fetches, each to another origin.
const IDLE_CONNECTIONS_MAX: usize = 4;
/// How long to wait for the first bytes of a file.
pub(in crate::client) const OPENING_WAIT: Duration = Duration::from_secs(3);

impl RouteWorker {
    /// Hands a body over as it comes. Keeps the connection if the body ends as it should.
    pub(super) async fn deliver(
        &mut self,
        id: FetchId,
        mut connection: Connection,
        policy: BodyPolicy,
    ) -> Result<(), FetchError> {
        let mut count = match policy {
            BodyPolicy::Exactly(bytes) => BodyCount::exactly(bytes),
            BodyPolicy::AtMost(bytes) => BodyCount::at_most(bytes),
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
        loop {
            if !count.is_complete() {
                self.queue.room().await;
                let early = self.due.since(clock.now());
                if early > Span::ZERO {
                    sleep(Duration::from_nanos(early.as_nanos())).await;
                }
            }
            let data = match timeout(count.patience(idle), self.data(&mut connection)).await {
                Ok(Ok(None)) => break,
                Ok(Ok(Some(data))) => data,
                // If the body is complete, only the connection is useless.
                Ok(Err(e)) => {
                    self.on_lost(connection, false);
                    return count.broke_off(&e);
                }
                Err(_) => {
                    self.on_lost(connection, false);
                    return count.fell_silent(idle);
                }
            };
            count.take(data.len())?;
            self.due = limits.charge(clock.now(), data.len());
            self.queue.push(Event::Body { id, bytes: data });
            if let Some(sample) = connection.sample(&self.window) {
                self.queue.push(Event::Sample { route: self.id, sample });
            }
        }
        count.end()?;
        self.keep(connection);
        Ok(())
    }

    /// Hands over the first bytes of a body, if they come within [`OPENING_WAIT`]. It is no error if they do
    /// not.
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

    /// Keeps a connection whose body has ended, if the server keeps it open.
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
