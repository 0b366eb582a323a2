//! Reads the header fields of an answer (RFC 9110 sections 8, 10 and 14).

use std::time::Duration;

use hyper::http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE,
    ETAG, HeaderMap, HeaderName, LAST_MODIFIED, LINK, RETRY_AFTER,
};
use hyper::http::response;

use super::api::{Caching, Head};
use super::origin::{Url, anonymous};

/// The longest wait that a server may ask for; a longer one counts as this. A year would be as good as never.
const RETRY_MAX: Duration = Duration::from_secs(24 * 3600);

/// The most `Link` values that are kept of one answer.
const LINKS_MAX: usize = 256;

/// Returns the first value of a field. Bytes that are not UTF-8 are replaced.
fn field(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_owned())
}

/// Parses a number of decimal digits and nothing else.
fn number(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) { None } else { text.parse().ok() }
}

/// Returns the body's length, if all `Content-Length` fields agree on one.
pub(super) fn content_length(headers: &HeaderMap) -> Option<u64> {
    let mut all = headers.get_all(CONTENT_LENGTH).iter().map(|value| value.to_str().ok().and_then(number));
    let first = all.next()??;
    all.all(|other| other == Some(first)).then_some(first)
}

/// A parsed `Content-Range`: the first and last byte, if there is a range, and the complete length, if it is
/// known.
pub(super) type ContentRange = (Option<(u64, u64)>, Option<u64>);

/// Parses `Content-Range`, such as `bytes 0-499/1234` (RFC 9110 section 14.4). A `*` becomes `None`. The unit
/// may be missing, as some servers leave it out.
pub(super) fn content_range(headers: &HeaderMap) -> Option<ContentRange> {
    let mut all = headers.get_all(CONTENT_RANGE).iter();
    let (value, None) = (all.next()?, all.next()) else { return None };
    let value = value.to_str().ok()?.trim();
    let range = match value.split_once(' ') {
        Some((unit, range)) if unit.eq_ignore_ascii_case("bytes") => range.trim(),
        Some(_) => return None,
        None => value,
    };
    let (range, complete) = range.split_once('/')?;
    let complete = if complete == "*" { None } else { Some(number(complete)?) };
    let range = if range == "*" {
        None
    } else {
        let (first, last) = range.split_once('-')?;
        let (first, last) = (number(first)?, number(last)?);
        if last < first || complete.is_some_and(|complete| last >= complete) {
            return None;
        }
        Some((first, last))
    };
    Some((range, complete))
}

/// Whether `etag` may stand in `If-Range` (RFC 9110 section 13.1.5).
pub(super) fn is_strong(etag: &str) -> bool {
    etag.len() >= 2 && etag.starts_with('"') && etag.ends_with('"')
}

/// Collects what the fields say about the file.
pub(super) fn head(parts: &response::Parts, url: &Url) -> Head {
    let headers = &parts.headers;
    let join = |name: &'static str| {
        let all: Vec<_> = headers
            .get_all(name)
            .iter()
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .collect();
        if all.is_empty() { None } else { Some(all.join(", ")) }
    };
    let accepts = headers.get_all(ACCEPT_RANGES).iter().filter_map(|value| value.to_str().ok());
    Head {
        url: anonymous(url),
        status: parts.status.as_u16(),
        length: content_length(headers),
        ranges: accepts
            .flat_map(|value| value.split(','))
            .any(|unit| unit.trim().eq_ignore_ascii_case("bytes")),
        etag: field(headers, ETAG),
        last_modified: field(headers, LAST_MODIFIED),
        caching: Caching {
            cache_control: join("cache-control"),
            age: join("age"),
            date: join("date"),
            expires: join("expires"),
            vary: join("vary"),
            kept: Vec::new(),
        },
        content_type: field(headers, CONTENT_TYPE),
        content_disposition: field(headers, CONTENT_DISPOSITION),
        repr_digest: join("repr-digest"),
        links: headers
            .get_all(LINK)
            .iter()
            .take(LINKS_MAX)
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .collect(),
        whole: false,
        ends_early_at: None,
        nth: 0,
        last: false,
    }
}

/// Adds the fields with these names to those that are kept. The first value of a field stays.
pub(super) fn keep(kept: &mut Vec<(&'static str, String)>, names: &[&'static str], headers: &HeaderMap) {
    for name in names {
        if kept.iter().all(|(known, _)| known != name)
            && let Some(value) = headers.get(*name)
        {
            kept.push((name, String::from_utf8_lossy(value.as_bytes()).trim().to_owned()));
        }
    }
}

/// Returns how long the server asks to wait (`Retry-After`), in seconds or until a date. A date is compared
/// with the server's own `Date`, not with our clock.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = field(headers, RETRY_AFTER)?;
    let wait = match number(&text) {
        Some(seconds) => Duration::from_secs(seconds),
        None => {
            let until = httpdate::parse_http_date(&text).ok()?;
            let now = httpdate::parse_http_date(&field(headers, DATE)?).ok()?;
            until.duration_since(now).unwrap_or_default()
        }
    };
    Some(wait.min(RETRY_MAX))
}

/// Returns the content coding of the body, if there is one.
pub(super) fn coding(headers: &HeaderMap) -> Option<String> {
    let all = headers.get_all(CONTENT_ENCODING).iter();
    let all: Vec<_> = all.map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_owned()).collect();
    let coded = all.iter().any(|value| !value.is_empty() && !value.eq_ignore_ascii_case("identity"));
    coded.then(|| all.join(", "))
}

/// Whether the answer is a web page.
pub(super) fn is_html(headers: &HeaderMap) -> bool {
    let kind = field(headers, CONTENT_TYPE).unwrap_or_default().to_ascii_lowercase();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind == "text/html" || kind == "application/xhtml+xml"
}

#[cfg(test)]
mod tests {
    use hyper::http::HeaderValue;

    use super::*;

    fn said(value: &[u8]) -> Option<ContentRange> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_RANGE, HeaderValue::from_bytes(value).ok()?);
        content_range(&headers)
    }

    #[test]
    fn content_ranges() {
        assert_eq!(said(b"bytes 0-0/1"), Some((Some((0, 0)), Some(1))));
        assert_eq!(said(b"Bytes 5-9/*"), Some((Some((5, 9)), None)));
        assert_eq!(said(b"bytes */0"), Some((None, Some(0))));
        assert_eq!(said(b" 5-9/20"), Some((Some((5, 9)), Some(20))), "without the unit");
        for wrong in [
            "",
            "bytes",
            "bytes 0-0",
            "lines 0-0/1",
            "bytes 0-0/0",
            "bytes 1-0/2",
            "bytes 0-2/2",
            "bytes -1/2",
            "bytes 0-/2",
            "bytes +0-0/1",
        ] {
            assert_eq!(said(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn strong_tags() {
        assert!(is_strong("\"a\"") && is_strong("\"\""));
        assert!(!is_strong("W/\"a\"") && !is_strong("\"") && !is_strong("a"));
    }
}
