//! What a path of a store stands for.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::digest::Digest;

/// What a path stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The URLs of the same bytes, mirrors of each other.
    pub sources: Vec<String>,
    /// How the bytes are fetched and kept.
    pub kind: TargetKind,
    /// The media type that clients are told if no server says one.
    pub media_type: &'static str,
}

/// How the bytes of a path are fetched and kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// The bytes have this hash, and are kept for as long as there is room.
    Object(Digest),
    /// The bytes never change, by a rule of the store, and have no hash that is known. They are kept as an
    /// object is.
    Unchanging,
    /// A file of any length that may change, and is kept as HTTP's rules allow.
    File,
    /// A short document that may change, and is kept as HTTP's rules allow. The sources are asked one
    /// after the other, and the first that has it answers.
    Document(Document),
}

/// How a document is asked for and handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Document {
    /// The value of `Accept`.
    pub accept: &'static str,
    /// The hash that the document must have, if its path says one.
    pub digest: Option<Digest>,
    /// Whether the document is an index whose links are made to lead through the cache.
    pub is_index: bool,
}

impl Document {
    /// A document of any type, which is handed on as it is.
    pub const PLAIN: Self = Self { accept: "*/*", digest: None, is_index: false };
}

/// The media type of bytes that say nothing of themselves.
pub const UNKNOWN_TYPE: &str = "application/octet-stream";

/// A path of a request, after the names of its route.
#[derive(Clone, Copy, Debug)]
pub struct StorePath<'a> {
    /// The names, decoded. None is empty, `.` or `..`, and none contains a slash.
    pub names: &'a [String],
    /// Whether the path ends in a slash.
    pub directory: bool,
    /// The query, still encoded.
    pub query: Option<&'a str>,
    /// The types that the client accepts: the value of its `Accept`, or the empty text.
    pub accept: &'a str,
}

impl StorePath<'_> {
    /// Returns the path below the URL of each source, encoded.
    pub(super) fn below(&self, sources: &[String]) -> Vec<String> {
        let mut path = encoded(self.names);
        if self.directory && !self.names.is_empty() {
            path.push('/');
        }
        if let Some(query) = self.query {
            path = format!("{path}?{query}");
        }
        sources.iter().map(|source| format!("{source}{path}")).collect()
    }

    /// Returns the last name; the empty text if there is none.
    pub(super) fn last(&self) -> &str {
        self.names.last().map_or("", String::as_str)
    }
}

/// Returns names as a path, each after a slash.
pub(super) fn encoded(names: &[String]) -> String {
    /// The characters that a name of a path need not escape (RFC 3986 §3.3).
    const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'.')
        .remove(b'_')
        .remove(b'~')
        .remove(b'!')
        .remove(b'$')
        .remove(b'&')
        .remove(b'\'')
        .remove(b'(')
        .remove(b')')
        .remove(b'*')
        .remove(b'+')
        .remove(b',')
        .remove(b';')
        .remove(b'=')
        .remove(b':')
        .remove(b'@');
    names.iter().map(|name| format!("/{}", utf8_percent_encode(name, ESCAPED))).collect()
}
