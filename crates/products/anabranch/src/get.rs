//! Getting a file or a directory from all who have it: [`Get`] says what and how, [`Download`] where to.
//!
//! What happens inside: `fetch` runs one *stage* after the other in one loop (`event_loop`): names are looked
//! up (`name_lookup`), HTTP servers are asked what they have (`discovery`), then `content_fetch` joins the
//! machines (`mmtp`'s subscriber over `udp_paths`, `mirror`'s scheduler and pool in `mirror_driver`) with the
//! disk (`sink`). The files of a directory from mirrors (`directory`) come many at once while they are small
//! (`small_files`). A [`Reader`] takes its blocks from a `reassembly_buffer` in the place of the disk. What
//! all of them need of the outside is a `world`: real `sockets`.

mod attempt;
mod content_fetch;
mod controllers;
mod directory;
mod discovered_file;
mod discovery;
mod download;
mod each;
mod event_loop;
mod existing;
mod fetch;
mod file_totals;
mod from_servers;
mod groups;
mod history;
mod idle_timeout;
mod locators;
mod mirror_driver;
mod name_lookup;
mod network_source;
mod offered_names;
mod one_answer;
mod origin;
mod outcome;
mod pool;
#[cfg(test)]
mod promises;
mod rate_meter;
mod reader;
mod reassembly_buffer;
mod request;
mod routes;
mod server_status;
mod settings;
mod sink;
mod small_files;
#[cfg(any(test, feature = "soak"))]
pub mod soak;
mod sockets;
mod source_status;
#[cfg(any(test, feature = "soak"))]
mod testing;
mod transfer;
mod udp_paths;
mod world;
mod writer;

pub use controllers::{controllers, slow_starts};
pub use download::Download;
pub use groups::Groups;
pub use reader::Reader;
pub use reassembly_buffer::READ_AHEAD_BYTES;
pub use settings::TIMEOUT;
#[cfg(feature = "tokio")]
pub use transfer::EventStream;
pub use transfer::{Events, Transfer};

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anabranch_algo::Rate;
use anabranch_net::Resolver;

use crate::checksum::KnownHash;
use crate::network::Place;
use crate::target::Output;
use crate::{Checksum, Result, Stop};
use history::History;
use locators::Locators;
use network_source::NetworkName;
use settings::Settings;

/// The controller of a transfer in the background.
const BACKGROUND: &str = "ledbat-pp";

/// What to get, from whom, and how. [`to_file`](Self::to_file) and its siblings say where to.
///
/// ```no_run
/// use anabranch::{Control, Event, Get};
///
/// let get = Get::new(["https://a.example/f.iso", "https://b.example/f.iso"])?.via("wlan0").via("wwan0");
/// let report = get.to_file("f.iso").run(|event| {
///     if let Event::Progress(progress) = event {
///         println!("{} of {} bytes", progress.done_bytes, progress.total_bytes);
///     }
///     Control::Continue
/// })?;
/// println!("{}: {}", report.target, report.verdict());
/// # Ok::<(), anabranch::Error>(())
/// ```
///
/// The names that [`Get::new`] takes are read at once. All that the other methods take is checked when a
/// transfer begins, for interfaces and files come and go: then [`ErrorKind::Usage`](crate::ErrorKind::Usage)
/// says what is wrong with it.
#[derive(Clone)]
pub struct Get {
    locators: Locators,
    settings: Settings,
}

impl Get {
    /// Names one content: a URI as a source gave it (`anabranch:…`), URLs of one and the same file
    /// (`http://…`, `https://…`; of [several](Self::each) if that is said), a Metalink (the path of a file or
    /// a pipe, or a URL that ends in `.meta4` or `.metalink`). A Metalink of several files is a directory.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if one of them is no such name, a Metalink file cannot
    /// be read, or they name different contents.
    pub fn new<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Result<Self> {
        Ok(Self::of(Locators::read(names)?))
    }

