//! Turns networks into links: reads the table `[topology]` at the top of a scenario file.
//!
//! ```text
//!  [topology] network = "geant.gml" ──read──▶ Graph ──▶ [link.A_B], [link.B_A] of each line
//!  paths = [{ from = "A", to = "C" }] ──routes──▶ paths = [{ via = ["A_B", "B_C"] }]
//! ```
//!
//! Both are short forms of links and paths, and are replaced when the file is read: a scenario has no nodes,
//! so cases, faults, measures and `--set` name the links. A link that the file itself defines keeps the keys
//! that it has there. The name of a link consists of its ends' names, with `-` for everything but letters
//! and digits, and `_` between them; parallel links end in `_2`, `_3` and so on.

use std::collections::BTreeMap;
use std::path::Path;

use anabranch_topology::graph::{Graph, LinkId};
use anabranch_topology::import::Defaults;
use anabranch_topology::paths::{Costs, PATHS_MAX, Router};
use serde::Deserialize;
use toml::{Table, Value};

use super::check::LINKS_MAX;
use super::error::ScenarioError;
use super::units::{Duration, RateSpec, SizeSpec};
use crate::hint::{hint, missing};
use crate::named_network;

/// Key of the table at the top of the file.
pub(super) const KEY: &str = "topology";
/// Keys of a path that stand for its links.
pub(super) const PATH_KEYS: &[&str] = &["from", "to", "rank"];
/// Keys below [`KEY`].
const KEYS: &[&str] = &["network", "rate", "delay", "queue"];

/// A network, and default values for links without values of their own.
#[derive(Deserialize)]
struct Topology {
    /// A file, or the name of a built-in network.
    network: String,
    rate: Option<RateSpec>,
    delay: Option<Duration>,
    queue: Option<SizeSpec>,
}

/// Replaces the short forms of links and paths in `root`, a scenario file in `dir`. Returns whether there
/// were any.
///
/// # Errors
/// If the network cannot be read (the error has file and line), or a path has no such route.
pub(super) fn expand(root: &mut Table, dir: &Path) -> Result<bool, ScenarioError> {
    let Some(topology) = root.remove(KEY) else { return refuse_ends(root) };
    let Value::Table(table) = &topology else {
        return Err(ScenarioError::at(KEY, "expected a table: { network = \"NAME or FILE\" }"));
    };
    if let Some(key) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
        let what = format!("unknown key `{key}` in {KEY}{}", hint(key, KEYS.iter().copied()));
        return Err(ScenarioError::of(format!("{KEY}.{key}"), what));
    }
    let said = |e: toml::de::Error| e.message().trim().replace("missing field", "missing key");
    let topology: Topology = topology.try_into().map_err(|e| ScenarioError::at(KEY, said(e)))?;
    let at = |what| ScenarioError::at(format!("{KEY}.network"), what);
    let defaults = Defaults {
        delay_ns: topology.delay.map_or(Defaults::default().delay_ns, |delay| delay.0.as_nanos()),
        capacity_bytes: None,
    };
    let network = named_network::read(&topology.network, dir, &defaults).map_err(at)?;
    let names = names(&network.graph);
    if names.len() > LINKS_MAX {
        return Err(at(format!("{} has more than {LINKS_MAX} links", topology.network)));
    }
    links(root, &topology, &network.graph, &names)?;
    routes(root, &network.graph, &names)?;
    Ok(true)
}

/// Refuses paths between nodes in a file without a network.
fn refuse_ends(root: &Table) -> Result<bool, ScenarioError> {
    for (flow, index, path) in paths(root) {
        if let Some(key) = PATH_KEYS.iter().find(|key| path.contains_key(**key)) {
            let key = format!("flow.{flow}.paths.{index}.{key}");
            let what = format!("there is no network: write [{KEY}] and its `network`, or the links as `via`");
            return Err(ScenarioError::at(key, what));
        }
    }
    Ok(false)
}

/// Returns all paths of a file: the flow, the path's index in it, and the path's table.
fn paths(root: &Table) -> impl Iterator<Item = (&str, usize, &Table)> {
    let flows = root.get("flow").and_then(Value::as_table).into_iter().flatten();
    flows.flat_map(|(name, flow)| {
        let paths = flow.get("paths").and_then(Value::as_array).into_iter().flatten().enumerate();
        paths.filter_map(move |(index, path)| Some((name.as_str(), index, path.as_table()?)))
    })
}

/// Returns the names of all links, in their order.
fn names(graph: &Graph) -> Vec<String> {
    let slug = |name: &str| {
        let words = name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        words.collect::<Vec<_>>().join("-")
    };
    let mut used: BTreeMap<String, usize> = BTreeMap::new();
    let mut name = |id: LinkId| {
        let link = graph.link(id);
        let name = format!("{}_{}", slug(&graph.node(link.from).name), slug(&graph.node(link.to).name));
        let count = used.entry(name.clone()).or_default();
        *count += 1;
        if *count == 1 { name } else { format!("{name}_{count}") }
    };
    graph.link_ids().map(&mut name).collect()
}

