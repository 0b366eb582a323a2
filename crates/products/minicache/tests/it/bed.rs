//! Images, servers, and a client of few words.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anabranch_cache::digest::{HashKind, Hasher};
use anabranch_minicache::image::{Described, Image, Use, Writer};
use anabranch_minicache::layout::{Layout, Text};
use anabranch_minicache::name::Name;
use anabranch_minicache::serve::{Origins, Serving, Settings};
use tempfile::TempDir;

/// Returns bytes of this length that differ from block to block.
pub(crate) fn bytes(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|n| (n * 31 + (n >> 8) * 7 + (n >> 16)) as u8 ^ seed).collect()
}

/// Returns the path of an object with these bytes.
pub(crate) fn path_of(bytes: &[u8]) -> String {
    let mut hasher = Hasher::new(HashKind::Sha256);
    hasher.update(bytes);
    format!("/{}", hasher.finish())
}

/// Returns the BLAKE3 name of these bytes.
pub(crate) fn root_of(bytes: &[u8]) -> Name {
    Name::Root(*blake3::hash(bytes).as_bytes())
}

/// Puts an object into an image; returns its slot.
pub(crate) fn put(image: &Arc<Image>, bytes: &[u8]) -> u32 {
    let mut writer = Writer::begin(image, bytes.len() as u64, HashKind::Sha256, false).unwrap();
    bytes.chunks(100_000).for_each(|part| writer.write(part).unwrap());
    let media_type = Text::new("text/x-test").unwrap();
    writer.finish(None, Described { media_type, label: Text::default() }).unwrap()
}

/// An image in a directory of its own.
pub(crate) struct Ground {
    dir: TempDir,
}

impl Ground {
    /// Makes an image with this many chunks of 64 KiB and these objects.
    pub(crate) fn new(chunks: u64, objects: &[&[u8]]) -> Self {
        let ground = Self { dir: TempDir::new().unwrap() };
        let image = Image::create(&ground.path(), Layout::new(64, 65_536, chunks).unwrap()).unwrap();
        let image = Arc::new(image);
        for bytes in objects {
            put(&image, bytes);
        }
        ground
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    /// Changes a byte of the object that has these bytes.
    pub(crate) fn damage(&self, bytes: &[u8], at: u64) {
        let image = Image::open(&self.path(), Use::Read).unwrap();
        let found = image.table().find(&root_of(bytes)).unwrap();
        let place = image.layout().chunk_at(found.first_chunk) + at;
        drop(image);
        let file = std::fs::File::options().write(true).open(self.path()).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[bytes[at as usize] ^ 1], place).unwrap();
    }
}

/// A server of an image, and what it told.
pub(crate) struct Site {
    pub(crate) serving: Serving,
    pub(crate) told: Arc<Mutex<Vec<String>>>,
}

impl Site {
    pub(crate) fn start(path: &Path, origins: &[String]) -> Self {
        let purpose = if origins.is_empty() { Use::Read } else { Use::Write };
        let image = Image::open(path, purpose).unwrap();
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let telling = Arc::clone(&told);
        let mmtp = Some("127.0.0.1:0".parse().unwrap());
        let settings = Settings { origins: Origins::new(origins.to_vec()), mmtp, ..Settings::default() };
        let serving = Serving::start(image, &socket, settings, move |event| {
            telling.lock().unwrap().push(event.to_string());
        });
        Self { serving: serving.unwrap(), told }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.serving.address()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    pub(crate) fn told(&self) -> String {
        self.told.lock().unwrap().join("\n")
    }
}

/// An answer: the status, the lines of the head in lower case, and as much of the body as came.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the value of a field, or an empty text.
    pub(crate) fn field(&self, name: &str) -> &str {
        let line = self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_default()
    }
}

/// A connection that stays open.
pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self(BufReader::new(stream))
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    /// Asks for a path with further lines of the head.
    pub(crate) fn ask(&mut self, method: &str, path: &str, fields: &str) -> Answer {
        self.send(format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n").as_bytes());
        self.answer(method == "HEAD")
    }

    /// Reads the head of an answer; an empty one if the connection ends.
    pub(crate) fn head(&mut self) -> Answer {
        let mut head = String::new();
        loop {
            let mut line = String::new();
            let read = self.0.read_line(&mut line).unwrap_or(0);
            if read == 0 || line == "\r\n" {
                break;
            }
            head += &line.to_ascii_lowercase();
        }
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Answer { status, head, body: Vec::new() }
    }

    /// Reads an answer.
    pub(crate) fn answer(&mut self, is_head: bool) -> Answer {
        let mut answer = self.head();
        let length = answer.field("content-length").trim().parse().unwrap_or(0);
        if !is_head && answer.status != 304 {
            let _ = self.0.by_ref().take(length).read_to_end(&mut answer.body);
        }
        answer
    }

    /// Reads up to `out.len()` bytes; returns fewer at the end.
    pub(crate) fn read(&mut self, out: &mut [u8]) -> usize {
        let mut done = 0;
        while done < out.len() {
            match self.0.read(&mut out[done..]) {
                Ok(read) if read > 0 => done += read,
                Ok(_) | Err(_) => break,
            }
        }
        done
    }
}

/// Asks on a connection of its own.
pub(crate) fn get(address: SocketAddr, path: &str) -> Answer {
    Client::connect(address).ask("GET", path, "Connection: close\r\n")
}