    /// Names a content in a publish/subscribe network, as this host of it sees it: `SCOPE/LABEL`, or an
    /// `anabranch:` URI, whose content is looked up whatever its name is.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if it is no such name, or this node forwards.
    pub fn name(place: &Place, name: &str) -> Result<Self> {
        let network = Some(NetworkName::read(place, name)?);
        Ok(Self::of(Locators { network, ..Locators::default() }))
    }

    /// Has the paths and the mark (DSCP) of a class of the network. Without this: those without a class.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if the domain has no such class, or no
    /// [`name`](Self::name) in a network is fetched.
    pub fn class(mut self, class: &str) -> Result<Self> {
        self.locators.set_class(class)?;
        Ok(self)
    }

    fn of(locators: Locators) -> Self {
        Self { locators, settings: Settings::default() }
    }

    /// One more source that speaks mmTP, besides those that the URI names: `host`, `host:port`, or an address
    /// with or without a port. Without one, [`PORT`](crate::PORT) is meant.
    #[must_use]
    pub fn from_source(mut self, source: impl Into<String>) -> Self {
        self.settings.from.push(source.into());
        self
    }

    /// Uses this network interface or local address (`wlan0`, `192.0.2.7`, `fe80::1%eth0`), and no other that
    /// is not named too. If it cannot be used, the transfer fails. Without any: every usable one.
    #[must_use]
    pub fn via(mut self, interface: impl Into<String>) -> Self {
        self.settings.via.push((interface.into(), None));
        self
    }

    /// The same, and takes no more than `rate` over it: of the bytes that HTTP bodies and mmTP's UDP payloads
    /// have, from all who send over it together.
    #[must_use]
    pub fn via_limited(mut self, interface: impl Into<String>, rate: Rate) -> Self {
        self.settings.via.push((interface.into(), Some(rate)));
        self
    }

    /// Takes no more than `rate`, over all paths together: of the bytes that HTTP bodies and mmTP's UDP
    /// payloads have. A transfer that begins may have what buffers hold besides, once: 64 KiB a connection.
    #[must_use]
    pub const fn limit(mut self, rate: Rate) -> Self {
        self.settings.limit = Some(rate);
        self
    }

    /// A file of OpenPGP certificates, as `gpg --export` writes them: the file must be signed by a key of one
    /// of them, or it does not get its name. Signatures are those of a Metalink, those that `Link` fields
    /// lead to, and those beside the file (`.asc`, `.sig`), whoever sends them. It takes the program `sqv` or
    /// `gpgv`. For one file from mirrors, and not for one that is read in order.
    #[must_use]
    pub fn keyring(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.keyring = Some(path.into());
        self
    }

    /// A hash that the whole file must have, whatever else is known of it.
    #[must_use]
    pub fn checksum(mut self, checksum: Checksum) -> Self {
        self.settings.checksum = Some(KnownHash::Is(checksum));
        self
    }

    /// The same, from a list such as `SHA256SUMS`: what `sha256sum` and its like print, with `--tag` or
    /// without. The line counts that has the file's name, as the URL, the URI or the Metalink tell it.
    #[must_use]
    pub fn checksum_list(mut self, list: impl Into<PathBuf>) -> Self {
        self.settings.checksum = Some(KnownHash::In(list.into()));
        self
    }

    /// The congestion controller, by its name: one of [`controllers`], as `lia`, or with another slow start
    /// than its own, one of [`slow_starts`], as `lia+hystart`.
    #[must_use]
    pub fn controller(mut self, name: impl Into<String>) -> Self {
        self.settings.controller = name.into();
        self
    }

    /// Yields to everything else, and keeps queues short for it: the controller `ledbat-pp`, a scavenger, for
    /// mmTP and by the receive windows of HTTP connections. Slower than without wherever somebody else wants
    /// the link; where nobody does, nearly as fast.
    #[must_use]
    pub fn background(self) -> Self {
        self.controller(BACKGROUND)
    }

    /// Which paths may share a bottleneck, and so take together what one TCP would. Without this:
    /// [`Groups::Auto`].
    #[must_use]
    pub fn groups(mut self, groups: Groups) -> Self {
        self.settings.groups = groups;
        self
    }

