//! What a path of a store stands for.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use crate::digest::{Digest, HashKind};
use crate::store::Key;

/// What a path stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The URLs of the same bytes, mirrors of each other.
    pub sources: Vec<String>,
    /// How the bytes are fetched and kept.
    pub kind: TargetKind,
    /// The media type that clients are told if no server says one.
    pub media_type: &'static str,
    /// The value of `Authorization` that goes to the sources, if there is one. What comes by it is for those
    /// only who send the same.
    pub credentials: Option<String>,
}

impl Target {
    /// Returns the key of an object that only those may have who send the same credentials as this request:
    /// `key` itself if there are none.
    #[must_use]
    pub fn own_key(&self, key: Key) -> Key {
        self.credentials.as_deref().map_or_else(|| key.clone(), |credentials| key.of_one(credentials))
    }
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
    /// A file whose server says its hash, and other things that clients need, in header fields
    /// ([`Resolution`]). What the server says is kept as a document is, and the file as an object.
    Resolved {
        /// Whether what the server says never changes.
        lasts: bool,
    },
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
    /// Whether the document is what a server [says](Resolution) of the file at its URL.
    pub is_resolution: bool,
    /// Whether the document never changes.
    pub lasts: bool,
}

impl Document {
    /// A document of any type, which is handed on as it is.
    pub const PLAIN: Self =
        Self { accept: "*/*", digest: None, is_index: false, is_resolution: false, lasts: false };
}

/// What a server says of a file: the fields of its answer, or of the redirect that leads to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolution {
    /// The tag of the file, in its quotes: that of the file behind a redirect, if the server says it.
    pub etag: Option<String>,
    /// Whether the tag is that of a file behind a redirect, which is its SHA-256.
    pub is_linked: bool,
    /// The media type.
    pub media_type: Option<String>,
    /// Fields that are handed on.
    pub fields: Vec<(String, String)>,
}

impl Resolution {
    /// The fields of servers that [`of`](Self::of) needs: some are for clients, some for HTTP's rules.
    pub const FIELDS: &[&str] = &[
        "etag",
        "x-linked-etag",
        "x-linked-size",
        "x-repo-commit",
        "cache-control",
        "date",
        "expires",
        "age",
    ];

    /// Makes a resolution of fields that a server has sent.
    #[must_use]
    pub fn of(sent: &[(&'static str, String)], media_type: Option<String>) -> Self {
        let value = |name| Some(sent.iter().find(|(known, _)| *known == name)?.1.clone());
        let (linked, own) = (value("x-linked-etag"), value("etag"));
        let is_linked = linked.is_some();
        let etag = linked.or(own);
        // A client believes this one before the `ETag`, which is that of the cache.
        let tag = etag.clone().map(|etag| ("x-linked-etag".to_owned(), etag));
        let others = ["x-linked-size", "x-repo-commit"].map(|name| Some((name.to_owned(), value(name)?)));
        let fields = others.into_iter().flatten().chain(tag).collect();
        Self { etag, is_linked, media_type, fields }
    }

    /// Returns the hash of the file, if the server says it.
    #[must_use]
    pub fn digest(&self) -> Option<Digest> {
        let etag = self.etag.as_deref().filter(|_| self.is_linked)?;
        Digest::from_hex(HashKind::Sha256, etag.trim_matches('"'))
    }
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
