//! Tests of `anabranch rendezvous --state redis://…`: processes that share a server, which is lost and comes
//! back.
#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::wait_until;
use crate::redis::Redis;
use crate::rendezvous_bed::{Bed, Running, look_up, now};
use anabranch_algo::Span;
use anabranch_overlay::message::listing::PageRequest;
use anabranch_overlay::message::{Body, Wanted, refusal};
use anabranch_overlay::publication::{Publication, Rejection, SignedPublication};
use nix::sys::signal::Signal;

fn refused(why: Rejection) -> Body {
    Body::Refused { reason: refusal::of(why) }
}

/// Repeats a question until it is answered.
fn ask_on(bed: &mut Bed, body: &Body) -> Body {
    bed.socket.set_read_timeout(Some(Duration::from_millis(200))).expect("set");
    for _ in 0..150 {
        let call = bed.send(body.clone());
        while let Some(answer) = bed.receive() {
            if answer.call == call {
                bed.socket.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
                return answer.body;
            }
        }
    }
    panic!("no answer within 30 s");
}

/// Whether no answer comes within this time.
fn is_silent(bed: &mut Bed, body: Body, millis: u64) -> bool {
    bed.socket.set_read_timeout(Some(Duration::from_millis(millis))).expect("set");
    bed.send(body);
    let is_silent = bed.receive().is_none();
    bed.socket.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
    is_silent
}

fn by_content(publication: &Publication) -> Body {
    Body::Lookup(Wanted::Content(publication.content))
}

#[test]
fn what_one_takes_the_other_answers() {
    let Some(redis) = Redis::start(&[]) else { return };
    let [mut a, mut b] = Bed::pair(21);
    let (mut first, told) = a.start(redis.url());
    let socket = redis.socket();
    assert!(
        told.starts_with(&format!("keeps publications in redis+unix://{}?db=0 (", socket.display())),
        "{told}"
    );
    assert!(!told.contains("journal"), "it has one: {told}");
    let (second, _) = b.start(redis.url());
    let at = now();
    let all: Vec<_> = (0..100).map(|name| a.signed(name, at, 600)).collect();
    for (name, signed) in (0..).zip(&all) {
        assert_eq!(a.publish(signed.clone()), Body::Published);
        assert_eq!(b.found(name), std::slice::from_ref(&signed.publication));
    }
    let Body::Match { known: 1, publications } = b.ask(by_content(&all[7].publication)) else {
        panic!("one")
    };
    assert_eq!(publications, [all[7].clone()]);

    let later = at + Span::from_millis(5);
    let withdrawal = b.signed(0, later, 0);
    assert_eq!(b.publish(withdrawal), Body::Published);
    assert!(!a.is_found(0) && !b.is_found(0));
    let Body::Match { known: 0, .. } = a.ask(by_content(&all[0].publication)) else { panic!("none") };
    assert_eq!(a.publish(all[0].clone()), refused(Rejection::Replayed), "the other one has withdrawn it");
    let forged = SignedPublication { signature: [0; 64], ..all[1].clone() };
    assert_eq!(b.publish(forged), refused(Rejection::Signature));
    let mut newer = a.signed(1, later, 600).publication;
    (newer.port, newer.version_ms, newer.content.root) = (26_228, 2, [200; 32]);
    let newer = a.sign(newer);
    assert_eq!(a.publish(newer), Body::Published);
    let again = b.signed(1, later, 600);
    assert_eq!(b.publish(again), Body::Outdated, "the other one has a newer content");

    // A new start has nothing to read, and still has all publications.
    first.killed();
    let (first, _) = a.start(redis.url());
    let found: Vec<u32> = (0..100).filter(|name| !a.found(*name).is_empty()).collect();
    assert_eq!(found, (1..100).collect::<Vec<_>>());
    assert_eq!(a.publish(all[0].clone()), refused(Rejection::Replayed));

    assert_eq!(redis.keys().len(), 100 + 101 + 1, "names, contents, and what it is");
    let keys = redis.keys();
    let keys: BTreeSet<&str> = keys.iter().map(|key| key.trim_end_matches(|c| c != ':')).collect();
    assert_eq!(
        keys.into_iter().collect::<Vec<_>>(),
        ["anabranch:small:", "anabranch:small:content:", "anabranch:small:name:"]
    );
    let documented = include_str!("../../../../docs/json.md");
    for summary in [first.ended(), second.ended()] {
        let state = &summary["shared_state"];
        assert_eq!(state["answers"], true, "{summary}");
        for field in ["outages", "unanswered", "unbelieved", "conflicts"] {
            assert_eq!(state[field], 0, "{summary}");
            assert!(documented.contains(&format!("`{field}`")), "docs/json.md: no word about {field}");
        }
        assert!(summary["kept"].is_null() && summary["state"].is_null(), "{summary}");
    }
}

