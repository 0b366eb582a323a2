//! Checks that an answer is exactly what was asked for (RFC 9110 sections 8, 13, 14 and 15).

use hyper::http::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderMap};
use hyper::http::{StatusCode, response};

use super::api::{Head, METADATA_BYTES, RequestKind};
use super::error::FetchError;
use super::origin::{Url, file_name};
use super::response_fields::{coding, content_length, content_range, head, is_html, is_strong, retry_after};

/// File types that are never web pages. HTML under such a name is a login page or an error page.
const FILE_TYPES: &str = "\
    7z apk appimage asc bin bz2 cab crate csv deb dmg efi exe flac gem gguf gz img ipk iso jar jigdo \
    jpeg jpg json lz lz4 lzma m4a md5 meta4 metalink mkv mp3 mp4 msi ogg parquet pdf pkg png qcow2 rar \
    raw rpm safetensors sha1 sha256 sha512 sig squashfs tar tbz template tgz torrent txz vdi vhd vhdx \
    vmdk wav webm whl xml xz zip zst";

/// Content codings, each with the extensions of files that have this coding themselves.
const CODED_FILES: &[(&[&str], &[&str])] = &[
    (&["gzip", "x-gzip"], &["gz", "tgz", "svgz", "taz"]),
    (&["compress", "x-compress"], &["z", "taz"]),
    (&["bzip2", "x-bzip2"], &["bz2", "tbz", "tbz2"]),
    (&["xz", "x-xz"], &["xz", "txz"]),
    (&["lzma", "x-lzma"], &["lzma", "tlz"]),
    (&["zstd"], &["zst", "tzst"]),
    (&["br"], &["br"]),
];

/// How the body of an accepted answer is handled.
#[derive(Debug)]
pub(super) enum BodyPolicy {
    /// The body is handed over. It must have exactly this many bytes.
    Exactly(u64),
    /// The body is handed over. It may have at most this many bytes.
    AtMost(u64),
    /// The first [`METADATA_BYTES`] of the body are handed over, if they come within a few seconds. The rest
    /// is not wanted.
    Opening,
    /// The body is not wanted.
    Nothing,
}

/// Returns the error for a status that is neither 2xx nor a redirect.
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

/// Whether a file called `name` is never a web page.
fn is_no_page(name: &str) -> bool {
    let is = |end: &str| FILE_TYPES.split(' ').any(|known| known.eq_ignore_ascii_case(end));
    name.rsplit_once('.').is_some_and(|(_, end)| is(end))
}

/// Whether `coding` (RFC 9110 section 8.4.1) only labels the file, as its extension in one of `urls` shows.
/// Many servers label archives in this way. The bytes are then those of the file.
fn is_label(coding: &str, urls: &[&Url]) -> bool {
    let among = |all: &[&str], one: &str| all.iter().any(|known| known.eq_ignore_ascii_case(one));
    let types = urls.iter().filter_map(|url| file_name(url).rsplit_once('.')).map(|(_, end)| end);
    let is_type = |end: &str| CODED_FILES.iter().any(|(of, ends)| among(of, coding) && among(ends, end));
    types.into_iter().any(is_type)
}

fn web_page() -> FetchError {
    FetchError::NotTheFile(
        "a web page came instead of the file: perhaps this network wants a login first".to_owned(),
    )
}

/// The reason why an answer is not accepted.
#[derive(Debug)]
pub(super) enum Rejection {
    /// The fetch fails with this error.
    Failed(FetchError),
    /// The answer's statements about its range cannot be believed, so the server is taken to have no ranges.
    /// The file is asked for once more, without a range. If it was asked for without a range before, the
    /// fetch fails with this error.
    UnclearRange(FetchError),
}

impl From<FetchError> for Rejection {
    fn from(error: FetchError) -> Self {
        Self::Failed(error)
    }
}

