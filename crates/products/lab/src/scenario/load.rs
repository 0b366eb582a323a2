//! Reads a file into a scenario, or an error that names file, line and key.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

use serde::Deserialize as _;
use toml::de::{DeTable, DeValue, Deserializer};
use toml::{Spanned, Value};

use super::error::ScenarioError;
use super::schema::{SchemaNode, schema_at};
use super::{Scenario, TraceFile, built_in, topology};
use crate::controllers::Controllers;
use crate::hint::hint;

/// Largest scenario file, bytes; a trace belongs into a file of its own.
pub const FILE_BYTES_MAX: u64 = 16 << 20;

/// The settings for reading a scenario: its controllers, and the case to run.
///
/// ```
/// use anabranch_lab::scenario::load::ScenarioReader;
///
/// let scenario = ScenarioReader::default().built_in("bench-a").expect("there is one").expect("a scenario");
/// assert!(!scenario.case.is_empty());
/// ```
#[derive(Clone, Debug, Default)]
pub struct ScenarioReader {
    controllers: Controllers,
    only: Option<String>,
}

impl ScenarioReader {
    /// Sets the controllers that names refer to, in the scenario and in its runs.
    #[must_use]
    pub fn controllers(self, controllers: Controllers) -> Self {
        Self { controllers, ..self }
    }

    /// Limits checks to this case, if given: no other case is going to run.
    #[must_use]
    pub fn case(self, only: Option<&str>) -> Self {
        Self { only: only.map(str::to_owned), ..self }
    }

    /// Reads and checks a file. Other files that it names are relative to it.
    ///
    /// # Errors
    /// If it cannot be read, is not TOML, has unknown keys or makes no sense, or has no case of that name;
    /// the error has the line and the remedy.
    pub fn load(&self, path: &Path) -> Result<Scenario, ScenarioError> {
        let name = path.display().to_string();
        let wrong = |what: String| ScenarioError::of("", what).in_file(&name);
        let length = fs::metadata(path).map_err(|e| wrong(format!("cannot be read: {e}")))?.len();
        if length > FILE_BYTES_MAX {
            return Err(wrong(format!("is larger than a scenario may be ({FILE_BYTES_MAX} bytes)")));
        }
        let text = fs::read_to_string(path).map_err(|e| wrong(format!("cannot be read: {e}")))?;
        self.read(&text, &name, path.parent().unwrap_or(Path::new("")))
    }

    /// Reads and checks the scenario with this name that is part of the program; `None` if there is none.
    #[must_use]
    pub fn built_in(&self, name: &str) -> Option<Result<Scenario, ScenarioError>> {
        let text = built_in::text(name)?;
        Some(self.read(text, &format!("{name} (built in)"), Path::new(built_in::PREFIX)))
    }

    /// Parses and checks a text, which errors call `name`. Other files that it names are relative to the
    /// current directory.
    ///
    /// # Errors
    /// If [`load`](Self::load) would refuse a file with this text.
    pub fn parse(&self, text: &str, name: &str) -> Result<Scenario, ScenarioError> {
        self.read(text, name, Path::new(""))
    }

    fn read(&self, text: &str, name: &str, dir: &Path) -> Result<Scenario, ScenarioError> {
        let (places, table) = SpanIndex::of(text).map_err(|e| e.in_file(name))?;
        let read = || {
            let tree = toml::Table::deserialize(Deserializer::from(table.clone()));
            let mut tree = tree.map_err(|e| places.explain(&e))?;
            let is_short = topology::expand(&mut tree, dir)?;
            let tree = Value::Table(tree);
            verify(&tree, &[])?;
            let mut scenario = match is_short {
                // Inserted values have no position in the text.
                true => tree.try_into().map_err(|e: toml::de::Error| ScenarioError::of("", said(&e)))?,
                false => Scenario::deserialize(Deserializer::from(table)).map_err(|e| places.explain(&e))?,
            };
            scenario.controllers.known = self.controllers.clone();
            scenario.resolve(dir);
            scenario.check_cases(self.only.as_deref())?;
            Ok(scenario)
        };
        read().map_err(|mut error: ScenarioError| {
            error.line = error.line.or_else(|| places.line(&error.key));
            error.in_file(name)
        })
    }
}

