//! What a laboratory may be called.

/// The longest name of a laboratory, bytes: a socket's name has 107.
pub(super) const NAME_BYTES_MAX: usize = 80;

/// Whether a name has nothing in it that a shell would need quoted.
pub(super) fn is_plain(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(is_plain_char)
}

/// Whether a laboratory's name may have it.
pub(super) const fn is_plain_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}
