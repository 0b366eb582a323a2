//! Reads what a server asks for before it lets a client in: the challenges of `WWW-Authenticate` (RFC 9110
//! section 11.6.1).

use hyper::http::header::{HeaderMap, WWW_AUTHENTICATE};

/// The most challenges that are read of one answer.
const CHALLENGES_MAX: usize = 16;

/// A challenge: a scheme such as `Bearer`, and its parameters in the order of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Challenge {
    pub(super) scheme: String,
    parameters: Vec<(String, String)>,
}

impl Challenge {
    /// Whether the challenge is for this scheme.
    pub(super) fn is(&self, scheme: &str) -> bool {
        self.scheme.eq_ignore_ascii_case(scheme)
    }

    /// Returns the value of a parameter, without quotes.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// Returns the challenges of an answer.
pub(super) fn challenges(headers: &HeaderMap) -> Vec<Challenge> {
    let mut all: Vec<Challenge> = Vec::new();
    for value in headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok()) {
        for part in parts(value) {
            let (word, rest) = part.split_once(char::is_whitespace).unwrap_or((part, ""));
            let rest = rest.trim();
            // A part is `SCHEME`, `SCHEME NAME=VALUE`, or a further `NAME=VALUE` of the scheme before it.
            let is_scheme = !word.contains('=') && !rest.starts_with('=');
            let parameter = if is_scheme { rest } else { part };
            if is_scheme {
                if all.len() == CHALLENGES_MAX {
                    return all;
                }
                all.push(Challenge { scheme: word.to_owned(), parameters: Vec::new() });
            }
            if let (Some(last), Some((name, value))) = (all.last_mut(), parameter.split_once('=')) {
                last.parameters.push((name.trim().to_owned(), unquoted(value.trim())));
            }
        }
    }
    all.retain(|challenge| {
        let mut bytes = challenge.scheme.bytes();
        bytes.all(|b| b.is_ascii_alphanumeric() || b == b'-')
    });
    all
}

/// Splits a list at the commas that are not within quotes. Leaves out empty parts.
fn parts(list: &str) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let split = list.split(move |c| {
        is_quoted ^= c == '"' && !is_escaped;
        is_escaped = is_quoted && c == '\\' && !is_escaped;
        c == ',' && !is_quoted
    });
    split.map(str::trim).filter(|part| !part.is_empty())
}

/// Returns the text of a quoted string (RFC 9110 section 5.6.4); another text as it is.
fn unquoted(value: &str) -> String {
    let Some(inner) = value.strip_prefix('"') else { return value.to_owned() };
    let inner = inner.strip_suffix('"').unwrap_or(inner);
    let mut chars = inner.chars();
    let mut text = String::new();
    while let Some(c) = chars.next() {
        text.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    text
}

/// Returns the schemes that a server accepts, if there are some and Basic is not among them.
pub(super) fn unspoken_schemes(headers: &HeaderMap) -> Option<String> {
    let all = challenges(headers);
    let is_spoken = all.iter().any(|challenge| challenge.is("basic"));
    let mut schemes: Vec<String> = all.into_iter().map(|challenge| challenge.scheme).collect();
    schemes.dedup();
    (!schemes.is_empty() && !is_spoken).then(|| schemes.join(" or "))
}

#[cfg(test)]
mod tests {
    use hyper::http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn headers(value: &str) -> HeaderMap {
        [(WWW_AUTHENTICATE, HeaderValue::from_str(value).unwrap())].into_iter().collect()
    }

    #[test]
    fn schemes_that_are_not_spoken_are_named() {
        let of = |value| unspoken_schemes(&headers(value));
        assert_eq!(of("Digest realm=\"a, Basic b\", nonce=\"n\""), Some("Digest".to_owned()));
        assert_eq!(of("Negotiate, NTLM"), Some("Negotiate or NTLM".to_owned()));
        assert_eq!(of("Digest realm=\"a\", basic realm=\"b\""), None);
        assert_eq!((of(""), unspoken_schemes(&HeaderMap::new())), (None, None));
    }

    #[test]
    fn parameters_are_read_with_quotes_escapes_and_white_space() {
        let value = "Negotiate dG9rZW4=, Bearer realm = \"https://a.example/t\", service=a.example,\
                     scope=\"repository:a/b:pull,push\", error=\"say \\\"please\\\", first\"";
        let all = challenges(&headers(value));
        let bearer = &all[1];
        assert!(all.len() == 2 && bearer.is("bearer") && !bearer.is("basic"));
        let of = |name| bearer.parameter(name).unwrap();
        assert_eq!((of("REALM"), of("service")), ("https://a.example/t", "a.example"));
        assert_eq!((of("scope"), of("error")), ("repository:a/b:pull,push", "say \"please\", first"));
        assert_eq!(bearer.parameter("nonce"), None);
        assert_eq!(challenges(&headers("a=b, =, \"")), []);
    }

    proptest! {
        #[test]
        fn any_value_is_read(value in "[ -~]{0,200}") {
            prop_assert!(challenges(&headers(&value)).len() <= CHALLENGES_MAX);
        }
    }
}
