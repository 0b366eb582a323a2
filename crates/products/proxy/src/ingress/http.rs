//! Reads the heads of requests to a proxy: RFC 9110 sections 7.6 and 9.3.6, RFC 9112 sections 3.2 and 6.

use std::io::Write as _;

use data_encoding::BASE64;
use httparse::Header;

use super::connect_udp;
use super::fields::{AMBIGUOUS, Refusal, framing, members, values};
use super::{Association, Body, Form, Progress, Request, Users};
use crate::trunk::{Destination, Reason};

/// The most bytes of a head.
const HEAD_BYTES_MAX: usize = 65_536;
const FIELDS_MAX: usize = 128;

/// The fields that concern one connection (RFC 9110 section 7.6.1) or the proxy. `Transfer-Encoding` is not
/// among them, because the body is passed on unchanged.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "upgrade",
];
/// The fields that `Connection` cannot remove. Without them, a request's end or its host would be unknown.
const KEPT: &[&str] = &["content-length", "host", "transfer-encoding"];

const MALFORMED: Refusal = ("400 Bad Request", "This is no request to a proxy.");
const TOO_LONG: Refusal = ("431 Request Header Fields Too Large", "The head of the request is too long.");
const ORIGIN_FORM: Refusal =
    ("400 Bad Request", "This is a proxy: tell your program so, instead of opening its address.");
const NOT_HTTP: Refusal =
    ("501 Not Implemented", "This proxy fetches http URLs only. Use CONNECT for others.");
const NO_TRACE: Refusal = ("501 Not Implemented", "This proxy takes no TRACE.");
const WHO: Refusal = (
    "407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"anabranch\", charset=\"UTF-8\"",
    "This proxy wants a name and a password.",
);

fn answer((status, line): Refusal) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{line}\n",
        line.len() + 1
    )
    .into_bytes()
}

/// Returns the answer to a request whose destination cannot be reached.
pub(super) fn failed(reason: Reason) -> Vec<u8> {
    answer(match reason {
        Reason::Denied => ("403 Forbidden", "The proxy's policy does not allow this destination."),
        Reason::NetworkUnreachable => ("502 Bad Gateway", "The destination's network is unreachable."),
        Reason::HostUnreachable => ("504 Gateway Timeout", "The destination does not answer."),
        Reason::Refused => ("502 Bad Gateway", "The destination refuses the connection."),
        Reason::Name => ("502 Bad Gateway", "The destination's name has no address."),
        Reason::NoInterest => ("502 Bad Gateway", "The destination has ended the connection."),
        Reason::Busy => ("503 Service Unavailable", "The proxy has too many connections."),
        Reason::TrunkGone => ("503 Service Unavailable", "The connection to the proxy's server is down."),
    })
}

/// The head of a request while it arrives.
#[derive(Debug, Default)]
pub(super) struct Head {
    bytes: Vec<u8>,
    /// The number of bytes that were already searched for the end.
    searched: usize,
}

impl Head {
    pub(super) fn handle(&mut self, bytes: &[u8], users: &Users, out: &mut Vec<u8>) -> Progress {
        // Empty lines before a request belong to the request before (RFC 9112 section 2.2).
        let skipped = match self.bytes.is_empty() {
            true => bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count(),
            false => 0,
        };
        self.bytes.extend_from_slice(&bytes[skipped..]);
        let refusal = match (self.bytes.first().copied(), self.end()) {
            // TLS or SOCKS may never send the end of a line.
            (Some(byte), _) if !byte.is_ascii_alphabetic() => MALFORMED,
            (_, Some(end)) if end > HEAD_BYTES_MAX => TOO_LONG,
            (_, None) if self.bytes.len() > HEAD_BYTES_MAX => TOO_LONG,
            (_, None) => return Progress::More,
            (_, Some(end)) => match request(&self.bytes[..end], users) {
                Ok(Wanted::Connection(mut request)) => {
                    let rest = &self.bytes[end..];
                    match request.body.take(rest) {
                        Ok(taken) => {
                            request.first.extend_from_slice(&rest[..taken]);
                            return Progress::Wanted(Box::new(request));
                        }
                        Err(_) => AMBIGUOUS,
                    }
                }
                Ok(Wanted::Datagrams(mut association)) => {
                    association.first.extend_from_slice(&self.bytes[end..]);
                    return Progress::Associate(Box::new(association));
                }
                Err(refusal) => refusal,
            },
        };
        out.extend_from_slice(&answer(refusal));
        Progress::Refused
    }

