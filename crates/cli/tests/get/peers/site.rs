//! A web server of one file, whose answers a test can change in ways that no honest server would.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anabranch_http::client::METADATA_BYTES;

/// The path of the file.
pub(crate) const PATH: &str = "/f.bin";

/// Returns an address at which no process listens any more.
pub(crate) fn gone() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").expect("a socket").local_addr().expect("an address")
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The path of the URL.
    pub(crate) path: String,
    /// The header fields, with names in lower case.
    pub(crate) fields: Vec<(String, String)>,
    /// The number of earlier requests for bytes of the file.
    pub(crate) number: usize,
    /// The address of the client.
    pub(crate) from: SocketAddr,
}

impl Request {
    /// Returns the value of a header field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns the requested range of bytes.
    pub(crate) fn range(&self) -> Option<Range<usize>> {
        let (first, last) = self.field("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some(first.parse().ok()?..last.parse::<usize>().ok()? + 1)
    }

    /// Whether the request is for bytes, not for the metadata alone.
    pub(crate) fn is_for_bytes(&self) -> bool {
        self.range() != Some(0..METADATA_BYTES as usize)
    }
}

/// How the server treats the connection after a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Waits for the next request.
    Keep,
    /// Closes the connection.
    Close,
    /// Does nothing, and keeps the connection open.
    Stall,
    /// Does nothing, and has not sent an answer either.
    Mute,
}

/// The path of a page where people are to log in.
pub(crate) const LOGIN: &str = "/login";

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    /// The status code.
    pub(crate) status: u16,
    /// The header fields except for the length.
    pub(crate) fields: Vec<(&'static str, String)>,
    /// The value of `Content-Length`, if it is not the body's length.
    pub(crate) length: Option<usize>,
    /// The body.
    pub(crate) body: Vec<u8>,
    /// The rate in bytes per second; below 1,000, bytes are sent one by one.
    pub(crate) rate: u64,
    /// How the server treats the connection after the body.
    pub(crate) then: Then,
}

impl Reply {
    /// Makes an answer without header fields.
    pub(crate) fn new(status: u16, body: &[u8]) -> Self {
        Self {
            status,
            fields: Vec::new(),
            length: None,
            body: body.to_vec(),
            rate: u64::MAX,
            then: Then::Keep,
        }
    }

    /// Sets a header field, or replaces its value.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.retain(|(key, _)| *key != name);
        self.fields.push((name, value.into()));
        self
    }

    /// Sends the body in chunks, so that its length is not known.
    pub(crate) fn chunked(self) -> Self {
        self.with("transfer-encoding", "chunked")
    }

    /// Removes a header field.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.fields.retain(|(key, _)| *key != name);
        self
    }

    /// Sends only the first `bytes` bytes of the body, and then does `then`. `Content-Length` is still the
    /// length of the whole body.
    pub(crate) fn cut(mut self, bytes: usize, then: Then) -> Self {
        self.length = Some(self.body.len());
        self.body.truncate(bytes);
        Self { then, ..self }
    }

    /// Limits the rate, in bytes per second.
    pub(crate) fn at(mut self, rate: u64) -> Self {
        self.rate = rate;
        self
    }
}

/// Returns the answer of an honest server to a request for the file.
pub(crate) fn honest(request: &Request, content: &[u8], etag: &str) -> Reply {
    let fresh = request.field("if-range").is_none_or(|wanted| wanted == etag);
    let reply = match request.range().filter(|_| fresh) {
        Some(range) if range.start < content.len() => {
            let (start, end) = (range.start, range.end.min(content.len()));
            Reply::new(206, &content[start..end])
                .with("content-range", format!("bytes {start}-{}/{}", end - 1, content.len()))
        }
        _ => Reply::new(200, content),
    };
    reply.with("accept-ranges", "bytes").with("content-type", "application/octet-stream").with("etag", etag)
}

/// Returns other bytes of the same length, all of them wrong.
pub(crate) fn wrong(content: &[u8]) -> Vec<u8> {
    content.iter().map(|byte| byte ^ 0x55).collect()
}

/// A switch that changes the behaviour of servers that share it.
#[derive(Clone, Default)]
pub(crate) struct Switch(Arc<AtomicBool>);

impl Switch {
    /// Turns the switch on or off.
    pub(crate) fn set(&self, is_turned: bool) {
        self.0.store(is_turned, Ordering::Relaxed);
    }

    /// Whether the switch is on.
    pub(crate) fn is_turned(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Makes a server of these bytes, at this rate, that falls silent after requests for `bytes` bytes, until
    /// the switch is on.
    pub(crate) fn silent_after(&self, bytes: usize, content: &[u8], rate: u64) -> Site {
        let (switch, asked) = (self.clone(), AtomicUsize::new(0));
        Site::new(content, move |request, reply| {
            let reply = reply.at(rate);
            let asked = request.is_for_bytes().then(|| asked.fetch_add(reply.body.len(), Ordering::Relaxed));
            match !switch.is_turned() && asked > Some(bytes) {
                true => reply.cut(0, Then::Stall),
                false => reply,
            }
        })
    }
}

struct Shared {
    answer: Box<dyn Fn(&Request) -> Reply + Send + Sync>,
    stop: AtomicBool,
    gets: AtomicUsize,
    body_bytes: AtomicU64,
    seen: Mutex<Vec<Request>>,
}

/// A server on loopback, which ends when this is dropped.
pub(crate) struct Site {
    /// The address at which the server listens.
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

impl Site {
    /// Offers `content`. Each answer about the file goes through `twist`.
    pub(crate) fn new(
        content: &[u8],
        twist: impl Fn(&Request, Reply) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let content = content.to_vec();
        Self::answering(move |request| match request.path.as_str() {
            PATH => twist(request, honest(request, &content, "\"v1\"")),
            LOGIN => Reply::new(200, b"<html>log in first</html>").with("content-type", "text/html"),
            _ => Reply::new(404, b"no such file"),
        })
    }