impl Scenario {
    /// Reads and checks a file, as [`ScenarioReader::load`] does with the controllers of the table.
    ///
    /// # Errors
    /// If [`ScenarioReader::load`] refuses the file.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        ScenarioReader::default().load(path)
    }

    /// Reads the scenario with this name that is part of the program: see [`ScenarioReader::built_in`].
    #[must_use]
    pub fn built_in(name: &str) -> Option<Result<Self, ScenarioError>> {
        ScenarioReader::default().built_in(name)
    }

    /// Parses and checks a text, as [`ScenarioReader::parse`] does with the controllers of the table.
    ///
    /// # Errors
    /// If [`ScenarioReader::parse`] refuses the text.
    pub fn parse(text: &str, name: &str) -> Result<Self, ScenarioError> {
        ScenarioReader::default().parse(text, name)
    }

    /// Makes the paths of traces, which are relative to the file, relative to the current directory.
    fn resolve(&mut self, dir: &Path) {
        for trace in self.link.values_mut().filter_map(|link| link.trace.as_mut()) {
            *trace = match dir.to_str() {
                // Built-in traces are in no directory.
                Some(built_in::PREFIX) => TraceFile::new(format!("{}{}", built_in::PREFIX, trace.path())),
                _ => TraceFile::new(dir.join(trace.path()).to_string_lossy()),
            };
        }
    }
}

/// The positions of keys in a text.
struct SpanIndex {
    /// Line, and byte range of the value, by dotted path.
    keys: BTreeMap<String, (usize, Range<usize>)>,
    /// Offsets at which lines begin.
    lines: Vec<usize>,
}

impl SpanIndex {
    /// Parses a text; returns the positions of its keys and the table.
    fn of(text: &str) -> Result<(Self, Spanned<DeTable<'_>>), ScenarioError> {
        let starts = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        let mut places = Self { keys: BTreeMap::new(), lines: std::iter::once(0).chain(starts).collect() };
        let table = DeTable::parse(text).map_err(|e| places.explain(&e))?;
        places.table(table.get_ref(), "");
        Ok((places, table))
    }

    fn table(&mut self, table: &DeTable<'_>, path: &str) {
        for (key, value) in table {
            let path = join(path, key.get_ref());
            self.value(value.get_ref(), path, key.span().start, value.span());
        }
    }

    fn value(&mut self, value: &DeValue<'_>, path: String, at: usize, span: Range<usize>) {
        match value {
            DeValue::Table(table) => self.table(table, &path),
            DeValue::Array(values) => {
                for (index, value) in values.iter().enumerate() {
                    let span = value.span();
                    self.value(value.get_ref(), format!("{path}.{index}"), span.start, span);
                }
            }
            _ => {}
        }
        let line = self.line_at(at);
        self.keys.insert(path, (line, span));
    }

    fn line_at(&self, byte: usize) -> usize {
        self.lines.partition_point(|start| *start <= byte)
    }

    /// Returns the line of `key`, or of the closest enclosing table that exists.
    fn line(&self, key: &str) -> Option<usize> {
        let mut key = key;
        while !key.is_empty() {
            if let Some((line, _)) = self.keys.get(key) {
                return Some(*line);
            }
            key = key.rsplit_once('.').map_or("", |(front, _)| front);
        }
        None
    }

    /// Turns an error of the parser into one that names the key around its position.
    fn explain(&self, error: &toml::de::Error) -> ScenarioError {
        let message = said(error);
        let Some(span) = error.span() else { return ScenarioError::of("", message) };
        let around = |(_, value): &(usize, Range<usize>)| {
            !span.is_empty() && value.start <= span.start && span.end <= value.end
        };
        let inner =
            self.keys.iter().filter(|(_, place)| around(place)).min_by_key(|(_, place)| place.1.len());
        let mut error = match inner {
            Some((key, _)) => ScenarioError::at(key, message),
            None => ScenarioError::of("", message),
        };
        error.line = Some(self.line_at(span.start));
        error
    }
}

/// Returns the parser's message in one line.
fn said(error: &toml::de::Error) -> String {
    error.message().trim().replace('\n', "; ").replace("missing field", "missing key")
}

/// Appends `key` to a dotted path.
pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.into() } else { format!("{path}.{key}") }
}

