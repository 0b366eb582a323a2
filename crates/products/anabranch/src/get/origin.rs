//! The server of a URL.

use anabranch_mirror::url::Url;

/// What one connection is for (RFC 6454): whether it is HTTPS, the host, the port.
pub(super) type Origin = (bool, String, u16);

/// The origin of a URL.
pub(super) fn origin(url: &Url) -> Origin {
    (url.is_https(), url.host().to_owned(), url.port())
}

/// A server as people know it.
pub(super) fn host(url: &Url) -> String {
    let usual = if url.is_https() { 443 } else { 80 };
    if url.port() == usual { url.host().to_owned() } else { format!("{}:{}", url.host(), url.port()) }
}

/// An origin as a text that no other has.
pub(super) fn origin_text(url: &Url) -> String {
    let (is_https, host, port) = origin(url);
    format!("{}://{host}:{port}", if is_https { "https" } else { "http" })
}
