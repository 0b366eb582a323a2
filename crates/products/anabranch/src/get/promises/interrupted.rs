//! Transfers that are killed, stopped, or have no room: the same command goes on with what is there.

use anabranch_algo::Span;

use super::mirrors::{FILE, having, honest, late_other, one_wrong_byte, other};
use super::row::Happens::{FullDisk, Kill, Stop};
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
        row("killed three times, two mirrors", Pieces, || vec![honest(), honest()]).after(&kills),
        row("killed three times, two mirrors", Sha256, || vec![honest(), honest()]).after(&kills),
        row("killed three times, two mirrors", Nothing, || vec![honest(), honest()]).after(&kills),
        row("killed, one mirror", Nothing, || vec![honest()]).after(&[Kill(ms(1_200))]),
        row("stopped (Ctrl-C), two mirrors", Sha256, || vec![honest(), honest()]).after(&[Stop(ms(700))]),
        row("stopped (Ctrl-C), one mirror", Nothing, || vec![honest()]).after(&[Stop(ms(1_200))]),
        row("the disk is full, then there is room", Sha256, || vec![honest(), honest()])
            .after(&[FullDisk(500_000)]),
        row("the disk is full, then there is room", Nothing, || vec![honest(), honest()])
            .after(&[FullDisk(500_000)]),
        row("killed, one mirror lies", Sha256, || vec![having(&late_other()), honest()])
            .after(&kill)
            .names(&["a"]),
        row("killed, one mirror lies", Leaves, || vec![having(&one_wrong_byte()), honest()]).after(&kill),
        row("killed, one mirror is gone then", Sha256, || vec![honest().gone_since(), honest()]).after(&kill),
        row("killed, the file of the only mirror is another then", Nothing, || {
            vec![honest().changed_since(other())]
        })
        .after(&[Kill(ms(1_200))])
        .fails(6),
        row("killed, the file of the only mirror is another then", Sha256, || {
            vec![having(&other()).changed_since(super::mirrors::content())]
        })
        .after(&[Kill(ms(1_200))]),
        row("killed, the file of the only mirror is another then and gone by", Nothing, || {
            vec![honest().without_version()]
        })
        .after(&[Kill(ms(1_200))])
        .fails(6),
        row("there already", Sha256, || vec![honest()])
            .after(&[super::row::Happens::Ends(0)])
            .arrives([(FILE, super::mirrors::content())].into()),
    ]
}