    /// Returns the length of the head if it is complete, which is up to an empty line.
    fn end(&mut self) -> Option<usize> {
        // The line feed of the line before may have been the last byte but one.
        let from = self.searched.saturating_sub(2);
        self.searched = self.bytes.len();
        let mut feeds = (from..self.bytes.len()).filter(|at| self.bytes[*at] == b'\n');
        feeds.find_map(|at| match &self.bytes[at + 1..] {
            [b'\n', ..] => Some(at + 2),
            [b'\r', b'\n', ..] => Some(at + 3),
            _ => None,
        })
    }
}

/// The request that a head makes.
enum Wanted {
    Connection(Request),
    Datagrams(Association),
}

/// Reads the request of a complete head, without the bytes after the head.
fn request(bytes: &[u8], users: &Users) -> Result<Wanted, Refusal> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Request::new(&mut fields);
    match head.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
        Err(httparse::Error::TooManyHeaders) => return Err(TOO_LONG),
        _ => return Err(MALFORMED),
    }
    let (method, target) = (head.method.ok_or(MALFORMED)?, head.path.ok_or(MALFORMED)?);
    let version = head.version.ok_or(MALFORMED)?;
    let fields: &[Header<'_>] = head.headers;
    let user = values(fields, "proxy-authorization").find_map(|value| known(value, users));
    if !users.is_open() && user.is_none() {
        return Err(WHO);
    }
    if method == "CONNECT" {
        let destination = target.parse().map_err(|_| MALFORMED)?;
        let (first, body) = (Vec::new(), Body::Endless);
        return Ok(Wanted::Connection(Request { destination, first, body, user, form: Form::Tunnel }));
    }
    if connect_udp::is_wanted(version, fields) {
        let to = Some(connect_udp::target(method, target, version, fields)?);
        return Ok(Wanted::Datagrams(Association { to, user, ..Association::default() }));
    }
    if method == "TRACE" {
        return Err(NO_TRACE);
    }
    let (host, path) = absolute(target)?;
    let destination = authority(host).ok_or(MALFORMED)?;
    let body = framing(fields, version)?;
    let path = match path {
        // RFC 9112 section 3.2.4 says `*`.
        "" if method == "OPTIONS" => "*".to_owned(),
        path if path.starts_with('/') => path.to_owned(),
        path => format!("/{path}"),
    };
    let first = rewrite(method, &path, version, host, fields);
    Ok(Wanted::Connection(Request { destination, first, body, user, form: Form::Plain }))
}

/// Returns the user whose credentials these are, if there is one (RFC 7617 section 2).
fn known(value: &[u8], users: &Users) -> Option<String> {
    let (scheme, credentials) = value.split_at_checked(6)?;
    let pair = BASE64.decode(credentials.trim_ascii()).ok()?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    let is_known = scheme.eq_ignore_ascii_case(b"basic ") && users.admits(&pair[..colon], &pair[colon + 1..]);
    users.named(&pair[..colon]).filter(|_| is_known)
}

/// Splits a target in absolute form into authority and path.
fn absolute(target: &str) -> Result<(&str, &str), Refusal> {
    let Some((scheme, rest)) = target.split_once("://") else {
        return Err(if target.starts_with(['/', '*']) { ORIGIN_FORM } else { MALFORMED });
    };
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(NOT_HTTP);
    }
    // A fragment is never sent (RFC 9112 section 3.2.2), and some origins would take it for a part of the
    // path.
    let rest = rest.split('#').next().unwrap_or_default();
    Ok(rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len())))
}

/// Parses the authority of an http URL, whose port may be missing or empty (RFC 3986 section 3.2.3). An
/// authority with a name and a password is malformed (RFC 9110 section 4.2.4).
fn authority(text: &str) -> Option<Destination> {
    text.parse().or_else(|_| format!("{}:80", text.strip_suffix(':').unwrap_or(text)).parse()).ok()
}

/// Writes the head for the origin. It has the program's own version, because the origin's answer goes to the
/// program unchanged.
fn rewrite(method: &str, path: &str, version: u8, host: &str, fields: &[Header<'_>]) -> Vec<u8> {
    let named: Vec<&[u8]> = members(fields, "connection").collect();
    let stays = |name: &str| {
        let is = |other: &&str| name.eq_ignore_ascii_case(other);
        let is_named = named.iter().any(|other| name.as_bytes().eq_ignore_ascii_case(other));
        let is_of_this_hop = HOP_BY_HOP.iter().any(is) || is_named && !KEPT.iter().any(is);
        !is_of_this_hop && !is(&"host")
    };
    let mut head = format!("{method} {path} HTTP/1.{version}\r\nHost: {host}\r\n").into_bytes();
    for field in fields.iter().filter(|field| stays(field.name)) {
        head.extend_from_slice(field.name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(field.value);
        head.extend_from_slice(b"\r\n");
    }
    // Writing to a `Vec` cannot fail.
    let _ = write!(head, "Via: 1.{version} anabranch\r\nConnection: close\r\n\r\n");
    head
}
