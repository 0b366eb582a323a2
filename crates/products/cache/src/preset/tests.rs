use super::*;
use crate::config::Config;
use crate::digest::{Digest, HashKind};
use proptest::prelude::*;

const HEX: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
const NIX: &str = "0mdqa9w1p6cmli6976v4wi0sw9r4p5prkj7lzfd1877wk11c9c73";

fn route(preset: &str, more: &str) -> Route {
    let text = format!(
        "directory = \"/c\"\ncapacity = \"1GB\"\n[[route]]\nat = \"/x\"\npreset = \"{preset}\"\n{more}\n"
    );
    Config::parse(&text).expect("settings").routes.remove(0)
}

/// What a path stands for: the first source, the kind and the hash in short.
fn of(preset: &str, path: &str) -> Option<(String, String)> {
    let route = route(preset, "sources = [\"https://a.example/s\", \"https://b.example\"]");
    let text = path.trim_end_matches('/');
    let names: Vec<String> =
        if text.is_empty() { vec![] } else { text.split('/').map(str::to_owned).collect() };
    let path = StorePath {
        names: &names,
        directory: path.ends_with('/') || names.is_empty(),
        query: None,
        accept: "",
    };
    let target = target(&route, &path)?;
    let kind = match target.kind {
        TargetKind::Object(digest) => digest.to_string(),
        TargetKind::Unchanging => "unchanging".to_owned(),
        TargetKind::File => "file".to_owned(),
        TargetKind::Document(_) => "document".to_owned(),
        TargetKind::Resolved { lasts } => if lasts { "resolved for ever" } else { "resolved" }.to_owned(),
    };
    Some((target.sources[0].clone(), kind))
}

#[test]
fn paths_stand_for_urls_and_hashes() {
    let sha256 = format!("sha256:{HEX}");
    let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let sha512 = format!("by-hash/SHA512/{HEX}{HEX}");
    for (preset, path, kind) in [
        ("files", "a b/c+d@e:f".to_owned(), Some("file")),
        ("files", "a/".to_owned(), None),
        ("nix", "nix-cache-info".to_owned(), Some("document")),
        ("nix", format!("{}.narinfo", &NIX[..32]), Some("document")),
        ("nix", format!("{}.narinfo", &NIX[..31]), None),
        ("nix", format!("nar/{NIX}.nar.xz"), Some(empty)),
        ("nix", "nar/other.nar".to_owned(), Some("file")),
        ("nix", "etc/passwd".to_owned(), None),
        ("oci", "v2/".to_owned(), Some("document")),
        ("oci", format!("v2/library/debian/blobs/sha256:{HEX}"), Some(&sha256)),
        ("oci", "v2/library/debian/blobs/sha256:00".to_owned(), None),
        ("oci", "v2/library/debian/blobs/uploads".to_owned(), None),
        ("oci", "v2/library/debian/manifests/12".to_owned(), Some("document")),
        ("oci", format!("v2/library/debian/manifests/sha256:{HEX}"), Some("document")),
        ("oci", "v2/library/debian/manifests/md5:00".to_owned(), None),
        ("oci", format!("v2/blobs/sha256:{HEX}"), None),
        ("apt", format!("dists/sid/main/binary-all/by-hash/SHA256/{HEX}"), Some(&sha256)),
        ("apt", format!("dists/sid/{sha512}"), Some(&*format!("sha512:{HEX}{HEX}"))),
        ("apt", format!("dists/sid/by-hash/SHA256/{}", &HEX[1..]), None),
        ("apt", "dists/sid/by-hash/MD5Sum/00".to_owned(), Some("file")),
        ("apt", "dists/sid/InRelease".to_owned(), Some("document")),
        ("apt", "dists/sid/main/Contents-all.gz".to_owned(), Some("file")),
        ("apt", "pool/main/h/hello/hello_2.10-3_amd64.deb".to_owned(), Some("unchanging")),
        ("apt", "pool/main/h/hello/latest.deb".to_owned(), Some("file")),
        ("casync", format!("store/{}/{HEX}.cacnk", &HEX[..4]), Some("unchanging")),
        ("casync", format!("{}/{HEX}", &HEX[..4]), Some(&*format!("sha512-256:{HEX}"))),
        ("casync", format!("0000/{HEX}.cacnk"), None),
        ("casync", "os.caibx".to_owned(), Some("file")),
        ("ostree", format!("repo/objects/{}/{}.commit", &HEX[..2], &HEX[2..]), Some(&sha256)),
        ("ostree", format!("objects/{}/{}.filez", &HEX[..2], &HEX[2..]), Some("unchanging")),
        ("ostree", format!("objects/{}/{}.commitmeta", &HEX[..2], &HEX[2..]), Some("document")),
        ("ostree", format!("objects/{}/{}.commit", &HEX[..2], &HEX[3..]), None),
        ("ostree", "refs/heads/os/amd64".to_owned(), Some("document")),
        ("ostree", "repo/summary.sig".to_owned(), Some("document")),
        ("ostree", "deltas/ab/cd-ef/0".to_owned(), Some("file")),
        ("ostree", "etc/passwd".to_owned(), None),
        ("git-lfs", format!("a/b.git/info/lfs/objects/{HEX}"), Some(&sha256)),
        ("git-lfs", "objects/batch".to_owned(), None),
        ("git-lfs", format!("{HEX}/"), None),
        ("huggingface", "gpt2/resolve/main/config.json".to_owned(), Some("resolved")),
        ("huggingface", "a/b/resolve/v1/dir/model.safetensors".to_owned(), Some("resolved")),
        ("huggingface", format!("datasets/a/b/resolve/{}/x", &HEX[..40]), Some("resolved for ever")),
        ("huggingface", "models/a/b/resolve/main/x".to_owned(), None),
        ("huggingface", "a/b/resolve/main".to_owned(), None),
        ("huggingface", "resolve/main/x".to_owned(), None),
        ("huggingface", "api/models/a/b/tree/main".to_owned(), Some("document")),
        ("huggingface", "a/b/blob/main/x".to_owned(), None),
        ("pypi", String::new(), Some("document")),
        ("pypi", "requests/".to_owned(), Some("document")),
        ("pypi", "requests/x".to_owned(), None),
        ("pypi", format!("+files/sha256/{HEX}/p/x.whl"), Some(&sha256)),
        ("pypi", format!("+files/sha256/{HEX}/p/x.whl.metadata"), Some("unchanging")),
        ("pypi", "+files/none/p/x.whl".to_owned(), Some("unchanging")),
        ("pypi", "+files/md5/00/x.whl".to_owned(), None),
        ("pypi", format!("+files/sha256/{HEX}"), None),
    ] {
        assert_eq!(of(preset, &path).map(|(_, kind)| kind).as_deref(), kind, "{preset}: {path}");
    }
}

