//! Tokens that servers give to everybody, as registries of container images do (Distribution 2.8, "Token
//! Authentication Specification"; RFC 6750 section 3).
//!
//! ```text
//! GET URL ─────────────────────────────▶ 401, WWW-Authenticate: Bearer realm="R",service="S",scope="C"
//! GET R?service=S&scope=C ─────────────▶ {"token": "T", "expires_in": 300}
//! GET URL, Authorization: Bearer T ────▶ 200
//! ```
//!
//! A token goes to the origin that asked for it, and to no other. R must be on the same host, or belong to
//! the same domain and speak `https`: otherwise a server could have a token fetched from a service that
//! trusts this host, and receive it. R is asked without any secret of the caller. A caller who has
//! credentials for the URL or for R gets no token: it would be a stranger's, or one that acts in the caller's
//! name.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anabranch_algo::{Span, Time};
use hyper::http::header::{HeaderMap, HeaderValue};
use serde::Deserialize;

use super::challenge::challenges;
use super::origin::{Origin, Url, parse, without_query};

/// The most bytes of an answer with a token.
pub(super) const TOKEN_ANSWER_BYTES_MAX: usize = 64 << 10;
/// The most tokens, and the most URLs that need one, that are remembered.
const REMEMBERED_MAX: usize = 1024;
/// The seconds that a token is valid for if its server does not say how many.
const LIFETIME_S: u64 = 60;
/// The most seconds that a token is used for.
const LIFETIME_S_MAX: u64 = 24 * 3600;

/// The place where an origin wants its tokens to be fetched: the request for one of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TokenSource {
    origin: Origin,
    /// The URL to ask for the token.
    pub(super) url: Url,
}

impl TokenSource {
    /// Reads the challenge of an answer from `url`. Returns `None` if a token cannot be fetched: the scheme
    /// is another, the realm is no URL, or it is neither on this host nor in this domain.
    pub(super) fn of(headers: &HeaderMap, url: &Url) -> Option<Self> {
        let all = challenges(headers);
        let challenge = all.iter().find(|challenge| challenge.is("bearer"))?;
        let mut realm = url::Url::parse(challenge.parameter("realm")?).ok()?;
        for name in ["service", "scope"] {
            if let Some(value) = challenge.parameter(name) {
                realm.query_pairs_mut().append_pair(name, value);
            }
        }
        let realm = parse(realm.as_str()).ok()?;
        let has_name = !realm.username().is_empty() || realm.password().is_some();
        let is_near = is_same_host(&realm, url) || realm.scheme() == "https" && is_same_domain(&realm, url);
        (is_near && !has_name).then(|| Self { origin: Origin::of(url), url: realm })
    }
}

/// Whether tokens come from the host that asks for them, and not without TLS for a URL with TLS.
fn is_same_host(realm: &Url, url: &Url) -> bool {
    realm.host() == url.host() && (realm.scheme() == "https" || url.scheme() == "http")
}

/// Whether two hosts have names whose last two labels are equal, as `auth.docker.io` and
/// `registry-1.docker.io`.
fn is_same_domain(realm: &Url, url: &Url) -> bool {
    let domain = |url: &Url| {
        let mut labels = url.domain()?.rsplit('.');
        let (top, second) = (labels.next()?, labels.next()?);
        Some((top.to_owned(), second.to_owned()))
    };
    domain(realm).is_some_and(|realm| domain(url) == Some(realm))
}

/// The answer of a server of tokens.
#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
    expires_in: Option<u64>,
}

/// The value of `Authorization`, and when it ends.
struct Token {
    value: HeaderValue,
    until: Time,
}

impl Token {
    fn parse(answer: &[u8], now: Time) -> Option<Self> {
        let answer: TokenAnswer = serde_json::from_slice(answer).ok()?;
        let text = answer.token.or(answer.access_token).filter(|text| !text.is_empty())?;
        let mut value = HeaderValue::from_str(&format!("Bearer {text}")).ok()?;
        value.set_sensitive(true);
        let seconds = answer.expires_in.unwrap_or(LIFETIME_S).clamp(LIFETIME_S, LIFETIME_S_MAX);
        // The clocks of both sides differ, and a request takes time.
        Some(Self { value, until: now + Span::from_millis(seconds * 900) })
    }
}

/// The tokens of all routes of a client.
#[derive(Default)]
pub(super) struct Tokens(Mutex<State>);

#[derive(Default)]
struct State {
    /// For each URL (without its query) that needs a token, where to fetch it.
    needed: HashMap<String, TokenSource>,
    tokens: HashMap<TokenSource, Token>,
}

