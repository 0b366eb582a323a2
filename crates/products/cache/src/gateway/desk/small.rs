//! Fetches small objects from one source, on a connection that an earlier request has left open.
//!
//! A transfer from many sources opens its connections for itself: with TLS, several round trips each. That
//! pays for a large object. A client such as pip, which asks for one small file after the other, would be
//! slower through the cache than without it.
//!
//! Only an object with one source comes this way: several sources are asked at once, so that a dead one
//! delays nothing, and are compared with each other. What the source does not send as a small file comes by a
//! transfer.

use anabranch_http::client::{FetchError, Head, RequestKind};

use crate::gateway::flight::WAITED_FOR_BYTES;
use crate::gateway::upstream::Upstream;

/// Returns the bytes at a URL, if there are few and all come.
pub(super) fn small_body(
    upstream: &Upstream,
    url: &str,
    credentials: Option<&str>,
) -> Result<Option<Vec<u8>>, FetchError> {
    let (head, mut body) = upstream.fetch(url, &RequestKind::Metadata, "*/*", credentials)?;
    let Some(length) = head.length.filter(|length| *length <= WAITED_FOR_BYTES) else { return Ok(None) };
    if (body.len() as u64) < length {
        let (_, rest) = upstream.fetch(url, &rest(&head, body.len() as u64, length), "*/*", credentials)?;
        body.extend_from_slice(&rest);
    }
    Ok((body.len() as u64 == length).then_some(body))
}

/// Returns the request for the bytes of a file from `first` on.
fn rest(head: &Head, first: u64, length: u64) -> RequestKind {
    RequestKind::Range {
        first,
        end: length,
        length,
        validator: head.etag.clone(),
        modified: head.last_modified.clone(),
        seen_at: Some(head.url.clone()),
    }
}
