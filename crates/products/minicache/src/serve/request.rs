//! Parses the head of a request (RFC 9112).

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue};

/// The most bytes of a head.
pub(super) const HEAD_BYTES_MAX: usize = 16 << 10;
/// The most header fields.
const FIELDS_MAX: usize = 64;

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) method: Method,
    /// The target without its query.
    pub(super) path: String,
    pub(super) query: Option<String>,
    pub(super) fields: HeaderMap,
    /// Whether another request may follow on the connection.
    pub(super) keeps: bool,
}

/// What is asked of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Head,
    Other,
}

/// The result of parsing.
#[derive(Debug)]
pub(super) enum Parsed {
    /// A head, and the number of its bytes.
    Whole(Box<Request>, usize),
    /// More bytes are needed.
    Partial,
    /// The bytes are no head of a request: the status says why.
    Bad(u16, &'static str),
}

/// Parses the head at the beginning of `bytes`.
pub(super) fn parse(bytes: &[u8]) -> Parsed {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Parsed::Partial,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Parsed::Bad(431, "the head of the request is too long");
        }
        Err(_) => return Parsed::Bad(400, "this is no HTTP/1.1"),
    };
    let method = match request.method {
        Some("GET") => Method::Get,
        Some("HEAD") => Method::Head,
        _ => Method::Other,
    };
    let is_11 = request.version == Some(1);
    let mut map = HeaderMap::with_capacity(request.headers.len());
    for field in request.headers.iter() {
        let (Ok(name), Ok(value)) = (HeaderName::try_from(field.name), HeaderValue::from_bytes(field.value))
        else {
            return Parsed::Bad(400, "a header field is wrong");
        };
        map.append(name, value);
    }
    let hosts = map.get_all(HOST).iter().count();
    if hosts > 1 || hosts == 0 && is_11 {
        return Parsed::Bad(400, "the request must have one Host");
    }
    // What follows the head of such a request is no request: it is answered, and then the connection ends.
    let has_body = map.contains_key(TRANSFER_ENCODING)
        || map.get_all(CONTENT_LENGTH).iter().any(|length| length.as_bytes() != b"0");
    let closes = map.get_all(CONNECTION).iter().any(|value| {
        value
            .as_bytes()
            .split(|byte| *byte == b',')
            .any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
    });
    let target = request.path.unwrap_or_default();
    // The absolute form (RFC 9112, section 3.2.2) names a server in front of the path.
    let target = match target.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => target,
    };
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path.to_owned(), Some(query.to_owned())),
        None => (target.to_owned(), None),
    };
    let keeps = is_11 && !closes && !has_body;
    Parsed::Whole(Box::new(Request { method, path, query, fields: map, keeps }), length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(text: &str) -> Request {
        match parse(text.as_bytes()) {
            Parsed::Whole(request, length) if length == text.len() => *request,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn heads_are_what_the_standard_says() {
        let request = whole("GET /sha256:00?x=1 HTTP/1.1\r\nHost: a\r\nRange: bytes=0-1\r\n\r\n");
        assert_eq!((request.method, &*request.path, request.keeps), (Method::Get, "/sha256:00", true));
        assert_eq!(request.query.as_deref(), Some("x=1"));
        assert!(!whole("HEAD / HTTP/1.0\r\n\r\n").keeps);
        assert!(!whole("GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n").keeps);
        assert!(!whole("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n").keeps);
        assert_eq!(whole("GET http://h:1/x HTTP/1.1\r\nHost: h:1\r\n\r\n").path, "/x");
        assert!(matches!(parse(b"GET / HTTP/1.1\r\nHost: a\r\n"), Parsed::Partial));
        for (bad, status) in [
            ("GET / HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
            ("GET  / HTTP/1.1\r\n\r\n", 400),
            ("\u{1}\r\n\r\n", 400),
        ] {
            assert!(matches!(parse(bad.as_bytes()), Parsed::Bad(is, _) if is == status), "{bad}");
        }
        let long = format!("GET / HTTP/1.1\r\nHost: {}", "a".repeat(HEAD_BYTES_MAX));
        assert!(matches!(parse(long.as_bytes()), Parsed::Bad(431, _)));
        let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "x: y\r\n".repeat(80));
        assert!(matches!(parse(many.as_bytes()), Parsed::Bad(431, _)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Parsed::Whole(_, length) = parse(&bytes) {
                prop_assert!(length <= bytes.len());
            }
        }
    }
}
