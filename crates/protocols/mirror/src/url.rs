//! The URL of a mirror: `http` and `https` URLs (RFC 9110 §4.2). Relative references are resolved as in RFC
//! 3986 §5.

use core::fmt;

use ::url::{ParseError, Position};
use anabranch_mmtp::collection::is_file_name;
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// The most bytes of a URL; servers accept less than that.
pub const URL_MAX: usize = 8 * 1024;

/// All characters except the unreserved ones of RFC 3986 §2.3.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The characters that a query must not contain (RFC 3986 §3.4).
const NOT_IN_QUERY: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'<').add(b'>');

/// Encodes a file name as a component of a path, which is also a relative reference to the file (RFC 3986
/// §4.2).
#[must_use]
pub fn encode_component(name: &str) -> String {
    utf8_percent_encode(name, RESERVED).to_string()
}

/// An absolute `http` or `https` URL with a host, without a fragment.
///
/// It may contain a user name and a password: [`as_str`](Self::as_str) includes them, `Display` and `Debug`
/// do not. Its query is kept as it was given, because it may be signed, and the crate `url` would escape
/// apostrophes in it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Url {
    read: ::url::Url,
    /// The whole URL, with the query as it was given.
    text: String,
}

/// Why a text is not the URL of a mirror.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// The URL is longer than [`URL_MAX`]; this is its length.
    #[error("the URL has {0} bytes, expected at most {URL_MAX}")]
    TooLong(usize),
    /// The host is an IPv6 address with a zone (RFC 6874).
    #[error("an IPv6 address with a zone, expected one without: name the interface with `via`")]
    Zone,
    /// The URL has this scheme, which is neither `http` nor `https`.
    #[error("a URL of scheme {0:?}, expected http or https")]
    Scheme(String),
    /// The text is not a URL, for this reason.
    #[error("no URL ({0}), expected one like https://host/path")]
    Syntax(&'static str),
}

