//! `anabranch mirror-list` as scripts use it, and its Metalinks as other programs read them.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::{anabranch, noise};
use anabranch_mirror::leaf_list::LeafList;
use anabranch_mirror::metalink::Metalink;
use anabranch_mmtp::ContentId;
use anabranch_mmtp::uri::Uri;
use assert_cmd::assert::OutputAssertExt as _;
use serde_json::Value;

fn make(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let output =
        anabranch().current_dir(dir).args(["mirror-list", "make"]).args(args).output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().expect("a status"), text(output.stdout), text(output.stderr))
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a directory").flatten();
    let mut names: Vec<String> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn what_is_made_says_what_the_file_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let content = noise(3_000_000);
    fs::write(dir.path().join("a & b.bin"), &content).expect("a file");
    let (code, out, err) =
        make(dir.path(), &["a & b.bin", "http://a.example/x?y=1", "https://b.example/pub/"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("wrote a & b.bin.meta4") && err.contains("wrote a & b.bin.b3leaves"), "{err}");
    assert_eq!(names(dir.path()), ["a & b.bin", "a & b.bin.b3leaves", "a & b.bin.meta4"]);

    let id = ContentId::of(&content);
    let uri: Uri = out.trim_end().parse().expect("a URI");
    assert_eq!((uri.id, uri.name.as_deref()), (id, Some(&b"a & b.bin"[..])));
    assert_eq!(uri.mirrors, ["http://a.example/x?y=1", "https://b.example/pub/a%20%26%20b.bin"]);

    let metalink = fs::read(dir.path().join("a & b.bin.meta4")).expect("a Metalink");
    let metalink = Metalink::parse(&metalink).expect("a Metalink");
    let [file] = &metalink.files[..] else { panic!("one file") };
    assert_eq!((file.content(), &*file.name), (Some(id), "a & b.bin"));
    let pieces = file.pieces.as_ref().expect("pieces");
    assert_eq!((pieces.bytes, pieces.hashes.len()), (1 << 20, 3));
    let beside = String::from_utf8(file.sibling_leaf_list().expect("a name")).expect("UTF-8");
    let leaves = fs::read(dir.path().join(beside)).expect("a leaf list");
    assert_eq!(LeafList::parse(&leaves).expect("a leaf list").id(), id);
}

#[test]
fn it_overwrites_only_when_told_to() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name);
    fs::write(at("x"), b"content").expect("a file");
    for there in ["x.meta4", "x.b3leaves"] {
        fs::write(at(there), b"mine").expect("a file");
        let (code, out, err) = make(dir.path(), &["x", "http://h/"]);
        assert!(code == 6 && out.is_empty() && err.contains("--force"), "{code} {out}{err}");
        assert_eq!(fs::read(at(there)).expect("a file"), b"mine");
        assert_eq!(names(dir.path()), ["x", there]);
        fs::remove_file(at(there)).expect("a file");
    }
    fs::write(at("x.meta4"), b"mine").expect("a file");
    let (code, out, err) = make(dir.path(), &["x", "http://h/", "--force", "--quiet"]);
    assert!(code == 0 && err.is_empty() && out.starts_with("anabranch:b3:"), "{code} {out}{err}");
    assert_eq!(names(dir.path()), ["x", "x.b3leaves", "x.meta4"]);
}

#[test]
fn another_directory_and_pieces_of_another_size() {
    let (dir, to) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    fs::write(dir.path().join("x"), noise(100_000)).expect("a file");
    let output = to.path().to_str().expect("UTF-8");
    let args = ["x", "http://h/x", "http://h/x", "-o", output, "--piece-size", "32Ki", "--json"];
    let (code, out, err) = make(dir.path(), &args);
    assert!(code == 0 && err.is_empty(), "{err}");
    assert_eq!(names(dir.path()), ["x"]);
    assert_eq!(names(to.path()), ["x.b3leaves", "x.meta4"]);
    let made: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((&made["event"], &made["size"]), (&"mirror-list".into(), &100_000.into()));
    assert_eq!((&made["pieces"], &made["piece_bytes"]), (&4.into(), &32_768.into()));
    assert_eq!(made["mirrors"].as_array().map(Vec::len), Some(1), "the same twice is one");
    assert_eq!(made["metalink"], format!("{output}/x.meta4"));
    assert_eq!(made["leaf_list"], format!("{output}/x.b3leaves"));
    let shown = anabranch().args(["mirror-list", "show", "--json"]).arg(to.path().join("x.meta4")).output();
    let shown: Value = serde_json::from_slice(&shown.expect("it runs").stdout).expect("JSON");
    for key in ["name", "size", "uri", "sha256", "blake3", "pieces", "mirrors", "leaves"] {
        assert_eq!(shown[key], made[key], "{key}");
    }
}

