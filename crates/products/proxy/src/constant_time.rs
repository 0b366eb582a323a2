//! Comparisons whose duration reveals nothing about a secret.

/// Whether two secrets are equal. The time does not depend on which bytes differ.
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}
