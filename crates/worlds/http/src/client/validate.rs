//! Checks that an answer is exactly what was asked for (RFC 9110 sections 8, 13, 14 and 15).

use hyper::http::header::{CONTENT_LENGTH, HeaderMap};
use hyper::http::{StatusCode, response};
use url::Url;

use super::api::{Head, METADATA_BYTES, RequestKind};
use super::error::FetchError;
use super::origin::file_name;
use super::response_fields::{coding, content_length, content_range, head, is_html, is_strong, retry_after};

/// File types that are never web pages: HTML under such a name is the page of a login or of an error.
const FILE_TYPES: &str = "\
    7z apk appimage asc bin bz2 cab crate csv deb dmg efi exe flac gem gguf gz img ipk iso jar jigdo \
    jpeg jpg json lz lz4 lzma m4a md5 meta4 metalink mkv mp3 mp4 msi ogg parquet pdf pkg png qcow2 rar \
    raw rpm safetensors sha1 sha256 sha512 sig squashfs tar tbz template tgz torrent txz vdi vhd vhdx \
    vmdk wav webm whl xml xz zip zst";

/// What to do with the body of an accepted answer.
#[derive(Debug)]
pub(super) enum BodyPolicy {
    /// It is handed over and has exactly so many bytes.
    Exactly(u64),
    /// It is handed over and has at most so many bytes.
    AtMost(u64),
    /// Its first [`METADATA_BYTES`] are handed over, if they come in a moment; the rest is not wanted.
    Opening,
    /// It is not wanted.
    Nothing,
}

/// What a status other than 2xx and a followed redirect means.
fn status_error(status: StatusCode, headers: &HeaderMap) -> FetchError {
    match status.as_u16() {
        code @ (404 | 410) => FetchError::NotFound(code),
        code @ (401 | 403 | 407) => FetchError::forbidden(code),
        429 | 503 => FetchError::Busy { retry: retry_after(headers) },
        511 => FetchError::NotTheFile("the network wants a login first (511)".to_owned()),
        code @ (408 | 421 | 425 | 500..=599) => {
            FetchError::ServerError { status: code, retry: retry_after(headers) }
        }
        code => FetchError::Refused(format!("the server answers {code}")),
    }
}

/// Whether a file of the name `name` is never a web page.
fn is_no_page(name: &str) -> bool {
    let is = |end: &str| FILE_TYPES.split(' ').any(|known| known.eq_ignore_ascii_case(end));
    name.rsplit_once('.').is_some_and(|(_, end)| is(end))
}

fn web_page() -> FetchError {
    FetchError::NotTheFile(
        "a web page came instead of the file: perhaps this network wants a login first".to_owned(),
    )
}

/// Validates the answer `parts` from `url` to a request of `kind` that began at `asked`; a range's
/// `validator` and `modified` are those that it must have.
pub(super) fn validate(
    parts: &response::Parts,
    asked: &Url,
    url: &Url,
    kind: &RequestKind,
) -> Result<(Head, BodyPolicy), FetchError> {
    let headers = &parts.headers;
    let mut head = head(parts, url);
    let empty = matches!(kind, RequestKind::Metadata) && parts.status == StatusCode::RANGE_NOT_SATISFIABLE;
    if empty && matches!(content_range(headers), Some((None, Some(0)))) {
        // The file is empty.
        (head.length, head.ranges) = (Some(0), true);
        return Ok((head, BodyPolicy::Nothing));
    }
    match kind {
        RequestKind::Range { first, end, length, validator, .. }
            if parts.status == StatusCode::RANGE_NOT_SATISFIABLE =>
        {
            Err(match content_range(headers) {
                Some((None, Some(now))) if now != *length => changed_length(now, *length),
                _ if validator.is_some() && head.etag.is_some() && head.etag != *validator => {
                    FetchError::ChangedTag
                }
                _ => FetchError::NotTheFile(format!(
                    "the server has no bytes {first} to {}",
                    end.saturating_sub(1)
                )),
            })
        }
        _ if !parts.status.is_success() => Err(status_error(parts.status, headers)),
        _ if coding(headers).is_some() => Err(FetchError::Encoded(coding(headers).unwrap_or_default())),
        RequestKind::Range { .. } => range(parts, &mut head, kind).map(|policy| (head, policy)),
        RequestKind::Document { .. } | RequestKind::Metadata
            if is_html(headers) && is_no_page(file_name(asked)) =>
        {
            Err(web_page())
        }
        RequestKind::Document { max } => {
            let max = u64::try_from(*max).unwrap_or(u64::MAX);
            match head.length {
                _ if parts.status != StatusCode::OK => Err(status_error(parts.status, headers)),
                Some(length) if length > max => Err(FetchError::Refused(format!(
                    "it has {length} bytes, more than the {max} that are taken"
                ))),
                Some(length) => Ok((head, BodyPolicy::Exactly(length))),
                None => Ok((head, BodyPolicy::AtMost(max))),
            }
        }
        RequestKind::Metadata if parts.status == StatusCode::PARTIAL_CONTENT => {
            let (sent, complete) = sent_range(headers, &head)?;
            // Of a file that is shorter, less comes.
            if sent.0 != 0 || sent.1 >= METADATA_BYTES {
                return Err(other_range(sent, (0, METADATA_BYTES - 1)));
            }
            (head.length, head.ranges) = (complete, true);
            Ok((head, BodyPolicy::Opening))
        }
        RequestKind::Metadata if parts.status == StatusCode::OK => {
            // A server that answers a range with everything has no ranges, whatever it says.
            head.ranges = false;
            Ok((head, BodyPolicy::Opening))
        }
        RequestKind::Metadata => Err(status_error(parts.status, headers)),
    }
}

