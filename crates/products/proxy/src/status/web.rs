//! The status page, the snapshot as JSON, and metrics for Prometheus, over HTTP.
//!
//! * `/`, `/style.css`, `/script.js`: the page. There is nothing in it that is a secret, and nothing from
//!   elsewhere.
//! * `/status.json`, `/metrics`: what the role is doing, for those who know the [`Token`]: `Authorization:
//!   Bearer TOKEN`, or `?token=TOKEN`. The page has it behind `#`, which browsers send to nobody.
//!
//! A page of another site must not read it by giving its own name this address (DNS rebinding): a request
//! whose `Host` is not an address of this end, or `localhost` there, is refused. No site is allowed to read
//! answers (no CORS), and none to show the page in a frame.

use std::io;
use std::net::{IpAddr, SocketAddr};

use anabranch_http::server::{
    ContentProvider, PathLookup, Refusal, Resource, ResourceRequest, RunningServer, Server, Unavailable,
};
use anabranch_net::prometheus::MEDIA_TYPE;

use crate::status::{Status, Token, prometheus_text};

const JSON: &str = "application/json";
/// Of all that is answered here.
const FIELDS: &[(&str, &str)] = &[
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    ("cache-control", "no-store"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
];

/// The parts of the page: path, media type, bytes.
const PAGE: &[(&str, &str, &str)] = &[
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/style.css", "text/css; charset=utf-8", include_str!("page/style.css")),
    ("/script.js", "text/javascript; charset=utf-8", include_str!("page/script.js")),
];

/// A page that is served until this is dropped.
#[derive(Debug)]
pub struct WebStatus {
    address: SocketAddr,
    _server: RunningServer,
}

impl WebStatus {
    /// Where it is.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Serves the page of a role at an address.
///
/// # Errors
/// What bind(2) says; there is no thread for it.
pub fn serve(status: &Status, address: SocketAddr, token: Token) -> io::Result<WebStatus> {
    let server = Server::bind(&[address])?;
    let address = server.addresses()[0];
    let server = server.start(Page { status: status.clone(), token })?;
    Ok(WebStatus { address, _server: server })
}

struct Page {
    status: Status,
    token: Token,
}

impl Page {
    /// Whether the request may know what the role is doing.
    fn admit(&self, request: &ResourceRequest<'_>) -> Result<(), (Refusal, &'static str)> {
        let bearer = request.authorization.and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        let of_query = || request.query?.split('&').find_map(|pair| pair.strip_prefix("token="));
        match bearer.or_else(of_query) {
            None => {
                Err((Refusal::Unauthorized, "it wants the token that was made for it: Bearer, or ?token="))
            }
            Some(token) if self.token.is(token) => Ok(()),
            Some(_) => Err((Refusal::Forbidden, "the token is wrong")),
        }
    }
}

/// Whether a name of the server in a request can only mean this server.
fn is_own(host: &str, local: IpAddr) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        // All colons are those of an address.
        Some(_) if host.ends_with(']') => (host, ""),
        Some((name, port)) => (name, port),
        None => (host, ""),
    };
    let local = local.to_canonical();
    let ip = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
    let is_here = match ip.map(|ip| ip.to_canonical()) {
        Some(ip) => ip == local || ip.is_loopback() && local.is_loopback(),
        None => name.eq_ignore_ascii_case("localhost") && local.is_loopback(),
    };
    is_here && port.bytes().all(|c| c.is_ascii_digit())
}

impl ContentProvider for Page {
    type Content = Vec<u8>;

    fn find(&self, request: &ResourceRequest<'_>) -> PathLookup<Self::Content> {
        if !is_own(request.host, request.local.ip()) {
            let why = format!("this is not {}: ask for {}", request.host, request.local);
            return PathLookup::Refused(Refusal::Misdirected, why);
        }
        let path = request.path.encode();
        let found = |media_type, content: Vec<u8>| {
            let length = content.len() as u64;
            let links = Vec::new();
            PathLookup::Found(Resource { content, length, etag: None, media_type, links, fields: FIELDS })
        };
        if let Some((_, media_type, text)) = PAGE.iter().find(|(known, ..)| *known == path) {
            return found(media_type, (*text).into());
        }
        if !matches!(path.as_str(), "/status.json" | "/metrics") {
            return PathLookup::NotFound(
                "the page is at /, its numbers at /status.json and /metrics".to_owned(),
            );
        }
        if let Err((refusal, why)) = self.admit(request) {
            return PathLookup::Refused(refusal, why.to_owned());
        }
        let snapshot = self.status.snapshot();
        match path.as_str() {
            "/metrics" => found(MEDIA_TYPE, prometheus_text(&snapshot).into_bytes()),
            // Nothing in it can fail.
            _ => found(JSON, serde_json::to_vec(&snapshot).unwrap_or_default()),
        }
    }

    fn check(&self, _: &Self::Content) -> Result<(), Unavailable> {
        Ok(())
    }

    fn read(&self, content: &Self::Content, offset: u64, out: &mut [u8]) -> Result<(), Unavailable> {
        let from = usize::try_from(offset).ok();
        let bytes = from.and_then(|from| content.get(from..)?.get(..out.len()));
        out.copy_from_slice(bytes.ok_or(Unavailable::Gone)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_nobody_else_can_have_are_its_own() {
        let own = |host, local: &str| is_own(host, local.parse().unwrap());
        for host in ["127.0.0.1:9000", "127.0.0.1", "localhost:9000", "LOCALHOST", "[::1]:9", "127.0.0.2:1"] {
            assert!(own(host, "127.0.0.1"), "{host}");
        }
        assert!(own("[::1]", "::1") && own("[::1]:8", "::1") && own("localhost:1", "::ffff:127.0.0.1"));
        assert!(own("192.0.2.1:9000", "192.0.2.1") && own("192.0.2.1:9000", "::ffff:192.0.2.1"));
        for host in [
            "evil.example:9000",
            "127.0.0.1.evil.example",
            "localhost.evil.example:1",
            "192.0.2.1:9000",
            "",
            ":9000",
            "localhost:9x",
            "127.0.0.1:9000:1",
            "[::1",
        ] {
            assert!(!own(host, "127.0.0.1"), "{host}");
        }
        for host in ["127.0.0.1:9000", "localhost:9000", "192.0.2.2:9000"] {
            assert!(!own(host, "192.0.2.1"), "{host}");
        }
    }
}
