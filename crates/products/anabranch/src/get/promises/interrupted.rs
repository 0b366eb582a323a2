//! Rows about transfers that are killed, stopped, or run out of disk: the same command resumes with what is
//! there.

use anabranch_algo::Span;

use super::mirrors::{content, having, honest, late_other, longer, one_wrong_byte, other, shorter};
use super::row::Happens::{Ends, FullDisk, Kill, Stop};
use super::row::Knows::{Leaves, Nothing, Pieces, Sha256};
use super::row::{Row, row};

const fn ms(millis: u64) -> Span {
    Span::from_millis(millis)
}

pub(super) fn rows() -> Vec<Row> {
    let kills = [Kill(ms(400)), Kill(ms(500)), Kill(ms(700))];
    let kill = [Kill(ms(700))];
    vec![
        row("killed three times, two mirrors", Leaves, || vec![honest(), honest()]).after(&kills),
        row("killed three times, two mirrors", Pieces, || vec![honest(), honest()])
            .after(&kills)
            .fetches(250),
        row("killed three times, two mirrors", Sha256, || vec![honest(), honest()])
            .after(&kills)
            .fetches(140),
        row("killed three times, two mirrors", Nothing, || vec![honest(), honest()])
            .after(&kills)
            .fetches(150),
        row("killed, one mirror", Nothing, || vec![honest()]).after(&[Kill(ms(1_200))]),
        row("stopped (Ctrl-C), two mirrors", Sha256, || vec![honest(), honest()]).after(&[Stop(ms(700))]),
        row("stopped (Ctrl-C), one mirror", Nothing, || vec![honest()]).after(&[Stop(ms(1_200))]),
        row("the disk is full, then there is room", Sha256, || vec![honest(), honest()])
            .after(&[FullDisk(500_000)])
            .fetches(150),
        row("the disk is full, then there is room", Nothing, || vec![honest(), honest()])
            .after(&[FullDisk(500_000)])
            .fetches(150),
        row("killed, one mirror lies", Sha256, || vec![having(&late_other()), honest()])
            .after(&kill)
            .names(&["a"])
            .fetches(200),
        row("killed, one mirror lies", Leaves, || vec![having(&one_wrong_byte()), honest()])
            .after(&kill)
            .may_name(&["a"]),
        row("killed, one mirror is gone then", Sha256, || vec![honest().gone_in(1), honest()]).after(&kill),
        row("killed, one of two mirrors is gone then", Nothing, || vec![honest().gone_in(1), honest()])
            .after(&kill)
            .fetches(160),
        row("killed, one of two mirrors has another file then", Nothing, || {
            vec![honest(), honest().having_in(1, other())]
        })
        .after(&kill)
        .names(&["a", "b"])
        .fails(5),
        row("killed, the file of the only mirror is another then", Nothing, || {
            vec![honest().having_in(1, other())]
        })
        .after(&[Kill(ms(1_200))])
        .fails(6),
        row("killed, the file of the only mirror is another then", Sha256, || {
            vec![having(&other()).having_in(1, content())]
        })
        .after(&[Kill(ms(1_200))])
        .fetches(220),
        row("killed, the only mirror has neither ETag nor date", Nothing, || {
            vec![honest().without_version()]
        })
        .after(&[Kill(ms(1_200))])
        .fails(6),
        row("killed three times, one mirror lies", Sha256, || vec![having(&late_other()), honest()])
            .after(&kills)
            .names(&["a"])
            .fetches(300),
        row("killed three times, one mirror has a shorter file", Sha256, || {
            vec![having(&shorter()), honest()]
        })
        .after(&kills)
        .fetches(250),
        row("killed, then the only mirror has a longer file for one run", Sha256, || {
            vec![honest().having_in(1, longer())]
        })
        .after(&[Kill(ms(1_200)), Ends(5)])
        .fetches(230),
        row("the honest mirror is gone in the first run, a liar is there", Sha256, || {
            vec![having(&other()), honest().gone_in(0)]
        })
        .after(&[Ends(5)])
        .may_name(&["a"])
        .fetches(300)
        .within(20),
        row("killed, the honest mirror is gone for one run, a liar is there", Sha256, || {
            vec![having(&other()).gone_in(0), honest().gone_in(1)]
        })
        .after(&[Kill(ms(1_500)), Ends(5)])
        .may_name(&["a"])
        .fetches(300)
        .within(20),
        row("killed, the only mirror has other bytes then", Sha256, || vec![honest().having_in(1, other())])
            .after(&[Kill(ms(1_200))])
            .fails(5)
            .fetches(220),
        row("the file is there already, the mirror has a longer one", Sha256, || {
            vec![honest().having_in(1, longer())]
        })
        .after(&[Ends(0)]),
        row("the file is there already", Sha256, || vec![honest()]).after(&[Ends(0)]),
    ]
}
