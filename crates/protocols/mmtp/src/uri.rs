//! A text that names a content and tells where to get it.
//!
//! ```text
//! anabranch:b3:<52 of base32>?len=<bytes>[&name=<pct>][&dir][&from=<host:port>]*[&mirror=<pct>]*
//! ```
//!
//! Root and length certify the content; everything else is a hint by the author of the URI. The name in a
//! [`Uri`] that was parsed is safe as the name of a file.

use core::fmt;
use core::str::FromStr;
use std::net::Ipv6Addr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};

use crate::collection::{COMPONENT_MAX, is_file_name};
use crate::id::{ContentId, LENGTH_MAX, RootError, parse_root};

/// The most bytes of a URI.
pub const URI_MAX: usize = 8 * 1024;

const SCHEME: &str = "anabranch:";

/// All characters but the unreserved ones of RFC 3986 §2.3.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// All characters but the unreserved ones and `:`. RFC 3986 §3.4 allows `:` in a query, and people can read
/// it better unescaped.
const RESERVED_BUT_COLON: &AsciiSet = &RESERVED.remove(b':');

/// A content and where to get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uri {
    /// The content.
    pub id: ContentId,
    /// The name that the content should have on disk. It is a valid file name (see [`is_file_name`]) and
    /// perhaps not UTF-8.
    pub name: Option<Vec<u8>>,
    /// Whether the content is the manifest of a directory.
    pub collection: bool,
    /// Sources, each as `HOST:PORT` (see [`host_port`]).
    pub from: Vec<String>,
    /// URLs with the same bytes.
    pub mirrors: Vec<String>,
}

impl Uri {
    /// Creates a URI that only names this content.
    #[must_use]
    pub const fn new(id: ContentId) -> Self {
        Self { id, name: None, collection: false, from: Vec::new(), mirrors: Vec::new() }
    }
}

/// The reason why a text is no `anabranch:` URI. Displays as the wrong part and the expected content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UriError {
    /// The text has this many bytes, more than [`URI_MAX`].
    TooLong(usize),
    /// The text has this character, which must be percent-encoded in a URI.
    Character(char),
    /// The text does not begin with `anabranch:`.
    Scheme,
    /// The root in the text is invalid.
    Root(RootError),
    /// The text has no length.
    NoLength,
    /// The length is not a decimal number up to [`LENGTH_MAX`].
    Length(String),
    /// This parameter comes twice.
    Twice(&'static str),
    /// This parameter has a `%` without two hexadecimal digits behind it.
    Percent(String),
    /// The name is not a file name.
    Name,
    /// The parameter `dir` has this value; it must have none.
    Dir(String),
    /// This source is not `HOST:PORT`.
    HostPort(String),
    /// This mirror is not a URL.
    Mirror(String),
}

impl fmt::Display for UriError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(len) => write!(f, "the URI has {len} bytes, expected at most {URI_MAX}"),
            Self::Character(c) => write!(f, "the URI contains {c:?}, expected its percent-encoded form"),
            Self::Scheme => {
                write!(f, "the URI does not begin with \"{SCHEME}\", expected {SCHEME}b3:…?len=…")
            }
            Self::Root(bad) => bad.fmt(f),
            Self::NoLength => {
                f.write_str("the URI has no length, expected ?len=BYTES after the content's name")
            }
            Self::Length(text) => write!(f, "the length {text:?} is not a number from 0 to {LENGTH_MAX}"),
            Self::Twice(key) => write!(f, "the URI has more than one \"{key}=\", expected one"),
            Self::Percent(text) => write!(f, "in {text:?} a \"%\" is not followed by two hexadecimal digits"),
            Self::Name => write!(
                f,
                "the name is not a file name: expected 1 to {COMPONENT_MAX} bytes without \"/\" and NUL, \
                 not \".\" or \"..\""
            ),
            Self::Dir(value) => write!(f, "\"dir\" has the value {value:?}, expected none"),
            Self::HostPort(text) => write!(
                f,
                "{text:?} is not a source, expected HOST:PORT with a port from 1 to 65535, \
                 an IPv6 address in brackets"
            ),
            Self::Mirror(text) => {
                write!(f, "{text:?} is not a mirror, expected a URL like https://host/path")
            }
        }
    }
}

impl core::error::Error for UriError {}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}?len={}", self.id, self.id.length)?;
        if let Some(name) = &self.name {
            write!(f, "&name={}", percent_encode(name, RESERVED))?;
        }
        if self.collection {
            f.write_str("&dir")?;
        }
        for from in &self.from {
            write!(f, "&from={}", percent_encode(from.as_bytes(), RESERVED_BUT_COLON))?;
        }
        for mirror in &self.mirrors {
            write!(f, "&mirror={}", percent_encode(mirror.as_bytes(), RESERVED))?;
        }
        Ok(())
    }
}