impl Tokens {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the value of `Authorization` for a URL whose server has asked for a token.
    pub(super) fn get(&self, url: &Url, now: Time) -> Option<HeaderValue> {
        let state = self.lock();
        let source = state.needed.get(&without_query(url))?;
        state.tokens.get(source).filter(|token| now < token.until).map(|token| token.value.clone())
    }

    /// Records that a URL needs a token, and that `refused`, if it was sent, is not valid. Returns whether
    /// there is another token already, which came for another URL.
    pub(super) fn need(
        &self,
        url: &Url,
        source: &TokenSource,
        refused: Option<&HeaderValue>,
        now: Time,
    ) -> bool {
        let mut state = self.lock();
        if state.needed.len() >= REMEMBERED_MAX {
            state.needed.clear();
        }
        state.needed.insert(without_query(url), source.clone());
        state.tokens.get(source).is_some_and(|token| now < token.until && Some(&token.value) != refused)
    }

    /// Takes the answer of a server of tokens. Returns whether it has a token.
    pub(super) fn take(&self, source: TokenSource, answer: &[u8], now: Time) -> bool {
        let Some(token) = Token::parse(answer, now) else { return false };
        let mut state = self.lock();
        if state.tokens.len() >= REMEMBERED_MAX {
            state.tokens.clear();
        }
        state.tokens.insert(source, token);
        true
    }
}

#[cfg(test)]
mod tests {
    use hyper::http::header::WWW_AUTHENTICATE;

    use super::*;

    fn source(value: &str, url: &str) -> Option<TokenSource> {
        let headers = [(WWW_AUTHENTICATE, HeaderValue::from_str(value).unwrap())].into_iter().collect();
        TokenSource::of(&headers, &parse(url).unwrap())
    }

    #[test]
    fn the_request_for_a_token_names_service_and_scope() {
        let asked = "Bearer realm=\"https://auth.r.example/token?a=b\",service=\"r.example\",\
                     scope=\"repository:a/b:pull\"";
        let source = source(asked, "https://r.example/v2/a/b/blobs/x").unwrap();
        let url = source.url.as_str();
        assert_eq!(url, "https://auth.r.example/token?a=b&service=r.example&scope=repository%3Aa%2Fb%3Apull");
    }

    #[test]
    fn realms_that_would_give_a_token_away_are_refused() {
        let of = |realm: &str| source(&format!("Bearer realm=\"{realm}\""), "https://r.docker.example/v2/");
        for realm in
            ["https://auth.docker.example/", "https://docker.example/t", "https://r.docker.example:8/"]
        {
            assert!(of(realm).is_some(), "{realm}");
        }
        for realm in [
            "http://auth.docker.example/",
            "http://r.docker.example/",
            "https://auth.other.example/",
            "https://example/",
            "https://127.0.0.1/",
            "token",
            "",
            "file:///etc/passwd",
            "https://a:b@auth.docker.example/",
        ] {
            assert_eq!(of(realm), None, "{realm}");
        }
        let local = |realm: &str| source(&format!("Bearer realm=\"{realm}\""), "http://10.0.0.1:5000/v2/");
        assert!(local("http://10.0.0.1:5001/").is_some() && local("http://10.0.0.2/").is_none());
        assert!(source("Bearer realm=\"http://127.0.0.1:5001/\"", "http://127.0.0.1:5000/v2/").is_some());
        assert_eq!(source("Basic realm=\"https://r.example/\"", "https://r.example/v2/"), None);
    }

    #[test]
    fn a_token_is_used_for_its_lifetime_and_for_all_urls_of_its_scope() {
        let (tokens, now) = (Tokens::default(), Time::ZERO);
        let source =
            source("Bearer realm=\"http://r.example/t\",scope=\"s\"", "http://r.example/one").unwrap();
        let [one, two, other] = ["http://r.example/one?x", "http://r.example/two", "http://q.example/one"]
            .map(|url| parse(url).unwrap());
        assert!(tokens.get(&one, now).is_none() && !tokens.need(&one, &source, None, now));
        assert!(!tokens.take(source.clone(), b"{}", now) && !tokens.take(source.clone(), b"no", now));
        assert!(tokens.take(source.clone(), b"{\"access_token\": \"T\", \"expires_in\": 100}", now));
        let value = tokens.get(&one, now).unwrap();
        assert_eq!(value, "Bearer T");
        assert_eq!(tokens.get(&two, now), None, "its server has not asked for it");
        assert!(tokens.need(&two, &source, None, now) && tokens.get(&two, now).is_some());
        assert_eq!(tokens.get(&other, now), None, "it is of another origin");
        assert!(!tokens.need(&two, &source, Some(&value), now), "the server has refused it");
        assert_eq!(tokens.get(&one, now + Span::from_secs(91)), None);
    }
}
