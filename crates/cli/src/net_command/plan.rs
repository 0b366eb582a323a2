//! Decides which programs run on the nodes of a domain, and with which options.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anabranch_net::nearest;
use anabranch_overlay::domain::Domain;
use anabranch_overlay::publication::{Name, Scope};
use anabranch_topology::graph::NodeId;
use serde::{Deserialize, Serialize};

use super::domain_args::{OfNode, Up};
use super::keys;
use crate::exit::{Failure, Outcome};
use crate::names::show;
use crate::network_options::scope_key;

/// Describes a program of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Task {
    /// The index of the node in the domain.
    pub(super) node: usize,
    /// The command of anabranch and its arguments.
    pub(super) args: Vec<String>,
    /// The option that names a file with the program's state, which it reads when it is started again.
    pub(super) state: Option<String>,
    /// The text of the program's key, in a domain with keyed identifiers.
    pub(super) key: Option<String>,
}

/// Returns the programs of all nodes of a domain. `file` is an absolute path.
///
/// # Errors
/// 2 if an option names a node or file that does not exist or fit, or a key of no scope of the domain.
pub(super) fn tasks(domain: &Domain, file: &str, args: &Up) -> Outcome<Vec<Task>> {
    let name = |node: NodeId| domain.graph.node(node).name.clone();
    let task = |command: &str, before: Option<String>, node: NodeId, more: Vec<String>| {
        let place = ["--domain".into(), file.into(), "--node".into(), name(node)];
        let args = [command.into()].into_iter().chain(before).chain(place).chain(more).collect();
        Task { node: node.index(), args, state: None, key: None }
    };
    let (services_key, forwarder_keys) = match domain.is_keyed() {
        true => keys::for_trial(domain).map(|(services, forwarders)| (Some(services), forwarders))?,
        false => (None, Vec::new()),
    };
    let service = |command, node| Task { key: services_key.clone(), ..task(command, None, node, Vec::new()) };
    let mut tasks = vec![
        Task { state: Some("--state".into()), ..service("rendezvous", domain.rendezvous.node) },
        service("topology", domain.topology.node),
    ];
    let mut caches: Vec<(NodeId, &str)> = Vec::new();
    for OfNode { node, value } in &args.caches {
        let id = find(domain, "--cache", node)?;
        if !domain.is_forwarder(id) {
            return Err(Failure::usage(format!(
                "--cache {node}={value}: {node} is a host; only forwarders cache"
            )));
        }
        if caches.iter().any(|(other, _)| *other == id) {
            return Err(Failure::usage(format!("--cache {node}={value}: {node} has a cache already")));
        }
        caches.push((id, value));
    }
    let mut forwarder_keys = forwarder_keys.into_iter();
    for node in domain.forwarders() {
        let cache = caches.iter().find(|(id, _)| *id == node);
        let more = cache.map_or_else(Vec::new, |(_, size)| vec!["--cache".into(), (*size).into()]);
        tasks.push(Task { key: forwarder_keys.next(), ..task("forward", None, node, more) });
    }
    let Some(key_file) = args.key.as_deref().filter(|_| !args.serves.is_empty()) else { return Ok(tasks) };
    let scope = scope(domain, key_file)?;
    let key_file = absolute(key_file)?;
    let mut served = BTreeSet::new();
    for OfNode { node, value } in &args.serves {
        let id = find(domain, "--serve", node)?;
        let wrong = |why: String| Failure::usage(format!("--serve {node}={value}: {why}"));
        if domain.is_forwarder(id) {
            return Err(wrong(format!("{node} forwards; sources are on hosts")));
        }
        let path = absolute(Path::new(value))?;
        let label = Path::new(&path).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let published = Name::new(scope.clone(), label).map_err(|e| wrong(e.to_string()))?;
        let mut more = vec!["--publish".into(), published.to_string(), "--key".into(), key_file.clone()];
        if !served.insert(id) {
            // The first source on a node has the usual port, so later ones take any.
            more.extend(["--listen", "0.0.0.0:0", "--listen", "[::]:0"].map(String::from));
        }
        tasks.push(task("serve", Some(path), id, more));
    }
    Ok(tasks)
}

/// Returns the scope of a domain whose key is in this file.
fn scope(domain: &Domain, file: &Path) -> Outcome<Scope> {
    let key = scope_key(file)?.public();
    let scope = domain.scopes().find(|scope| domain.scope_key(scope) == Some(&key));
    scope.cloned().ok_or_else(|| {
        Failure::usage(format!(
            "no scope of the domain {} has the key of {}: add a line below [scopes], such as \
             films = \"{key}\"",
            domain.name,
            show(file)
        ))
    })
}

/// Finds a node by its name.
fn find(domain: &Domain, option: &str, name: &str) -> Outcome<NodeId> {
    domain.graph.by_name(name).ok_or_else(|| {
        let names: Vec<&str> = domain.graph.nodes().iter().map(|node| node.name.as_str()).collect();
        let hint = nearest(name, names.iter().copied()).map_or_else(
            || format!("; there are {}", names.join(", ")),
            |near| format!(": did you mean {near}?"),
        );
        Failure::usage(format!("{option}: there is no node {}{hint}", show(name)))
    })
}

/// Returns the absolute path of an existing file.
pub(super) fn absolute(path: &Path) -> Outcome<String> {
    let whole =
        fs::canonicalize(path).map_err(|e| Failure::usage(format!("cannot read {}: {e}", show(path))))?;
    let text = whole.to_str().map(str::to_owned);
    text.ok_or_else(|| Failure::usage(format!("{}: expected a path in UTF-8", show(path))))
}
