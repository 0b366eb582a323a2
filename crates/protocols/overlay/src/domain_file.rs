//! Reads the file of a domain, in TOML.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU8;
use std::sync::OnceLock;

use anabranch_algo::{Rate, Span};
use anabranch_topology::graph::{Builder, NodeId};
use anabranch_topology::plan::Policy;
use anabranch_topology::tags::Tags;
use serde::Deserialize;

use crate::domain::{Class, ClassId, Classes, Domain, PATHS_MAX, PathChoice, Service};
use crate::dscp::{Dscp, NoDscp};
use crate::message::LINKS_MAX;
use crate::publication::{PublicKey, Scope};

/// The most bytes of a domain's file.
const FILE_BYTES_MAX: usize = 16 << 20;
/// The most lines of a domain.
const LINES_MAX: usize = 1 << 14;
/// The most classes of a domain.
pub const CLASSES_MAX: usize = 16;
/// The UDP ports of forwarders, rendezvous and topology manager, if the file has no others.
const PORTS: [u16; 3] = [7_700, 7_701, 7_702];
/// The longest delay of a line, in milliseconds.
const DELAY_MAX_MS: f64 = 60_000.0;
/// The lowest and the highest rate of a line, in Mbit/s.
const RATE_MBIT: std::ops::RangeInclusive<f64> = 0.001..=1_000_000.0;

/// The length of an epoch of keyed identifiers, in seconds: the least and the most, and the default.
const EPOCH_S: std::ops::RangeInclusive<u64> = 8..=86_400;
const EPOCH_USUAL_S: u64 = 600;

/// Why a text is not the file of a domain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DomainError {
    /// The text is not TOML, or has unknown keys.
    #[error("{0}")]
    Syntax(String),
    /// The values of the text make no sense.
    #[error("{0}")]
    Meaning(String),
}

