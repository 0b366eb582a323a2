//! A source that serves, and the handle to it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use anabranch_algo::{Rate, RateLimiter, Span, Time};
use anabranch_http::server::{RunningServer, Server};
use anabranch_net::{Clock, Interest, Poller, Udp};
use anabranch_overlay::client::Registered;
use anabranch_overlay::message::refusal;

use super::catalog_site::CatalogSite;
use super::listen::{drop_stale, is_loopback, reachable};
use super::publish::Publish;
use super::udp_worker::{Shared, UdpWorker};
use crate::catalog::{Catalog, CatalogEntry};
use crate::filenames::{hidden_warning, show};
use crate::format::seconds;
use crate::monitor::lock;
use crate::network::Publishing;
use crate::report::source::{Offer, Stats};
use crate::secret::secret;
use crate::{Control, Error, Event, Result, Stop};

/// The time between two [`Event::Stats`].
const STATS_EVERY: Span = Span::from_secs(1);
/// The time after which the thread that waits for the end looks at the flag, if nothing wakes it.
const LOOK_EVERY: Span = Span::from_secs(1);

/// A source that serves on threads of its own. It ends when it is stopped or dropped.
#[derive(Debug)]
pub struct Source {
    offers: Vec<Offer>,
    addresses: Vec<SocketAddr>,
    http_addresses: Vec<SocketAddr>,
    notices: Vec<String>,
    counters: Arc<Counters>,
    catalog: Arc<Catalog>,
    stop: Stop,
    publishing: Option<Publishing>,
    /// The thread that waits for the end, and then for all other threads.
    supervisor: Option<JoinHandle<Result<Stats>>>,
}

/// Sockets that are bound and not served yet, and the publication.
pub(super) struct Bound {
    pub(super) udp: Vec<Udp>,
    pub(super) http: Option<Server>,
    pub(super) publish: Option<Publish>,
}

/// The counters of the threads.
#[derive(Debug)]
struct Counters {
    clock: Clock,
    start: Time,
    udp: Vec<Mutex<Stats>>,
    http: Mutex<Option<RunningServer>>,
}

impl Counters {
    fn http(&self) -> MutexGuard<'_, Option<RunningServer>> {
        lock(&self.http)
    }

    /// Returns the sum of the counters of all sockets and of HTTP.
    fn sum(&self) -> Stats {
        let mut sum = Stats::default();
        if let Some(http) = &*self.http() {
            sum.set_http(&http.counters());
        }
        for stats in &self.udp {
            sum.add(&lock(stats));
        }
        sum.elapsed_s = seconds(self.clock.now().since(self.start));
        sum
    }
}

impl Source {
    /// Serves `catalog` until `outer` or this source is stopped.
    pub(super) fn start(
        bound: Bound,
        catalog: Catalog,
        limit: Option<Rate>,
        outer: Stop,
        warnings: Vec<String>,
    ) -> Result<Self> {
        let Bound { udp, http, publish } = bound;
        let clock = Clock::start();
        let (catalog, limit) = (Arc::new(catalog), Arc::new(RateLimiter::new(limit)));
        let addresses: Vec<SocketAddr> = udp.iter().map(Udp::local_addr).collect();
        let http_addresses = http.as_ref().map_or(Vec::new(), |server| server.addresses().to_vec());
        // Stale datagrams are dropped before any receiver is told the address.
        drop_stale(&udp);
        let from = reachable(&addresses);
        let site = |server| (server, CatalogSite::new(&catalog, &limit, clock, addresses.clone()));
        let http = http.map(site);
        let notices = notices(&catalog, &addresses, &from, http.as_ref().map(|(_, site)| site));
        let notices = warnings.into_iter().chain(notices).collect();
        let offers = offers(&catalog, http.as_ref().map(|(_, site)| site), &from, &http_addresses);

        let (stop, secret) = (Stop::new()?, secret()?);
        // HTTP clients that connected while files were hashed have waited until here.
        let http = http.map(|(server, site)| server.start(site)).transpose().map_err(system)?;
        let counters = Arc::new(Counters {
            clock,
            start: clock.now(),
            udp: udp.iter().map(|_| Mutex::default()).collect(),
            http: Mutex::new(http),
        });
        let marks = publish.as_ref().map(|publish| publish.place.domain().classes.marks());
        let shared = Shared { catalog: Arc::clone(&catalog), clock, limit, stop: stop.clone(), marks };
        let shared = Arc::new(shared);
        let publishing = publish.map(|publish| publish.start(&catalog, &addresses, &stop));
        let publishing = publishing.transpose()?.flatten();
        // If a thread cannot be started, dropping this source stops those that have been started.
        let mut source = Self {
            offers,
            addresses,
            http_addresses,
            notices,
            counters,
            catalog,
            stop,
            publishing,
            supervisor: None,
        };
        let mut workers = Workers { stop: source.stop.clone(), threads: Vec::new() };
        for (index, udp) in udp.into_iter().enumerate() {
            let (shared, counters) = (Arc::clone(&shared), Arc::clone(&source.counters));
            let address = udp.local_addr();
            let thread = thread::Builder::new().name("udp".into()).spawn(move || {
                let served = UdpWorker::new(&shared, &udp, secret).run(&counters.udp[index]);
                // If one thread fails, all are stopped.
                served.inspect_err(|_| shared.stop.stop())
            });
            workers.threads.push((address, thread.map_err(system)?));
        }
        let counters = Arc::clone(&source.counters);
        let supervisor = thread::Builder::new().name("source".into());
        let supervisor = supervisor.spawn(move || supervise(workers, &outer, &counters)).map_err(system)?;
        source.supervisor = Some(supervisor);
        Ok(source)
    }

