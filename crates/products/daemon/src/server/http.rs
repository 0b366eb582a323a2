//! Requests and answers of HTTP.

use std::sync::Arc;

use data_encoding::BASE64;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName,
    HeaderValue,
};
use hyper::{Method, Request, StatusCode};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;

use super::answer::{Answer, empty, with};
use super::{REQUEST_BYTES_MAX, Shared, websocket};

/// The path of the methods.
const PATH: &str = "/jsonrpc";
/// The media type of answers, as aria2 has it.
const JSON: &str = "application/json-rpc";
const SCRIPT: &str = "text/javascript";

/// The files of the page: path, media type and content.
const PAGE: &[(&str, &str, &str)] = &[
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/style.css", "text/css; charset=utf-8", include_str!("page/style.css")),
    ("/script.js", "text/javascript; charset=utf-8", include_str!("page/script.js")),
];
/// What a browser may do with the page: load nothing from other hosts, and show it in no frame.
const PAGE_FIELDS: &[(&str, &str)] = &[
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    ("referrer-policy", "no-referrer"),
    ("x-content-type-options", "nosniff"),
];

/// Answers a request. A WebSocket keeps `place`, the connection's place among the most that may be open.
pub(super) async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
    place: Arc<OwnedSemaphorePermit>,
) -> Answer {
    let allows_all_origins = shared.allows_all_origins;
    let mut answer = route(shared, request, place).await;
    let headers = answer.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if allows_all_origins {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    }
    answer
}

async fn route(shared: Arc<Shared>, request: Request<Incoming>, place: Arc<OwnedSemaphorePermit>) -> Answer {
    let path = request.uri().path().to_owned();
    match (request.method(), path.as_str()) {
        (&Method::GET, path) if path != PATH => page(path),
        (_, path) if path != PATH => empty(StatusCode::NOT_FOUND),
        (&Method::GET, _) if websocket::is_wanted(&request) => websocket::answer(shared, request, place),
        (&Method::GET, _) => get(&shared, request.uri().query().unwrap_or_default()).await,
        (&Method::POST, _) => post(&shared, request).await,
        (&Method::OPTIONS, _) => preflight(&shared, &request),
        _ => with(empty(StatusCode::METHOD_NOT_ALLOWED), ALLOW, "GET, POST, OPTIONS"),
    }
}

/// Answers with a file of the page. It has no secret: the browser has the token behind `#`.
fn page(path: &str) -> Answer {
    let Some((_, media_type, content)) = PAGE.iter().find(|(known, ..)| *known == path) else {
        return empty(StatusCode::NOT_FOUND);
    };
    let answer = text(200, media_type, (*content).to_owned());
    PAGE_FIELDS
        .iter()
        .fold(answer, |answer, (name, value)| with(answer, HeaderName::from_static(name), value))
}

async fn post(shared: &Shared, request: Request<Incoming>) -> Answer {
    let Ok(body) = Limited::new(request.into_body(), REQUEST_BYTES_MAX).collect().await else {
        return empty(StatusCode::PAYLOAD_TOO_LARGE);
    };
    let reply = shared.answer(&body.to_bytes()).await;
    text(reply.http_status, JSON, reply.text)
}

/// Answers a call in a query. `params` is base64 of a list, or of a whole batch if no method is named.
async fn get(shared: &Shared, query: &str) -> Answer {
    let (call, callback) = read_query(query);
    let reply = shared.answer(&call).await;
    match callback {
        // A script with another status would not run.
        Some(callback) => text(200, SCRIPT, format!("{callback}({})", reply.text)),
        None => text(reply.http_status, JSON, reply.text),
    }
}

/// Returns the text of the call in a query, and the name of the function that JSONP wants.
fn read_query(query: &str) -> (Vec<u8>, Option<String>) {
    let given = |wanted: &str| {
        query.split('&').find_map(|pair| {
            let (name, value) = pair.split_once('=')?;
            let value = value.replace('+', "%2B");
            (name == wanted).then(|| percent_decode_str(&value).decode_utf8_lossy().into_owned())
        })
    };
    let is_name = |name: &String| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '.');
        !name.is_empty() && name.len() <= 100 && name.chars().all(is_part)
    };
    let callback = given("jsoncallback").filter(is_name);
    let params = given("params").and_then(|params| BASE64.decode(params.as_bytes()).ok());
    let Some(method) = given("method") else {
        return (params.unwrap_or_else(|| b"{}".to_vec()), callback);
    };
    let mut call = json!({"jsonrpc": "2.0", "method": method});
    if let Some(id) = given("id") {
        call["id"] = json!(id);
    }
    if let Some(params) = params {
        // What is no JSON is no list either, which is reported.
        call["params"] = serde_json::from_slice(&params).unwrap_or(Value::Null);
    }
    (call.to_string().into_bytes(), callback)
}

/// Answers the question of a browser whether a page may send a request.
fn preflight(shared: &Shared, request: &Request<Incoming>) -> Answer {
    let mut answer = empty(StatusCode::OK);
    if shared.allows_all_origins {
        let headers = answer.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("POST, GET, OPTIONS"));
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("1728000"));
        if let Some(wanted) = request.headers().get(ACCESS_CONTROL_REQUEST_HEADERS) {
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
        }
    }
    answer
}

fn text(status: u16, media_type: &'static str, text: String) -> Answer {
    let mut answer = Answer::new(text.into());
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    with(answer, CONTENT_TYPE, media_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_a_call() {
        let read = |query: &str| {
            let (call, callback) = read_query(query);
            (String::from_utf8(call).expect("text"), callback)
        };
        let params = BASE64.encode(br#"["token:s"]"#).replace('=', "%3D");
        let (call, callback) =
            read(&format!("method=aria2.tellActive&id=f%20g&params={params}&jsoncallback=a.b"));
        let wanted = r#"{"id":"f g","jsonrpc":"2.0","method":"aria2.tellActive","params":["token:s"]}"#;
        assert_eq!((call.as_str(), callback.as_deref()), (wanted, Some("a.b")));
        let batch = BASE64.encode(b"[{}]");
        assert_eq!(read(&format!("params={batch}")).0, "[{}]");
        assert_eq!(read("jsoncallback=alert(1)"), ("{}".to_owned(), None));
        assert_eq!(read("method=m&params=%FF").0, r#"{"jsonrpc":"2.0","method":"m"}"#);
        assert!(read(&format!("method=m&params={}", BASE64.encode(b"x"))).0.contains(r#""params":null"#));
    }
}
