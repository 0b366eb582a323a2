//! Real clients behind a cache: curl, pip, apt.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anabranch_net::testing::skip;
use tempfile::TempDir;

use crate::bed::{Cache, Origin, Page, bytes, sha256};

/// Whether a program is there.
pub(crate) fn has(program: &str, args: &[&str]) -> bool {
    let status = Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = status.is_ok_and(|status| status.success());
    if !is_there {
        skip(format!("{program} behind the cache: it is not installed"));
    }
    is_there
}

pub(crate) fn run(command: &mut Command) -> String {
    // A proxy of the environment is no part of the test.
    let output = command.env("no_proxy", "*").output().unwrap();
    let said = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

#[test]
fn curl_gets_a_blob_and_resumes_it() {
    if !has("curl", &["--version"]) {
        return;
    }
    let (origin, body, dir) = (Origin::start(), bytes(2_500_000, 3), TempDir::new().unwrap());
    let path = format!("/v2/library/a/blobs/sha256:{}", sha256(&body));
    origin.put(&path, Page::new(body.clone()));
    let cache = Cache::start("/", "oci", &[&origin]);
    let file = dir.path().join("blob");
    run(Command::new("curl").args(["-sSf", "-o"]).arg(&file).arg(cache.url(&path)));
    assert!(fs::read(&file).unwrap() == body);
    cache.wait_until_stored(1);
    fs::write(&file, &body[..1_000_001]).unwrap();
    run(Command::new("curl").args(["-sSf", "-C", "-", "-o"]).arg(&file).arg(cache.url(&path)));
    assert!(fs::read(&file).unwrap() == body);
    assert_eq!((cache.number("misses"), cache.number("hits")), (1, 1));
}

/// Makes a wheel that says nothing.
const WHEEL: &str = "
import sys, zipfile
name = 'quiet'
with zipfile.ZipFile(sys.argv[1], 'w') as wheel:
    wheel.writestr('quiet.py', 'words = %r\\n' % ('x' * 300000))
    info = 'quiet-1.0.dist-info/'
    wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: quiet\\nVersion: 1.0\\n')
    wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr(info + 'RECORD', '')
";

#[test]
fn pip_gets_a_wheel_of_an_index() {
    if !has("python3", &["-m", "pip", "--version"]) {
        return;
    }
    let (origin, dir) = (Origin::start(), TempDir::new().unwrap());
    let name = "quiet-1.0-py3-none-any.whl";
    let wheel = dir.path().join(name);
    run(Command::new("python3").args(["-c", WHEEL]).arg(&wheel));
    let body = fs::read(&wheel).unwrap();
    let link = format!("../../packages/{name}#sha256={}", sha256(&body));
    let page = format!("<!DOCTYPE html><html><body><a href=\"{link}\">{name}</a></body></html>");
    origin.put(
        "/simple/quiet/",
        Page::new(page).with("Content-Type: text/html").with("Cache-Control: max-age=600"),
    );
    origin.put(&format!("/packages/{name}"), Page::new(body.clone()));
    let cache = Cache::start_in(TempDir::new().unwrap(), "/pypi", "pypi", &[&origin], "/simple");
    let download = |into: &Path| {
        let mut pip = Command::new("python3");
        pip.args([
            "-m",
            "pip",
            "--isolated",
            "download",
            "--no-deps",
            "--no-cache-dir",
            "--disable-pip-version-check",
        ]);
        pip.args(["--index-url", &cache.url("/pypi/"), "--dest"]).arg(into).arg("quiet==1.0");
        let said = run(&mut pip);
        assert!(fs::read(into.join(name)).unwrap() == body, "{said}");
    };
    download(&dir.path().join("first"));
    cache.wait_until_stored(2);
    origin.set_away(true);
    download(&dir.path().join("again"));
    assert_eq!(cache.number("hits"), 2, "the page and the wheel");
    assert_eq!(origin.asked("/simple/quiet/").len(), 1);
}

#[test]
fn apt_updates_by_hash_and_downloads_a_package() {
    if !has("apt-get", &["--version"]) || !has("dpkg-deb", &["--version"]) {
        return;
    }
    let (origin, dir) = (Origin::start(), TempDir::new().unwrap());
    let deb = package(dir.path());
    let pool = "pool/q/quiet_1.0_all.deb";
    let packages = format!(
        "Package: quiet\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@a.example>\n\
         Filename: {pool}\nSize: {}\n\
         SHA256: {}\nDescription: nothing\n\n",
        deb.len(),
        sha256(&deb)
    );
    let list = |name: &str| format!(" {} {} {name}\n", sha256(packages.as_bytes()), packages.len());
    let lists = ["all", "amd64", "arm64"].map(|arch| list(&format!("main/binary-{arch}/Packages"))).concat();
    let release = format!(
        "Suite: test\nCodename: test\nDate: Sat, 01 Jan 2022 00:00:00 UTC\nAcquire-By-Hash: yes\n\
         Architectures: all amd64 arm64\nComponents: main\nSHA256:\n{lists}"
    );
    origin.put("/debian/dists/test/Release", Page::new(release));
    for arch in ["all", "amd64", "arm64"] {
        let path =
            format!("/debian/dists/test/main/binary-{arch}/by-hash/SHA256/{}", sha256(packages.as_bytes()));
        origin.put(&path, Page::new(packages.clone()));
    }
    origin.put(&format!("/debian/{pool}"), Page::new(deb.clone()));
    let cache = Cache::start_in(TempDir::new().unwrap(), "/debian", "apt", &[&origin], "/debian");
    let apt = Apt::new(&dir, &cache.url("/debian"));
    apt.run(&["update"]);
    let by_hash = sha256(packages.as_bytes());
    assert!(
        cache.files().iter().any(|file| file.ends_with(format!("sha256-{by_hash}"))),
        "{:?}",
        cache.files()
    );
    apt.run(&["download", "quiet"]);
    assert!(fs::read(dir.path().join("quiet_1.0_all.deb")).unwrap() == deb);
}

/// Builds an empty package, and returns its bytes.
fn package(dir: &Path) -> Vec<u8> {
    let (tree, file) = (dir.join("tree"), dir.join("built.deb"));
    fs::create_dir_all(tree.join("DEBIAN")).unwrap();
    let control = "Package: quiet\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@a.example>\n\
                   Description: nothing\n";
    fs::write(tree.join("DEBIAN/control"), control).unwrap();
    run(Command::new("dpkg-deb").arg("--build").arg(&tree).arg(&file));
    fs::read(file).unwrap()
}

/// An apt with a directory of its own, which touches nothing of the system's.
struct Apt<'a> {
    dir: &'a TempDir,
}

impl<'a> Apt<'a> {
    fn new(dir: &'a TempDir, url: &str) -> Self {
        for path in ["state/lists/partial", "cache/archives/partial", "etc/apt.conf.d", "etc/preferences.d"] {
            fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        fs::write(dir.path().join("state/status"), "").unwrap();
        fs::write(dir.path().join("etc/sources.list"), format!("deb [trusted=yes] {url} test main\n"))
            .unwrap();
        Self { dir }
    }

    fn run(&self, words: &[&str]) {
        let at = |path: &str| self.dir.path().join(path).display().to_string();
        let mut apt = Command::new("apt-get");
        for option in [
            format!("Dir::Etc={}", at("etc")),
            format!("Dir::State={}", at("state")),
            format!("Dir::State::status={}", at("state/status")),
            format!("Dir::Cache={}", at("cache")),
            "APT::Sandbox::User=root".to_owned(),
            "Acquire::Languages=none".to_owned(),
            "Acquire::Check-Valid-Until=false".to_owned(),
            "Acquire::http::Proxy=false".to_owned(),
        ] {
            apt.arg("-o").arg(option);
        }
        run(apt.args(words).current_dir(self.dir.path()));
    }
}
