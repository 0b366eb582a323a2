//! Indexes of Python packages (PEP 503, PEP 691). A page `NAME/` lists files, each with a URL and its
//! SHA-256: in HTML behind the URL's `#`, in JSON beside it.
//!
//! The cache hands a page on with links that lead through it: `…/+files/sha256/HEX/PATH`, so that the hash
//! is known when the file is asked for, without a page at hand. PATH is the rest of the URL below the
//! route's `files`; a link to any other place stays as it is, and so the cache fetches from no host that
//! its settings do not name. A file's metadata (PEP 658) is at the URL of the file with `.metadata` behind
//! it, and has no hash in the path.

use std::fmt::Write as _;

use percent_encoding::percent_decode_str;
use url::Url;

use super::pypi_json::rewrite_json;
use super::target::{Document, StorePath, Target, TargetKind, UNKNOWN_TYPE, encoded};
use crate::config::Route;
use crate::digest::{Digest, HashKind};

/// The first name of paths of files. No package has such a name.
const FILES: &str = "+files";
/// The word in the place of a hash that the index does not say.
const NO_HASH: &str = "none";
/// The type of pages in HTML.
const PAGES: Form = ("application/vnd.pypi.simple.v1+html, text/html;q=0.9", "text/html; charset=utf-8");
/// The type of pages in JSON. Not every index has it: then it sends HTML.
const JSON: Form = (
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1",
    "application/vnd.pypi.simple.v1+json",
);

/// The form of a page: the value of `Accept` that asks for it, and its media type.
type Form = (&'static str, &'static str);

/// Whether a client names the JSON form first. pip parses it faster by far, and lists it first; another
/// client gets HTML.
fn wants_json(accept: &str) -> bool {
    let first = accept.split([',', ';']).next().unwrap_or_default().trim();
    ["application/vnd.pypi.simple.v1+json", "application/vnd.pypi.simple.latest+json"].contains(&first)
}

pub(super) fn target(route: &Route, path: &StorePath<'_>) -> Option<Target> {
    let names: Vec<&str> = path.names.iter().map(String::as_str).collect();
    match &names[..] {
        [FILES, kind, rest @ ..] => {
            let (expected, rest) = match (*kind, rest) {
                ("sha256", [hex, rest @ ..]) => (Some(Digest::from_hex(HashKind::Sha256, hex)?), rest),
                (NO_HASH, rest) => (None, rest),
                _ => return None,
            };
            let file = &path.names[path.names.len() - rest.len()..];
            let below = StorePath { names: file, directory: path.directory, query: None, accept: "" };
            if file.is_empty() || path.directory {
                return None;
            }
            let kind = match expected {
                Some(digest) if !path.last().ends_with(".metadata") => TargetKind::Object(digest),
                _ => TargetKind::Unchanging,
            };
            Some(Target {
                sources: below.below(&route.files),
                kind,
                media_type: UNKNOWN_TYPE,
                credentials: None,
            })
        }
        [] | [_] => {
            // Indexes redirect a page without a slash to the one with it.
            let page = StorePath { directory: true, query: None, ..*path };
            let mut sources = page.below(&route.sources);
            if path.names.is_empty() {
                sources.iter_mut().for_each(|source| source.push('/'));
            }
            let (accept, media_type) = if wants_json(path.accept) { JSON } else { PAGES };
            let document = Document { accept, is_index: true, ..Document::PLAIN };
            Some(Target { sources, kind: TargetKind::Document(document), media_type, credentials: None })
        }
        _ => None,
    }
}

/// Returns a page of an index, in HTML or JSON, whose links lead through the cache. `page` is the URL that
/// the page came from, `depth` the number of names of the page's path below the route.
#[must_use]
pub fn rewrite_index(route: &Route, page: &str, depth: usize, text: &str) -> String {
    let Ok(page) = Url::parse(page) else { return text.to_owned() };
    match text.trim_start().starts_with('{') {
        true => {
            let link = |link: &str| through_cache(route, &page, depth, link);
            rewrite_json(text, &link).unwrap_or_else(|| text.to_owned())
        }
        false => rewrite_html(route, &page, depth, text),
    }
}

fn rewrite_html(route: &Route, page: &Url, depth: usize, html: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(html.len()), html);
    while let Some((before, quote, value, after)) = next_link(rest) {
        out.push_str(before);
        let link = through_cache(route, page, depth, &unescape(value)).map(|link| escape(&link));
        let _ = write!(out, "{quote}{}{quote}", link.as_deref().unwrap_or(value));
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Returns the link to a file that leads through the cache, relative to the page; `None` if it leads
/// elsewhere.
fn through_cache(route: &Route, page: &Url, depth: usize, link: &str) -> Option<String> {
    let url = page.join(link).ok()?;
    let (fragment, mut bare) = (url.fragment().unwrap_or_default().to_owned(), url);
    bare.set_fragment(None);
    if bare.query().is_some() {
        return None;
    }
    // A link to another page of the index is left alone: it is relative, or leads to the index itself.
    if route.sources.iter().any(|source| bare.as_str().starts_with(&format!("{source}/"))) {
        return None;
    }
    let file =
        route.files.iter().find_map(|base| bare.as_str().strip_prefix(base.as_str())?.strip_prefix('/'))?;
    let names: Option<Vec<String>> =
        file.split('/').map(|name| Some(percent_decode_str(name).decode_utf8().ok()?.into_owned())).collect();
    let names = names?;
    if names.iter().any(|name| matches!(&**name, "" | "." | "..") || name.contains(['/', '\0'])) {
        return None;
    }
    let hash =
        fragment.strip_prefix("sha256=").filter(|hex| Digest::from_hex(HashKind::Sha256, hex).is_some());
    let hash = hash.map_or_else(|| NO_HASH.to_owned(), |hex| format!("sha256/{hex}"));
    let fragment = if fragment.is_empty() { String::new() } else { format!("#{fragment}") };
    Some(format!("{}{FILES}/{hash}{}{fragment}", "../".repeat(depth), encoded(&names)))
}

/// Finds the next `href` of a page. Returns the text before its value, the quote, the value, and the text
/// after it.
fn next_link(html: &str) -> Option<(&str, char, &str, &str)> {
    let mut from = 0;
    loop {
        let at = from + find_ignoring_case(html.get(from..)?, "href")?;
        let after = html[at + 4..].trim_start();
        let is_attribute = html[..at].ends_with(|c: char| c.is_ascii_whitespace());
        if let Some(value) = after.strip_prefix('=').map(str::trim_start).filter(|_| is_attribute)
            && let Some(quote) = value.chars().next().filter(|c| matches!(c, '"' | '\''))
            && let Some(end) = value[1..].find(quote)
        {
            let start = html.len() - value.len();
            return Some((&html[..start], quote, &value[1..=end], &value[end + 2..]));
        }
        from = at + 4;
    }
}

fn find_ignoring_case(text: &str, word: &str) -> Option<usize> {
    text.as_bytes().windows(word.len()).position(|window| window.eq_ignore_ascii_case(word.as_bytes()))
}

/// Replaces the character references that URLs have in pages.
fn unescape(text: &str) -> String {
    text.replace("&#43;", "+").replace("&#x2B;", "+").replace("&quot;", "\"").replace("&amp;", "&")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('\'', "&#39;").replace('<', "&lt;")
}
