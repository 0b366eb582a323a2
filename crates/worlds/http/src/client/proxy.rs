//! Chooses a proxy for an origin and connects through it. The protocols are CONNECT (RFC 9110 section 9.3.6)
//! and SOCKS5 (RFC 1928 and RFC 1929).
//!
//! hyper-util's [`Matcher`] parses the URLs of proxies and the list of exceptions. The environment variables
//! are read here, because the matcher would accept `HTTP_PROXY` in upper case. It would also use no proxy,
//! without an error, if it cannot parse a URL.

use std::env;
use std::io;
use std::net::IpAddr;

use data_encoding::BASE64;
use hyper::http::{HeaderValue, Uri};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::error::FetchError;
use super::origin::Origin;

/// The most bytes of an answer to CONNECT that are read.
const CONNECT_ANSWER_BYTES_MAX: usize = 16 << 10;
/// The port of a proxy whose URL names none, as in curl.
const PORT_DEFAULT: u16 = 1080;

/// The protocol of a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProxyKind {
    /// An HTTP proxy: requests in absolute form for `http`, CONNECT for `https`. The value goes into
    /// `Proxy-Authorization`.
    Http(Option<HeaderValue>),
    /// A SOCKS5 proxy that is given addresses, which this client looks up.
    Socks5(Option<Credentials>),
    /// A SOCKS5 proxy that is given names and looks them up.
    Socks5Names(Option<Credentials>),
}

/// A name and a password.
type Credentials = (String, String);

/// One proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proxy {
    pub(super) kind: ProxyKind,
    pub(super) host: String,
    pub(super) port: u16,
}

/// The proxy of each origin; `None` if every origin is reached directly.
#[derive(Debug)]
pub(super) struct Proxies(Option<Matcher>);

impl Proxy {
    /// Parses `http://host:port`, `socks5://…`, `socks5h://…` or `host:port`, which is an HTTP proxy. A name
    /// and a password may stand before an `@`.
    ///
    /// # Errors
    /// If `text` is none of these. The error is one clause.
    fn parse(text: &str) -> Result<Self, String> {
        let found = Matcher::builder().all(text).build().intercept(&Uri::from_static("http://any"));
        found.as_ref().and_then(Self::of).ok_or_else(|| match text.split_once("://") {
            Some((scheme, _)) if !["http", "socks5", "socks5h"].contains(&scheme) => {
                format!("a proxy is http, socks5 or socks5h, not {scheme}")
            }
            _ => "the URL of the proxy cannot be read: HOST:PORT, or SCHEME://HOST:PORT".to_owned(),
        })
    }

    /// Converts a proxy that the matcher found. Returns `None` if the proxy is of an unknown kind or has no
    /// host or no valid port.
    fn of(found: &Intercept) -> Option<Self> {
        let uri = found.uri();
        let user = found.raw_auth().map(|(name, password)| (name.to_owned(), password.to_owned()));
        let kind = match uri.scheme_str()? {
            "http" => ProxyKind::Http(found.basic_auth().cloned()),
            "socks5" => ProxyKind::Socks5(user),
            "socks5h" => ProxyKind::Socks5Names(user),
            _ => return None,
        };
        let host = uri.host()?.trim_matches(['[', ']']).to_ascii_lowercase();
        let port = match uri.authority()?.as_str().rsplit_once(':') {
            // An invalid port makes the whole URL invalid.
            Some((_, digits)) if !digits.ends_with(']') && !digits.is_empty() => digits.parse().ok()?,
            _ => PORT_DEFAULT,
        };
        (!host.is_empty() && port != 0).then_some(Self { kind, host, port })
    }

    /// Returns the proxy's name for messages, as `host:port`.
    pub(super) fn name(&self) -> String {
        Origin { secure: false, host: self.host.clone(), port: self.port }.host_and_port()
    }
}

