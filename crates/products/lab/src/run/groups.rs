//! Computes which paths share a bottleneck: in the topology, and as a flow initially assumes.

use std::collections::BTreeMap;

use crate::scenario::{Flow, Groups, Scenario};

/// The group of each path. Paths that share a link with a queue or a medium, directly or through other
/// paths, are in one group (Thomas, dissertation, section 4.2.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopologyGroups(pub(super) Vec<u32>);

impl TopologyGroups {
    pub(crate) fn new(scenario: &Scenario, flow: &Flow) -> Self {
        // Union-find over the links: the smallest path number names a group.
        let mut group: Vec<usize> = (0..flow.paths.len()).collect();
        let find = |group: &[usize], mut p: usize| {
            while group[p] != p {
                p = group[p];
            }
            p
        };
        let mut first: BTreeMap<(bool, &String), usize> = BTreeMap::new();
        for (p, path) in flow.paths.iter().enumerate() {
            let shared = path.via.iter().flat_map(|name| {
                let link = &scenario.link[name];
                [
                    link.is_limited().then_some((false, name)),
                    link.medium.as_ref().map(|medium| (true, medium)),
                ]
            });
            for bottleneck in shared.flatten() {
                let other = *first.entry(bottleneck).or_insert(p);
                let (a, b) = (find(&group, p), find(&group, other));
                group[a.max(b)] = a.min(b);
            }
        }
        Self((0..group.len()).map(|p| find(&group, p) as u32).collect())
    }

    /// Returns the groups that a flow starts with.
    pub(crate) fn initial(scenario: &Scenario, flow: &Flow) -> Vec<u32> {
        let paths = 0..flow.paths.len() as u32;
        match flow.groups {
            Groups::All | Groups::Auto => vec![0; flow.paths.len()],
            Groups::None => paths.collect(),
            Groups::Topology => Self::new(scenario, flow).0,
            Groups::Given => flow.paths.iter().map(|path| path.group).collect(),
        }
    }

    /// Whether paths that share a bottleneck are apart, and whether paths that share none are together.
    pub(super) fn mismatches(&self, groups: &[u32]) -> (bool, bool) {
        let pairs = || (0..groups.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
        let wrong = |truly: bool| {
            pairs().any(|(a, b)| (self.0[a] == self.0[b]) == truly && (groups[a] == groups[b]) != truly)
        };
        (wrong(true), wrong(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Link, Path};

    fn topology(links: &[&[&str]]) -> Vec<u32> {
        let text = "title = \"t\"\nduration = \"1 s\"";
        let mut scenario: Scenario = toml::from_str(text).unwrap();
        for name in links.iter().flat_map(|via| via.iter()) {
            let rate = (!name.starts_with("free")).then(|| "1 Mbit/s".parse().unwrap());
            scenario.link.insert((*name).into(), Link { rate, ..Link::default() });
        }
        let path = |via: &&[&str]| Path { via: via.iter().map(|l| (*l).into()).collect(), ..Path::default() };
        TopologyGroups::new(&scenario, &Flow { paths: links.iter().map(path).collect(), ..Flow::default() }).0
    }

    #[test]
    fn shared_links_join_transitively() {
        assert_eq!(topology(&[&["a"], &["b"], &["c"]]), [0, 1, 2]);
        assert_eq!(topology(&[&["a"], &["a", "x"], &["c"]]), [0, 0, 2]);
        assert_eq!(topology(&[&["a"], &["a", "b"], &["b"]]), [0, 0, 0], "A with B, B with C: all three");
        assert_eq!(topology(&[&["a"], &["b"], &["b", "c"], &["c", "a"]]), [0, 0, 0, 0]);
        assert_eq!(topology(&[&["free", "a"], &["free", "b"]]), [0, 1], "what never queues joins nobody");
    }

    #[test]
    fn differences() {
        let topology = TopologyGroups(vec![0, 0, 2]);
        assert_eq!(topology.mismatches(&[5, 5, 1]), (false, false));
        assert_eq!(topology.mismatches(&[0, 1, 2]), (true, false));
        assert_eq!(topology.mismatches(&[0, 0, 0]), (false, true));
        assert_eq!(topology.mismatches(&[0, 1, 1]), (true, true));
    }
}
