//! Tests the client over TLS: certificates, HTTP/2 and tunnels.

use std::convert::Infallible;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;
use std::time::Duration;

use crate::common::{Server, fetch, file, options, outcomes, range};
use anabranch_http::client::{Client, FetchError, FetchRequest, Options, PIPELINE_MAX};
use anabranch_net::Egress;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

const LENGTH: u64 = 300_000;
/// The length of the content at `/big`. It is more than the windows of a stream and of a connection.
const BIG: u64 = 60_000_000;

/// How many requests for `/slow` are being answered, and the most at the same time so far.
static SLOW: (AtomicUsize, AtomicUsize) = (AtomicUsize::new(0), AtomicUsize::new(0));
/// The values of `Authorization` in requests for `/netrc`.
static AUTHORIZATIONS: Mutex<Vec<Option<String>>> = Mutex::new(Vec::new());
static CONTENT: LazyLock<(Bytes, Bytes)> =
    LazyLock::new(|| (file(LENGTH as usize).into(), file(BIG as usize).into()));

/// A TLS server for `localhost` and 127.0.0.1 that has `file(LENGTH)`, and the certificate file that makes a
/// client trust it.
struct Secure {
    address: SocketAddr,
    pem: tempfile::NamedTempFile,
    connections: Arc<AtomicUsize>,
}

impl Secure {
    fn start(protocols: &[&str]) -> Self {
        Self::showing(protocols, &named(&["localhost", "127.0.0.1"]))
    }

    /// Starts a server with this certificate, signed by its own key.
    fn showing(protocols: &[&str], certificate: &CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = certificate.self_signed(&key).unwrap();
        let pem = tempfile::NamedTempFile::new().unwrap();
        fs::write(pem.path(), certificate.pem()).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                listener.set_nonblocking(true).unwrap();
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    count.fetch_add(1, Ordering::SeqCst);
                    let acceptor = acceptor.clone();
                    tokio::spawn(async move {
                        let Ok(stream) = acceptor.accept(stream).await else { return };
                        let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                        let io = TokioIo::new(stream);
                        let service = service_fn(answer);
                        let _ = if h2 {
                            hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                                .serve_connection(io, service)
                                .await
                        } else {
                            hyper::server::conn::http1::Builder::new().serve_connection(io, service).await
                        };
                    });
                }
            });
        });
        Self { address, pem, connections }
    }

    fn url(&self) -> String {
        format!("https://localhost:{}/f", self.address.port())
    }

    fn believed(&self) -> Options {
        Options { ca_file: Some(self.pem.path().to_owned()), ..options() }
    }
}

/// Returns the parameters of a certificate for these names.
fn named(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    CertificateParams::new(names).unwrap()
}

/// Returns the certificate that `openssl req -x509 -subj /CN=NAME` makes: it is an authority's, and its only
/// name is the common name.
fn openssl(name: &str) -> CertificateParams {
    let mut certificate = named(&[]);
    certificate.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    certificate.distinguished_name.push(DnType::CommonName, name);
    certificate
}

/// Answers with ranges of the file. The content type tells which HTTP version was spoken.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let text = request.headers()["range"].to_str().unwrap().to_owned();
    let (first, last) = text.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
    let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
    let version = if request.version() == Version::HTTP_2 { "x/2" } else { "x/1" };
    let host = request.headers().get("host").map(|host| host.to_str().unwrap().to_owned());
    let authority = request.uri().authority().map(ToString::to_string);
    let (content, length) = match request.uri().path() {
        "/plain" => {
            let answer = Response::builder().status(302).header("location", "http://localhost/f");
            return Ok(answer.body(Full::default()).unwrap());
        }
        "/big" => (&CONTENT.1, BIG),
        _ => (&CONTENT.0, LENGTH),
    };
    if request.uri().path() == "/netrc" {
        let value = request.headers().get("authorization");
        AUTHORIZATIONS.lock().unwrap().push(value.map(|value| value.to_str().unwrap().to_owned()));
    }
    if request.uri().path() == "/slow" {
        let now = SLOW.0.fetch_add(1, Ordering::SeqCst) + 1;
        SLOW.1.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(50)).await;
        SLOW.0.fetch_sub(1, Ordering::SeqCst);
    }
    let answer = Response::builder()
        .status(206)
        .header("content-range", format!("bytes {first}-{last}/{length}"))
        .header("content-type", version)
        .header("last-modified", authority.or(host).unwrap());
    Ok(answer.body(Full::new(content.slice(first..=last))).unwrap())
}

