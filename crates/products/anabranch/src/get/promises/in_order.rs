//! Rows about files that are read in order. Bytes that were handed over cannot be replaced, so mirrors are
//! compared by votes before a byte is handed over, even if a hash of the whole file is known.

use super::mirrors::{content, having, honest, other};
use super::row::Knows::{Beside, Blake3, Leaves, Nothing, Pieces, Sha256};
use super::row::{Row, row};

pub(super) fn rows() -> Vec<Row> {
    let all = vec![
        row("one mirror", Nothing, || vec![honest()]),
        row("one mirror that says no length", Beside, || vec![honest().without_length(&content())]),
        row("two mirrors with other bytes throughout", Sha256, || vec![honest(), having(&other())])
            .names(&["a", "b"])
            .fails(5),
        row("two mirrors with other bytes throughout", Blake3, || vec![honest(), having(&other())])
            .names(&["a", "b"])
            .fails(5),
        row("three mirrors, one with other bytes throughout", Sha256, || {
            vec![having(&other()), honest(), honest()]
        })
        .names(&["a"]),
        row("two mirrors with other bytes throughout", Leaves, || vec![having(&other()), honest()])
            .names(&["a"]),
        row("two mirrors with other bytes throughout", Pieces, || vec![having(&other()), honest()])
            .names(&["a"])
            .fetches(160),
    ];
    all.into_iter().map(Row::in_order).collect()
}
