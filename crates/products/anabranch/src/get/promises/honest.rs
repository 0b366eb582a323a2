//! Rows about honest mirrors, of every kind and pace.

use super::mirrors::{content, honest};
use super::row::{Knows, Row, row};

pub(super) fn rows() -> Vec<Row> {
    vec![
        row("one mirror", Knows::Sha256, || vec![honest()]),
        row("three mirrors, one of them ten times as fast and one ten times as far", Knows::Sha256, || {
            vec![honest().rate(200_000), honest().rate(2_000_000), honest().rtt(200)]
        }),
        row("a mirror with 5 kB/s beside one with 500 kB/s", Knows::Sha256, || {
            vec![honest().rate(5_000), honest()]
        }),
        row("two mirrors with neither ETag nor date", Knows::Sha256, || {
            vec![honest().without_version(), honest().without_version()]
        }),
        row("one mirror that gives another ETag with each answer", Knows::Sha256, || {
            vec![honest().with_tags_that_differ()]
        }),
        row("one mirror that gives two dates by turns", Knows::Sha256, || {
            vec![honest().with_dates_that_alternate()]
        }),
        row("one mirror without ranges", Knows::Pieces, || vec![honest().without_ranges(&content())]),
        row("one mirror without ranges", Knows::Sha256, || vec![honest().without_ranges(&content())]),
        row("a mirror without ranges beside two with ranges", Knows::Sha256, || {
            vec![honest().without_ranges(&content()), honest(), honest()]
        }),
        row("one mirror that says no length", Knows::Pieces, || vec![honest().without_length(&content())]),
        row("one mirror that says no length", Knows::Sha256, || vec![honest().without_length(&content())]),
        row("one mirror that says no length", Knows::Beside, || vec![honest().without_length(&content())]),
        row("two mirrors", Knows::Beside, || vec![honest(), honest()]),
        row("a mirror that says no length beside one that does", Knows::Sha256, || {
            vec![honest().without_length(&content()), honest()]
        }),
        row("one mirror that breaks off each answer behind 300 kB", Knows::Sha256, || {
            vec![honest().breaking_off(300_000)]
        }),
        row("one mirror that breaks off each answer behind 300 kB", Knows::Pieces, || {
            vec![honest().breaking_off(300_000)]
        })
        .fetches(200),
        row("one mirror that answers every third request with 500", Knows::Sha256, || {
            vec![honest().failing_each_third(500)]
        })
        .within(30),
        row("a mirror that redirects to another one", Knows::Nothing, || {
            vec![honest().redirecting("b.test"), honest()]
        }),
    ]
}
