//! Tests requests that go out before the answer to an earlier request has ended.

use std::io::{BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anabranch_http::client::{Client, FetchError, FetchRequest, Options, PIPELINE_MAX, RequestKind};

use crate::common::{Request, Server, client, fetch_request, file, good, options, outcomes, partial, range};

const LENGTH: usize = 1 << 20;
/// The bytes of each range.
const PART: u64 = 50_000;

/// Starts fetches of the first `count` parts at once.
fn fetch_parts(client: &Client, server: &Server, count: u64) {
    for id in 0..count {
        let end = (id + 1) * PART;
        client.fetch(id, range(&server.url("/f"), id * PART, end, LENGTH as u64));
    }
}

/// Checks that the parts `ids`, and no others, come in this order and are right.
fn assert_parts(client: &mut Client, ids: &[u64]) {
    let all = file(LENGTH);
    let found = outcomes(client, ids.len());
    assert_eq!(found.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ids);
    for (id, bytes) in found {
        let (first, end) = ((id * PART) as usize, ((id + 1) * PART) as usize);
        assert!(bytes.expect("a part") == all[first..end], "part {id}");
    }
}

/// Sends the first half of the answer to `request` and returns the rest.
fn half(request: &Request, to: &mut TcpStream) -> Vec<u8> {
    let (first, last) = request.range().unwrap();
    let middle = usize::midpoint(first, last);
    let bytes = last + 1 - first;
    let head = format!("Content-Range: bytes {first}-{last}/{LENGTH}\r\nContent-Length: {bytes}\r\n");
    write!(to, "HTTP/1.1 206 P\r\n{head}\r\n").unwrap();
    let all = file(LENGTH);
    to.write_all(&all[first..middle]).unwrap();
    all[middle..=last].to_vec()
}

fn read(from: &mut BufReader<TcpStream>) -> Request {
    Request::read(from).expect("a request")
}

/// Returns the requests that come before the current answer has ended. Waits for `count` requests, however
/// slow the machine is, and then for further ones until none comes within `more`.
fn ahead(from: &mut BufReader<TcpStream>, count: usize, more: Duration) -> Vec<Request> {
    let mut requests: Vec<Request> = (0..count).map(|_| read(from)).collect();
    from.get_ref().set_read_timeout(Some(more)).unwrap();
    requests.extend(std::iter::from_fn(|| Request::read(from)));
    from.get_ref().set_read_timeout(None).unwrap();
    requests
}

/// Answers every request on a connection.
fn serve(from: &mut BufReader<TcpStream>, to: &mut TcpStream) {
    let all = file(LENGTH);
    while let Some(request) = Request::read(from) {
        if !partial(&request, to, &all, "") {
            return;
        }
    }
}

/// Starts a server that begins to answer on its first connection. It goes on once it has `count` requests and
/// the returned sender has told it to. The returned receiver tells when it has them.
fn held(count: usize) -> (Server, Receiver<()>, Sender<()>) {
    let ((there, has_come), (go, gone)) = (channel(), channel());
    let (there, gone) = (Mutex::new(there), Mutex::new(gone));
    let server = Server::script(move |number, from, to| {
        if number == 0 {
            let rest = half(&read(from), to);
            let requests: Vec<Request> = (1..count).map(|_| read(from)).collect();
            there.lock().unwrap().send(()).unwrap();
            gone.lock().unwrap().recv().unwrap();
            let mut fine = to.write_all(&rest).is_ok();
            for request in requests {
                fine = fine && partial(&request, to, &file(LENGTH), "");
            }
        }
        serve(from, to);
    });
    (server, has_come, go)
}

#[test]
fn requests_go_out_while_an_answer_flows() {
    let (server, has_come, go) = held(20);
    let mut client = client();
    fetch_parts(&client, &server, 20);
    // All requests were there when the first answer was half sent.
    has_come.recv().unwrap();
    go.send(()).unwrap();
    assert_parts(&mut client, &(0..20).collect::<Vec<_>>());
    assert_eq!(server.connections(), 1);
}

#[test]
fn no_more_than_a_named_number_goes_out() {
    let most = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&most);
    let server = Server::script(move |_, from, to| {
        let rest = half(&read(from), to);
        let requests = ahead(from, PIPELINE_MAX - 1, Duration::from_millis(500));
        seen.store(1 + requests.len(), Ordering::SeqCst);
        to.write_all(&rest).unwrap();
        for request in requests {
            partial(&request, to, &file(LENGTH), "");
        }
        serve(from, to);
    });
    let mut client = client();
    let all = PIPELINE_MAX as u64 + 36;
    for id in 0..all {
        client.fetch(id, range(&server.url("/f"), id, id + 10, LENGTH as u64));
    }
    for (id, bytes) in outcomes(&mut client, all as usize) {
        assert_eq!(bytes.unwrap(), file(LENGTH)[id as usize..id as usize + 10]);
    }
    assert_eq!((most.load(Ordering::SeqCst), server.connections()), (PIPELINE_MAX, 1));
}

