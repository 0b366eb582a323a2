//! Directories from mirrors: a Metalink of several files made by `mirror-list make` and fetched by `get`,
//! from real nginx that works correctly, and from servers that do not.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::anabranch;
use crate::common::fetch::{run, skipped, spawn};
use crate::common::{noise, wait_until};
use crate::peers::nginx::Nginx;
use crate::peers::site::gone;
use nix::sys::signal::Signal;
use sha2::{Digest as _, Sha256};

/// The files of a directory by their paths.
type Tree = BTreeMap<String, Vec<u8>>;

/// A directory on mirrors, its Metalink, and a directory for the files that arrive.
struct Dist {
    dir: tempfile::TempDir,
    nginx: Nginx,
    tree: Tree,
}

impl Dist {
    /// Makes one mirror for each of `servers`, which are further lines for the server's block.
    fn new(test: &str, tree: Tree, servers: &[&str]) -> Option<Self> {
        let nginx = Nginx::start(test, servers)?;
        let dir = tempfile::tempdir().expect("a directory");
        let new = Self { dir, nginx, tree };
        write(&new.dir.path().join("dist"), &new.tree);
        for server in 0..servers.len() {
            write(&new.nginx.root(server).join("dist"), &new.tree);
        }
        let urls: Vec<String> = (0..servers.len()).map(|server| new.nginx.url(server, "dist/")).collect();
        let done = run(make(&new.dir.path().join("dist"), &urls)).expect(0);
        assert_eq!(Path::new(done.out.trim()), new.metalink());
        Some(new)
    }

    fn metalink(&self) -> PathBuf {
        self.dir.path().join("dist.meta4")
    }

    fn to(&self) -> PathBuf {
        self.dir.path().join("to")
    }

    fn get(&self, more: &[&str]) -> Command {
        let mut command = anabranch();
        command.arg("get").arg(self.metalink()).arg("--output").arg(self.to()).args(more);
        command
    }

    fn assert_arrived(&self) {
        assert_same(&read(&self.to()), &self.tree);
    }
}

/// Makes a `get` that runs in a directory.
fn get_in(dir: &Path, args: &[&str]) -> Command {
    let mut command = anabranch();
    command.current_dir(dir).arg("get").args(args);
    command
}

/// Makes a `get` that runs in a directory and has its cache there.
fn get_with_cache(dir: &Path, args: &[&str]) -> Command {
    let mut command = get_in(dir, args);
    command.env("XDG_CACHE_HOME", dir.join("cache"));
    command
}

fn make(dir: &Path, urls: &[String]) -> Command {
    let mut command = anabranch();
    command.args(["mirror-list", "make", "--quiet"]).arg(dir).args(urls);
    command
}

fn write(dir: &Path, tree: &Tree) {
    for (name, bytes) in tree {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, bytes).expect("a file");
    }
}

/// Reads all files below a directory.
fn read(dir: &Path) -> Tree {
    let (mut tree, mut dirs) = (Tree::new(), vec![dir.to_owned()]);
    while let Some(next) = dirs.pop() {
        for entry in fs::read_dir(next).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                let name = path.strip_prefix(dir).expect("below it").to_str().expect("UTF-8").to_owned();
                tree.insert(name, fs::read(path).expect("a file"));
            }
        }
    }
    tree
}

fn assert_same(found: &Tree, wanted: &Tree) {
    let names = |tree: &Tree| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(wanted));
    for (name, bytes) in wanted {
        assert!(found.get(name) == Some(bytes), "other bytes in {name}");
    }
}

/// Makes small files with various names and lengths, all of them different.
fn small(count: usize, bytes: usize) -> Tree {
    let content = noise(bytes + count);
    let mut tree = Tree::new();
    for n in 0..count {
        let name = match n % 5 {
            0 => format!("{n}.txt"),
            1 => format!("d{}/{n} with spaces.bin", n % 7),
            2 => format!("deep/er/{}/ü{n}#?.html", n % 3),
            3 => format!("100%/{n}+a;b=c.dat"),
            _ => format!(".hidden/.{n}"),
        };
        tree.insert(name, content[n..n + 1 + bytes * (n % 10 + 1) / 10].to_vec());
    }
    tree
}

