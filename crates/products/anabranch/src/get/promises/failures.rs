//! Rows about mirrors that lack the file, are busy, fall silent, break off or are gone.

use super::mirrors::{LENGTH, content, gone, having, honest, late_other, mute, other, portal, refusing};
use super::row::{Knows, Row, row};
use crate::get::testing::Mirror;
use anabranch_http::client::testing::Then;

/// Returns a mirror that sends the range one byte behind the requested one, and says so.
fn other_parts() -> Mirror {
    honest().oddly(|asked, mut reply| {
        let part = asked.part(LENGTH as u64);
        if reply.status != 206 || part.start == 0 {
            return reply;
        }
        reply.body = reply.body.slice(1..);
        let says = format!("bytes {}-{}/{LENGTH}", part.start + 1, part.end - 1);
        reply.with("content-range", says)
    })
}

pub(super) fn rows() -> Vec<Row> {
    let of = |name, mirrors| row(name, Knows::Sha256, mirrors);
    vec![
        of("one mirror does not have it (404)", || vec![refusing(404), honest()]),
        of("one mirror has it no more (410)", || vec![refusing(410), honest()]),
        of("one mirror refuses (403)", || vec![refusing(403), honest()]),
        of("no mirror has it (404)", || vec![refusing(404), refusing(404)]).fails(3),
        of("every mirror refuses (403)", || vec![refusing(403), refusing(403)]).names(&["a"]).fails(9),
        of("one mirror is busy at first (503, Retry-After)", || vec![honest().failing_first(2, 503)]),
        of("one mirror gets too many requests at first (429)", || vec![honest().failing_first(2, 429)]),
        of("one mirror fails at first (500)", || vec![honest().failing_first(2, 500)]),
        of("one mirror is always busy (503) beside an honest one", || vec![refusing(503), honest()]),
        of("every mirror is always busy (503)", || vec![refusing(503), refusing(503)]).fails(4).within(70),
        of("the honest mirror is busy at first (503), a liar is not", || {
            vec![having(&other()), honest().failing_first(2, 503)]
        })
        .may_name(&["a"])
        .fetches(300)
        .within(20),
        of("the honest mirror is 3 s away, a liar is not", || vec![having(&other()), honest().rtt(3_000)])
            .may_name(&["a"])
            .fetches(300)
            .within(60),
        of("one mirror dies on the way beside an honest one", || vec![honest().away(1, 10_000), honest()]),
        of("the only mirror is gone for 20 s", || vec![honest().away(1, 21)]).within(60),
        of("the only mirror dies on the way", || vec![honest().away(1, 10_000)]).fails(4).within(70),
        of("one mirror falls silent on the way beside an honest one", || {
            vec![honest().stalling_after(200_000), honest()]
        }),
        of("the only mirror falls silent on the way", || vec![honest().stalling_after(200_000)])
            .fails(4)
            .within(70),
        of("one mirror never answers", || vec![mute(), honest()]),
        of("the only mirror that answers sends 3 kB/s", || vec![honest().rate(3_000), mute()]).within(400),
        of("no mirror answers", || vec![mute(), mute()]).names(&["a", "b"]).fails(4).within(70),
        of("no mirror takes a connection", || vec![gone(), gone()]).names(&["a", "b"]).fails(4).within(70),
        of("one of two lacks ranges and falls silent", || {
            vec![honest().without_ranges(&content()).stalling_after(200_000), honest()]
        }),
        of("the only mirror has no ranges and breaks off once", || {
            vec![honest().without_ranges(&content()).breaking_off_once(400_000)]
        })
        .fetches(150),
        of("the only mirror says no length and breaks off once", || {
            vec![honest().without_length(&content()).breaking_off_once(400_000)]
        })
        .fetches(150),
        of("two mirrors lie, the honest one says no length and hangs up four times", || {
            let liar = || having(&late_other());
            vec![liar(), liar(), honest().without_length(&content()).hanging_up_late()]
        })
        .names(&["a", "b"])
        .fetches(700)
        .within(60),
        of("the only mirror says no length and always breaks off", || {
            vec![honest().without_length(&content()).breaking_off(400_000)]
        })
        .fails(4)
        .fetches(200)
        .within(30),
        of("a mirror lies, the honest one says no length and always breaks off", || {
            vec![having(&other()), honest().without_length(&content()).breaking_off(400_000)]
        })
        .fails(5)
        .fetches(300)
        .within(30),
        of("the first connection to the only mirror ends without an answer", || {
            vec![honest().hanging_up_first()]
        }),
        of("one mirror compresses it on the fly (gzip)", || {
            vec![honest().oddly(|_, reply| reply.with("content-encoding", "gzip")), honest()]
        }),
        of("the only mirror compresses it on the fly (gzip)", || {
            vec![honest().oddly(|_, reply| reply.with("content-encoding", "gzip"))]
        })
        .names(&["a"])
        .fails(3),
        of("one mirror sends other parts than it is asked for", || vec![other_parts(), honest()]),
        of("one mirror leaves out the last byte of each answer", || {
            vec![
                honest().oddly(|_, reply| {
                    let all = reply.body.len();
                    reply.cut(all.saturating_sub(1), Then::Close)
                }),
                honest(),
            ]
        }),
        of("a page for a login comes in the place of one mirror", || vec![portal(), honest()]),
        row("a page for a login comes in the place of every mirror", Knows::Nothing, || {
            vec![portal(), portal()]
        })
        .names(&["a", "b"])
        .fails(3),
    ]
}
