//! Reads a link's trace once, for all cases and runs that use it.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use anabranch_sim::Trace;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::built_in;
use crate::digest::Digest;

/// Largest trace, bytes.
pub const TRACE_BYTES_MAX: u64 = 256 << 20;

/// The path of a trace, and its contents after the first read. Copies share contents that were read before.
#[derive(Clone, Debug)]
pub struct TraceFile {
    path: String,
    read: OnceLock<Result<(Trace, Digest), String>>,
}

impl TraceFile {
    /// Creates the reference to the trace at `path` without reading it.
    #[must_use]
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), read: OnceLock::new() }
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Reads the trace on the first call; returns it with a digest of its contents.
    ///
    /// # Errors
    /// If the file cannot be read or is not a trace; the error is a sentence.
    pub fn read(&self) -> Result<&(Trace, Digest), &str> {
        self.read.get_or_init(|| load(Path::new(&self.path))).as_ref().map_err(String::as_str)
    }
}

fn load(path: &Path) -> Result<(Trace, Digest), String> {
    if let Some(name) = path.to_str().and_then(|path| path.strip_prefix(built_in::PREFIX)) {
        return parse(built_in::trace(name).ok_or("is not part of this program")?);
    }
    let unread = |e| format!("cannot be read: {e}");
    if fs::metadata(path).map_err(unread)?.len() > TRACE_BYTES_MAX {
        return Err(format!("is over {TRACE_BYTES_MAX} bytes"));
    }
    parse(&fs::read_to_string(path).map_err(unread)?)
}

fn parse(text: &str) -> Result<(Trace, Digest), String> {
    let trace = Trace::parse(text).map_err(|e| format!("is none: {e}"))?;
    Ok((trace, Digest::of(text.as_bytes())))
}

impl PartialEq for TraceFile {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl<'de> Deserialize<'de> for TraceFile {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from).map(Self::new)
    }
}

impl Serialize for TraceFile {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.path)
    }
}