#[test]
fn what_one_takes_the_other_lists() {
    let Some(redis) = Redis::start(&[]) else { return };
    let [mut a, mut b] = Bed::pair(30);
    let (first, _) = a.start(redis.url());
    let (second, _) = b.start(redis.url());
    // Keys of others, of this network's other kind, and of another network are in the database, too.
    for number in 0..400 {
        redis.ask::<()>(&[b"SET", format!("of-others:{number}").as_bytes(), b"x"]);
    }
    redis.ask::<()>(&[b"HSET", b"anabranch:large:name:films/x", b"a:1", b"x"]);
    redis.ask::<()>(&[b"HSET", b"anabranch:small:name:no-name", b"a:1", b"x"]);
    redis.ask::<()>(&[b"SET", b"anabranch:small:name:films/no-table", b"x"]);
    assert_eq!(b.listed(None), []);
    let at = now();
    for name in 0..200 {
        for port in 0..=u16::from(name % 50 == 0) * 20 {
            let mut it = a.signed(name, at, 600).publication;
            it.port += port;
            let signed = a.sign(it);
            assert_eq!(a.publish(signed), Body::Published);
        }
    }
    let withdrawal = a.signed(1, at + Span::from_millis(5), 0);
    assert_eq!(a.publish(withdrawal), Body::Published);
    let expected: BTreeSet<String> =
        (0..200).filter(|name| *name != 1).map(|name| format!("films/{name}")).collect();
    for scope in [None, Some("films")] {
        let listed = b.listed(scope);
        let names: BTreeSet<String> = listed.iter().map(|it| it.name.to_string()).collect();
        assert_eq!((&names, listed.len()), (&expected, 199 + 4 * 20));
    }
    assert_eq!(b.listed(Some("songs")), []);
    assert!(first.ended()["shared_state"]["outages"] == 0);
    let summary = second.ended();
    assert!(summary["pages"].as_u64() > Some(2 * 279 / 8), "{summary}");
    assert!(summary["shared_state"]["unbelieved"].as_u64() >= Some(1), "no-name is no name: {summary}");
    assert!(include_str!("../../../../docs/json.md").contains("`pages`"));
}

#[test]
fn a_server_whose_user_may_not_scan_lists_nothing_and_answers_all_else() {
    let Some(redis) = Redis::start(&[]) else { return };
    redis.ask::<()>(&[b"ACL", b"SETUSER", b"some", b"on", b">word", b"~*", b"+@all", b"-scan"]);
    let [mut a, _] = Bed::pair(31);
    let url = format!("{}?user=some&pass=word", redis.url());
    let (running, _) = a.start(url);
    let it = a.signed(1, now(), 600);
    assert_eq!(a.publish(it), Body::Published);
    assert!(is_silent(&mut a, Body::List(PageRequest::default()), 300));
    assert!(a.is_found(1));
    let summary = running.ended();
    assert_eq!(summary["shared_state"]["outages"], 0, "{summary}");
    assert_eq!(summary["shared_state"]["unanswered"], 1, "{summary}");
}

#[test]
fn a_lease_ends_and_leaves_nothing() {
    let Some(redis) = Redis::start(&[]) else { return };
    let [mut a, mut b] = Bed::pair(22);
    let _running = (a.start(redis.url()), b.start(redis.url()));
    let (one, two) = (a.signed(1, now(), 2), a.signed(2, now(), 60));
    assert_eq!(a.publish(one.clone()), Body::Published);
    assert_eq!(a.publish(two), Body::Published);
    assert!(b.is_found(1) && b.is_found(2));
    wait_until(20, || b.found(1).is_empty());
    assert!(b.is_found(2));
    assert!(now() >= one.publication.ends(), "not earlier");
    // The server removes the keys by itself, without a question.
    wait_until(20, || redis.keys().len() == 3);
    assert_eq!(a.publish(one), refused(Rejection::Expired));
}

