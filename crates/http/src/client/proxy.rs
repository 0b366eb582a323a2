//! Proxies: which one is meant, and how a connection through it begins. RFC 9110 section 9.3.6 (CONNECT),
//! RFC 1928 and RFC 1929 (SOCKS5).

use std::env;
use std::io;
use std::net::IpAddr;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::FetchError;
use super::url::{Origin, decoded, literal, split_port};

/// The longest answer to CONNECT that is read, bytes.
const MAX_CONNECT_ANSWER_BYTES: usize = 16 << 10;

/// How a proxy is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProxyKind {
    /// Requests for http in absolute form, CONNECT for https.
    Http,
    /// SOCKS5 with addresses that were looked up here.
    Socks5,
    /// SOCKS5 with names, which the proxy looks up.
    Socks5Names,
}

/// One proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proxy {
    pub(super) kind: ProxyKind,
    pub(super) host: String,
    pub(super) port: u16,
    /// Name and password.
    pub(super) user: Option<(String, String)>,
}

/// Which proxy each origin is reached through.
#[derive(Clone, Debug, Default)]
pub(super) struct Proxies {
    http: Option<Proxy>,
    https: Option<Proxy>,
    /// What is reached directly: names, with everything below them, addresses and prefixes; `*` is
    /// everything.
    no_proxy: Vec<String>,
}

impl Proxy {
    /// Reads `http://host:port`, `socks5://…`, `socks5h://…` or, as an HTTP proxy, `host:port`; name and
    /// password before an `@`.
    ///
    /// # Errors
    /// One clause.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let (kind, usual) = match scheme.to_ascii_lowercase().as_str() {
            "http" => (ProxyKind::Http, 1080),
            "socks5" => (ProxyKind::Socks5, 1080),
            "socks5h" => (ProxyKind::Socks5Names, 1080),
            other => return Err(format!("a proxy is http, socks5 or socks5h, not {other}")),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, place)) => (Some(user.split_once(':').unwrap_or((user, ""))), place),
            None => (None, authority),
        };
        let user = user.map(|(name, password)| Some((decoded(name)?, decoded(password)?)));
        let Some(user) = user.map_or(Some(None), |user| user.map(Some)) else {
            return Err("the proxy's name or password is no text".to_owned());
        };
        let (host, port) = split_port(place).map_err(|why| format!("the proxy `{place}`: {why}"))?;
        Ok(Self { kind, host, port: port.unwrap_or(usual), user })
    }

    /// The name by which messages call it.
    pub(super) fn name(&self) -> String {
        Origin { secure: false, host: self.host.clone(), port: self.port }.host_and_port()
    }
}

impl Proxies {
    /// `given` for everything, none if it is empty, and what the environment says if it is not given: as curl
    /// does, `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`, in upper case too but for `HTTP_PROXY`,
    /// which a web server may have set from a request's header.
    ///
    /// # Errors
    /// One clause.
    pub(super) fn new(given: Option<&str>) -> Result<Self, String> {
        Self::from(given, |name| env::var(name).ok())
    }

    fn from(given: Option<&str>, variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let set = |name: &str| variable(name).filter(|text| !text.trim().is_empty());
        let read = |text: String| Proxy::parse(text.trim());
        let no_proxy = set("no_proxy").or_else(|| set("NO_PROXY")).unwrap_or_default();
        let no_proxy =
            no_proxy.split([',', ' ']).filter(|word| !word.is_empty()).map(str::to_ascii_lowercase).collect();
        if let Some(given) = given {
            let proxy = if given.trim().is_empty() { None } else { Some(read(given.to_owned())?) };
            return Ok(Self { http: proxy.clone(), https: proxy, no_proxy });
        }
        let all = || set("all_proxy").or_else(|| set("ALL_PROXY"));
        let http = set("http_proxy").or_else(all).map(read).transpose()?;
        let https = set("https_proxy").or_else(|| set("HTTPS_PROXY")).or_else(all).map(read).transpose()?;
        Ok(Self { http, https, no_proxy })
    }

    /// The proxy for `origin`, if it is not reached directly.
    pub(super) fn for_origin(&self, origin: &Origin) -> Option<&Proxy> {
        let proxy = if origin.secure { self.https.as_ref() } else { self.http.as_ref() }?;
        (!self.no_proxy.iter().any(|word| covers(word, &origin.host))).then_some(proxy)
    }
}