    /// Returns the URIs by which receivers fetch the offers, directories first.
    pub fn uris(&self) -> impl Iterator<Item = &str> {
        self.offers.iter().map(|offer| &*offer.uri)
    }

    /// Returns everything on offer, directories first.
    #[must_use]
    pub fn offers(&self) -> &[Offer] {
        &self.offers
    }

    /// Returns the UDP addresses on which the source listens, with their actual ports.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the addresses of HTTP, with their actual ports.
    #[must_use]
    pub fn http_addresses(&self) -> &[SocketAddr] {
        &self.http_addresses
    }

    /// Returns the messages for the user, one sentence each, such as which files were skipped and why.
    #[must_use]
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Returns the counters so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.counters.sum()
    }

    /// Stops the source soon; [`wait`](Self::wait) then returns.
    pub fn stop(&self) {
        self.stop.stop();
    }

    /// Waits for the end, when the sockets are closed, and returns the counters of the whole time.
    ///
    /// # Errors
    /// [`ErrorKind::System`](crate::ErrorKind::System) if a socket failed.
    pub fn wait(mut self) -> Result<Stats> {
        self.supervisor.take().map_or_else(|| Ok(self.stats()), join)
    }

    /// Reports events to `listener` until the source is stopped.
    pub(super) fn report(&self, listener: &mut dyn FnMut(Event) -> Control) {
        let mut tell = |event| {
            if listener(event) == Control::Stop {
                self.stop();
            }
        };
        self.notices.iter().for_each(|notice| tell(Event::Notice(notice.clone())));
        self.offers.iter().for_each(|offer| tell(Event::Offer(offer.clone())));
        tell(Event::Listening { addresses: self.addresses.clone(), http: self.http_addresses.clone() });
        let clock = self.counters.clock;
        let mut poller = Poller::new(clock);
        let (mut last, mut last_at) = (0, clock.now());
        let mut next = last_at + STATS_EVERY;
        while !self.stop.is_stopped() {
            if poller.wait([(self.stop.wake().as_fd(), Interest::Read)], next).is_err() {
                clock.sleep_until(next);
            }
            let now = clock.now();
            if now < next || self.stop.is_stopped() {
                continue;
            }
            next = now + STATS_EVERY;
            let stats = Box::new(self.stats());
            let sent = stats.all_bytes();
            let rate_bytes = Rate::of(sent - last, now.since(last_at)).as_bytes();
            (last, last_at) = (sent, now);
            self.catalog.said().into_iter().for_each(|notice| tell(Event::Notice(notice)));
            let published = self.publishing.iter().flat_map(Publishing::take);
            published.for_each(|event| tell(Event::Notice(said(event))));
            tell(Event::Stats { stats, rate_bytes });
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(supervisor) = self.supervisor.take() {
            let _ = supervisor.join();
        }
    }
}

/// The threads of the UDP sockets.
struct Workers {
    stop: Stop,
    threads: Vec<(SocketAddr, JoinHandle<io::Result<()>>)>,
}

