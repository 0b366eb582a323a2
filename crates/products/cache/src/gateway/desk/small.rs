//! Fetches small objects from one source, on a connection that an earlier request has left open.
//!
//! A transfer from many sources opens its connections for itself: with TLS, several round trips each. That
//! pays for a large object. A client such as pip, which asks for one small file after the other, would be
//! slower through the cache than without it.
//!
//! Only an object that nothing is lost for comes this way: its digest verifies it, or there is no second
//! source to compare it with. All others, and all that fail here, come by a transfer.

use anabranch_http::client::{Head, RequestKind};

use super::transfer::Plan;
use super::{Count, Desk, Failure};
use crate::digest::Hasher;
use crate::gateway::flight::WAITED_FOR_BYTES;

impl Desk {
    /// Fetches an object if it is small. Returns whether it is whole, and right as far as its digest says.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn fetch_small(&self, plan: &mut Plan) -> Result<bool, Failure> {
        if plan.digest.is_none() && plan.sources.len() > 1 {
            return Ok(false);
        }
        let Some(body) = self.small_body(&plan.sources[0]) else { return Ok(false) };
        let is_right = plan.digest.is_none_or(|digest| {
            let mut hasher = Hasher::new(digest.kind());
            hasher.update(&body);
            hasher.finish() == digest
        });
        if is_right {
            plan.writer.write(&body).map_err(|e| Failure::of_store(&e))?;
            self.counters.add(Count::FetchedBytes, body.len() as u64);
            plan.flight.set_written(body.len() as u64);
        }
        Ok(is_right)
    }

    /// Returns the bytes at a URL, if there are few and all come.
    fn small_body(&self, url: &str) -> Option<Vec<u8>> {
        let (head, mut body) = self.upstream.fetch(url, &RequestKind::Metadata, "*/*").ok()?;
        let length = head.length.filter(|length| *length <= WAITED_FOR_BYTES)?;
        if (body.len() as u64) < length {
            let (_, rest) = self.upstream.fetch(url, &rest(&head, body.len() as u64, length), "*/*").ok()?;
            body.extend_from_slice(&rest);
        }
        (body.len() as u64 == length).then_some(body)
    }
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
