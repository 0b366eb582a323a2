//! Finds modules that use each other in a circle, from the `use` lines of every crate's sources, and from
//! paths that begin with `crate` or `super`.
//!
//! A module is a file. It uses another module if it names an item that the other one defines. An item that a
//! module only re-exports counts for the module that defines it. `mod child;` alone is no use. Unit tests do
//! not count.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::Visit;
use syn::{Item, UseTree};

/// The path of a module from its crate's root: empty for the root itself.
type Module = Vec<String>;

/// The names in one file, as written.
#[derive(Default)]
struct Names {
    /// Every path, with the local name that a `use` gives to it.
    paths: Vec<(Vec<String>, Option<String>)>,
}

pub(crate) fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|a| {
        a.path().is_ident("cfg") && a.parse_args::<syn::Ident>().is_ok_and(|condition| condition == "test")
    })
}

impl Names {
    fn of_tree(&mut self, tree: &UseTree, prefix: &[String]) {
        let with = |name: &syn::Ident| [prefix, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.of_tree(&path.tree, &with(&path.ident)),
            UseTree::Name(name) if name.ident == "self" => {
                self.paths.push((prefix.to_vec(), prefix.last().cloned()));
            }
            UseTree::Name(name) => self.paths.push((with(&name.ident), Some(name.ident.to_string()))),
            UseTree::Rename(rename) => {
                self.paths.push((with(&rename.ident), Some(rename.rename.to_string())));
            }
            UseTree::Glob(_) => self.paths.push((prefix.to_vec(), None)),
            UseTree::Group(group) => group.items.iter().for_each(|item| self.of_tree(item, prefix)),
        }
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Mod(inner) if is_test(&inner.attrs) => {}
            Item::Use(import) => self.of_tree(&import.tree, &[]),
            other => syn::visit::visit_item(self, other),
        }
    }

    /// Skips the visibility of an item (`pub(crate)`), which is no use of the crate's root.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if ["crate", "super"].contains(&names[0].as_str()) {
            self.paths.push((names, None));
        }
        syn::visit::visit_path(self, path);
    }
}

/// Reads the names in each module of one crate. A file is its path below `src/`, and its text.
fn read(files: &[(&str, &str)]) -> BTreeMap<Module, Names> {
    let mut modules = BTreeMap::new();
    for (path, text) in files {
        let Some(module) = module_of(path) else { continue };
        let mut names = Names::default();
        if let Ok(file) = syn::parse_file(text) {
            names.visit_file(&file);
        }
        modules.insert(module, names);
    }
    modules
}

/// Returns the module of a file from its path below `src/`.
fn module_of(path: &str) -> Option<Module> {
    let stem = path.strip_suffix(".rs")?;
    Some(if stem == "lib" { Vec::new() } else { stem.split('/').map(str::to_owned).collect() })
}

/// The modules of one crate, for finding the module that defines a type.
pub(crate) struct Modules(BTreeMap<Module, Names>);

impl Modules {
    pub(crate) fn read(files: &[(&str, &str)]) -> Self {
        Self(read(files))
    }

    /// Returns the module that defines `name` (its parts joined by `::`) as seen in the file at `path`: the
    /// target of a `use`, or else the file itself.
    pub(crate) fn definer_of(&self, path: &str, name: &[String]) -> String {
        let module = module_of(path).unwrap_or_default();
        let local = [module.as_slice(), name].concat();
        let target = absolute(&self.0, &module, name).unwrap_or(local);
        definer(&self.0, &target, 0).join("::")
    }
}

/// Finds circles among the files of one crate (path below `src/`, text). Returns each circle, its modules in
/// order.
pub(crate) fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let modules = read(files);
    let uses: BTreeMap<&Module, BTreeSet<Module>> = modules
        .iter()
        .map(|(module, names)| {
            let targets = names.paths.iter().filter_map(|(path, _)| {
                let target = definer(&modules, &absolute(&modules, module, path)?, 0);
                (target != *module).then_some(target)
            });
            (module, targets.collect())
        })
        .collect();
    let mut found = circles_of(&uses);
    // A folder and the file with its name form one room. The rooms of one folder use each other in one
    // direction.
    let folders: BTreeSet<&[String]> =
        modules.keys().flat_map(|module| (0..module.len()).map(|n| &module[..n])).collect();
    for folder in folders {
        let room = |module: &Module| {
            let inside = module.len() > folder.len() && module.starts_with(folder);
            inside.then(|| module[..=folder.len()].to_vec())
        };
        let mut rooms: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
        for (module, targets) in &uses {
            let Some(user) = room(module) else { continue };
            let used = targets.iter().filter_map(room).filter(|used| *used != user);
            rooms.entry(user.clone()).or_default().extend(used);
        }
        let rooms: BTreeMap<&Module, BTreeSet<Module>> =
            rooms.iter().map(|(room, used)| (room, used.clone())).collect();
        found.extend(circles_of(&rooms));
    }
    found.sort();
    found.dedup();
    found
}