impl Workers {
    /// Stops all threads, and returns the first failure.
    fn end(&mut self) -> Result<()> {
        self.stop.stop();
        let mut result = Ok(());
        for (address, thread) in self.threads.drain(..) {
            if let Err(e) = join(thread) {
                result = result.and(Err(Error::system(format!("the socket {address} failed: {e}"))
                    .at(address)
                    .because(e)));
            }
        }
        result
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

/// Waits until `outer` or the source itself is stopped, and then stops everything.
fn supervise(mut workers: Workers, outer: &Stop, counters: &Counters) -> Result<Stats> {
    let clock = counters.clock;
    let mut poller = Poller::new(clock);
    let stop = workers.stop.clone();
    while !stop.is_stopped() && !outer.is_stopped() {
        let next = clock.now() + LOOK_EVERY;
        let stops = [&stop, outer].map(|stop| (stop.wake().as_fd(), Interest::Read));
        if poller.wait(stops, next).is_err() {
            clock.sleep_until(next);
        }
    }
    stop.stop();
    if let Some(http) = &mut *counters.http() {
        http.stop();
    }
    workers.end()?;
    Ok(counters.sum())
}

fn join<T>(thread: JoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Returns the message about an event of a publication.
fn said(event: Registered) -> String {
    match event {
        Registered::Published(name) => format!("{name} is published"),
        Registered::Outdated(name) => format!(
            "{name} is published, but another host offers a file that was changed later: receivers take that"
        ),
        Registered::Refused(name, reason) => {
            format!("{name} is not published: the rendezvous says: {}", refusal::text(reason))
        }
        Registered::Silent => "the rendezvous does not answer; it is asked on".into(),
    }
}

/// Returns the messages for the user before anything is served.
fn notices(
    catalog: &Catalog,
    sockets: &[SocketAddr],
    from: &[String],
    site: Option<&CatalogSite>,
) -> Vec<String> {
    let mut notices = Vec::new();
    if from.iter().all(|from| is_loopback(from)) && sockets.iter().any(|socket| socket.ip().is_unspecified())
    {
        notices.push(
            "no interface but loopback is up: the URIs name this machine's own addresses; \
             name one with `listen`, or let receivers name one with `from_source`"
                .into(),
        );
    }
    for (site, group) in site
        .iter()
        .flat_map(|site| catalog.offers().chunk_by(|a, b| a.named == b.named).map(move |group| (site, group)))
    {
        // A directory comes after its files.
        let Some((directory, files)) = group.split_last().filter(|(last, _)| last.collection) else {
            continue;
        };
        let files = files.iter().map(|offer| &offer.relative[..]);
        notices.extend(hidden_warning(&directory.path, files));
        if let Err(why) = site.metalink_path(directory.index()) {
            notices.push(format!(
                "{} has no Metalink, so receivers cannot fetch all of it over HTTP: {why}",
                show(&directory.path)
            ));
        }
    }
    notices
}

/// Returns the offers. Directories come first, because most receivers want the whole.
fn offers(catalog: &Catalog, site: Option<&CatalogSite>, from: &[String], http: &[SocketAddr]) -> Vec<Offer> {
    let hosts: Vec<Vec<String>> = http.iter().map(|address| reachable(&[*address])).collect();
    let directories = catalog.offers().iter().filter(|entry| entry.collection);
    let files = catalog.offers().iter().filter(|entry| !entry.collection);
    let offer = |entry: &CatalogEntry| Offer {
        uri: entry.uri(from).to_string(),
        content: entry.id,
        directory: entry.collection,
        // Only a named path has an empty path relative to it.
        named: entry.relative.is_empty(),
        path: entry.path.clone(),
        http: site.map_or(Vec::new(), |site| {
            let urls = |hosts: &Vec<String>| hosts.iter().map(|host| site.url(entry.index(), host)).collect();
            hosts.iter().map(urls).collect()
        }),
        metalinks: site.filter(|_| entry.collection).map_or(Vec::new(), |site| {
            // This looks at all names, so it is done once for all hosts.
            let path = site.metalink_path(entry.index()).ok();
            let url = |host: &String| Some(format!("http://{host}/{}", path.as_ref()?));
            hosts.iter().map(|hosts| hosts.iter().filter_map(url).collect()).collect()
        }),
    };
    directories.chain(files).map(offer).collect()
}

fn system(error: io::Error) -> Error {
    Error::system(format!("system error: {error}")).because(error)
}
