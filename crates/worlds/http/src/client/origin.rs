//! Takes a URL apart for fetching (crate `url`): the origin to connect to, the credentials, the request
//! target, and the forms that may be shown to people.

use std::ops::Deref;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use url::{ParseError, Position};

/// The characters that cannot stand in a query (RFC 3986 section 3.4).
const NOT_IN_QUERY: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'<').add(b'>');

/// An absolute URL, as the crate `url` parses it. That crate escapes the apostrophes of a query. The query
/// here keeps them, because it may be signed and must be sent as it was given.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Url {
    read: url::Url,
    /// The query with its apostrophes, if it has some.
    query: Option<String>,
}

impl Deref for Url {
    type Target = url::Url;

    fn deref(&self) -> &url::Url {
        &self.read
    }
}

impl Url {
    /// Parses a URL of any scheme.
    pub(super) fn parse(text: &str) -> Result<Self, ParseError> {
        url::Url::parse(text).map(|read| Self { read, query: apostrophes(text) })
    }

    /// Resolves `reference` relative to this URL (RFC 3986 section 5.2).
    fn join(&self, reference: &str) -> Result<Self, ParseError> {
        let read = self.read.join(reference)?;
        let is_own = reference.split('#').next().is_some_and(|reference| reference.trim().is_empty());
        let query = if is_own { self.query.clone() } else { apostrophes(reference) };
        Ok(Self { read, query })
    }

    /// Returns the whole URL, with the query as it was given.
    fn text(&self) -> String {
        match &self.query {
            Some(query) => format!("{}?{query}", &self.read[..Position::AfterPath]),
            None => self.read.as_str().to_owned(),
        }
    }
}

/// Returns the query of a URL or a reference, if it has apostrophes.
fn apostrophes(text: &str) -> Option<String> {
    let text = text.trim_matches(|c: char| c <= ' ').replace(['\t', '\r', '\n'], "");
    let (_, query) = text.split('#').next()?.split_once('?')?;
    query.contains('\'').then(|| utf8_percent_encode(query, NOT_IN_QUERY).to_string())
}

/// The origin of a URL (RFC 6454): scheme, host and port. One connection serves one origin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Origin {
    /// Whether the scheme is `https`.
    pub(super) secure: bool,
    /// A name in lower case, or an IP address; IPv6 without brackets.
    pub(super) host: String,
    /// The port that the URL names, or else the scheme's.
    pub(super) port: u16,
}

impl Origin {
    /// Returns the origin of an `http` or `https` URL.
    pub(super) fn of(url: &Url) -> Self {
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        Self { secure: url.scheme() == "https", host, port: url.port_or_known_default().unwrap_or(80) }
    }