#[test]
fn urls_are_below_the_sources() {
    let url = |preset, path: &str| of(preset, path).map(|(url, _)| url);
    assert_eq!(url("files", "a b/c+d@e:f").as_deref(), Some("https://a.example/s/a%20b/c+d@e:f"));
    assert_eq!(url("files", "a?b#c%").as_deref(), Some("https://a.example/s/a%3Fb%23c%25"));
    assert_eq!(url("pypi", "Requests").as_deref(), Some("https://a.example/s/Requests/"));
    assert_eq!(url("pypi", "").as_deref(), Some("https://a.example/s/"));
    let wheel = format!("+files/sha256/{HEX}/p/x.whl");
    assert_eq!(url("pypi", &wheel).as_deref(), Some("https://a.example/p/x.whl"));
}

#[test]
fn links_of_an_index_lead_through_the_cache() {
    let route = route("pypi", "sources = [\"https://pypi.org/simple\"]");
    let page = format!(
        "<html><a href=\"https://files.pythonhosted.org/packages/a/x-1.whl#sha256={HEX}\" \
         data-core-metadata=\"sha256=1\">x</a>\n\
         <A HREF = 'https://files.pythonhosted.org/packages/y%2B1.zip'>y</A>\
         <a href=\"https://evil.example/z.whl#sha256={HEX}\">z</a>\
         <a nohref=\"q\" href=\"/simple/other/\">o</a>\
         <a href=\"https://files.pythonhosted.org/a?sig=1\">s</a></html>"
    );
    let seen = rewrite_index(&route, "https://pypi.org/simple/x/", 1, &page);
    assert!(
        seen.contains(&format!("\"../+files/sha256/{HEX}/packages/a/x-1.whl#sha256={HEX}\" data")),
        "{seen}"
    );
    assert!(seen.contains("<A HREF = '../+files/none/packages/y+1.zip'>y</A>"), "{seen}");
    for kept in ["\"https://evil.example/z.whl#", "href=\"/simple/other/\"", "a?sig=1", "nohref=\"q\""] {
        assert!(seen.contains(kept), "{kept}: {seen}");
    }
    let local = route_of_local();
    let relative = format!("<a href=\"../../packages/x.whl#sha256={HEX}\">x</a>");
    let seen = rewrite_index(&local, "http://127.0.0.1:9/simple/x/", 1, &relative);
    assert_eq!(seen, format!("<a href=\"../+files/sha256/{HEX}/packages/x.whl#sha256={HEX}\">x</a>"));
}