#[test]
fn the_later_one_counts_whoever_is_asked_first() {
    let Some(redis) = Redis::start(&[]) else { return };
    let [mut a, mut b] = Bed::pair(23);
    let _running = (a.start(redis.url()), b.start(redis.url()));
    let at = now();
    let names: Vec<u32> = (0..150).collect();
    for name in &names {
        let (old, new) = (a.signed(*name, at, 600), a.signed(*name, at + Span::from_millis(7), 600));
        let (to_a, to_b) = if name % 2 == 0 { (old, new) } else { (new, old) };
        a.send(Body::Publish(to_a));
        b.send(Body::Publish(to_b));
    }
    // No packet is lost on loopback: each question has an answer, and the later publication is never refused.
    for (bed, later) in [(&a, 0), (&b, 1)] {
        for _ in &names {
            let answer = bed.receive().expect("an answer");
            let is_later = answer.call % 2 == later;
            let is_good =
                answer.body == Body::Published || !is_later && answer.body == refused(Rejection::Replayed);
            assert!(is_good, "{answer:?}");
        }
    }
    let later = (at + Span::from_millis(7)).as_nanos() / 1_000_000;
    for name in names {
        for bed in [&mut a, &mut b] {
            let issued: Vec<u64> = bed.found(name).iter().map(|it| it.issued_ms).collect();
            assert_eq!(issued, [later], "{name}");
        }
    }
}

#[test]
fn while_the_server_is_gone_there_is_silence_and_then_everything() {
    let Some(mut redis) = Redis::start(&[]) else { return };
    let [mut a, _] = Bed::pair(24);
    let mut command = a.command("net.toml", redis.url());
    command.args(["--prometheus", "0"]);
    let (mut running, _) = Bed::run(command);
    let mut said = BufReader::new(running.child.stderr.take().expect("its errors"));
    let mut line = String::new();
    said.read_line(&mut line).expect("a line");
    let metrics = line.trim().strip_prefix("metrics at http://").expect("where").trim_end_matches("/metrics");

    let at = now();
    let (old, new) = (a.signed(1, at, 600), a.signed(2, at, 600));
    assert_eq!(a.publish(old), Body::Published);
    redis.killed();
    assert!(is_silent(&mut a, look_up(1), 700), "it must not say that there is nothing");
    let told = running.notice();
    assert!(told.contains("redis+unix://") && told.contains("does not answer"), "{told}");
    assert!(
        told.ends_with("Until it is back no publication is taken and nobody who asks is answered"),
        "{told}"
    );
    assert!(is_silent(&mut a, Body::Publish(new.clone()), 700));
    // A message that needs no state is answered.
    let forged = SignedPublication { signature: [0; 64], ..new.clone() };
    assert_eq!(a.publish(forged), refused(Rejection::Signature));
    let mut state = running.shared_state();
    while state["answers"] != false || state["unanswered"] != 2 {
        state = running.shared_state();
    }
    wait_until(20, || scrape(metrics).contains("\nanabranch_rendezvous_state_up 0\n"));
    assert!(scrape(metrics).contains("\nanabranch_rendezvous_state_outages_total 1\n"));

    // A publisher and a receiver that repeat their questions are answered when the server is back; nothing
    // was lost.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(500));
            redis.again();
        });
        assert_eq!(ask_on(&mut a, &Body::Publish(new)), Body::Published);
    });
    assert!(a.is_found(1) && a.is_found(2));
    assert!(running.notice().contains(" is back after "));
    wait_until(20, || scrape(metrics).contains("\nanabranch_rendezvous_state_up 1\n"));

    // A server that hangs is treated as one that is gone, and in time.
    redis.signal(Signal::SIGSTOP);
    assert!(is_silent(&mut a, look_up(1), 700));
    assert!(running.notice().contains("does not answer within 2 seconds"));
    redis.signal(Signal::SIGCONT);
    let Body::Match { known, .. } = ask_on(&mut a, &look_up(1)) else { panic!("a match") };
    assert_eq!(known, 1);
    // Lost scripts are loaded again without a visible effect.
    redis.ask::<()>(&[b"SCRIPT", b"FLUSH"]);
    let third = a.signed(3, now(), 600);
    assert_eq!(a.publish(third), Body::Published);
    let summary = running.ended();
    assert_eq!((&summary["exit"], &summary["shared_state"]["outages"]), (&0.into(), &2.into()), "{summary}");
}