impl Url {
    /// Reads an absolute URL. A fragment is removed, because it is not sent to a server.
    ///
    /// # Errors If `text` is not the URL of a mirror; the error says why.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        if text.len() > URL_MAX {
            return Err(UrlError::TooLong(text.len()));
        }
        let has_zone = text.split(['/', '?', '#']).nth(2).is_some_and(|authority| authority.contains("%25"));
        match ::url::Url::parse(text) {
            Err(ParseError::InvalidIpv6Address) if has_zone => Err(UrlError::Zone),
            parsed => Self::checked(parsed, apostrophes(text)),
        }
    }

    /// Resolves `reference`, relative or absolute, in a document with this URL (RFC 3986 §5.2).
    ///
    /// # Errors If the result is not the URL of a mirror; the error says why.
    pub fn join(&self, reference: &str) -> Result<Self, UrlError> {
        if reference.len() > URL_MAX {
            return Err(UrlError::TooLong(reference.len()));
        }
        let is_own = reference.split('#').next().is_some_and(|reference| reference.trim().is_empty());
        let query = if is_own { apostrophes(&self.text) } else { apostrophes(reference) };
        Self::checked(self.read.join(reference), query)
    }

    fn checked(parsed: Result<::url::Url, ParseError>, query: Option<String>) -> Result<Self, UrlError> {
        let mut url = parsed.map_err(|error| {
            UrlError::Syntax(match error {
                ParseError::RelativeUrlWithoutBase => "without a scheme",
                ParseError::EmptyHost => "without a host",
                ParseError::InvalidPort => "its port is no number from 0 to 65535",
                ParseError::InvalidIpv4Address => "its host is no IPv4 address",
                ParseError::InvalidIpv6Address => "its host is no IPv6 address",
                _ => "its host is no host name",
            })
        })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(UrlError::Scheme(url.scheme().chars().take(32).collect()));
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(UrlError::Syntax("without a host"));
        }
        url.set_fragment(None);
        // Percent-encoding and international names make the URL longer.
        let new = Self { text: text(&url, query.as_deref()), read: url };
        match new.text.len() {
            len if len > URL_MAX => Err(UrlError::TooLong(len)),
            _ => Ok(new),
        }
    }

    /// Returns the whole URL, including a password, for the request to the server.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the scheme is `https`.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.read.scheme() == "https"
    }

    /// Returns the host in lower case; an IPv6 address is in brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        self.read.host_str().unwrap_or_default()
    }

    /// Returns the TCP port: the one in the URL, or else the default of the scheme.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.read.port_or_known_default().unwrap_or(80)
    }

    /// Returns the percent-encoded path; at least `/`.
    #[must_use]
    pub fn path(&self) -> &str {
        self.read.path()
    }

    /// Whether the URL contains a user name or a password.
    #[must_use]
    pub fn has_credentials(&self) -> bool {
        !self.read.username().is_empty() || self.read.password().is_some()
    }

    /// Whether the URL has a query.
    #[must_use]
    pub fn has_query(&self) -> bool {
        self.read.query().is_some()
    }

    /// Returns the percent-decoded path.
    #[must_use]
    pub fn decoded_path(&self) -> Vec<u8> {
        percent_decode_str(self.read.path()).collect()
    }

    /// Returns the percent-decoded last component of the path, if it can be the name of a file.
    #[must_use]
    pub fn file_name(&self) -> Option<Vec<u8>> {
        Some(self.last_component()).filter(|name| is_file_name(name))
    }

    /// Returns the percent-decoded last component of the path, which may be empty or contain slashes.
    #[must_use]
    pub fn last_component(&self) -> Vec<u8> {
        percent_decode_str(self.read.path().rsplit('/').next().unwrap_or_default()).collect()
    }

    /// Returns the URL of a file beside this one, whose name is this one's with `suffix` appended, such as
    /// `.b3leaves`. The result has no query, because the query belongs to this file.
    ///
    /// # Errors If the result would be too long.
    pub fn sibling(&self, suffix: &str) -> Result<Self, UrlError> {
        let mut url = self.read.clone();
        url.set_query(None);
        url.set_path(&format!("{}{suffix}", self.read.path()));
        Self::checked(Ok(url), None)
    }
}

/// Returns the query of a URL or a reference with its apostrophes as they were given. `None` if it has no
/// apostrophes.
fn apostrophes(text: &str) -> Option<String> {
    let text = text.trim_matches(|c: char| c <= ' ').replace(['\t', '\r', '\n'], "");
    let (_, query) = text.split('#').next()?.split_once('?')?;
    query.contains('\'').then(|| utf8_percent_encode(query, NOT_IN_QUERY).to_string())
}

/// Returns the whole of `url`, with `query` instead of its own query if one is given.
fn text(url: &::url::Url, query: Option<&str>) -> String {
    query.map_or_else(|| url.as_str().to_owned(), |query| format!("{}?{query}", &url[..Position::AfterPath]))
}

