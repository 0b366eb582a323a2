//! A cache between a scripted origin and a client of few words.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anabranch_cache::config::Config;
use anabranch_cache::digest::{HashKind, Hasher};
use anabranch_cache::gateway::{Event, Gateway};
use tempfile::TempDir;

/// Returns bytes of this length that differ from block to block.
pub(crate) fn bytes(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|n| (n * 31 + (n >> 8) * 7 + (n >> 16)) as u8 ^ seed).collect()
}

/// Returns the SHA-256 of bytes as hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    let mut hasher = Hasher::new(HashKind::Sha256);
    hasher.update(bytes);
    hasher.finish().to_string().trim_start_matches("sha256:").to_owned()
}

/// A file of an origin.
#[derive(Clone, Default)]
pub(crate) struct Page {
    pub(crate) body: Vec<u8>,
    /// Further lines of the head.
    pub(crate) fields: Vec<String>,
    pub(crate) etag: Option<String>,
    /// The pause after each 64 KiB.
    pub(crate) pause: Duration,
    /// Where the bytes are instead.
    pub(crate) moved_to: Option<String>,
    /// The value of `Authorization` without which the page is refused.
    pub(crate) wants: Option<String>,
}

impl Page {
    pub(crate) fn new(body: impl Into<Vec<u8>>) -> Self {
        Self { body: body.into(), ..Self::default() }
    }

    pub(crate) fn with(mut self, field: &str) -> Self {
        self.fields.push(field.to_owned());
        self
    }
}

/// A web server with ranges and validators, which counts what it is asked for.
#[derive(Clone)]
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    pages: Arc<Mutex<BTreeMap<String, Page>>>,
    /// The requests: path, and `Range`, `If-None-Match` if they were sent.
    log: Arc<Mutex<Vec<String>>>,
    is_away: Arc<AtomicBool>,
    /// The bytes of bodies that it has sent.
    sent: Arc<AtomicU64>,
}

impl Origin {
    pub(crate) fn start() -> Self {
        Self::start_at("127.0.0.1")
    }

    /// Starts at an address of this host.
    pub(crate) fn start_at(ip: &str) -> Self {
        let listener = TcpListener::bind((ip, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (pages, log, is_away, sent) = Default::default();
        let origin = Self { address, pages, log, is_away, sent };
        let server = origin.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let server = server.clone();
                thread::spawn(move || server.serve(&stream.unwrap()));
            }
        });
        origin
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn put(&self, path: &str, page: Page) {
        self.pages.lock().unwrap().insert(path.to_owned(), page);
    }

    /// Adds a page that is the answer to its path with any query.
    pub(crate) fn put_any_query(&self, path: &str, page: Page) {
        self.put(&format!("{path}?"), page);
    }

    pub(crate) fn remove(&self, path: &str) {
        self.pages.lock().unwrap().remove(path);
    }

    /// Makes the origin fail, or work again.
    pub(crate) fn set_away(&self, away: bool) {
        self.is_away.store(away, Ordering::SeqCst);
    }

    /// Returns the bytes of bodies that it has sent so far.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }

    /// Returns the requests for a path so far.
    pub(crate) fn asked(&self, path: &str) -> Vec<String> {
        let log = self.log.lock().unwrap();
        log.iter().filter(|line| line.split(' ').next() == Some(path)).cloned().collect()
    }