/// Makes files of the same length.
fn alike(count: usize, bytes: usize) -> Tree {
    let content = noise(bytes + count);
    (0..count).map(|n| (format!("f{n}.bin"), content[n..n + bytes].to_vec())).collect()
}

#[test]
fn three_hundred_small_files_and_a_long_one() {
    let mut tree = small(300, 20_000);
    tree.insert("long.bin".into(), noise(9 << 20));
    tree.insert("empty".into(), Vec::new());
    let Some(dist) = Dist::new("a directory from mirrors", tree, &["", ""]) else { return };
    let all: u64 = dist.tree.values().map(|bytes| bytes.len() as u64).sum();
    let done = run(dist.get(&["--json"])).expect(0);
    dist.assert_arrived();
    let summary = done.summary();
    assert_eq!((&summary["complete"], &summary["verified"]), (&true.into(), &"files".into()), "{summary}");
    assert_eq!(summary["last"]["total_bytes"], all);
    assert_eq!(summary["last"]["done_bytes"], all);
    let each: Vec<u64> = dist.nginx.addresses.iter().map(|address| done.bytes_from(*address)).collect();
    assert!(each.iter().all(|bytes| *bytes > 0) && each.iter().sum::<u64>() == all, "{each:?}");
    // The second time everything is there, and no server is asked.
    let done = run(dist.get(&[])).expect(0);
    assert!(done.err.contains("verified, all of it was there"), "{}", done.err);
    // A file with other content stays.
    fs::write(dist.to().join("0.txt"), b"mine").expect("a file");
    let done = run(dist.get(&[])).expect(6);
    assert!(done.err.contains("0.txt is there already"), "{}", done.err);
    assert_eq!(fs::read(dist.to().join("0.txt")).expect("a file"), b"mine");
    run(dist.get(&["--force"])).expect(0);
    dist.assert_arrived();
}

#[test]
fn a_metalink_from_a_server_names_no_hidden_files() {
    let mut tree = small(50, 20_000);
    let Some(dist) = Dist::new("a directory by its URL", tree.clone(), &[""]) else { return };
    let cwd = dist.dir.path().join("cwd");
    fs::create_dir(&cwd).expect("a directory");
    let get = |more: &[&str]| {
        fs::copy(dist.metalink(), dist.nginx.root(0).join("dist.meta4")).expect("a copy");
        run(get_in(&cwd, &[&[dist.nginx.url(0, "dist.meta4").as_str()], more].concat()))
    };
    let done = get(&[]).expect(2);
    assert!(done.err.contains("names a hidden file (.hidden/.14)"), "{}", done.err);
    assert!(done.err.contains("fetch it by its file name"), "{}", done.err);
    assert_eq!(fs::read_dir(&cwd).expect("a directory").count(), 0, "nothing is written");
    // Without the hidden files, the directory arrives under the Metalink's name.
    tree.retain(|name, _| !name.starts_with('.'));
    fs::remove_dir_all(dist.dir.path().join("dist/.hidden")).expect("the directory");
    let mut command = make(&dist.dir.path().join("dist"), &[dist.nginx.url(0, "dist/")]);
    command.arg("--force");
    run(command).expect(0);
    let done = get(&[&dist.nginx.url(0, "dist.meta4?other")]).expect(2);
    assert!(done.err.contains("fetch other Metalinks by themselves"), "{}", done.err);
    get(&[]).expect(0);
    assert_same(&read(&cwd.join("dist")), &tree);
    assert_eq!(fs::read_dir(&cwd).expect("a directory").count(), 1);
}