/// Checks that every key is allowed, and that every value has the right type.
pub(super) fn verify(value: &Value, path: &[&str]) -> Result<(), ScenarioError> {
    let here = path.join(".");
    let wrong = |what: String| Err(ScenarioError::at(&here, what));
    let expected = |what: &str| wrong(format!("expected {what}, found {}", value.type_str()));
    match (schema_at(path), value) {
        (None, _) => return wrong("nothing can stand here".into()),
        (Some(SchemaNode::Any), _) => {}
        (Some(SchemaNode::Struct(_) | SchemaNode::Map), Value::Table(table)) => {
            for (key, value) in table {
                known(key, path)?;
                verify(value, &[path, &[key]].concat())?;
            }
        }
        (Some(SchemaNode::List), Value::Array(values)) => {
            for (index, value) in values.iter().enumerate() {
                verify(value, &[path, &[&index.to_string()]].concat())?;
            }
        }
        (Some(SchemaNode::Word(words)), Value::String(word)) => {
            if !words.contains(&word.as_str()) {
                return wrong(format!("`{word}` is none of its values{}", hint(word, words.iter().copied())));
            }
        }
        (Some(SchemaNode::Text), Value::String(_)) | (Some(SchemaNode::Flag), Value::Boolean(_)) => {}
        (Some(SchemaNode::Number), Value::Integer(_) | Value::Float(_)) => {}
        (Some(SchemaNode::Text), Value::Integer(n)) => {
            return wrong(format!(
                "write it in quotes, and a quantity with its unit: \"{n} ms\", \"{n} pkt\""
            ));
        }
        (Some(SchemaNode::Text), Value::Float(n)) => {
            return wrong(format!("write it in quotes, and a quantity with its unit: \"{n} ms\""));
        }
        (Some(SchemaNode::Number), Value::String(text)) => {
            return wrong(format!("\"{text}\" should be a number, without quotes"));
        }
        (Some(SchemaNode::Number), _) => return expected("a number"),
        (Some(SchemaNode::Struct(_) | SchemaNode::Map), _) => return expected("a table"),
        (Some(SchemaNode::List), _) => return expected("a list: [ … ]"),
        (Some(SchemaNode::Word(words)), _) => {
            return expected(&format!("one of \"{}\"", words.join("\", \"")));
        }
        (Some(SchemaNode::Text), _) => return expected("a string"),
        (Some(SchemaNode::Flag), _) => return expected("true or false"),
    }
    Ok(())
}

