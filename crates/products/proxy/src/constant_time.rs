//! Comparisons that give nothing away.

/// Whether two secrets are the same. Takes as long whichever byte is wrong.
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}
