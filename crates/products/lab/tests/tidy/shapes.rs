//! Measures the shape of the code without its tests: the files with `impl`s of a type, the named fields of a
//! struct, the lines of a function.
//!
//! A shape that exceeds a limit lacks a concept. `repr(C)` structs are exempt: they copy those of the
//! kernel.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::Visit;

use super::circles::{Modules, is_test};

/// Most files with an inherent `impl` of one type.
pub(super) const IMPL_FILES_MAX: usize = 3;
/// Most named fields of a struct.
pub(super) const FIELDS_MAX: usize = 15;
/// Most lines of a function, with its signature and its last brace.
pub(super) const FUNCTION_LINES_MAX: usize = 80;

/// The shapes in one file.
#[derive(Default)]
struct Shapes {
    /// Types with an inherent `impl` in the file, as written.
    impls: BTreeSet<Vec<String>>,
    /// Structs and their numbers of named fields.
    structs: Vec<(String, usize)>,
    /// Modules in files of their own that only tests have.
    test_modules: Vec<String>,
}

impl<'ast> Visit<'ast> for Shapes {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if is_test(&module.attrs) {
            self.test_modules.push(module.ident.to_string());
        } else {
            syn::visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if item.trait_.is_none()
            && !is_test(&item.attrs)
            && let syn::Type::Path(own) = &*item.self_ty
        {
            self.impls.insert(own.path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        syn::visit::visit_item_impl(self, item);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let is_repr_c = |attribute: &syn::Attribute| {
            attribute.path().is_ident("repr")
                && attribute.parse_args::<syn::Ident>().is_ok_and(|layout| layout == "C")
        };
        if let syn::Fields::Named(fields) = &item.fields
            && !is_test(&item.attrs)
            && !item.attrs.iter().any(is_repr_c)
        {
            self.structs.push((item.ident.to_string(), fields.named.len()));
        }
    }
}

/// Returns the functions of a formatted source and their lines: the closing brace has the indentation of the
/// first line.
fn functions(text: &str, lines_without_tests: usize) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().take(lines_without_tests).collect();
    let mut found = Vec::new();
    for (n, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let Some((before, after)) = code.split_once("fn ") else { continue };
        let words = ["pub", "const", "async", "unsafe", "extern", "\"C\"", "pub(crate)", "pub(super)"];
        let is_word = |word: &str| words.contains(&word) || word.starts_with("pub(") || word.ends_with(')');
        if !before.split_whitespace().all(is_word) || !before.is_empty() && !before.ends_with(' ') {
            continue;
        }
        let name: String = after.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let indent = line.len() - code.len();
        let end = format!("{}}}", &line[..indent]);
        let is_end = |l: &&&str| {
            **l == end
                || l.len() > indent
                    && !l[indent..].starts_with([' ', ')', '{', '}'])
                    && l.ends_with(';')
                    && l.starts_with(&line[..indent])
        };
        let is_short = line.ends_with([';', '}']);
        if !name.is_empty()
            && !is_short
            && let Some(more) = lines[n + 1..].iter().position(|l| is_end(&l))
        {
            found.push((name, more + 2));
        }
    }
    found
}

/// Returns every shape that exceeds its limit: (name, size), in order. A type is `crate: module::Type`.
pub(super) fn large(crates: &BTreeMap<&str, Vec<(&str, &str)>>) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for (name, files) in crates {
        let modules = Modules::read(files);
        let shapes: Vec<(&str, &str, Shapes)> = files
            .iter()
            .map(|(path, text)| {
                let mut shapes = Shapes::default();
                if let Ok(file) = syn::parse_file(text) {
                    shapes.visit_file(&file);
                }
                (*path, *text, shapes)
            })
            .collect();
        let tests: BTreeSet<String> =
            shapes.iter().flat_map(|(path, _, file)| tests_below(path, file)).collect();
        let mut impls: BTreeMap<String, usize> = BTreeMap::new();
        for (path, text, shapes) in &shapes {
            let stem = path.trim_end_matches(".rs");
            if tests.iter().any(|test| stem == test || stem.starts_with(&format!("{test}/"))) {
                continue;
            }
            let module = stem.replace('/', "::");
            for written in &shapes.impls {
                let own = written.last().map_or("", String::as_str);
                *impls.entry(format!("{}::{own}", modules.definer_of(path, written))).or_default() += 1;
            }
            for (own, fields) in shapes.structs.iter().filter(|(_, fields)| *fields > FIELDS_MAX) {
                found.insert(format!("fields of {name}: {module}::{own}"), *fields);
            }
            for (own, lines) in functions(text, super::lines_without_tests(path, text)) {
                if lines > FUNCTION_LINES_MAX {
                    found.insert(format!("lines of {name}: {module}::{own}"), lines);
                }
            }
        }
        let large = impls.into_iter().filter(|(_, files)| *files > IMPL_FILES_MAX);
        found.extend(large.map(|(own, files)| (format!("files of {name}: {own}"), files)));
    }
    found
}

/// Returns the files, without `.rs`, of the modules that a file declares for tests alone.
fn tests_below(path: &str, file: &Shapes) -> Vec<String> {
    let stem = path.trim_end_matches(".rs");
    let below = if ["lib", "main"].contains(&stem) { String::new() } else { format!("{stem}/") };
    file.test_modules.iter().map(|module| format!("{below}{module}")).collect()
}

#[test]
fn shapes_are_measured() {
    let body = "    a();\n".repeat(FUNCTION_LINES_MAX);
    let fields: String = (0..=FIELDS_MAX).map(|n| format!("f{n}: u8, ")).collect();
    let text = format!(
        "mod a; mod b; mod c; #[cfg(test)] mod t; pub struct S {{ {fields} }}\n\
         #[repr(C)] struct R {{ {fields} }}\n\
         impl S {{}}\nfn long(\n    x: u8,\n) {{\n{body}}}\nfn one() {{}}\n"
    );
    let uses = "use super::S; impl S {} impl S {} impl Clone for S {}";
    let other = "struct S; impl S {}";
    let files = [("lib.rs", text.as_str()), ("a.rs", uses), ("b.rs", "impl crate::S {}"), ("c.rs", uses)];
    let more = [("t.rs", uses), ("d.rs", other)];
    let crates = BTreeMap::from([("x", [files.as_slice(), &more].concat())]);
    let large: Vec<_> = large(&crates).into_iter().collect();
    let expected = [
        ("fields of x: lib::S", FIELDS_MAX + 1),
        ("files of x: ::S", 4),
        ("lines of x: lib::long", FUNCTION_LINES_MAX + 4),
    ];
    assert_eq!(large, expected.map(|(what, size)| (what.to_string(), size)));
}
