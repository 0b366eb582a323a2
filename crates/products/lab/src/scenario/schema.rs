//! Finds the keys that a scenario may have by asking the struct itself, so that there is no second list.
//!
//! A `SchemaProbe` is a deserializer that offers the struct a document with a single key, the path in
//! question, and records the type that the struct requests at the end of the path.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::Scenario;

/// The type of value that is allowed at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SchemaNode {
    /// A table with these keys and no others.
    Struct(&'static [&'static str]),
    /// A table with keys of the author's choice.
    Map,
    /// A list.
    List,
    /// A string, or a quantity with its unit.
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A number.
    Number,
    /// `true` or `false`.
    Flag,
    /// Any type.
    Any,
}

/// Returns the node at `path` of a scenario; `None` if a scenario cannot have this path.
pub(super) fn schema_at(path: &[&str]) -> Option<SchemaNode> {
    let found = Cell::new(None);
    // This never succeeds: the probe ends it as soon as it has the answer.
    let _ = Scenario::deserialize(SchemaProbe { path, found: &found });
    found.get()
}

/// Returns the values that a measure's `kind` may have.
#[must_use]
pub fn measure_kinds() -> &'static [&'static str] {
    match schema_at(&["measure", "0", "kind"]) {
        Some(SchemaNode::Word(words)) => words,
        _ => &[],
    }
}

struct SchemaProbe<'a> {
    path: &'a [&'a str],
    found: &'a Cell<Option<SchemaNode>>,
}

/// The error by which the probe ends deserialization.
#[derive(Debug)]
struct ProbeDone;

impl fmt::Display for ProbeDone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("probed")
    }
}
impl std::error::Error for ProbeDone {}
impl serde::de::Error for ProbeDone {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

impl<'a> SchemaProbe<'a> {
    /// Records `node` if the path ends here.
    fn note<T>(&self, node: SchemaNode) -> Result<T, ProbeDone> {
        if self.path.is_empty() {
            self.found.set(Some(node));
        }
        Err(ProbeDone)
    }
    /// Returns the next step of the path, and the probe for the rest.
    fn step(self) -> Option<(&'a str, Self)> {
        let (first, rest) = self.path.split_first()?;
        Some((first, Self { path: rest, found: self.found }))
    }
}

macro_rules! leaves {
    ($($node:ident: $($method:ident)*;)*) => {$($(
        fn $method<V: Visitor<'de>>(self, _: V) -> Result<V::Value, ProbeDone> {
            self.note(SchemaNode::$node)
        }
    )*)*};
}

impl<'de> Deserializer<'de> for SchemaProbe<'_> {
    type Error = ProbeDone;

    leaves! {
        Any: deserialize_any deserialize_ignored_any deserialize_bytes deserialize_byte_buf deserialize_unit;
        Flag: deserialize_bool;
        Number: deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8 deserialize_u16
            deserialize_u32 deserialize_u64 deserialize_f32 deserialize_f64;
        Text: deserialize_char deserialize_str deserialize_string deserialize_identifier;
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ProbeDone> {
        visitor.visit_some(self)
    }
    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, _: V) -> Result<V::Value, ProbeDone> {
        self.note(SchemaNode::Any)
    }
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        v: V,
    ) -> Result<V::Value, ProbeDone> {
        v.visit_newtype_struct(self)
    }
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ProbeDone> {
        match self.path.first() {
            None => self.note(SchemaNode::List),
            Some(index) if index.parse::<usize>().is_err() => Err(ProbeDone),
            Some(_) => visitor.visit_seq(SingleEntry(self.step())),
        }
    }
    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, ProbeDone> {
        self.deserialize_seq(visitor)
    }
    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, ProbeDone> {
        self.deserialize_seq(visitor)
    }
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ProbeDone> {
        match self.path.is_empty() {
            true => self.note(SchemaNode::Map),
            false => visitor.visit_map(SingleEntry(self.step())),
        }
    }
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ProbeDone> {
        match self.path.first() {
            None => self.note(SchemaNode::Struct(fields)),
            Some(key) if !fields.contains(key) => Err(ProbeDone),
            Some(_) => visitor.visit_map(SingleEntry(self.step())),
        }
    }
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        words: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, ProbeDone> {
        self.note(SchemaNode::Word(words))
    }
}

/// The only entry of a table or list.
struct SingleEntry<'a>(Option<(&'a str, SchemaProbe<'a>)>);

impl<'de> MapAccess<'de> for SingleEntry<'_> {
    type Error = ProbeDone;
    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ProbeDone> {
        let Some((key, _)) = &self.0 else { return Ok(None) };
        let key = serde::de::value::StrDeserializer::<ProbeDone>::new(key);
        seed.deserialize(key).map(Some)
    }
    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, ProbeDone> {
        seed.deserialize(self.0.take().ok_or(ProbeDone)?.1)
    }
}