    /// Gives up when nobody has answered for so long; what has arrived is kept. Without this: [`TIMEOUT`].
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// The least time between two [`Event::Progress`](crate::Event::Progress). Without this: 200 ms.
    #[must_use]
    pub const fn progress_every(mut self, interval: Duration) -> Self {
        self.settings.progress_every = interval;
        self
    }

    /// A header field for HTTP requests. It goes where [`user`](Self::user) goes: it may be a secret.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.http.headers.push((name.into(), value.into()));
        self
    }

    /// Name and password for the HTTP servers (scheme, host and port) of the URLs in [`Get::new`]; not for
    /// those that they redirect to, nor for those that only a Metalink, a URI or another server names.
    #[must_use]
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.settings.http.user = Some((name.into(), password.into()));
        self
    }

    /// A `.netrc` to take names and passwords from. They go where [`user`](Self::user) goes; those of a
    /// machine go by `https` to that machine too, whoever named it, unless any certificate is
    /// [believed](Self::insecure).
    #[must_use]
    pub fn netrc(mut self, file: impl Into<PathBuf>) -> Self {
        self.settings.http.netrc = Some(file.into());
        self
    }

    /// A proxy for HTTP: `http://HOST:PORT`, `socks5://HOST:PORT`, `socks5h://HOST:PORT`, or an empty string
    /// for none. Without this: as the environment says.
    #[must_use]
    pub fn proxy(mut self, url: impl Into<String>) -> Self {
        self.settings.http.proxy = Some(url.into());
        self
    }

    /// Whether the environment says which proxy is used where: `http_proxy`, `https_proxy`, `all_proxy` and
    /// `no_proxy`. Without this it does, as with curl and most libraries for HTTP.
    #[must_use]
    pub const fn proxy_from_env(mut self, from_env: bool) -> Self {
        self.settings.http.proxy_from_env = from_env;
        self
    }

    /// Looks names up by this instead of asking the system: it returns the addresses of a host, with any
    /// port. It is called on threads of its own, once for each name of a transfer, and again for a name that
    /// could not be looked up or whose addresses take no connection.
    #[must_use]
    pub fn resolver(
        mut self,
        look_up: impl Fn(&str) -> std::io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        self.settings.http.resolver = Resolver::new(look_up);
        self
    }

    /// Remembers in `directory/urls.jsonl` which content URLs had, for the next time: what has the same
    /// validator then is taken to be the same (trust on first use). URLs with a query, a name or a password
    /// are not written. Without this, nothing is remembered: what a program fetches leaves no trace, and what
    /// an earlier transfer found decides nothing. The `anabranch` command has it in
    /// [`cache_dir`](crate::cache_dir).
    #[must_use]
    pub fn history(mut self, directory: impl Into<PathBuf>) -> Self {
        self.settings.history = History(Some(directory.into()));
        self
    }

    /// Takes every URL for a file of its own, by the name in the URL, instead of all for one file. They come
    /// one after the other into one directory: the current one, that of [`to_directory`](Self::to_directory),
    /// or that of [`to_output`](Self::to_output) if it ends in a slash or is a directory. Each has its own
    /// line of a [`checksum_list`](Self::checksum_list). [`Event::FileFinished`](crate::Event::FileFinished)
    /// tells how each ends; one that does not come keeps no other from coming, and the transfer ends with an
    /// error of the first one's kind.
    ///
    /// A transfer begins with [`ErrorKind::Usage`](crate::ErrorKind::Usage) if something else than URLs is
    /// named, two URLs have one name, or what is asked for is of one file: `to_file`, `read`, `checksum`,
    /// `from_source`.
    #[must_use]
    pub const fn each(mut self) -> Self {
        self.settings.is_each = true;
        self
    }

    /// Believes the certificates in this PEM file too.
    #[must_use]
    pub fn ca_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.settings.http.ca_file = Some(file.into());
        self
    }

    /// Whether to believe any certificate: anybody may then be the server. Hashes are checked all the same.
    #[must_use]
    pub const fn insecure(mut self, insecure: bool) -> Self {
        self.settings.http.insecure = insecure;
        self
    }

    /// To exactly this path; a content that is a directory becomes this directory.
    #[must_use]
    pub fn to_file(&self, path: impl Into<PathBuf>) -> Download {
        self.download(Output::Path(path.into()))
    }

    /// Into this directory, which must exist, under the content's own name: that of the URI, the Metalink or
    /// the URL.
    #[must_use]
    pub fn to_directory(&self, directory: impl Into<PathBuf>) -> Download {
        self.download(Output::Inside(directory.into()))
    }

    /// As command lines have it: into `path` if that ends in a slash or, for a file, is a
    /// directory; otherwise to this path. `None`: under its own name, in the current directory.
    #[must_use]
    pub fn to_output(&self, path: Option<PathBuf>) -> Download {
        self.download(path.map_or(Output::Own, Output::Either))
    }

    /// Reads it in order while it comes, in bounded memory: to standard output, a pipe, a decompressor. See
    /// [`Reader`] for what is verified when.
    ///
    /// ```no_run
    /// let get = anabranch::Get::new(["https://a.example/f.tar", "https://b.example/f.tar"])?;
    /// let mut reader = get.read()?;
    /// std::io::copy(&mut reader, &mut std::io::stdout())?;
    /// println!("{}", reader.report().expect("it has ended").verdict());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::System`](crate::ErrorKind::System) if there can be no thread. What is wrong with the
    /// request is what the first read fails with: [`ErrorKind::Usage`](crate::ErrorKind::Usage) if it is a
    /// directory.
    pub fn read(&self) -> Result<Reader> {
        self.reader(Stop::new()?)
    }

    /// The same; reads fail with [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) soon after `stop`
    /// is used, by a signal handler or another thread.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_stopped_by(&self, stop: &Stop) -> Result<Reader> {
        self.reader(Stop::below(stop)?)
    }

    fn reader(&self, stop: Stop) -> Result<Reader> {
        let download = self.download(Output::Path("-".into()));
        let (buffer, blocks) = reassembly_buffer::pair(stop.clone());
        let end = buffer.end_guard();
        let transfer = Transfer::spawn(stop.clone(), move |listener| {
            let _end = end;
            download.run_until(stop, Some(buffer), listener)
        })?;
        Ok(Reader::new(blocks, transfer))
    }

    fn download(&self, output: Output) -> Download {
        Download::new(self.locators.clone(), self.settings.clone(), output)
    }
}