fn scrape(address: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("UTF-8");
    text
}

#[test]
fn what_somebody_else_has_written_is_not_believed() {
    let Some(redis) = Redis::start(&[]) else { return };
    let [mut a, mut b] = Bed::pair(25);
    let (mut running, _) = a.start(redis.url());
    let (_other, _) = b.start(redis.url());
    let at = now();
    for name in 1..6 {
        let signed = a.signed(name, at, 600);
        assert_eq!(a.publish(signed), Body::Published);
    }
    let key = |name: u32| format!("anabranch:small:name:films/{name}").into_bytes();
    let value: Vec<u8> = redis.ask(&[b"HGET", &key(2), b"a:26227"]);
    redis.ask::<()>(&[b"HSET", &key(1), b"a:26227", b"junk"]);
    let mut forged = value.clone();
    *forged.last_mut().expect("a byte") ^= 1;
    redis.ask::<()>(&[b"HSET", &key(2), b"a:26227", &forged]);
    redis.ask::<()>(&[b"SET", &key(3), b"another thing"]);
    redis.ask::<()>(&[b"HSET", &key(4), b"a:26227", &value]);
    let content = format!("anabranch:small:content:{}", "05".repeat(32)).into_bytes();
    redis.ask::<()>(&[b"SET", &content, b"another thing"]);
    for name in 1..5 {
        assert!(!a.is_found(name) && !b.is_found(name), "{name}");
    }
    let fifth = a.signed(5, at, 600).publication;
    let Body::Match { known: 0, .. } = a.ask(by_content(&fifth)) else { panic!("none") };
    let mut state = running.shared_state();
    while state["unbelieved"] != 5 {
        state = running.shared_state();
    }
    // None of these entries stays in the way.
    for name in 1..6 {
        let signed = b.signed(name, at + Span::from_millis(1), 600);
        assert_eq!(b.publish(signed), Body::Published);
        assert!(a.is_found(name), "{name}");
    }
    let Body::Match { known: 1, .. } = a.ask(by_content(&fifth)) else { panic!("one") };
}

#[test]
fn a_server_that_is_full_takes_nothing_more_and_still_answers() {
    let Some(redis) = Redis::start(&[]) else { return };
    let [mut a, _] = Bed::pair(26);
    let (_running, _) = a.start(redis.url());
    let first = a.signed(1, now(), 600);
    assert_eq!(a.publish(first), Body::Published);
    redis.ask::<()>(&[b"CONFIG", b"SET", b"maxmemory", b"1"]);
    let second = a.signed(2, now(), 600);
    assert_eq!(a.publish(second.clone()), refused(Rejection::Full));
    assert!(a.is_found(1) && !a.is_found(2));
    // A rendezvous that starts now also still answers.
    let (_running, _) = {
        drop(_running);
        a.start(redis.url())
    };
    assert!(a.is_found(1));
    redis.ask::<()>(&[b"CONFIG", b"SET", b"maxmemory", b"0"]);
    assert_eq!(a.publish(second), Body::Published);
}

/// Returns the exit status and the output of a start that fails.
fn failed(bed: &Bed, state: &str) -> (Option<i32>, String) {
    let output = bed.command("net.toml", state).output().expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).expect("UTF-8"))
}

