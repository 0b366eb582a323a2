//! A hub of models behind a cache, and its real client.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anabranch_net::testing::skip;
use tempfile::TempDir;

use crate::bed::{Cache, Origin, Page, bytes, sha256};
use crate::clients::{has, run};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
/// A `git` hash, as the hub has it of files that are not in Git LFS.
const BLOB: &str = "89abcdef0123456789abcdef0123456789abcdef";

/// A hub with one repository of two files, of which one is on a storage of its own.
struct Hub {
    hub: Origin,
    storage: Origin,
    model: Vec<u8>,
}

impl Hub {
    fn start() -> Self {
        let (hub, storage, model) = (Origin::start(), Origin::start(), bytes(2_500_000, 8));
        storage.put("/blob", Page::new(model.clone()).with("Cache-Control: max-age=31536000"));
        let commit = format!("X-Repo-Commit: {COMMIT}");
        let linked = Page::new("")
            .with(&commit)
            .with(&format!("X-Linked-Etag: \"{}\"", sha256(&model)))
            .with(&format!("X-Linked-Size: {}", model.len()))
            .with("X-Xet-Hash: 00");
        let small = Page { etag: Some(format!("\"{BLOB}\"")), ..Page::new("{\"quiet\": 1}\n").with(&commit) };
        for revision in ["main", COMMIT] {
            let at = |file: &str| format!("/quiet/model/resolve/{revision}/{file}");
            let moved_to = Some(format!("{}/blob", storage.url()));
            hub.put(&at("model.safetensors"), Page { moved_to, ..linked.clone() });
            hub.put(&at("config.json"), small.clone());
        }
        let json = |text: String| Page::new(text).with("Content-Type: application/json");
        let files = "[{\"rfilename\":\"config.json\"},{\"rfilename\":\"model.safetensors\"}]";
        let about = format!("{{\"id\":\"quiet/model\",\"sha\":\"{COMMIT}\",\"siblings\":{files}}}");
        hub.put("/api/models/quiet/model/revision/main", json(about));
        let tree = format!(
            "[{{\"type\":\"file\",\"oid\":\"{BLOB}\",\"size\":13,\"path\":\"config.json\"}},\
             {{\"type\":\"file\",\"oid\":\"{BLOB}\",\"size\":{0},\"path\":\"model.safetensors\",\
             \"lfs\":{{\"oid\":\"{1}\",\"size\":{0},\"pointerSize\":134}}}}]",
            model.len(),
            sha256(&model)
        );
        hub.put_any_query(&format!("/api/models/quiet/model/tree/{COMMIT}"), json(tree));
        Self { hub, storage, model }
    }
}

#[test]
fn a_file_is_verified_by_the_hash_that_the_hub_says() {
    let Hub { hub, storage, model } = Hub::start();
    let cache = Cache::start("/", "huggingface", &[&hub]);
    let path = "/quiet/model/resolve/main/model.safetensors";
    let head = cache.ask("HEAD", path, "");
    let tag = format!("\"{}\"", sha256(&model));
    for (name, value) in [
        ("x-repo-commit", COMMIT),
        ("x-linked-etag", &tag),
        ("etag", &tag),
        ("x-linked-size", "2500000"),
        ("content-length", "2500000"),
    ] {
        assert_eq!(head.field(name), Some(value), "{}", head.head);
    }
    assert_eq!(head.field("x-xet-hash"), None, "another protocol is not offered");
    assert!(cache.get(path).body == model);
    cache.wait_until_stored(1);
    // Which file `main` is may change, whatever the storage says of the file.
    let asked = (hub.asked(path).len(), storage.asked("/blob").len());
    let again = cache.get(path);
    assert!(again.body == model && again.field("cache-control").is_none(), "{}", again.head);
    assert!(hub.asked(path).len() > asked.0, "the hub is asked again");
    // A file of a commit never changes, and is the same object.
    let path = format!("/quiet/model/resolve/{COMMIT}/model.safetensors");
    assert!(cache.get(&path).body == model);
    let asked = hub.asked(&path).len();
    let again = cache.get(&path);
    assert_eq!((hub.asked(&path).len(), again.field("cache-status")), (asked, Some("anabranch; hit")));
    assert!(again.field("cache-control").is_some_and(|field| field.contains("immutable")));
    let small = cache.get("/quiet/model/resolve/main/config.json");
    assert_eq!((small.text().as_str(), small.field("x-repo-commit")), ("{\"quiet\": 1}\n", Some(COMMIT)));
    assert_eq!(small.field("x-linked-etag"), Some(&*format!("\"{BLOB}\"")));
    // Without the hub, what is stored is used.
    hub.set_away(true);
    assert!(cache.get("/quiet/model/resolve/main/model.safetensors").body == model);
    assert_eq!(cache.get("/quiet/model/resolve/main/other").status, 502);
    // A storage that lies is found out.
    hub.set_away(false);
    storage.put("/blob", Page::new(bytes(2_500_000, 9)));
    let fresh = Cache::start("/", "huggingface", &[&hub]);
    let answer = fresh.get(&path);
    assert!(answer.status == 502 || !answer.is_whole(), "{}", answer.head);
    assert!(!fresh.files().iter().any(|file| file.to_string_lossy().contains("/sha256-")));
}

/// A directory in which Python finds the client; `None` if it cannot be had.
fn client(dir: &Path) -> Option<PathBuf> {
    if !has("python3", &["-m", "pip", "--version"]) {
        return None;
    }
    let at = dir.join("python");
    let found = Command::new("python3").args(["-c", "import huggingface_hub"]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return Some(at);
    }
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]);
    let installed = pip.arg("--target").arg(&at).arg("huggingface_hub").output();
    if installed.is_ok_and(|output| output.status.success()) {
        return Some(at);
    }
    skip("huggingface_hub behind the cache: it cannot be installed");
    None
}

const DOWNLOADS: &str = "
import sys
from huggingface_hub import hf_hub_download, snapshot_download
print(hf_hub_download('quiet/model', 'model.safetensors', cache_dir=sys.argv[1] + '/one'))
print(snapshot_download('quiet/model', cache_dir=sys.argv[1] + '/two'))
";

#[test]
fn huggingface_hub_downloads_a_model() {
    let dir = TempDir::new().unwrap();
    let Some(python) = client(dir.path()) else { return };
    let Hub { hub, storage, model } = Hub::start();
    let cache = Cache::start("/hf", "huggingface", &[&hub]);
    let mut client = Command::new("python3");
    client.args(["-c", DOWNLOADS]).arg(dir.path()).env("PYTHONPATH", &python);
    client.env("HF_ENDPOINT", cache.url("/hf")).env("HOME", dir.path()).env("HF_HUB_DISABLE_TELEMETRY", "1");
    run(client.env("HF_HUB_DISABLE_PROGRESS_BARS", "1"));
    for place in ["one", "two"] {
        let at = format!("{place}/models--quiet--model/snapshots/{COMMIT}/model.safetensors");
        assert!(fs::read(dir.path().join(at)).unwrap() == model, "{place}");
    }
    // Each time that the hub is asked what a revision is, it leads to the beginning of the file.
    assert!(storage.sent_bytes() < model.len() as u64 + 100_000, "the model came once");
}
