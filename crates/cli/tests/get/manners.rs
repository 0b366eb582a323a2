//! `get` with options that new users know from curl, wget and aria2.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::common::fetch::{Done, Ground, names, run};
use crate::common::{anabranch, noise};
use crate::peers::site::{PATH, Reply, Site, honest};
use crate::peers::terminal::on_a_terminal;

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
        (&["-c", url][..], "what has come is always gone on with"),
        (&["file:///etc/hostname"][..], "is given by its name, without file:"),
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

/// Makes a site where `/album` leads to a list of its contents.
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
    // With a slash and a name for it, the page itself is fetched, and a message says so.
    let done = get(dir.path(), &[&format!("{url}/"), "-o", "page"]).expect(0);
    assert!(done.err.contains("perhaps one that lists a directory") && done.err.contains("DIR.meta4"));
    fs::remove_file(dir.path().join("page")).expect("the page");
    // If the server has a Metalink of the directory, that is fetched under its own name.
    let site = album(true);
    let url = site.url().replace(PATH, "/album/");
    get(dir.path(), &[&url, "-o", "there"]).expect(0);
    assert_eq!(names(&dir.path().join("there")), ["one", "two"]);
    // A directory with a slash at its end is made.
    get(dir.path(), &[&url, "-o", "music/new/"]).expect(0);
    let own = names(&dir.path().join("music/new"));
    assert_eq!(names(&dir.path().join("music/new").join(&own[0])), ["one", "two"]);
}

/// /dev/stdout is such a link. Replacing the link would be of no use, and would harm other programs.
#[test]
fn a_link_to_a_pipe_or_a_device_is_not_replaced() {
    let dir = tempfile::tempdir().expect("a directory");
    let site = Site::good(&noise(LENGTH));
    let link = dir.path().join("out");
    std::os::unix::fs::symlink("/dev/null", &link).expect("a link");
    for more in [&[][..], &["--force"]] {
        let done = get(dir.path(), &[&[site.url().as_str(), "-o", "out"], more].concat()).expect(6);
        assert!(
            done.err.contains("leads to a pipe or a device") && done.err.contains("say -o -"),
            "{}",
            done.err
        );
        assert!(link.symlink_metadata().expect("it is there").is_symlink());
    }
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
    // A server that does not have the file is named, although another has it.
    let good = Site::good(&noise(LENGTH));
    let done = get(dir.path(), &[dead, &good.url()]).expect(0);
    assert!(done.err.contains("127.0.0.1:1: it cannot be reached"), "{}", done.err);
}

