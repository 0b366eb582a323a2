//! Checks the inline code of documents: the files that it names, and the items in them, must exist.

const EXTENSIONS: &[&str] = &["json", "md", "py", "rs", "svg", "table", "toml"];

/// Returns the inline code of a document as (line, code, text between it and the code before).
fn inline_code(text: &str) -> Vec<(usize, String, String)> {
    let mut fenced = false;
    let outside = |line: &str| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        if fenced || fence { String::new() } else { line.to_string() }
    };
    let text = text.lines().map(outside).collect::<Vec<_>>().join("\n");
    let parts: Vec<_> = text.split('`').collect();
    let (mut line, mut found) = (1, Vec::new());
    for two in parts.chunks_exact(2) {
        line += two[0].matches('\n').count();
        found.push((line, two[1].to_string(), two[0].to_string()));
        line += two[1].matches('\n').count();
    }
    found
}

/// Whether a piece of inline code is the path of a file or directory of this repository.
fn is_path(code: &str) -> bool {
    let elsewhere = code.starts_with(['/', '~', '.']) || code.contains("NAME");
    let extension = code.rsplit_once('.').map_or("", |(_, extension)| extension);
    let known = EXTENSIONS.contains(&extension) && (code.contains('/') || extension == "rs");
    !elsewhere && !code.contains([' ', '\n', ':', '"']) && (known || code.starts_with("crates/"))
}

fn is_name(code: &str) -> bool {
    !code.is_empty() && code.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Expands `a/{b,c}.rs` to `a/b.rs` and `a/c.rs`.
fn alternatives(path: &str) -> Vec<String> {
    let parts = path.split_once('{').and_then(|(start, rest)| Some((start, rest.split_once('}')?)));
    let Some((start, (middle, end))) = parts else { return vec![path.to_string()] };
    middle.split(',').map(|one| format!("{start}{one}{end}")).collect()
}

/// Whether `file` is `path` or lies below it; a `*` stands for a part of one component.
fn matches(path: &str, file: &str) -> bool {
    let path = path.trim_end_matches('/');
    let Some((start, end)) = path.split_once('*') else {
        return file.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    };
    let middle = file.strip_prefix(start).and_then(|rest| rest.strip_suffix(end));
    middle.is_some_and(|middle| !middle.contains('/'))
}

/// Whether a source defines a function, constant or type with this name.
fn defines(source: &str, name: &str) -> bool {
    ["fn", "const", "enum", "struct", "trait", "type"].iter().any(|kind| {
        let item = format!("{kind} {name}");
        let goes_on = |rest: &str| rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        source.split(&item).skip(1).any(|rest| !goes_on(rest))
    })
}

/// Returns the dead references of documents. A path must exist relative to the root, to a folder of
/// `crates/`, to the document or to the sources beside it (a bare file name: anywhere). Names listed with
/// commas after a path must be defined in that file.
pub(super) fn dead_references(files: &[(String, String)]) -> Vec<String> {
    let mut dead = Vec::new();
    for (document, text) in files {
        let (dir, name) = document.rsplit_once('/').unwrap_or(("", document));
        let of_a_crate = dir.starts_with("crates/") && name == "README.md";
        let of_docs = ["docs", "docs/measurements"].contains(&dir) && name.ends_with(".md");
        if !(of_a_crate || of_docs || is_of_the_root(document)) {
            continue;
        }
        let floors = super::FLOORS.iter().map(|floor| format!("crates/{floor}/"));
        let here = [String::new(), "crates/".into(), format!("{dir}/"), format!("{dir}/src/")];
        let bases: Vec<String> = floors.chain(here).collect();
        let mut named: Vec<&str> = Vec::new();
        for (line, code, before) in inline_code(text) {
            if is_path(&code) {
                named.clear();
                for path in alternatives(&code) {
                    let is_it = |file: &str| {
                        let anywhere = !path.contains('/') && file.ends_with(&format!("/{path}"));
                        anywhere || bases.iter().any(|base| matches(&format!("{base}{path}"), file))
                    };
                    let known = named.len();
                    named.extend(files.iter().filter(|(file, _)| is_it(file)).map(|(_, text)| text.as_str()));
                    if named.len() == known {
                        dead.push(format!("{document}:{line}: there is no {path}"));
                    }
                }
            } else if before.trim() != "," || !is_name(&code) {
                named.clear();
            } else if !named.is_empty() && !named.iter().any(|text| defines(text, &code)) {
                dead.push(format!("{document}:{line}: {code} is not in the file named before it"));
            }
        }
    }
    dead
}

fn is_of_the_root(document: &str) -> bool {
    ["ARCHITECTURE.md", "README.md"].contains(&document)
}

#[test]
fn dead_references_are_found() {
    let text = "`crates/` `sim/src/{net,gone}.rs`, `run`, `stop`; `run`\n```\n`a/b.rs`\n```\n\
                `net.rs`,\n`halt`, `crates/x`";
    let files = [("README.md", text), ("crates/worlds/sim/src/net.rs", "fn run() {} fn stopped() {}")];
    let files = files.map(|(path, text)| (path.to_string(), text.to_string()));
    assert_eq!(
        dead_references(&files),
        [
            "README.md:1: there is no sim/src/gone.rs",
            "README.md:1: stop is not in the file named before it",
            "README.md:6: halt is not in the file named before it",
            "README.md:6: there is no crates/x",
        ]
    );
}