#[test]
fn a_refusal_is_of_one_file() {
    let servers = ["location = /dist/0.txt { return 401; } location = /dist/5.txt { return 451; }"];
    let Some(dist) = Dist::new("a refused file", small(100, 20_000), &servers) else { return };
    let done = run(dist.get(&["--json"])).expect(9);
    assert!(done.err.contains("2 of 100 files could not be had (0.txt): "), "{}", done.err);
    assert!(done.err.contains("a name and a password (401): name a URL of this server"), "{}", done.err);
    assert!(done.err.contains("(5.txt): no mirror has them ("), "{}", done.err);
    assert!(done.err.contains("the server answers 451)"), "{}", done.err);
    assert_eq!(read(&dist.to()).len(), 98);
    // A larger file that is complete needs no mirror, and a silent server does not hold up other files.
    let dir = tempfile::tempdir().expect("a directory");
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/a", silent.local_addr().expect("an address"));
    let path = dir.path().join("x.meta4");
    let (gone, long) = ("http://127.0.0.1:1/long", noise(5 << 20));
    let there = dist.nginx.url(0, "dist/10.txt");
    metalink(&path, &[("a", Some(b"x"), &url), ("long", Some(&long), gone), ("b", None, &there)]);
    fs::create_dir(dir.path().join("x")).expect("a directory");
    fs::write(dir.path().join("x/long"), &long).expect("a file");
    let done = run(get_with_cache(dir.path(), &["--timeout=2", "x.meta4"])).expect(4);
    assert!(done.err.contains("1 of 3 files could not be had (a): no mirror has answered"), "{}", done.err);
    assert_eq!(fs::read(dir.path().join("x/b")).expect("a file"), dist.tree["10.txt"]);
}

/// Runs a server that answers pipelined requests in reverse order, and counts in `mixed` how often it did.
fn reversing(tree: &Tree, mixed: &Arc<AtomicUsize>) -> String {
    let (tree, mixed) = (tree.clone(), Arc::clone(mixed));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    let serve = move |mut stream: TcpStream| {
        stream.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        let (mut text, mut piece) = (String::new(), [0; 65_536]);
        loop {
            match stream.read(&mut piece) {
                Ok(0) => return,
                Ok(n) => text += &String::from_utf8_lossy(&piece[..n]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    let asked = std::mem::take(&mut text);
                    let names = asked.lines().filter_map(|line| line.strip_prefix("GET /"));
                    let names: Vec<&str> = names.filter_map(|line| line.split(' ').next()).collect();
                    mixed.fetch_add(usize::from(names.len() > 1), Ordering::Relaxed);
                    for name in names.into_iter().rev() {
                        let body = &tree[name];
                        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                        if stream.write_all(&[head.as_bytes(), body].concat()).is_err() {
                            return;
                        }
                    }
                }
                Err(_) => return,
            }
        }
    };
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            thread::spawn(move || serve(stream));
        }
    });
    url
}

#[test]
fn a_server_that_mixes_answers_up_is_no_liar() {
    let dir = tempfile::tempdir().expect("a directory");
    // The first tree has files of one length, the second of many.
    for (test, tree) in [alike(40, 3_000), (0..40).map(|n| (format!("g{n}"), noise(n * 99))).collect()]
        .into_iter()
        .enumerate()
    {
        let mixed = Arc::default();
        let url = reversing(&tree, &mixed);
        let dist = dir.path().join(format!("dist{test}"));
        write(&dist, &tree);
        run(make(&dist, &[url])).expect(0);
        let to = dir.path().join(format!("to{test}"));
        let mut command = anabranch();
        command.args(["get", "--json", "--output"]).arg(&to).arg(dist.with_extension("meta4"));
        let done = run(command).expect(0);
        assert_same(&read(&to), &tree);
        assert!(done.banned().is_empty(), "{}", done.out);
        assert!(mixed.load(Ordering::Relaxed) > 0, "requests are sent ahead");
    }
}