#[test]
fn short_files_have_lists_too() {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, content) in [("none", &b""[..]), ("one", b"1")] {
        fs::write(dir.path().join(name), content).expect("a file");
        let (code, out, err) = make(dir.path(), &[name, "http://h/"]);
        assert_eq!(code, 0, "{err}");
        assert_eq!(out.trim_end().parse::<Uri>().expect("a URI").id, ContentId::of(content));
        let leaves = fs::read(dir.path().join(format!("{name}.b3leaves"))).expect("a leaf list");
        assert_eq!(LeafList::parse(&leaves).expect("a leaf list").id(), ContentId::of(content));
        let metalink = fs::read(dir.path().join(format!("{name}.meta4"))).expect("a Metalink");
        let metalink = Metalink::parse(&metalink).expect("a Metalink");
        assert_eq!(metalink.files[0].pieces.is_some(), !content.is_empty());
    }
}

#[test]
fn the_publisher_is_told_of_hidden_files_once() {
    let dir = tempfile::tempdir().expect("a directory");
    for name in ["d/.git", "d/a"] {
        fs::create_dir_all(dir.path().join(name)).expect("a directory");
        fs::write(dir.path().join(name).join("x"), name).expect("a file");
    }
    let (code, _, err) = make(dir.path(), &["d", "http://h/d/"]);
    assert!(code == 0 && err.contains("d has hidden files (.git/x): get refuses"), "{err}");
    fs::write(dir.path().join("d/.git/y"), b"y").expect("a file");
    let (_, _, err) = make(dir.path(), &["--force", "d", "http://h/d/"]);
    assert!(err.contains(" and 1 more)") && err.matches("hidden files").count() == 1, "{err}");
    fs::remove_dir_all(dir.path().join("d/.git")).expect("removed");
    let (code, _, err) = make(dir.path(), &["--force", "d", "http://h/d/"]);
    assert!(code == 0 && !err.contains("hidden files"), "{err}");
}

