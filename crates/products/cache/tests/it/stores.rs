//! Real clients of content-addressed stores behind a cache: Nix, skopeo with a registry that wants tokens,
//! casync, OSTree.

use std::fs;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime};

use data_encoding::{BASE64, BASE64URL_NOPAD};
use tempfile::TempDir;

use crate::bed::{Cache, Origin, Page, bytes, sha256};
use crate::clients::{has, run};

/// Puts all files below a directory on an origin, under the paths that they have there.
fn put_all(origin: &Origin, root: &Path, at: &str) -> Vec<String> {
    let mut paths = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                directories.push(entry);
                continue;
            }
            let path = format!("{at}/{}", entry.strip_prefix(root).unwrap().display());
            origin.put(&path, Page::new(fs::read(entry).unwrap()));
            paths.push(path);
        }
    }
    paths
}

/// Nix with a home and a store of its own.
fn nix(dir: &TempDir, store: &str, words: &[&str]) -> String {
    let mut nix = Command::new("nix");
    nix.env("HOME", dir.path()).env_remove("NIX_REMOTE");
    nix.args(["--extra-experimental-features", "nix-command", "--store"]).arg(dir.path().join(store));
    run(nix.args(words))
}

#[test]
fn nix_copies_a_path_from_a_binary_cache() {
    if !has("nix", &["--version"]) {
        return;
    }
    let (origin, dir) = (Origin::start(), TempDir::new().unwrap());
    let (file, binary) = (dir.path().join("quiet.txt"), dir.path().join("binary"));
    fs::write(&file, bytes(300_000, 5)).unwrap();
    nix(&dir, "one", &["store", "add-file", file.to_str().unwrap()]);
    let made =
        fs::read_dir(dir.path().join("one/nix/store")).unwrap().map(|entry| entry.unwrap().file_name());
    let name = made.map(|name| name.into_string().unwrap()).find(|name| name.ends_with("-quiet.txt"));
    let path = format!("/nix/store/{}", name.unwrap());
    nix(&dir, "one", &["copy", "--to", &format!("file://{}", binary.display()), &path]);
    let files = put_all(&origin, &binary, "/cache");
    let archive = files.iter().find(|path| path.contains("/nar/")).unwrap();
    let cache = Cache::start_in(TempDir::new().unwrap(), "/nix", "nix", &[&origin], "/cache");
    let copy = |store: &str| {
        nix(&dir, store, &["copy", "--no-check-sigs", "--from", &cache.url("/nix"), &path]);
        assert_eq!(fs::read(dir.path().join(format!("{store}{path}"))).unwrap(), bytes(300_000, 5));
    };
    copy("two");
    cache.wait_until_stored(1);
    let asked = origin.asked(archive);
    copy("three");
    assert_eq!(origin.asked(archive), asked, "the archive came once");
    assert!(
        cache.files().iter().any(|file| file.to_string_lossy().contains("/sha256-")),
        "verified by its name"
    );
}

#[test]
fn casync_extracts_a_file_from_chunks() {
    if !has("casync", &["--version"]) {
        return;
    }
    let (origin, dir) = (Origin::start(), TempDir::new().unwrap());
    let at = |name: &str| dir.path().join(name);
    fs::write(at("file"), bytes(1_000_000, 9)).unwrap();
    let store = format!("--store={}", at("chunks.castr").display());
    run(Command::new("casync").args(["make", &store]).args([at("file.caibx"), at("file")]));
    let chunks = put_all(&origin, &at("chunks.castr"), "/store");
    origin.put("/store/file.caibx", Page::new(fs::read(at("file.caibx")).unwrap()));
    let cache = Cache::start_in(TempDir::new().unwrap(), "/", "casync", &[&origin], "/store");
    let extract = |name: &str| {
        let store = format!("--store={}", cache.url(""));
        let index = cache.url("/file.caibx");
        run(Command::new("casync").args(["extract", &store, &index]).arg(at(name)));
        assert!(fs::read(at(name)).unwrap() == bytes(1_000_000, 9));
    };
    extract("first");
    cache.wait_until_stored(chunks.len() as u64);
    let asked = || -> Vec<_> { chunks.iter().flat_map(|chunk| origin.asked(chunk)).collect() };
    let before = asked();
    extract("again");
    assert_eq!(asked(), before, "each chunk came once");
}

