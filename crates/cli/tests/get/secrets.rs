//! Which servers get secrets: header fields, cookies, names and passwords. Servers on loopback with different
//! ports are different origins (RFC 6454). Each server records its requests.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::common::fetch::{Done, run};
use crate::common::{anabranch, noise};
use crate::peers::site::{PATH, Reply, Request, Site, honest};
use crate::peers::terminal::on_a_terminal;
use anabranch_mmtp::ContentId;
use anabranch_mmtp::id::BLOCK_BYTES;
use anabranch_mmtp::uri::Uri;
use sha2::{Digest as _, Sha256};

const LENGTH: usize = 40 * BLOCK_BYTES + 77;

/// The header fields that contain a secret in these tests.
const FIELDS: [&str; 3] = ["authorization", "cookie", "x-api-key"];

fn has(request: &Request, field: &str) -> bool {
    request.field(field).is_some()
}

/// Makes a server that has the file; `more` adds to its answers.
fn site(content: &[u8], more: impl Fn(&Request, Reply) -> Reply + Send + Sync + 'static) -> Site {
    let content = content.to_vec();
    Site::answering(move |request| {
        let reply = match request.path == PATH {
            true => honest(request, &content, "\"v\""),
            false => Reply::new(404, b""),
        };
        more(request, reply)
    })
}

fn metalink(content: &[u8], urls: &[String]) -> String {
    let urls: String = urls.iter().map(|url| format!("<url>{url}</url>")).collect();
    format!(
        "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"f\"><size>{}</size>\
         <hash type=\"sha-256\">{}</hash>{urls}</file></metalink>",
        content.len(),
        data_encoding::HEXLOWER.encode(&Sha256::digest(content))
    )
}

struct Ground {
    dir: tempfile::TempDir,
    content: Vec<u8>,
}

impl Ground {
    fn new() -> Self {
        let ground = Self { dir: tempfile::tempdir().expect("a directory"), content: noise(LENGTH) };
        fs::write(ground.netrc(), "machine 127.0.0.1 login ann password secret\n").expect("a file");
        ground
    }

    fn netrc(&self) -> PathBuf {
        self.dir.path().join("netrc")
    }

    fn command(&self, names: &[String]) -> Command {
        let mut command = anabranch();
        for name in ["http_proxy", "https_proxy", "all_proxy", "HTTPS_PROXY", "ALL_PROXY"] {
            command.env_remove(name);
        }
        command.args(["get", "--force", "--output"]).arg(self.dir.path().join("f")).args(names);
        command
    }

    /// Fetches with each kind of secret, and passes the fields that were sent to `each`.
    fn with_each_secret(&self, names: &[String], mut each: impl FnMut(&[&str], &Done)) {
        let netrc = format!("--netrc={}", self.netrc().display());
        for (fields, options) in [
            (&FIELDS[..], &["-H", "X-Api-Key: k", "-H", "Cookie: c=1", "-H", "Authorization: Bearer t"][..]),
            (&FIELDS[..1], &["-u", "ann:secret"][..]),
            (&FIELDS[..1], &[&*netrc][..]),
        ] {
            let mut command = self.command(names);
            command.args(options);
            each(fields, &run(command));
        }
    }

    /// Checks a fetch of these names: `named` gets every secret with every request, and `stranger` is asked
    /// but gets none. Then clears the requests of both.
    fn assert_kept(&self, names: &[String], named: Option<&Site>, stranger: &Site) {
        self.with_each_secret(names, |fields, done| {
            assert_eq!(done.code, Some(0), "{names:?} {fields:?}: {}", done.err);
            for field in fields {
                if let Some(named) = named {
                    assert!(named.seen().iter().all(|request| has(request, field)), "{names:?} {field}");
                }
                let told: Vec<_> = stranger.seen().iter().filter(|r| has(r, field)).cloned().collect();
                assert!(told.is_empty(), "{names:?} {field}: {told:?}");
            }
            assert!(!stranger.seen().is_empty(), "{names:?}: {}", done.err);
            assert!(named.is_none_or(|named| !named.seen().is_empty()), "{names:?}: {}", done.err);
            stranger.seen().clear();
            if let Some(named) = named {
                named.seen().clear();
            }
        });
    }
}

