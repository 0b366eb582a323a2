//! Rows about directories: a Metalink of several files.

use anabranch_algo::Span;

use super::mirrors::{mute, refusing, tree, with_tree, with_wrong_tree};
use super::row::Happens::Kill;
use super::row::Knows::Directory;
use super::row::{Row, row};

pub(super) fn rows() -> Vec<Row> {
    let dir = |name, mirrors| row(name, Directory, mirrors).arrives(tree());
    let but_one = || {
        let mut rest = tree();
        rest.remove("d/c");
        rest
    };
    vec![
        dir("two mirrors", || vec![with_tree(), with_tree()]),
        dir("one mirror has wrong bytes in every file", || vec![with_wrong_tree(), with_tree()])
            .may_name(&["a"])
            .fetches(250),
        dir("one mirror lacks a file", || vec![with_tree().lacking("/d/c"), with_tree()]),
        dir("every mirror lacks the same file", || {
            vec![with_tree().lacking("/d/c"), with_tree().lacking("/d/c")]
        })
        .arrives(but_one())
        .status(3),
        dir("one mirror never answers", || vec![mute(), with_tree()]),
        dir("one mirror is always busy (503)", || vec![refusing(503), with_tree()]),
        dir("killed", || vec![with_tree(), with_tree()])
            .after(&[Kill(Span::from_millis(1_300))])
            .fetches(150),
    ]
}
