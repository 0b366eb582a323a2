//! The part of RFC 3986 that fetching needs: absolute `http` and `https` URLs, and references against them.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// The longest URL taken from anywhere, bytes.
const URL_BYTES_MAX: usize = 8 << 10;

/// Where a URL's server is: what one connection can be used for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Origin {
    /// Over TLS.
    pub(super) secure: bool,
    /// A name in lower case or an IP literal; IPv6 without its brackets.
    pub(super) host: String,
    /// The port, given or the scheme's.
    pub(super) port: u16,
}

/// An absolute `http` or `https` URL without fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) origin: Origin,
    /// Name and password, percent-decoded, of `//name:password@host`.
    pub(super) user: Option<(String, String)>,
    /// Path and query as they go into the request; begins with `/`.
    pub(super) target: String,
}

impl Origin {
    /// `host`, or `host:port` where the port is not the scheme's; IPv6 in brackets.
    pub(super) fn authority(&self) -> String {
        let usual = if self.secure { 443 } else { 80 };
        if self.port == usual { bracketed(&self.host) } else { self.host_and_port() }
    }

    /// `host:port`; IPv6 in brackets.
    pub(super) fn host_and_port(&self) -> String {
        format!("{}:{}", bracketed(&self.host), self.port)
    }

    /// The scheme's name.
    pub(super) const fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }
}

impl Url {
    /// Reads an absolute URL. Spaces and other bytes that a URL cannot have are percent-encoded, as browsers
    /// do.
    ///
    /// # Errors
    /// One clause that says what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim_matches(|c: char| c.is_ascii_whitespace());
        if text.len() > URL_BYTES_MAX {
            return Err(format!("the URL is longer than {URL_BYTES_MAX} bytes"));
        }
        let wrong = |why: &str| Err(format!("`{}`: {why}", shown(text)));
        let Some((scheme, rest)) = text.split_once("://") else { return wrong("not an http or https URL") };
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return wrong("neither http nor https"),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let cut = rest.find(['/', '?', '\\']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(cut);
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, authority),
        };
        let (host, port) = match split_port(place) {
            Ok(parts) => parts,
            Err(why) => return wrong(why),
        };
        let user = match user.map(|user| user.split_once(':').unwrap_or((user, ""))) {
            None => None,
            Some((name, password)) => match (decoded(name), decoded(password)) {
                (Some(name), Some(password)) => Some((name, password)),
                _ => return wrong("its name or password is no text"),
            },
        };
        let port = port.unwrap_or(if secure { 443 } else { 80 });
        let target = encoded(target);
        let target = if target.starts_with('/') { target } else { format!("/{target}") };
        Ok(Self { origin: Origin { secure, host, port }, user, target })
    }

    /// What `reference` (a `Location`, say) means here: RFC 3986 section 5.2.
    ///
    /// # Errors
    /// As [`Url::parse`].
    pub(super) fn join(&self, reference: &str) -> Result<Self, String> {
        let reference = reference.trim_matches(|c: char| c.is_ascii_whitespace());
        let reference = reference.split('#').next().unwrap_or_default();
        let scheme = reference.split([':', '/', '?']).next().unwrap_or_default();
        let named = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
            && reference[scheme.len()..].starts_with(':');
        if named {
            return Self::parse(reference);
        }
        if reference.starts_with("//") {
            return Self::parse(&format!("{}:{reference}", self.origin.scheme()));
        }
        if reference.len() > URL_BYTES_MAX {
            return Err(format!("the URL is longer than {URL_BYTES_MAX} bytes"));
        }
        let (own, query) =
            self.target.split_once('?').map_or((self.target.as_str(), None), |(p, q)| (p, Some(q)));
        let reference = encoded(reference);
        let (path, wanted) =
            reference.split_once('?').map_or((reference.as_str(), None), |(p, q)| (p, Some(q)));
        let (path, query) = match path {
            "" => (own.to_owned(), wanted.or(query)),
            path if path.starts_with('/') => (without_dots(path), wanted),
            path => {
                let folder = own.rfind('/').map_or("/", |end| &own[..=end]);
                (without_dots(&format!("{folder}{path}")), wanted)
            }
        };
        let target = query.map_or_else(|| path.clone(), |query| format!("{path}?{query}"));
        Ok(Self { origin: self.origin.clone(), user: None, target })
    }

    /// The last segment of the path, without the query.
    pub(super) fn file_name(&self) -> &str {
        let path = self.target.split('?').next().unwrap_or_default();
        path.rsplit('/').next().unwrap_or_default()
    }

    /// The URL without its query: what may be shown in a message, since queries carry signatures.
    pub(super) fn without_query(&self) -> String {
        let path = self.target.split('?').next().unwrap_or_default();
        format!("{}://{}{path}", self.origin.scheme(), self.origin.authority())
    }
}

/// The whole URL, without name and password.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.origin.scheme(), self.origin.authority(), self.target)
    }
}

/// An IPv6 literal in brackets, anything else as it is.
fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// `text` for a message: without a password, and not for ever.
fn shown(text: &str) -> String {
    let start = text.find("://").map_or(0, |at| at + 3);
    let end = text[start..].find(['/', '?', '#']).map_or(text.len(), |at| start + at);
    let kept = text[start..end].rfind('@').map_or(start, |at| start + at + 1);
    text[..start].chars().chain(text[kept..].chars()).take(200).collect()
}

