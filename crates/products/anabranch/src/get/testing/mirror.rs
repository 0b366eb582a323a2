//! The behaviour of a mirror: a script that answers requests, composed of simpler ones.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use anabranch_algo::Span;
use anabranch_http::client::METADATA_BYTES;
use anabranch_http::client::testing::{Reply, Request};
use bytes::Bytes;

/// The round-trip time to a mirror, unless its script has another.
const ROUND_TRIP: Span = Span::from_millis(20);

/// A request, with the facts that a script may decide by.
#[cfg_attr(not(test), expect(dead_code, reason = "only the promises go by all of it"))]
pub(in crate::get) struct Asked<'a> {
    pub(in crate::get) request: &'a Request,
    /// The number of requests that this mirror has answered before, in all runs, except those answered with
    /// 404.
    pub(in crate::get) before: u64,
    /// The number of bytes that it was asked for before, except for requests for metadata.
    pub(in crate::get) bytes_before: u64,
    /// The time since the run began.
    pub(in crate::get) at: Span,
    /// The number of the run, from 0.
    pub(in crate::get) run: usize,
}

#[cfg(test)]
impl Asked<'_> {
    /// Returns the requested range of a file of `length` bytes.
    pub(in crate::get) fn part(&self, length: u64) -> std::ops::Range<u64> {
        let whole = 0..length;
        self.request.range().map_or(whole, |range| range.start.min(length)..range.end.min(length))
    }
}

type Script = Box<dyn Fn(&Asked<'_>) -> Reply>;

/// A mirror with a script.
pub(in crate::get) struct Mirror {
    script: Script,
    asked: Cell<u64>,
    bytes: Cell<u64>,
    run: Cell<usize>,
}

impl Mirror {
    /// Makes a mirror that answers as `script` says.
    pub(in crate::get) fn answering(script: impl Fn(&Asked<'_>) -> Reply + 'static) -> Self {
        Self { script: Box::new(script), asked: Cell::new(0), bytes: Cell::new(0), run: Cell::new(0) }
    }

    /// Makes an honest mirror that has these files, by their paths, and no others.
    pub(in crate::get) fn of(files: BTreeMap<String, Bytes>) -> Self {
        Self::answering(move |asked| match files.get(&asked.request.path) {
            Some(content) => honest(asked.request, content, "\"v1\""),
            None => Reply { delay: ROUND_TRIP, ..Reply::new(404, "no such file") },
        })
    }

    /// Replaces each answer of this mirror by the answer that `twist` makes of it.
    pub(in crate::get) fn but(self, twist: impl Fn(&Asked<'_>, Reply) -> Reply + 'static) -> Self {
        let script = self.script;
        Self { script: Box::new(move |asked| twist(asked, script(asked))), ..self }
    }

    /// Says that the next requests are of this run.
    #[cfg(test)]
    pub(in crate::get) fn begin_run(&self, run: usize) {
        self.run.set(run);
    }

    /// Answers a request that arrives at `at` after the beginning of the run.
    pub(in crate::get) fn answer(&self, request: &Request, at: Span) -> Reply {
        let (before, bytes_before, run) = (self.asked.get(), self.bytes.get(), self.run.get());
        let reply = (self.script)(&Asked { request, before, bytes_before, at, run });
        if reply.status != 404 {
            self.asked.set(before + 1);
            let is_metadata = request.range() == Some(0..METADATA_BYTES);
            self.bytes.set(bytes_before + if is_metadata { 0 } else { reply.body.len() as u64 });
        }
        reply
    }
}

/// Returns the answer of an honest server to a request for a file.
pub(in crate::get) fn honest(request: &Request, content: &Bytes, etag: &str) -> Reply {
    let length = content.len() as u64;
    let is_fresh = request.field("if-range").is_none_or(|wanted| wanted == etag);
    let reply = match request.range().filter(|_| is_fresh) {
        Some(range) if range.start < length => {
            let (start, end) = (range.start, range.end.min(length));
            Reply::new(206, content.slice(start as usize..end as usize))
                .with("content-range", format!("bytes {start}-{}/{length}", end - 1))
        }
        Some(_) => Reply::new(416, "").with("content-range", format!("bytes */{length}")),
        None => Reply::new(200, content.clone()),
    };
    Reply { delay: ROUND_TRIP, ..reply }
        .with("accept-ranges", "bytes")
        .with("content-type", "application/octet-stream")
        .with("etag", etag)
}

/// Mirrors by their hosts.
pub(in crate::get) type Servers = BTreeMap<String, Rc<Mirror>>;
