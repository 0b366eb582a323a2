//! The caller's options, parsed and checked once.

use std::fs::File;
use std::io::Read as _;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anabranch_net::{Clock, Limits, Resolver};
use hyper::http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HeaderMap, HeaderName,
    HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE,
    PROXY_AUTHORIZATION, RANGE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::CertificateDer;

use super::api::Options;
use super::bearer::Tokens;
use super::error::CredentialStatus;
use super::error::StartError;
use super::netrc::{NETRC_BYTES_MAX, Netrc};
use super::origin::{Origin, Url, credentials};
use super::proxy::{Proxies, basic};
use super::tls::{self, TlsConfigs};

/// Header fields that a caller may not set: this client sets them itself, or they would change the meaning of
/// an answer.
const RESERVED_FIELDS: &[HeaderName] = &[
    ACCEPT_ENCODING,
    CONNECTION,
    CONTENT_LENGTH,
    EXPECT,
    IF_MATCH,
    IF_MODIFIED_SINCE,
    IF_NONE_MATCH,
    IF_RANGE,
    IF_UNMODIFIED_SINCE,
    PROXY_AUTHORIZATION,
    RANGE,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The checked options, which all routes share.
pub(super) struct Settings {
    headers: HeaderMap,
    user: Option<(String, String)>,
    netrc: Netrc,
    pub(super) tokens: Tokens,
    pub(super) proxies: Proxies,
    pub(super) resolver: Resolver,
    pub(super) limits: Limits,
    pub(super) clock: Clock,
    pub(super) agent: String,
    pub(super) keep_fields: &'static [&'static str],
    insecure: bool,
    pub(super) connect_timeout: Duration,
    pub(super) idle_timeout: Duration,
    tls: OwnTls,
}

/// The TLS configuration of a client.
struct OwnTls {
    roots: Vec<CertificateDer<'static>>,
    /// It is made for the first `https` URL of all clients of an engine, because reading the system's
    /// certificates takes a while.
    config: OnceLock<Result<Arc<ClientConfig>, String>>,
    all: Arc<TlsConfigs>,
}

impl Settings {
    pub(super) fn new(options: Options, tls_configs: Arc<TlsConfigs>) -> Result<Self, StartError> {
        let mut headers = HeaderMap::new();
        for (name, value) in &options.headers {
            let (Ok(field), Ok(value)) =
                (HeaderName::from_bytes(name.trim().as_bytes()), HeaderValue::from_str(value.trim()))
            else {
                return Err(StartError(format!("{name:?} with its value is no header field")));
            };
            if RESERVED_FIELDS.contains(&field) {
                return Err(StartError(format!("the header field {field} cannot be set")));
            }
            headers.append(field, value);
        }
        if HeaderValue::from_str(&options.user_agent).is_err() {
            return Err(StartError("the user agent has characters a header field cannot have".to_owned()));
        }
        let netrc = match &options.netrc {
            None => Netrc::default(),
            Some(path) => {
                let mut bytes = Vec::new();
                File::open(path)
                    .and_then(|file| file.take(NETRC_BYTES_MAX).read_to_end(&mut bytes))
                    .map_err(|e| StartError(format!("{}: {e}", path.display())))?;
                Netrc::parse(&String::from_utf8_lossy(&bytes))
            }
        };
        let roots = match &options.ca_file {
            None => Vec::new(),
            Some(path) => {
                tls::certificates(path).map_err(|e| StartError(format!("{}: {e}", path.display())))?
            }
        };
        Ok(Self {
            headers,
            user: options.user,
            netrc,
            tokens: Tokens::default(),
            proxies: Proxies::new(options.proxy.as_deref(), options.proxy_from_env).map_err(StartError)?,
            resolver: options.resolver,
            limits: options.limits,
            clock: options.clock,
            agent: options.user_agent,
            keep_fields: options.keep_fields,
            insecure: options.insecure,
            connect_timeout: options.connect_timeout,
            idle_timeout: options.idle_timeout,
            tls: OwnTls { roots, config: OnceLock::new(), all: tls_configs },
        })
    }

    pub(super) fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        self.tls.config.get_or_init(|| self.tls.all.get(&self.tls.roots, self.insecure)).clone()
    }

    /// Whether a request to `url` carries credentials, as [`headers`](Self::headers) sets them.
    pub(super) fn credentials(&self, asked: &Url, trusted: bool, url: &Url) -> CredentialStatus {
        let sent = self.headers(asked, trusted, url);
        let has_secrets = || {
            let of_netrc = self.netrc.get(&Origin::of(url).host, None, true);
            self.user.is_some() || !self.headers.is_empty() || of_netrc.is_some()
        };
        match [AUTHORIZATION, COOKIE].iter().any(|name| sent.contains_key(name)) {
            true => CredentialStatus::Sent,
            false if !is_named(asked, trusted, url) && has_secrets() => CredentialStatus::Withheld,
            false => CredentialStatus::None,
        }
    }

    /// Whether the caller's own fields for a request to `url` have `Authorization`.
    pub(super) fn has_authorization(&self, asked: &Url, trusted: bool, url: &Url) -> bool {
        self.headers(asked, trusted, url).contains_key(AUTHORIZATION)
    }

    /// Returns the caller's header fields for a request to `url`, in a fetch that began at `asked`. They go
    /// only to the origin of `asked`, and only if it is `trusted`. Any of them may be a secret, and the
    /// client cannot tell which.
    pub(super) fn headers(&self, asked: &Url, trusted: bool, url: &Url) -> HeaderMap {
        let is_named = is_named(asked, trusted, url);
        let mut headers = if is_named { self.headers.clone() } else { HeaderMap::new() };
        let is_same = asked.origin() == url.origin();
        // An entry names its machine, and `default` applies to any machine that the caller names. If no
        // certificate proves that the server is that machine, the caller must have named its origin.
        let has_netrc = is_named || (url.scheme() == "https" && !self.insecure);
        let of_netrc = |login: Option<&str>| {
            self.netrc.get(&Origin::of(url).host, login, is_named).filter(|_| has_netrc)
        };
        let user = match (credentials(asked), &self.user) {
            // A name without a password selects the entry.
            (Some((name, password)), _) if is_same && asked.password().is_none() => {
                of_netrc(Some(&name)).or(Some((name, password)))
            }
            (Some(user), _) if is_same => Some(user),
            (_, Some(user)) if is_named => Some(user.clone()),
            _ => of_netrc(None),
        };
        if let Some((name, password)) = user
            && !headers.contains_key(AUTHORIZATION)
            && let Ok(mut value) = HeaderValue::from_str(&basic(&name, &password))
        {
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        headers
    }
}

/// Whether the caller named the origin of `url`, to which a fetch of `asked` has led.
fn is_named(asked: &Url, trusted: bool, url: &Url) -> bool {
    trusted && asked.origin() == url.origin()
}
