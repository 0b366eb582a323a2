//! The contents and the kinds of mirrors that rows use.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use anabranch_algo::Span;
use anabranch_http::client::METADATA_BYTES;
use anabranch_http::client::testing::{Reply, Then};
use anabranch_mmtp::id::BLOCK_BYTES;
use bytes::Bytes;

use crate::get::testing::{Asked, Mirror, Rng, honest as reply_of};

/// The name of the file.
pub(super) const FILE: &str = "f.bin";
/// The name of the file where it is an archive.
pub(super) const ARCHIVE: &str = "f.tar.gz";
/// The length of the content in bytes: an odd number.
pub(super) const LENGTH: usize = 1_000_003;
/// The rate of a connection to a mirror, bytes a second, unless the row sets another.
const RATE: u64 = 500_000;

fn noise(seed: u64, length: usize) -> Bytes {
    Rng::new(seed).bytes(length).into()
}

/// Returns the file that is wanted.
pub(super) fn content() -> Bytes {
    static CONTENT: OnceLock<Bytes> = OnceLock::new();
    CONTENT.get_or_init(|| noise(1, LENGTH)).clone()
}

/// Returns another file of the same length.
pub(super) fn other() -> Bytes {
    static OTHER: OnceLock<Bytes> = OnceLock::new();
    OTHER.get_or_init(|| noise(2, LENGTH)).clone()
}

/// Returns another file of the same length whose first bytes are those of the wanted file.
pub(super) fn late_other() -> Bytes {
    let begins = METADATA_BYTES as usize;
    [&content()[..begins], &other()[begins..]].concat().into()
}

/// Returns the file with one wrong byte, in a block in the middle.
pub(super) fn one_wrong_byte() -> Bytes {
    let mut bytes = content().to_vec();
    bytes[30 * BLOCK_BYTES + 77] ^= 1;
    bytes.into()
}

/// Returns another file that is longer.
pub(super) fn longer() -> Bytes {
    noise(3, LENGTH + 100_000)
}

/// Returns another file that is shorter.
pub(super) fn shorter() -> Bytes {
    noise(4, LENGTH - 100_000)
}

/// Returns a file of 50 kB, another one for each number.
pub(super) fn small(number: u64) -> Bytes {
    noise(100 + number, 50_000)
}

/// Returns every content that a mirror may have as a whole.
pub(super) fn every_content() -> Vec<Bytes> {
    vec![content(), other(), late_other(), one_wrong_byte(), longer(), shorter()]
}

/// Returns the files of the directory, by their paths in it.
pub(super) fn tree() -> BTreeMap<&'static str, Bytes> {
    let names = ["d/a", "d/b", "d/c", "d/sub/d", "d/sub/e", "d/sub/f"];
    names.into_iter().zip(10..).map(|(name, seed)| (name, noise(seed, 20_000 * seed as usize))).collect()
}

/// Makes a mirror that has these bytes as the file.
pub(super) fn having(bytes: &Bytes) -> Mirror {
    let names = [FILE, ARCHIVE, "f.html"].map(|name| (format!("/{name}"), bytes.clone()));
    Mirror::of(names.into()).rate(RATE)
}

/// Makes a mirror that has the file.
pub(super) fn honest() -> Mirror {
    having(&content())
}

/// Makes a mirror that has the directory.
pub(super) fn with_tree() -> Mirror {
    let files = tree().into_iter().map(|(name, bytes)| (format!("/{name}"), bytes));
    Mirror::of(files.collect()).rate(RATE)
}

/// Makes a mirror that has the directory with other bytes in each file.
pub(super) fn with_wrong_tree() -> Mirror {
    let wrong = |bytes: Bytes| Bytes::from_iter(bytes.iter().map(|byte| byte ^ 0x55));
    let files = tree().into_iter().map(|(name, bytes)| (format!("/{name}"), wrong(bytes)));
    Mirror::of(files.collect()).rate(RATE)
}

/// Makes a mirror that takes connections and never answers.
pub(super) fn mute() -> Mirror {
    Mirror::answering(|_| Reply { delay: Span::from_millis(20), ..Reply::nothing(Then::Mute) })
}