/// Writes the URL without user name and password.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.has_credentials() {
            return f.write_str(&self.text);
        }
        let mut url = self.read.clone();
        // These two calls fail only if the URL has no host.
        let _ = url.set_username("").and_then(|()| url.set_password(None));
        f.write_str(&text(&url, apostrophes(&self.text).as_deref()))
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn its_parts() {
        let url = url("HTTPS://User:pass%20@Example.ORG:8443/a/b%20c.iso?x=1#part");
        assert_eq!(url.as_str(), "https://User:pass%20@example.org:8443/a/b%20c.iso?x=1");
        assert_eq!(url.to_string(), "https://example.org:8443/a/b%20c.iso?x=1");
        assert_eq!(format!("{url:?}"), "Url(https://example.org:8443/a/b%20c.iso?x=1)");
        assert!(url.is_https() && url.has_credentials() && url.has_query());
        assert_eq!((url.host(), url.port(), url.path()), ("example.org", 8_443, "/a/b%20c.iso"));
        assert_eq!(url.file_name().unwrap(), b"b c.iso");
        assert_eq!(
            url.sibling(".b3leaves").unwrap().to_string(),
            "https://example.org:8443/a/b%20c.iso.b3leaves"
        );
        let plain = self::url("http://[2001:db8::1]");
        assert_eq!((plain.host(), plain.port(), plain.path()), ("[2001:db8::1]", 80, "/"));
        assert!(!plain.has_credentials() && !plain.has_query() && plain.file_name().is_none());
    }

    #[test]
    fn a_query_is_kept_as_it_was_given() {
        for text in ["http://h/f?n='a'&sig=1", "http://h/f?n=%27a%27", "http://h/f?a'%27"] {
            let url = url(text);
            assert_eq!((url.as_str(), url.to_string().as_str()), (text, text));
            assert_eq!(url.join("").unwrap(), url);
            assert_eq!(url.join("g?b='").unwrap().as_str(), "http://h/g?b='");
        }
        assert_eq!(url("http://u:p@h/f?a'").to_string(), "http://h/f?a'");
        assert_eq!(Url::parse("http://[fe80::1%25lo]:8099/f"), Err(UrlError::Zone));
        assert!(UrlError::Zone.to_string().contains("`via`"));
    }

    #[test]
    fn names_are_safe() {
        for none in
            ["http://h/", "http://h/a/", "http://h/..", "http://h/%2e%2e", "http://h/a%2fb", "http://h/a%00"]
        {
            assert_eq!(url(none).file_name(), None, "{none}");
        }
        assert_eq!(url(&format!("http://h/{}", "a".repeat(256))).file_name(), None);
        assert_eq!(url("http://h/a%ff").file_name().unwrap(), b"a\xff");
    }

    /// The examples of RFC 3986 §5.4 that are about URLs of mirrors.
    #[test]
    fn references_join() {
        let base = url("http://a/b/c/d;p?q");
        for (reference, meant) in [
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g/"),
            ("?y", "http://a/b/c/d;p?y"),
            ("g?y", "http://a/b/c/g?y"),
            ("", "http://a/b/c/d;p?q"),
            (".", "http://a/b/c/"),
            ("..", "http://a/b/"),
            ("../g", "http://a/b/g"),
            ("../../../g", "http://a/g"),
            ("g;x=1/../y", "http://a/b/c/y"),
            ("https://x/y", "https://x/y"),
        ] {
            assert_eq!(base.join(reference).unwrap().as_str(), meant, "{reference}");
        }
        assert_eq!(base.join("ftp://x/y"), Err(UrlError::Scheme("ftp".into())));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let long = format!("http://h/{}", "a".repeat(URL_MAX));
        for (text, error) in [
            (&*long, UrlError::TooLong(URL_MAX + 9)),
            ("ftp://h/x", UrlError::Scheme("ftp".into())),
            ("file:///etc/passwd", UrlError::Scheme("file".into())),
            ("/x", UrlError::Syntax("without a scheme")),
            ("http://", UrlError::Syntax("without a host")),
            ("http://h:99999/", UrlError::Syntax("its port is no number from 0 to 65535")),
            ("http://[::1/", UrlError::Syntax("its host is no IPv6 address")),
            ("http://a b/", UrlError::Syntax("its host is no host name")),
        ] {
            assert_eq!(Url::parse(text), Err(error.clone()), "{text}");
            assert!(error.to_string().contains("expected"));
        }
        // Percent-encoding makes the URL longer than the limit.
        assert!(matches!(Url::parse(&format!("http://h/{}", "ä".repeat(4_000))), Err(UrlError::TooLong(_))));
    }

    proptest! {
        #[test]
        fn any_text(text in "(https?:)?\\PC{0,60}", reference in "\\PC{0,40}") {
            let Ok(url) = Url::parse(&text) else { return Ok(()) };
            prop_assert_eq!(Url::parse(url.as_str()), Ok(url.clone()));
            let _ = (url.file_name(), url.port(), url.sibling(&reference), url.to_string());
            if let Ok(joined) = url.join(&reference) {
                prop_assert_eq!(Url::parse(joined.as_str()), Ok(joined));
            }
        }
    }
}
