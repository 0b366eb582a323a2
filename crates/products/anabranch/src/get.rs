//! Gets a file or a directory from several sources and mirrors at once. [`Get`] says which content to fetch
//! and how; [`Download`] says where to put it.
//!
//! Inside, `fetch` runs one *stage* after another in one loop (`event_loop`). First, names are looked up
//! (`name_lookup`), and HTTP servers are asked for the file and its metadata (`discovery`). Then
//! `content_fetch` joins the machines with the disk (`sink`); the machines are `mmtp`'s subscriber over
//! `udp_paths`, and the scheduler and pool of `mirror` in `mirror_driver`. For a directory from mirrors
//! (`directory`), small files are fetched many at a time (`small_files`). A [`Reader`] takes the blocks from
//! a `reassembly_buffer` instead of the disk. The stages reach the network and the clock through a `world`,
//! which is real `sockets` outside of tests.

mod attempt;
mod content_fetch;
mod controllers;
mod directory;
mod discovered_file;
mod discovery;
mod document;
mod download;
mod each;
mod event_loop;
mod exact_ranges;
mod existing;
mod fetch;
mod file_connections;
mod file_totals;
mod from_servers;
mod groups;
mod history;
mod idle_timeout;
mod link_policy;
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
mod ranges;
mod rate_meter;
mod reader;
mod reassembly_buffer;
mod request;
mod routes;
mod selection;
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
mod wanted_file;
mod world;
mod writer;

pub use controllers::{controllers, slow_starts};
pub use download::Download;
pub use groups::Groups;
pub use ranges::{Ranges, RangesTransfer};
pub use reader::Reader;
pub use reassembly_buffer::READ_AHEAD_BYTES;
pub use settings::TIMEOUT;
#[cfg(feature = "tokio")]
pub use transfer::EventStream;
pub use transfer::{Events, Transfer};
pub use wanted_file::WantedFile;

use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use anabranch_algo::Rate;
use anabranch_house::links::Mode;
use anabranch_net::{Resolver, SharedLimit};

use crate::checksum::KnownHash;
use crate::network::Place;
use crate::target::Output;
use crate::{Checksum, Client, Result, Stop};
use history::History;
use locators::Locators;
use network_source::NetworkName;
use reassembly_buffer::ReadHalf;
use selection::Selection;
use settings::Settings;

/// The congestion controller of a background transfer.
const BACKGROUND: &str = "ledbat-pp";

/// Says which content to get, from which servers, and how. [`to_file`](Self::to_file) and its siblings say
/// where to put it.
///
/// ```no_run
/// use anabranch::{Control, Event, Get};
///
/// let get = Get::new(["https://a.example/f.iso", "https://b.example/f.iso"])?.via("wlan0").via("wwan0");
/// let report = get.to_file("f.iso").run(|event| {
///     if let Event::Progress(progress) = event {
///         println!("{} of {:?} bytes", progress.done_bytes, progress.total_bytes);
///     }
///     Control::Continue
/// })?;
/// println!("{}: {}", report.target, report.verdict());
/// # Ok::<(), anabranch::Error>(())
/// ```
///
/// [`Get::new`] reads the names at once. The arguments of all other methods are checked when a transfer
/// begins, because interfaces and files come and go. If one of them is wrong, the transfer fails with
/// [`ErrorKind::Usage`](crate::ErrorKind::Usage), and the message says which.
#[derive(Clone)]
pub struct Get {
    locators: Locators,
    settings: Settings,
}

impl Get {
    /// Makes a request for one content, named by any of:
    ///
    /// - a URI that a source printed (`anabranch:…`);
    /// - URLs of one and the same file (`http://…`, `https://…`), or of several files with
    ///   [`each`](Self::each);
    /// - a Metalink: the path of a file or a pipe, or a URL that ends in `.meta4` or `.metalink`. A Metalink
    ///   of several files is a directory.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if a name has none of these forms, a Metalink file
    /// cannot be read, or the names belong to different contents.
    pub fn new<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Result<Self> {
        Ok(Self::of(Locators::read(names)?))
    }