impl Proxies {
    /// Uses the proxy `given` for every origin; an empty string means no proxy. If none is given and
    /// `from_env` is set, the environment decides, as with curl: `http_proxy`, `https_proxy` and `all_proxy`.
    /// Their upper-case forms count too, except `HTTP_PROXY`, which a web server may have set from a
    /// request's header. `no_proxy` excludes hosts in both cases.
    ///
    /// # Errors
    /// If the URL of a proxy cannot be parsed. The error is one clause.
    pub(super) fn new(given: Option<&str>, from_env: bool) -> Result<Self, String> {
        Self::from(given, |name| env::var(name).ok().filter(|_| from_env))
    }

    fn from(given: Option<&str>, variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let set = |names: &[&str]| {
            let mut values = names.iter().filter_map(|name| variable(name));
            values.find(|value| !value.trim().is_empty()).unwrap_or_default()
        };
        let (http, https) = match given {
            Some(given) => (given.to_owned(), given.to_owned()),
            None => (
                set(&["http_proxy", "all_proxy", "ALL_PROXY"]),
                set(&["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]),
            ),
        };
        let (http, https) = (http.trim(), https.trim());
        for text in [http, https] {
            if !text.is_empty() {
                Proxy::parse(text)?;
            }
        }
        // As in curl, blanks separate words too, IPv6 may be in brackets, and a final dot is ignored.
        let words = set(&["no_proxy", "NO_PROXY"]).replace(['[', ']'], "");
        let words: Vec<&str> = words.split([',', ' ']).map(|word| word.trim_end_matches('.')).collect();
        // An asterisk means every host, also one that is an address. The matcher would match it with names
        // only.
        if words.contains(&"*") {
            return Ok(Self(None));
        }
        Ok(Self(Some(Matcher::builder().http(http).https(https).no(words.join(",")).build())))
    }

    /// Returns the proxy for `origin`, or `None` if the origin is reached directly.
    pub(super) fn for_origin(&self, origin: &Origin) -> Option<Proxy> {
        let scheme = if origin.secure { "https" } else { "http" };
        let host = Origin { host: origin.host.trim_end_matches('.').to_owned(), ..origin.clone() };
        let uri = format!("{scheme}://{}", host.host_and_port()).parse().ok()?;
        Proxy::of(&self.0.as_ref()?.intercept(&uri)?)
    }
}

/// Returns the field value of HTTP's Basic scheme (RFC 7617).
pub(super) fn basic(name: &str, password: &str) -> String {
    format!("Basic {}", BASE64.encode(format!("{name}:{password}").as_bytes()))
}

/// Asks the HTTP proxy behind `io` for a tunnel to `to`.
pub(super) async fn connect<S>(
    io: &mut S,
    to: &Origin,
    proxy: &Proxy,
    credentials: Option<&HeaderValue>,
    agent: &str,
) -> Result<(), FetchError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let place = to.host_and_port();
    let ask = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\nUser-Agent: {agent}\r\n");
    let mut ask = ask.into_bytes();
    if let Some(credentials) = credentials {
        ask.extend_from_slice(b"Proxy-Authorization: ");
        ask.extend_from_slice(credentials.as_bytes());
        ask.extend_from_slice(b"\r\n");
    }
    ask.extend_from_slice(b"\r\n");
    let broken = |e: io::Error| FetchError::Broken(format!("the proxy {}: {e}", proxy.name()));
    io.write_all(&ask).await.map_err(broken)?;
    // Reads byte by byte, so that the bytes behind the answer stay in the stream. An answer has only a few
    // hundred bytes.
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") && !answer.ends_with(b"\n\n") {
        if answer.len() == CONNECT_ANSWER_BYTES_MAX {
            return Err(FetchError::Broken(format!("the proxy {} does not end its answer", proxy.name())));
        }
        answer.push(io.read_u8().await.map_err(broken)?);
    }
    let line =
        String::from_utf8_lossy(answer.split(|&b| b == b'\r' || b == b'\n').next().unwrap_or_default());
    let mut words = line.split(' ');
    let version = words.next().unwrap_or_default();
    let status = words.next().and_then(|word| word.parse::<u16>().ok());
    match status {
        Some(200..=299) if version.starts_with("HTTP/1.") => Ok(()),
        Some(407) => Err(FetchError::forbidden(407)),
        Some(status) if version.starts_with("HTTP/1.") => {
            Err(FetchError::Unreachable(format!("the proxy {} answers {status} for {place}", proxy.name())))
        }
        _ => Err(FetchError::Refused(format!("{} is no HTTP proxy", proxy.name()))),
    }
}