#[cfg(test)]
mod tests {
    use anabranch_algo::control::ALGORITHMS;

    use super::*;
    use crate::ErrorKind;

    #[test]
    fn a_server_may_be_silent_for_as_long_as_the_whole_transfer() {
        for (timeout, idle) in [(5, 30), (60, 60), (90, 90)] {
            let get = Get::new(["http://a.example/f"]).expect("a URL").timeout(Duration::from_secs(timeout));
            let (request, _) = get.to_file("f").request().expect("a request");
            assert_eq!(request.http.idle_timeout, Duration::from_secs(idle));
        }
    }

    #[test]
    fn every_controller_can_be_asked_for_and_others_are_told_the_names() {
        let request = |name: &str| {
            let get = Get::new(["http://a/f"]).expect("a URL").controller(name);
            get.to_file("f").request().map(drop)
        };
        for controller in controllers() {
            assert_eq!(request(controller), Ok(()));
            for start in slow_starts() {
                assert_eq!(request(&format!("{controller}+{start}")), Ok(()));
            }
        }
        let Err(error) = request("bogus") else { panic!("there is none of that name") };
        let (kind, why) = (error.kind(), error.message());
        assert_eq!(kind, ErrorKind::Usage);
        let first = ALGORITHMS[0].name;
        assert!(why.contains(&format!("controller bogus: there are {first}, ")), "{why}");
        assert!(why.contains(" lia, ") && why.contains("hystart"), "{why}");
    }
}
