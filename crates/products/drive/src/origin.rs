//! The server of the tests: a small web server and echoes, in threads of one process.
//!
//! It speaks HTTP/1.1 as curl, git and players do: GET, HEAD, PUT and POST with a length, connections that
//! are kept, `Expect: 100-continue`. It knows four places: `/bytes/N` are N bytes; `/site/K/I` is object I of
//! site K ([`sites`]); `/upload` takes a body; `/files/` are the files of a directory.

mod http;

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::thread;

use socket2::{Domain, Protocol, Socket, Type};

use crate::sites;
use http::{Answer, Body, Head};

/// The port of the web server.
pub const HTTP_PORT: u16 = 8080;
/// The port that returns every byte of a TCP connection.
pub const ECHO_PORT: u16 = 8081;
/// The port that returns every datagram.
pub const UDP_ECHO_PORT: u16 = 8082;

/// The line that is printed when all ports are open.
pub const READY: &str = "ready";
/// The connections that may wait for the server.
const BACKLOG: i32 = 256;

/// Serves until the process is ended. Prints [`READY`] on `out` when all ports are open.
///
/// # Errors
/// If a port cannot be opened, or if `out` cannot be written.
pub fn serve(at: IpAddr, files: &Path, out: &mut impl io::Write) -> io::Result<()> {
    let (web, echo) = (listen(SocketAddr::new(at, HTTP_PORT))?, listen(SocketAddr::new(at, ECHO_PORT))?);
    let datagrams = UdpSocket::bind(SocketAddr::new(at, UDP_ECHO_PORT))?;
    writeln!(out, "{READY}")?;
    out.flush()?;
    let files: Arc<Path> = Arc::from(files);
    thread::spawn(move || each(&echo, |stream| drop(return_bytes(stream))));
    thread::spawn(move || return_datagrams(&datagrams));
    each(&web, move |stream| drop(talk(&stream, &files)));
    Ok(())
}

/// Opens a port for Multipath TCP, which takes plain TCP too; where the kernel has none, for TCP.
fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::MPTCP))
        .or_else(|_| Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::TCP)))?;
    socket.set_reuse_address(true)?;
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Serves each connection in a thread of its own.
fn each(listener: &TcpListener, serve: impl Fn(TcpStream) + Clone + Send + 'static) {
    for stream in listener.incoming().map_while(Result::ok) {
        let serve = serve.clone();
        let _ = stream.set_nodelay(true);
        thread::spawn(move || serve(stream));
    }
}

fn return_bytes(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..count])?;
    }
}

fn return_datagrams(socket: &UdpSocket) {
    let mut buffer = [0; 2048];
    loop {
        if let Ok((count, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..count], from);
        }
    }
}

/// Answers the requests of a connection.
fn talk(stream: &TcpStream, files: &Path) -> io::Result<()> {
    let mut connection = http::Connection::new(stream);
    while let Some(head) = connection.head()? {
        connection.take_body(&head)?;
        connection.send(&head, answer(&head, files))?;
        if head.closes {
            break;
        }
    }
    Ok(())
}

fn answer(head: &Head, files: &Path) -> Answer {
    let (path, _) = head.target.split_once('?').unwrap_or((&head.target, ""));
    let numbers: Vec<Option<u64>> = path.split('/').skip(2).map(|part| part.parse().ok()).collect();
    let is_asked = matches!(head.method.as_str(), "GET" | "HEAD");
    if path == "/upload" && matches!(head.method.as_str(), "PUT" | "POST") {
        return Answer { status: 200, body: Body::Bytes(0) };
    }
    if !is_asked {
        return Answer { status: 405, body: Body::Bytes(0) };
    }
    let found = match (path.split('/').nth(1), &numbers[..]) {
        (Some("bytes"), [Some(count)]) => Some(Body::Bytes(*count)),
        (Some("site"), [Some(site), Some(object)]) => site_object(*site, *object).map(Body::Bytes),
        (Some("files"), _) => file(files, path.trim_start_matches("/files")).map(Body::Text),
        _ => None,
    };
    match found {
        Some(body) => Answer { status: 200, body },
        None => Answer { status: 404, body: Body::Bytes(0) },
    }
}

/// Returns the size of an object of a site.
fn site_object(site: u64, object: u64) -> Option<u64> {
    let site = u32::try_from(site).ok().filter(|site| *site < sites::SITES)?;
    sites::objects(site).get(usize::try_from(object).ok()?).copied()
}

/// Returns the contents of a file below the directory; `None` for every path that leads elsewhere.
fn file(files: &Path, path: &str) -> Option<Vec<u8>> {
    let path = PathBuf::from(path.trim_start_matches('/'));
    let is_below = path.components().all(|part| matches!(part, Component::Normal(_)));
    is_below.then(|| fs::read(files.join(path)).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks a server of a thread, and returns its whole answer.
    fn ask(request: &str) -> String {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("head"), "ref: refs/heads/main\n").expect("written");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("an address");
        let served = thread::spawn(move || {
            let (stream, _) = listener.accept().expect("a connection");
            talk(&stream, dir.path())
        });
        let mut stream = TcpStream::connect(at).expect("a connection");
        stream.write_all(request.as_bytes()).expect("written");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        let _ = served.join().expect("no panic");
        answer
    }

    fn get(target: &str) -> String {
        ask(&format!("GET {target} HTTP/1.1\r\nConnection: close\r\n\r\n"))
    }

    #[test]
    fn every_place_answers() {
        assert!(get("/bytes/5").ends_with("content-length: 5\r\n\r\n....."));
        assert!(get("/files/head?service=x").ends_with("ref: refs/heads/main\n"));
        let sizes = sites::objects(3);
        assert!(get("/site/3/1").contains(&format!("content-length: {}\r\n", sizes[1])));
        for missing in
            ["/site/3/1000", "/site/12/0", "/files/../../etc/passwd", "/files//etc/passwd/..", "/x", "/"]
        {
            assert!(get(missing).starts_with("HTTP/1.1 404"), "{missing}");
        }
    }

    #[test]
    fn connections_are_kept_and_bodies_taken() {
        let answer = ask("PUT /upload HTTP/1.1\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc\
             HEAD /bytes/9 HTTP/1.1\r\n\r\nGET /bytes/2 HTTP/1.1\r\nconnection: Close\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200"), "{answer}");
        assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 3, "{answer}");
        assert!(answer.contains("content-length: 9\r\n\r\nHTTP/1.1"), "HEAD has no body: {answer}");
    }

    #[test]
    fn nonsense_ends_the_connection() {
        for nonsense in ["\r\n\r\n", "GET\r\n\r\n", "PUT /upload HTTP/1.1\r\nContent-Length: x\r\n\r\n"] {
            assert_eq!(ask(nonsense), "", "{nonsense:?}");
        }
        assert_eq!(ask(&"x".repeat(40_000)), "");
    }
}