/// Adds the links of the network to the file.
fn links(
    root: &mut Table,
    topology: &Topology,
    graph: &Graph,
    names: &[String],
) -> Result<(), ScenarioError> {
    let all = root.entry("link").or_insert_with(|| Value::Table(Table::new()));
    let all = all.as_table_mut().ok_or_else(|| ScenarioError::at("link", "expected a table"))?;
    for (id, name) in graph.link_ids().zip(names) {
        let link = graph.link(id);
        let mut keys = Table::new();
        let rate = link.capacity_bytes.map(|bytes| format!("{bytes} B/s"));
        let rate = rate.or_else(|| topology.rate.map(|rate| rate.to_string()));
        keys.extend(rate.map(|rate| ("rate".into(), Value::String(rate))));
        keys.extend(topology.queue.map(|queue| ("queue".into(), Value::String(queue.to_string()))));
        keys.insert("delay".into(), Value::String(format!("{} ns", link.delay_ns)));
        let own = all.entry(name).or_insert_with(|| Value::Table(Table::new()));
        let own = own
            .as_table_mut()
            .ok_or_else(|| ScenarioError::at(format!("link.{name}"), "expected a table"))?;
        for (key, value) in keys {
            own.entry(key).or_insert(value);
        }
    }
    Ok(())
}