    /// Makes a request for several files. Each item of `files` has the URLs of one file, which are mirrors of
    /// it. The files are fetched as with [`each`](Self::each).
    ///
    /// ```no_run
    /// let files = [vec!["https://a.example/f", "https://b.example/f"], vec!["https://a.example/g"]];
    /// anabranch::Get::files(files)?.to_directory("isos").run(|_| anabranch::Control::Continue)?;
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if a name is not a URL, or an item is empty.
    pub fn files<S: AsRef<str>, F: IntoIterator<Item = S>>(
        files: impl IntoIterator<Item = F>,
    ) -> Result<Self> {
        Self::wanted_files(files.into_iter().map(WantedFile::new))
    }

    /// Makes a request for several files, as [`files`](Self::files) does, some of which have names or hashes
    /// of their own.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if a name is not a URL, or an item is empty.
    pub fn wanted_files(files: impl IntoIterator<Item = WantedFile>) -> Result<Self> {
        Ok(Self::of(Locators::of_files(files)?).each())
    }

    /// Makes a request for a content of a publish/subscribe network, in which this host is the node that
    /// `place` gives. `name` is `SCOPE/LABEL`, or an `anabranch:` URI. With a URI, the network is asked which
    /// nodes publish the content, under any name.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if `name` is neither, if the domain has no such scope,
    /// or if this node is a forwarder.
    pub fn name(place: &Place, name: &str) -> Result<Self> {
        let network = Some(NetworkName::read(place, name)?);
        Ok(Self::of(Locators { network, ..Locators::default() }))
    }

    /// Uses the paths and the packet mark (DSCP) of a class of the network. The default is to use no class.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if the domain has no such class, or if the content is
    /// not named by [`name`](Self::name) in a network.
    pub fn class(mut self, class: &str) -> Result<Self> {
        self.locators.set_class(class)?;
        Ok(self)
    }

    fn of(locators: Locators) -> Self {
        Self { locators, settings: Settings::default() }
    }

    /// Adds a source that speaks mmTP to the sources of the URI: `host`, `host:port`, or an address with or
    /// without a port. The default port is [`PORT`](crate::PORT).
    #[must_use]
    pub fn from_source(mut self, source: impl Into<String>) -> Self {
        self.settings.from.push(source.into());
        self
    }

    /// Uses this network interface or local address (`wlan0`, `192.0.2.7`, `fe80::1%eth0`); only those named
    /// with `via` are used. If one cannot be used, the transfer fails. By default, every usable one is used.
    ///
    /// Conditions of its use may follow, as in [`Via`](anabranch_net::via::Via): `wwan0:backup` carries data
    /// only while no other link can, `wwan0:cost=5` also when the cheaper ones are full,
    /// `wwan0:cap=20GB/month` until the interface has carried so much in the month, and `eth0:limit=5M` at
    /// this rate at most. A cap needs a [`state_dir`](Self::state_dir).
    #[must_use]
    pub fn via(mut self, interface: impl Into<String>) -> Self {
        self.settings.links.via.push((interface.into(), None));
        self
    }

    /// Uses this network interface or local address as [`via`](Self::via) does, and receives at most `rate`
    /// over it. The bytes of HTTP bodies and of mmTP's UDP payloads count, from all servers together.
    #[must_use]
    pub fn via_limited(mut self, interface: impl Into<String>, rate: Rate) -> Self {
        self.settings.links.via.push((interface.into(), Some(rate)));
        self
    }

    /// Says how the links named with [`via`](Self::via) work together: all at once, or the others only while
    /// the first is out.
    #[must_use]
    pub const fn mode(mut self, mode: Mode) -> Self {
        self.settings.links.mode = mode;
        self
    }

