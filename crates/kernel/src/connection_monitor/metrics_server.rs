//! The smallest HTTP server that Prometheus can ask (RFC 9112): `GET /metrics`, one answer a connection.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use algo::{Span, Time};
use net::Clock;

use super::{ConnectionMonitor, prometheus_text};

/// A request that is longer is refused.
const REQUEST_BYTES_MAX: usize = 8 * 1024;
/// Who has not asked, or not taken the answer, by then is cut off.
const CONVERSATION_MAX: Span = Span::from_secs(5);
/// Conversations at a time; who comes then is cut off.
const CONVERSATIONS_MAX: usize = 16;
/// After an error of the listener: out of descriptors, mostly.
const PAUSE: Span = Span::from_millis(100);

/// A server that runs until the process ends.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
}

impl Server {
    /// The address it listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Serves what `monitor` sees at `http://ADDRESS/metrics`, on threads of its own; each request
/// takes a new snapshot.
///
/// # Errors
/// If the address cannot be listened on or no thread be started.
pub fn serve(monitor: ConnectionMonitor, clock: Clock, address: SocketAddr) -> io::Result<Server> {
    let listener = TcpListener::bind(address)?;
    let server = Server { address: listener.local_addr()? };
    let (monitor, busy) = (Arc::new(Mutex::new(monitor)), Arc::new(AtomicUsize::new(0)));
    thread::Builder::new().name("metrics".into()).spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                clock.sleep_until(clock.now() + PAUSE);
                continue;
            };
            if busy.fetch_add(1, Ordering::Relaxed) >= CONVERSATIONS_MAX {
                busy.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (monitor, ended) = (Arc::clone(&monitor), Arc::clone(&busy));
            let talk = move || {
                // Who asks and goes away is no concern of ours.
                let _ = converse(stream, clock, &monitor);
                ended.fetch_sub(1, Ordering::Relaxed);
            };
            if thread::Builder::new().name("metrics".into()).spawn(talk).is_err() {
                busy.fetch_sub(1, Ordering::Relaxed);
            }
        }
    })?;
    Ok(server)
}

fn converse(mut stream: TcpStream, clock: Clock, monitor: &Mutex<ConnectionMonitor>) -> io::Result<()> {
    let deadline = clock.now() + CONVERSATION_MAX;
    let request = read(&mut stream, clock, deadline)?;
    let (status, body) = match check_request(&request) {
        Ok(()) => {
            let mut monitor = monitor.lock().unwrap_or_else(PoisonError::into_inner);
            match monitor.snapshot(clock.now()) {
                Ok(snapshot) => ("200 OK", prometheus_text(&snapshot)),
                Err(e) => ("503 Service Unavailable", format!("{e}\n")),
            }
        }
        Err(status) => (status, format!("{status}\n")),
    };
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\n{allow}Connection: close\r\n\r\n",
        body.len()
    );
    if !request.starts_with(b"HEAD ") {
        answer += &body;
    }
    write(&mut stream, answer.as_bytes(), clock, deadline)?;
    stream.shutdown(Shutdown::Write)
}

/// What is left until the deadline, for a timeout.
fn remaining(clock: Clock, deadline: Time) -> io::Result<Duration> {
    let left = deadline.since(clock.now());
    if left == Span::ZERO {
        Err(io::ErrorKind::TimedOut.into())
    } else {
        Ok(Duration::from_nanos(left.as_nanos()))
    }
}

/// Reads up to the empty line that ends a request's head, or to the most that is read.
fn read(stream: &mut TcpStream, clock: Clock, deadline: Time) -> io::Result<Vec<u8>> {
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < REQUEST_BYTES_MAX {
        stream.set_read_timeout(Some(remaining(clock, deadline)?))?;
        match stream.read(&mut buffer)? {
            0 => break,
            n => request.extend(&buffer[..n]),
        }
    }
    Ok(request)
}

fn write(stream: &mut TcpStream, mut bytes: &[u8], clock: Clock, deadline: Time) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(remaining(clock, deadline)?))?;
        let n = stream.write(bytes)?;
        bytes = &bytes[n..];
        if n == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
    }
    Ok(())
}

/// Whether a request is for the metrics; else the status that says what is wrong with it.
fn check_request(request: &[u8]) -> Result<(), &'static str> {
    let Some(head) = request.windows(4).position(|end| end == b"\r\n\r\n") else {
        return Err(if request.len() >= REQUEST_BYTES_MAX {
            "431 Request Header Fields Too Large"
        } else {
            "400 Bad Request"
        });
    };
    let line = request[..head].split(|b| *b == b'\r').next().unwrap_or_default();
    let line = str::from_utf8(line).map_err(|_| "400 Bad Request")?;
    let mut words = line.split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some("HTTP/1.0" | "HTTP/1.1"), None) =
        (method, target, version, words.next())
    else {
        return Err("400 Bad Request");
    };
    match (method, target.split('?').next()) {
        ("GET" | "HEAD", Some("/metrics")) => Ok(()),
        ("GET" | "HEAD", _) => Err("404 Not Found"),
        _ => Err("405 Method Not Allowed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests() {
        for (request, answer) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", Ok(())),
            ("HEAD /metrics?x=1 HTTP/1.0\r\n\r\n", Ok(())),
            ("GET / HTTP/1.1\r\n\r\n", Err("404 Not Found")),
            ("GET /metrics/../x HTTP/1.1\r\n\r\n", Err("404 Not Found")),
            ("POST /metrics HTTP/1.1\r\n\r\n", Err("405 Method Not Allowed")),
            ("GET /metrics HTTP/2\r\n\r\n", Err("400 Bad Request")),
            ("GET  /metrics HTTP/1.1\r\n\r\n", Err("400 Bad Request")),
            ("GET /metrics\r\n\r\n", Err("400 Bad Request")),
            ("\u{e4}\r\n\r\n", Err("400 Bad Request")),
            ("GET /metrics HTTP/1.1\r\n", Err("400 Bad Request")),
            ("", Err("400 Bad Request")),
        ] {
            assert_eq!(check_request(request.as_bytes()), answer, "{request:?}");
        }
        assert_eq!(check_request(b"\xff\xfe\r\n\r\n"), Err("400 Bad Request"));
        assert_eq!(check_request(&[b'a'; REQUEST_BYTES_MAX]), Err("431 Request Header Fields Too Large"));
    }

    #[test]
    fn it_answers_and_idle_clients_do_not_stop_it() {
        let Ok(monitor) = ConnectionMonitor::open(Arc::new(()), true) else {
            return println!("skipped: no netlink");
        };
        let server = serve(monitor, Clock::start(), "127.0.0.1:0".parse().unwrap()).unwrap();
        let idle: Vec<_> = (0..CONVERSATIONS_MAX / 2).map(|_| TcpStream::connect(server.address())).collect();
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())));
        // The connection that asks is one of those that are told of.
        assert!(body.contains(&format!("remote=\"{}\"", server.address())), "{body}");
        drop(idle);
    }
}