#[test]
fn who_is_named_by_another_server_gets_none() {
    let ground = Ground::new();
    let content = &ground.content;
    let stranger = site(content, |_, reply| reply);
    let url = stranger.url();
    // The whole file redirects, or only its ranges.
    let to = url.clone();
    let leads = site(content, move |_, _| Reply::new(302, b"").with("location", to.clone()));
    ground.assert_kept(&[leads.url()], Some(&leads), &stranger);
    let to = url.clone();
    let leads = site(content, move |request, reply| match request.is_for_bytes() && request.path == PATH {
        true => Reply::new(307, b"").with("location", to.clone()),
        false => reply,
    });
    ground.assert_kept(&[leads.url()], Some(&leads), &stranger);
    // A header field names a mirror.
    let link = format!("<{url}>; rel=duplicate");
    let links = site(content, move |_, reply| reply.with("link", link.clone()));
    ground.assert_kept(&[links.url()], Some(&links), &stranger);
    // A header field names a Metalink, or a Metalink is beside the file.
    let list = metalink(content, std::slice::from_ref(&url));
    let lists = site(content, move |request, reply| match request.path.as_str() {
        "/list" => Reply::new(200, list.as_bytes()).with("content-type", "application/metalink4+xml"),
        _ => reply.with("link", "</list>; rel=describedby; type=\"application/metalink4+xml\""),
    });
    ground.assert_kept(&[lists.url()], Some(&lists), &stranger);
    let list = metalink(content, std::slice::from_ref(&url));
    let beside = site(content, move |request, reply| match request.path.ends_with(".meta4") {
        true => Reply::new(200, list.as_bytes()),
        false => reply,
    });
    ground.assert_kept(&[beside.url()], Some(&beside), &stranger);
    // The Metalink is given by its URL, so its server is the one that is named.
    ground.assert_kept(&[format!("{}.meta4", beside.url())], Some(&beside), &stranger);
}

#[test]
fn who_is_named_in_what_somebody_else_wrote_gets_none() {
    let ground = Ground::new();
    let stranger = site(&ground.content, |_, reply| reply);
    let list = ground.dir.path().join("f.meta4");
    fs::write(&list, metalink(&ground.content, &[stranger.url()])).expect("a file");
    ground.assert_kept(&[list.to_str().expect("UTF-8").to_owned()], None, &stranger);
    let mut uri = Uri::new(ContentId::of(&ground.content));
    uri.mirrors.push(stranger.url());
    ground.assert_kept(&[uri.to_string()], None, &stranger);
    let named = site(&ground.content, |_, reply| reply);
    ground.assert_kept(&[uri.to_string(), named.url()], Some(&named), &stranger);
}

#[test]
fn who_the_user_names_gets_all_of_them() {
    let ground = Ground::new();
    // The secret goes along wherever the server redirects within itself.
    let within = site(&ground.content, |request, reply| match request.path.as_str() {
        "/first" => Reply::new(302, b"").with("location", PATH),
        _ => reply,
    });
    let both = [site(&ground.content, |_, reply| reply), site(&ground.content, |_, reply| reply)];
    let first = within.url().replace(PATH, "/first");
    for (names, sites) in
        [(vec![first], vec![&within]), (both.each_ref().map(Site::url).to_vec(), both.iter().collect())]
    {
        ground.with_each_secret(&names, |fields, done| {
            assert_eq!(done.code, Some(0), "{names:?}: {}", done.err);
            for site in &sites {
                assert!(!site.seen().is_empty(), "{names:?}");
                let all = |field: &&str| site.seen().iter().all(|request| has(request, field));
                assert!(fields.iter().all(all), "{names:?}: {:?}", site.seen());
            }
        });
    }
}

#[test]
fn who_refuses_for_want_of_a_secret_can_be_named() {
    let ground = Ground::new();
    let closed =
        site(
            &ground.content,
            |request, reply| {
                if has(request, "authorization") { reply } else { Reply::new(401, b"") }
            },
        );
    let list = ground.dir.path().join("f.meta4");
    fs::write(&list, metalink(&ground.content, &[closed.url()])).expect("a file");
    let list = list.to_str().expect("UTF-8").to_owned();
    ground.with_each_secret(std::slice::from_ref(&list), |_, done| {
        assert_eq!(done.code, Some(9), "{}", done.err);
        let says = "what --user, --header and --netrc say goes only to servers";
        assert!(done.err.contains(says) && done.err.contains("name a URL of this one, too"), "{}", done.err);
    });
    ground.with_each_secret(&[list, closed.url()], |_, done| assert_eq!(done.code, Some(0), "{}", done.err));
}

#[test]
fn a_name_alone_asks_for_the_password() {
    let ground = Ground::new();
    let closed = site(&ground.content, |request, reply| {
        let is_right = request.field("authorization") == Some("Basic Ym9iOnMgZWNyZXQ=");
        if is_right { reply } else { Reply::new(401, b"") }
    });
    // Without a terminal, no password can be asked for.
    let mut command = ground.command(&[closed.url()]);
    command.args(["-u", "bob", "--json"]);
    let done = run(command).expect(2);
    assert!(done.err.contains("no terminal to ask for the password of bob"), "{}", done.err);
    assert!(done.err.contains("--user bob:PASSWORD") && done.err.contains("--netrc"), "{}", done.err);
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
    assert!(closed.seen().is_empty());
    // `script` provides a terminal.
    let target = ground.dir.path().join("f");
    let (program, url) = (crate::common::program(), closed.url());
    let line = format!("{program} get {url} -o {} -u bob", target.display());
    let said = on_a_terminal(&line, Some(("password of bob: ", "s ecret\n")));
    assert!(fs::read(&target).expect("it came") == ground.content, "{said}");
    assert!(!said.contains("ecret"), "it is not shown: {said}");
}