    /// Returns all requests so far.
    pub(crate) fn asked_all(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    fn serve(&self, stream: &TcpStream) {
        let mut from = BufReader::new(stream);
        loop {
            let mut lines = Vec::new();
            for line in from.by_ref().lines() {
                match line {
                    Ok(line) if line.is_empty() => break,
                    Ok(line) => lines.push(line),
                    Err(_) => return,
                }
            }
            // The body of a request is read, and means nothing.
            let length = lines
                .iter()
                .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
            let _ = std::io::copy(&mut from.by_ref().take(length.unwrap_or(0)), &mut std::io::sink());
            let Some(path) = lines.first().and_then(|line| line.split(' ').nth(1)) else { return };
            let field = |name: &str| {
                let of = |line: &String| {
                    line.split_once(": ").map(|(n, v)| (n.to_ascii_lowercase(), v.to_owned()))
                };
                lines.iter().filter_map(of).find(|(n, _)| n == name).map(|(_, value)| value)
            };
            let (range, tag, secret) = (field("range"), field("if-none-match"), field("authorization"));
            let told = [&range, &tag]
                .into_iter()
                .flatten()
                .fold(path.to_owned(), |line, field| format!("{line} {field}"));
            self.log.lock().unwrap().push(told);
            if self.answer(stream, path, [&range, &tag, &secret].map(Option::as_deref)).is_none() {
                return;
            }
        }
    }

    fn answer(
        &self,
        mut stream: &TcpStream,
        path: &str,
        [range, tag, secret]: [Option<&str>; 3],
    ) -> Option<()> {
        if self.is_away.load(Ordering::SeqCst) {
            stream.write_all(b"HTTP/1.1 500 Away\r\nContent-Length: 0\r\n\r\n").ok()?;
            return Some(());
        }
        let found = {
            let pages = self.pages.lock().unwrap();
            let any_query = || pages.get(&format!("{}?", path.split_once('?')?.0));
            pages.get(path).or_else(any_query).cloned()
        };
        let Some(page) = found else {
            stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").ok()?;
            return Some(());
        };
        if page.wants.is_some() && page.wants.as_deref() != secret {
            stream.write_all(b"HTTP/1.1 401 Who\r\nContent-Length: 0\r\n\r\n").ok()?;
            return Some(());
        }
        let etag = page.etag.as_ref().map_or_else(String::new, |etag| format!("ETag: {etag}\r\n"));
        let fields: String = page.fields.iter().fold(etag, |all, field| all + field + "\r\n");
        if tag.is_some() && tag == page.etag.as_deref() {
            stream.write_all(format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n").as_bytes()).ok()?;
            return Some(());
        }
        if let Some(to) = &page.moved_to {
            let head = format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\n{fields}Content-Length: 0\r\n\r\n");
            stream.write_all(head.as_bytes()).ok()?;
            return Some(());
        }
        let length = page.body.len();
        let part = range.and_then(|range| {
            let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
            Some((first.parse::<usize>().ok()?, last.parse::<usize>().ok()?.min(length.checked_sub(1)?)))
        });
        let (from, to) = part.map_or((0, length), |(first, last)| (first, last + 1));
        let mut head = match part {
            Some((first, last)) => {
                format!("HTTP/1.1 206 Part\r\nContent-Range: bytes {first}-{last}/{length}\r\n")
            }
            None => "HTTP/1.1 200 OK\r\n".to_owned(),
        };
        let _ = write!(head, "Accept-Ranges: bytes\r\nContent-Length: {}\r\n{fields}\r\n", to - from);
        stream.write_all(head.as_bytes()).ok()?;
        for part in page.body[from..to].chunks(64 << 10) {
            stream.write_all(part).ok()?;
            self.sent.fetch_add(part.len() as u64, Ordering::SeqCst);
            thread::sleep(page.pause);
        }
        Some(())
    }
}

/// A running cache with its store.
pub(crate) struct Cache {
    gateway: Gateway,
    pub(crate) dir: TempDir,
    pub(crate) events: Arc<Mutex<Vec<Event>>>,
}

impl Cache {
    /// Starts a cache with a route: its path, its preset and its sources.
    pub(crate) fn start(at: &str, preset: &str, sources: &[&Origin]) -> Self {
        Self::start_in(TempDir::new().unwrap(), at, preset, sources, "")
    }

    /// Starts a cache with a store that is there already, and more lines for its route.
    pub(crate) fn start_in(dir: TempDir, at: &str, preset: &str, sources: &[&Origin], path: &str) -> Self {
        let sources: Vec<String> = sources.iter().map(|origin| format!("{}{path}", origin.url())).collect();
        Self::of_urls(dir, at, preset, &sources)
    }

    /// Starts a cache with a source that is no scripted origin.
    pub(crate) fn of_url(dir: TempDir, at: &str, preset: &str, source: &str) -> Self {
        Self::of_urls(dir, at, preset, &[source.to_owned()])
    }

    fn of_urls(dir: TempDir, at: &str, preset: &str, sources: &[String]) -> Self {
        Self::with_settings(dir, at, preset, sources, ["", ""])
    }

    /// Starts a cache with more settings, of its own and of its route.
    pub(crate) fn with_settings(
        dir: TempDir,
        at: &str,
        preset: &str,
        sources: &[String],
        [own, of_route]: [&str; 2],
    ) -> Self {
        let sources: Vec<String> = sources.iter().map(|source| format!("\"{source}\"")).collect();
        let text = format!(
            "listen = \"127.0.0.1:0\"\ndirectory = \"{}\"\ncapacity = \"1GB\"\n{own}\n[[route]]\n\
             at = \"{at}\"\npreset = \"{preset}\"\nsources = [{}]\n{of_route}\n",
            dir.path().join("store").display(),
            sources.join(", ")
        );
        let events: Arc<Mutex<Vec<Event>>> = Arc::default();
        let heard = Arc::clone(&events);
        let config = Config::parse(&text).unwrap();
        let gateway = Gateway::start(config, move |event| heard.lock().unwrap().push(event.clone())).unwrap();
        Self { gateway, dir, events }
    }

    /// Ends the cache, and returns its store.
    pub(crate) fn stop(self) -> TempDir {
        let Self { gateway, dir, .. } = self;
        drop(gateway);
        dir
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.gateway.addresses()[0]
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    /// Asks for a path.
    pub(crate) fn get(&self, path: &str) -> Answer {
        ask(self.address(), "GET", path, "")
    }

    /// Asks for a path with further lines, each with its end.
    pub(crate) fn ask(&self, method: &str, path: &str, fields: &str) -> Answer {
        ask(self.address(), method, path, fields)
    }

    /// Returns a number of the page of numbers.
    pub(crate) fn number(&self, name: &str) -> u64 {
        let text = String::from_utf8(self.get("/status").body).unwrap();
        let rest = text.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{name}: {text}")).1;
        rest.split([',', '}']).next().unwrap().parse().unwrap()
    }

    /// Waits until the store has so many objects: an answer may end before its object is synced.
    pub(crate) fn wait_until_stored(&self, objects: u64) {
        for _ in 0..2_000 {
            if self.number("objects") >= objects {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("{} of {objects} objects", self.number("objects"));
    }

    /// Returns the files of whole objects.
    pub(crate) fn files(&self) -> Vec<std::path::PathBuf> {
        let list = |path: &Path| -> Vec<_> {
            std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect()
        };
        list(&self.dir.path().join("store/objects")).iter().flat_map(|path| list(path)).collect()
    }
}

/// What a server answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.into_iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Whether all bytes came that the head says.
    pub(crate) fn is_whole(&self) -> bool {
        self.field("content-length").and_then(|length| length.parse().ok()) == Some(self.body.len())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Asks a server for a path on a connection of its own.
pub(crate) fn ask(address: SocketAddr, method: &str, path: &str, fields: &str) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    let end = all.windows(4).position(|window| window == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8(all[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head, body: all.split_off(end + 4) }
}