/// Checks that a table at `path` may have `key`.
pub(super) fn known(key: &str, path: &[&str]) -> Result<(), ScenarioError> {
    let Some(SchemaNode::Struct(keys)) = schema_at(path) else { return Ok(()) };
    if keys.contains(&key) {
        return Ok(());
    }
    let here = path.join(".");
    let place = if here.is_empty() { String::new() } else { format!(" in {here}") };
    let short = match path {
        [] => &[topology::KEY][..],
        ["flow", _, "paths", _] => topology::PATH_KEYS,
        _ => &[],
    };
    if short.contains(&key) {
        let what = "it is only read with the file, where it stands for links: name those";
        return Err(ScenarioError::at(join(&here, key), what));
    }
    let mut what = format!("unknown key `{key}`{place}{}", hint(key, keys.iter().chain(short).copied()));
    // If the key belongs to another table, the error names that table.
    if !what.contains("did you mean") {
        let homes = ["", "link.NAME", "flow.NAME", "flow.NAME.paths.0", "cbr.NAME", "fault.0", "measure.0"];
        let has = |home: &&&str| {
            let path: Vec<&str> = home.split('.').filter(|step| !step.is_empty()).collect();
            matches!(schema_at(&path), Some(SchemaNode::Struct(keys)) if keys.contains(&key))
        };
        if let Some(home) = homes.iter().find(has) {
            let home = if home.is_empty() { "the top of the file".into() } else { home.replace(".0", "") };
            what = format!("{what}. `{key}` belongs to {home}");
        }
    }
    Err(ScenarioError::of(join(&here, key), what))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "title = \"t\"\nduration = \"60 s\"\n";

    fn error(rest: &str) -> String {
        Scenario::parse(&format!("{HEAD}{rest}"), "x.toml").expect_err(rest).to_string()
    }

    #[test]
    fn unknown_keys_are_errors_with_the_nearest() {
        assert_eq!(
            error("[link.bottleneck]\nrtae = \"8 Mbit/s\"\n"),
            "x.toml:4: unknown key `rtae` in link.bottleneck: did you mean `rate`?"
        );
        assert_eq!(error("titel = \"x\"\n"), "x.toml:3: unknown key `titel`: did you mean `title`?");
        assert!(error("[link.c.codel]\nwindow = 1\n").contains("there are target, interval, mark"));
        assert!(
            error("[link.a]\n[flow.x]\npaths = [\n  { via = [\"a\"],\n    rt = \"1 ms\" },\n]\n")
                .contains("x.toml:7: unknown key `rt` in flow.x.paths.0: did you mean `rtt`?")
        );
        assert!(error("[flow.x]\nrtt = \"1 ms\"\n").contains("`rtt` belongs to flow.NAME.paths"));
        assert!(error("[[measure]]\nmetrik = \"x\"\n").contains(":4: unknown key `metrik` in measure.0"));
    }

    #[test]
    fn wrong_values_are_errors_that_say_what_to_write() {
        let what = error("[link.c]\nrate = 8\n");
        assert!(what.starts_with("x.toml:4: link.c.rate: write it in quotes"), "{what}");
        let what = error("[link.c]\n\nrate = \"8 Mbps\"\n");
        assert!(what.starts_with("x.toml:5: link.c.rate: \"8 Mbps\" is not a rate: write it as"), "{what}");
        assert!(error("[link.c]\nloss = \"0.1\"\n").contains("without quotes"));
        assert!(error("[link.c]\nloss = true\n").starts_with("x.toml:4: link.c.loss: "));
        assert!(error("[link.c]\nloss = \"101 %\"\n").contains("1.01 is no probability"));
        assert!(error("[flow.x]\ngroups = \"topolgy\"\n").contains("did you mean `topology`?"));
        assert!(error("[flow.x]\ncount = 3\n").contains(":3: flow.x: missing key `paths`"));
        assert!(error("[flow.x]\npaths = 3\n").contains("flow.x.paths: expected a list"));
        assert!(error("link = 3\n").contains("expected a table"));
        assert!(error("seeds = -1\n").contains("x.toml:3: seeds: "));
        assert!(error("[link\n").starts_with("x.toml:3: "), "{}", error("[link\n"));
        assert!(error("title = \"again\"\n").starts_with("x.toml:3: "));
        let missing = Scenario::parse("title = \"t\"\n", "x.toml").expect_err("no duration").to_string();
        assert!(missing.contains("missing key `duration`"), "{missing}");
    }

    /// The parts of the template that are commented out are correct too.
    #[test]
    fn the_template_runs_with_and_without_what_is_commented_out() {
        use super::super::TEMPLATE;
        Scenario::parse(TEMPLATE, "template").expect("a scenario");
        let is_key = |line: &str| {
            let first = line.split(' ').next().unwrap_or("");
            line.starts_with("[[") || (line[first.len()..].starts_with(" = ") && !first.is_empty())
        };
        let uncommented = |line: &str| match line.strip_prefix("# ").filter(|rest| is_key(rest)) {
            Some(rest) => format!("{rest}\n"),
            None => format!("{line}\n"),
        };
        let whole: String = TEMPLATE.lines().map(uncommented).collect();
        let scenario = Scenario::parse(&whole, "template").expect("a scenario");
        assert_eq!((scenario.fault.len(), scenario.flow["sp"].count), (1, 4));
        assert!(scenario.flow["mp"].size.is_some() && scenario.link["bottleneck"].loss == 0.001);
    }

    #[test]
    fn those_of_the_program_are_read_without_a_file() {
        for name in built_in::names() {
            let scenario = Scenario::built_in(name).expect("it is there").expect(name);
            for trace in scenario.link.values().filter_map(|link| link.trace.as_ref()) {
                assert!(trace.read().is_ok() && trace.path().starts_with("built-in:traces/"), "{name}");
            }
        }
        assert!(Scenario::built_in("nosuch").is_none());
        let trace = TraceFile::new("built-in:traces/nosuch.trace");
        assert!(trace.read().is_err());
    }

    #[test]
    fn what_cannot_be_read_says_so() {
        let error = Scenario::load(Path::new("no/such.toml")).expect_err("not there").to_string();
        assert!(error.starts_with("no/such.toml: cannot be read: "), "{error}");
    }
}
