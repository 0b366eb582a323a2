//! Settings of a cache, the path of a request, an index page, and header fields for caches: no panic, and
//! no URL outside of the sources that the settings name.
#![no_main]

use std::sync::OnceLock;

use anabranch_cache::config::Config;
use anabranch_cache::freshness::CacheFields;
use anabranch_cache::preset::{StorePath, rewrite_index, target};
use anabranch_http::server::path::Path;
use libfuzzer_sys::fuzz_target;

const SOURCES: &str = "sources = [\"http://a.example/s\"]";

fn settings() -> &'static Config {
    static READ: OnceLock<Config> = OnceLock::new();
    READ.get_or_init(|| {
        let presets = ["files", "pypi", "nix", "oci", "apt", "casync", "ostree", "huggingface", "git-lfs"];
        let routes: String = presets
            .iter()
            .map(|p| format!("[[route]]\nat = \"/{p}\"\npreset = \"{p}\"\n{SOURCES}\n"))
            .collect();
        Config::parse(&format!("directory = \"/c\"\ncapacity = \"1GB\"\n{routes}")).expect("settings")
    })
}

fuzz_target!(|text: &str| {
    if let Ok(config) = Config::parse(text) {
        assert!(config.routes.windows(2).all(|two| two[0].at.len() >= two[1].at.len()));
    }
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let fields = CacheFields {
        cache_control: Some(first.to_owned()),
        age: Some(rest.to_owned()),
        date: Some(rest.to_owned()),
        expires: Some(rest.to_owned()),
        vary: Some(rest.to_owned()),
        ..CacheFields::default()
    };
    let _ = (fields.verdict(1 << 30), fields.is_storable(), fields.refreshed(&fields).age_s(u64::MAX));
    for route in &settings().routes {
        let _ = rewrite_index(route, "http://a.example/s/x/", 1, rest);
    }
    let Some(path) = Path::parse(first) else { return };
    let names: Result<Vec<String>, _> = path.names.into_iter().map(String::from_utf8).collect();
    let Ok(names) = names else { return };
    let Some((route, below)) = settings().route(&names) else { return };
    let wanted = StorePath { names: below, directory: path.directory, query: None, accept: "" };
    for source in target(route, &wanted).into_iter().flat_map(|target| target.sources) {
        let is_below = |base: &String| source.starts_with(&format!("{base}/"));
        assert!(route.sources.iter().chain(&route.files).any(is_below), "{source}");
        let inside = &source["http://a.example".len()..];
        let is_clean = !inside.contains(['?', '#', ' ', '\\']);
        assert!(is_clean && !inside.split('/').any(|name| name == ".."), "{source}");
    }
});
