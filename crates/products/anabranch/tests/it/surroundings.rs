//! What a transfer takes from its surroundings, and what it leaves there: names, proxies, history.

use std::env;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anabranch::{Control, Get, Report, Result, Serve, Verified};

const CONTENT: &[u8] = b"what is served";

/// A web server that knows no ranges and no hashes, but an `ETag`.
fn plain() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let address = listener.local_addr().expect("an address");
    let answer = |stream: TcpStream| -> io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        loop {
            let (mut first, mut line) = (String::new(), String::from("-"));
            reader.read_line(&mut first)?;
            while !line.trim().is_empty() {
                line.clear();
                reader.read_line(&mut line)?;
            }
            let (status, body) =
                if first.contains(" /f ") { ("200 OK", CONTENT) } else { ("404 Not Found", &b""[..]) };
            let length = body.len();
            write!(&stream, "HTTP/1.1 {status}\r\nETag: \"1\"\r\nContent-Length: {length}\r\n\r\n")?;
            if first.starts_with("GET") {
                (&stream).write_all(body)?;
            }
        }
    };
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream));
        }
    });
    format!("http://{address}/f")
}

fn get<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Get {
    Get::new(names).expect("names").timeout(Duration::from_secs(20))
}

/// Runs it, to a file of its own in `dir`.
fn run(get: &Get, dir: &Path) -> Result<Report> {
    let file = dir.join("f");
    let report = get.to_file(&file).overwrite(true).run(|_| Control::Continue)?;
    assert_eq!(fs::read(&file).expect("a file"), CONTENT);
    fs::remove_file(file).expect("removed");
    Ok(report)
}

/// Whether this process has these variables; if not, runs the test `name` in one that has them.
fn has_variables(name: &str, variables: &[(&str, &str)]) -> bool {
    const CHILD: &str = "ANABRANCH_TEST_CHILD";
    if env::var_os(CHILD).is_some() {
        return true;
    }
    let mut child = Command::new(env::current_exe().expect("this test"));
    child
        .args(["--exact", &format!("surroundings::{name}")])
        .env_remove("no_proxy")
        .env_remove("NO_PROXY")
        .env(CHILD, "1");
    assert!(child.envs(variables.iter().copied()).status().expect("it runs").success());
    false
}

#[test]
fn a_name_is_asked_for_once_in_a_transfer() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, loopback) = (dir.path().join("served"), SocketAddr::from(([127, 0, 0, 1], 0)));
    fs::write(&path, CONTENT).expect("a file");
    let serve = Serve::new().path(path).expect("it is there").listen(loopback).http(loopback);
    let source = serve.cache(None).start().expect("a source");
    let mut url = source.offers()[0].url().expect("a URL").to_owned();
    url = url.replace("127.0.0.1", "source.example");
    assert!(url.contains("source.example"), "{url}");

    let asked = Arc::new(Mutex::new(Vec::new()));
    let names = Arc::clone(&asked);
    let look_up = move |name: &str| {
        names.lock().expect("no panic").push(name.to_owned());
        Ok(vec![loopback])
    };
    // The mirror is asked for what it has, on several connections, and for the file; the source is known by
    // the same name.
    let uri = source.uris().next().expect("an offer").to_owned();
    let mixed =
        get([uri, url.clone()]).from_source(format!("source.example:{}", source.addresses()[0].port()));
    for (get, runs) in [(get([url]), 1), (mixed, 2)] {
        let get = get.proxy_from_env(false).resolver(look_up.clone());
        run(&get, dir.path()).expect("it comes");
        assert_eq!(asked.lock().expect("no panic").as_slice(), vec!["source.example"; runs]);
    }
}

#[test]
fn the_environment_says_which_proxy_unless_it_is_not_asked() {
    // Nobody listens there.
    let name = "the_environment_says_which_proxy_unless_it_is_not_asked";
    if has_variables(name, &[("http_proxy", "http://127.0.0.1:1")]) {
        let (dir, get) = (tempfile::tempdir().expect("a directory"), get([plain()]));
        let error = run(&get, dir.path()).expect_err("by the proxy").to_string();
        assert!(error.contains("the proxy 127.0.0.1:1"), "{error}");
        run(&get.proxy_from_env(false), dir.path()).expect("by no proxy");
    }
}

#[test]
fn history_is_kept_where_it_is_wanted_and_nowhere_else() {
    let dir = tempfile::tempdir().expect("a directory");
    let cache = dir.path().join("cache");
    let name = "history_is_kept_where_it_is_wanted_and_nowhere_else";
    if has_variables(name, &[("XDG_CACHE_HOME", cache.to_str().expect("UTF-8"))]) {
        let default = get([plain()]).proxy_from_env(false);
        let kept = dir.path().join("kept");
        let with_history = default.clone().history(&kept);
        let verified = |get: &Get| run(get, dir.path()).expect("it comes").verified;
        assert_eq!((verified(&default), verified(&default)), (Verified::Nothing, Verified::Nothing));
        assert!(!kept.exists());
        assert_eq!(verified(&with_history), Verified::Nothing);
        assert!(kept.join("urls.jsonl").exists());
        assert_eq!(verified(&with_history), Verified::Unchanged);
        assert_eq!(verified(&default), Verified::Nothing, "it does not look there");
    }
    assert!(!cache.exists());
}