#[test]
fn what_a_closed_connection_owed_is_asked_again() {
    // The server answers one request per connection and closes it, with or without announcing that.
    for more in ["", "Connection: close\r\n"] {
        let server = Server::script(move |_, from, to| {
            partial(&read(from), to, &file(LENGTH), more);
            // The server reads the requests that were sent ahead. Otherwise closing would reset the
            // connection and lose the answer.
            let _ = to.shutdown(std::net::Shutdown::Write);
            let _ = from.read_to_end(&mut Vec::new());
        });
        let mut client = client();
        fetch_parts(&client, &server, 10);
        assert_parts(&mut client, &(0..10).collect::<Vec<_>>());
        assert_eq!(server.connections(), 10);
    }
}

#[test]
fn who_does_not_like_it_is_asked_one_at_a_time() {
    let offences = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&offences);
    let server = Server::script(move |number, from, to| {
        while let Some(request) = Request::read(from) {
            let rest = half(&request, to);
            // No request may come before the answer has ended. On the first two connections some do, and the
            // server waits for them however slow the machine is.
            let patience = Duration::from_millis(if number < 2 { 20_000 } else { 200 });
            to.set_read_timeout(Some(patience)).unwrap();
            let early = !from.buffer().is_empty() || to.peek(&mut [0]).is_ok();
            to.set_read_timeout(None).unwrap();
            to.write_all(&rest).unwrap();
            if early {
                counted.fetch_add(1, Ordering::SeqCst);
                let _ = to.shutdown(std::net::Shutdown::Write);
                let _ = from.read_to_end(&mut Vec::new());
                return;
            }
        }
    });
    let mut client = client();
    fetch_parts(&client, &server, 10);
    assert_parts(&mut client, &(0..10).collect::<Vec<_>>());
    assert_eq!((offences.load(Ordering::SeqCst), server.connections()), (2, 3));
}

#[test]
fn who_loses_what_comes_early_is_asked_one_at_a_time() {
    // The server reads while it answers, and forgets the requests that it has read. As long as none comes
    // early, it answers.
    let server = Server::script(|number, from, to| {
        // The number of requests that come ahead: all that are left, on the first two connections.
        let mut early = [7, 5].get(number).copied().unwrap_or(0);
        while let Some(request) = Request::read(from) {
            let rest = half(&request, to);
            ahead(from, std::mem::take(&mut early), Duration::from_millis(200));
            to.write_all(&rest).unwrap();
        }
    });
    let short = Options { idle_timeout: Duration::from_secs(3), ..options() };
    let mut client = Client::start(short).unwrap();
    fetch_parts(&client, &server, 8);
    let found = outcomes(&mut client, 8);
    let failed: Vec<u64> = found.iter().filter(|(_, bytes)| bytes.is_err()).map(|(id, _)| *id).collect();
    // Each connection with requests ahead brought one answer and then none.
    assert_eq!((failed, server.connections()), (vec![1, 3], 3), "{found:?}");
}

#[test]
fn a_limit_of_requests_does_not_end_it() {
    // The server limits the requests of a connection, as Apache (100) and nginx (1,000) do.
    let in_vain = Arc::new(Mutex::new(Vec::new()));
    let count = Arc::clone(&in_vain);
    let server = Server::script(move |number, from, to| {
        for left in (0..40).rev() {
            let Some(request) = Request::read(from) else { return };
            partial(&request, to, &file(LENGTH), if left == 0 { "Connection: close\r\n" } else { "" });
        }
        let _ = to.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        let _ = from.read_to_end(&mut rest);
        if !rest.is_empty() {
            count.lock().unwrap().push(number);
        }
    });
    let mut client = client();
    for id in 0..400 {
        client.fetch(id, range(&server.url("/f"), id, id + 10, LENGTH as u64));
    }
    assert!(outcomes(&mut client, 400).iter().all(|(_, bytes)| bytes.as_ref().unwrap().len() == 10));
    assert_eq!(server.connections(), 10);
    // Once the limit is known, no request beyond it is sent on a connection.
    assert_eq!(*in_vain.lock().unwrap(), [0]);
    // Requests are still sent ahead: the last connection had some.
    let (server, has_come, go) = held(3);
    fetch_parts(&client, &server, 3);
    has_come.recv().unwrap();
    go.send(()).unwrap();
    assert_parts(&mut client, &[0, 1, 2]);
}

