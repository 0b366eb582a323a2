//! The origin of a URL, and its forms as text.

use anabranch_mirror::url::Url;

/// An origin (RFC 6454), which a connection is for: whether it is HTTPS, the host, the port.
pub(super) type Origin = (bool, String, u16);

/// Returns the origin of a URL.
pub(super) fn origin(url: &Url) -> Origin {
    (url.is_https(), url.host().to_owned(), url.port())
}

/// Returns the host of a URL as people know it: with the port only if it is not the usual one.
pub(super) fn host(url: &Url) -> String {
    let usual = if url.is_https() { 443 } else { 80 };
    if url.port() == usual { url.host().to_owned() } else { format!("{}:{}", url.host(), url.port()) }
}

/// Returns the origin as a text that differs from that of every other origin.
pub(super) fn origin_text(url: &Url) -> String {
    let (is_https, host, port) = origin(url);
    format!("{}://{host}:{port}", if is_https { "https" } else { "http" })
}
