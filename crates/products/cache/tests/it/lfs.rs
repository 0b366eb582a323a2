//! Objects of Git LFS behind a cache, with the real client.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use crate::bed::{Cache, Origin, Page, bytes, sha256};
use crate::clients::{has, run};

#[test]
fn git_lfs_pulls_an_object() {
    if !has("git", &["--version"]) || !has("git", &["lfs", "version"]) {
        return;
    }
    let (origin, dir, body) = (Origin::start(), TempDir::new().unwrap(), bytes(1_200_000, 4));
    let git = |repository: &str, words: &[&str]| {
        let mut git = Command::new("git");
        git.env("HOME", dir.path()).env("GIT_LFS_SKIP_SMUDGE", "1").env("GIT_TERMINAL_PROMPT", "0");
        git.args(["-c", "user.name=a", "-c", "user.email=a@a.example", "-c", "init.defaultBranch=main"]);
        run(git.current_dir(dir.path().join(repository)).args(words))
    };
    fs::create_dir(dir.path().join("one")).unwrap();
    git("one", &["init", "-q"]);
    git("one", &["lfs", "install", "--local"]);
    git("one", &["lfs", "track", "*.bin"]);
    fs::write(dir.path().join("one/model.bin"), &body).unwrap();
    git("one", &["add", "."]);
    git("one", &["commit", "-qm", "a model"]);
    // What the server of the repository says of the object.
    let (oid, size) = (sha256(&body), body.len());
    let object = format!("/storage/objects/{oid}");
    let download = format!("{{\"href\":\"{}{object}?signature=1\"}}", origin.url());
    let batch = format!(
        "{{\"transfer\":\"basic\",\"objects\":[{{\"oid\":\"{oid}\",\"size\":{size},\"authenticated\":true,\
         \"actions\":{{\"download\":{download}}}}}]}}"
    );
    let json = "Content-Type: application/vnd.git-lfs+json";
    origin.put("/lfs/objects/batch", Page::new(batch).with(json));
    origin.put_any_query(&object, Page::new(body.clone()));
    let cache = Cache::start_in(TempDir::new().unwrap(), "/lfs", "git-lfs", &[&origin], "/storage");
    for repository in ["two", "three"] {
        git("", &["clone", "-q", "one", repository]);
        git(repository, &["lfs", "install", "--local", "--skip-smudge"]);
        let set = |name: &str, value: &str| git(repository, &["config", name, value]);
        set("lfs.url", &format!("{}/lfs", origin.url()));
        set("lfs.transfer.enablehrefrewrite", "true");
        set(&format!("url.{}.insteadOf", cache.url("/lfs/")), &format!("{}/storage/", origin.url()));
        git(repository, &["lfs", "pull"]);
        assert!(fs::read(dir.path().join(repository).join("model.bin")).unwrap() == body, "{repository}");
        cache.wait_until_stored(1);
    }
    assert_eq!(origin.sent_bytes() / size as u64, 1, "the object came once");
    assert_eq!((cache.number("misses"), cache.number("hits")), (1, 1));
    assert!(cache.files()[0].ends_with(format!("sha256-{oid}")), "verified by its name");
}
