//! Serves files and directories to all who know their URI.
//!
//! [`Serve`] says what to serve and where. [`Serve::start`] makes a [`Source`] of it, which answers on its
//! own threads until it is stopped or dropped. [`Serve::run`] serves too, but blocks the calling thread until
//! the end, and reports events on it.
//!
//! [`ObjectServer`] serves the objects of a store that the caller has, such as a cache's.
//!
//! First the sockets are bound, so that a port in use is noticed before anything is hashed. Then the files
//! are hashed. Then each UDP socket gets a thread, HTTP gets another, and one more waits for the end.

mod catalog_site;
mod listen;
mod objects;
mod peers;
mod publish;
mod source;
mod udp_worker;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anabranch_algo::Rate;

pub use crate::report::source::{Offer, Stats};
pub use objects::{ObjectServer, Objects};
pub use source::Source;

use crate::catalog::builder::Builder;
use crate::catalog::{self, Catalog};
use crate::network::{Name, Place, ScopeKey};
use crate::{Control, Error, Event, Result, Stop, cache_dir};
use publish::Publish;
use source::Bound;

/// Says what to serve, and where.
///
/// ```no_run
/// # fn main() -> anabranch::Result<()> {
/// let source = anabranch::Serve::new().path("film.mkv")?.start()?;
/// for uri in source.uris() {
///     println!("{uri}");
/// }
/// source.wait()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Serve {
    paths: Vec<PathBuf>,
    listen: Vec<SocketAddr>,
    http: Vec<SocketAddr>,
    limit: Option<Rate>,
    cache: Option<PathBuf>,
    publish: Option<Publish>,
    stop: Option<Stop>,
}

impl Default for Serve {
    fn default() -> Self {
        Self::new()
    }
}

impl Serve {
    /// Begins with nothing to serve, on UDP port [`PORT`](crate::PORT) of every address, as fast as the
    /// network allows.
    #[must_use]
    pub fn new() -> Self {
        let (paths, listen, http) = (Vec::new(), Vec::new(), Vec::new());
        Self { paths, listen, http, limit: None, cache: cache_dir(), publish: None, stop: None }
    }

    /// Offers a file, or a directory and each file in it. Symbolic links in a directory are followed only to
    /// files inside it.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if there is no such file or directory, or if it cannot
    /// be read.
    pub fn path(mut self, path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        catalog::check(&path)?;
        self.paths.push(path);
        Ok(self)
    }

    /// Listens on this UDP address, and only on those given with `listen`. Port 0 takes a free one.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen.push(address);
        self
    }

    /// Offers the same content over HTTP too, at this address: to browsers, curl and other receivers. Port 0
    /// takes a free one. All who reach the address see the list of files.
    #[must_use]
    pub fn http(mut self, address: SocketAddr) -> Self {
        self.http.push(address);
        self
    }

    /// Sends no faster than this, to all receivers together.
    #[must_use]
    pub fn limit(mut self, rate: Rate) -> Self {
        self.limit = Some(rate);
        self
    }

    /// Keeps hashes for the next start in this directory; `None` keeps none. The default is [`cache_dir`].
    #[must_use]
    pub fn cache(mut self, directory: Option<PathBuf>) -> Self {
        self.cache = directory;
        self
    }

    /// Offers the path by this name in a publish/subscribe network too, of which this machine is the host
    /// `place`. `key` is the key of the name's scope. If hosts publish several contents under one name,
    /// receivers take the newest: the file that was modified last.
    #[must_use]
    pub fn publish(mut self, place: &Place, name: Name, key: Arc<ScopeKey>) -> Self {
        self.publish = Some(Publish { place: place.clone(), name, key });
        self
    }

    /// Stops hashing or serving when `stop` is used.
    #[must_use]
    pub fn stopped_by(mut self, stop: &Stop) -> Self {
        self.stop = Some(stop.clone());
        self
    }

    /// Hashes the files and begins to serve. Hashing takes a while for many bytes that are not in the cache.
    /// [`Source::notices`] has the messages for the user.
    ///
    /// # Errors
    /// - [`ErrorKind::System`](crate::ErrorKind::System) if a socket cannot be bound, or a file cannot be
    ///   read.
    /// - [`ErrorKind::Usage`](crate::ErrorKind::Usage) if a path does not exist any more.
    /// - [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) if it was stopped while it hashed.
    pub fn start(self) -> Result<Source> {
        self.prepare(&mut |_| Control::Continue)
    }

    /// Hashes the files and serves until `listener` answers [`Control::Stop`] or the [`Stop`] is used.
    /// Meanwhile `listener` receives the events. Returns the counters of the whole time.
    ///
    /// # Errors
    /// Those of [`start`](Self::start) and [`Source::wait`].
    pub fn run(self, mut listener: impl FnMut(Event) -> Control) -> Result<Stats> {
        let source = self.prepare(&mut listener)?;
        source.report(&mut listener);
        source.wait()
    }

    fn prepare(self, listener: &mut dyn FnMut(Event) -> Control) -> Result<Source> {
        let outer = self.stop.clone().map_or_else(Stop::new, Ok)?;
        if let Some(publish) = &self.publish {
            publish.check(&self.paths)?;
        }
        let (udp, http) = (listen::udp(&self.listen)?, listen::http(&self.http)?);
        let (catalog, warnings) = self.hash(&outer, listener)?;
        Source::start(Bound { udp, http, publish: self.publish }, catalog, self.limit, outer, warnings)
    }

    /// Hashes the files, and returns the warnings too.
    fn hash(
        &self,
        stop: &Stop,
        listener: &mut dyn FnMut(Event) -> Control,
    ) -> Result<(Catalog, Vec<String>)> {
        let builder = Builder { cache: self.cache.clone(), ..Builder::default() };
        let mut report = |progress| listener(Event::Hashing(progress));
        let built = builder.job.watch(stop, &mut report, || builder.build(&self.paths))?;
        let warnings = builder.warnings.take();
        if stop.is_stopped() || builder.job.is_stopped() {
            return Err(Error::interrupted("interrupted while hashing"));
        }
        match built {
            Ok(catalog) => Ok((catalog, warnings)),
            Err(error) => {
                // The warnings are sent here, because no `Source` will have them.
                for warning in warnings {
                    let _ = listener(Event::Notice(warning));
                }
                Err(error)
            }
        }
    }
}