/// Splits `host`, `host:port`, `[v6]` or `[v6]:port`.
pub(super) fn split_port(place: &str) -> Result<(String, Option<u16>), &'static str> {
    let (host, port) = if let Some(inner) = place.strip_prefix('[') {
        let Some((inside, after)) = inner.split_once(']') else { return Err("a bracket is not closed") };
        let Ok(ip) = inside.parse::<Ipv6Addr>() else { return Err("no IPv6 address in the brackets") };
        (ip.to_string(), after)
    } else {
        let cut = place.find(':').unwrap_or(place.len());
        let (host, port) = place.split_at(cut);
        let host = decoded(host).unwrap_or_default().to_ascii_lowercase();
        if host.is_empty() {
            return Err("it names no host");
        }
        if !host.is_ascii() {
            return Err("write the host's name in its xn-- form");
        }
        if !host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~".contains(&b)) {
            return Err("no such host name is possible");
        }
        (host, port)
    };
    match port.strip_prefix(':') {
        None if port.is_empty() => Ok((host, None)),
        Some("") => Ok((host, None)),
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => match digits.parse::<u16>() {
            Ok(port) if port != 0 => Ok((host, Some(port))),
            _ => Err("no such port"),
        },
        _ => Err("no such port"),
    }
}

/// The address that `host` spells, if it is a literal.
pub(super) fn literal(host: &str) -> Option<IpAddr> {
    host.parse().ok()
}

/// Percent-encodes what a request line cannot carry; what is encoded stays as it is.
fn encoded(text: &str) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    out
}

/// Undoes percent-encoding; `None` if the result is not UTF-8. A lone `%` stands for itself.
pub(super) fn decoded(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let hex = |at: usize| {
        bytes.get(at).and_then(|&b| char::from(b).to_digit(16)).and_then(|d| u8::try_from(d).ok())
    };
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte == b'%'
            && let (Some(high), Some(low)) = (hex(at + 1), hex(at + 2))
        {
            out.push(high << 4 | low);
            at += 3;
        } else {
            out.push(byte);
            at += 1;
        }
    }
    String::from_utf8(out).ok()
}

/// RFC 3986 section 5.2.4, for a path that begins with `/`.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut parts = path.split('/').skip(1).peekable();
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        match part {
            "." | ".." => {
                if part == ".." {
                    kept.pop();
                }
                if last {
                    kept.push("");
                }
            }
            part => kept.push(part),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_urls() {
        let url = Url::parse("HTTPS://Ann:p%40ss@Example.ORG:8443/a b/ü?q=1#part").unwrap();
        assert_eq!(url.to_string(), "https://example.org:8443/a%20b/%C3%BC?q=1");
        assert_eq!(url.user, Some(("Ann".into(), "p@ss".into())));
        assert_eq!(
            (url.file_name(), url.without_query().as_str()),
            ("%C3%BC", "https://example.org:8443/a%20b/%C3%BC")
        );
        assert_eq!(Url::parse("http://h:80").unwrap().to_string(), "http://h/");
        assert_eq!(Url::parse("http://h?q").unwrap().to_string(), "http://h/?q");
        let six = Url::parse("http://[2001:DB8::1]:81/").unwrap();
        assert_eq!(
            (six.origin.host.as_str(), six.to_string().as_str()),
            ("2001:db8::1", "http://[2001:db8::1]:81/")
        );
        assert!(literal(&six.origin.host).is_some());
    }

    #[test]
    fn what_is_no_url() {
        for text in [
            "",
            "x",
            "ftp://h/",
            "http://",
            "http:///p",
            "http://h:0/",
            "http://h:x/",
            "http://[::1",
            "http://[h]/",
            "http://a b/",
            "http://h:+1/",
            "http://münchen.de/",
        ] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
        let long = format!("http://h/{}", "x".repeat(URL_BYTES_MAX));
        assert!(Url::parse(&long).is_err());
        assert!(!Url::parse("http://u:secret@[x/").unwrap_err().contains("secret"));
    }

    /// The examples of RFC 3986 section 5.4 that lead to http.
    #[test]
    fn references() {
        let base = Url::parse("http://a/b/c/d;p?q").unwrap();
        for (reference, means) in [
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g/"),
            ("?y", "http://a/b/c/d;p?y"),
            ("g?y", "http://a/b/c/g?y"),
            ("#s", "http://a/b/c/d;p?q"),
            ("g;x", "http://a/b/c/g;x"),
            ("", "http://a/b/c/d;p?q"),
            (".", "http://a/b/c/"),
            ("./", "http://a/b/c/"),
            ("..", "http://a/b/"),
            ("../g", "http://a/b/g"),
            ("../..", "http://a/"),
            ("../../../g", "http://a/g"),
            ("/./g", "http://a/g"),
            ("/../g", "http://a/g"),
            ("g.", "http://a/b/c/g."),
            ("./g/.", "http://a/b/c/g/"),
            ("g?y/../x", "http://a/b/c/g?y/../x"),
            ("https://h/x?u=http://y", "https://h/x?u=http://y"),
            ("a?u=http://y", "http://a/b/c/a?u=http://y"),
        ] {
            assert_eq!(base.join(reference).unwrap().to_string(), means, "{reference}");
        }
        assert!(base.join("javascript:x").is_err());
        assert!(base.join("ftp://h/").is_err());
    }

    proptest::proptest! {
        #[test]
        fn anything_may_be_read(text in ".*", reference in ".*") {
            if let Ok(url) = Url::parse(&text) {
                proptest::prop_assert_eq!(Url::parse(&url.to_string()).unwrap().target, url.target.clone());
                let _ = url.join(&reference);
            }
            let base = Url::parse("http://a/b/c").unwrap();
            let _ = base.join(&reference);
            let _ = Url::parse(&format!("http://{text}"));
        }
    }
}
