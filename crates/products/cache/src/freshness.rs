//! Decides whether a stored answer may be used again (RFC 9111, RFC 5861, RFC 8246), from its header
//! fields and the time. Times are seconds since 1970.
//!
//! This is a *shared* cache: `s-maxage` counts before `max-age`, and `private` forbids storing. `Vary`
//! needs no attention besides `*`: the forms of an index are documents of their own, and otherwise every
//! request of this cache for one URL has the same header fields.

use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

/// The longest time that an answer without explicit lifetime is taken for fresh, in seconds: a day.
const HEURISTIC_MAX_S: u64 = 86_400;
/// The part of an answer's age since its last change that counts as its lifetime (RFC 9111 §4.2.2).
const HEURISTIC_PART: u64 = 10;
/// The largest lifetime that counts, in seconds (RFC 9111 §1.2.2).
const DELTA_MAX_S: u64 = 1 << 31;

/// The header fields that decide over caching, as the server wrote them, and when the answer came.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheFields {
    /// `Cache-Control`, the values of several fields joined by commas.
    pub cache_control: Option<String>,
    /// `Age`.
    pub age: Option<String>,
    /// `Date`.
    pub date: Option<String>,
    /// `Expires`.
    pub expires: Option<String>,
    /// `Vary`.
    pub vary: Option<String>,
    /// `ETag`.
    pub etag: Option<String>,
    /// `Last-Modified`.
    pub last_modified: Option<String>,
    /// When the answer came, or was last found unchanged, in seconds since 1970.
    pub received_s: u64,
}

/// What may be done with a stored answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may be used.
    Fresh,
    /// It may be used at once, and the server is asked meanwhile (RFC 5861 §3).
    UseAndRevalidate,
    /// The server must be asked first. If the server cannot be reached, or fails, the answer may be used.
    RevalidateOrUse,
    /// The server must be asked first, and its failure is the client's (RFC 9111 §4.2.4).
    Revalidate,
}

/// The directives of `Cache-Control` that concern this cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Directives {
    max_age_s: Option<u64>,
    shared_max_age_s: Option<u64>,
    while_revalidate_s: Option<u64>,
    if_error_s: Option<u64>,
    no_store: bool,
    no_cache: bool,
    private: bool,
    must_revalidate: bool,
    immutable: bool,
}

impl Directives {
    fn parse(text: &str) -> Self {
        let mut all = Self::default();
        for directive in split(text) {
            let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
            let value = value.trim().trim_matches('"');
            // What is no number counts as a lifetime of zero: stale (RFC 9111 §4.2.1).
            let seconds = || {
                let is_number = !value.is_empty() && value.bytes().all(|c| c.is_ascii_digit());
                is_number.then(|| value.parse().unwrap_or(DELTA_MAX_S).min(DELTA_MAX_S))
            };
            match name.trim().to_ascii_lowercase().as_str() {
                // The smallest counts if there are several.
                "max-age" => least(&mut all.max_age_s, seconds()),
                "s-maxage" => least(&mut all.shared_max_age_s, seconds()),
                "stale-while-revalidate" => least(&mut all.while_revalidate_s, seconds()),
                "stale-if-error" => least(&mut all.if_error_s, seconds()),
                "no-store" => all.no_store = true,
                "no-cache" => all.no_cache = true,
                "private" => all.private = true,
                "must-revalidate" | "proxy-revalidate" => all.must_revalidate = true,
                "immutable" => all.immutable = true,
                _ => {}
            }
        }
        all
    }
}

fn least(known: &mut Option<u64>, seconds: Option<u64>) {
    let seconds = seconds.unwrap_or(0);
    *known = Some(known.map_or(seconds, |known| known.min(seconds)));
}

/// Splits a list at its commas, except those in quotes.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    text.split(move |c| {
        quoted ^= c == '"';
        c == ',' && !quoted
    })
    .map(str::trim)
    .filter(|item| !item.is_empty())
}