/// Waits until the client's thread has done all that it was told, which it does in order.
fn settle(client: &Client) {
    let marker = good(file(10));
    client.fetch(99, FetchRequest { route: 5, ..range(&marker.url("/"), 0, 1, 10) });
    while marker.requests().is_empty() {
        thread::sleep(Duration::from_millis(1));
    }
    client.cancel(99);
}

#[test]
fn cancelled_ahead() {
    // The cancelled answer has 50,000 bytes, which are read and dropped.
    let (server, has_come, go) = held(5);
    let mut client = client();
    fetch_parts(&client, &server, 5);
    has_come.recv().unwrap();
    client.cancel(2);
    settle(&client);
    go.send(()).unwrap();
    assert_parts(&mut client, &[0, 1, 3, 4]);
    assert_eq!(server.connections(), 1);

    // The cancelled answer has 900,000 bytes, which are not read. The connection is closed, and its other
    // requests are sent again.
    let (server, has_come, go) = held(3);
    client.fetch(0, range(&server.url("/f"), 0, PART, LENGTH as u64));
    client.fetch(1, range(&server.url("/f"), 0, 900_000, LENGTH as u64));
    client.fetch(2, range(&server.url("/f"), 2 * PART, 3 * PART, LENGTH as u64));
    has_come.recv().unwrap();
    client.cancel(1);
    settle(&client);
    go.send(()).unwrap();
    assert_parts(&mut client, &[0, 2]);
    assert_eq!(server.connections(), 2);

    // The answer that is being read is cancelled.
    let (server, has_come, go) = held(4);
    fetch_parts(&client, &server, 4);
    has_come.recv().unwrap();
    // There may already be events of this fetch. They are forgotten with it.
    client.cancel(0);
    assert_parts(&mut client, &[1, 2, 3]);
    assert_eq!(server.connections(), 2);
    go.send(()).unwrap();

    // Several fetches are cancelled, and the request of one of them was never sent.
    let (server, has_come, go) = held(2);
    fetch_parts(&client, &server, 2);
    has_come.recv().unwrap();
    client.fetch(7, fetch_request("http://127.0.0.1:9/", RequestKind::Metadata));
    client.cancel(7);
    client.cancel(1);
    settle(&client);
    go.send(()).unwrap();
    assert_parts(&mut client, &[0]);
    client.fetch(3, range(&server.url("/f"), 3 * PART, 4 * PART, LENGTH as u64));
    assert_parts(&mut client, &[3]);
    assert_eq!(server.connections(), 1);
}

/// Fetches a small document at each of these paths and returns the outcomes.
fn documents(client: &mut Client, server: &Server, paths: &[&str]) -> Vec<Result<String, FetchError>> {
    for (id, path) in (0..).zip(paths) {
        client.fetch(id, fetch_request(&server.url(path), RequestKind::Document { max: 100 }));
    }
    let found = outcomes(client, paths.len());
    assert!(found.iter().map(|(id, _)| *id).eq(0..paths.len() as u64));
    found.into_iter().map(|(_, found)| found.map(|bytes| String::from_utf8(bytes).unwrap())).collect()
}

/// Starts a server that waits for all requests that come within 300 ms, answers them, and closes where the
/// answer demands it. Returns it with the number of requests.
fn documented() -> (Server, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    let server = Server::script(move |_, from, to| {
        while let Some(first) = Request::read(from) {
            let more = ahead(from, 0, Duration::from_millis(300));
            count.fetch_add(1 + more.len(), Ordering::SeqCst);
            for request in [first].into_iter().chain(more) {
                let text = match request.path() {
                    "/length" => "200 O\r\nContent-Length: 6\r\n\r\nlength",
                    "/chunks" => {
                        "200 O\r\nTransfer-Encoding: chunked\r\n\r\n\
                         2\r\nch\r\n4;x\r\nunks\r\n0\r\nA: b\r\n\r\n"
                    }
                    "/interim" => {
                        "103 E\r\nLink: <x>\r\n\r\nHTTP/1.1 200 O\r\nContent-Length: 7\r\n\r\ninterim"
                    }
                    "/close" => "200 O\r\n\r\nclose",
                    "/both" => "200 O\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                    "/two" => "200 O\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\ntwo",
                    "/chunk" => "200 O\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nchunk",
                    "/moved" => "302 F\r\nLocation: /length\r\nContent-Length: 5\r\n\r\nmoved",
                    _ => "404 N\r\nContent-Length: 4\r\n\r\nnone",
                };
                write!(to, "HTTP/1.1 {text}").unwrap();
                if matches!(request.path(), "/close" | "/both" | "/two" | "/chunk") {
                    let _ = to.shutdown(std::net::Shutdown::Write);
                    let _ = from.read_to_end(&mut Vec::new());
                    return;
                }
            }
        }
    });
    (server, requests)
}

