//! Tests the tokens that servers give to everybody, on loopback.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};

use anabranch_http::client::{Client, CredentialStatus, FetchError, Options};

use crate::common::{Request, Server, client, fetch, file, good, options, partial, range};

/// Answers with a body and further fields.
fn say(stream: &mut TcpStream, status: &str, fields: &str, body: &str) -> bool {
    let length = body.len();
    write!(stream, "HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\n\r\n{body}").is_ok()
}

/// A server of tokens, which gives T1, T2 and so on.
fn tokens() -> Server {
    let count = std::sync::atomic::AtomicUsize::new(0);
    Server::start(move |request, stream| match request.path().split('?').next() {
        Some("/token") => {
            let n = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
            say(stream, "200 OK", "", &format!("{{\"token\": \"T{n}\", \"expires_in\": 300}}"))
        }
        Some("/long") => say(stream, "200 OK", "", &" ".repeat(100_000)),
        Some("/none") => say(stream, "200 OK", "", "{\"message\": \"hello\"}"),
        _ => say(stream, "403 No", "", ""),
    })
}

/// A registry that wants tokens of `realm`: `valid` says which. `/away` leads to the server `store`.
fn registry(realm: String, store: SocketAddr, valid: fn(&str, &Request) -> bool) -> Server {
    Server::start(move |request, stream| {
        let token = request.field("authorization").and_then(|value| value.strip_prefix("Bearer "));
        if !token.is_some_and(|token| valid(token, request)) {
            let scope = if request.path() == "/other" { "repository:b:pull" } else { "repository:a:pull" };
            let asked = format!("Bearer realm=\"{realm}\",service=\"here\",scope=\"{scope}\"");
            return say(stream, "401 Token", &format!("WWW-Authenticate: {asked}\r\n"), "{\"errors\": []}");
        }
        match request.path() {
            "/away" => say(stream, "307 Away", &format!("Location: http://{store}/f\r\n"), ""),
            _ => partial(request, stream, &file(1000), ""),
        }
    })
}

#[test]
fn a_token_is_fetched_once_for_all_ranges_and_urls_of_its_scope() {
    let (issuer, store) = (tokens(), good(file(1000)));
    let server = registry(issuer.url("/token"), store.address, |_, _| true);
    let mut client = client();
    for (id, path) in ["/one", "/one", "/two", "/away", "/away"].into_iter().enumerate() {
        let (_, bytes) = fetch(&mut client, id as u64, range(&server.url(path), 5, 10, 1000)).unwrap();
        assert_eq!(bytes, file(1000)[5..10]);
    }
    let requests = issuer.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].path(), "/token?service=here&scope=repository%3Aa%3Apull");
    let asked = server.requests();
    let sent: Vec<_> = asked.iter().map(|request| (request.path(), request.field("authorization"))).collect();
    let with = Some("Bearer T1");
    let all =
        [("/one", None), ("/one", with), ("/one", with), ("/two", None), ("/two", with), ("/away", None)];
    assert_eq!(sent[..6], all);
    assert!(store.requests().iter().all(|request| request.field("authorization").is_none()));
    fetch(&mut client, 9, range(&server.url("/other"), 5, 10, 1000)).unwrap();
    assert_eq!(issuer.requests().len(), 2, "it is of another scope");
}

#[test]
fn a_token_that_is_refused_is_fetched_anew_once() {
    let issuer = tokens();
    let nowhere = issuer.address;
    let server = registry(issuer.url("/token"), nowhere, |token, request| {
        token == if request.path() == "/late" { "T2" } else { "T1" }
    });
    let mut client = client();
    let mut ask = |id, path: &str| fetch(&mut client, id, range(&server.url(path), 0, 5, 1000));
    ask(1, "/early").unwrap();
    // Its server does not take the first one any more.
    let error = ask(2, "/late").unwrap_err();
    assert!(matches!(error, FetchError::Forbidden { status: 401, .. }), "{error}");
    ask(3, "/late").unwrap();
    assert_eq!(issuer.requests().len(), 2);
}

#[test]
fn servers_without_a_token_are_named() {
    let issuer = tokens();
    for (path, said) in [("/long", "no token"), ("/none", "no token"), ("/no", "answers 403")] {
        let server = registry(issuer.url(path), issuer.address, |_, _| true);
        let error = fetch(&mut client(), 1, range(&server.url("/f"), 0, 5, 1000)).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, FetchError::Refused(_)), "{text}");
        assert!(text.contains(said) && text.contains(&issuer.address.to_string()), "{text}");
    }
    let server = registry("no url".to_owned(), issuer.address, |_, _| true);
    let error = fetch(&mut client(), 1, range(&server.url("/f"), 0, 5, 1000)).unwrap_err();
    assert!(matches!(error, FetchError::UnknownScheme { .. }), "{error}");
}

#[test]
fn the_callers_secrets_do_not_go_to_the_server_of_tokens() {
    let issuer = tokens();
    let server = registry(issuer.url("/token"), issuer.address, |_, _| true);
    let fields = vec![("X".to_owned(), "secret".to_owned()), ("Cookie".to_owned(), "c".to_owned())];
    let mut client = Client::start(Options { headers: fields, ..options() }).unwrap();
    fetch(&mut client, 1, range(&server.url("/f"), 0, 5, 1000)).unwrap();
    let asked = issuer.requests();
    assert!(["x", "cookie", "authorization"].iter().all(|name| asked[0].field(name).is_none()));
    // A caller with a name of its own is not served as a stranger.
    let user = Some(("a".into(), "b".into()));
    let mut client = Client::start(Options { user, ..options() }).unwrap();
    let error = fetch(&mut client, 1, range(&server.url("/f"), 0, 5, 1000)).unwrap_err();
    assert!(matches!(error, FetchError::UnknownScheme { .. }), "{error}");
    assert_eq!(issuer.requests().len(), 1);
    let headers = vec![("Authorization".to_owned(), "Bearer mine".to_owned())];
    let mut client = Client::start(Options { headers, ..options() }).unwrap();
    let closed = registry(issuer.url("/token"), issuer.address, |token, _| token == "other");
    let error = fetch(&mut client, 1, range(&closed.url("/f"), 0, 5, 1000)).unwrap_err();
    assert!(
        matches!(
            error,
            FetchError::UnknownScheme { .. }
                | FetchError::Forbidden { credentials: CredentialStatus::Sent, .. }
        ),
        "{error}"
    );
}
