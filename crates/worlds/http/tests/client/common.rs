//! Shared by the client's tests: a hand-written server, which may do anything, and a fetch with its outcome.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anabranch_http::client::{Client, Event, FetchError, FetchRequest, Head, Options, RequestKind};
use anabranch_net::Egress;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Returns the file that the servers have, of this length.
pub(crate) fn file(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 31 + (n >> 8) * 7 + (n >> 16)) as u8).collect()
}

/// The head of a request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) line: String,
    fields: Vec<(String, String)>,
}

impl Request {
    pub(crate) fn read(from: &mut BufReader<TcpStream>) -> Option<Self> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if from.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim_end().to_owned();
            if line.is_empty() {
                break;
            }
            lines.push(line);
        }
        let fields = lines[1..].iter().filter_map(|line| line.split_once(": "));
        let fields = fields.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        Some(Self { line: lines[0].clone(), fields })
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn path(&self) -> &str {
        self.line.split(' ').nth(1).unwrap()
    }

    /// Returns the first and the last byte that the request asks for.
    pub(crate) fn range(&self) -> Option<(usize, usize)> {
        let (first, last) = self.field("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().unwrap(), last.parse().unwrap()))
    }
}

/// A server whose answers are made by a function.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Calls `answer` for each request, each connection on its own thread, until `answer` returns `false`.
    pub(crate) fn start(answer: impl Fn(&Request, &mut TcpStream) -> bool + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, requests) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (count, log, answer) = (Arc::clone(&connections), Arc::clone(&requests), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming() {
                count.fetch_add(1, Ordering::SeqCst);
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    let mut from = BufReader::new(stream.try_clone().unwrap());
                    while let Some(request) = Request::read(&mut from) {
                        log.lock().unwrap().push(request.clone());
                        if !answer(&request, &mut stream) {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, connections, requests }
    }

    /// Calls `serve` for each connection, with the connection's number, its reader and its writer.
    pub(crate) fn script(
        serve: impl Fn(usize, &mut BufReader<TcpStream>, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, serve) = (Arc::new(AtomicUsize::new(0)), Arc::new(serve));
        let count = Arc::clone(&connections);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let number = count.fetch_add(1, Ordering::SeqCst);
                let serve = Arc::clone(&serve);
                thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    let mut from = BufReader::new(stream.try_clone().unwrap());
                    serve(number, &mut from, &mut stream);
                });
            }
        });
        Self { address, connections, requests: Arc::default() }
    }

    /// Always answers `text` and closes the connection. Each `\n` in the head stands for CRLF.
    pub(crate) fn says(text: &'static str) -> Self {
        Self::start(move |_, stream| {
            let (head, body) = text.split_once("\n\n").unwrap();
            let _ = write!(stream, "{}\r\n\r\n{body}", head.replace('\n', "\r\n"));
            false
        })
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

/// Answers a range as a correct server does.
pub(crate) fn partial(request: &Request, to: &mut TcpStream, file: &[u8], more: &str) -> bool {
    let fields = format!("ETag: \"one\"\r\nAccept-Ranges: bytes\r\n{more}");
    let sent = match request.range() {
        Some((first, _)) if first >= file.len() => {
            let all = file.len();
            write!(to, "HTTP/1.1 416 No\r\nContent-Range: bytes */{all}\r\nContent-Length: 0\r\n{fields}\r\n")
        }
        Some((first, last)) => {
            let last = last.min(file.len() - 1);
            let (bytes, all) = (last + 1 - first, file.len());
            let range = format!("Content-Range: bytes {first}-{last}/{all}\r\nContent-Length: {bytes}\r\n");
            write!(to, "HTTP/1.1 206 Partial\r\n{range}{fields}\r\n")
                .and_then(|()| to.write_all(&file[first..=last]))
        }
        None => write!(to, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{fields}\r\n", file.len())
            .and_then(|()| to.write_all(file)),
    };
    sent.is_ok()
}

/// Starts a server that has `file` and does everything right.
pub(crate) fn good(file: Vec<u8>) -> Server {
    Server::start(move |request, stream| partial(request, stream, &file, ""))
}

/// Options without the environment's proxies and with a short idle timeout.
pub(crate) fn options() -> Options {
    Options { proxy: Some(String::new()), idle_timeout: Duration::from_secs(20), ..Options::default() }
}

pub(crate) fn client() -> Client {
    Client::start(options()).unwrap()
}

pub(crate) fn fetch_request(url: &str, kind: RequestKind) -> FetchRequest {
    FetchRequest { route: 0, via: Egress::any(), url: url.to_owned(), trusted: true, kind }
}

pub(crate) fn range(url: &str, first: u64, end: u64, length: u64) -> FetchRequest {
    fetch_request(
        url,
        RequestKind::Range { first, end, length, validator: None, modified: None, seen_at: None },
    )
}

/// Waits until there are events.
pub(crate) fn wait(client: &Client) {
    let fd = client.fd();
    let mut set = [PollFd::new(fd, PollFlags::POLLIN)];
    assert_eq!(poll(&mut set, PollTimeout::from(60_000_u16)), Ok(1), "an event within a minute");
}

/// Waits until a fetch has ended and returns its outcome.
pub(crate) fn outcome(client: &mut Client, id: u64) -> Result<(Head, Vec<u8>), FetchError> {
    let (mut head, mut bytes, mut end) = (None, Vec::new(), None);
    while end.is_none() {
        wait(client);
        client.events(|event| match event {
            Event::Head { id: of, head: new } if of == id => {
                assert!(head.replace(*new).is_none(), "one head");
            }
            Event::Body { id: of, bytes: more } if of == id => {
                assert!(head.is_some() && end.is_none() && !more.is_empty());
                bytes.extend_from_slice(&more);
            }
            Event::Opening { id: of, bytes: opening } if of == id => {
                assert!(head.is_some() && end.is_none() && bytes.is_empty());
                bytes.extend_from_slice(&opening);
            }
            Event::Done { id: of } if of == id => end = Some(Ok(())),
            Event::Failed { id: of, error } if of == id => end = Some(Err(error)),
            Event::Sample { .. } => {}
            other => panic!("{other:?} is not of fetch {id}"),
        });
    }
    end.unwrap().map(|()| (head.expect("a head before the end"), bytes))
}

/// Does one fetch from start to end.
pub(crate) fn fetch(
    client: &mut Client,
    id: u64,
    request: FetchRequest,
) -> Result<(Head, Vec<u8>), FetchError> {
    client.fetch(id, request);
    outcome(client, id)
}

/// Waits until `count` fetches have ended and returns their outcomes in the order in which they ended. The
/// events of two fetches must not mix.
pub(crate) fn outcomes(client: &mut Client, count: usize) -> Vec<(u64, Result<Vec<u8>, FetchError>)> {
    let mut ended = Vec::new();
    let mut current: Option<(u64, Vec<u8>)> = None;
    while ended.len() < count {
        wait(client);
        client.events(|event| match event {
            Event::Head { id, .. } => {
                assert!(current.is_none(), "a head of {id} before the end of {current:?}");
                current = Some((id, Vec::new()));
            }
            Event::Body { id, bytes } | Event::Opening { id, bytes } => {
                let (of, all) = current.as_mut().expect("a head before the body");
                assert_eq!(*of, id);
                all.extend_from_slice(&bytes);
            }
            Event::Done { id } => {
                let (of, all) = current.take().expect("a head before the end");
                assert_eq!(of, id);
                ended.push((id, Ok(all)));
            }
            Event::Failed { id, error } => {
                assert!(current.take().is_none_or(|(of, _)| of == id));
                ended.push((id, Err(error)));
            }
            Event::Sample { .. } => {}
        });
    }
    ended
}
