//! The requests that a scripted server gets, and its answers.

use std::ops::Range;

use anabranch_algo::Span;
use bytes::Bytes;
use hyper::http::HeaderMap;

use crate::client::api::METADATA_BYTES;
use crate::client::error::FetchError;
use crate::client::origin::{Url, request_target, without_query};
use crate::client::request::RequestShape;

/// A request, as the server sees it.
#[derive(Clone, Debug)]
pub struct Request {
    /// The host of the URL.
    pub host: String,
    /// The path and the query.
    pub path: String,
    /// The header fields that say which part of the file is wanted, with names in lower case.
    pub fields: Vec<(String, String)>,
}

impl Request {
    pub(super) fn new(url: &Url, shape: RequestShape<'_>) -> Result<Self, FetchError> {
        let mut headers = HeaderMap::new();
        let set = shape.set_fields(url, &mut headers);
        set.map_err(|e| FetchError::Refused(format!("{}: {e}", without_query(url))))?;
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let fields = headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes())));
        Ok(Self {
            host: url.host_str().unwrap_or_default().to_owned(),
            path: request_target(url).to_owned(),
            fields: fields.collect(),
        })
    }

    /// Returns the value of a header field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns the range of bytes that the request asks for; `None` means the whole file.
    #[must_use]
    pub fn range(&self) -> Option<Range<u64>> {
        let (first, last) = self.field("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some(first.parse().ok()?..last.parse::<u64>().ok()? + 1)
    }

    /// Whether the request is for bytes of the file, and not for its metadata alone.
    #[must_use]
    pub fn is_for_bytes(&self) -> bool {
        self.range() != Some(0..METADATA_BYTES)
    }
}

/// How a server goes on besides sending the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The server waits for the next request behind the body.
    Keep,
    /// The server closes the connection behind the body.
    Close,
    /// The server sends nothing more behind the body, and keeps the connection open.
    Stall,
    /// The server closes the connection without an answer.
    HangUp,
    /// The server accepts the request and never answers.
    Mute,
    /// The server accepts no connection.
    Refuse,
}

/// An answer of a scripted server.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The header fields except for the length of the body.
    pub fields: Vec<(&'static str, String)>,
    /// The value of `Content-Length`. `None` stands for the length of the body, unless the body comes in
    /// chunks or [ends with the connection](Self::until_close).
    pub length: Option<u64>,
    /// The body.
    pub body: Bytes,
    /// Whether the body is sent again and again, without an end.
    pub repeats: bool,
    /// Whether the body has no length and ends with the connection.
    pub until_close: bool,
    /// The rate of the body in bytes per second.
    pub rate: u64,
    /// The time from a request to the first byte of its answer, over an open connection.
    pub delay: Span,
    /// How the server goes on besides sending the body.
    pub then: Then,
    /// When, counted from the request, and how the body breaks off, if it has not ended before.
    pub breaks: Option<(Span, Then)>,
}

impl Reply {
    /// Creates an answer without header fields, whose body comes at once.
    #[must_use]
    pub fn new(status: u16, body: impl Into<Bytes>) -> Self {
        Self {
            status,
            fields: Vec::new(),
            length: None,
            body: body.into(),
            repeats: false,
            until_close: false,
            rate: u64::MAX,
            delay: Span::ZERO,
            then: Then::Keep,
            breaks: None,
        }
    }

    /// Creates a reply without an answer, for a [`Then`] that needs none.
    #[must_use]
    pub fn nothing(then: Then) -> Self {
        Self { then, ..Self::new(500, Bytes::new()) }
    }

    /// Sets a header field, and replaces an earlier value of it.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.retain(|(key, _)| *key != name);
        self.fields.push((name, value.into()));
        self
    }

    /// Removes a header field.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.fields.retain(|(key, _)| *key != name);
        self
    }

    /// Sends the body in chunks, so that the head does not tell its length.
    #[must_use]
    pub fn chunked(self) -> Self {
        self.with("transfer-encoding", "chunked")
    }

    /// Sends only the first `bytes` bytes of the body, although the head tells the full length, and then goes
    /// on as `then` says.
    #[must_use]
    pub fn cut(mut self, bytes: usize, then: Then) -> Self {
        self.length = Some(self.length.unwrap_or(self.body.len() as u64));
        self.body.truncate(bytes);
        Self { then, ..self }
    }

    /// Limits the rate of the body to `rate` bytes per second.
    #[must_use]
    pub fn at(self, rate: u64) -> Self {
        Self { rate, ..self }
    }

    /// Whether the body comes in chunks.
    pub(super) fn is_chunked(&self) -> bool {
        self.fields.iter().any(|(name, _)| *name == "transfer-encoding")
    }

    /// Returns the head as the server sends it.
    pub(super) fn head(&self) -> String {
        let mut head = format!("HTTP/1.1 {} Words\r\n", self.status);
        let has_length = self.fields.iter().any(|(name, _)| *name == "content-length");
        if !self.is_chunked() && !self.until_close && !has_length {
            head += &format!("content-length: {}\r\n", self.length.unwrap_or(self.body.len() as u64));
        }
        for (name, value) in &self.fields {
            head += &format!("{name}: {value}\r\n");
        }
        head + "\r\n"
    }
}
