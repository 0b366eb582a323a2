//! What a process that holds network namespaces has of them, and what is left when it has ended.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anabranch_net::Namespace;
use serde_json::Value;

/// The network namespaces that a process has descriptors of.
pub(crate) fn held(pid: &str) -> BTreeSet<String> {
    let names = |entry: fs::DirEntry| fs::read_link(entry.path()).ok()?.to_str().map(str::to_owned);
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files.filter_map(names).filter(|name| name.starts_with("net:[")).collect()
}

/// Those of them that any process still has, or is in.
pub(crate) fn left(of: &BTreeSet<String>) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.bytes().all(|byte| byte.is_ascii_digit()) {
            all.extend(held(&name));
            let own = fs::read_link(entry.path().join("ns/net"));
            all.extend(own.ok().and_then(|own| own.to_str().map(str::to_owned)));
        }
    }
    all.intersection(of).cloned().collect()
}

/// The namespace of one of the `hosts`, `nodes` that a state tells of.
pub(crate) fn namespace(state: &Value, list: &str, place: usize) -> Namespace {
    let path = format!("/proc/{}/fd/{}", state["pid"], state[list][place]["fd"]);
    Namespace::open(Path::new(&path)).expect("a namespace")
}
