//! The names that a laboratory or a domain can have while it is up.

/// The most bytes of a name; the name of a socket can have 107.
const NAME_BYTES_MAX: usize = 80;

/// Whether a name is short enough, and a shell needs no quotes for it.
pub(crate) fn is_plain(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(is_plain_char)
}

/// Whether a plain name may contain this character.
const fn is_plain_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// Turns any name into a plain one.
pub(crate) fn plain_name(name: &str) -> String {
    let plain = |c: char| if is_plain_char(c) { c } else { '-' };
    name.chars().map(plain).take(NAME_BYTES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        assert_eq!(plain_name("fig-4.9 b/ü"), "fig-4.9-b--");
        assert_eq!(plain_name(&"x".repeat(300)).len(), NAME_BYTES_MAX);
    }
}