#[test]
fn both_versions_over_one_connection_each() {
    for (protocols, version) in
        [(&["h2", "http/1.1"][..], "x/2"), (&["http/1.1"][..], "x/1"), (&[][..], "x/1")]
    {
        let server = Secure::start(protocols);
        let mut client = Client::start(server.believed()).unwrap();
        for id in 0..5 {
            let (first, end) = (id * 50_000, id * 50_000 + 60_000);
            let request = FetchRequest {
                via: Egress::parse("127.0.0.1").unwrap(),
                ..range(&server.url(), first, end, LENGTH)
            };
            let (head, bytes) = fetch(&mut client, id, request).unwrap();
            assert_eq!(bytes, file(LENGTH as usize)[first as usize..end as usize]);
            assert_eq!(head.content_type.as_deref(), Some(version));
            assert_eq!(head.last_modified, Some(format!("localhost:{}", server.address.port())));
        }
        assert_eq!(server.connections.load(Ordering::SeqCst), 1, "{protocols:?}");
    }
}

#[test]
fn further_streams_wait_for_their_turn() {
    let server = Secure::start(&["h2"]);
    let mut client = Client::start(server.believed()).unwrap();
    let at = |path: &str| server.url().replace("/f", path);
    let local = |request: FetchRequest| FetchRequest { via: Egress::parse("127.0.0.1").unwrap(), ..request };
    for id in 0..100 {
        client.fetch(id, local(range(&at("/slow"), id, id + 1000, LENGTH)));
    }
    for (number, (id, bytes)) in (0..).zip(outcomes(&mut client, 100)) {
        assert_eq!(id, number);
        assert!(bytes.unwrap() == CONTENT.0[id as usize..id as usize + 1000]);
    }
    let most = SLOW.1.load(Ordering::SeqCst);
    assert!((2..=PIPELINE_MAX).contains(&most), "{most} streams at the same time");
    // Each range is larger than the bytes that may be sent unread. The streams that wait do not hold up the
    // one that is read.
    for id in 0..5 {
        client.fetch(id, local(range(&at("/big"), id * 12_000_000, (id + 1) * 12_000_000, BIG)));
    }
    client.cancel(3);
    for (number, (id, bytes)) in [0, 1, 2, 4].into_iter().zip(outcomes(&mut client, 4)) {
        assert_eq!(id, number);
        let first = id as usize * 12_000_000;
        assert!(bytes.unwrap() == CONTENT.1[first..first + 12_000_000]);
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

#[test]
fn requests_go_out_ahead_inside_tls_too() {
    let server = Secure::start(&["http/1.1"]);
    let mut client = Client::start(server.believed()).unwrap();
    for id in 0..200 {
        let request = range(&server.url(), id * 1000, (id + 50) * 1000, LENGTH);
        client.fetch(id, FetchRequest { via: Egress::parse("127.0.0.1").unwrap(), ..request });
    }
    for (number, (id, bytes)) in (0..).zip(outcomes(&mut client, 200)) {
        assert_eq!(id, number);
        let first = id as usize * 1000;
        assert!(bytes.unwrap() == CONTENT.0[first..first + 50_000]);
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

#[test]
fn certificates_are_checked() {
    let server = Secure::start(&["h2"]);
    let outcome = |options: Options, url: &str| {
        let request = FetchRequest { via: Egress::parse("127.0.0.1").unwrap(), ..range(url, 0, 5, LENGTH) };
        fetch(&mut Client::start(options).unwrap(), 1, request).map(|(_, bytes)| bytes)
    };
    let error = outcome(options(), &server.url()).unwrap_err();
    assert!(matches!(&error, FetchError::Tls(why) if why.contains("issuer")), "{error}");
    assert_eq!(outcome(server.believed(), &server.url()).unwrap(), file(5));
    assert_eq!(outcome(Options { insecure: true, ..options() }, &server.url()).unwrap(), file(5));
    let by_address = format!("https://{}/f", server.address);
    assert_eq!(outcome(server.believed(), &by_address).unwrap(), file(5));

    // A certificate of another server, and one for another name, are refused.
    let other = Secure::start(&["h2"]);
    assert!(matches!(outcome(other.believed(), &server.url()), Err(FetchError::Tls(_))));
    let tunnel = tunnel(server.address);
    let through = Options { proxy: Some(format!("http://{tunnel}")), ..server.believed() };
    let error = outcome(through, "https://elsewhere.example/f").unwrap_err();
    assert!(matches!(&error, FetchError::Tls(why) if why.contains("another host")), "{error}");

    // The server does not speak TLS at all.
    let plain = Server::says("HTTP/1.1 400 B\n\nThe plain HTTP request was sent to HTTPS port");
    let error = outcome(options(), &format!("https://{}/", plain.address)).unwrap_err();
    assert!(matches!(error, FetchError::Tls(_) | FetchError::Broken(_)), "{error}");
}

/// curl with OpenSSL trusts all these certificates.
#[test]
fn a_certificate_of_the_callers_own_is_believed_whatever_made_it() {
    let outcome = |server: &Secure, options: Options, host: &str| {
        let url = format!("https://{host}:{}/f", server.address.port());
        let request = FetchRequest { via: Egress::parse("127.0.0.1").unwrap(), ..range(&url, 0, 5, LENGTH) };
        fetch(&mut Client::start(options).unwrap(), 1, request).map(|(_, bytes)| bytes)
    };
    let refused = |server: &Secure, options: Options, host: &str, says: &str| {
        let error = outcome(server, options, host).unwrap_err();
        assert!(matches!(&error, FetchError::Tls(why) if why.contains(says)), "{error}");
    };
    let mut authority = named(&["localhost", "127.0.0.1"]);
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let server = Secure::showing(&["h2"], &authority);
    for host in ["localhost", "127.0.0.1"] {
        assert_eq!(outcome(&server, server.believed(), host), Ok(file(5)));
    }
    refused(&server, options(), "localhost", "an authority's, not a server's: name it with `ca_file`");
    let by_common_name = Secure::showing(&["h2"], &openssl("LocalHost"));
    assert_eq!(outcome(&by_common_name, by_common_name.believed(), "localhost"), Ok(file(5)));
    refused(&by_common_name, by_common_name.believed(), "127.0.0.1", "for another host");
    let by_address = Secure::showing(&["h2"], &openssl("127.0.0.1"));
    assert_eq!(outcome(&by_address, by_address.believed(), "127.0.0.1"), Ok(file(5)));
    // Each certificate is trusted for its own server only, for its own names and until it expires.
    refused(&server, by_common_name.believed(), "localhost", "an authority's");
    let mut elsewhere = named(&["elsewhere.example"]);
    elsewhere.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let elsewhere = Secure::showing(&["h2"], &elsewhere);
    refused(&elsewhere, elsewhere.believed(), "localhost", "for another host");
    let mut old = openssl("localhost");
    old.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let old = Secure::showing(&["h2"], &old);
    refused(&old, old.believed(), "localhost", "expired");
}

#[test]
fn a_netrc_is_for_machines_that_prove_to_be_them() {
    let server = Secure::start(&["http/1.1"]);
    let netrc = tempfile::NamedTempFile::new().unwrap();
    fs::write(netrc.path(), "machine localhost login n password m\ndefault login d password d").unwrap();
    let sent = |options: Options, host: &str, trusted: bool| {
        let url = format!("https://{host}:{}/netrc", server.address.port());
        let via = Egress::parse("127.0.0.1").unwrap();
        let request = FetchRequest { via, trusted, ..range(&url, 0, 5, LENGTH) };
        let options = Options { netrc: Some(netrc.path().to_owned()), ..options };
        fetch(&mut Client::start(options).unwrap(), 1, request).unwrap();
        AUTHORIZATIONS.lock().unwrap().pop().unwrap()
    };
    let (its, default) = (Some("Basic bjpt".to_owned()), Some("Basic ZDpk".to_owned()));
    assert_eq!(sent(server.believed(), "localhost", true), its);
    assert_eq!(sent(server.believed(), "localhost", false), its, "whoever named it");
    assert_eq!(sent(server.believed(), "127.0.0.1", true), default);
    assert_eq!(sent(server.believed(), "127.0.0.1", false), None);
    // Where every certificate is accepted, no certificate proves which machine the server is.
    let anybody = || Options { insecure: true, ..options() };
    assert_eq!(sent(anybody(), "localhost", true), its);
    assert_eq!(sent(anybody(), "localhost", false), None);
}

#[test]
fn https_never_redirects_to_http() {
    let server = Secure::start(&["http/1.1"]);
    let mut client = Client::start(server.believed()).unwrap();
    let url = server.url().replace("/f", "/plain");
    let request = FetchRequest { via: Egress::parse("127.0.0.1").unwrap(), ..range(&url, 0, 5, LENGTH) };
    let error = fetch(&mut client, 1, request).unwrap_err();
    assert!(matches!(&error, FetchError::Refused(why) if why.contains("from https to")), "{error}");
}

/// Starts an HTTP proxy that tunnels everything to `target`. It refuses `refused.example`, and demands a
/// password for `locked.example`.
fn tunnel(target: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut near = stream.unwrap();
            let mut seen = Vec::new();
            while !seen.ends_with(b"\r\n\r\n") {
                let mut one = [0];
                near.read_exact(&mut one).unwrap();
                seen.push(one[0]);
            }
            let text = String::from_utf8(seen).unwrap();
            assert!(text.starts_with("CONNECT "), "{text}");
            let refusal = if text.contains("refused.example:443") {
                "502 Bad Gateway"
            } else if text.contains("locked.example:443")
                && !text.contains("Proxy-Authorization: Basic dTpw\r\n")
            {
                "407 Who"
            } else {
                ""
            };
            if !refusal.is_empty() {
                write!(near, "HTTP/1.1 {refusal}\r\nContent-Length: 0\r\n\r\n").unwrap();
                continue;
            }
            near.write_all(b"HTTP/1.0 200 Connection established\r\nX: y\r\n\r\n").unwrap();
            let far = TcpStream::connect(target).unwrap();
            for (mut from, mut to) in
                [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far.try_clone().unwrap(), near)]
            {
                thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
    address
}

#[test]
fn a_proxy_tunnels_https() {
    let server = Secure::start(&["h2", "http/1.1"]);
    let tunnel = tunnel(server.address);
    let outcome = |proxy: String, url: &str, insecure: bool| {
        let options = Options { proxy: Some(proxy), insecure, ..server.believed() };
        fetch(&mut Client::start(options).unwrap(), 1, range(url, 0, 5, LENGTH))
    };
    let open = format!("http://{tunnel}");
    let (head, bytes) = outcome(open.clone(), &server.url(), false).unwrap();
    assert_eq!((bytes, head.content_type.as_deref()), (file(5), Some("x/2")));
    let error = outcome(open.clone(), "https://refused.example/", false).unwrap_err();
    assert!(matches!(&error, FetchError::Unreachable(why) if why.contains("502")), "{error}");
    let error = outcome(open, "https://locked.example/", true).unwrap_err();
    assert!(matches!(error, FetchError::Forbidden { status: 407, .. }), "{error}");
    assert!(outcome(format!("http://u:p@{tunnel}"), "https://locked.example/", true).is_ok());
}
