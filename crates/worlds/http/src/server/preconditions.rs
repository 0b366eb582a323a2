//! Evaluates preconditions by entity tag (RFC 9110 §13). Dates are ignored, because entity tags are better
//! validators.

use hyper::header::{HeaderMap, HeaderName, IF_MATCH, IF_NONE_MATCH, IF_RANGE};

/// The result of the preconditions of a GET or HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// The preconditions hold, or there are none.
    Holds,
    /// The client already has the content: 304.
    NotModified,
    /// The content is not the one that the client expects: 412.
    Failed,
}

/// Evaluates the preconditions in the order of §13.2.2, for a content with this strong entity tag.
#[must_use]
pub fn evaluate(headers: &HeaderMap, etag: Option<&str>) -> Precondition {
    if headers.contains_key(IF_MATCH) && !is_listed(headers, &IF_MATCH, etag, false) {
        return Precondition::Failed;
    }
    if headers.contains_key(IF_NONE_MATCH) && is_listed(headers, &IF_NONE_MATCH, etag, true) {
        return Precondition::NotModified;
    }
    Precondition::Holds
}

/// Whether a range may be answered with a part: `If-Range` is absent, or equals `etag` by strong comparison
/// (§13.1.5). A date never equals it.
#[must_use]
pub fn if_range_holds(headers: &HeaderMap, etag: Option<&str>) -> bool {
    let mut values = headers.get_all(IF_RANGE).iter();
    match (values.next(), values.next()) {
        (None, _) => true,
        (Some(value), None) => etag.is_some_and(|etag| value.as_bytes().trim_ascii() == etag.as_bytes()),
        _ => false,
    }
}

/// Whether a list of entity tags (§8.8.3) is `*` or contains `etag`, which is strong. Weak tags of the list
/// count only if `weak`.
fn is_listed(headers: &HeaderMap, name: &HeaderName, etag: Option<&str>, weak: bool) -> bool {
    headers.get_all(name).iter().any(|value| {
        let value = value.as_bytes();
        value.trim_ascii() == b"*"
            || Tags(value)
                .any(|(is_weak, tag)| (weak || !is_weak) && etag.is_some_and(|etag| etag.as_bytes() == tag))
    })
}

/// Iterates over the tags of a list: whether each is weak, and the tag with its quotes. Ends at the first
/// invalid tag.
struct Tags<'a>(&'a [u8]);

impl<'a> Iterator for Tags<'a> {
    type Item = (bool, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        while let [b' ' | b'\t' | b',', rest @ ..] = self.0 {
            self.0 = rest;
        }
        let (is_weak, tag) = match self.0.strip_prefix(b"W/") {
            Some(tag) => (true, tag),
            None => (false, self.0),
        };
        let [b'"', inside @ ..] = tag else { return None };
        let len = inside.iter().position(|byte| *byte == b'"')? + 2;
        self.0 = &tag[len..];
        Some((is_weak, &tag[..len]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;
    use proptest::prelude::*;

    fn with(fields: &[(HeaderName, &str)]) -> HeaderMap {
        let value = |text: &str| HeaderValue::from_str(text).expect("a value");
        fields.iter().map(|(name, text)| (name.clone(), value(text))).collect()
    }

    #[test]
    fn tags_are_compared_as_the_standard_says() {
        let etag = Some("\"a,b\"");
        for (value, strong, weak) in [
            ("\"a,b\"", true, true),
            ("W/\"a,b\"", false, true),
            ("\"x\", \"a,b\"", true, true),
            (" , \"x\",,W/\"a,b\"", false, true),
            ("*", true, true),
            ("\"x\"", false, false),
            ("a,b", false, false),
            ("\"a", false, false),
            ("", false, false),
        ] {
            let found = if weak { Precondition::NotModified } else { Precondition::Holds };
            assert_eq!(evaluate(&with(&[(IF_NONE_MATCH, value)]), etag), found, "{value}");
            let found = if strong { Precondition::Holds } else { Precondition::Failed };
            assert_eq!(evaluate(&with(&[(IF_MATCH, value)]), etag), found, "{value}");
        }
        let both = with(&[(IF_MATCH, "\"x\""), (IF_NONE_MATCH, "\"a,b\"")]);
        assert_eq!(evaluate(&both, etag), Precondition::Failed);
        assert_eq!(evaluate(&with(&[(IF_NONE_MATCH, "\"x\"")]), None), Precondition::Holds);
    }

    #[test]
    fn a_range_is_for_what_the_client_has_a_part_of() {
        let etag = Some("\"a\"");
        assert!(if_range_holds(&HeaderMap::new(), etag));
        assert!(if_range_holds(&with(&[(IF_RANGE, "\"a\"")]), etag));
        for value in ["\"b\"", "W/\"a\"", "a", "Sat, 29 Oct 1994 19:43:31 GMT", "*", ""] {
            assert!(!if_range_holds(&with(&[(IF_RANGE, value)]), etag), "{value}");
        }
        assert!(!if_range_holds(&with(&[(IF_RANGE, "\"a\"")]), None));
    }

    proptest! {
        #[test]
        fn any_list_ends(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            prop_assert!(Tags(&bytes).count() <= bytes.len() / 2);
        }
    }
}
