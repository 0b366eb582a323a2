//! The network namespaces that a process holds, and those that are left after its end.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anabranch_net::Namespace;
use serde_json::Value;

/// Returns the network namespaces to which a process has descriptors.
pub(crate) fn held(pid: &str) -> BTreeSet<String> {
    let names = |entry: fs::DirEntry| fs::read_link(entry.path()).ok()?.to_str().map(str::to_owned);
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files.filter_map(names).filter(|name| name.starts_with("net:[")).collect()
}

/// Returns those of the namespaces `of` that any process still has a descriptor of, or is in.
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

/// Opens the namespace of an entry in the list `hosts` or `nodes` of a state.
pub(crate) fn namespace(state: &Value, list: &str, place: usize) -> Namespace {
    let path = format!("/proc/{}/fd/{}", state["pid"], state[list][place]["fd"]);
    Namespace::open(Path::new(&path)).expect("a namespace")
}