/// Returns the reply of a dead server: it takes no connection.
fn dead() -> Reply {
    Reply { delay: Span::from_millis(20), ..Reply::nothing(Then::Refuse) }
}

/// Makes a mirror that takes no connection.
pub(super) fn gone() -> Mirror {
    Mirror::answering(|_| dead())
}

/// Makes a mirror that answers every request with this status.
pub(super) fn refusing(status: u16) -> Mirror {
    Mirror::answering(move |_| Reply { delay: Span::from_millis(20), ..Reply::new(status, "no") })
}

/// Makes a mirror that redirects every request to a page for a login, as hotels do.
pub(super) fn portal() -> Mirror {
    Mirror::answering(|asked| {
        let reply = match asked.request.path.as_str() {
            "/login" => Reply::new(200, "<html>log in first</html>").with("content-type", "text/html"),
            _ => Reply::new(302, "").with("location", "/login"),
        };
        Reply { delay: Span::from_millis(20), ..reply }
    })
}

fn is_file(reply: &Reply) -> bool {
    matches!(reply.status, 200 | 206 | 416)
}

impl Mirror {
    /// Replaces each answer about a file (status 200, 206 or 416) by the answer that `twist` makes of it.
    fn twisting(self, twist: impl Fn(&Asked<'_>, Reply) -> Reply + 'static) -> Self {
        self.but(move |asked, reply| if is_file(&reply) { twist(asked, reply) } else { reply })
    }

    /// Sends at `rate` over each connection, in bytes a second.
    pub(super) fn rate(self, rate: u64) -> Self {
        self.twisting(move |_, reply| reply.at(rate))
    }

    /// Answers after `millis` milliseconds.
    pub(super) fn rtt(self, millis: u64) -> Self {
        self.but(move |_, reply| Reply { delay: Span::from_millis(millis), ..reply })
    }

    /// Sends the whole file, whichever range was requested.
    pub(super) fn without_ranges(self, bytes: &Bytes) -> Self {
        let bytes = bytes.clone();
        self.twisting(move |_, reply| {
            Reply { status: 200, body: bytes.clone(), ..reply }
                .without("content-range")
                .without("accept-ranges")
        })
    }

    /// Sends the whole file, whichever range was requested, and does not say its length.
    pub(super) fn without_length(self, bytes: &Bytes) -> Self {
        self.without_ranges(bytes).twisting(|_, reply| reply.chunked())
    }

    /// Sends neither ETag nor date.
    pub(super) fn without_version(self) -> Self {
        self.twisting(|_, reply| reply.without("etag"))
    }

    /// Answers the first `times` requests for the file, counted over all runs, with this status.
    pub(super) fn failing_first(self, times: u64, status: u16) -> Self {
        self.but(move |asked, reply| match asked.before < times && is_file(&reply) {
            true => Reply { delay: reply.delay, ..Reply::new(status, "later").with("retry-after", "1") },
            false => reply,
        })
    }

    /// Is gone in the first run between second `from` and second `to`. Answers under way break off.
    pub(super) fn away(self, from: u64, to: u64) -> Self {
        let (from, to) = (Span::from_secs(from), Span::from_secs(to));
        self.but(move |asked, reply| match asked.at {
            at if asked.run > 0 || at >= to => reply,
            at if at >= from => dead(),
            at => {
                let after = Span::from_nanos(from.as_nanos() - at.as_nanos());
                Reply { breaks: Some((after, Then::Close)), ..reply }
            }
        })
    }

    /// Falls silent for good, in the midst of an answer, after `bytes` bytes of the file.
    pub(super) fn stalling_after(self, bytes: u64) -> Self {
        self.twisting(move |asked, reply| {
            let left = bytes.saturating_sub(asked.bytes_before) as usize;
            if asked.request.is_for_bytes() && reply.body.len() > left {
                reply.cut(left, Then::Stall)
            } else {
                reply
            }
        })
    }

    /// Breaks off each answer after `bytes` bytes.
    pub(super) fn breaking_off(self, bytes: usize) -> Self {
        self.twisting(move |asked, reply| match asked.request.is_for_bytes() && reply.body.len() > bytes {
            true => reply.cut(bytes, Then::Close),
            false => reply,
        })
    }

    /// Breaks off the first answer with bytes of the file after `bytes` bytes.
    pub(super) fn breaking_off_once(self, bytes: usize) -> Self {
        self.twisting(move |asked, reply| match asked.bytes_before == 0 && asked.request.is_for_bytes() {
            true => reply.cut(bytes, Then::Close),
            false => reply,
        })
    }

    /// Closes the first four connections that ask for bytes of the file after 0.85 s, without an answer. A
    /// client retries once before it counts that as an error.
    pub(super) fn hanging_up_late(self) -> Self {
        self.twisting(move |asked, reply| {
            let is_early = asked.bytes_before < 4 * reply.body.len() as u64;
            match is_early && asked.request.is_for_bytes() {
                true => Reply { then: Then::HangUp, delay: Span::from_millis(850), ..reply },
                false => reply,
            }
        })
    }

    /// Closes the first connection without an answer.
    pub(super) fn hanging_up_first(self) -> Self {
        self.twisting(|asked, reply| match asked.before == 0 {
            true => Reply { then: Then::HangUp, ..reply },
            false => reply,
        })
    }

    /// Sends another ETag with each answer.
    pub(super) fn with_tags_that_differ(self) -> Self {
        self.twisting(|asked, reply| reply.with("etag", format!("\"{}\"", asked.before)))
    }

    /// Has other bytes, with another ETag, once it has been asked for `after` bytes of the file.
    pub(super) fn changing_to(self, bytes: Bytes, after: u64) -> Self {
        let tag = format!("\"v2 from {after} on\"");
        self.twisting(move |asked, reply| match asked.bytes_before >= after {
            true => Reply { delay: reply.delay, ..reply_of(asked.request, &bytes, &tag) }.at(reply.rate),
            false => reply,
        })
    }

    /// Sends the file again and again without an end, and does not say its length.
    pub(super) fn without_end(self, bytes: &Bytes) -> Self {
        self.without_length(bytes).twisting(|_, reply| Reply { repeats: true, ..reply })
    }

    /// Lacks the file at this path.
    pub(super) fn lacking(self, path: &'static str) -> Self {
        self.but(move |asked, reply| match asked.request.path == path {
            true => Reply { delay: reply.delay, ..Reply::new(404, "no such file") },
            false => reply,
        })
    }

    /// Redirects to `host`, which is not one of the mirrors.
    pub(super) fn redirecting(self, host: &'static str) -> Self {
        self.twisting(move |asked, reply| {
            let location = format!("http://{host}{}", asked.request.path);
            Reply { delay: reply.delay, ..Reply::new(302, "") }.with("location", location)
        })
    }

    /// Answers every third request with this status.
    pub(super) fn failing_each_third(self, status: u16) -> Self {
        self.twisting(move |asked, reply| match asked.before % 3 == 1 {
            true => Reply { delay: reply.delay, ..Reply::new(status, "oops") },
            false => reply,
        })
    }

    /// Sends no ETag, and two dates by turns.
    pub(super) fn with_dates_that_alternate(self) -> Self {
        self.twisting(|asked, reply| {
            let day = 1 + asked.before % 2;
            reply.without("etag").with("last-modified", format!("Fri, 0{day} Jan 2021 10:00:00 GMT"))
        })
    }

    /// Is gone in the run with this number, from 0.
    pub(super) fn gone_in(self, run: usize) -> Self {
        self.but(move |asked, reply| if asked.run == run { dead() } else { reply })
    }

    /// Has these bytes, with another ETag, in the run with this number, from 0.
    pub(super) fn having_in(self, run: usize, bytes: Bytes) -> Self {
        self.twisting(move |asked, reply| match asked.run == run {
            true => Reply { delay: reply.delay, ..reply_of(asked.request, &bytes, "\"v2\"") }.at(reply.rate),
            false => reply,
        })
    }

    /// Answers about the file as `twist` makes it.
    pub(super) fn oddly(self, twist: impl Fn(&Asked<'_>, Reply) -> Reply + 'static) -> Self {
        self.twisting(twist)
    }
}
