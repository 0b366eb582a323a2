//! Tests the style guide: the promises of ARCHITECTURE.md about the shape of the code, on every file.
//!
//! A failure names the file, the line and the rule. The list `LARGE` has the only exceptions, and may only
//! shrink.

#[path = "tidy/circles.rs"]
mod circles;
#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/shapes.rs"]
mod shapes;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const WIDTH_MAX: usize = 110;
/// Most lines of a congestion controller without its tests.
const CONTROL_LINES_MAX: usize = 200;

/// Largest text file, bytes; larger files are data that no reviewer reads.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// Items that exceed a limit of `shapes`, each with its own limit. To remove one, find the concept that is
/// missing.
const LARGE: &[(&str, usize)] = &[
    ("fields of cli: args::Get", 16),
    ("fields of products/anabranch: get::small_files::SmallFiles", 17),
    ("fields of products/anabranch: mirror_list::listed::ListedFile", 16),
    ("fields of products/anabranch: report::source::Stats", 17),
    ("fields of products/lab: linux::flow::SocketFlow", 18),
    ("fields of products/lab: scenario::Measure", 17),
    ("fields of products/proxy: leg::Leg", 17),
    ("fields of products/proxy: leg::path::Path", 25),
    ("fields of products/proxy: status::snapshot::Link", 16),
    ("fields of products/proxy: trunk::Trunk", 27),
    ("fields of products/proxy: trunk::stream::Stream", 21),
    ("fields of products/proxy: trunk_task::shared::State", 18),
    ("fields of protocols/mmtp: subscriber::path::Path", 21),
    ("fields of worlds/kernel: connection_monitor::snapshot::SubflowRow", 18),
    ("fields of worlds/net: netlink::sock_diag::TcpInfo", 27),
    ("fields of worlds/sim: config::LinkConfig", 19),
    ("fields of worlds/sim: stats::Stats", 17),
    ("files of products/anabranch: get::discovery::Discovery", 12),
    ("files of products/anabranch: get::mirror_driver::MirrorDriver", 7),
    ("files of products/anabranch: get::small_files::SmallFiles", 4),
    ("files of products/proxy: leg::Leg", 5),
    ("files of products/proxy: trunk::Trunk", 6),
    ("files of protocols/mirror: file_scheduler::FileScheduler", 5),
    ("files of protocols/mirror: range_scheduler::RangeScheduler", 7),
    ("files of protocols/mmtp: subscriber::download::state::Download", 6),
    ("files of protocols/mmtp: subscriber::state::Subscriber", 7),
    ("files of worlds/net: netlink::rtnetlink::Netlink", 5),
    ("lines of products/proxy: client::datagrams::serve", 88),
];

/// Most test executables of a crate besides its unit tests, and of all crates with their unit tests. Each
/// one is linked with all that it tests, and cargo runs them one after the other.
const EXECUTABLES_MAX: usize = 4;
const ALL_EXECUTABLES_MAX: usize = 62;

/// Most words of the README: details belong in docs/.
const README_WORDS_MAX: usize = 800;