    /// Keeps in this directory what links with a cap have carried. Programs that name the same directory
    /// count together; the proxy does so too.
    #[must_use]
    pub fn state_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.settings.links.state_dir = Some(directory.into());
        self
    }

    /// Receives at most `rate` over all paths together. The bytes of HTTP bodies and of mmTP's UDP payloads
    /// count. When a transfer begins, up to 64 KiB more a connection may arrive once, because buffers hold
    /// them.
    #[must_use]
    pub const fn limit(mut self, rate: Rate) -> Self {
        self.settings.links.limit = Some(rate);
        self
    }

    /// Receives no faster than `limit` allows, together with all transfers that have the same limit. The rate
    /// may change while they run. Several limits hold at once, with [`limit`](Self::limit) too.
    ///
    /// ```no_run
    /// use anabranch::{Get, Rate, SharedLimit};
    ///
    /// let limit = SharedLimit::new(Some(Rate::from_bytes(1_000_000)));
    /// let urls = ["https://a.example/1", "https://a.example/2"];
    /// let start = |url| Get::new([url])?.limited_by(&limit).to_directory(".").start();
    /// let transfers = urls.into_iter().map(start).collect::<anabranch::Result<Vec<_>>>()?;
    /// limit.set(None);
    /// # drop(transfers);
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    #[must_use]
    pub fn limited_by(mut self, limit: &SharedLimit) -> Self {
        self.settings.links.shared_limits.push(limit.clone());
        self
    }

    /// Requires that the file is signed by a key in `path`, a file of OpenPGP certificates as `gpg --export`
    /// writes them. Without a valid signature, the file does not get its final name. Signatures are taken
    /// from the Metalink, from `Link` fields, and from beside the file (`.asc`, `.sig`), on any server. This
    /// needs the program `sqv` or `gpgv`. It works for one file from mirrors that is not read in order.
    #[must_use]
    pub fn keyring(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.keyring = Some(path.into());
        self
    }

    /// Requires this hash of the whole file, in addition to all other hashes that are known.
    #[must_use]
    pub fn checksum(mut self, checksum: Checksum) -> Self {
        self.settings.checksum = Some(KnownHash::Is(checksum));
        self
    }

    /// Requires the hash that a list such as `SHA256SUMS` has for the file: a list that `sha256sum` and
    /// similar programs print, with or without `--tag`. The file's name in the URL, the URI or the Metalink
    /// selects the line.
    #[must_use]
    pub fn checksum_list(mut self, list: impl Into<PathBuf>) -> Self {
        self.settings.checksum = Some(KnownHash::In(list.into()));
        self
    }

    /// Requires the hash that the list at this URL has for the file, as
    /// [`checksum_list`](Self::checksum_list) does with a list in a file. The transfer fetches the list
    /// first. You vouch for the list by naming it: its server must be one that you trust.
    #[must_use]
    pub fn checksum_url(mut self, url: impl Into<String>) -> Self {
        self.settings.checksum_url = Some(url.into());
        self
    }

    /// Chooses the congestion controller by its name in [`controllers`], such as `lia`. A plus sign and a
    /// name of [`slow_starts`] replace its slow start: `lia+hystart`. HTTP servers have their own
    /// controllers, so over mirrors only a scavenger, `ledbat-pp`, has an effect.
    #[must_use]
    pub fn controller(mut self, name: impl Into<String>) -> Self {
        self.settings.controller = name.into();
        self
    }

    /// Yields to all other traffic and keeps queues short for it. The controller becomes `ledbat-pp`, a
    /// scavenger, both for mmTP and for the receive windows of HTTP connections. The transfer is slower while
    /// other traffic wants the link; otherwise it is nearly as fast as with another controller.
    #[must_use]
    pub fn background(self) -> Self {
        self.controller(BACKGROUND)
    }

    /// Says which paths may share a bottleneck, and so together take only the share of one TCP connection.
    /// The default is [`Groups::Auto`].
    #[must_use]
    pub fn groups(mut self, groups: Groups) -> Self {
        self.settings.groups = groups;
        self
    }

    /// Sets the time without any answer of a server after which the transfer gives up; it keeps the bytes
    /// that have arrived. The default is [`TIMEOUT`].
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// Sets the least time between two [`Event::Progress`](crate::Event::Progress). The default is 200 ms.
    #[must_use]
    pub const fn progress_every(mut self, interval: Duration) -> Self {
        self.settings.progress_every = interval;
        self
    }

    /// Adds a header field to HTTP requests. It is sent only to the servers that get [`user`](Self::user),
    /// because it may be a secret.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.http.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the name and password for the HTTP servers (scheme, host and port) of the URLs in [`Get::new`].
    /// Other servers do not get them: neither servers that these redirect to, nor servers that only a
    /// Metalink, a URI or another server names.
    #[must_use]
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.settings.http.user = Some((name.into(), password.into()));
        self
    }

    /// Takes names and passwords from this `.netrc` file. The servers that get [`user`](Self::user) get them.
    /// A machine in the file also gets its own over `https`, whether or not the user named it, unless any
    /// certificate is [believed](Self::insecure).
    #[must_use]
    pub fn netrc(mut self, file: impl Into<PathBuf>) -> Self {
        self.settings.http.netrc = Some(file.into());
        self
    }

    /// Sets the proxy for HTTP: `http://HOST:PORT`, `socks5://HOST:PORT`, `socks5h://HOST:PORT`, or an empty
    /// string for none. By default, the environment says which proxy is used.
    #[must_use]
    pub fn proxy(mut self, url: impl Into<String>) -> Self {
        self.settings.http.proxy = Some(url.into());
        self
    }

    /// Sets whether the variables `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy` of the environment
    /// choose the proxy. By default they do, as with curl and most HTTP libraries.
    #[must_use]
    pub const fn proxy_from_env(mut self, from_env: bool) -> Self {
        self.settings.http.proxy_from_env = from_env;
        self
    }

    /// Looks names up with `look_up` instead of asking the system. `look_up` takes a host and returns the
    /// host's addresses, with any port. It is called on separate threads, once for each name of a transfer,
    /// and again for a name whose look-up failed or whose addresses take no connection.
    #[must_use]
    pub fn resolver(
        mut self,
        look_up: impl Fn(&str) -> std::io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        self.settings.http.resolver = Resolver::new(look_up);
        self
    }

    /// Remembers in `directory/urls.jsonl` which content each URL had. If a server later gives an equal
    /// validator for a URL, the file counts as unchanged (trust on first use). URLs with a query, a name or a
    /// password are not written. By default nothing is remembered: a program's transfers leave no trace, and
    /// earlier transfers decide nothing. The `anabranch` command remembers in
    /// [`cache_dir`](crate::cache_dir).
    #[must_use]
    pub fn history(mut self, directory: impl Into<PathBuf>) -> Self {
        self.settings.history = History(Some(directory.into()));
        self
    }

    /// Fetches each URL as a separate file, named as in the URL, instead of taking all URLs as mirrors of one
    /// file. The files are fetched one after the other into one directory: the directory of
    /// [`to_directory`](Self::to_directory), or of [`to_output`](Self::to_output) if its path ends in a slash
    /// or is a directory, or else the current one. Each file has its own line of a
    /// [`checksum_list`](Self::checksum_list). [`Event::FileFinished`](crate::Event::FileFinished) reports
    /// how each file ended. A file that cannot be fetched does not stop the others; the transfer then ends
    /// with an error of the kind of the first such file.
    ///
    /// The transfer fails at once with [`ErrorKind::Usage`](crate::ErrorKind::Usage) if a name is not a URL,
    /// if two URLs have one file name, or if an option is for one file: `to_file`, `read`, `checksum`,
    /// `from_source`.
    #[must_use]
    pub const fn each(mut self) -> Self {
        self.settings.is_each = true;
        self
    }

    /// Believes the certificates in this PEM file, besides those of the system.
    #[must_use]
    pub fn ca_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.settings.http.ca_file = Some(file.into());
        self
    }

    /// Sets whether any certificate is believed: any host on the way may then pose as the server. Hashes are
    /// checked all the same.
    #[must_use]
    pub const fn insecure(mut self, insecure: bool) -> Self {
        self.settings.http.insecure = insecure;
        self
    }

    /// Runs transfers that are [started](Download::start) or [read](Self::read) on the threads of `client`,
    /// instead of one thread each. HTTP of [`Download::run`] also uses the client's threads.
    #[must_use]
    pub fn client(mut self, client: &Client) -> Self {
        self.settings.client = Some(client.clone());
        self
    }

    /// Fetches to exactly this path. A directory as content becomes this directory.
    #[must_use]
    pub fn to_file(&self, path: impl Into<PathBuf>) -> Download {
        self.download(Output::Path(path.into()))
    }

    /// Fetches into this directory, which must exist. The URI, the Metalink or the URL gives the name of the
    /// file.
    #[must_use]
    pub fn to_directory(&self, directory: impl Into<PathBuf>) -> Download {
        self.download(Output::Inside(directory.into()))
    }

    /// Fetches as command lines do: into `path` if it ends in a slash or, for a file, is a directory;
    /// otherwise to exactly `path`. `None` stands for the content's own name in the current directory.
    #[must_use]
    pub fn to_output(&self, path: Option<PathBuf>) -> Download {
        self.download(path.map_or(Output::Own, Output::Either))
    }

    /// Reads the file in order while it arrives, in bounded memory: to standard output, a pipe, or a
    /// decompressor. [`Reader`] says which bytes are verified and when.
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
    /// [`ErrorKind::System`](crate::ErrorKind::System) if no thread can be started. If the request is wrong,
    /// the first read fails: with [`ErrorKind::Usage`](crate::ErrorKind::Usage) if the content is a
    /// directory.
    pub fn read(&self) -> Result<Reader> {
        self.reader(Stop::new()?)
    }

    /// Fetches the bytes of a range of the file, from all servers that have the file, without the other
    /// bytes. Bytes behind the end of the file are left out, so the result may be shorter than the range. The
    /// result is held in memory.
    ///
    /// Where hashes of blocks or pieces are known, the bytes are verified, as
    /// [`get_ranges`](Self::get_ranges) reports. A hash of the whole file cannot verify a part of it.
    ///
    /// ```no_run
    /// let get = anabranch::Get::new(["https://a.example/f.zip", "https://b.example/f.zip"])?;
    /// let head = get.get_range(0..4)?;
    /// assert_eq!(head, b"PK\x03\x04");
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Download::run`]; [`ErrorKind::Usage`](crate::ErrorKind::Usage) for a directory.
    pub fn get_range(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let mut ranges = self.get_ranges(std::slice::from_ref(&range))?;
        Ok(ranges.bytes.pop().unwrap_or_default())
    }

    /// Fetches the bytes of several ranges of the file, in one transfer, as [`get_range`](Self::get_range)
    /// does. The ranges may overlap, and be in any order. Many short ranges come byte by byte if no hash of a
    /// part of the file is known; otherwise blocks of 16 KiB come, each once.
    ///
    /// # Errors
    /// The errors of [`get_range`](Self::get_range).
    pub fn get_ranges(&self, ranges: &[Range<u64>]) -> Result<Ranges> {
        self.start_ranges(ranges)?.wait()
    }

    /// Starts to fetch ranges as [`get_ranges`](Self::get_ranges) does, on a separate thread. With the
    /// feature `tokio` the handle is a `Future`. Dropping it stops the transfer.
    ///
    /// # Errors
    /// [`ErrorKind::System`](crate::ErrorKind::System) if no thread can be started.
    pub fn start_ranges(&self, ranges: &[Range<u64>]) -> Result<RangesTransfer> {
        self.ranges(Stop::new()?, ranges)
    }

    /// Fetches ranges as [`get_ranges`](Self::get_ranges) does, until `stop` is used by a signal handler or
    /// another thread.
    ///
    /// # Errors
    /// The errors of [`get_range`](Self::get_range). Soon after `stop` has been used,
    /// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted).
    pub fn get_ranges_stopped_by(&self, ranges: &[Range<u64>], stop: &Stop) -> Result<Ranges> {
        self.ranges(Stop::below(stop)?, ranges)?.wait()
    }

    fn ranges(&self, stop: Stop, ranges: &[Range<u64>]) -> Result<RangesTransfer> {
        let (blocks, transfer) = self.start_reading(stop, Selection::of_bytes(ranges))?;
        Ok(RangesTransfer::new(ranges.to_vec(), blocks, transfer))
    }

    /// Reads the file in order as [`read`](Self::read) does, until `stop` is used by a signal handler or
    /// another thread. Reads fail soon after that with
    /// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted).
    ///
    /// # Errors
    /// The errors of [`read`](Self::read).
    pub fn read_stopped_by(&self, stop: &Stop) -> Result<Reader> {
        self.reader(Stop::below(stop)?)
    }

    fn reader(&self, stop: Stop) -> Result<Reader> {
        let (blocks, transfer) = self.start_reading(stop, Selection::Whole)?;
        Ok(Reader::new(blocks, transfer))
    }

    /// Starts to fetch the wanted blocks, which are read in order.
    fn start_reading(&self, stop: Stop, selection: Selection) -> Result<(ReadHalf, Transfer)> {
        let download = self.download(Output::Path("-".into()));
        let (buffer, blocks) = reassembly_buffer::pair(stop.clone(), selection);
        let end = buffer.end_guard();
        let client = self.settings.client.clone();
        let transfer = Transfer::spawn(stop.clone(), client.as_ref(), move |listener| {
            let _end = end;
            download.run_until(stop, Some(buffer), listener)
        })?;
        Ok((blocks, transfer))
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
                let is_free = !controller.starts_with("bbr");
                assert_eq!(request(&format!("{controller}+{start}")).is_ok(), is_free, "{controller}");
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
