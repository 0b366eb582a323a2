//! `anabranch net new`: writes a domain to begin with.

use std::path::Path;

use super::domain_args::New;
use super::key;
use crate::exit::{Failure, Outcome};
use crate::names::show;
use crate::new_file::create;
use crate::stdout::print;
use crate::toml_name::{stem, with_toml};

/// The domain's text, with placeholders for its name, for the public key of its scope and for the key's file.
const TEMPLATE: &str = include_str!("demo.toml");
/// The largest number of characters of a domain's name.
const NAME_MAX: usize = 40;

/// Writes the domain and its key.
///
/// # Errors
/// 6 if a file cannot be written or exists already.
pub(super) fn new(args: &New) -> Outcome {
    let file = with_toml(&args.name);
    let key_file = file.with_extension("key");
    // Both files are checked first, so that neither is written without the other.
    for path in [&file, &key_file] {
        if std::fs::symlink_metadata(path).is_ok() {
            return Err(Failure::target(format!("{} exists already", show(path))));
        }
    }
    let key = key::make(&key_file)?;
    create(&file, &text(&file, &key.public().to_string()))?;
    let (file, key_file) = (show(&file), show(&key_file));
    print(
        format!(
            "{file} and {key_file} are written; bring it up:\n  \
             sudo anabranch net up {file} --serve p1=FILE --serve p2=FILE --key {key_file}\n"
        )
        .as_bytes(),
    )
}

fn text(file: &Path, key: &str) -> String {
    let key_file = show(file.with_extension("key"));
    TEMPLATE.replace("{name}", &domain_name(file)).replace("{key}", key).replace("{key file}", &key_file)
}

/// Returns a name for the domain whose file has this name.
fn domain_name(file: &Path) -> String {
    let plain = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' };
    stem(file).to_lowercase().chars().map(plain).take(NAME_MAX).collect()
}

#[cfg(test)]
mod tests {
    use anabranch_overlay::publication::ScopeKey;
    use anabranch_topology::plan::Policy;

    use super::*;

    #[test]
    fn it_is_a_domain_with_three_disjoint_ways_to_each_source() {
        let key = ScopeKey::new([7; 32]).expect("a key").public();
        let domain =
            anabranch_overlay::domain_file::read(&text(Path::new("dir/My first.toml"), &key.to_string()))
                .expect("a domain");
        assert_eq!(domain.name, "my-first");
        assert_eq!(domain.scope_key(&"films".parse().expect("a scope")), Some(&key));
        let node = |name| domain.graph.by_name(name).expect("a node");
        assert_eq!(domain.forwarders().count(), 5);
        for source in ["p1", "p2"] {
            let ways = domain.plan(node("a"), &[node(source)], 4, Policy::LinkDisjoint, |_| true);
            let mut groups: Vec<u32> = ways.iter().map(|way| way.group).collect();
            groups.dedup();
            assert_eq!(groups.len(), 3, "{source}");
        }
        for link in domain.graph.links() {
            assert!((5_000_000..=20_000_000).contains(&link.delay_ns));
            assert!((2_500_000..=6_250_000).contains(&link.capacity_bytes.expect("a rate")));
        }
        // If any one line is cut, every node still reaches both services.
        for cut in domain.graph.link_ids() {
            let up = |link| link != cut && link != domain.reverse(cut);
            for from in domain.graph.node_ids() {
                for service in [domain.rendezvous.node, domain.topology.node] {
                    let ways = domain.plan(from, &[service], 1, Policy::Shortest, up);
                    assert!(from == service || !ways.is_empty(), "{cut:?} {from:?}");
                }
            }
        }
    }
}
