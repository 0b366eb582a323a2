//! Suggests names for a name that does not exist: the one place for keys, links, flows, hosts, cases,
//! controllers and scenarios.

pub use anabranch_net::nearest;

/// Most names that are listed.
const LISTED_MAX: usize = 24;

/// Returns ": did you mean `x`?", or the list of all names.
pub fn hint<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    match nearest(word, names.iter().copied()) {
        Some(near) => format!(": did you mean `{near}`?"),
        None => format!("; there are {}", list(&names)),
    }
}

/// Returns the message that there is no `what` with this name, with a suggestion.
pub fn missing<'a>(what: &str, name: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    format!("there is no {what} `{name}`{}", hint(name, names))
}

/// Lists the names, or the first of them.
#[must_use]
pub fn list(names: &[&str]) -> String {
    match names.len() {
        0 => "none".into(),
        n if n > LISTED_MAX => format!("{}, … ({n})", names[..LISTED_MAX].join(", ")),
        _ => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant() {
        let keys = ["rate", "delay", "jitter", "queue", "mark_above", "reorder_by"];
        assert_eq!(hint("rtae", keys), ": did you mean `rate`?");
        assert_eq!(hint("zz", ["a", "b"]), "; there are a, b");
        assert_eq!(hint("zz", []), "; there are none");
        assert_eq!(missing("link", "a1", ["b2"]), "there is no link `a1`; there are b2");
    }
}