/// Validates the head `parts` of an answer from `url` to a request of `kind`, in a fetch that began at
/// `asked`. For a range, `kind` holds the `validator` and the date `modified` that the answer must have.
pub(super) fn validate(
    parts: &response::Parts,
    asked: &Url,
    url: &Url,
    kind: &RequestKind,
) -> Result<(Head, BodyPolicy), Rejection> {
    let headers = &parts.headers;
    let mut head = head(parts, url);
    if parts.status == StatusCode::RANGE_NOT_SATISFIABLE {
        return not_satisfiable(headers, head, kind);
    }
    if parts.status == StatusCode::NOT_MODIFIED && matches!(kind, RequestKind::ChangedDocument { .. }) {
        return Ok((head, BodyPolicy::Nothing));
    }
    if !parts.status.is_success() {
        return Err(status_error(parts.status, headers).into());
    }
    if let Some(coding) = coding(headers).filter(|coding| !is_label(coding, &[asked, url])) {
        return Err(FetchError::Encoded(coding).into());
    }
    match kind {
        RequestKind::Range { .. } => range(parts, &mut head, kind).map(|policy| (head, policy)),
        RequestKind::Document { .. } | RequestKind::ChangedDocument { .. } | RequestKind::Metadata
            if is_html(headers) && is_no_page(file_name(asked)) =>
        {
            Err(web_page().into())
        }
        RequestKind::Document { max } | RequestKind::ChangedDocument { max, .. } => {
            let max = u64::try_from(*max).unwrap_or(u64::MAX);
            match head.length {
                _ if parts.status != StatusCode::OK => Err(status_error(parts.status, headers).into()),
                Some(length) if length > max => Err(FetchError::Refused(format!(
                    "it has {length} bytes, more than the {max} that are taken"
                ))
                .into()),
                Some(length) => Ok((head, BodyPolicy::Exactly(length))),
                None => Ok((head, BodyPolicy::AtMost(max))),
            }
        }
        RequestKind::Metadata if parts.status == StatusCode::PARTIAL_CONTENT => {
            let part = Part::of(headers, &head).map_err(Rejection::UnclearRange)?;
            // A shorter file sends fewer bytes. If the total equals the end of the range, the server may have
            // put the length of the part where the length of the file belongs.
            if part.first != 0 || part.end > METADATA_BYTES || part.complete == Some(METADATA_BYTES) {
                return Err(Rejection::UnclearRange(part.other_than(0, METADATA_BYTES)));
            }
            (head.length, head.ranges) = (part.complete, true);
            // The opening is compared with that of other servers, so a shorter one than was asked for is of
            // no use.
            let is_all = part.end == METADATA_BYTES || part.complete == Some(part.end);
            Ok((head, if is_all { BodyPolicy::Opening } else { BodyPolicy::Nothing }))
        }
        RequestKind::Metadata if parts.status == StatusCode::OK => {
            whole_only(headers, &head)?;
            // A server that answers a range with the whole file has no ranges, whatever its fields say.
            head.ranges = false;
            Ok((head, BodyPolicy::Opening))
        }
        RequestKind::Metadata => Err(status_error(parts.status, headers).into()),
    }
}

/// Interprets an answer with the status 416: the file has no such bytes.
fn not_satisfiable(
    headers: &HeaderMap,
    mut head: Head,
    kind: &RequestKind,
) -> Result<(Head, BodyPolicy), Rejection> {
    let now = content_range(headers);
    match kind {
        RequestKind::Metadata if now == Some((None, Some(0))) => {
            // The file is empty.
            (head.length, head.ranges) = (Some(0), true);
            Ok((head, BodyPolicy::Nothing))
        }
        RequestKind::Metadata => {
            Err(Rejection::UnclearRange(status_error(StatusCode::RANGE_NOT_SATISFIABLE, headers)))
        }
        RequestKind::Range { first, end, length, validator, .. } => Err(match now {
            Some((None, Some(now))) if now != *length => changed_length(now, *length),
            _ if validator.is_some() && head.etag.is_some() && head.etag != *validator => {
                FetchError::ChangedTag
            }
            _ => FetchError::NotTheFile(format!(
                "the server has no bytes {first} to {}",
                end.saturating_sub(1)
            )),
        }
        .into()),
        RequestKind::Document { .. } | RequestKind::ChangedDocument { .. } => {
            Err(status_error(StatusCode::RANGE_NOT_SATISFIABLE, headers).into())
        }
    }
}

fn changed_length(now: u64, before: u64) -> FetchError {
    FetchError::Changed(format!("it has {now} bytes now, not {before}"))
}

/// The part of a file that an answer with the status 206 brings.
struct Part {
    first: u64,
    /// The offset after the last byte.
    end: u64,
    /// The length of the file, if it is known.
    complete: Option<u64>,
}

