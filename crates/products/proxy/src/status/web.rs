//! Serves the status page, the snapshot as JSON, and metrics for Prometheus, over HTTP.
//!
//! * `/`, `/style.css`, `/script.js`: the page. It contains no secret and loads nothing from other hosts.
//! * `/status.json`, `/metrics`: the role's state, for requests with the [`Token`]: `Authorization: Bearer
//! TOKEN`, or `?token=TOKEN`. The page has the token behind `#`, which browsers do not send.
//!
//! A page of another site must not read the state by giving its own name this address (DNS rebinding), so
//! [`ResourceRequest::must_be_own`] checks the host. No other site may read answers (no CORS), and none may
//! show the page in a frame.

use std::io;
use std::net::SocketAddr;

use anabranch_http::server::{
    ContentProvider, PathLookup, Refusal, Resource, ResourceRequest, RunningServer, Server, Unavailable,
};
use anabranch_net::prometheus::MEDIA_TYPE;

use crate::status::{Status, Token, prometheus_text};

const JSON: &str = "application/json";
/// The header fields of every answer.
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

/// The files of the page: path, media type and content.
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
    /// Returns the address of the page.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Serves the page of a role at an address.
///
/// # Errors
/// If the address cannot be bound, or if the server's thread cannot be started.
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
    /// Checks that the request has the token.
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

impl ContentProvider for Page {
    type Content = Vec<u8>;

    fn find(&self, request: &ResourceRequest<'_>) -> PathLookup<Self::Content> {
        if let Err(refused) = request.must_be_own() {
            return refused;
        }
        let path = request.path.encode();
        let found = |media_type: &'static str, content: Vec<u8>| {
            let length = content.len() as u64;
            let links = Vec::new();
            let fields = FIELDS.iter().map(|(name, value)| (*name, (*value).into())).collect();
            let media_type = media_type.into();
            PathLookup::Found(Resource { content, length, etag: None, media_type, links, fields })
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
            // Serializing a snapshot cannot fail.
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