#[test]
fn ostree_pulls_a_commit() {
    if !has("ostree", &["--version"]) {
        return;
    }
    let (origin, dir) = (Origin::start(), TempDir::new().unwrap());
    let ostree = |repository: &str, words: &[&str]| {
        let at = format!("--repo={}", dir.path().join(repository).display());
        run(Command::new("ostree").arg(at).args(words))
    };
    fs::create_dir_all(dir.path().join("tree/usr")).unwrap();
    fs::write(dir.path().join("tree/usr/file"), bytes(300_000, 6)).unwrap();
    ostree("repo", &["init", "--mode=archive"]);
    let tree = dir.path().join("tree");
    let words = ["commit", "--branch=os/amd64", "--owner-uid=0", "--owner-gid=0", tree.to_str().unwrap()];
    let commit = ostree("repo", &words);
    ostree("repo", &["summary", "--update"]);
    let files = put_all(&origin, &dir.path().join("repo"), "/repo");
    let objects: Vec<_> = files.iter().filter(|path| path.contains("/objects/")).collect();
    let cache = Cache::start_in(TempDir::new().unwrap(), "/", "ostree", &[&origin], "/repo");
    let pull = |repository: &str| {
        ostree(repository, &["init", "--mode=archive"]);
        ostree(repository, &["remote", "add", "--no-gpg-verify", "o", &cache.url("")]);
        ostree(repository, &["pull", "o", "os/amd64"]);
        let file = ostree(repository, &["cat", commit.trim(), "/usr/file"]);
        assert!(file == String::from_utf8_lossy(&bytes(300_000, 6)), "other bytes");
    };
    pull("first");
    cache.wait_until_stored(objects.len() as u64);
    let asked = || -> Vec<_> { objects.iter().flat_map(|object| origin.asked(object)).collect() };
    let before = asked();
    pull("second");
    assert_eq!(asked(), before, "each object came once");
    let verified = cache.files().iter().filter(|file| file.to_string_lossy().contains("/sha256-")).count();
    assert!(verified >= 3, "the commit and two directories are verified by their names: {verified}");
}