/// The dependency law: the crates that each crate may use, by folder. A crate uses rows above its own, of
/// its own floor or of floors below. `core/algo` uses nothing at all, not even a library.
const LAW: &[(&str, &[&str])] = &[
    ("core/algo", &[]),
    ("core/topology", &[]),
    ("protocols/mmtp", &["algo"]),
    ("protocols/function", &[]),
    ("protocols/mptcp-wire", &[]),
    ("protocols/mptcp", &["algo", "mptcp-wire"]),
    ("protocols/mirror", &["algo", "mmtp"]),
    ("protocols/overlay", &["algo", "topology", "mmtp"]),
    ("worlds/sim", &["algo"]),
    ("worlds/net", &["algo"]),
    ("worlds/mptcp-tun", &["algo", "mptcp", "net"]),
    ("worlds/mptcp-udp", &["algo", "mptcp", "net"]),
    ("worlds/emulator", &["algo", "sim", "net"]),
    ("worlds/http", &["algo", "net"]),
    ("worlds/kernel", &["algo", "net"]),
    ("products/house", &["algo", "net", "http"]),
    ("products/anabranch", &["algo", "topology", "mmtp", "overlay", "mirror", "net", "http", "house"]),
    ("products/network", &["algo", "topology", "mmtp", "overlay", "net", "anabranch"]),
    ("products/cache", &["algo", "mmtp", "net", "http", "anabranch"]),
    ("products/daemon", &["net", "anabranch"]),
    ("products/minicache", &["algo", "mmtp", "net", "http", "anabranch", "cache"]),
    ("products/proxy", &["algo", "mptcp", "net", "mptcp-udp", "kernel", "http", "house"]),
    (
        "products/lab",
        &["algo", "topology", "mmtp", "mptcp", "mirror", "overlay", "sim", "net", "emulator", "kernel"],
    ),
    ("products/cdn", &["topology", "sim"]),
    ("products/trace", &["mptcp-wire"]),
    ("products/uplinks", &["algo", "net", "kernel"]),
    ("products/machines", &["algo", "net", "kernel", "house"]),
    ("products/operator", &["algo", "function", "net", "house", "machines"]),
    ("products/drive", &["algo", "sim", "net", "emulator", "lab", "trace"]),
    (
        "cli",
        &[
            "algo",
            "mmtp",
            "sim",
            "net",
            "emulator",
            "kernel",
            "lab",
            "mptcp",
            "mptcp-tun",
            "mirror",
            "http",
            "anabranch",
            "network",
            "proxy",
            "topology",
            "overlay",
            "trace",
            "uplinks",
            "drive",
            "cache",
            "minicache",
            "cdn",
            "daemon",
            "house",
            "machines",
            "operator",
        ],
    ),
];

/// The folders of `crates/`, the lowest first. The command stands on all of them.
const FLOORS: &[&str] = &["core", "protocols", "worlds", "products"];

/// Returns the crate's name without its folder.
fn crate_name(room: &str) -> &str {
    room.rsplit('/').next().unwrap_or(room)
}

/// Returns every crate's folder below `crates/`: `core/algo`, …, `cli`.
fn rooms() -> Vec<String> {
    let mut rooms: Vec<String> = files()
        .into_iter()
        .filter_map(|(path, _)| Some(path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?.to_string()))
        .collect();
    rooms.sort();
    rooms
}

/// Path of the file with the settings that messages of the libraries may name.
const HINTS: &str = "crates/products/anabranch/src/error/hint.rs";

/// Crates of machines: they report events and never print.
const MACHINES: &[&str] = &[
    "core/algo",
    "core/topology",
    "protocols/function",
    "protocols/mirror",
    "protocols/mmtp",
    "protocols/mptcp",
    "protocols/mptcp-wire",
    "protocols/overlay",
    "worlds/sim",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().expect("the workspace root")
}

fn walk(dir: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a readable directory").flatten() {
        let name = entry.file_name();
        // Cargo marks its target directories with CACHEDIR.TAG; a module may be called `target`.
        let skipped = [".git", "corpus", "artifacts", "__pycache__"].iter().any(|s| name == *s)
            || entry.path().join("CACHEDIR.TAG").exists();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && !skipped => walk(&entry.path(), paths),
            Ok(kind)
                if kind.is_file()
                    && !skipped
                    && entry.metadata().is_ok_and(|m| m.len() <= TEXT_BYTES_MAX) =>
            {
                paths.push(entry.path());
            }
            _ => {}
        }
    }
}

/// Returns every text file of the repository as (path from the root, text).
fn files() -> Vec<(String, String)> {
    let (root, mut paths) = (root(), Vec::new());
    walk(&root, &mut paths);
    paths.sort();
    let name = |p: &Path| p.strip_prefix(&root).expect("below the root").to_string_lossy().replace('\\', "/");
    paths.iter().filter_map(|p| Some((name(p), String::from_utf8(fs::read(p).ok()?).ok()?))).collect()
}

fn sources() -> Vec<(String, String)> {
    files().into_iter().filter(|(path, _)| path.ends_with(".rs")).collect()
}

/// Returns the number of lines before the unit tests; zero for a file of tests.
fn lines_without_tests(path: &str, text: &str) -> usize {
    if path.contains("/tests/") || path.ends_with("/tests.rs") || path.starts_with("fuzz/") {
        return 0;
    }
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines.windows(2).position(|w| w[0] == "#[cfg(test)]" && w[1].starts_with("mod "));
    tests.unwrap_or(lines.len())
}