#[test]
fn show_tells_people() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("old.metalink");
    let hash = "ab".repeat(32);
    let text = format!(
        "<metalink version='3.0' xmlns='http://www.metalinker.org/'><files><file name='d/x'><size>5</size>\
         <verification><hash type='sha256'>{hash}</hash>\
         <pieces type='sha1' length='4'/></verification><resources>\
         <url type='http' location='gr' preference='90'>http://user:pass@h/x</url>\
         <url type='ftp'>ftp://h/x</url></resources></file></files></metalink>"
    );
    fs::write(&file, &text).expect("a file");
    let assert = anabranch().args(["mirror-list", "show"]).arg(&file).assert().success();
    let said = String::from_utf8(assert.get_output().stdout.clone()).expect("UTF-8");
    let want = format!(
        "d/x\n  size     5 bytes\n  sha-256  {hash}\n  pieces   none of use, only sha1\n  \
         mirror   http://h/x (priority 11, gr)\n  mirrors  1 more that are not http or https\n"
    );
    assert_eq!(said, want);
    // The Metalink need not be a file on a disk.
    let piped = fs::File::open(&file).expect("the file");
    let mut cat = Command::new("cat").stdin(piped).stdout(Stdio::piped()).spawn().expect("cat");
    let mut command = anabranch();
    command.args(["mirror-list", "show", "/dev/stdin"]).stdin(cat.stdout.take().expect("a pipe"));
    assert_eq!(command.output().expect("it runs").stdout, want.as_bytes());
    cat.wait().expect("its end");
    let big = dir.path().join("big");
    fs::File::create(&big).and_then(|file| file.set_len(1 << 30)).expect("a file");
    let assert = anabranch().args(["mirror-list", "show"]).arg(&big).assert().code(2);
    let said = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
    assert!(said.contains("it is longer than the"), "{said}");
    fs::write(&file, text.replace("<size>5", "<size>five")).expect("a file");
    let assert = anabranch().args(["mirror-list", "show"]).arg(&file).assert().code(2);
    let said = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
    assert!(said.contains("line 1: the size \"five\" is not a number"), "{said}");
    for (name, says) in
        [("/no/such", "cannot read"), ("http://h/x", "from a file: download http://h/x first")]
    {
        let assert = anabranch().args(["mirror-list", "show", name]).assert().code(2);
        let said = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn wrong_usage_is_status_2_and_what_cannot_be_written_6() {
    // The parent directory is read too, and no other test may write there.
    let parent = tempfile::tempdir().expect("a directory");
    let dir = tempfile::tempdir_in(parent.path()).expect("a directory");
    fs::write(dir.path().join("x"), b"content").expect("a file");
    fs::write(dir.path().join("new\nline"), b"content").expect("a file");
    for args in [
        &["x"][..],
        &["x", "ftp://h/x"],
        &["x", "http://me:secret@h/x"],
        &["x", "http://h/x", "--piece-size", "1000"],
        &["new\nline", "http://h/x"],
        &["..", "http://h/x"],
    ] {
        assert_eq!(make(dir.path(), args).0, 2, "{args:?}");
    }
    assert_eq!(make(dir.path(), &["none", "http://h/x"]).0, 2);
    assert_eq!(make(dir.path(), &["/dev/null", "http://h/x", "-o", "."]).0, 2, "no file");
    let empty = tempfile::tempdir().expect("a directory");
    let path = empty.path().to_str().expect("UTF-8");
    assert_eq!(make(dir.path(), &[path, "http://h/x", "-o", "."]).0, 2, "a directory without files");
    let query = make(dir.path(), &[".", "http://h/d/?x", "-o", "."]);
    assert!(query.0 == 2 && query.2.contains("has a query"), "{query:?}");
    assert_eq!(make(dir.path(), &["x", "http://h/x", "-o", "none"]).0, 6);
    assert_eq!(names(dir.path()), ["new\nline", "x"]);
}

/// Python's web server on a free port, which ends when this is dropped.
struct Python(Child, u16);

impl Python {
    fn start(dir: &Path) -> Option<Self> {
        let mut child = Command::new("python3")
            .args(["-u", "-m", "http.server", "--bind", "127.0.0.1", "0"])
            .current_dir(dir)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take()?).read_line(&mut line).ok()?;
        let port = line.split("port ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
        // The line is "Serving HTTP on 127.0.0.1 port 40123 (http://127.0.0.1:40123/) ...".
        port.map(|port| Self(child, port))
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn aria2(metalink: &Path, to: &Path) -> Option<bool> {
    let mut command = Command::new("aria2c");
    command.args(["--no-conf", "--quiet", "--no-proxy=*", "--file-allocation=none", "--max-tries=1"]);
    // Without torrents, aria2 reads no metaurl at all.
    command.arg("--follow-torrent=mem").arg("-d").arg(to).arg("-M").arg(metalink);
    for variable in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"] {
        command.env_remove(variable);
    }
    command.status().ok().map(|status| status.success())
}

#[test]
fn aria2_takes_what_is_made_and_checks_it() {
    let (served, to) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let content = noise(2_500_000);
    // The name contains no &, because aria2 1.36 reads &amp; in a name as five characters.
    let file = served.path().join("a b.bin");
    fs::write(&file, &content).expect("a file");
    let Some(server) = Python::start(served.path()) else {
        anabranch_net::testing::skip("there is no python3");
        return;
    };
    let url = format!("http://127.0.0.1:{}/", server.1);
    let (code, _, err) = make(served.path(), &["a b.bin", &url, "http://127.0.0.1:1/"]);
    assert_eq!(code, 0, "{err}");
    let metalink = served.path().join("a b.bin.meta4");
    let Some(good) = aria2(&metalink, to.path()) else {
        anabranch_net::testing::skip("there is no aria2c");
        return;
    };
    assert!(good, "aria2 takes the Metalink");
    assert_eq!(names(to.path()), ["a b.bin"], "the file and nothing else");
    assert!(fs::read(to.path().join("a b.bin")).expect("the file") == content);
    // aria2 does check the hashes: it finds a changed byte.
    let mut corrupt = content;
    corrupt[2_000_000] ^= 1;
    fs::write(&file, &corrupt).expect("a file");
    let other = tempfile::tempdir().expect("a directory");
    assert_eq!(aria2(&metalink, other.path()), Some(false));
}