#[test]
fn at_80_columns_loss_and_state_are_whole() {
    let (dir, content) = (tempfile::tempdir().expect("a directory"), noise(3_000_000));
    let site = Site::slow(&content, 2_000_000);
    let (program, target) = (crate::common::program(), dir.path().join("f"));
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

/// Makes a site with the content at any path, where `/latest` and `/` lead to `/film-2.bin`.
fn odd_names(content: &[u8]) -> Site {
    let content = content.to_vec();
    Site::answering(move |request| match request.path.as_str() {
        "/latest" | "/" => Reply::new(302, b"").with("location", "/film-2.bin"),
        "/download" => {
            let name = "attachment; filename=\"../film.bin\"";
            honest(request, &content, "\"v\"").with("content-disposition", name)
        }
        path if [".meta4", ".b3leaves", ".b3"].iter().any(|end| path.ends_with(end)) => Reply::new(404, b""),
        _ => honest(request, &content, "\"v\""),
    })
}

#[test]
fn a_name_that_is_not_taken_is_told() {
    let content = noise(LENGTH);
    let site = odd_names(&content);
    let at = |path: &str| site.url().replace(PATH, path);
    let host = at("").replace("http://", "");
    let list = "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\".netrc\"><url>URL</url>\
                </file></metalink>";
    let uri = |name: &str, path: &str| {
        let mut uri = anabranch_mmtp::uri::Uri::new(anabranch_mmtp::ContentId::of(&content));
        uri.name = Some(name.into());
        uri.mirrors = vec![at(path)];
        uri.to_string()
    };
    let long = format!("/{}", "a".repeat(256));
    for (names, refused, called) in [
        (vec![at("/.profile")], format!("the URL of {host} has the name '.profile', which is hidden"), None),
        (vec![at("/.profile"), at("/b.bin")], "'.profile', which is hidden".into(), Some("b.bin")),
        (vec![at("/a%2Fb")], "'a/b', which contains a slash".into(), None),
        (vec![at("/%1b%00")], "'\\x1b\\x00', which contains a NUL byte".into(), None),
        (vec![at(&long)], format!("'{}…', which is longer than 255 bytes", "a".repeat(80)), None),
        (vec![uri(".bashrc", "/u.bin")], "the URI has the name '.bashrc', which is".into(), Some("u.bin")),
        (vec!["l.meta4".into()], "the Metalink has the name '.netrc', which is".into(), Some("m.bin")),
        (vec![at("/download")], format!("{host} calls it '../film.bin', but"), Some("download")),
        (vec![at("/")], String::new(), Some("index.html")),
        // A name from the URL or the URI needs no message, and neither does one that the user chooses.
        (vec![at("/latest")], String::new(), Some("latest")),
        (vec![uri("film", "/download")], String::new(), Some("film")),
        (vec![at("/.profile"), "--output=x".into()], String::new(), Some("x")),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("l.meta4"), list.replace("URL", &at("/m.bin"))).expect("a file");
        let args: Vec<&str> = names.iter().map(String::as_str).chain(["--no-history"]).collect();
        let done = get(dir.path(), &args).expect(0);
        fs::remove_file(dir.path().join("l.meta4")).expect("removed");
        let there = crate::common::fetch::names(dir.path());
        let [there] = &there[..] else { panic!("{args:?}: {there:?}") };
        assert!(fs::read(dir.path().join(there)).expect("a file") == content, "{args:?}");
        assert!(called.is_none_or(|called| there == called), "{args:?}: {there}");
        assert!(called.is_some() || there.len() == 16, "{args:?}: {there}");
        let told: Vec<&str> = done.err.lines().filter(|line| line.contains("it is called ")).collect();
        match (&told[..], refused.is_empty()) {
            ([], true) => {}
            ([line], false) => {
                let instead = format!(": it is called {there}; --output chooses a name");
                assert!(line.contains(&refused) && line.ends_with(&instead), "{args:?}: {line}");
            }
            _ => panic!("{args:?}: {}", done.err),
        }
    }
}

/// `| head` causes no error and no panic. A full disk is an error, although the file has been fetched.
#[test]
fn a_reader_that_is_gone_is_no_error_and_a_full_disk_is_one() {
    let ground = Ground::new(1_000);
    let site = Site::good(&ground.content);
    let url = site.url();
    let get = ["get", "--json", "--force", &url, "-o", "f"];
    let rules = ["proxy", "rules", "--transparent", "[::1]:1081", "--server", "192.0.2.7"];
    for args in [&get[..], &rules, &["kernel", "status"], &["get", "--help"], &["--version"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let run = |out: Stdio| {
            let mut command = anabranch();
            command.args(args).current_dir(ground.to()).stdout(out).stderr(Stdio::piped());
            command.output().expect("it runs")
        };
        let gone = run(writer.into());
        let says = String::from_utf8_lossy(&gone.stderr).into_owned();
        assert_eq!(gone.status.code(), Some(0), "{args:?}: {says}");
        assert!(!says.contains("panicked") && !says.contains("standard output"), "{args:?}: {says}");
        let full = run(fs::OpenOptions::new().write(true).open("/dev/full").expect("a device").into());
        let says = String::from_utf8_lossy(&full.stderr).into_owned();
        assert_eq!(full.status.code(), Some(6), "{args:?}: {says}");
        assert!(says.contains("cannot write to standard output: No space left"), "{args:?}: {says}");
    }
    ground.assert_arrived();
}
