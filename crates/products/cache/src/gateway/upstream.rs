//! Fetches documents and the heads of files from a source, one request a call.
//!
//! Each call takes an idle client, or starts one on the shared engine, waits on its own thread for the
//! answer, and puts the client back with its connections. So consecutive documents of one server use one
//! connection.

use std::sync::{Condvar, Mutex, PoisonError};

use anabranch_algo::Time;
use anabranch_http::client::{
    Client, Engine, Event, FetchError, FetchId, FetchRequest, Head, Options, RequestKind, StartError,
};
use anabranch_net::{Clock, Egress, Interest, Poller, Resolver};

use crate::config::Config;
use crate::preset::Resolution;

/// The most bytes of a document.
pub(super) const DOCUMENT_BYTES_MAX: usize = 32 << 20;
/// The most documents that are fetched at once; further calls wait. Together they need at most 256 MiB.
/// Other fetches bring few bytes, and do not wait.
const AT_ONCE: usize = 8;
/// The most clients that are kept for later calls.
const IDLE_MAX: usize = 16;

/// The clients of all sources.
pub(super) struct Upstream {
    engine: Engine,
    resolver: Resolver,
    clock: Clock,
    vias: Vec<Egress>,
    config: Config,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    running: usize,
    idle: Vec<Idle>,
}

/// A client without a fetch.
struct Idle {
    accept: &'static str,
    credentials: Option<String>,
    client: Client,
    next: FetchId,
}

impl Upstream {
    /// Starts the thread of all clients.
    ///
    /// # Errors
    /// If the system has no thread left, a link cannot be used, or the certificates cannot be read.
    pub(super) fn start(config: &Config) -> Result<Self, String> {
        let mut vias = Vec::new();
        for via in &config.via {
            vias.push(Egress::parse(via).map_err(|e| format!("via: {via}: {e}"))?);
        }
        if vias.is_empty() {
            vias.push(Egress::any());
        }
        let upstream = Self {
            engine: Engine::start().map_err(|e| e.to_string())?,
            resolver: Resolver::default(),
            clock: Clock::start(),
            vias,
            config: config.clone(),
            state: Mutex::default(),
            ended: Condvar::new(),
        };
        let first = upstream.client("*/*", None).map_err(|e| e.to_string())?;
        upstream.put_back(first);
        Ok(upstream)
    }

    fn client(&self, accept: &'static str, credentials: Option<&str>) -> Result<Idle, StartError> {
        let secret = credentials.map(|value| ("authorization".to_owned(), value.to_owned()));
        let client = Client::start(Options {
            headers: [("accept".to_owned(), accept.to_owned())].into_iter().chain(secret).collect(),
            ca_file: self.config.ca_file.clone(),
            resolver: self.resolver.clone(),
            clock: self.clock,
            engine: Some(self.engine.clone()),
            keep_fields: Resolution::FIELDS,
            ..Options::default()
        })?;
        Ok(Idle { accept, credentials: credentials.map(str::to_owned), client, next: 0 })
    }

    fn put_back(&self, idle: Idle) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // The oldest goes, with its connections.
        let old = (state.idle.len() >= IDLE_MAX).then(|| state.idle.remove(0));
        state.idle.push(idle);
        drop(state);
        drop(old);
    }

    /// Fetches what `kind` says from `url`, with the `credentials` if there are some, over each link in turn
    /// until one works. For metadata the body is the beginning of the file, if that came with them.
    ///
    /// # Errors
    /// The error of the server over the last link.
    pub(super) fn fetch(
        &self,
        url: &str,
        kind: &RequestKind,
        accept: &'static str,
        credentials: Option<&str>,
    ) -> Result<(Head, Vec<u8>), FetchError> {
        let is_document = matches!(kind, RequestKind::Document { .. } | RequestKind::ChangedDocument { .. });
        let turn = is_document.then(|| Turn::wait(self));
        let mut last = Err(FetchError::Refused("there is no link".to_owned()));
        for via in &self.vias {
            last = self.ask(url, kind, (accept, credentials), via);
            if !matches!(last, Err(FetchError::Unreachable(_))) {
                break;
            }
        }
        drop(turn);
        last
    }

    fn ask(
        &self,
        url: &str,
        kind: &RequestKind,
        (accept, credentials): (&'static str, Option<&str>),
        via: &Egress,
    ) -> Result<(Head, Vec<u8>), FetchError> {
        let found = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let fits = |idle: &Idle| idle.accept == accept && idle.credentials.as_deref() == credentials;
            let place = state.idle.iter().rposition(fits);
            place.map(|place| state.idle.remove(place))
        };
        let refused = |e: StartError| FetchError::Refused(e.to_string());
        let mut idle = found.map_or_else(|| self.client(accept, credentials).map_err(refused), Ok)?;
        idle.next += 1;
        let (url, via, kind) = (url.to_owned(), via.clone(), kind.clone());
        idle.client.fetch(idle.next, FetchRequest { route: 0, via, url, trusted: true, kind });
        let mut poller = Poller::new(self.clock);
        let (mut head, mut body, mut end) = (None, Vec::new(), None);
        while end.is_none() {
            // After this error the client is dropped, and its fetch with it.
            let waited = poller.wait([(idle.client.fd(), Interest::Read)], Time::NEVER);
            waited.map_err(|e| FetchError::Broken(e.to_string()))?;
            idle.client.events(|event| match event {
                Event::Head { head: new, .. } => head = Some(*new),
                Event::Body { bytes, .. } | Event::Opening { bytes, .. } => body.extend_from_slice(&bytes),
                Event::Done { .. } => end = Some(Ok(())),
                Event::Failed { error, .. } => end = Some(Err(error)),
                Event::Sample { .. } => {}
            });
        }
        self.put_back(idle);
        end.unwrap_or(Ok(()))?;
        let head = head.ok_or_else(|| FetchError::Broken("the answer had no head".to_owned()))?;
        Ok((head, body))
    }
}

/// The right to fetch a document, until it is dropped.
struct Turn<'a>(&'a Upstream);

impl<'a> Turn<'a> {
    fn wait(upstream: &'a Upstream) -> Self {
        let state = upstream.state.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = upstream.ended.wait_while(state, |state| state.running >= AT_ONCE);
        wait.unwrap_or_else(PoisonError::into_inner).running += 1;
        Self(upstream)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).running -= 1;
        self.0.ended.notify_one();
    }
}