impl FromStr for Uri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        if text.len() > URI_MAX {
            return Err(UriError::TooLong(text.len()));
        }
        if let Some(c) = text.chars().find(|c| !c.is_ascii_graphic() || *c == '#') {
            return Err(UriError::Character(c));
        }
        let (scheme, rest) = text.split_at_checked(SCHEME.len()).ok_or(UriError::Scheme)?;
        if !scheme.eq_ignore_ascii_case(SCHEME) {
            return Err(UriError::Scheme);
        }
        let (root, query) = rest.split_once('?').unwrap_or((rest, ""));
        let root = parse_root(root).map_err(UriError::Root)?;
        let mut uri = Self::new(ContentId { root, length: 0 });
        let mut length = None;
        for parameter in query.split('&') {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match key {
                "len" if length.is_some() => return Err(UriError::Twice("len")),
                "len" => length = Some(parse_length(value)?),
                "name" if uri.name.is_some() => return Err(UriError::Twice("name")),
                "name" => uri.name = Some(decode_name(value)?),
                "dir" if parameter != "dir" => return Err(UriError::Dir(value.into())),
                "dir" => uri.collection = true,
                "from" => {
                    let source = decode_text(value, UriError::HostPort)?;
                    host_port(&source)?;
                    uri.from.push(source);
                }
                "mirror" => {
                    let url = decode_text(value, UriError::Mirror)?;
                    if !is_url(&url) {
                        return Err(UriError::Mirror(url));
                    }
                    uri.mirrors.push(url);
                }
                // This parameter belongs to a later version or does not matter here.
                _ => {}
            }
        }
        uri.id.length = length.ok_or(UriError::NoLength)?;
        Ok(uri)
    }
}

/// Splits `HOST:PORT`. The host is a name, an IPv4 address, or an IPv6 address in brackets, perhaps with a
/// zone as in `[fe80::1%eth0]:9000`. The port is at least 1. The returned host has no brackets.
///
/// # Errors
/// [`UriError::HostPort`] if `text` is not `HOST:PORT`.
pub fn host_port(text: &str) -> Result<(&str, u16), UriError> {
    let divide = || {
        let (host, port) = text.rsplit_once(':')?;
        let port = port.bytes().all(|b| b.is_ascii_digit()).then(|| port.parse::<u16>().ok())??;
        let host = match host.strip_prefix('[') {
            Some(inner) => {
                let inner = inner.strip_suffix(']')?;
                let (address, zone) = inner.split_once('%').unwrap_or((inner, "0"));
                let zone_is_name =
                    !zone.is_empty() && zone.bytes().all(|b| b.is_ascii_graphic() && b != b'%');
                (address.parse::<Ipv6Addr>().is_ok() && zone_is_name).then_some(inner)?
            }
            None => host,
        };
        let named = host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'));
        let bracketed = text.starts_with('[');
        (port > 0 && !host.is_empty() && host.len() <= 255 && (named || bracketed)).then_some((host, port))
    };
    divide().ok_or_else(|| UriError::HostPort(text.into()))
}

fn parse_length(value: &str) -> Result<u64, UriError> {
    let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
    digits
        .then(|| value.parse().ok())
        .flatten()
        .filter(|length| *length <= LENGTH_MAX)
        .ok_or_else(|| UriError::Length(value.into()))
}

/// Whether `url` is an absolute URL with a host. The check goes only as far as is needed to pass the URL on.
fn is_url(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    let scheme_is_name = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    let has_host = rest.starts_with(|c| !matches!(c, '/' | '?' | '#'));
    scheme_is_name && has_host && !url.chars().any(|c| c.is_control() || c == ' ')
}

fn decode_name(value: &str) -> Result<Vec<u8>, UriError> {
    let name = decode(value)?;
    if is_file_name(&name) { Ok(name) } else { Err(UriError::Name) }
}

