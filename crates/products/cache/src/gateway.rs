//! The HTTP server of a cache, and the fetches that its misses begin.
//!
//! ```text
//! request ─ route, preset ─▶ target: sources, hash
//!    ├─ in the store, and fresh ─────────────▶ blocks, each verified as it is read
//!    ├─ a fetch of it runs ──────────────┐
//!    └─ otherwise: `transfer` begins one ─▶ flight ─▶ bytes in order, the last block once all is verified
//!                     ├─ verified ─▶ store
//!                     └─ a failure ─▶ 404, 502, 503, 507
//! ```
//!
//! `site` speaks with the server. `desk` decides what is answered; `desk/documents` has the short
//! documents that may change, `desk/transfer` the fetches by [`anabranch::Get`]. `flight` is a fetch with
//! all its askers, `lan` speaks with caches of the LAN, `upstream` asks servers for documents and heads,
//! `status` has the numbers, `event` what the user is told.

mod desk;
mod event;
mod flight;
mod lan;
mod site;
mod status;
mod upstream;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anabranch_http::server::{RunningServer, Server};

use crate::config::Config;
use crate::store::Store;
use desk::Desk;
pub use event::Event;
use site::Site;

/// The reason why a cache cannot start, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StartError(String);

/// How often, and how long, the end of a cache waits for its fetches.
const END_POLL: Duration = Duration::from_millis(5);
const END_POLLS_MAX: u32 = 1_000;

/// A running cache. It ends when it is dropped: its fetches are stopped, and its store is closed.
pub struct Gateway {
    addresses: Vec<SocketAddr>,
    server: RunningServer,
    desk: Arc<Desk>,
}

impl Gateway {
    /// Starts a cache. `listener` is called with what the user should know, on several threads.
    ///
    /// # Errors
    /// If the store cannot be opened, an address is taken, or a link or a file of the settings cannot be
    /// used.
    pub fn start(
        config: Config,
        listener: impl Fn(&Event) + Send + Sync + 'static,
    ) -> Result<Self, StartError> {
        let failed = |e: std::io::Error| StartError(e.to_string());
        let store = Store::open(&config.directory, config.capacity_bytes).map_err(failed)?;
        let server = Server::bind(&[config.listen]).map_err(failed)?;
        let addresses = server.addresses().to_vec();
        let desk = Arc::new(Desk::new(config, store, Box::new(listener)).map_err(StartError)?);
        let server = server.start(Site(Arc::clone(&desk))).map_err(failed)?;
        Ok(Self { addresses, server, desk })
    }

    /// Returns the addresses that the cache listens on.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // The server waits for reads, which end when their transfers do.
        self.desk.stop();
        self.server.stop();
        // The threads of fetches hold the store, which another cache could not open meanwhile.
        for _ in 0..END_POLLS_MAX {
            if Arc::strong_count(&self.desk) == 1 {
                return;
            }
            thread::sleep(END_POLL);
        }
    }
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}
