//! Who sent the wrong bytes of a group that came from several sources: kept until the right bytes tell.

use super::object::SourceId;
use crate::id::Cut;

/// A copy of a group that came from several sources and is wrong.
pub(super) struct Poisoned {
    pub(super) bytes: Vec<u8>,
    pub(super) from: [SourceId; 64],
    pub(super) cut: Cut,
}

/// Compares a poisoned copy with the verified bytes, chunk by chunk, and names who sent what differs.
pub(super) fn blame(good: &[u8], copy: &Poisoned, mut culprit: impl FnMut(SourceId)) {
    let len = copy.cut.chunk_bytes();
    let mut named = Vec::new();
    for ((good, bad), source) in good.chunks(len).zip(copy.bytes.chunks(len)).zip(&copy.from) {
        if good != bad && !named.contains(source) {
            named.push(*source);
            culprit(*source);
        }
    }
}