/// Whether the word `word` of `no_proxy` means `host`.
fn covers(word: &str, host: &str) -> bool {
    if word == "*" {
        return true;
    }
    if let Some(ip) = literal(host) {
        let word = word.strip_prefix('[').map_or(word, |inner| inner.split(']').next().unwrap_or_default());
        return match word.split_once('/') {
            Some((prefix, bits)) => match (prefix.parse(), bits.parse()) {
                (Ok(prefix), Ok(bits)) => within(ip, prefix, bits),
                _ => false,
            },
            None => literal(word) == Some(ip),
        };
    }
    let word = word.trim_matches('.');
    let host = host.trim_end_matches('.');
    !word.is_empty() && host.strip_suffix(word).is_some_and(|above| above.is_empty() || above.ends_with('.'))
}

/// Whether the first `bits` bits of `ip` are those of `prefix`.
fn within(ip: IpAddr, prefix: IpAddr, bits: u32) -> bool {
    match (ip, prefix) {
        (IpAddr::V4(ip), IpAddr::V4(prefix)) if bits <= 32 => {
            (ip.to_bits() ^ prefix.to_bits()).checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(ip), IpAddr::V6(prefix)) if bits <= 128 => {
            (ip.to_bits() ^ prefix.to_bits()).checked_shr(128 - bits).unwrap_or(0) == 0
        }
        _ => false,
    }
}

/// The field value of HTTP's Basic scheme (RFC 7617).
pub(super) fn basic(name: &str, password: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::from("Basic ");
    for three in format!("{name}:{password}").as_bytes().chunks(3) {
        let bits = three.iter().fold(0_u32, |bits, &b| bits << 8 | u32::from(b)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place)) as usize & 63];
            out.push(if place > three.len() { '=' } else { char::from(digit) });
        }
    }
    out
}

/// Asks the HTTP proxy behind `io` for a tunnel to `to`.
pub(super) async fn connect<S>(io: &mut S, to: &Origin, proxy: &Proxy, agent: &str) -> Result<(), FetchError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let place = to.host_and_port();
    let mut ask = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\nUser-Agent: {agent}\r\n");
    if let Some((name, password)) = &proxy.user {
        ask += &format!("Proxy-Authorization: {}\r\n", basic(name, password));
    }
    ask += "\r\n";
    let broken = |e: io::Error| FetchError::Broken(format!("the proxy {}: {e}", proxy.name()));
    io.write_all(ask.as_bytes()).await.map_err(broken)?;
    // Byte by byte, so that nothing of what follows is taken; it is a few hundred bytes once a connection.
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") && !answer.ends_with(b"\n\n") {
        if answer.len() == MAX_CONNECT_ANSWER_BYTES {
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

/// Asks the SOCKS5 proxy behind `io` for a connection to `to`: to `ip` if that is given, else by name.
pub(super) async fn socks5<S>(
    io: &mut S,
    to: &Origin,
    ip: Option<IpAddr>,
    proxy: &Proxy,
) -> Result<(), FetchError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let broken = |e: io::Error| FetchError::Broken(format!("the proxy {}: {e}", proxy.name()));
    let refused = |why: &str| Err(FetchError::Refused(format!("the proxy {} {why}", proxy.name())));
    // Without authentication, or with name and password.
    let offer: &[u8] = if proxy.user.is_some() { &[5, 2, 0, 2] } else { &[5, 1, 0] };
    io.write_all(offer).await.map_err(broken)?;
    let mut two = [0; 2];
    io.read_exact(&mut two).await.map_err(broken)?;
    match (two, &proxy.user) {
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
    match ip.or_else(|| literal(&to.host)) {
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
            // The address the proxy connects from, and its port: of no use here.
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
        assert_eq!((proxy.kind, proxy.name().as_str()), (ProxyKind::Socks5Names, "[::1]:9050"));
        assert_eq!(proxy.user, Some(("ann".into(), "p:w".into())));
        let proxy = Proxy::parse("proxy.example:3128").unwrap();
        assert_eq!((proxy.kind, proxy.port, proxy.user), (ProxyKind::Http, 3128, None));
        assert_eq!(Proxy::parse("http://p").unwrap().port, 1080);
        for text in ["https://p", "socks4://p", "http://", "http://p:x"] {
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
        assert!(within("1.2.3.4".parse().unwrap(), "9.9.9.9".parse().unwrap(), 0));
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
        fn anything_may_be_read(text in ".*", word in ".*", host in "[0-9a-f.:]*") {
            let _ = Proxy::parse(&text);
            let _ = covers(&word, &host);
        }
    }
}