/// Asks the SOCKS5 proxy behind `io` for a connection to `to`: to the address `ip` if it is given, else by
/// name.
pub(super) async fn socks5<S>(
    io: &mut S,
    to: &Origin,
    ip: Option<IpAddr>,
    proxy: &Proxy,
    user: Option<&Credentials>,
) -> Result<(), FetchError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let broken = |e: io::Error| FetchError::Broken(format!("the proxy {}: {e}", proxy.name()));
    let refused = |why: &str| Err(FetchError::Refused(format!("the proxy {} {why}", proxy.name())));
    // Offers no authentication, or a name and a password.
    let offer: &[u8] = if user.is_some() { &[5, 2, 0, 2] } else { &[5, 1, 0] };
    io.write_all(offer).await.map_err(broken)?;
    let mut two = [0; 2];
    io.read_exact(&mut two).await.map_err(broken)?;
    match (two, user) {
        ([5, 0], _) => {}
        ([5, 2], Some((name, password))) => {
            let mut ask = vec![1];
            for text in [name, password] {
                let Ok(length) = u8::try_from(text.len()) else { return refused("takes no name that long") };
                ask.push(length);
                ask.extend_from_slice(text.as_bytes());
            }
            io.write_all(&ask).await.map_err(broken)?;
            io.read_exact(&mut two).await.map_err(broken)?;
            if two[1] != 0 {
                return Err(FetchError::forbidden(407));
            }
        }
        ([5, _], _) => return Err(FetchError::forbidden(407)),
        _ => return refused("does not speak SOCKS5"),
    }
    let mut ask = vec![5, 1, 0];
    match ip.or_else(|| to.host.parse().ok()) {
        Some(IpAddr::V4(ip)) => {
            ask.push(1);
            ask.extend_from_slice(&ip.octets());
        }
        Some(IpAddr::V6(ip)) => {
            ask.push(4);
            ask.extend_from_slice(&ip.octets());
        }
        None => {
            let Ok(length) = u8::try_from(to.host.len()) else { return refused("takes no name that long") };
            ask.extend_from_slice(&[3, length]);
            ask.extend_from_slice(to.host.as_bytes());
        }
    }
    ask.extend_from_slice(&to.port.to_be_bytes());
    io.write_all(&ask).await.map_err(broken)?;
    let mut head = [0; 4];
    io.read_exact(&mut head).await.map_err(broken)?;
    let why = match head {
        [5, 0, _, kind] => {
            // The address and port that the proxy connects from are not needed.
            let bytes = match kind {
                1 => 4,
                4 => 16,
                3 => usize::from(io.read_u8().await.map_err(broken)?),
                _ => return refused("does not speak SOCKS5"),
            };
            let mut rest = [0; 255 + 2];
            io.read_exact(&mut rest[..bytes + 2]).await.map_err(broken)?;
            return Ok(());
        }
        [5, 2, ..] => "it is not allowed",
        [5, 3, ..] => "the network is unreachable",
        [5, 4, ..] => "the host is unreachable",
        [5, 5, ..] => "the connection was refused",
        [5, 6, ..] => "the connection timed out",
        [5, ..] => "it failed",
        _ => return refused("does not speak SOCKS5"),
    };
    Err(FetchError::Unreachable(format!("the proxy {} for {}: {why}", proxy.name(), to.host_and_port())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(secure: bool, host: &str) -> Origin {
        Origin { secure, host: host.to_owned(), port: 80 }
    }

    fn environment(pairs: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        |name| pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn proxies_by_their_urls() {
        let proxy = Proxy::parse("socks5h://ann:p%3Aw@[::1]:9050/").unwrap();
        assert_eq!(proxy.name(), "[::1]:9050");
        assert_eq!(proxy.kind, ProxyKind::Socks5Names(Some(("ann".into(), "p:w".into()))));
        let proxy = Proxy::parse("proxy.example:3128").unwrap();
        assert_eq!((proxy.kind, proxy.port), (ProxyKind::Http(None), 3128));
        let proxy = Proxy::parse("http://ann:p%40w@proxy.example").unwrap();
        assert_eq!(proxy.kind, ProxyKind::Http(basic("ann", "p@w").parse().ok()));
        assert_eq!(Proxy::parse("http://p").unwrap().port, 1080);
        for text in ["https://p", "socks4://p", "http://", "http://p:x", "http://p:0", "ftp://x", "x y"] {
            assert!(Proxy::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_environment_as_curl_reads_it() {
        let proxies = Proxies::from(
            None,
            environment(&[
                ("HTTP_PROXY", "http://evil:1"),
                ("HTTPS_PROXY", "http://s:1"),
                ("ALL_PROXY", "socks5://a:2"),
                ("no_proxy", "localhost, .in.example,10.0.0.0/8,[::1]"),
            ]),
        )
        .unwrap();
        assert_eq!(proxies.for_origin(&origin(false, "x.example")).unwrap().host, "a");
        assert_eq!(proxies.for_origin(&origin(true, "x.example")).unwrap().host, "s");
        for host in ["localhost", "in.example", "a.in.example", "a.in.example.", "10.9.8.7", "::1"] {
            assert_eq!(proxies.for_origin(&origin(true, host)), None, "{host}");
        }
        for host in ["notlocalhost", "main.example", "11.0.0.1", "::2"] {
            assert!(proxies.for_origin(&origin(true, host)).is_some(), "{host}");
        }
        let none = Proxies::from(Some(""), environment(&[("http_proxy", "http://p:1")])).unwrap();
        assert_eq!(none.for_origin(&origin(false, "h")), None);
        let given =
            Proxies::from(Some("q:1"), environment(&[("http_proxy", "p:1"), ("NO_PROXY", "*")])).unwrap();
        assert_eq!(given.for_origin(&origin(false, "h")), None);
        assert!(Proxies::from(None, environment(&[("http_proxy", "ftp://x")])).is_err());
        let all = environment(&[("http_proxy", "p:1"), ("no_proxy", "0.0.0.0/0 example.")]);
        let all = Proxies::from(None, all).unwrap();
        assert_eq!(all.for_origin(&origin(false, "1.2.3.4")), None);
        assert_eq!(all.for_origin(&origin(false, "x.example")), None);
    }

    #[test]
    fn basic_is_base64() {
        // RFC 7617 section 2, and the three remainders.
        assert_eq!(basic("Aladdin", "open sesame"), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert_eq!(basic("a", ""), "Basic YTo=");
        assert_eq!(basic("a", "b"), "Basic YTpi");
        assert_eq!(basic("a", "bc"), "Basic YTpiYw==");
    }

    proptest::proptest! {
        #[test]
        fn what_is_read_is_read_again(
            scheme in "((http|socks5h?)://)?",
            text in "([a-z%]{1,4}(:[a-z%]{0,4})?@)?([a-z0-9.-]{1,9}|\\[[0-9a-f:]{2,9}\\])(:[0-9]{0,5})?",
        ) {
            let Ok(proxy) = Proxy::parse(&(scheme + &text)) else { return Ok(()) };
            let again = Proxy::parse(&proxy.name()).unwrap();
            proptest::prop_assert_eq!((again.host, again.port), (proxy.host, proxy.port));
        }

        #[test]
        fn any_text_is_survived(text in ".*", word in ".*", host in "[0-9a-f.:]*") {
            let _ = Proxy::parse(&text);
            let variable = |name: &str| Some(if name == "no_proxy" { &*word } else { "p:1" }.to_owned());
            let _ = Proxies::from(None, variable).unwrap().for_origin(&origin(true, &host));
        }
    }
}
