//! The metrics of `anabranch kernel watch` for Prometheus: `GET /metrics`, each time of a new snapshot.
//!
//! `kernel` makes the text, `anabranch_http`'s server hands it out: what reads requests in a process that is
//! often root's is a library that everybody reads.

use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use anabranch_http::server::{
    ContentProvider, PathLookup, Resource, ResourceRequest, RunningServer, Server, Unavailable,
};
use kernel::connection_monitor::{ConnectionMonitor, prometheus_text};
use net::Clock;
use net::prometheus::MEDIA_TYPE;

const PATH: &str = "/metrics";

/// What a monitor sees whenever it is asked.
struct Metrics {
    monitor: Mutex<ConnectionMonitor>,
    clock: Clock,
}

impl ContentProvider for Metrics {
    /// The text; none if the sockets could not be listed.
    type Content = Option<String>;

    fn find(&self, request: &ResourceRequest<'_>) -> PathLookup<Self::Content> {
        if request.path.encode() != PATH {
            return PathLookup::NotFound("the metrics are at /metrics".to_owned());
        }
        let mut monitor = self.monitor.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = monitor.snapshot(self.clock.now());
        let content = snapshot.ok().map(|snapshot| prometheus_text(&snapshot));
        let length = content.as_ref().map_or(0, |text| text.len() as u64);
        PathLookup::Found(Resource {
            content,
            length,
            etag: None,
            media_type: MEDIA_TYPE,
            links: Vec::new(),
            fields: &[],
        })
    }

    fn check(&self, content: &Self::Content) -> Result<(), Unavailable> {
        content.as_ref().map(|_| ()).ok_or(Unavailable::Busy)
    }

    fn read(&self, content: &Self::Content, offset: u64, out: &mut [u8]) -> Result<(), Unavailable> {
        let bytes = content.as_ref().and_then(|text| text.as_bytes().get(offset as usize..));
        out.copy_from_slice(bytes.and_then(|bytes| bytes.get(..out.len())).ok_or(Unavailable::Gone)?);
        Ok(())
    }
}

/// Serves what `monitor` sees at `http://ADDRESS/metrics` until the server is dropped; and where that is.
pub(super) fn serve(
    monitor: ConnectionMonitor,
    clock: Clock,
    address: SocketAddr,
) -> io::Result<(RunningServer, SocketAddr)> {
    let server = Server::bind(&[address])?;
    let address = server.addresses()[0];
    Ok((server.start(Metrics { monitor: Mutex::new(monitor), clock })?, address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    use std::sync::Arc;

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8(answer).unwrap()
    }

    #[test]
    fn it_answers_and_idle_clients_do_not_stop_it() {
        let Ok(monitor) = ConnectionMonitor::open(Arc::new(()), true) else {
            return net::testing::skip("no netlink");
        };
        let (_server, address) = serve(monitor, Clock::start(), "127.0.0.1:0".parse().unwrap()).unwrap();
        let idle: Vec<_> = (0..8).map(|_| TcpStream::connect(address)).collect();
        let answer = ask(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let head = head.to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 200 ok\r\n"), "{head}");
        assert!(head.contains(&format!("\r\ncontent-length: {}", body.len())), "{head}");
        assert!(head.contains(&format!("\r\ncontent-type: {MEDIA_TYPE}")), "{head}");
        // The connection that asks is one of those that are told of.
        assert!(body.contains(&format!("remote=\"{address}\"")), "{body}");
        drop(idle);
        for (request, status) in [
            (&b"HEAD /metrics?x=1 HTTP/1.0\r\n\r\n"[..], "200"),
            (b"GET / HTTP/1.0\r\n\r\n", "404"),
            (b"GET /metrics/../x HTTP/1.0\r\n\r\n", "404"),
            (b"POST /metrics HTTP/1.0\r\n\r\n", "405"),
            (b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n", "400"),
            (b"GET  /metrics HTTP/1.1\r\n\r\n", "400"),
            (b"\xff\xfe\r\n\r\n", "400"),
            (&[&b"GET /metrics HTTP/1.1\r\nx: "[..], &[b'a'; 64 << 10], b"\r\n\r\n"].concat(), "431"),
        ] {
            let answer = ask(address, request);
            assert_eq!(answer.split(' ').nth(1), Some(status), "{answer}");
        }
    }
}