impl Part {
    /// Reads the part from the header fields. Fails if they are missing or contradict each other.
    fn of(headers: &HeaderMap, head: &Head) -> Result<Self, FetchError> {
        let kind = head.content_type.as_deref().unwrap_or_default().to_ascii_lowercase();
        if kind.starts_with("multipart/") {
            return Err(FetchError::NotTheFile("the server sends several parts for one range".to_owned()));
        }
        let Some((Some((first, last)), complete)) = content_range(headers) else {
            return Err(FetchError::NotTheFile("the server does not say which range it sends".to_owned()));
        };
        let part = Self { first, end: last.saturating_add(1), complete };
        if headers.contains_key(CONTENT_LENGTH) && content_length(headers) != Some(part.end - first) {
            return Err(FetchError::NotTheFile(
                "the server's Content-Length is not that of its range".to_owned(),
            ));
        }
        Ok(part)
    }

    /// Returns the error that this part is not the one from `first` up to `end`.
    fn other_than(&self, first: u64, end: u64) -> FetchError {
        let (from, to) = (self.first, self.end.saturating_sub(1));
        FetchError::NotTheFile(format!(
            "the server sends bytes {from} to {to}, asked for {first} to {}",
            end.saturating_sub(1)
        ))
    }
}

/// Checks that an answer with the status 200 brings the whole file. If its fields name a range, the range
/// must be the whole file.
fn whole_only(headers: &HeaderMap, head: &Head) -> Result<(), Rejection> {
    if !headers.contains_key(CONTENT_RANGE) {
        return Ok(());
    }
    match Part::of(headers, head) {
        Ok(Part { first: 0, end, complete: Some(complete) }) if end == complete => Ok(()),
        _ => Err(Rejection::UnclearRange(FetchError::NotTheFile(
            "the server sends a part of it as if that were all".to_owned(),
        ))),
    }
}

/// Validates a successful answer to the request for a range.
fn range(parts: &response::Parts, head: &mut Head, kind: &RequestKind) -> Result<BodyPolicy, Rejection> {
    let RequestKind::Range { first, end, length, validator, modified, .. } = kind else {
        return Err(FetchError::Refused("no range was asked for".to_owned()).into());
    };
    let headers = &parts.headers;
    // Weak tags are not compared, because equal ones do not prove that the bytes are equal.
    let tag = head.etag.as_deref().filter(|tag| is_strong(tag));
    let other = matches!((tag, validator), (Some(now), Some(before)) if now != before);
    let date = (&head.last_modified, modified);
    let redated = matches!(date, (Some(now), Some(before)) if validator.is_none() && now != before);
    match parts.status {
        StatusCode::PARTIAL_CONTENT => {
            let part = Part::of(headers, head)?;
            // An answer that does not tell the file's length (RFC 9110, 14.4) is accepted all the same.
            if let Some(complete) = part.complete
                && complete != *length
            {
                return Err(changed_length(complete, *length).into());
            }
            if other {
                return Err(FetchError::ChangedTag.into());
            }
            if redated {
                return Err(FetchError::ChangedDate.into());
            }
            if part.first != *first || part.end > *end {
                return Err(part.other_than(*first, *end).into());
            }
            // The part may be shorter than was asked for (RFC 9110, 15.3.7).
            head.ends_early_at = (part.end < *end).then_some(part.end);
            (head.length, head.ranges) = (Some(*length), true);
            Ok(BodyPolicy::Exactly(part.end - first))
        }
        StatusCode::OK => {
            match whole_only(headers, head) {
                Err(_) if *first > 0 => return Err(FetchError::NoRanges.into()),
                whole => whole?,
            }
            head.ranges = false;
            match head.length {
                Some(now) if now != *length && is_html(headers) => Err(web_page()),
                Some(now) if now != *length => Err(changed_length(now, *length)),
                None if is_html(headers) => Err(web_page()),
                _ if other => Err(FetchError::ChangedTag),
                _ if redated => Err(FetchError::ChangedDate),
                // With If-Range, a server that has ranges sends the whole file if it has changed.
                _ if (head.length.is_some() || *first == 0) && validator.is_some() && tag.is_none() => {
                    Err(FetchError::ChangedTag)
                }
                // An answer that does not tell its length must still bring as many bytes.
                Some(_) | None if *first == 0 => {
                    head.whole = true;
                    Ok(BodyPolicy::Exactly(*length))
                }
                _ => Err(FetchError::NoRanges),
            }
            .map_err(Rejection::Failed)
        }
        status => Err(status_error(status, headers).into()),
    }
}

#[cfg(test)]
mod tests {
    use hyper::http::header::{CONTENT_ENCODING, CONTENT_TYPE, DATE, ETAG, LINK, RETRY_AFTER};

    use super::*;