fn decode(value: &str) -> Result<Vec<u8>, UriError> {
    let escapes = value.split('%').skip(1);
    let good = escapes
        .map(str::as_bytes)
        .all(|after| matches!(after, [high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit()));
    if good { Ok(percent_decode(value.as_bytes()).collect()) } else { Err(UriError::Percent(value.into())) }
}

fn decode_text(value: &str, error: impl FnOnce(String) -> UriError) -> Result<String, UriError> {
    String::from_utf8(decode(value)?)
        .map_err(|bad| error(String::from_utf8_lossy(bad.as_bytes()).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn root() -> String {
        ContentId::of(b"x").to_string()
    }

    fn read(rest: &str) -> Result<Uri, UriError> {
        format!("anabranch:{}{rest}", root()).parse()
    }

    #[test]
    fn a_whole_one() {
        let text = format!(
            "anabranch:{}?len=1&name=a%20%26%0A%FF&dir&from=example.org:9000&from=%5B2001:db8::1%5D:9001\
             &mirror=https%3A%2F%2Fexample.org%2Fa%3Fb%3D1",
            root()
        );
        let uri: Uri = text.parse().unwrap();
        assert_eq!(uri.id, ContentId::of(b"x"));
        assert_eq!(uri.name.as_deref(), Some(&b"a &\n\xff"[..]));
        assert!(uri.collection);
        assert_eq!(uri.from, ["example.org:9000", "[2001:db8::1]:9001"]);
        assert_eq!(uri.mirrors, ["https://example.org/a?b=1"]);
        assert_eq!(uri.to_string(), text);
    }

    #[test]
    fn what_people_type() {
        let plain = Uri { id: ContentId::of(b"x"), ..Uri::new(ContentId::of(b"x")) };
        let upper = format!("ANABRANCH:{}?len=1", root().to_uppercase());
        assert_eq!(upper.parse(), Ok(plain.clone()));
        assert_eq!(read("?len=1&x-later=%zz&later&=&&"), Ok(plain.clone()));
        assert_eq!(read("?len=0001"), Ok(plain));
        assert_eq!(read("?from=[::1]:7&len=1").unwrap().from, ["[::1]:7"]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let long = "a".repeat(URI_MAX);
        let cases = [
            (read(""), UriError::NoLength),
            (read("?name=x"), UriError::NoLength),
            (read("?len="), UriError::Length("".into())),
            (read("?len=+1"), UriError::Length("+1".into())),
            (read("?len=70368744177665"), UriError::Length("70368744177665".into())),
            (read("?len=1&len=1"), UriError::Twice("len")),
            (read("?len=1&name=a&name=a"), UriError::Twice("name")),
            (read("?len=1&name=%4"), UriError::Percent("%4".into())),
            (read("?len=1&name=%"), UriError::Percent("%".into())),
            (read("?len=1&name=%+1"), UriError::Percent("%+1".into())),
            (read("?len=1&name="), UriError::Name),
            (read("?len=1&name=.."), UriError::Name),
            (read("?len=1&name=..%2Fx"), UriError::Name),
            (read("?len=1&name=x%00"), UriError::Name),
            (read(&format!("?len=1&name={}", &long[..256])), UriError::Name),
            (read("?len=1&dir=yes"), UriError::Dir("yes".into())),
            (read("?len=1&mirror=x"), UriError::Mirror("x".into())),
            (read("?len=1&mirror=http:///x"), UriError::Mirror("http:///x".into())),
            (read("?len=1&mirror=http://a%0Ab"), UriError::Mirror("http://a\nb".into())),
            (read("?len=1#part"), UriError::Character('#')),
            (read("?len=1&name=a b"), UriError::Character(' ')),
            (read("?len=1&name=ä"), UriError::Character('ä')),
            (read("x?len=1"), UriError::Root(RootError::Chars(53))),
            (read(&long), UriError::TooLong(URI_MAX + 65)),
            ("".parse(), UriError::Scheme),
            (root().parse(), UriError::Scheme),
            ("anabranch:sha256:aa?len=1".parse(), UriError::Root(RootError::Scheme)),
        ];
        for (result, error) in cases {
            assert_eq!(result, Err(error.clone()));
            assert!(error.to_string().len() > 20);
        }
    }

    #[test]
    fn hosts_and_ports() {
        assert_eq!(host_port("a-b.example:1"), Ok(("a-b.example", 1)));
        assert_eq!(host_port("10.0.0.1:65535"), Ok(("10.0.0.1", 65_535)));
        assert_eq!(host_port("[::1]:80"), Ok(("::1", 80)));
        assert_eq!(host_port("[fe80::1%eth0]:80"), Ok(("fe80::1%eth0", 80)));
        for bad in [
            "",
            ":",
            "a",
            "a:",
            ":1",
            "a:0",
            "a:65536",
            "a:+1",
            "::1:80",
            "[::1]",
            "[::1:80",
            "::1]:80",
            "[a]:1",
            "[]:1",
            "[::1%]:1",
            "[fe80::1%a%b]:1",
            "a b:1",
            "a/b:1",
            "a@b:1",
            "[[::1]]:1",
        ] {
            assert_eq!(host_port(bad), Err(UriError::HostPort(bad.into())), "{bad}");
            assert!(
                read(&format!("?len=1&from={}", percent_encode(bad.as_bytes(), RESERVED))).is_err(),
                "{bad}"
            );
        }
    }

    proptest! {
        #[test]
        fn there_and_back(
            root: [u8; 32], length in 0..=LENGTH_MAX, collection: bool,
            name in proptest::option::of(vec(any::<u8>(), 1..=255)),
            from in vec(
                "([a-z0-9.-]{1,20}|\\[[0-9a-f]{1,4}::[0-9a-f]{1,4}(%[a-z]{1,4})?\\]):[1-9][0-9]{0,3}",
                0..4,
            ),
            mirrors in vec("https?://[a-z]{1,9}/[!-~]{0,40}", 0..4),
        ) {
            let name = name.filter(|name| is_file_name(name));
            let uri = Uri { id: ContentId { root, length }, name, collection, from, mirrors };
            prop_assert_eq!(uri.to_string().parse::<Uri>(), Ok(uri));
        }

        #[test]
        fn any_text(rest in "\\PC{0,60}", query in "[a-z=&%0-9:\\[\\]]{0,60}") {
            let _ = (rest.parse::<Uri>(), read(&rest), host_port(&rest));
            if let Ok(uri) = read(&format!("?len=1&{query}")) {
                prop_assert_eq!(uri.to_string().parse::<Uri>(), Ok(uri));
            }
        }
    }
}
