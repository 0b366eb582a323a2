//! A web server of one file for tests, which sends at a rate.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// A server of one file under every path.
pub(crate) struct Origin {
    address: SocketAddr,
    rate: Arc<AtomicU64>,
    /// The bytes that have been sent.
    pub(crate) sent: Arc<AtomicU64>,
}

impl Origin {
    /// Serves `content` on a free port of loopback at `rate` bytes a second for each connection.
    pub(crate) fn start(content: Vec<u8>, rate: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let address = listener.local_addr().expect("an address");
        let (rate, sent) = (Arc::new(AtomicU64::new(rate)), Arc::new(AtomicU64::new(0)));
        let (content, own, counted) = (Arc::new(content), Arc::clone(&rate), Arc::clone(&sent));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (content, rate, sent) = (Arc::clone(&content), Arc::clone(&own), Arc::clone(&counted));
                // A client that goes away ends it.
                thread::spawn(move || serve(&stream, &content, &rate, &sent));
            }
        });
        Self { address, rate, sent }
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    pub(crate) fn set_rate(&self, rate: u64) {
        self.rate.store(rate, Ordering::Relaxed);
    }
}

fn serve(stream: &TcpStream, content: &[u8], rate: &AtomicU64, sent: &AtomicU64) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    loop {
        let mut range = None;
        let first = lines.next()?.ok()?;
        loop {
            let line = lines.next()?.ok()?.to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("range: bytes=") {
                let (from, to) = value.split_once('-')?;
                range = Some((from.parse::<usize>().ok()?, to.parse::<usize>().ok()? + 1));
            }
            if line.is_empty() {
                break;
            }
        }
        let mut writer = stream;
        if first.contains("/none") {
            writer.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").ok()?;
            continue;
        }
        let (from, to) = range.unwrap_or((0, content.len()));
        let (from, to) = (from.min(content.len()), to.min(content.len()));
        let head = format!(
            "HTTP/1.1 206 Partial Content\r\nETag: \"1\"\r\nContent-Range: bytes {from}-{}/{}\r\n\
             Content-Length: {}\r\n\r\n",
            to.saturating_sub(1),
            content.len(),
            to - from
        );
        writer.write_all(head.as_bytes()).ok()?;
        for piece in content[from..to].chunks(8_192) {
            writer.write_all(piece).ok()?;
            sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
            let rate = rate.load(Ordering::Relaxed).max(1);
            thread::sleep(Duration::from_nanos(piece.len() as u64 * 1_000_000_000 / rate));
        }
    }
}