#[test]
fn passwords_are_for_servers_that_the_command_line_names() {
    let auth = "auth_basic \"closed\"; auth_basic_user_file users;";
    let mut tree = small(30, 2_000);
    // A server may not choose a hidden name.
    tree.retain(|name, _| !name.starts_with('.'));
    tree.insert("long.bin".into(), noise(5 << 20));
    let Some(dist) = Dist::new("a directory with a password", tree, &[auth]) else { return };
    let users = dist.nginx.root(0).parent().expect("a parent").join("users");
    fs::write(users, "me:{PLAIN}se+cret\n").expect("a file");
    let done = run(dist.get(&["--user", "me:se+cret"])).expect(9);
    assert!(done.err.contains("25 of 25 files could not be had ("), "{}", done.err);
    let note =
        format!("\nlong.bin: no mirror gives the file: {}: the server wants a name", dist.nginx.name(0));
    assert!(done.err.contains(&note), "{}", done.err);
    let says = "(401): what --user, --header and --netrc say goes only to";
    assert!(done.err.contains(says), "{}", done.err);
    let netrc = dist.dir.path().join("netrc");
    let host = dist.nginx.addresses[0].ip();
    fs::write(&netrc, format!("machine {host} login me password se+cret\n")).expect("a file");
    let netrc = format!("--netrc={}", netrc.display());
    let done = run(dist.get(&[&netrc])).expect(9);
    assert!(done.err.contains(says), "nobody proves to be that host: {}", done.err);
    // A user who gives the URL of the Metalink also names its server.
    dist.nginx.put(0, "dist.meta4", &fs::read(dist.metalink()).expect("a file"));
    let mut by_url = anabranch();
    by_url.args(["get", &dist.nginx.url(0, "dist.meta4"), &netrc, "--output"]).arg(dist.to());
    run(by_url).expect(0);
    dist.assert_arrived();
}

/// Returns how many of the files are there.
fn whole(dist: &Dist) -> usize {
    dist.tree.keys().filter(|name| dist.to().join(name).exists()).count()
}

#[test]
fn it_goes_on_after_a_kill_and_after_ctrl_c() {
    let mut tree = alike(60, 300_000);
    tree.insert("long.bin".into(), noise(6 << 20));
    let Some(dist) = Dist::new("a directory resumed", tree, &["limit_rate 3m;"]) else { return };
    for (signal, code) in [(Signal::SIGKILL, None), (Signal::SIGINT, Some(130))] {
        let before = whole(&dist);
        let running = spawn(dist.get(&["--json"]));
        wait_until(60, || whole(&dist) >= before + 10);
        running.signal(signal);
        let done = running.end();
        assert_eq!(done.code, code, "{}", done.err);
        for (name, bytes) in read(&dist.to()) {
            let is_part = name.starts_with(".anabranch-part.");
            assert!(is_part || dist.tree[&name] == bytes, "{name}");
            assert!(!is_part || signal == Signal::SIGKILL, "{name} is left");
        }
    }
    let there = whole(&dist) as u64;
    let summary = run(dist.get(&["--json"])).expect(0).summary();
    dist.assert_arrived();
    assert_eq!(summary["last"]["resumed_bytes"].as_u64(), Some(there * 300_000));
}

fn sha256(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(&Sha256::digest(bytes))
}

/// Writes a Metalink with these files, each at this URL, and with at most its SHA-256.
fn metalink(path: &Path, files: &[(&str, Option<&[u8]>, &str)]) {
    let mut text = String::from("<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">\n");
    for (name, bytes, url) in files {
        let hash = bytes.map(|bytes| {
            let hash = sha256(bytes);
            format!("<size>{}</size><hash type=\"sha-256\">{hash}</hash>", bytes.len())
        });
        text += &format!("<file name=\"{name}\">{}<url>{url}</url></file>\n", hash.unwrap_or_default());
    }
    fs::write(path, text + "</metalink>\n").expect("a file");
}

#[test]
fn names_that_are_not_safe_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("x.meta4");
    let get = || run(get_in(dir.path(), &["--timeout=2", "x.meta4"]));
    let url = "http://127.0.0.1:1/a";
    for bad in ["../evil", "/etc/evil", "a/../../evil", "a//b", "./a", "a&#10;b"] {
        metalink(&path, &[("good", Some(b"x"), url), (bad, Some(b"y"), url)]);
        let done = get().expect(2);
        assert!(done.err.contains("not safe"), "{}", done.err);
    }
    metalink(&path, &[("good", Some(b"x"), url), ("d/.anabranch-part.1", Some(b"y"), url)]);
    assert!(get().expect(1).err.contains("refused"), "a name of ours");
    metalink(&path, &[("same", Some(b"x"), url), ("same", Some(b"y"), url)]);
    assert!(get().expect(2).err.contains("has same twice"));
    metalink(&path, &[("a", Some(b"x"), url), ("a/b", Some(b"y"), url)]);
    assert!(
        get().expect(2).err.contains("a/b, and a part of that name as a file, too"),
        "one cannot be both"
    );
    // A link that leads outside is not followed.
    let outside = tempfile::tempdir().expect("a directory");
    assert!(!dir.path().join("x").exists(), "nothing came, so nothing is left");
    fs::create_dir(dir.path().join("x")).expect("a directory");
    std::os::unix::fs::symlink(outside.path(), dir.path().join("x/link")).expect("a link");
    metalink(&path, &[("good", Some(b"x"), url), ("link/evil", Some(b"y"), url)]);
    assert!(get().expect(6).err.contains("symbolic links are not followed"));
    assert_eq!(fs::read_dir(outside.path()).expect("a directory").count(), 0);
}