/// A registry that gives nothing without a token.
struct Registry {
    process: Child,
    address: String,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Registry {
    /// Starts a registry in a directory, and puts a token for `repository` on `issuer`.
    fn start(dir: &Path, issuer: &Origin, repository: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let at = |name: &str| dir.join(name);
        let subject = ["-days", "2", "-subj", "/CN=issuer"];
        let keys = ["-newkey", "rsa:2048", "-nodes", "-keyout"];
        run(Command::new("openssl")
            .args(["req", "-x509"])
            .args(keys)
            .arg(at("key.pem"))
            .args(subject)
            .arg("-out")
            .arg(at("cert.pem")));
        issuer.put_any_query("/token", Page::new(format!("{{\"token\": \"{}\"}}", token(dir, repository))));
        let config = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\n\
             http: {{addr: 127.0.0.1:{port}}}\nauth:\n  token:\n    realm: {}/token\n    service: here\n    \
             issuer: us\n    rootcertbundle: {}\n",
            at("images").display(),
            issuer.url(),
            at("cert.pem").display()
        );
        fs::write(at("registry.yml"), config).unwrap();
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(at("registry.yml")).stdout(Stdio::null()).stderr(Stdio::null());
        let registry = Self { process: command.spawn().unwrap(), address: format!("127.0.0.1:{port}") };
        for _ in 0..200 {
            if TcpStream::connect(&registry.address).is_ok() {
                return registry;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("the registry does not start");
    }
}

/// Makes a token (a JSON Web Token, RFC 7519) to read and write a repository, signed with `key.pem`.
fn token(dir: &Path, repository: &str) -> String {
    let der =
        run_bytes(Command::new("openssl").args(["x509", "-outform", "der", "-in"]).arg(dir.join("cert.pem")));
    let head = format!("{{\"typ\":\"JWT\",\"alg\":\"RS256\",\"x5c\":[\"{}\"]}}", BASE64.encode(&der));
    #[expect(clippy::disallowed_methods, reason = "the registry compares with the wall clock")]
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let claims = format!(
        "{{\"iss\":\"us\",\"sub\":\"\",\"aud\":\"here\",\"exp\":{},\"nbf\":{},\"iat\":{now},\"jti\":\"1\",\
         \"access\":[{{\"type\":\"repository\",\"name\":\"{repository}\",\
         \"actions\":[\"pull\",\"push\"]}}]}}",
        now + 900,
        now - 10
    );
    let signed = [head, claims].map(|part| BASE64URL_NOPAD.encode(part.as_bytes())).join(".");
    fs::File::create(dir.join("signed")).unwrap().write_all(signed.as_bytes()).unwrap();
    let mut sign = Command::new("openssl");
    sign.args(["dgst", "-sha256", "-sign"]).args([dir.join("key.pem"), dir.join("signed")]);
    format!("{signed}.{}", BASE64URL_NOPAD.encode(&run_bytes(&mut sign)))
}

fn run_bytes(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Writes an image of one layer (OCI Image Layout 1.0). Returns the layer's digest.
fn image(dir: &Path) -> String {
    let blobs = dir.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let blob = |body: &[u8], media_type: &str| {
        fs::write(blobs.join(sha256(body)), body).unwrap();
        let kind = format!("application/vnd.oci.image.{media_type}");
        format!("{{\"mediaType\":\"{kind}\",\"digest\":\"sha256:{}\",\"size\":{}}}", sha256(body), body.len())
    };
    // A tar archive without a file: two blocks of zeros, and more of them.
    let layer = vec![0; 1_500 * 512];
    let layers = blob(&layer, "layer.v1.tar");
    let config = format!(
        "{{\"architecture\":\"amd64\",\"os\":\"linux\",\
         \"rootfs\":{{\"type\":\"layers\",\"diff_ids\":[\"sha256:{}\"]}}}}",
        sha256(&layer)
    );
    let manifest = format!(
        "{{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\
         \"config\":{},\"layers\":[{layers}]}}",
        blob(config.as_bytes(), "config.v1+json")
    );
    let entry = blob(manifest.as_bytes(), "manifest.v1+json");
    fs::write(dir.join("index.json"), format!("{{\"schemaVersion\":2,\"manifests\":[{entry}]}}")).unwrap();
    fs::write(dir.join("oci-layout"), "{\"imageLayoutVersion\":\"1.0.0\"}").unwrap();
    sha256(&layer)
}

/// Skopeo with a home of its own, which copies an image.
fn skopeo(dir: &TempDir, from: &str, to: &str) {
    let mut skopeo = Command::new("skopeo");
    skopeo.env("HOME", dir.path()).env("XDG_RUNTIME_DIR", dir.path());
    let open = ["--src-tls-verify=false", "--dest-tls-verify=false", "--preserve-digests"];
    run(skopeo.args(["--insecure-policy", "copy"]).args(open).args([from, to]));
}

#[test]
fn skopeo_copies_an_image_of_a_registry_that_wants_tokens() {
    let needs = ["skopeo", "docker-registry"].iter().all(|name| has(name, &["--version"]));
    if !needs || !has("openssl", &["version"]) {
        return;
    }
    let (issuer, dir) = (Origin::start(), TempDir::new().unwrap());
    let registry = Registry::start(dir.path(), &issuer, "some/quiet");
    let local = |name: &str| -> (PathBuf, String) {
        let path = dir.path().join(name);
        let text = format!("oci:{}", path.display());
        (path, text)
    };
    let (path, from) = local("image");
    let layer = image(&path);
    skopeo(&dir, &from, &format!("docker://{}/some/quiet:1", registry.address));
    let tokens = issuer.asked_all().len();
    let cache = Cache::of_url(TempDir::new().unwrap(), "/", "oci", &format!("http://{}", registry.address));
    let remote = format!("docker://{}/some/quiet:1", cache.address());
    for name in ["first", "again"] {
        let (path, to) = local(name);
        skopeo(&dir, &remote, &to);
        assert_eq!(fs::read(path.join("blobs/sha256").join(&layer)).unwrap(), vec![0; 1_500 * 512]);
        cache.wait_until_stored(2);
    }
    assert!(issuer.asked_all().len() > tokens, "the cache fetched a token of its own");
    assert!(cache.number("hits") >= 2, "the layer and the configuration came once");
}