fn changed_length(now: u64, before: u64) -> FetchError {
    FetchError::Changed(format!("it has {now} bytes now, not {before}"))
}

/// First and last byte that an answer with the status 206 brings, and the complete length, if it is known.
fn sent_range(headers: &HeaderMap, head: &Head) -> Result<((u64, u64), Option<u64>), FetchError> {
    let kind = head.content_type.as_deref().unwrap_or_default().to_ascii_lowercase();
    if kind.starts_with("multipart/") {
        return Err(FetchError::NotTheFile("the server sends several parts for one range".to_owned()));
    }
    match content_range(headers) {
        Some((Some(range), complete)) => Ok((range, complete)),
        _ => Err(FetchError::NotTheFile("the server does not say which range it sends".to_owned())),
    }
}

fn other_range((from, to): (u64, u64), (first, last): (u64, u64)) -> FetchError {
    FetchError::NotTheFile(format!("the server sends bytes {from} to {to}, asked for {first} to {last}"))
}

/// Validates the successful answer to a range.
fn range(parts: &response::Parts, head: &mut Head, kind: &RequestKind) -> Result<BodyPolicy, FetchError> {
    let RequestKind::Range { first, end, length, validator, modified, .. } = kind else {
        return Err(FetchError::Refused("no range was asked for".to_owned()));
    };
    let headers = &parts.headers;
    // Weak tags compare by their opaque part only, which proves nothing: they are not compared.
    let tag = head.etag.as_deref().filter(|tag| is_strong(tag));
    let other = matches!((tag, validator), (Some(now), Some(before)) if now != before);
    let date = (&head.last_modified, modified);
    let redated = matches!(date, (Some(now), Some(before)) if validator.is_none() && now != before);
    match parts.status {
        StatusCode::PARTIAL_CONTENT => {
            let ((from, to), complete) = sent_range(headers, head)?;
            // One that does not say how long it is (RFC 9110, 14.4) sends what is asked for all the same.
            if let Some(complete) = complete
                && complete != *length
            {
                return Err(changed_length(complete, *length));
            }
            if other {
                return Err(FetchError::ChangedTag);
            }
            if redated {
                return Err(FetchError::ChangedDate);
            }
            if (from, to) != (*first, *end - 1) {
                return Err(other_range((from, to), (*first, *end - 1)));
            }
            let bytes = end - first;
            if headers.contains_key(CONTENT_LENGTH) && content_length(headers) != Some(bytes) {
                return Err(FetchError::NotTheFile(
                    "the server's Content-Length is not that of its range".to_owned(),
                ));
            }
            (head.length, head.ranges) = (Some(*length), true);
            Ok(BodyPolicy::Exactly(bytes))
        }
        StatusCode::OK => {
            head.ranges = false;
            match head.length {
                Some(now) if now != *length && is_html(headers) => Err(web_page()),
                Some(now) if now != *length => Err(changed_length(now, *length)),
                None if is_html(headers) => Err(web_page()),
                _ if other => Err(FetchError::ChangedTag),
                _ if redated => Err(FetchError::ChangedDate),
                // With If-Range, a server that has ranges sends everything if the file has changed.
                _ if (head.length.is_some() || *first == 0) && validator.is_some() && tag.is_none() => {
                    Err(FetchError::ChangedTag)
                }
                // One that does not say how long it is has to be as long all the same.
                Some(_) | None if *first == 0 => {
                    head.whole = true;
                    Ok(BodyPolicy::Exactly(*length))
                }
                _ => Err(FetchError::NoRanges),
            }
        }
        status => Err(status_error(status, headers)),
    }
}

#[cfg(test)]
mod tests {
    use hyper::http::header::{
        CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG, LINK, RETRY_AFTER,
    };

    use super::*;

    #[test]
    fn files_that_are_no_pages() {
        assert!(is_no_page("a.ISO") && is_no_page("a.tar.gz"));
        assert!(!is_no_page("iso") && !is_no_page("index.html") && !is_no_page("a.php"));
    }

    proptest::proptest! {
        #[test]
        fn any_fields_are_judged(
            fields in proptest::collection::vec((0_usize..8, "[ -~\u{80}]{0,24}"), 0..6),
            status in 100_u16..600,
            (first, end, length) in (0_u64..4, 0_u64..6, 0_u64..6),
        ) {
            let names = [
                CONTENT_RANGE, CONTENT_LENGTH, CONTENT_TYPE, CONTENT_ENCODING, RETRY_AFTER, ETAG, DATE, LINK,
            ];
            let mut answer = hyper::http::Response::builder().status(status);
            for (name, value) in &fields {
                answer = answer.header(names[*name].clone(), value.as_bytes());
            }
            let Ok(answer) = answer.body(()) else { return Ok(()) };
            let (parts, ()) = answer.into_parts();
            let url = Url::parse("http://h/f.iso").unwrap();
            let (validator, modified) = (Some("\"v\"".to_owned()), Some("today".to_owned()));
            for kind in [RequestKind::Metadata, RequestKind::Document { max: 7 }] {
                let _ = validate(&parts, &url, &url, &kind);
            }
            if first < end && end <= length {
                let kind = RequestKind::Range { first, end, length, validator, modified, seen_at: None };
                if let Ok((head, policy)) = validate(&parts, &url, &url, &kind) {
                    proptest::prop_assert!(head.whole || head.status == 206);
                    let bytes = if head.whole { length } else { end - first };
                    proptest::prop_assert!(matches!(policy, BodyPolicy::Exactly(n) if n == bytes));
                }
            }
        }
    }
}