fn wrong<T>(why: impl Into<String>) -> Result<T, DomainError> {
    Err(DomainError::Meaning(why.into()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    forwarders: Vec<String>,
    forwarder_port: Option<u16>,
    #[serde(default)]
    identifiers: Identifiers,
    epoch_s: Option<u64>,
    rendezvous: ServiceTable,
    topology: TopologyTable,
    #[serde(default)]
    class: BTreeMap<String, ClassTable>,
    #[serde(default)]
    scopes: BTreeMap<String, String>,
    #[serde(default)]
    line: Vec<LineTable>,
}

/// Which members can make forwarding identifiers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Identifiers {
    /// All members, since all have the file.
    #[default]
    Open,
    /// Only the services, which have a key.
    Keyed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServiceTable {
    node: String,
    port: Option<u16>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TopologyTable {
    node: String,
    port: Option<u16>,
    policy: Option<PolicyName>,
    paths: Option<u8>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClassTable {
    policy: Option<PolicyName>,
    paths: Option<u8>,
    /// The code point, as a name or a number.
    dscp: Option<toml::Value>,
}

/// The way in which paths are chosen, as the file writes it.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum PolicyName {
    Shortest,
    LinkDisjoint,
    NodeDisjoint,
}

impl From<PolicyName> for Policy {
    fn from(name: PolicyName) -> Self {
        match name {
            PolicyName::Shortest => Self::Shortest,
            PolicyName::LinkDisjoint => Self::LinkDisjoint,
            PolicyName::NodeDisjoint => Self::NodeDisjoint,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LineTable {
    between: [String; 2],
    addresses: Option<[IpAddr; 2]>,
    #[serde(default)]
    delay_ms: f64,
    rate_mbit: Option<f64>,
    limit_mbit: Option<f64>,
}

/// The graph and the lines of a file.
struct Lines {
    builder: Builder,
    nodes: BTreeMap<String, NodeId>,
    /// The addresses of the two ends of each line.
    ends: Vec<IpAddr>,
    limits: Vec<Option<Rate>>,
}

impl Lines {
    fn read(file: &File) -> Result<Self, DomainError> {
        let (mut builder, mut nodes, mut ends) = (Builder::new(), BTreeMap::new(), Vec::new());
        let (mut taken, mut limits) = (BTreeSet::new(), Vec::new());
        for (number, line) in file.line.iter().enumerate() {
            let [a, b] = &line.between;
            let mut node = |name: &String| -> Result<NodeId, DomainError> {
                if let Some(id) = nodes.get(name) {
                    return Ok(*id);
                }
                if !is_plain(name) {
                    return wrong(format!(
                        "{name:?} is no name of a node: expected 1 to 40 of a-z, 0-9 and -"
                    ));
                }
                let id = builder.node(name, None).map_err(|e| DomainError::Meaning(e.to_string()))?;
                nodes.insert(name.clone(), id);
                Ok(id)
            };
            let (from, to) = (node(a)?, node(b)?);
            let addresses = line.check(number, &file.forwarders)?;
            for address in addresses {
                if !taken.insert(address) {
                    return wrong(format!(
                        "line {a} – {b}: {address} is the end of another line too: each end has its own"
                    ));
                }
            }
            let capacity = line.rate_mbit.map(bytes_a_second);
            limits.push(line.limit_mbit.map(|limit| Rate::from_bytes(bytes_a_second(limit))));
            let delay_ns = (line.delay_ms * 1e6) as u64;
            builder.line(from, to, capacity, delay_ns).map_err(|e| DomainError::Meaning(e.to_string()))?;
            ends.extend(addresses);
        }
        for name in nodes.keys() {
            let lines = file.line.iter().filter(|line| line.between.contains(name)).count();
            if lines > LINKS_MAX {
                return wrong(format!("{name} has {lines} lines, expected at most {LINKS_MAX}"));
            }
        }
        Ok(Self { builder, nodes, ends, limits })
    }
}

impl LineTable {
    /// Checks the values of the line by themselves. Returns the addresses of its ends.
    fn check(&self, number: usize, forwarders: &[String]) -> Result<[IpAddr; 2], DomainError> {
        let [a, b] = &self.between;
        let here = format!("line {a} – {b}");
        if !self.between.iter().any(|name| forwarders.contains(name)) {
            return wrong(format!("{here}: neither is among `forwarders`, and hosts forward nothing"));
        }
        if !(0.0..=DELAY_MAX_MS).contains(&self.delay_ms) {
            return wrong(format!("{here}: delay_ms = {}, expected 0 to {DELAY_MAX_MS}", self.delay_ms));
        }
        for (key, rate) in [("rate_mbit", self.rate_mbit), ("limit_mbit", self.limit_mbit)] {
            if let Some(rate) = rate.filter(|rate| !RATE_MBIT.contains(rate)) {
                return wrong(format!("{here}: {key} = {rate}, expected 0.001 to 1000000"));
            }
        }
        let addresses = self.addresses.unwrap_or_else(|| own_addresses(number)).map(|ip| ip.to_canonical());
        for address in addresses {
            check_address(address).or_else(|why| wrong(format!("{here}: {address} {why}")))?;
        }
        if addresses[0].is_ipv4() != addresses[1].is_ipv4() {
            return wrong(format!("{here}: one address is of IPv4 and one of IPv6"));
        }
        Ok(addresses)
    }
}

/// Reads the text of a domain's file.
///
/// # Errors
/// If the text is not the file of a domain; the error says why.
pub fn read(text: &str) -> Result<Domain, DomainError> {
    if text.len() > FILE_BYTES_MAX {
        return wrong(format!("it is longer than {FILE_BYTES_MAX} bytes"));
    }
    let file: File = toml::from_str(text).map_err(|e| syntax(text, &e))?;
    if !is_plain(&file.name) {
        return wrong(format!("name = {:?}: expected 1 to 40 of a-z, 0-9 and -", file.name));
    }
    if file.line.len() > LINES_MAX {
        return wrong(format!("{} lines, expected at most {LINES_MAX}", file.line.len()));
    }
    let Lines { builder, nodes, ends, limits } = Lines::read(&file)?;
    let known = |what: &str, name: &String| match nodes.get(name) {
        Some(id) => Ok(*id),
        None => wrong(format!("{what}: there is no line to {name:?}")),
    };
    let mut forwarders = BTreeSet::new();
    for name in &file.forwarders {
        if !forwarders.insert(known("forwarders", name)?) {
            return wrong(format!("forwarders: {name} is named twice"));
        }
    }
    let service = |what: &str, name: &String, port: Option<u16>, usual: u16| {
        let node = known(what, name)?;
        match (forwarders.contains(&node), port.unwrap_or(usual)) {
            (true, _) => wrong(format!("{what}: {name} forwards: expected a host")),
            (_, 0..1_024) => wrong(format!("{what}: expected a port from 1024 on")),
            (_, port) => Ok(Service { node, port }),
        }
    };
    let rendezvous = service("rendezvous", &file.rendezvous.node, file.rendezvous.port, PORTS[1])?;
    let topology = service("topology", &file.topology.node, file.topology.port, PORTS[2])?;
    let TopologyTable { policy, paths, .. } = file.topology;
    let paths = path_choice("topology", policy, paths, PathChoice::default())?;
    let classes = classes(file.class, paths)?;
    if rendezvous == topology {
        return wrong("rendezvous and topology: both have one port of one node");
    }
    let scopes = scopes(&file.scopes)?;
    let forwarder_port = file.forwarder_port.unwrap_or(PORTS[0]);
    if forwarder_port == 0 {
        return wrong("forwarder_port = 0: expected another");
    }
    let epoch = epoch(file.identifiers, file.epoch_s)?;
    let graph = builder.build();
    let seed = blake3::derive_key("anabranch 2026 tags of a domain", file.name.as_bytes());
    let seed = u64::from_le_bytes(seed.first_chunk().copied().unwrap_or_default());
    let tags = Tags::of(&graph, seed);
    let rules = graph.node_ids().map(|node| tags.forwarder(&graph, node)).collect();
    Ok(Domain {
        name: file.name,
        graph,
        epoch,
        forwarder_port,
        rendezvous,
        topology,
        paths,
        classes: Classes::new(classes),
        scopes,
        forwarders,
        ends,
        limits,
        tags,
        rules,
        keyed_links_max: OnceLock::new(),
    })
}

/// Reads the keys of the scopes.
fn scopes(tables: &BTreeMap<String, String>) -> Result<BTreeMap<Scope, PublicKey>, DomainError> {
    let mut scopes = BTreeMap::new();
    for (scope, key) in tables {
        let key: PublicKey = key.parse().map_err(|e| DomainError::Meaning(format!("scope {scope}: {e}")))?;
        let scope: Scope = scope.parse().map_err(|e| DomainError::Meaning(format!("scopes: {e}")))?;
        scopes.insert(scope, key);
    }
    Ok(scopes)
}

/// Returns the length of an epoch if identifiers are keyed.
fn epoch(identifiers: Identifiers, epoch_s: Option<u64>) -> Result<Option<Span>, DomainError> {
    Ok(match (identifiers, epoch_s) {
        (Identifiers::Open, None) => None,
        (Identifiers::Open, Some(_)) => return wrong("epoch_s is of domains with identifiers = \"keyed\""),
        (Identifiers::Keyed, Some(s)) if !EPOCH_S.contains(&s) => {
            return wrong(format!("epoch_s = {s}, expected {} to {}", EPOCH_S.start(), EPOCH_S.end()));
        }
        (Identifiers::Keyed, s) => Some(Span::from_secs(s.unwrap_or(EPOCH_USUAL_S))),
    })
}

/// Returns the choice of paths that a table makes; its missing values are those of `usual`.
fn path_choice(
    what: &str,
    policy: Option<PolicyName>,
    paths: Option<u8>,
    usual: PathChoice,
) -> Result<PathChoice, DomainError> {
    let policy = policy.map_or(usual.policy, Policy::from);
    let per_host = paths.unwrap_or(usual.per_host);
    if !(1..=PATHS_MAX).contains(&usize::from(per_host)) {
        return wrong(format!("{what}: paths = {per_host}, expected 1 to {PATHS_MAX}"));
    }
    Ok(PathChoice { policy, per_host, ..usual })
}

/// Returns the classes, in the order of their names. Their missing values are those of `usual`.
fn classes(tables: BTreeMap<String, ClassTable>, usual: PathChoice) -> Result<Vec<Class>, DomainError> {
    if tables.len() > CLASSES_MAX {
        return wrong(format!("{} classes, expected at most {CLASSES_MAX}", tables.len()));
    }
    let class = |((name, table), number): ((String, ClassTable), u8)| {
        if !is_plain(&name) {
            return wrong(format!("{name:?} is no name of a class: expected 1 to 40 of a-z, 0-9 and -"));
        }
        let here = format!("class {name}");
        let paths = path_choice(&here, table.policy, table.paths, usual)?;
        let dscp = table.dscp.map(|value| match read_dscp(&value) {
            Ok(dscp) => Ok(dscp),
            Err(e) => wrong(format!("{here}: dscp = {value}: {e}")),
        });
        let class = NonZeroU8::new(number).map(ClassId);
        Ok(Class { name, paths: PathChoice { class, ..paths }, dscp: dscp.transpose()?.unwrap_or_default() })
    };
    tables.into_iter().zip(1..).map(class).collect()
}

fn read_dscp(value: &toml::Value) -> Result<Dscp, NoDscp> {
    match value {
        toml::Value::String(name) => name.parse(),
        toml::Value::Integer(number) => u8::try_from(*number).ok().and_then(Dscp::new).ok_or(NoDscp),
        _ => Err(NoDscp),
    }
}

fn bytes_a_second(mbit: f64) -> u64 {
    (mbit * 125_000.0) as u64
}

/// Returns a syntax error as one line that says what is wrong, and where.
fn syntax(text: &str, error: &toml::de::Error) -> DomainError {
    let what = error.message().trim().replace('\n', ", ");
    let before = error.span().and_then(|span| text.get(..span.start));
    DomainError::Syntax(match before {
        Some(before) => format!("line {}: {what}", 1 + before.matches('\n').count()),
        None => what,
    })
}

/// Whether a text may be the name of a domain or a node, which becomes the name of namespaces, sockets and
/// metrics.
fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=40).contains(&name.len()) && name.chars().all(plain)
}

/// Checks that an address belongs to one host, and that other hosts reach it however their interfaces are
/// called.
///
/// # Errors
/// The text says what the address is instead.
fn check_address(address: IpAddr) -> Result<(), &'static str> {
    match address {
        IpAddr::V4(ip) if ip.is_broadcast() => Err("is that of all hosts, expected that of one"),
        IpAddr::V6(ip) if ip.is_unicast_link_local() => {
            Err("is link-local: it means nothing without an interface, expected another")
        }
        _ if address.is_unspecified() || address.is_multicast() => Err("is the address of no host"),
        _ => Ok(()),
    }
}

/// Returns the addresses of a line's ends that the file does not give: 10.91.0.1 and 10.91.0.2 for the first
/// line, then 10.91.0.5 and 10.91.0.6, …
fn own_addresses(line: usize) -> [IpAddr; 2] {
    let address = |end: u32| Ipv4Addr::from_bits(0x0a5b_0000 + 4 * line as u32 + end).into();
    [address(1), address(2)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::tests::SQUARE;

    #[test]
    fn what_makes_no_sense_is_refused() {
        let with = |from: &str, to: &str| {
            let text = SQUARE.replacen(from, to, 1);
            assert_ne!(text, SQUARE, "{from}");
            read(&text).map(|_| ()).expect_err(to).to_string()
        };
        let refused = |from: &str, to: &str, why: &str| {
            let said = with(from, to);
            assert!(said.contains(why), "{to}: {said}");
        };
        refused("name = \"square\"", "name = \"a square\"", "expected 1 to 40 of a-z");
        refused("node = \"rv\"", "node = \"nowhere\"", "there is no line to \"nowhere\"");
        refused("node = \"rv\"", "node = \"r3\"", "r3 forwards");
        refused("node = \"rv\"", "node = \"rv\"\nport = 80", "a port from 1024 on");
        let topology = |key: &str| format!("node = \"tm\"\n{key}\n");
        refused("node = \"tm\"\n", &topology("paths = 0"), "paths = 0, expected 1 to 12");
        refused("node = \"tm\"\n", &topology("policy = \"widest\""), "line 8: unknown variant `widest`");
        refused("\"r3\"]", "\"r3\", \"r9\"]", "there is no line to \"r9\"");
        refused("[\"a\", \"r1\"]", "[\"a\", \"b\"]", "hosts forward nothing");
        refused("[\"a\", \"r1\"]", "[\"r1\", \"r1\"]", "to itself");
        refused("delay_ms = 1\n", "delay_ms = -1\n", "delay_ms = -1");
        refused("rate_mbit = 100", "rate_mbit = 0", "rate_mbit = 0");
        refused("rate_mbit = 100", "limit_mbit = 0", "limit_mbit = 0, expected 0.001 to");
        refused("rate_mbit = 100", "rate_gbit = 1", "unknown field");
        refused("films = ", "Films = ", "scopes");
        refused("films = \"GEOCV", "films = \"GEO1V", "scope films");
        let twice = "delay_ms = 1\naddresses = [\"10.0.0.1\", \"10.0.0.1\"]\n";
        refused("delay_ms = 1\n", twice, "10.0.0.1 is the end of another line too");
        let address = |one: &str| format!("delay_ms = 1\naddresses = [\"{one}\", \"10.0.0.1\"]\n");
        for (one, why) in [
            ("255.255.255.255", "line a – r1: 255.255.255.255 is that of all hosts"),
            ("::ffff:255.255.255.255", "255.255.255.255 is that of all hosts"),
            ("224.0.0.1", "224.0.0.1 is the address of no host"),
            ("ff02::1", "ff02::1 is the address of no host"),
            ("::", ":: is the address of no host"),
            ("fe80::1", "fe80::1 is link-local"),
        ] {
            refused("delay_ms = 1\n", &address(one), why);
        }
        refused("\"r3\"]", "\"r3\", \"r1\"]", "forwarders: r1 is named twice");
        let mixed = "delay_ms = 1\naddresses = [\"10.0.0.1\", \"::1\"]\n";
        refused("delay_ms = 1\n", mixed, "one address is of IPv4");
        let named = |keys: &str| format!("name = \"square\"\n{keys}");
        refused("name = \"square\"", &named("epoch_s = 60"), "epoch_s is of domains with");
        refused("name = \"square\"", &named("identifiers = \"secret\""), "unknown variant `secret`");
        let short = named("identifiers = \"keyed\"\nepoch_s = 7");
        refused("name = \"square\"", &short, "epoch_s = 7, expected 8 to 86400");
    }

    #[test]
    fn a_domain_says_which_paths_are_asked_for() {
        assert_eq!(read(SQUARE).expect("a domain").paths, PathChoice::default());
        let keys = "node = \"tm\"\npolicy = \"node-disjoint\"\npaths = 2\n";
        let paths = read(&SQUARE.replace("node = \"tm\"\n", keys)).expect("a domain").paths;
        assert_eq!(paths, PathChoice { policy: Policy::NodeDisjoint, per_host: 2, class: None });
    }

    fn with_classes(text: &str) -> Result<Domain, DomainError> {
        read(&SQUARE.replace("node = \"tm\"\n", &format!("node = \"tm\"\npaths = 3\n{text}\n")))
    }

    #[test]
    fn classes_say_what_is_not_as_ever() {
        let text = "[class.urgent]\npolicy = \"shortest\"\npaths = 1\ndscp = \"ef\"\n\
                    [class.bulk]\ndscp = 1\n[class.c-3]\n";
        let domain = with_classes(text).expect("a domain");
        let told: Vec<_> = domain
            .classes
            .all()
            .iter()
            .map(|class| (&*class.name, class.paths.policy, class.paths.per_host, class.dscp.to_string()))
            .collect();
        let usual = Policy::LinkDisjoint;
        let all = [
            ("bulk", usual, 3, "le".into()),
            ("c-3", usual, 3, "cs0".into()),
            ("urgent", Policy::Shortest, 1, "ef".into()),
        ];
        assert_eq!(told, all);
        for (class, number) in domain.classes.all().iter().zip(1..) {
            let id = class.paths.class.expect("a number");
            assert_eq!((id.0.get(), domain.classes.get(id)), (number, Some(class)));
        }
        assert_eq!(domain.classes.get(ClassId(NonZeroU8::MAX)), None);
        assert_eq!((domain.paths.class, read(SQUARE).expect("a domain").classes.all()), (None, &[][..]));
        let marks = (0..=63).filter(|number| domain.classes.marks().has(Dscp::new(*number).expect("one")));
        assert_eq!(marks.collect::<Vec<_>>(), [0, 1, 46]);
    }

    #[test]
    fn classes_that_make_no_sense_are_refused() {
        let refused = |text: &str, why: &str| {
            let said = with_classes(text).map(|_| ()).expect_err(text).to_string();
            assert!(said.contains(why), "{text}: {said}");
        };
        refused("[class.bulk]\ndcsp = \"le\"", "line 10: unknown field `dcsp`");
        refused("[class.bulk]\npolicy = \"widest\"", "unknown variant `widest`");
        refused("[class.bulk]\npaths = 13", "class bulk: paths = 13, expected 1 to 12");
        refused("[class.bulk]\npaths = 0", "class bulk: paths = 0");
        refused("[class.Bulk]", "\"Bulk\" is no name of a class: expected 1 to 40 of a-z");
        refused("[class.\"\"]", "\"\" is no name of a class");
        refused("[class.bulk]\n[class.bulk]", "line 10: duplicate key");
        refused("class = [\"bulk\"]", "unknown field `class`");
        for bad in ["\"bulk\"", "\"EF\"", "64", "-1", "1.5", "[1]", "300"] {
            let why = format!("class bulk: dscp = {bad}: expected 0 to 63, or le, cs0 to cs7, af11");
            refused(&format!("[class.bulk]\ndscp = {bad}"), &why);
        }
        let many = |count: usize| (0..count).map(|n| format!("[class.c{n}]\n")).collect::<String>();
        assert_eq!(with_classes(&many(CLASSES_MAX)).expect("a domain").classes.all().len(), CLASSES_MAX);
        refused(&many(CLASSES_MAX + 1), "17 classes, expected at most 16");
    }

    #[test]
    fn a_domain_says_who_can_make_identifiers() {
        let epoch = |keys: &str| {
            let text = SQUARE.replacen("name = ", &format!("{keys}\nname = "), 1);
            read(&text).expect("a domain").epoch
        };
        assert_eq!((epoch(""), epoch("identifiers = \"open\"")), (None, None));
        assert_eq!(epoch("identifiers = \"keyed\""), Some(Span::from_secs(600)));
        assert_eq!(epoch("identifiers = \"keyed\"\nepoch_s = 8"), Some(Span::from_secs(8)));
    }

    #[test]
    fn what_is_no_toml_is_told_in_one_line() {
        let error = read("name = \"x\"\nforwarders = [\"r").map(|_| ()).expect_err("no end").to_string();
        assert!(error.starts_with("line 2: ") && !error.contains('\n'), "{error}");
        let error = read("name = 7\n").map(|_| ()).expect_err("no text").to_string();
        assert!(error.starts_with("line 1: invalid type") && !error.contains('\n'), "{error}");
    }

    #[test]
    fn addresses_that_are_not_said_are_made() {
        let domain = read(SQUARE).expect("a domain");
        let ends: Vec<String> = domain.ends[..4].iter().map(ToString::to_string).collect();
        assert_eq!(ends, ["10.91.0.1", "10.91.0.2", "10.91.0.5", "10.91.0.6"]);
    }
}