#[test]
fn what_makes_no_sense_beside_several_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let url = "http://127.0.0.1:1/a";
    metalink(&dir.path().join("x.meta4"), &[("a", Some(b"x"), url), ("b", Some(b"y"), url)]);
    let uri = format!("anabranch:{}?len=1", anabranch_mmtp::ContentId::of(b"x"));
    let sum = format!("--checksum=sha-256={}", "0".repeat(64));
    for (more, says) in [
        (sum.as_str(), "--checksum is of one file"),
        ("--from=127.0.0.1:1", "a URI of its own"),
        (&uri, "the URI names one content"),
        (url, "name one file"),
        ("http://127.0.0.1:1/other.meta4", "fetch other Metalinks by themselves"),
    ] {
        let done = run(get_in(dir.path(), &["x.meta4", more])).expect(2);
        assert!(done.err.contains("describes 2 files") && done.err.contains(says), "{}", done.err);
    }
    assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 1);
    // Conversely, a directory is given by its URI, with URLs that do not help.
    let done = run(get_in(dir.path(), &[&format!("{uri}&dir"), url])).expect(2);
    assert!(
        done.err.contains("need the Metalink of its files") && done.err.contains("--from"),
        "{}",
        done.err
    );
    let done = run(get_in(dir.path(), &[&format!("{uri}&dir"), "x.meta4"])).expect(2);
    assert!(done.err.contains("leave it out, and what the Metalink names comes from"), "{}", done.err);
    // With two Metalinks, no server is asked even for the first.
    let two = ["http://127.0.0.1:1/one.meta4", "http://127.0.0.1:1/two.meta4"];
    assert!(
        run(get_in(dir.path(), &two))
            .expect(2)
            .err
            .contains("two Metalinks: fetch other Metalinks by themselves")
    );
}

#[test]
fn files_without_a_hash_are_called_unverified() {
    let Some(nginx) = Nginx::start("files without a hash", &[""]) else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let (one, two) = (noise(50_000), b"<html>".to_vec());
    nginx.put(0, "one", &one);
    nginx.put(0, "two.html", &two);
    let path = dir.path().join("x.meta4");
    metalink(&path, &[("one", None, &nginx.url(0, "one")), ("d/two", Some(&two), &nginx.url(0, "two.html"))]);
    let done = run(get_with_cache(dir.path(), &["--json", "x.meta4"])).expect(0);
    assert!(done.advice().contains("there is no hash of 1 file:"), "{}", done.out);
    assert_eq!(done.summary()["verified"], "nothing");
    let tree = read(&dir.path().join("x"));
    assert_same(&tree, &Tree::from([("one".into(), one), ("d/two".into(), two)]));
}