    /// Answers every request with `answer`.
    pub(crate) fn answering(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let address = listener.local_addr().expect("an address");
        listener.set_nonblocking(true).expect("a mode");
        let shared = Arc::new(Shared {
            answer: Box::new(answer),
            stop: AtomicBool::new(false),
            gets: AtomicUsize::new(0),
            body_bytes: AtomicU64::new(0),
            seen: Mutex::new(Vec::new()),
        });
        let mine = Arc::clone(&shared);
        thread::spawn(move || {
            while !mine.stop.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        let theirs = Arc::clone(&mine);
                        thread::spawn(move || theirs.talk(stream));
                    }
                    Err(_) => thread::sleep(Duration::from_millis(1)),
                }
            }
        });
        Self { address, shared }
    }

    /// Makes an honest server.
    pub(crate) fn good(content: &[u8]) -> Self {
        Self::new(content, |_, reply| reply)
    }

    /// Makes a server that does not tell the length of its file.
    pub(crate) fn untold(content: &[u8]) -> Self {
        let content = content.to_vec();
        Self::new(&content.clone(), move |_, _| Reply::new(200, &content).chunked().at(20_000_000))
    }

    /// Makes an honest server that sends each body at this rate, in bytes per second.
    pub(crate) fn slow(content: &[u8], rate: u64) -> Self {
        Self::new(content, move |_, reply| reply.at(rate))
    }

    /// Returns the URL of the file.
    pub(crate) fn url(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }

    /// Returns the name of the server in a summary.
    pub(crate) fn name(&self) -> String {
        self.address.to_string()
    }

    /// Returns the number of body bytes sent.
    pub(crate) fn body_bytes(&self) -> u64 {
        self.shared.body_bytes.load(Ordering::Relaxed)
    }

    /// Returns all requests so far.
    pub(crate) fn seen(&self) -> MutexGuard<'_, Vec<Request>> {
        self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn talk(&self, stream: TcpStream) {
        // Reads and writes have time-outs, so that the thread ends with its site.
        stream.set_nonblocking(false).expect("a mode");
        stream.set_nodelay(true).expect("an option");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        stream.set_write_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        let mut reader = BufReader::new(stream.try_clone().expect("a copy"));
        while let Some(request) = self.read(&mut reader) {
            self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
            let reply = (self.answer)(&request);
            if self.stop.load(Ordering::Relaxed) || !self.send(&stream, &reply) {
                return;
            }
        }
    }

    fn read(&self, reader: &mut BufReader<TcpStream>) -> Option<Request> {
        let mut line = String::new();
        let mut words = match reader.read_line(&mut line) {
            Ok(1..) => line.split(' '),
            _ => return None,
        };
        let (_, path) = (words.next()?, words.next()?.to_owned());
        let mut fields = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.split_once(':') else { break };
            fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut request = Request { path, fields, number: 0, from: reader.get_ref().peer_addr().ok()? };
        if request.is_for_bytes() && request.path == PATH {
            request.number = self.gets.fetch_add(1, Ordering::Relaxed);
        }
        Some(request)
    }

    /// Sends an answer. Returns whether the connection goes on.
    fn send(&self, mut stream: &TcpStream, reply: &Reply) -> bool {
        if reply.then == Then::Mute {
            return self.idle();
        }
        let length = reply.length.unwrap_or(reply.body.len());
        let mut head = format!("HTTP/1.1 {} Words\r\n", reply.status);
        let is_chunked = reply.fields.iter().any(|(name, _)| *name == "transfer-encoding");
        if !is_chunked && reply.fields.iter().all(|(name, _)| *name != "content-length") {
            head += &format!("content-length: {length}\r\n");
        }
        for (name, value) in &reply.fields {
            head += &format!("{name}: {value}\r\n");
        }
        head += "\r\n";
        if stream.write_all(head.as_bytes()).is_err() {
            return false;
        }
        for piece in reply.body.chunks(if reply.rate < 1_000 { 1 } else { 16 << 10 }) {
            if reply.rate < u64::MAX {
                let pause = Duration::from_secs_f64(piece.len() as f64 / reply.rate as f64);
                thread::sleep(pause);
            }
            let framed = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
            let sent = if is_chunked { &framed } else { piece };
            if self.stop.load(Ordering::Relaxed) || stream.write_all(sent).is_err() {
                return false;
            }
            self.body_bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
        }
        if reply.then == Then::Stall {
            return self.idle();
        }
        let is_whole = is_chunked && reply.length.is_none();
        reply.then == Then::Keep && (!is_whole || stream.write_all(b"0\r\n\r\n").is_ok())
    }

    /// Does nothing until the site is dropped.
    fn idle(&self) -> bool {
        while !self.stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(10));
        }
        false
    }
}