    #[test]
    fn files_that_are_no_pages() {
        assert!(is_no_page("a.ISO") && is_no_page("a.tar.gz"));
        assert!(!is_no_page("iso") && !is_no_page("index.html") && !is_no_page("a.php"));
    }

    /// The head of an answer with these header fields.
    fn parts(status: u16, fields: &[(&str, &str)]) -> response::Parts {
        let mut answer = hyper::http::Response::builder().status(status);
        for (name, value) in fields {
            answer = answer.header(*name, *value);
        }
        answer.body(()).unwrap().into_parts().0
    }

    /// Validates the first answer of a server, with these header fields.
    fn metadata(status: u16, fields: &[(&str, &str)]) -> Result<(Head, BodyPolicy), Rejection> {
        let url = Url::parse("http://h/f.bin").unwrap();
        validate(&parts(status, fields), &url, &url, &RequestKind::Metadata)
    }

    #[test]
    fn a_first_answer_is_believed_only_if_it_says_clearly_what_it_brings() {
        for (status, range, length) in [
            (200, "bytes 0-13311/40960", "13312"),
            (206, "bytes 0-13311/13312", "13312"),
            (206, "bytes 1-13312/40960", "13312"),
            (206, "bytes 0-13311/40960", "40960"),
            (206, "bytes 0-0/0", "1"),
            (206, "lines 0-13311/40960", "13312"),
            (416, "bytes */40960", "0"),
        ] {
            let came = metadata(status, &[("content-range", range), ("content-length", length)]);
            assert!(matches!(came, Err(Rejection::UnclearRange(_))), "{status} {range}: {came:?}");
        }
        assert!(matches!(metadata(416, &[]), Err(Rejection::UnclearRange(_))));
        for (range, length, opening) in [
            ("0-13311/40960", 40_960, true),
            ("bytes 0-13311/40960", 40_960, true),
            ("bytes 0-99/100", 100, true),
            // The part is shorter than those of other servers, so it is not compared with them.
            ("bytes 0-99/40960", 40_960, false),
        ] {
            let (head, policy) = metadata(206, &[("content-range", range)]).expect(range);
            assert_eq!((head.length, head.ranges), (Some(length), true), "{range}");
            assert_eq!(matches!(policy, BodyPolicy::Opening), opening, "{range}");
        }
        let all = [("content-range", "bytes 0-99/100"), ("content-length", "100")];
        let (head, _) = metadata(200, &all).expect("a range of all there is");
        assert_eq!((head.length, head.ranges), (Some(100), false));
    }

    #[test]
    fn a_part_may_be_shorter_than_what_was_asked_for() {
        let url = Url::parse("http://h/f.bin").unwrap();
        let (validator, modified, seen_at) = (None, None, None);
        let kind = RequestKind::Range { first: 10, end: 20, length: 30, validator, modified, seen_at };
        let come = |status, range| validate(&parts(status, &[("content-range", range)]), &url, &url, &kind);
        let (head, policy) = come(206, "bytes 10-12/30").expect("less");
        assert_eq!(head.ends_early_at, Some(13));
        assert!(matches!(policy, BodyPolicy::Exactly(3)));
        assert_eq!(come(206, "bytes 10-19/30").expect("all").0.ends_early_at, None);
        for other in ["bytes 9-19/30", "bytes 11-19/30", "bytes 10-20/30"] {
            assert!(matches!(come(206, other), Err(Rejection::Failed(FetchError::NotTheFile(_)))), "{other}");
        }
        assert!(matches!(come(200, "bytes 10-19/30"), Err(Rejection::Failed(FetchError::NoRanges))));
    }

    #[test]
    fn a_coding_may_only_be_a_label() {
        let of = |coding: &str, path: &str| {
            let url = Url::parse(&format!("http://h/{path}")).unwrap();
            let kind = RequestKind::Document { max: 100 };
            let fields = [("content-encoding", coding), ("content-length", "1")];
            validate(&parts(200, &fields), &url, &url, &kind).is_ok()
        };
        assert!(of("x-gzip", "x.tar.gz") && of("gzip", "x.TGZ?a=b") && of("compress", "x.Z"));
        assert!(of("identity", "x.tar"));
        assert!(!of("gzip", "x.tar") && !of("br", "x.gz") && !of("gzip, gzip", "x.gz") && !of("gzip", "gz"));
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
                    let end = head.ends_early_at.unwrap_or(end);
                    let bytes = if head.whole { length } else { end - first };
                    proptest::prop_assert!(matches!(policy, BodyPolicy::Exactly(n) if n == bytes));
                }
            }
        }
    }
}
