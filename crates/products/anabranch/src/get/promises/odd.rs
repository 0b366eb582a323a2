//! Rows about honest servers that answer as the standard allows, or as widespread software does.

use bytes::Bytes;

use super::mirrors::{ARCHIVE, FILE, LENGTH, having, honest};
use super::row::{Knows, Row, row};
use crate::get::testing::Mirror;

/// Makes a mirror that sends at most `bytes` bytes of a range (RFC 9110 section 15.3.7).
fn capped(bytes: usize) -> Mirror {
    honest().oddly(move |asked, mut reply| {
        let start = asked.part(LENGTH as u64).start;
        if reply.status == 206 && reply.body.len() > bytes {
            reply.body.truncate(bytes);
            let last = start + bytes as u64 - 1;
            return reply.with("content-range", format!("bytes {start}-{last}/{LENGTH}"));
        }
        reply
    })
}

/// Makes a mirror that sends parts without the length of the file (RFC 9110 section 14.4).
fn without_total() -> Mirror {
    honest().oddly(|asked, reply| {
        let part = asked.part(LENGTH as u64);
        match reply.status {
            206 => reply.with("content-range", format!("bytes {}-{}/*", part.start, part.end - 1)),
            _ => reply,
        }
    })
}

/// Makes a mirror that sends a part with status 200, as if it were the whole, though it says which part it
/// is.
fn part_as_whole() -> Mirror {
    honest().oddly(|_, mut reply| {
        reply.status = 200;
        reply
    })
}

/// Makes a mirror that gives the length of the part where the length of the file belongs.
fn part_for_total() -> Mirror {
    honest().oddly(|asked, reply| {
        let part = asked.part(LENGTH as u64);
        match reply.status {
            206 => {
                let says = format!("bytes {}-{}/{}", part.start, part.end - 1, part.end - part.start);
                reply.with("content-range", says)
            }
            _ => reply,
        }
    })
}

/// Makes a mirror that sends an archive as it is, but says that it was compressed in transit.
fn labelled() -> Mirror {
    honest().oddly(|_, reply| reply.with("content-encoding", "x-gzip"))
}

/// Makes a mirror that answers a range of an empty file with `bytes 0-0/0`, as if there were a byte.
fn part_of_nothing() -> Mirror {
    having(&Bytes::new()).oddly(|asked, reply| match asked.request.range() {
        Some(_) => {
            let mut reply = reply.with("content-range", "bytes 0-0/0");
            reply.status = 206;
            reply
        }
        None => reply,
    })
}

pub(super) fn rows() -> Vec<Row> {
    let nothing = || [(FILE, Bytes::new())].into();
    vec![
        row("one mirror that sends 100 kB of a range at most", Knows::Sha256, || vec![capped(100_000)]),
        row("the same beside an honest one", Knows::Sha256, || vec![capped(100_000), honest()]),
        row("three mirrors that send 100 kB of a range at most", Knows::Sha256, || {
            vec![capped(100_000), capped(100_000), capped(100_000)]
        }),
        row("one mirror that sends parts without the length of the file", Knows::Sha256, || {
            vec![without_total()]
        }),
        row("one mirror that sends a part with status 200 (harmonia)", Knows::Sha256, || {
            vec![part_as_whole()]
        }),
        row("one mirror that gives a part's length as the file's (xrootd)", Knows::Sha256, || {
            vec![part_for_total()]
        }),
        row("one mirror that labels f.tar.gz with Content-Encoding: x-gzip", Knows::Sha256, || {
            vec![labelled()]
        })
        .called(ARCHIVE),
        row("an empty file, of which a part is not satisfiable (416)", Knows::Sha256, || {
            vec![having(&Bytes::new())]
        })
        .arrives(nothing()),
        row("an empty file, of which a server sends bytes 0-0/0", Knows::Sha256, || vec![part_of_nothing()])
            .arrives(nothing()),
        row("a page with Content-Type text/html, wanted as such", Knows::Sha256, || {
            vec![honest().oddly(|_, reply| reply.with("content-type", "text/html"))]
        })
        .called("f.html"),
    ]
}