/// Parses a date in any of HTTP's three forms, as seconds since 1970.
fn date_s(text: &str) -> Option<u64> {
    httpdate::parse_http_date(text.trim()).ok()?.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

impl CacheFields {
    fn directives(&self) -> Directives {
        Directives::parse(self.cache_control.as_deref().unwrap_or_default())
    }

    /// Whether the answer may be kept at all (RFC 9111 §3).
    #[must_use]
    pub fn is_storable(&self) -> bool {
        let directives = self.directives();
        let varies = self.vary.as_deref().is_some_and(|vary| split(vary).any(|name| name == "*"));
        !directives.no_store && !directives.private && !varies
    }

    /// Returns how long the answer is fresh, in seconds, counted from when it was made (RFC 9111 §4.2.1).
    fn lifetime_s(&self, directives: &Directives) -> u64 {
        if let Some(seconds) = directives.shared_max_age_s.or(directives.max_age_s) {
            return seconds;
        }
        let made = self.date.as_deref().and_then(date_s).unwrap_or(self.received_s);
        if let Some(expires) = &self.expires {
            // An invalid date means "already expired".
            return date_s(expires).map_or(0, |expires| expires.saturating_sub(made));
        }
        if directives.immutable {
            return DELTA_MAX_S;
        }
        let changed = self.last_modified.as_deref().and_then(date_s);
        changed.map_or(0, |changed| (made.saturating_sub(changed) / HEURISTIC_PART).min(HEURISTIC_MAX_S))
    }

    /// Returns the age of the answer at `now_s`, in seconds (RFC 9111 §4.2.3). The time that the answer
    /// took to come counts as nothing.
    #[must_use]
    pub fn age_s(&self, now_s: u64) -> u64 {
        let made = self.date.as_deref().and_then(date_s).unwrap_or(self.received_s);
        let apparent = self.received_s.saturating_sub(made);
        let told = self.age.as_deref().and_then(|age| age.trim().parse::<u64>().ok()).unwrap_or(0);
        apparent.max(told).saturating_add(now_s.saturating_sub(self.received_s)).min(DELTA_MAX_S)
    }

    /// Says what may be done at `now_s` with the stored answer.
    #[must_use]
    pub fn verdict(&self, now_s: u64) -> Verdict {
        let directives = self.directives();
        if directives.no_cache {
            return Verdict::Revalidate;
        }
        // A clock that was set back makes answers of the future, which are not believed.
        let is_future = self.received_s > now_s;
        let stale_s = (self.age_s(now_s) + 1).saturating_sub(self.lifetime_s(&directives));
        if stale_s == 0 && !is_future {
            return Verdict::Fresh;
        }
        // The server forbids stale answers, or a lifetime for shared caches does (RFC 9111 §5.2.2.10).
        if directives.must_revalidate || directives.shared_max_age_s.is_some() {
            return Verdict::Revalidate;
        }
        if !is_future && directives.while_revalidate_s.is_some_and(|window| stale_s <= window) {
            return Verdict::UseAndRevalidate;
        }
        match directives.if_error_s {
            Some(window) if stale_s > window => Verdict::Revalidate,
            _ => Verdict::RevalidateOrUse,
        }
    }

    /// Returns the fields after the server has said that the answer is unchanged (304): those that came
    /// replace those that are stored (RFC 9111 §3.2).
    #[must_use]
    pub fn refreshed(&self, new: &Self) -> Self {
        let pick = |new: &Option<String>, old: &Option<String>| new.clone().or_else(|| old.clone());
        Self {
            cache_control: pick(&new.cache_control, &self.cache_control),
            // The old `Age` belongs to the old answer.
            age: new.age.clone(),
            date: new.date.clone(),
            expires: pick(&new.expires, &self.expires),
            vary: pick(&new.vary, &self.vary),
            etag: pick(&new.etag, &self.etag),
            last_modified: pick(&new.last_modified, &self.last_modified),
            received_s: new.received_s,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 1994-11-06 08:49:37, the date of RFC 9110's examples.
    const THEN_S: u64 = 784_111_777;
    const THEN: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const TEN_DAYS_BEFORE: &str = "Thu, 27 Oct 1994 08:49:37 GMT";

    fn with(cache_control: &str) -> CacheFields {
        CacheFields {
            cache_control: Some(cache_control.to_owned()),
            date: Some(THEN.to_owned()),
            received_s: THEN_S,
            ..CacheFields::default()
        }
    }

    #[test]
    fn lifetimes_are_those_of_the_standard() {
        for (control, seconds, verdict) in [
            ("max-age=60", 59, Verdict::Fresh),
            ("max-age=60", 60, Verdict::RevalidateOrUse),
            ("MAX-AGE = \"60\"", 59, Verdict::Fresh),
            ("max-age=60, max-age=10", 11, Verdict::RevalidateOrUse),
            ("max-age=10, s-maxage=60", 59, Verdict::Fresh),
            ("s-maxage=10, max-age=60", 11, Verdict::Revalidate),
            ("max-age=60, must-revalidate", 61, Verdict::Revalidate),
            ("max-age=60, proxy-revalidate", 61, Verdict::Revalidate),
            ("no-cache, max-age=60", 0, Verdict::Revalidate),
            ("private=\"a, no-cache\", max-age=60", 0, Verdict::Fresh),
            ("max-age=60, stale-while-revalidate=30", 80, Verdict::UseAndRevalidate),
            ("max-age=60, stale-while-revalidate=30", 90, Verdict::RevalidateOrUse),
            ("max-age=60, stale-while-revalidate=30, must-revalidate", 80, Verdict::Revalidate),
            ("max-age=60, stale-if-error=100", 150, Verdict::RevalidateOrUse),
            ("max-age=60, stale-if-error=100", 161, Verdict::Revalidate),
            ("max-age=never", 0, Verdict::RevalidateOrUse),
            ("max-age=99999999999999999999", 1_000_000_000, Verdict::Fresh),
            ("immutable", 1_000_000_000, Verdict::Fresh),
            ("", 0, Verdict::RevalidateOrUse),
        ] {
            assert_eq!(with(control).verdict(THEN_S + seconds), verdict, "{control} after {seconds} s");
        }
    }

    #[test]
    fn an_answer_without_a_lifetime_has_a_tenth_of_its_age() {
        let fields = CacheFields { last_modified: Some(TEN_DAYS_BEFORE.to_owned()), ..with("") };
        assert_eq!(fields.verdict(THEN_S + 86_399), Verdict::Fresh);
        assert_eq!(fields.verdict(THEN_S + 86_400), Verdict::RevalidateOrUse);
        let expired = CacheFields { expires: Some("0".to_owned()), ..fields.clone() };
        assert_eq!(expired.verdict(THEN_S), Verdict::RevalidateOrUse, "an invalid date is in the past");
        let expires = CacheFields { expires: Some(THEN.to_owned()), ..fields };
        assert_eq!(expires.verdict(THEN_S), Verdict::RevalidateOrUse);
    }

    #[test]
    fn an_answer_has_the_age_that_other_caches_gave_it() {
        let fields = CacheFields { age: Some("50".to_owned()), ..with("max-age=60") };
        assert_eq!((fields.age_s(THEN_S), fields.age_s(THEN_S + 9)), (50, 59));
        assert_eq!(fields.verdict(THEN_S + 10), Verdict::RevalidateOrUse);
        let late = CacheFields { received_s: THEN_S + 30, ..with("max-age=60") };
        assert_eq!(late.age_s(THEN_S + 31), 31, "it was on its way for half a minute");
        assert_eq!(fields.verdict(THEN_S - 1), Verdict::RevalidateOrUse, "the clock was set back");
    }

    #[test]
    fn some_answers_are_for_one_client_only() {
        for control in ["no-store", "private", "max-age=60, Private", "private=\"set-cookie\""] {
            assert!(!with(control).is_storable(), "{control}");
        }
        assert!(!CacheFields { vary: Some("accept, *".to_owned()), ..with("") }.is_storable());
        assert!(CacheFields { vary: Some("accept".to_owned()), ..with("max-age=1") }.is_storable());
    }

    #[test]
    fn an_unchanged_answer_has_new_dates_and_its_old_validator() {
        let old =
            CacheFields { etag: Some("\"a\"".to_owned()), age: Some("9".to_owned()), ..with("max-age=60") };
        let new = CacheFields { received_s: THEN_S + 100, ..CacheFields::default() };
        let now = old.refreshed(&new);
        assert_eq!(now.etag.as_deref(), Some("\"a\""));
        assert_eq!(now.verdict(THEN_S + 159), Verdict::Fresh);
    }

    proptest! {
        #[test]
        fn any_fields_have_a_verdict(
            control in "[a-z=,\"0-9 -]{0,60}",
            age in "\\PC{0,20}",
            now in any::<u64>(),
        ) {
            let fields = CacheFields { age: Some(age), expires: Some(control.clone()), ..with(&control) };
            let _ = (fields.verdict(now), fields.is_storable(), fields.age_s(now));
        }
    }
}