fn report(rule: &str, violations: &[String]) {
    assert!(violations.is_empty(), "{rule}:\n  {}", violations.join("\n  "));
}

#[test]
fn lines_are_clean() {
    // The words are in two halves, so that this file passes its own test.
    let words = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    let macros = [concat!("to", "do!"), concat!("unimple", "mented!"), concat!("db", "g!")];
    let mut violations = Vec::new();
    for (path, text) in sources() {
        for (n, line) in text.lines().enumerate() {
            let mut violation = |what: &str| violations.push(format!("{path}:{}: {what}", n + 1));
            if line.chars().count() > WIDTH_MAX {
                violation("wider than 110 columns");
            }
            if line.contains('\t') {
                violation("a tab");
            }
            if line.ends_with([' ', '\r']) {
                violation("white space at the end");
            }
            let mut tokens = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            if tokens.any(|t| words.contains(&t)) || macros.iter().any(|m| line.contains(m)) {
                violation("left over");
            }
        }
        if !text.is_empty() && (!text.ends_with('\n') || text.ends_with("\n\n")) {
            violations.push(format!("{path}: must end with exactly one newline"));
        }
    }
    report("clean lines", &violations);
}

/// Tests that one function skips tests, so that skipped tests can be counted.
#[test]
fn tests_are_skipped_by_one_function() {
    const OWNER: &str = "crates/worlds/net/src/testing.rs";
    // The words are in two halves, so that this file passes its own test.
    let words = concat!("\"skip", "ped: ");
    let mut violations = Vec::new();
    for (path, text) in sources().into_iter().filter(|(path, _)| path != OWNER) {
        let those = text.lines().enumerate().filter(|(_, line)| line.contains(words));
        violations.extend(those.map(|(n, _)| format!("{path}:{}", n + 1)));
    }
    report("skip tests by anabranch_net::testing", &violations);
}

/// Groups the sources by crate: (path below `src/`, text).
fn by_crate(sources: &[(String, String)]) -> BTreeMap<&str, Vec<(&str, &str)>> {
    let mut crates: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for (path, text) in sources {
        let parts = path.strip_prefix("crates/").and_then(|path| path.split_once("/src/"));
        if let Some((name, file)) =
            parts.filter(|(_, file)| *file != "main.rs" && !file.ends_with("tests.rs"))
        {
            crates.entry(name).or_default().push((file, text));
        }
    }
    crates
}

#[test]
fn types_and_functions_are_small() {
    let mut violations = Vec::new();
    let large = shapes::large(&by_crate(&sources()));
    for (what, size) in &large {
        let own = LARGE.iter().find(|(known, _)| known == what).map_or(0, |(_, max)| *max);
        if *size > own {
            violations.push(format!("{what}: {size}"));
        }
    }
    for (what, max) in LARGE {
        match large.get(*what) {
            Some(size) if size < max => {
                violations.push(format!("{what}: {size} now; say so in the list LARGE"));
            }
            Some(_) => {}
            None => violations.push(format!("{what}: is small now; take it off the list LARGE")),
        }
    }
    let limits = [shapes::IMPL_FILES_MAX, shapes::FIELDS_MAX, shapes::FUNCTION_LINES_MAX];
    report(&format!("files of an impl, fields of a struct, lines of a function: {limits:?}"), &violations);
}

#[test]
fn controllers_are_short() {
    let mut violations = Vec::new();
    for (path, text) in sources().iter().filter(|(p, _)| p.starts_with("crates/core/algo/src/control/")) {
        let lines = lines_without_tests(path, text);
        if lines > CONTROL_LINES_MAX {
            violations.push(format!("{path}: {lines} lines without tests, at most {CONTROL_LINES_MAX}"));
        }
    }
    report("an algorithm is one short file", &violations);
}

#[test]
fn crates_introduce_themselves() {
    let mut violations = Vec::new();
    for (path, text) in sources() {
        let lib = path.starts_with("crates/") && path.ends_with("/src/lib.rs");
        let head: Vec<_> = text.lines().take_while(|l| l.starts_with("//!")).collect();
        for part in ["**Purpose", "**Non-goals", "**Map"] {
            if lib && !head.iter().any(|l| l.contains(part)) {
                violations.push(format!("{path}: its opening comment has no {part}**"));
            }
        }
    }
    report("purpose, non-goals, map", &violations);
}

