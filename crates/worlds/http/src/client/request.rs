//! Builds the HTTP request of a fetch: its shape, its URL and its fields.

use hyper::http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, HOST, HeaderMap, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    IF_RANGE, InvalidHeaderValue, PROXY_AUTHORIZATION, RANGE, USER_AGENT,
};
use hyper::http::{Method, Request, Uri};

use super::api::{METADATA_BYTES, RequestKind};
use super::connect::Connection;
use super::error::FetchError;
use super::origin::{self, Url, authority, request_target, without_query};
use super::response_fields::is_strong;
use super::settings::Settings;

/// The part of a file that a request asks for.
#[derive(Clone, Copy)]
pub(super) enum RequestShape<'a> {
    Bytes { first: u64, end: u64, validator: Option<Validator<'a>> },
    Whole { unless: Option<Unless<'a>> },
}

/// The validators of a document that is not wanted again.
#[derive(Clone, Copy)]
pub(super) struct Unless<'a> {
    etag: Option<&'a str>,
    modified: Option<&'a str>,
}

/// A strong `ETag`, and the only URL that it belongs to; without a URL, it belongs to all.
#[derive(Clone, Copy)]
pub(super) struct Validator<'a> {
    tag: &'a str,
    seen_at: Option<&'a str>,
}

impl Validator<'_> {
    /// Whether the tag belongs to `url`. Queries do not count, because they carry signatures, which are new
    /// each time.
    pub(super) fn is_for(&self, url: &Url) -> bool {
        let same =
            |seen: &str| origin::parse(seen).is_ok_and(|seen| without_query(&seen) == without_query(url));
        self.seen_at.is_none_or(same)
    }
}

/// The URL that a fetch began with.
#[derive(Clone, Copy)]
pub(super) struct OriginalUrl<'a> {
    pub(super) url: &'a Url,
    /// As in [`FetchRequest`](super::FetchRequest).
    pub(super) trusted: bool,
}

impl<'a> OriginalUrl<'a> {
    /// Returns the URL that counts as the beginning once a redirect has led to another origin: that
    /// `stranger`, without trust. Otherwise a server that chooses where the caller's secrets go could act in
    /// the caller's name.
    pub(super) fn by_way_of(self, stranger: Option<&'a Url>) -> Self {
        stranger.map_or(self, |url| Self { url, trusted: false })
    }
}

impl<'a> RequestShape<'a> {
    /// Returns the part that the first request of `kind` asks for.
    pub(super) fn of(kind: &'a RequestKind) -> Result<Self, FetchError> {
        match kind {
            RequestKind::Metadata => Ok(Self::Bytes { first: 0, end: METADATA_BYTES, validator: None }),
            RequestKind::Document { .. } => Ok(Self::Whole { unless: None }),
            RequestKind::ChangedDocument { etag, modified, .. } => {
                let (etag, modified) = (etag.as_deref(), modified.as_deref());
                Ok(Self::Whole { unless: Some(Unless { etag, modified }) })
            }
            RequestKind::Range { first, end, length, .. } if first >= end || end > length => {
                Err(FetchError::Refused(format!("bytes {first} to {end} of {length} are no range")))
            }
            RequestKind::Range { first, end, validator, seen_at, .. } => {
                let tag = validator.as_deref().filter(|tag| is_strong(tag));
                let validator = tag.map(|tag| Validator { tag, seen_at: seen_at.as_deref() });
                Ok(Self::Bytes { first: *first, end: *end, validator })
            }
        }
    }

    /// Whether the request asks for a range of the file.
    pub(super) const fn is_range(&self) -> bool {
        matches!(self, Self::Bytes { .. })
    }

    /// Returns the demands on an answer from `url`: `kind`, without the `ETag` if it belongs to another URL,
    /// and without the date if there is an `ETag`.
    pub(super) fn demands(&self, kind: &RequestKind, url: &Url) -> RequestKind {
        let mut kind = kind.clone();
        if let RequestKind::Range { validator, modified, .. } = &mut kind {
            if self.has_validator() {
                *modified = None;
            }
            if !self.validates(url) {
                *validator = None;
            }
        }
        kind
    }

    /// Sets the header fields that say which part of `url` is wanted.
    ///
    /// # Errors
    /// If the validator cannot be the value of a field.
    pub(super) fn set_fields(&self, url: &Url, headers: &mut HeaderMap) -> Result<(), InvalidHeaderValue> {
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Self::Whole { unless: Some(unless) } = self {
            for (name, value) in [(IF_NONE_MATCH, unless.etag), (IF_MODIFIED_SINCE, unless.modified)] {
                if let Some(value) = value {
                    headers.insert(name, HeaderValue::from_str(value)?);
                }
            }
        }
        if let Self::Bytes { first, end, validator } = self {
            headers.insert(RANGE, HeaderValue::from_str(&format!("bytes={first}-{}", end - 1))?);
            if let Some(validator) = validator.filter(|validator| validator.is_for(url)) {
                headers.insert(IF_RANGE, HeaderValue::from_str(validator.tag)?);
            }
        }
        Ok(())
    }

    /// Whether the request has a strong `ETag`.
    const fn has_validator(&self) -> bool {
        matches!(self, Self::Bytes { validator: Some(_), .. })
    }

    /// Whether an answer from `url` must have the request's `ETag`.
    fn validates(&self, url: &Url) -> bool {
        matches!(self, Self::Bytes { validator: Some(validator), .. } if validator.is_for(url))
    }
}

/// Builds the request for `shape` of `url`, in the form that `connection` needs.
pub(super) fn request(
    settings: &Settings,
    asked: OriginalUrl<'_>,
    url: &Url,
    shape: RequestShape<'_>,
    connection: &Connection,
) -> Result<Request<()>, FetchError> {
    let impossible = |e: hyper::http::Error| FetchError::Refused(format!("{}: {e}", without_query(url)));
    let mut headers = settings.headers(asked.url, asked.trusted, url);
    let value = |text: &str| HeaderValue::from_str(text).map_err(|e| impossible(e.into()));
    shape.set_fields(url, &mut headers).map_err(|e| impossible(e.into()))?;
    if !headers.contains_key(AUTHORIZATION)
        && let Some(token) = settings.tokens.get(url, settings.clock.now())
    {
        headers.insert(AUTHORIZATION, token);
    }
    if !headers.contains_key(ACCEPT) {
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    }
    if !headers.contains_key(USER_AGENT) {
        headers.insert(USER_AGENT, value(&settings.agent)?);
    }
    let host = match headers.remove(HOST) {
        Some(host) => host,
        None => value(authority(url))?,
    };
    let uri = if connection.is_h2() || connection.relay.is_some() {
        let named = connection.is_h2() && !host.is_empty();
        let authority = if named { host.as_bytes() } else { authority(url).as_bytes() };
        Uri::builder().scheme(url.scheme()).authority(authority).path_and_query(request_target(url))
    } else {
        Uri::builder().path_and_query(request_target(url))
    };
    let uri = uri.build().map_err(impossible)?;
    if !connection.is_h2() {
        headers.insert(HOST, host);
    }
    if let Some(Some(credentials)) = &connection.relay {
        headers.insert(PROXY_AUTHORIZATION, credentials.clone());
    }
    let mut request = Request::builder().method(Method::GET).uri(uri).body(()).map_err(impossible)?;
    *request.headers_mut() = headers;
    Ok(request)
}
