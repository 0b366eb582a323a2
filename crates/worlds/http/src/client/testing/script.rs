//! What a scripted server is asked, and what it answers.

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
    /// The host of its URL.
    pub host: String,
    /// Path and query.
    pub path: String,
    /// The fields that say what is wanted, with small letters.
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

    /// The value of a header field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The bytes that are asked for; `None`: all.
    #[must_use]
    pub fn range(&self) -> Option<Range<u64>> {
        let (first, last) = self.field("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some(first.parse().ok()?..last.parse::<u64>().ok()? + 1)
    }

    /// Whether it is for bytes of the file, and not for the metadata alone.
    #[must_use]
    pub fn is_for_bytes(&self) -> bool {
        self.range() != Some(0..METADATA_BYTES)
    }
}

/// What a server does besides sending the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It waits for the next request behind the body.
    Keep,
    /// It closes the connection behind the body.
    Close,
    /// It says nothing more behind the body, and keeps the connection.
    Stall,
    /// It closes the connection without an answer.
    HangUp,
    /// It takes the request and never answers.
    Mute,
    /// It takes no connection.
    Refuse,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// Header fields but for the length of the body.
    pub fields: Vec<(&'static str, String)>,
    /// What `Content-Length` says; `None`: the length of the body, unless it comes in chunks or
    /// [ends with the connection](Self::until_close).
    pub length: Option<u64>,
    /// The body.
    pub body: Bytes,
    /// Whether the body is sent again and again, without an end.
    pub repeats: bool,
    /// Whether the body has no length and ends with the connection.
    pub until_close: bool,
    /// The pace of the body, bytes a second.
    pub rate: u64,
    /// From a request to the first byte of its answer, over an open connection.
    pub delay: Span,
    /// What the server does besides.
    pub then: Then,
    /// When, from the request on, and how the body breaks off if it has not ended before.
    pub breaks: Option<(Span, Then)>,
}

impl Reply {
    /// One without fields that comes as fast as memory.
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

    /// No answer at all: a [`Then`] that needs none.
    #[must_use]
    pub fn nothing(then: Then) -> Self {
        Self { then, ..Self::new(500, Bytes::new()) }
    }

    /// With a field set, or another value of it.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.retain(|(key, _)| *key != name);
        self.fields.push((name, value.into()));
        self
    }

    /// Without a field.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.fields.retain(|(key, _)| *key != name);
        self
    }

    /// In chunks, so that the head does not say how long it is.
    #[must_use]
    pub fn chunked(self) -> Self {
        self.with("transfer-encoding", "chunked")
    }

    /// Only so many bytes of the body, though the length of all is told, and then this.
    #[must_use]
    pub fn cut(mut self, bytes: usize, then: Then) -> Self {
        self.length = Some(self.length.unwrap_or(self.body.len() as u64));
        self.body.truncate(bytes);
        Self { then, ..self }
    }

    /// No faster than this, bytes a second.
    #[must_use]
    pub fn at(self, rate: u64) -> Self {
        Self { rate, ..self }
    }

    /// Whether the body comes in chunks.
    pub(super) fn is_chunked(&self) -> bool {
        self.fields.iter().any(|(name, _)| *name == "transfer-encoding")
    }

    /// The head, as it is sent.
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
