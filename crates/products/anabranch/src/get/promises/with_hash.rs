//! Rows about liars, where a hash of the user tells them from honest mirrors. The file is right or absent,
//! and it arrives if an honest mirror answers.

use super::mirrors::{
    FILE, content, having, honest, late_other, longer, mute, one_wrong_byte, other, shorter, small,
};
use super::row::Knows::{Blake3, Leaves, Pieces, Sha256};
use super::row::{Row, row};

pub(super) fn rows() -> Vec<Row> {
    vec![
        row("one wrong byte of one mirror", Sha256, || vec![having(&one_wrong_byte()), honest()])
            .may_name(&["a"])
            .fetches(300),
        row("one wrong byte of one mirror", Blake3, || vec![having(&one_wrong_byte()), honest()])
            .may_name(&["a"])
            .fetches(300),
        row("one wrong byte of one mirror", Leaves, || vec![having(&one_wrong_byte()), honest()])
            .may_name(&["a"]),
        row("one wrong byte of one mirror", Pieces, || vec![having(&one_wrong_byte()), honest()])
            .may_name(&["a"])
            .fetches(140),
        row("one liar beside two honest mirrors", Sha256, || vec![having(&other()), honest(), honest()])
            .names(&["a"])
            .fetches(200),
        row("two liars that agree beside one honest mirror", Sha256, || {
            vec![having(&late_other()), having(&late_other()), honest()]
        })
        .names(&["a", "b"])
        .fetches(400)
        .within(20),
        row("two liars that agree beside one honest mirror", Leaves, || {
            vec![having(&late_other()), having(&late_other()), honest()]
        })
        .names(&["a", "b"]),
        row("two liars that agree beside one honest mirror", Pieces, || {
            vec![having(&late_other()), having(&late_other()), honest()]
        })
        .may_name(&["a", "b"])
        .fetches(300),
        row("a liar ten times as fast as the honest mirror", Sha256, || {
            vec![having(&late_other()).rate(5_000_000), honest()]
        })
        .names(&["a"])
        .fetches(300),
        row("five liars with five files beside one honest mirror", Sha256, || {
            vec![
                having(&other()),
                having(&late_other()),
                having(&one_wrong_byte()),
                having(&other()),
                having(&late_other()),
                honest(),
            ]
        })
        .may_name(&["a", "b", "c", "d", "e"])
        .fetches(700)
        .within(60),
        row("a liar without ranges beside one honest mirror", Sha256, || {
            vec![having(&other()).without_ranges(&other()), honest()]
        }),
        row("a liar and a mirror that never answers beside an honest one", Sha256, || {
            vec![having(&late_other()), mute(), honest()]
        })
        .names(&["a"])
        .fetches(200)
        .within(30),
        row("a longer file of one mirror", Sha256, || vec![having(&longer()), honest()]),
        row("a shorter file of two mirrors", Sha256, || {
            vec![having(&shorter()), having(&shorter()), honest()]
        })
        .fetches(300)
        .within(30),
        row("a longer file of one mirror", Leaves, || vec![having(&longer()), honest()]),
        row("an answer without an end of one mirror", Sha256, || {
            vec![having(&other()).without_end(&other()), honest()]
        }),
        row("a liar that sends 1 kB/s", Sha256, || vec![having(&other()).rate(1_000), honest()]).within(60),
        row("the honest mirror sends 13 kB/s, a liar is fast", Sha256, || {
            vec![having(&late_other()), honest().rate(13_000)]
        })
        .names(&["a"])
        .fetches(250)
        .within(150),
        row("a mirror whose file changes on the way", Sha256, || {
            vec![honest().changing_to(other(), 300_000), honest()]
        }),
        row("the only mirror changes on the way to the file that is wanted", Sha256, || {
            vec![having(&other()).changing_to(content(), 300_000)]
        })
        .fetches(250)
        .within(20),
        row(
            "two mirrors have another file, one changes to the right one while it is tried alone",
            Sha256,
            || vec![having(&other()).changing_to(content(), 800_000), having(&other())],
        )
        .may_name(&["b"])
        .fetches(400)
        .within(30),
        row("seventeen mirrors with other files of 50 kB before the honest one", Sha256, || {
            (0..17).map(|number| having(&small(number))).chain([having(&small(17))]).collect()
        })
        .arrives([(FILE, small(17))].into())
        .may_name(&["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q"])
        .fetches(2_000)
        .within(60),
        row("a longer file of one mirror, and each sends 1.2 kB/s", Sha256, || {
            vec![having(&longer()).rate(1_200), honest().rate(1_200)]
        })
        .fetches(150)
        .within(1_200),
        row("the only mirror has another file", Sha256, || vec![having(&other())]).fails(5),
        row("the only mirror has another file", Leaves, || vec![having(&other())]).names(&["a"]).fails(5),
        row("the only mirror has another file", Pieces, || vec![having(&other())]).names(&["a"]).fails(5),
        row("every mirror has another file", Sha256, || vec![having(&other()), having(&other())])
            .names(&["a", "b"])
            .fails(5)
            .fetches(300)
            .within(30),
        row("the only mirror has a file of another length", Leaves, || vec![having(&longer())])
            .names(&["a"])
            .fails(3),
        row("the only mirror that answers lies, the honest one is gone", Sha256, || {
            vec![having(&other()), honest().away(0, 10_000)]
        })
        .names(&["b"])
        .fails(5)
        .within(90),
        row("the honest mirror gives no ranges, the liar does", Sha256, || {
            vec![honest().without_ranges(&content()), having(&late_other())]
        })
        .names(&["b"])
        .fetches(300)
        .within(30),
    ]
}
