//! Decides what a request is answered with (RFC 9110).

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::SystemTime;

use anabranch_http::server::path::Path;
use anabranch_http::server::preconditions::{self, Precondition};
use anabranch_http::server::range::{self, RangeRequest};
use anabranch_http::server::{PathLookup, ResourceRequest};
use anabranch_net::prometheus::MEDIA_TYPE;
use http::header::{HOST, RANGE};

use super::count::Count;
use super::fill::FillError;
use super::request::{Method, Request};
use super::site::{Held, Site};
use super::status;
use crate::name::Name;
use crate::proof::ProofError;

/// The bytes of a body that are proven and sent at a turn.
pub(super) const TURN_BYTES: u64 = 256 << 10;
/// The field of an object, which never changes.
const FOR_EVER: &str = "cache-control: public, max-age=31536000, immutable\r\n";

/// What a connection does next.
pub(super) enum Answer {
    /// It sends a head or a whole short answer, and then a body.
    Send(Vec<u8>, Option<Box<Body>>),
    /// It waits until the object is fetched, and answers the same request then.
    Wait(Name),
}

/// The part of an object that is sent.
pub(super) struct Body {
    pub(super) held: Held,
    pub(super) next: u64,
    pub(super) end: u64,
}

/// What a path stands for.
enum Target {
    Object(Name),
    Status,
    Metrics,
    /// The path by which clients of registries ask whether there is one.
    Registry,
    Nothing,
}

/// Returns what a path stands for: `/NAME`, and `/v2/…/blobs/NAME` or `/v2/…/manifests/NAME`, as clients of
/// registries ask (OCI Distribution Specification 1.1).
fn target(path: &Path) -> Target {
    let names: Option<Vec<&str>> = path.names.iter().map(|name| str::from_utf8(name).ok()).collect();
    match (names.as_deref(), path.directory) {
        (Some(["v2"]), _) => Target::Registry,
        (Some(["status"]), false) => Target::Status,
        (Some(["metrics"]), false) => Target::Metrics,
        (Some([name] | ["v2", _, .., "blobs" | "manifests", name]), false) => {
            Name::parse(name).map_or(Target::Nothing, Target::Object)
        }
        _ => Target::Nothing,
    }
}

/// Answers a request. `fetched` is how fetching the object ended that it waited for.
pub(super) fn answer(
    site: &Site,
    request: &Request,
    local: SocketAddr,
    fetched: Option<Result<(), FillError>>,
    buffer: &mut Vec<u8>,
) -> Answer {
    if request.method == Method::Other {
        return text(request, "405 Method Not Allowed", "only GET and HEAD", "allow: GET, HEAD\r\n");
    }
    let Some(path) = Path::parse(&request.path) else {
        return text(request, "404 Not Found", "no object has such a name", "");
    };
    let name = match target(&path) {
        Target::Object(name) => name,
        Target::Status | Target::Metrics => return numbers(site, request, &path, local),
        Target::Registry => return whole(request, "200 OK", "application/json", "", b"{}\n"),
        Target::Nothing => {
            let why = "a path is /NAME, with NAME as sha256:HEX, sha512:HEX, sha512-256:HEX or b3:BASE32";
            return text(request, "404 Not Found", why, "");
        }
    };
    match (site.hold(&name), fetched) {
        (Some(held), fetched) => match object(site, request, held, buffer) {
            Ok(answer) => answer,
            Err(failed) => {
                let (held, error) = *failed;
                // It is fetched anew, but once only: the disk may be beyond help.
                match fetched.is_none() && site.give_up(held) {
                    true => Answer::Wait(name),
                    false => {
                        text(request, "500 Internal Server Error", &format!("in the image, {error}"), "")
                    }
                }
            }
        },
        (None, None) => {
            site.counters.count(Count::Misses);
            match &site.filler {
                Some(_) => Answer::Wait(name),
                None => text(request, "404 Not Found", "this image does not have it", ""),
            }
        }
        (None, Some(Ok(()))) => busy(request, "it was pushed out before it could be sent: ask again"),
        (None, Some(Err(error))) => failed(request, &error),
    }
}

/// Answers with the reason why an object is not there.
pub(super) fn failed(request: &Request, error: &FillError) -> Answer {
    match error {
        FillError::NotFound(why) => text(request, "404 Not Found", why, ""),
        FillError::Origin(why) => text(request, "502 Bad Gateway", why, ""),
        FillError::Busy(why) => busy(request, why),
        FillError::Image(why) => text(request, "507 Insufficient Storage", why, ""),
    }
}

fn busy(request: &Request, why: &str) -> Answer {
    text(request, "503 Service Unavailable", why, "retry-after: 2\r\n")
}

