//! Rows about mirrors where no hash tells which bytes are right. The bytes of the first mirror arrive.
//! Mirrors are compared in samples; if two differ, the transfer ends with the names of both.

use super::mirrors::{FILE, content, having, honest, late_other, longer, other};
use super::row::Knows::{Length, Nothing};
use super::row::{Row, row};

pub(super) fn rows() -> Vec<Row> {
    vec![
        row("one mirror, whatever it has", Nothing, || vec![having(&other())])
            .arrives([(FILE, other())].into()),
        row("three mirrors with the same file", Nothing, || vec![honest(), honest(), honest()]).fetches(130),
        row("two mirrors with other bytes throughout", Nothing, || vec![honest(), having(&other())])
            .names(&["a", "b"])
            .fails(5),
        row("two mirrors that differ behind the first 13 KiB", Nothing, || {
            vec![honest(), having(&late_other())]
        })
        .names(&["a", "b"])
        .fails(5),
        row("two mirrors with other bytes throughout", Length, || vec![honest(), having(&other())])
            .names(&["a", "b"])
            .fails(5),
        row("three mirrors, one with other bytes throughout", Length, || {
            vec![honest(), honest(), having(&other())]
        })
        .names(&["c"]),
        row("three mirrors, one with other bytes throughout", Nothing, || {
            vec![honest(), honest(), having(&other())]
        })
        .names(&["c"]),
        row("three mirrors, one that differs behind the first 13 KiB", Nothing, || {
            vec![honest(), honest(), having(&late_other())]
        })
        .names(&["c"])
        .fetches(200),
        row("three mirrors, one with a longer file", Nothing, || vec![honest(), honest(), having(&longer())])
            .names(&["c"]),
        row("two mirrors with files of other lengths", Nothing, || vec![honest(), having(&longer())])
            .names(&["a", "b"])
            .fails(5),
        row("the file of the only mirror changes on the way", Nothing, || {
            vec![honest().changing_to(other(), 300_000)]
        })
        .fails(3),
        row("the file of one of two mirrors changes on the way", Nothing, || {
            vec![honest().changing_to(other(), 300_000), honest()]
        })
        .fetches(130),
        row("one of two mirrors without ranges", Nothing, || {
            vec![honest().without_ranges(&content()), honest()]
        })
        .fetches(130),
        row("one of two mirrors falls silent on the way", Nothing, || {
            vec![honest().stalling_after(200_000), honest()]
        })
        .fetches(130),
    ]
}