/// Replaces the ends of paths by the links between them.
fn routes(root: &mut Table, graph: &Graph, names: &[String]) -> Result<(), ScenarioError> {
    let (mut router, mut found) = (Router::new(graph, Costs::delay(graph)), Vec::new());
    for (flow, index, path) in
        paths(root).filter(|(_, _, path)| PATH_KEYS.iter().any(|key| path.contains_key(*key)))
    {
        let key = |key: &str| format!("flow.{flow}.paths.{index}.{key}");
        if path.contains_key("via") {
            return Err(ScenarioError::at(key("via"), "either the links, or `from` and `to`"));
        }
        let end = |name: &str| {
            let wanted = path.get(name).and_then(Value::as_str);
            let wanted =
                wanted.ok_or_else(|| ScenarioError::at(key(name), "the name of a node is missing"))?;
            graph.find(wanted).map_err(|_| {
                let nodes = graph.nodes().iter().map(|node| node.name.as_str());
                ScenarioError::at(key(name), missing("node", wanted, nodes))
            })
        };
        let (from, to) = (end("from")?, end("to")?);
        let rank = path.get("rank").map_or(Some(1), Value::as_integer);
        let rank =
            rank.and_then(|rank| usize::try_from(rank).ok()).filter(|rank| (1..=PATHS_MAX).contains(rank));
        let rank = rank.ok_or_else(|| ScenarioError::at(key("rank"), format!("from 1 to {PATHS_MAX}")))?;
        let all = router.shortest(from, to, rank);
        let count = all.len();
        let route = all.into_iter().nth(rank - 1).ok_or_else(|| {
            ScenarioError::at(key("to"), format!("there are {count} paths between these nodes, and no more"))
        })?;
        let via: Vec<Value> = route.links.iter().map(|id| Value::String(names[id.index()].clone())).collect();
        found.push((flow.to_owned(), index, via));
    }
    for (flow, index, via) in found {
        let path = &mut root["flow"][flow.as_str()]["paths"][index];
        if let Some(path) = path.as_table_mut() {
            PATH_KEYS.iter().for_each(|key| drop(path.remove(*key)));
            path.insert("via".into(), Value::Array(via));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Scenario;

    const GML: &str = "graph [\n  node [ id 0 label \"A, north\" ]\n  node [ id 1 label \"B\" ]\n  \
                       node [ id 2 label \"C\" ]\n  edge [ source 0 target 1 LinkSpeedRaw 8000000 ]\n  \
                       edge [ source 1 target 2 ]\n  edge [ source 0 target 2 ]\n]\n";

    /// Parses a scenario over the network `gml` of three nodes, which is written to a file with this name.
    fn scenario(name: &str, gml: &str, rest: &str) -> Result<Scenario, String> {
        let file = std::env::temp_dir().join(format!("anabranch-{name}-{}.gml", std::process::id()));
        std::fs::write(&file, gml).expect("written");
        let text = format!(
            "title = \"t\"\nduration = \"60 s\"\n[topology]\nnetwork = {:?}\nrate = \"2 Mbit/s\"\n\
             delay = \"7 ms\"\nqueue = \"50 pkt\"\n{rest}",
            file.display().to_string()
        );
        let read = Scenario::parse(&text, "x").map_err(|e| e.to_string());
        std::fs::remove_file(&file).expect("removed");
        read
    }

    #[test]
    fn lines_become_links_and_ends_become_routes() {
        let rest = "[link.A-north_B]\nqueue = \"9 pkt\"\n[flow.f]\npaths = [\
                    { from = \"a\", to = \"C\", rtt = \"80 ms\" }, \
                    { from = \"A, north\", to = \"C\", rank = 2 }]\n";
        let scenario = scenario("links", GML, rest).expect("a scenario");
        let names: Vec<&str> = scenario.link.keys().map(String::as_str).collect();
        assert_eq!(names, ["A-north_B", "A-north_C", "B_A-north", "B_C", "C_A-north", "C_B"]);
        let link = |name: &str| {
            let link = &scenario.link[name];
            let rate = link.rate.map(|rate| rate.rate(1_500).as_bytes());
            (rate, link.delay.to_string(), link.queue.map(|queue| queue.to_string()))
        };
        assert_eq!(
            link("A-north_B"),
            (Some(1_000_000), "7 ms".into(), Some("9 pkt".into())),
            "the file's own"
        );
        assert_eq!(link("B_A-north"), (Some(1_000_000), "7 ms".into(), Some("50 pkt".into())));
        assert_eq!(link("C_B").0, Some(250_000), "where the network says nothing");
        assert_eq!(scenario.flow["f"].paths[0].via, ["A-north_C"]);
        assert_eq!(scenario.flow["f"].paths[1].via, ["A-north_B", "B_C"]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let flow = |path: &str| format!("[flow.f]\npaths = [{path}]\n");
        let error = |gml: &str, rest: &str| scenario("wrong", gml, rest).expect_err(rest);
        let what = error(&GML.replace("target 2 ]\n]", "target 7 ]\n]"), "");
        assert!(
            what.starts_with("x:4: topology.network: ") && what.contains(".gml:7: there is no node"),
            "{what}"
        );
        let what = error(GML, &flow("{ from = \"B\", to = \"Cc\" }"));
        assert!(what.starts_with("x:9: flow.f.paths.0.to: there is no node `Cc`"), "{what}");
        let what = error(GML, &flow("{ from = \"B\", to = \"C\", rank = 3 }"));
        assert!(what.contains("flow.f.paths.0.to: there are 2 paths between these nodes"), "{what}");
        let what = error(GML, &flow("{ from = \"B\", to = \"C\", via = [\"B_C\"] }"));
        assert!(what.contains("flow.f.paths.0.via: either the links"), "{what}");
        let what = error(GML, &flow("{ via = [\"B_CC\"] }"));
        assert!(
            what.contains("x:9: flow.f.paths.0.via.0: there is no link `B_CC`: did you mean `B_C`?"),
            "{what}"
        );
        let what = error(GML, &flow("{ form = \"B\", to = \"C\" }"));
        assert!(what.contains("flow.f.paths.0.from: the name of a node is missing"), "{what}");
        let what = error(GML, "rat = \"1 Mbit/s\"\n");
        assert!(what.contains("unknown key `rat` in topology: did you mean `rate`?"), "{what}");
        let parse = |text: &str| Scenario::parse(text, "x").expect_err(text).to_string();
        let head = "title = \"t\"\nduration = \"60 s\"\n";
        let what = parse(&format!("{head}[topology]\nnetwork = \"Geant2021\"\n"));
        assert!(what.contains("x:4: topology.network: Geant2021 is neither a file nor a network"), "{what}");
        assert!(what.contains("did you mean `Geant2012`?"), "{what}");
        let what = parse(&format!("{head}[toplogy]\nnetwork = \"Geant2012\"\n"));
        assert!(what.contains("unknown key `toplogy`: did you mean `topology`?"), "{what}");
        let what = parse(&format!("{head}{}", flow("{ from = \"B\", to = \"C\" }")));
        assert!(what.contains("x:4: flow.f.paths.0.from: there is no network"), "{what}");
    }

    #[test]
    fn a_network_that_is_built_in_is_run() {
        let text = "title = \"t\"\nduration = \"5 s\"\n[topology]\nnetwork = \"Geant2012\"\n\
                    rate = \"10 Mbit/s\"\n[flow.f]\npaths = [{ from = \"FR\", to = \"PL\" }]\n\
                    [[measure]]\nmetric = \"m\"\nkind = \"goodput\"\n";
        let mut scenario = Scenario::parse(text, "x").expect("a scenario");
        assert!(scenario.link.len() > 100 && scenario.flow["f"].paths[0].via.len() > 1);
        let first = scenario.flow["f"].paths[0].via[0].clone();
        scenario.set(&format!("link.{first}.rate"), "1 Mbit/s").expect("a link as any other");
        let what = scenario.set("topology.network", "Bren").expect_err("it is no key any more").to_string();
        assert!(what.contains("only read with the file"), "{what}");
        let outcome = crate::run::run(&scenario, "reno", 1);
        assert!(
            outcome.violations.is_empty() && outcome.values[0].is_some_and(|rate| (0.5..1.0).contains(&rate))
        );
    }
}