#[test]
fn a_file_in_the_way_of_a_directory_keeps_no_other_from_coming() {
    let Some(nginx) = Nginx::start("a file in the way", &[""]) else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let content = noise(50_000);
    nginx.put(0, "f", &content);
    let url = nginx.url(0, "f");
    metalink(&dir.path().join("x.meta4"), &[("d/one", None, &url), ("two", None, &url)]);
    fs::create_dir(dir.path().join("x")).expect("a directory");
    fs::write(dir.path().join("x/d"), b"mine").expect("a file");
    let done = run(get_with_cache(dir.path(), &["x.meta4"])).expect(6);
    assert!(done.err.contains("1 of 2 files could not be had (d/one): "), "{}", done.err);
    assert!(done.err.contains("is not a directory"), "{}", done.err);
    let tree = read(&dir.path().join("x"));
    assert_same(&tree, &Tree::from([("d".into(), b"mine".to_vec()), ("two".into(), content)]));
}

#[test]
fn aria2_fetches_the_same_tree() {
    // Names contain no &, because aria2 1.36 reads &amp; in a name as five characters.
    let mut tree = small(60, 20_000);
    tree.insert("long.bin".into(), noise(5 << 20));
    let Some(dist) = Dist::new("aria2 and a directory", tree, &[""]) else { return };
    let mut command = Command::new("aria2c");
    command.args(["--no-conf", "--quiet", "--no-proxy=*", "--file-allocation=none", "--max-tries=1", "-d"]);
    command.arg(dist.to()).arg("-M").arg(dist.metalink());
    match command.status() {
        Ok(status) => assert!(status.success(), "{status}"),
        Err(e) => return skipped(format!("aria2 and a directory: aria2c: {e}")),
    }
    dist.assert_arrived();
    let done = run(dist.get(&[])).expect(0);
    assert!(done.err.contains("all of it was there"), "{}", done.err);
}

#[test]
fn what_cannot_be_in_a_metalink() {
    let dir = tempfile::tempdir().expect("a directory");
    let dist = dir.path().join("dist");
    fs::create_dir(&dist).expect("a directory");
    let urls = ["http://127.0.0.1:1/d/".to_owned()];
    assert!(run(make(&dist, &urls)).expect(2).err.contains("has no files"));
    fs::write(dist.join("a\nb"), b"x").expect("a file");
    assert!(run(make(&dist, &urls)).expect(2).err.contains("a Metalink cannot name"));
    fs::remove_file(dist.join("a\nb")).expect("the file");
    // A link that leaves the directory is left out, and a message says so.
    std::os::unix::fs::symlink("/etc/hostname", dist.join("link")).expect("a link");
    fs::write(dist.join("a"), b"x").expect("a file");
    let done = run(make(&dist, &urls)).expect(0);
    assert!(done.err.contains("skipped") && done.err.contains("link that leaves"), "{}", done.err);
    assert!(run(make(&dist, &urls)).expect(6).err.contains("exists already"));
    for n in 0..10_001 {
        fs::write(dist.join(format!("f{n}")), b"").expect("a file");
    }
    let mut command = make(&dist, &urls);
    command.arg("--force");
    let done = run(command).expect(2);
    assert!(done.err.contains("at most 10000: make one of each directory"), "{}", done.err);
}

#[test]
fn where_nothing_can_be_fetched_no_directory_is_left() {
    let dir = tempfile::tempdir().expect("a directory");
    let closed = gone();
    let file = |name: &str| {
        format!(
            "<file name=\"{name}\"><size>5</size><hash type=\"sha-256\">{}</hash>\
             <url>http://{}/{name}</url></file>",
            "ab".repeat(32),
            closed
        )
    };
    let files = format!("{}{}{}", file("a"), file("b/c/d"), file("b/e"));
    let list = dir.path().join("dist.meta4");
    fs::write(&list, format!("<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">{files}</metalink>"))
        .expect("a file");
    let to = dir.path().join("to");
    let get = || {
        let mut command = anabranch();
        command.args(["get", "--timeout=2"]).arg(&list).arg("--output").arg(&to);
        run(command).expect(4)
    };
    get();
    assert!(!to.exists(), "it was made, and nothing came");
    // A directory that was there before stays.
    fs::create_dir_all(to.join("b")).expect("a directory");
    get();
    assert!(to.join("b").is_dir() && !to.join("b/c").exists());
}