#[test]
fn algorithms_name_their_source() {
    let mut violations = Vec::new();
    for (path, text) in sources().iter().filter(|(p, _)| p.starts_with("crates/core/algo/src/control/")) {
        let head: Vec<&str> = text.lines().take(12).filter(|l| l.starts_with("//!")).collect();
        let head = head.join(" ");
        if !["RFC ", "§", "ection ", "et al.", "doi"].iter().any(|s| head.contains(s)) {
            violations.push(format!("{path}: the first lines name no paper, RFC or section"));
        }
    }
    report("every algorithm names its source", &violations);
}

/// Returns the dependencies of a manifest in every form, except those for tests: (key, its line).
fn dependencies(manifest: &str) -> Vec<(String, &str)> {
    let (mut counts, mut found) = (false, Vec::new());
    for line in manifest.lines().map(str::trim) {
        let key = line.split(['=', '.', ' ']).next().unwrap_or("");
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            let table = section.rsplit_once("dependencies.").map(|(kind, name)| (kind, Some(name)));
            let (kind, name) =
                table.unwrap_or((section.strip_suffix("dependencies").unwrap_or("dev-"), None));
            counts = !kind.ends_with("dev-") && name.is_none();
            found.extend(name.filter(|_| !kind.ends_with("dev-")).map(|n| (n.to_string(), line)));
        } else if counts && !key.is_empty() && !key.starts_with('#') {
            found.push((key.trim_start_matches("anabranch-").to_string(), line));
        }
    }
    found
}

#[test]
fn dependencies_point_up_the_table() {
    let mut violations = Vec::new();
    for room in rooms() {
        let manifest =
            fs::read_to_string(root().join("crates").join(&room).join("Cargo.toml")).expect("it is there");
        let Some((_, may)) = LAW.iter().find(|(known, _)| *known == room) else {
            violations.push(format!("{room}: the law does not know this crate"));
            continue;
        };
        for (key, line) in dependencies(&manifest) {
            let ours = LAW.iter().any(|(known, _)| crate_name(known) == key);
            if (ours && !may.contains(&key.as_str())) || room == "core/algo" {
                violations.push(format!("{room} must not depend on {key}"));
            }
            if line.contains("path =") || line.contains("git =") {
                violations.push(format!("{room}: {key} must come from the workspace or crates.io"));
            }
        }
    }
    report("the dependency law", &violations);
}

/// Tests that the law respects the floors: a crate may use only crates above it in the table, on its floor
/// or on a lower one.
#[test]
fn the_law_keeps_to_the_floors() {
    let mut violations = Vec::new();
    let floor = |room: &str| FLOORS.iter().position(|floor| room.starts_with(&format!("{floor}/")));
    for (row, (room, may)) in LAW.iter().enumerate() {
        let own = floor(room).unwrap_or(FLOORS.len());
        for used in may.iter() {
            let place = LAW[..row].iter().find(|(known, _)| crate_name(known) == *used);
            if place.is_none_or(|(known, _)| floor(known).is_none_or(|other| other > own)) {
                violations.push(format!("{room} may use {used}, which does not stand above it"));
            }
        }
    }
    report("floors", &violations);
}

#[test]
fn the_law_reads_every_form_of_a_dependency() {
    let manifest = "[package]\nname = \"x\"\n[dependencies]\n# why\nalgo.workspace = true\n\
                    anabranch-net = \"1\"\n\
                    [dependencies.sim]\nfeatures = []\n[target.'cfg(unix)'.dependencies]\nlibc = \"1\"\n\
                    [dev-dependencies]\nproptest = \"1\"\n[dev-dependencies.lab]\npath = \"../lab\"\n";
    let keys: Vec<_> = dependencies(manifest).into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["algo", "net", "sim", "libc"]);
}

