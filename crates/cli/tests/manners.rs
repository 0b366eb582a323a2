//! What new users of `get` type, as they know it from curl, wget and aria2.

mod common;

use std::fs;
use std::path::Path;

use common::fetch::{Done, names, run};
use common::site::{PATH, Reply, Site, honest};
use common::terminal::on_a_terminal;
use common::{anabranch, noise};

const LENGTH: usize = 300_000;

fn get(dir: &Path, args: &[&str]) -> Done {
    let mut command = anabranch();
    command.current_dir(dir).arg("get").args(args);
    run(command)
}

#[test]
fn options_that_users_of_curl_know() {
    let (dir, content) = (tempfile::tempdir().expect("a directory"), noise(LENGTH));
    let site = Site::good(&content);
    let url = site.url();
    let url = url.as_str();
    let without_scheme = url.trim_start_matches("http://");
    for args in [
        &["-LO", url][..],
        &["-L", "-O", "-C", "-", url],
        &["--location", "--remote-name", "--continue-at", "-", url],
        &["--interface", "127.0.0.1", url],
        &[without_scheme],
    ] {
        get(dir.path(), args).expect(0);
        assert!(fs::read(dir.path().join("f.bin")).expect("a file") == content, "{args:?}");
        assert_eq!(names(dir.path()), ["f.bin"]);
        fs::remove_file(dir.path().join("f.bin")).expect("removed");
    }
    for (args, says) in [
        (&["-x", "2", url][..], "the number of connections that aria2 means by it need not be said"),
        (&["-x16", url][..], "this is the proxy, as with curl"),
        (&["-C", "100", url][..], "only -C - can be meant"),
        (&["-Z", url][..], "unexpected argument '-Z' found (see anabranch get --help)"),
        (&["no-such-file"][..], "neither a URI of ours"),
    ] {
        let done = get(dir.path(), args).expect(2);
        assert!(done.err.contains(says), "{args:?}: {}", done.err);
        assert_eq!(done.err.lines().count(), 1, "one error, one line: {}", done.err);
        assert!(!done.err.contains("-- -"), "{}", done.err);
    }
}

#[test]
fn a_directory_that_is_named_as_one_is_made() {
    let (dir, content) = (tempfile::tempdir().expect("a directory"), noise(LENGTH));
    let site = Site::good(&content);
    get(dir.path(), &[&site.url(), "-o", "new/er/"]).expect(0);
    assert!(fs::read(dir.path().join("new/er/f.bin")).expect("a file") == content);
    let done = get(dir.path(), &[&site.url(), "-o", "none/f"]).expect(6);
    assert!(done.err.contains("there is no directory none"), "{}", done.err);
    assert_eq!(names(dir.path()), ["new"]);
}

/// `/album` leads to a list of what is in it.
fn album(is_listed: bool) -> Site {
    let list = format!(
        "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">{}</metalink>",
        ["one", "two"]
            .map(|name| format!("<file name=\"{name}\"><size>{LENGTH}</size><url>/album/{name}</url></file>"))
            .concat()
    );
    let content = noise(LENGTH);
    Site::answering(move |request| match (request.path.as_str(), request.field("host")) {
        ("/album", _) => Reply::new(301, b"").with("location", "/album/"),
        ("/album/", _) => {
            let page = Reply::new(200, b"<a href=one>one</a>").with("content-type", "text/html");
            let link = ("link", "</list>; rel=describedby; type=\"application/metalink4+xml\"");
            if is_listed { page.with(link.0, link.1) } else { page }
        }
        ("/list", Some(host)) if is_listed => {
            let list = list.replace("<url>/", &format!("<url>http://{host}/"));
            Reply::new(200, list.as_bytes()).with("content-type", "application/metalink4+xml")
        }
        ("/album/one" | "/album/two", _) => honest(request, &content, "\"v\""),
        _ => Reply::new(404, b""),
    })
}

#[test]
fn a_directory_of_a_server_is_said_to_be_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let site = album(false);
    let url = site.url().replace(PATH, "/album");
    let done = get(dir.path(), &[&url]).expect(3);
    assert!(done.err.contains("it is a directory, and the server leads to a web page"), "{}", done.err);
    assert!(done.err.lines().count() == 1 && names(dir.path()).is_empty(), "{}", done.err);
    // Where the server has a Metalink of it, it is fetched by its own name.
    let site = album(true);
    let url = site.url().replace(PATH, "/album/");
    get(dir.path(), &[&url, "-o", "there"]).expect(0);
    assert_eq!(names(&dir.path().join("there")), ["one", "two"]);
}

#[test]
fn an_error_is_said_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let (nothing, dead) = (Site::answering(|_| Reply::new(404, b"")), "http://127.0.0.1:1/f.bin");
    let gone = nothing.url();
    let gone = gone.as_str();
    for args in [&[dead][..], &[gone], &[dead, gone], &[dead, "http://127.0.0.1:2/f.bin"]] {
        let done = get(dir.path(), args);
        assert!(done.code.is_some_and(|code| code > 2), "{}", done.err);
        assert_eq!(done.err.lines().count(), 1, "{args:?}: {}", done.err);
    }
    // One that does not have it is told if another has.
    let good = Site::good(&noise(LENGTH));
    let done = get(dir.path(), &[dead, &good.url()]).expect(0);
    assert!(done.err.contains("127.0.0.1:1: it cannot be reached"), "{}", done.err);
}

#[test]
fn at_80_columns_loss_and_state_are_whole() {
    let (dir, content) = (tempfile::tempdir().expect("a directory"), noise(3_000_000));
    let site = Site::slow(&content, 2_000_000);
    let (program, target) = (env!("CARGO_BIN_EXE_anabranch"), dir.path().join("f"));
    let url = site.url().replace("127.0.0.1", "localhost");
    let said = on_a_terminal(&format!("{program} get {url} -o {} --via 127.0.0.1", target.display()), None);
    assert!(fs::read(&target).expect("it came") == content, "{said}");
    let said = console::strip_ansi_codes(&said).replace('\r', "");
    let rows: Vec<&str> = said.lines().filter(|line| line.starts_with("localhost:")).collect();
    assert!(rows.len() > 2, "{said}");
    for row in rows {
        assert!(row.chars().count() < 80 && row.contains(" %  "), "{row}");
        assert!(["open", "no answer yet"].iter().any(|state| row.ends_with(state)), "{row}");
    }
}
