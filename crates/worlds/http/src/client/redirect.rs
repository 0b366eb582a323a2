//! Reads where a redirect leads (RFC 9110 section 15.4).

use hyper::http::header::LOCATION;
use hyper::http::response;

use super::error::FetchError;
use super::origin::{Url, redirected, without_query};

/// The most redirects that one fetch follows.
pub(super) const REDIRECTS_MAX: usize = 10;

/// Returns the URL that an answer from `url` redirects to, or why it cannot be followed. Returns `None` if
/// the answer is no redirect.
pub(super) fn redirect(url: &Url, parts: &response::Parts) -> Option<Result<Url, FetchError>> {
    let (301..=303 | 307..=308, Some(location)) = (parts.status.as_u16(), parts.headers.get(LOCATION)) else {
        return None;
    };
    let location = String::from_utf8_lossy(location.as_bytes());
    Some(match redirected(url, &location) {
        Err(why) => Err(FetchError::Refused(format!("a redirect leads nowhere: {why}"))),
        Ok(next) if url.scheme() == "https" && next.scheme() == "http" => {
            Err(FetchError::Refused(format!("it redirects from https to {}", without_query(&next))))
        }
        Ok(next) => Ok(next),
    })
}

/// Returns the error of a fetch that was redirected too often, lastly to `url`.
pub(super) fn too_many_redirects(url: &Url) -> FetchError {
    FetchError::Refused(format!("more than {REDIRECTS_MAX} redirects, the last to {}", without_query(url)))
}
