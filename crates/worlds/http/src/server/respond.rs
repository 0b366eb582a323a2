//! Makes the response to a request (RFC 9110).

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use hyper::header::{
    ACCEPT, ACCEPT_RANGES, ALLOW, AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, ETAG, HOST, HeaderName, HeaderValue, LINK, LOCATION, RANGE, RETRY_AFTER, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::uri::Authority;
use hyper::{Method, Request, Response, StatusCode, Version};

use super::body::Body;
use super::connections::Progress;
use super::document::LIST_TYPE;
use super::path::Path;
use super::preconditions::{self, Precondition};
use super::provider::{ContentProvider, PathLookup, Refusal, Resource, ResourceRequest, Unavailable};
use super::range::{self, RangeRequest};
use super::shared::Shared;

/// Methods of RFC 9110 §9 and RFC 5789 that get 405; unknown methods get 501.
const REFUSED: &[Method] = &[
    Method::POST,
    Method::PUT,
    Method::DELETE,
    Method::CONNECT,
    Method::OPTIONS,
    Method::TRACE,
    Method::PATCH,
];
const ALLOWED: &str = "GET, HEAD";
/// The seconds in `Retry-After`.
const RETRY_S: u64 = 2;

/// Returns the response to a client when there are too many connections.
pub(super) fn full<S: ContentProvider>() -> Response<Body<S>> {
    let mut response = plain(StatusCode::SERVICE_UNAVAILABLE, "too many connections", false);
    set(&mut response, RETRY_AFTER, &RETRY_S.to_string());
    response
}

/// Makes the response to a request.
pub(super) async fn respond<S: ContentProvider, B>(
    shared: &Arc<Shared<S>>,
    progress: &Rc<Progress>,
    local: SocketAddr,
    request: &Request<B>,
) -> Response<Body<S>> {
    shared.metrics.requests.fetch_add(1, Ordering::Relaxed);
    let head = request.method() == Method::HEAD;
    if !head && request.method() != Method::GET {
        let known = REFUSED.contains(request.method());
        let status = if known { StatusCode::METHOD_NOT_ALLOWED } else { StatusCode::NOT_IMPLEMENTED };
        let mut response = plain(status, "only GET and HEAD", false);
        set(&mut response, ALLOW, ALLOWED);
        return response;
    }
    let Some(host) = host(request, local) else {
        return plain(StatusCode::BAD_REQUEST, "the request must have one Host", head);
    };
    let Some(path) = Path::parse(request.uri().path()) else {
        return plain(StatusCode::NOT_FOUND, "no file has such a name", head);
    };
    let query = request.uri().query().map(str::to_owned);
    let (authorization, accept) = (authorization(request), accept(request));
    let found = shared.ask(move |provider| {
        let (query, authorization) = (query.as_deref(), authorization.as_deref());
        let wanted =
            ResourceRequest { path: &path, query, host: &host, authorization, accept: &accept, local };
        let found = provider.find(&wanted);
        let checked = match &found {
            PathLookup::Found(resource) => provider.check(&resource.content),
            PathLookup::Moved(_) | PathLookup::NotFound(_) | PathLookup::Refused(..) => Ok(()),
        };
        (found, checked)
    });
    progress.set_waits(true);
    let (found, checked) = found.await;
    progress.set_waits(false);
    match found {
        PathLookup::NotFound(why) => plain(StatusCode::NOT_FOUND, &why, head),
        PathLookup::Refused(refusal, why) => refused(refusal, &why, head),
        PathLookup::Moved(to) => {
            let mut response = plain(StatusCode::MOVED_PERMANENTLY, &to, head);
            set(&mut response, LOCATION, &to);
            response
        }
        PathLookup::Found(resource) => match checked {
            Ok(()) => here(shared, progress, request, resource),
            Err(why) => unavailable(shared, why, head),
        },
    }
}

/// Returns the value of `Authorization`, if there is exactly one and it is text.
fn authorization<B>(request: &Request<B>) -> Option<String> {
    let mut fields = request.headers().get_all(AUTHORIZATION).iter();
    match (fields.next(), fields.next()) {
        (Some(one), None) => one.to_str().ok().map(str::to_owned),
        _ => None,
    }
}

/// Returns all values of `Accept`.
fn accept<B>(request: &Request<B>) -> String {
    let values = request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values.collect::<Vec<_>>().join(", ")
}

/// Returns the response to a client that may not have the resource.
fn refused<S: ContentProvider>(refusal: Refusal, why: &str, head: bool) -> Response<Body<S>> {
    let status = match refusal {
        Refusal::Unauthorized => StatusCode::UNAUTHORIZED,
        Refusal::Forbidden => StatusCode::FORBIDDEN,
        Refusal::Misdirected => StatusCode::MISDIRECTED_REQUEST,
        Refusal::BadGateway => StatusCode::BAD_GATEWAY,
        Refusal::Busy => StatusCode::SERVICE_UNAVAILABLE,
        Refusal::InsufficientStorage => StatusCode::INSUFFICIENT_STORAGE,
    };
    let mut response = plain(status, why, head);
    if refusal == Refusal::Unauthorized {
        set(&mut response, WWW_AUTHENTICATE, "Bearer");
    }
    if refusal == Refusal::Busy {
        set(&mut response, RETRY_AFTER, &RETRY_S.to_string());
    }
    response
}

/// Returns the response for a resource that was found and cannot be read.
fn unavailable<S: ContentProvider>(shared: &Shared<S>, why: Unavailable, head: bool) -> Response<Body<S>> {
    shared.metrics.unavailable.fetch_add(1, Ordering::Relaxed);
    let status = match why {
        Unavailable::Gone => StatusCode::GONE,
        Unavailable::Busy => StatusCode::SERVICE_UNAVAILABLE,
    };
    let mut response = plain(status, &why.to_string(), head);
    if why == Unavailable::Busy {
        set(&mut response, RETRY_AFTER, &RETRY_S.to_string());
    }
    response
}

/// Returns the server's name in the request. Returns `None` if it is missing or invalid (RFC 9112 §3.2). A
/// client of HTTP/1.0 may leave it out; then returns the local address.
fn host<B>(request: &Request<B>, local: SocketAddr) -> Option<String> {
    let sound = |authority: &Authority| !authority.as_str().contains('@');
    let mut fields = request.headers().get_all(HOST).iter();
    let field = match (fields.next(), fields.next()) {
        (Some(one), None) => Some(one),
        (None, _) if request.version() < Version::HTTP_11 => None,
        _ => return None,
    };
    if let Some(authority) = request.uri().authority().filter(|authority| sound(authority)) {
        return Some(authority.to_string());
    }
    match field.map(HeaderValue::as_bytes) {
        None | Some(b"") => Some(local.to_string()),
        Some(bytes) => Authority::try_from(bytes).ok().filter(sound).map(|authority| authority.to_string()),
    }
}

fn here<S: ContentProvider, B>(
    shared: &Arc<Shared<S>>,
    progress: &Rc<Progress>,
    request: &Request<B>,
    resource: Resource<S::Content>,
) -> Response<Body<S>> {
    let (head, headers) = (request.method() == Method::HEAD, request.headers());
    let Resource { content, length, etag, media_type, links, fields: further } = resource;
    let precondition = preconditions::evaluate(headers, etag.as_deref());
    if precondition == Precondition::Failed {
        return plain(StatusCode::PRECONDITION_FAILED, "it is not what was asked for", head);
    }
    // Only GET has ranges (§14.2). Two fields get the whole content, as two ranges do.
    let mut fields = headers.get_all(RANGE).iter();
    let wanted = match (fields.next(), fields.next()) {
        (Some(value), None) if !head && preconditions::if_range_holds(headers, etag.as_deref()) => {
            range::requested(value.as_bytes(), length)
        }
        _ => RangeRequest::Whole,
    };
    let mut response = match (precondition, wanted) {
        (Precondition::NotModified, _) => {
            let mut response = Response::new(Body::Full(Bytes::new()));
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        }
        (_, RangeRequest::Unsatisfiable) => {
            let mut response = plain(StatusCode::RANGE_NOT_SATISFIABLE, "there are no such bytes", head);
            set(&mut response, CONTENT_RANGE, &format!("bytes */{length}"));
            response
        }
        (_, wanted) => {
            let (range, part) = match wanted {
                RangeRequest::Part(range) => (range, true),
                _ => (0..length, false),
            };
            let bytes = range.end - range.start;
            let content_range = format!("bytes {}-{}/{length}", range.start, range.end.saturating_sub(1));
            let mut response = Response::new(match head {
                true => Body::Full(Bytes::new()),
                false => Body::range(shared, progress, content, range),
            });
            if part {
                *response.status_mut() = StatusCode::PARTIAL_CONTENT;
                set(&mut response, CONTENT_RANGE, &content_range);
            }
            set(&mut response, CONTENT_LENGTH, &bytes.to_string());
            set(&mut response, CONTENT_TYPE, &media_type);
            // Browsers must not guess another type, or they might show a file as a page.
            set(&mut response, X_CONTENT_TYPE_OPTIONS, "nosniff");
            if media_type == LIST_TYPE {
                set(&mut response, CONTENT_SECURITY_POLICY, "default-src 'none'");
            }
            for (name, value) in further {
                if let Ok(name) = HeaderName::try_from(name) {
                    set(&mut response, name, &value);
                }
            }
            for link in &links {
                if let Ok(value) = HeaderValue::from_str(link) {
                    response.headers_mut().append(LINK, value);
                }
            }
            response
        }
    };
    set(&mut response, ACCEPT_RANGES, "bytes");
    if let Some(etag) = &etag {
        set(&mut response, ETAG, etag);
    }
    response
}

/// Returns a response with a short text.
fn plain<S: ContentProvider>(status: StatusCode, words: &str, head: bool) -> Response<Body<S>> {
    let text = format!("{status}: {words}\n");
    let len = text.len();
    let mut response = Response::new(Body::Full(if head { Bytes::new() } else { text.into() }));
    *response.status_mut() = status;
    set(&mut response, CONTENT_LENGTH, &len.to_string());
    set(&mut response, CONTENT_TYPE, "text/plain; charset=utf-8");
    set(&mut response, X_CONTENT_TYPE_OPTIONS, "nosniff");
    response
}

/// Sets a field, unless the value is invalid because of a control character.
fn set<S: ContentProvider>(response: &mut Response<Body<S>>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