#[test]
fn the_json_form_of_an_index_is_rewritten_for_clients_that_name_it_first() {
    let route = route("pypi", "sources = [\"https://pypi.org/simple\"]");
    let page = format!(
        "{{\"files\":[{{\"filename\":\"x-1.whl\",\"hashes\":{{\"sha256\":\"{HEX}\"}},\
         \"url\":\"https://files.pythonhosted.org/packages/a/x-1.whl\"}},\
         {{\"hashes\":{{}},\"url\":\"https://files.pythonhosted.org/packages/y.zip\"}},\
         {{\"hashes\":{{}},\"url\":\"https://evil.example/z.whl\"}}],\"name\":\"x\"}}"
    );
    let seen = rewrite_index(&route, "https://pypi.org/simple/x/", 1, &page);
    for part in [
        &format!("\"url\":\"../+files/sha256/{HEX}/packages/a/x-1.whl\""),
        "\"../+files/none/packages/y.zip\"",
        "\"https://evil.example/z.whl\"",
        &format!("{{\"sha256\":\"{HEX}\"}}"),
        "\"name\":\"x\"",
    ] {
        assert!(seen.contains(part), "{part}: {seen}");
    }
    assert_eq!(rewrite_index(&route, "https://pypi.org/simple/x/", 1, "{\"files\": 3}"), "{\"files\": 3}");
    let names = ["x".to_owned()];
    let accept = |accept: &str| {
        let path = StorePath { names: &names, directory: true, query: None, accept };
        let TargetKind::Document(document) = target(&route, &path).unwrap().kind else { panic!() };
        document.accept
    };
    let json = "application/vnd.pypi.simple.v1+json";
    assert!(accept(&format!("{json}, text/html;q=0.1")).starts_with(json));
    for other in ["", "*/*", "text/html", &format!("text/html, {json};q=0.1")] {
        assert!(accept(other).starts_with("application/vnd.pypi.simple.v1+html"), "{other}");
    }
}

fn route_of_local() -> Route {
    route("pypi", "sources = [\"http://127.0.0.1:9/simple\"]")
}

#[test]
fn a_hub_says_the_hash_of_what_it_links_to() {
    let sent = |fields: &[(&'static str, &str)]| {
        let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Resolution::of(&fields, None)
    };
    let tag = format!("\"{HEX}\"");
    let linked = sent(&[("etag", "\"x\""), ("x-linked-etag", &tag), ("x-repo-commit", "c"), ("age", "7")]);
    assert_eq!(linked.digest(), Digest::from_hex(HashKind::Sha256, HEX));
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(linked.fields, [field("x-repo-commit", "c"), field("x-linked-etag", &tag)]);
    assert_eq!(sent(&[("etag", &tag)]).digest(), None, "its own tag may be anything");
    assert_eq!(sent(&[("x-linked-etag", "\"a40\"")]).digest(), None);
    assert_eq!(sent(&[]), Resolution::default());
}

fn presets() -> Vec<String> {
    Preset::names().split(", ").map(str::to_owned).collect()
}

proptest! {
    /// No path leads out of the sources, and no page makes the rewriter fail.
    #[test]
    fn nothing_leads_elsewhere(
        preset in proptest::sample::select(presets()),
        names in proptest::collection::vec("[^/\0]{1,8}", 0..5),
        directory in any::<bool>(),
        html in "(<a |href|=|\"|'|https://files.pythonhosted.org/|\\.\\./|#|&amp;|é| ){0,30}",
    ) {
        let route = route(&preset, "sources = [\"https://a.example/s\"]");
        prop_assume!(names.iter().all(|name| name != "." && name != ".."));
        let path = StorePath { names: &names, directory, query: None, accept: "" };
        if let Some(target) = target(&route, &path) {
            for source in target.sources {
                let url = url::Url::parse(&source).expect("a URL");
                prop_assert_eq!(url.host_str(), Some("a.example"));
                prop_assert!(url.fragment().is_none() && url.query().is_none());
            }
        }
        let _ = rewrite_index(&route_of_local(), "http://127.0.0.1:9/simple/x/", 1, &html);
    }
}