/// Returns the circles of a graph, the members of each in order. Two modules that reach each other are in
/// one circle.
fn circles_of(uses: &BTreeMap<&Module, BTreeSet<Module>>) -> Vec<Vec<String>> {
    let reach: BTreeMap<&Module, BTreeSet<&Module>> =
        uses.keys().map(|module| (*module, reachable(uses, module))).collect();
    let mut seen: BTreeSet<&Module> = BTreeSet::new();
    let mut found = Vec::new();
    for &module in uses.keys() {
        if !reach[module].contains(module) || seen.contains(module) {
            continue;
        }
        let is_in = |other: &&Module| reach[module].contains(*other) && reach[*other].contains(module);
        let circle: Vec<&Module> = uses.keys().copied().filter(is_in).collect();
        seen.extend(&circle);
        let name = |m: &Module| if m.is_empty() { "lib".into() } else { m.join("::") };
        found.push(circle.into_iter().map(name).collect());
    }
    found
}

fn reachable<'a>(uses: &'a BTreeMap<&Module, BTreeSet<Module>>, from: &Module) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&Module> = uses[from].iter().collect();
    while let Some(module) = next.pop() {
        if reached.insert(module)
            && let Some(further) = uses.get(module)
        {
            next.extend(further);
        }
    }
    reached
}

/// Returns a path as seen from the crate's root; `None` if it belongs to another crate, or to no file.
fn absolute(modules: &BTreeMap<Module, Names>, module: &Module, path: &[String]) -> Option<Vec<String>> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([module.as_slice(), rest].concat()),
        "super" => {
            let up = path.iter().take_while(|name| *name == "super").count();
            let above = module.get(..module.len().checked_sub(up)?)?;
            Some([above, &path[up..]].concat())
        }
        _ => {
            let child = [module.as_slice(), std::slice::from_ref(first)].concat();
            modules.contains_key(&child).then(|| [module.as_slice(), path].concat())
        }
    }
}

/// Returns the module that defines the item at `path`.
fn definer(modules: &BTreeMap<Module, Names>, path: &[String], depth: usize) -> Module {
    let length = (0..=path.len()).rev().find(|n| modules.contains_key(&path[..*n])).unwrap_or(0);
    let (module, rest) = path.split_at(length);
    let imported = rest.first().filter(|_| depth < 8).and_then(|name| {
        let names = modules.get(module)?;
        let found = names.paths.iter().find(|(_, alias)| alias.as_ref() == Some(name))?;
        absolute(modules, &module.to_vec(), &found.0).filter(|target| *target != path)
    });
    match imported {
        Some(target) => definer(modules, &[target, rest[1..].to_vec()].concat(), depth + 1),
        None => module.to_vec(),
    }
}

#[test]
fn circles_are_found_and_re_exports_followed() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c; pub use a::A;"),
        ("a.rs", "use crate::b::B; pub struct A;"),
        ("b.rs", "use super::A; pub struct B; #[cfg(test)] mod tests { use super::super::c::C; }"),
        ("c.rs", "use crate::A; mod d; pub struct C(d::D);"),
        ("c/d.rs", "pub(super) struct D;"),
    ];
    assert_eq!(circles(&files), [["a", "b"]]);
    let files =
        [("lib.rs", "mod a; use a::f; pub fn g() { f() }"), ("a.rs", "use crate::g; pub fn f() { g() }")];
    assert_eq!(circles(&files), [["lib", "a"]]);
}

#[test]
fn circles_of_folders_are_found() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "mod inner; use crate::b::deep::D; pub struct A(D);"),
        ("a/inner.rs", "pub struct Inner;"),
        ("b.rs", "pub mod deep; use crate::a::inner::Inner; pub struct B(Inner);"),
        ("b/deep.rs", "pub struct D;"),
    ];
    assert_eq!(circles(&files), [["a", "b"]]);
}