impl<'de> SeqAccess<'de> for SingleEntry<'_> {
    type Error = ProbeDone;
    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, ProbeDone> {
        self.0.take().map(|(_, probe)| seed.deserialize(probe)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn what_may_stand_where() {
        let of = |path: &str| schema_at(&path.split('.').collect::<Vec<_>>());
        let Some(SchemaNode::Struct(keys)) = schema_at(&[]) else { panic!("a table") };
        assert!(keys.contains(&"title") && keys.contains(&"measure"));
        assert_eq!(of("title"), Some(SchemaNode::Text));
        assert_eq!(of("link"), Some(SchemaNode::Map));
        assert!(matches!(of("link.any"), Some(SchemaNode::Struct(keys)) if keys.contains(&"rate")));
        assert_eq!(of("link.any.rate"), Some(SchemaNode::Text));
        // A number, or a percentage in quotes.
        assert_eq!(of("link.any.loss"), Some(SchemaNode::Any));
        assert_eq!(of("link.any.codel.mark"), Some(SchemaNode::Flag));
        assert_eq!(of("link.any.rtae"), None);
        assert_eq!(of("link.any.rate.x"), None);
        assert_eq!(of("flow.any.paths"), Some(SchemaNode::List));
        assert_eq!(of("flow.any.paths.7.via.0"), Some(SchemaNode::Text));
        assert_eq!(of("flow.any.paths.x"), None);
        let transports = &["packet", "mmtp", "tcp", "mptcp", "mirrors"];
        assert_eq!(of("flow.any.transport"), Some(SchemaNode::Word(transports)));
        assert_eq!(of("measure.0.paper.nmcc"), Some(SchemaNode::Number));
        assert_eq!(of("case.0.set"), Some(SchemaNode::Map));
        assert_eq!(schema_at(&["case", "0", "set", "link.c.rate"]), Some(SchemaNode::Any));
    }

    /// The page that documents the keys.
    const PAGE: &str = include_str!("../../../../../docs/lab.md");

    /// Collects all keys below a path, as the page lists them: `(section, key)`. Tables in tables are
    /// dotted; tables at the top of the file have sections of their own.
    fn collect(path: &[&'static str], section: &str, key: &str, found: &mut BTreeSet<(String, String)>) {
        let down = |step: &'static str| [path, &[step]].concat();
        match schema_at(path) {
            Some(SchemaNode::Struct(keys)) => {
                for step in keys {
                    let key = super::super::load::join(key, step);
                    collect(&down(step), section, &key, found);
                }
            }
            Some(SchemaNode::List | SchemaNode::Map) => {
                let step = if schema_at(path) == Some(SchemaNode::List) { "0" } else { "NAME" };
                let of_tables = matches!(schema_at(&down(step)), Some(SchemaNode::Struct(_)));
                if path.len() == 1 || !of_tables {
                    found.insert((section.into(), key.into()));
                }
                if path.len() == 1 && of_tables {
                    let section = if step == "0" { key.to_owned() } else { format!("{key}.NAME") };
                    collect(&down(step), &section, "", found);
                } else if of_tables {
                    collect(&down(step), section, key, found);
                }
            }
            Some(_) => drop(found.insert((section.into(), key.into()))),
            None => panic!("{path:?}"),
        }
    }

    /// Returns the first text in backticks.
    fn quoted(text: &str) -> Option<&str> {
        text.split('`').nth(1)
    }

    #[test]
    fn the_page_lists_every_key_and_no_other() {
        let mut wanted = BTreeSet::new();
        collect(&[], "", "", &mut wanted);
        let (mut section, mut is_of_keys, mut listed) = (None, false, BTreeSet::new());
        for line in PAGE.lines() {
            if let Some(title) = line.strip_prefix("### ") {
                section = Some(quoted(title).unwrap_or(""));
            } else if let (Some(section), Some(row)) = (section, line.strip_prefix("| ")) {
                match quoted(row) {
                    None if !row.starts_with('-') => is_of_keys = row.starts_with("key "),
                    Some(key) if is_of_keys => drop(listed.insert((section.to_owned(), key.to_owned()))),
                    _ => {}
                }
            }
        }
        let differing: Vec<_> = wanted.symmetric_difference(&listed).collect();
        assert!(differing.is_empty() && wanted.len() > 80, "{differing:?}");
    }

    #[test]
    fn the_page_has_every_word_that_a_key_may_be() {
        for path in [
            &["flow", "x", "transport"][..],
            &["flow", "x", "groups"],
            &["flow", "x", "arrivals", "sizes"],
            &["link", "x", "victims", "who"],
            &["measure", "0", "kind"],
            &["measure", "0", "statistic"],
            &["assert", "0", "what"],
        ] {
            let Some(SchemaNode::Word(words)) = schema_at(path) else { panic!("{path:?}") };
            for word in words {
                assert!(PAGE.contains(&format!("`{word}`")), "{path:?}: {word}");
            }
        }
        assert_eq!(schema_at(&["measure", "0", "kind"]), Some(SchemaNode::Word(measure_kinds())));
    }

    #[test]
    fn the_scenarios_on_the_page_are_some() {
        let blocks: Vec<&str> = PAGE.split("```toml\n").skip(1).collect();
        assert_eq!(blocks.len(), 2);
        for block in blocks {
            let text = block.split("```").next().unwrap_or("");
            Scenario::parse(text, "docs/lab.md").expect("a scenario");
        }
    }
}
