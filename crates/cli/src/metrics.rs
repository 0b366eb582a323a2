//! Serves metrics for Prometheus at `GET /metrics`, and parses the option for it. Each answer is made anew.
//!
//! Other crates make the text, and `anabranch_http`'s server sends it. So a widely used library parses the
//! requests in a process that often runs as root. A request that names another host is refused, so that no
//! web site in a browser here can read the metrics, such as both ends of each connection.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anabranch_http::server::{
    ContentProvider, PathLookup, Resource, ResourceRequest, RunningServer, Server, Unavailable,
};
use anabranch_net::prometheus::MEDIA_TYPE;

const PATH: &str = "/metrics";

/// Parses `[ADDR:]PORT`; PORT alone means that port of 127.0.0.1.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let local = |port: u16| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    let port = text.strip_prefix(':').unwrap_or(text).parse().map(local);
    port.or_else(|_| text.parse())
        .map_err(|_| "expected PORT or ADDR:PORT, such as 9155 or [::1]:9155".into())
}

/// The function that makes the text for each request.
struct Metrics<F>(F);

impl<F: Fn() -> Option<String> + Send + Sync + 'static> ContentProvider for Metrics<F> {
    /// The text; `None` if it cannot be made now.
    type Content = Option<String>;

    fn find(&self, request: &ResourceRequest<'_>) -> PathLookup<Self::Content> {
        if let Err(refused) = request.must_be_own() {
            return refused;
        }
        if request.path.encode() != PATH {
            return PathLookup::NotFound("the metrics are at /metrics".to_owned());
        }
        let content = self.0();
        let length = content.as_ref().map_or(0, |text| text.len() as u64);
        PathLookup::Found(Resource {
            content,
            length,
            etag: None,
            media_type: MEDIA_TYPE.into(),
            links: Vec::new(),
            fields: Vec::new(),
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

/// Serves the text that `text` makes at `http://ADDRESS/metrics` until the server is dropped. Returns the
/// server and its address. If `text` returns `None`, the client is told to try again later.
pub(crate) fn serve(
    address: SocketAddr,
    text: impl Fn() -> Option<String> + Send + Sync + 'static,
) -> io::Result<(RunningServer, SocketAddr)> {
    let server = Server::bind(&[address])?;
    let address = server.addresses()[0];
    Ok((server.start(Metrics(text))?, address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8(answer).unwrap()
    }

    #[test]
    fn it_answers_and_idle_clients_do_not_stop_it() {
        let (_server, address) = serve("127.0.0.1:0".parse().unwrap(), || Some("things 7\n".into())).unwrap();
        let idle: Vec<_> = (0..8).map(|_| TcpStream::connect(address)).collect();
        let answer =
            ask(address, b"GET /metrics HTTP/1.1\r\nHost: localhost:9155\r\nConnection: close\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let head = head.to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 200 ok\r\n"), "{head}");
        assert!(head.contains(&format!("\r\ncontent-length: {}", body.len())), "{head}");
        assert!(head.contains(&format!("\r\ncontent-type: {MEDIA_TYPE}")), "{head}");
        assert_eq!(body, "things 7\n");
        drop(idle);
        for (request, status) in [
            (&b"HEAD /metrics?x=1 HTTP/1.0\r\n\r\n"[..], "200"),
            (b"GET / HTTP/1.0\r\n\r\n", "404"),
            (b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", "421"),
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

    #[test]
    fn what_cannot_be_made_is_asked_for_again() {
        let (_server, address) = serve("127.0.0.1:0".parse().unwrap(), || None).unwrap();
        let answer = ask(address, b"GET /metrics HTTP/1.0\r\n\r\n");
        assert_eq!(answer.split(' ').nth(1), Some("503"), "{answer}");
    }

    #[test]
    fn a_port_alone_is_this_machines() {
        assert_eq!(address("9155"), Ok("127.0.0.1:9155".parse().unwrap()));
        assert_eq!(address(":9155"), Ok("127.0.0.1:9155".parse().unwrap()));
        assert_eq!(address("[::1]:9155"), Ok("[::1]:9155".parse().unwrap()));
        assert!(address("localhost:9155").is_err() && address("99999").is_err());
    }
}