    /// Returns `host:port`, with IPv6 in brackets.
    pub(super) fn host_and_port(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// Parses an absolute `http` or `https` URL and drops its fragment.
///
/// # Errors
/// If `text` is no such URL. The error is one clause that does not repeat the URL, because it may have a
/// password.
pub(super) fn parse(text: &str) -> Result<Url, String> {
    checked(Url::parse(text))
}

/// Returns the URL that a `Location` in an answer from `url` leads to (RFC 3986 section 5.2). It carries
/// neither credentials that a server wrote nor those of `url`.
///
/// # Errors
/// As [`parse`].
pub(super) fn redirected(url: &Url, location: &str) -> Result<Url, String> {
    checked(url.join(location)).map(without_credentials)
}

fn checked(parsed: Result<Url, ParseError>) -> Result<Url, String> {
    let mut url = parsed.map_err(|error| format!("the URL cannot be read: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("the URL is neither http nor https".to_owned());
    }
    if url.port() == Some(0) {
        return Err("the URL has no possible port".to_owned());
    }
    let is_text = |text: &str| percent_decode_str(text).decode_utf8().is_ok();
    if !is_text(url.username()) || !url.password().is_none_or(is_text) {
        return Err("the name or password in the URL is no text".to_owned());
    }
    url.read.set_fragment(None);
    Ok(url)
}

/// Returns the URL without name and password.
fn without_credentials(mut url: Url) -> Url {
    // Both calls fail only for a URL without a host, and `checked` lets none pass.
    let _ = url.read.set_username("").and_then(|()| url.read.set_password(None));
    url
}

/// Returns the name and password of `//name:password@host`, percent-decoded.
pub(super) fn credentials(url: &Url) -> Option<(String, String)> {
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    (!url.username().is_empty() || url.password().is_some())
        .then(|| (decoded(url.username()), decoded(url.password().unwrap_or_default())))
}

/// Returns `host`, or `host:port` if the port is not the scheme's; IPv6 is in brackets.
pub(super) fn authority(url: &Url) -> &str {
    &url[Position::BeforeHost..Position::AfterPort]
}

/// Returns the path and the query as they go into a request. The result begins with `/`.
pub(super) fn request_target(url: &Url) -> String {
    match &url.query {
        Some(query) => format!("{}?{query}", url.path()),
        None => url[Position::BeforePath..Position::AfterQuery].to_owned(),
    }
}

/// Returns the whole URL without name and password.
pub(super) fn anonymous(url: &Url) -> String {
    without_credentials(url.clone()).text()
}

/// Returns the URL without credentials and query, for messages: a query may carry a signature.
pub(super) fn without_query(url: &Url) -> String {
    format!("{}://{}{}", url.scheme(), authority(url), url.path())
}

/// Returns the last segment of the path.
pub(super) fn file_name(url: &Url) -> &str {
    url.path().rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_url() {
        let url = parse("HTTPS://Ann:p%40ss@Example.ORG:8443/a b/ü?q=1#part").unwrap();
        assert_eq!(anonymous(&url), "https://example.org:8443/a%20b/%C3%BC?q=1");
        assert_eq!(credentials(&url), Some(("Ann".into(), "p@ss".into())));
        assert_eq!(request_target(&url), "/a%20b/%C3%BC?q=1");
        assert_eq!(
            (file_name(&url), without_query(&url).as_str()),
            ("%C3%BC", "https://example.org:8443/a%20b/%C3%BC")
        );
        assert_eq!(anonymous(&parse("http://h:80").unwrap()), "http://h/");
        assert_eq!(request_target(&parse("http://h?q").unwrap()), "/?q");
        let six = parse("http://[2001:DB8::1]:81/").unwrap();
        assert_eq!(
            (Origin::of(&six).host_and_port().as_str(), authority(&six), anonymous(&six).as_str()),
            ("[2001:db8::1]:81", "[2001:db8::1]:81", "http://[2001:db8::1]:81/")
        );
        assert!(Origin::of(&six).host.parse::<std::net::IpAddr>().is_ok());
        assert_eq!(anonymous(&parse("http://münchen.de/").unwrap()), "http://xn--mnchen-3ya.de/");
    }

    #[test]
    fn a_query_is_sent_as_it_was_given() {
        for query in ["n='a'&sig=1", "n=%27a%27", "a'%27?#x", "%41=\u{7f}'"] {
            let url = parse(&format!("http://u:p@h/a'b?{query}")).unwrap();
            let given = query.split('#').next().unwrap().replace('\u{7f}', "%7F");
            assert_eq!(request_target(&url), format!("/a'b?{given}"));
            assert_eq!(anonymous(&url), format!("http://h/a'b?{given}"));
            assert_eq!(request_target(&redirected(&url, "").unwrap()), request_target(&url));
            assert_eq!(request_target(&redirected(&url, "c?d='e'").unwrap()), "/c?d='e'");
            assert_eq!(request_target(&redirected(&url, "c").unwrap()), "/c");
        }
    }

    #[test]
    fn what_is_no_url() {
        for text in [
            "",
            "x",
            "ftp://h/",
            "http://",
            "http://h:0/",
            "http://h:x/",
            "http://[::1",
            "http://[h]/",
            "http://a b/",
            "http://h:+1/",
            "http://a:%ff@h/",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(!parse("http://u:secret@[x/").unwrap_err().contains("secret"));
    }

    #[test]
    fn a_redirect_leads_to_another_url_without_credentials() {
        let base = parse("http://ann:secret@a/b/c/d;p?q").unwrap();
        for (location, means) in [
            ("g", "http://a/b/c/g"),
            ("//g", "http://g/"),
            ("?y", "http://a/b/c/d;p?y"),
            ("#s", "http://a/b/c/d;p?q"),
            ("", "http://a/b/c/d;p?q"),
            ("../../../g", "http://a/g"),
            ("https://u:p@h/x?u=http://y", "https://h/x?u=http://y"),
        ] {
            assert_eq!(redirected(&base, location).unwrap().as_str(), means, "{location}");
        }
        assert!(redirected(&base, "javascript:x").is_err());
        assert!(redirected(&base, "ftp://h/").is_err());
    }

    proptest::proptest! {
        #[test]
        fn anything_may_be_read(text in ".*", location in ".*") {
            for text in [text.clone(), format!("http://{text}")] {
                if let Ok(url) = parse(&text) {
                    let again = parse(&anonymous(&url)).unwrap();
                    proptest::prop_assert_eq!(request_target(&again), request_target(&url));
                    let _ = (redirected(&url, &location), without_query(&url), Origin::of(&url));
                }
            }
        }
    }
}