#[test]
fn a_start_says_what_is_wrong_and_no_password() {
    let [bed, _] = Bed::pair(27);
    let (status, said) = failed(&bed, "http://me:hunter2@db.example");
    assert!(status == Some(2) && said.contains("--state is no address of a server"), "{said}");
    assert!(!said.contains("hunter2") && !said.contains("me:"), "{said}");
    // No server is there, because the port was only free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let (status, said) = failed(&bed, &format!("redis://me:hunter2@127.0.0.1:{port}/3"));
    let wanted = format!("the state redis://127.0.0.1:{port}/3 does not answer");
    assert!(status == Some(4) && said.contains(&wanted) && !said.contains("hunter2"), "{status:?} {said}");
    // A server is there and does not answer.
    let mute = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (status, said) = failed(&bed, &format!("redis://{}", mute.local_addr().expect("an address")));
    assert!(status == Some(4) && said.contains("does not answer within 2 seconds"), "{status:?} {said}");

    let Some(redis) = Redis::start(&["--requirepass", "hunter2", "--port", &port.to_string()]) else {
        return;
    };
    let at = format!("127.0.0.1:{port}");
    let with = |user: &str| failed(&bed, &format!("redis://{user}{at}"));
    let (status, said) = with("");
    assert!(
        status == Some(2) && said.contains("wants a name and a password in --state"),
        "{status:?} {said}"
    );
    let (status, said) = with(":hunter3@");
    assert!(status == Some(2) && said.contains("name or password in --state are wrong"), "{status:?} {said}");
    assert!(!said.contains("hunter3"), "{said}");
    let (running, told) = bed.start(format!("redis://:hunter2@{at}"));
    assert!(told.contains(&format!("redis://{at}/0")) && !told.contains("hunter2"), "{told}");
    drop(running);
    // The address is in the environment, which other users do not see.
    let mut command = crate::common::anabranch();
    command.args(["rendezvous", "--json", "--node", "rv", "--domain"]).arg(bed.path("net.toml"));
    command.env("ANABRANCH_STATE", format!("valkey://:hunter2@{at}/1"));
    let (running, told) = Bed::run({
        command.stdout(Stdio::piped());
        command
    });
    assert!(told.contains(&format!("valkey://{at}/1")), "{told}");
    drop(running);

    let mut connection =
        redis::Client::open(format!("redis://:hunter2@{at}/0")).and_then(|it| it.get_connection());
    let connection = connection.as_mut().expect("connected");
    redis::cmd("HSET").arg("anabranch:small:about").arg("format").arg("9").exec(connection).expect("set");
    let (status, said) = with(":hunter2@");
    assert!(status == Some(2) && said.contains("was written by another anabranch"), "{status:?} {said}");
    drop(redis);
}

#[test]
fn what_it_may_lose_is_said() {
    let options = ["--appendonly", "no", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let Some(redis) = Redis::start(&options) else { return };
    let [bed, _] = Bed::pair(28);
    let (_running, told) = bed.start(redis.url());
    assert!(told.contains("it keeps no journal (appendonly no)"), "{told}");
    assert!(told.contains("it forgets what it likes (maxmemory-policy allkeys-lru)"), "{told}");
}

#[test]
fn by_tls_whose_certificate_is_checked() {
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let dir = tempfile::tempdir().expect("a directory");
    let openssl = |args: &str| {
        let mut command = Command::new("openssl");
        let output = command.args(args.split(' ')).current_dir(dir.path()).output();
        output.is_ok_and(|output| output.status.success())
    };
    let made = openssl("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.crt")
        && openssl("req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout s.key -out s.csr")
        && fs::write(dir.path().join("ext"), "subjectAltName=DNS:localhost").is_ok()
        && openssl("x509 -req -in s.csr -CA ca.crt -CAkey ca.key -days 2 -extfile ext -out s.crt");
    if !made {
        return anabranch_net::testing::skip("there is no openssl");
    }
    let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let (port, cert, key, ca) = (port.to_string(), path("s.crt"), path("s.key"), path("ca.crt"));
    let options = [
        "--tls-port",
        &port,
        "--tls-cert-file",
        &cert,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ca,
        "--tls-auth-clients",
        "no",
    ];
    let Some(_redis) = Redis::start(&options) else { return };
    let [mut a, _] = Bed::pair(29);
    let url = format!("rediss://localhost:{port}");
    let mut command = a.command("net.toml", &url);
    command.env("SSL_CERT_FILE", &ca);
    let (_running, _): (Running, String) = Bed::run(command);
    let signed = a.signed(1, now(), 60);
    assert_eq!(a.publish(signed), Body::Published);
    assert!(a.is_found(1));
    drop(_running);
    let (status, said) = failed(&a, &url);
    assert!(status != Some(0) && said.contains("ertificate"), "{status:?} {said}");
}