#[test]
fn bodies_of_every_framing_behind_each_other() {
    let (server, _) = documented();
    let mut client = client();
    let paths = ["/length", "/chunks", "/interim", "/length", "/close", "/chunks", "/length"];
    let found = documents(&mut client, &server, &paths);
    assert_eq!(
        found.into_iter().map(Result::unwrap).collect::<Vec<_>>(),
        ["length", "chunks", "interim", "length", "close", "chunks", "length"]
    );
    assert_eq!(server.connections(), 2);
}

#[test]
fn an_error_or_a_redirect_concerns_one_alone() {
    let (server, requests) = documented();
    let mut client = client();
    let found =
        documents(&mut client, &server, &["/length", "/none", "/moved", "/chunks", "/none", "/length"]);
    let text = |text: &str| Ok(text.to_owned());
    let gone = Err(FetchError::NotFound(404));
    assert_eq!(found, [text("length"), gone.clone(), text("length"), text("chunks"), gone, text("length")]);
    // The redirect was followed on another connection, because this one owed answers.
    assert_eq!((server.connections(), requests.load(Ordering::SeqCst)), (2, 7));
}

#[test]
fn hostile_framing_ends_the_connection_and_nothing_else() {
    for bad in ["/both", "/two", "/chunk"] {
        let (server, _) = documented();
        let found = documents(&mut client(), &server, &["/length", bad, "/chunks", "/length"]);
        assert_eq!(found[0], Ok("length".to_owned()));
        assert!(matches!(found[1], Err(FetchError::Broken(_))), "{bad}: {:?}", found[1]);
        assert_eq!(found[2..], [Ok("chunks".to_owned()), Ok("length".to_owned())], "{bad}");
    }
}

#[test]
fn an_answer_that_nobody_asked_for_is_nobodys() {
    let server = Server::script(|_, from, to| {
        while let Some(request) = Request::read(from) {
            let body = request.path().trim_start_matches('/');
            for body in [body, "bad"] {
                let length = body.len();
                let answer = format!("HTTP/1.1 200 O\r\nContent-Length: {length}\r\n\r\n{body}");
                if to.write_all(answer.as_bytes()).is_err() {
                    return;
                }
            }
        }
    });
    let mut client = client();
    for path in ["/one", "/two", "/three"] {
        let found = documents(&mut client, &server, &[path]);
        assert_eq!(found, [Ok(path[1..].to_owned())]);
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(server.connections(), 3);
}

#[test]
fn answers_that_are_mixed_up_are_asked_for_one_at_a_time() {
    let server = Server::script(|_, from, to| {
        let rest = half(&read(from), to);
        thread::sleep(Duration::from_millis(100));
        to.write_all(&rest).unwrap();
        from.get_ref().set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut requests: Vec<Request> = std::iter::from_fn(|| Request::read(from)).collect();
        from.get_ref().set_read_timeout(None).unwrap();
        requests.reverse();
        if requests.into_iter().all(|request| partial(&request, to, &file(LENGTH), "")) {
            serve(from, to);
        }
    });
    let mut client = client();
    fetch_parts(&client, &server, 8);
    assert_parts(&mut client, &(0..8).collect::<Vec<_>>());
}

#[test]
fn silence_counts_from_ones_turn() {
    let server = Server::script(|_, from, to| {
        let rest = half(&read(from), to);
        let second = read(from);
        for piece in rest.chunks(rest.len() / 8) {
            thread::sleep(Duration::from_millis(400));
            to.write_all(piece).unwrap();
        }
        partial(&second, to, &file(LENGTH), "");
        // The server never answers again.
        thread::sleep(Duration::from_secs(20));
        drop(from.read(&mut [0]));
    });
    // The timeout is shorter than all pieces take together, and much longer than one takes.
    let short = Options { idle_timeout: Duration::from_millis(2_500), ..options() };
    let mut client = Client::start(short).unwrap();
    fetch_parts(&client, &server, 2);
    assert_parts(&mut client, &[0, 1]);
    fetch_parts(&client, &server, 1);
    let found = outcomes(&mut client, 1);
    assert!(matches!(&found[0].1, Err(FetchError::Broken(why)) if why.contains("2.5 s")), "{found:?}");
}

#[test]
fn through_a_proxy_that_relays_too() {
    let (proxy, has_come, go) = held(4);
    let given = Options { proxy: Some(format!("http://{}", proxy.address)), ..options() };
    let mut client = Client::start(given).unwrap();
    for id in 0..4 {
        let url = "http://files.example/f";
        client.fetch(id, range(url, id * PART, (id + 1) * PART, LENGTH as u64));
    }
    has_come.recv().unwrap();
    go.send(()).unwrap();
    assert_parts(&mut client, &[0, 1, 2, 3]);
    assert_eq!(proxy.connections(), 1);
}