#[test]
fn machines_are_quiet_and_exceptions_have_reasons() {
    let mut violations = Vec::new();
    for (path, text) in sources() {
        let machine = MACHINES.iter().any(|m| path.starts_with(&format!("crates/{m}/src/")));
        let before_tests = lines_without_tests(&path, &text);
        for (n, line) in text.lines().enumerate().map(|(n, l)| (n, l.trim_start())) {
            let prints = ["print!(", "println!("].iter().any(|p| line.contains(p)) && !line.starts_with("//");
            if machine && n < before_tests && prints {
                violations.push(format!("{path}:{}: a machine reports events and never prints", n + 1));
            }
            if line.starts_with("#[allow(") || line.starts_with("#![allow(") {
                let attribute: String = text.lines().skip(n).take(6).collect();
                if !attribute.split(")]").next().is_some_and(|a| a.contains("reason")) {
                    violations.push(format!("{path}:{}: an exception without a reason", n + 1));
                }
            }
        }
    }
    report("quiet machines, reasoned exceptions", &violations);
}

/// Tests that libraries name no options: a program that uses a library has none, because the command defines
/// them.
#[test]
fn options_are_named_by_the_command_alone() {
    let hints = fs::read_to_string(root().join(HINTS)).expect("the hints");
    let mut violations = Vec::new();
    // This file names the options of the programs that it runs.
    let is_other = |path: &str| path == "crates/products/anabranch/src/openpgp.rs" || path == HINTS;
    let libraries = [
        "crates/products/anabranch/src/",
        "crates/products/network/src/",
        "crates/protocols/mirror/src/",
        "crates/worlds/http/src/",
    ];
    let ours = |path: &str| libraries.iter().any(|library| path.starts_with(library)) && !is_other(path);
    for (path, text) in sources().iter().filter(|(path, _)| ours(path)) {
        for (n, line) in text.lines().enumerate().take(lines_without_tests(path, text)) {
            let code = if line.trim_start().starts_with("//") { "" } else { line };
            let option = code.split("--").nth(1).filter(|o| o.starts_with(|c: char| c.is_ascii_lowercase()));
            let setting =
                code.split('`').skip(1).step_by(2).find(|s| !hints.contains(&format!("= \"{s}\",")));
            let what = option.or(setting);
            violations.extend(what.map(|what| format!("{path}:{}: {what}: see {HINTS}", n + 1)));
        }
    }
    report("settings in the library's messages", &violations);
}

#[test]
fn nothing_names_the_machine_it_was_written_on() {
    let paths = [concat!("/wo", "rk/"), concat!("../sha", "red"), concat!("/ro", "ot/")];
    let mut violations = Vec::new();
    for (path, text) in files() {
        for (n, line) in text.lines().enumerate() {
            if paths.iter().any(|p| line.contains(p)) {
                violations.push(format!("{path}:{}: a path of one machine", n + 1));
            }
        }
    }
    report("portable text", &violations);
}

/// Whether a file below a crate's `tests` is the root of an executable.
fn is_test_root(path: &str) -> bool {
    match path.split_once('/') {
        None => path.ends_with(".rs"),
        Some((_, file)) => file == "main.rs",
    }
}

#[test]
fn test_executables_are_few() {
    let (rooms, sources) = (rooms(), sources());
    let mut violations = Vec::new();
    let mut all = rooms.len();
    for room in &rooms {
        let tests = format!("crates/{room}/tests/");
        let below = sources.iter().filter_map(|(path, _)| path.strip_prefix(&tests));
        let roots: Vec<_> = below.filter(|path| is_test_root(path)).collect();
        all += roots.len();
        if roots.len() > EXECUTABLES_MAX {
            violations.push(format!("{tests}: {}, at most {EXECUTABLES_MAX}", roots.join(", ")));
        }
    }
    if all > ALL_EXECUTABLES_MAX {
        violations.push(format!("{all} in all, at most {ALL_EXECUTABLES_MAX}"));
    }
    report("few test executables: add a module to one", &violations);
}

#[test]
fn documents_are_short() {
    let read = |name: &str| fs::read_to_string(root().join(name)).unwrap_or_default();
    let words = read("README.md").split_whitespace().count();
    assert!((1..=README_WORDS_MAX).contains(&words), "README.md: {words} words, at most {README_WORDS_MAX}");
}

#[test]
fn documents_name_what_exists() {
    report("documents name what exists", &documents::dead_references(&files()));
}

#[test]
fn modules_use_each_other_in_one_direction() {
    let sources = sources();
    let crates = by_crate(&sources);
    let mut violations = Vec::new();
    for (name, files) in crates {
        violations
            .extend(circles::circles(&files).iter().map(|circle| format!("{name}: {}", circle.join(", "))));
    }
    report("no circles of modules", &violations);
}