/// Answers with an object, or a part of one.
///
/// # Errors
/// If the first bytes cannot be sent.
fn object(
    site: &Site,
    request: &Request,
    held: Held,
    buffer: &mut Vec<u8>,
) -> Result<Answer, Box<(Held, ProofError)>> {
    let (length, fields) = (held.entry.id.length, &request.fields);
    let etag = format!("\"{}\"", held.entry.digest);
    let mut about = format!("etag: {etag}\r\naccept-ranges: bytes\r\n{FOR_EVER}");
    let precondition = preconditions::evaluate(fields, Some(&etag));
    if precondition == Precondition::Failed {
        return Ok(text(request, "412 Precondition Failed", "it is not what was asked for", &about));
    }
    if precondition == Precondition::NotModified {
        return Ok(Answer::Send(head("304 Not Modified", request.keeps, &about), None));
    }
    // Two fields get the whole content, as two ranges do.
    let mut ranges = fields.get_all(RANGE).iter();
    let wanted = match (ranges.next(), ranges.next()) {
        (Some(value), None)
            if request.method == Method::Get && preconditions::if_range_holds(fields, Some(&etag)) =>
        {
            range::requested(value.as_bytes(), length)
        }
        _ => RangeRequest::Whole,
    };
    let (part, status) = match wanted {
        RangeRequest::Unsatisfiable => {
            let _ = write!(about, "content-range: bytes */{length}\r\n");
            return Ok(text(request, "416 Range Not Satisfiable", "there are no such bytes", &about));
        }
        RangeRequest::Part(part) => {
            let _ = write!(about, "content-range: bytes {}-{}/{length}\r\n", part.start, part.end - 1);
            (part, "206 Partial Content")
        }
        RangeRequest::Whole => (0..length, "200 OK"),
    };
    if request.method == Method::Get {
        let first = part.start..part.end.min(part.start + TURN_BYTES);
        if let Err(error) = site.prove(&held, first, buffer) {
            return Err(Box::new((held, error)));
        }
        site.counters.count(Count::Hits);
        site.image().table().count_hit(held.slot, site.now_s());
    }
    let media_type = match held.entry.media_type.as_str() {
        "" => "application/octet-stream",
        media_type => media_type,
    };
    let _ = write!(
        about,
        "content-length: {}\r\ncontent-type: {media_type}\r\nx-content-type-options: nosniff\r\n",
        part.end - part.start
    );
    let is_get = request.method == Method::Get;
    let body = is_get.then(|| Box::new(Body { held, next: part.start, end: part.end }));
    Ok(Answer::Send(head(status, request.keeps, &about), body))
}

/// Answers with the numbers of the cache.
fn numbers(site: &Site, request: &Request, path: &Path, local: SocketAddr) -> Answer {
    let host = request.fields.get(HOST).and_then(|host| host.to_str().ok()).map(str::to_owned);
    let host = host.unwrap_or_else(|| local.to_string());
    let query = request.query.as_deref();
    let asked = ResourceRequest { path, query, host: &host, authorization: None, accept: "", local };
    if let Err(PathLookup::Refused(_, why)) = asked.must_be_own::<()>() {
        return text(request, "421 Misdirected Request", &why, "");
    }
    let no_store = "cache-control: no-store\r\n";
    match path.names.first().map(Vec::as_slice) {
        Some(b"metrics") => {
            whole(request, "200 OK", MEDIA_TYPE, no_store, status::prometheus(site).as_bytes())
        }
        _ => whole(request, "200 OK", "application/json", no_store, status::json(site).as_bytes()),
    }
}

/// Returns an answer that is a sentence.
fn text(request: &Request, status: &str, why: &str, fields: &str) -> Answer {
    whole(request, status, "text/plain; charset=utf-8", fields, format!("{status}: {why}\n").as_bytes())
}

fn whole(request: &Request, status: &str, media_type: &str, fields: &str, body: &[u8]) -> Answer {
    let fields = format!(
        "{fields}content-length: {}\r\ncontent-type: {media_type}\r\nx-content-type-options: nosniff\r\n",
        body.len()
    );
    let mut bytes = head(status, request.keeps, &fields);
    if request.method != Method::Head {
        bytes.extend_from_slice(body);
    }
    Answer::Send(bytes, None)
}

/// Returns the answer to what is no request; the connection ends after it.
pub(super) fn bad(status: u16, why: &str) -> Vec<u8> {
    let status = match status {
        431 => "431 Request Header Fields Too Large",
        503 => "503 Service Unavailable",
        _ => "400 Bad Request",
    };
    let body = format!("{status}: {why}\n");
    let fields = format!("content-length: {}\r\ncontent-type: text/plain; charset=utf-8\r\n", body.len());
    let mut bytes = head(status, false, &fields);
    bytes.extend_from_slice(body.as_bytes());
    bytes
}

#[expect(clippy::disallowed_methods, reason = "an answer has the date (RFC 9110, section 6.6.1)")]
fn head(status: &str, keeps: bool, fields: &str) -> Vec<u8> {
    let date = httpdate::fmt_http_date(SystemTime::now());
    let close = if keeps { "" } else { "connection: close\r\n" };
    format!("HTTP/1.1 {status}\r\ndate: {date}\r\n{close}{fields}\r\n").into_bytes()
}
