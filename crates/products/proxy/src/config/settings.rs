//! What is common to the settings of all roles.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anabranch_net::nearest;
use toml::de::{DeTable, DeValue};

use crate::config::value::Shape;

/// The longest file that is read, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// When a change of a setting counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// As soon as the role is told of it.
    Live,
    /// When it starts again.
    Restart,
}

/// A setting.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name in a file; as a flag it has two dashes in front.
    pub name: &'static str,
    /// What its value looks like.
    pub value: &'static str,
    /// How its value is written.
    pub shape: Shape,
    /// What it is if nobody says; `None`: it is not set then.
    pub default: Option<&'static str>,
    /// When a change counts.
    pub change: Change,
    pub(super) docs: &'static str,
}

impl Key {
    /// What it means, in one paragraph.
    #[must_use]
    pub fn docs(&self) -> &'static str {
        self.docs.trim()
    }
}

/// What is wrong with a setting, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{what}", place(.file.as_deref(), *.line))]
pub struct ConfigError {
    /// The file.
    pub file: Option<PathBuf>,
    /// The line in it, from 1 on.
    pub line: Option<usize>,
    /// What is wrong.
    pub what: String,
}

fn place(file: Option<&Path>, line: Option<usize>) -> String {
    match (file, line) {
        (Some(file), Some(line)) => format!("{}:{line}: ", file.display()),
        (Some(file), None) => format!("{}: ", file.display()),
        (None, Some(line)) => format!("line {line}: "),
        (None, None) => String::new(),
    }
}

impl ConfigError {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { file: None, line: None, what: what.into() }
    }

    pub(super) fn at(line: usize, what: impl Into<String>) -> Self {
        Self { line: Some(line), ..Self::new(what) }
    }
}

/// The settings of a role. What is `None` was not said.
pub trait Settings: Clone + Default + PartialEq {
    /// All that there are.
    const KEYS: &'static [Key];

    /// Sets one. A flag of yes or no has no text, or `true` or `false`.
    ///
    /// # Errors
    /// There is no such one; what is wrong with its value.
    fn set(&mut self, name: &str, texts: &[String]) -> Result<(), String>;

    /// One as it is written; `None` if it was not said. Secrets are hidden.
    fn texts(&self, name: &str) -> Option<Vec<String>>;

    /// These, and where they say nothing, those.
    #[must_use]
    fn over(self, those: Self) -> Self;

    /// The names of those that differ.
    fn differing(&self, other: &Self) -> Vec<&'static str>;

    /// What all are if nobody says anything.
    #[must_use]
    fn defaults() -> Self {
        let mut all = Self::default();
        for key in Self::KEYS {
            if let Some(default) = key.default {
                let set = all.set(key.name, &[default.to_owned()]);
                debug_assert_eq!(set, Ok(()), "{}", key.name);
            }
        }
        all
    }

    /// The settings as a file has them, those that are set.
    #[must_use]
    fn to_toml(&self) -> String {
        let mut text = String::new();
        for key in Self::KEYS {
            let Some(texts) = self.texts(key.name) else { continue };
            let quoted = |text: &String| toml::Value::String(text.clone()).to_string();
            let value = match key.shape {
                Shape::Flag | Shape::Number => texts.concat(),
                Shape::Text => texts.iter().map(quoted).collect(),
                Shape::Many => format!("[{}]", texts.iter().map(quoted).collect::<Vec<_>>().join(", ")),
            };
            // A string takes everything.
            let _ = writeln!(text, "{} = {value}", key.name);
        }
        text
    }
}

/// What a reload came to: the names of settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Those that are in force now.
    pub live: Vec<&'static str>,
    /// Those that want the role to start again.
    pub restart: Vec<&'static str>,
}

/// What differs between the settings in force and new ones.
#[must_use]
pub fn changes<S: Settings>(before: &S, after: &S) -> Changes {
    let is_live =
        |name: &&'static str| S::KEYS.iter().any(|key| key.name == *name && key.change == Change::Live);
    let (live, restart) = after.differing(before).into_iter().partition(is_live);
    Changes { live, restart }
}

/// Reads the settings of a file.
///
/// # Errors
/// It cannot be read; what is wrong in which line, and for an unknown key which one was probably meant.
pub fn load<S: Settings>(path: &Path) -> Result<S, ConfigError> {
    let text = read(path, FILE_BYTES_MAX)?;
    parse(&text).map_err(|e| ConfigError { file: Some(path.to_owned()), ..e })
}

/// Reads settings.
///
/// # Errors
/// What is wrong in which line, and for an unknown key which one was probably meant.
pub fn parse<S: Settings>(text: &str) -> Result<S, ConfigError> {
    let line_of =
        |byte: usize| text.as_bytes()[..byte.min(text.len())].iter().filter(|b| **b == b'\n').count() + 1;
    let table = DeTable::parse(text).map_err(|e| {
        let what = e.message().trim().replace('\n', "; ");
        ConfigError { line: e.span().map(|span| line_of(span.start)), ..ConfigError::new(what) }
    })?;
    let mut settings = S::default();
    for (key, value) in table.get_ref() {
        let name = key.get_ref().as_ref();
        let Some(known) = S::KEYS.iter().find(|known| known.name == name) else {
            return Err(ConfigError::at(line_of(key.span().start), unknown::<S>(name)));
        };
        let wrong = |what: String| ConfigError::at(line_of(value.span().start), format!("{name}: {what}"));
        let texts = texts(known, value.get_ref()).map_err(wrong)?;
        settings.set(name, &texts).map_err(wrong)?;
    }
    Ok(settings)
}

fn unknown<S: Settings>(name: &str) -> String {
    let names = S::KEYS.iter().map(|key| key.name);
    match nearest(name, names.clone()) {
        Some(near) => format!("unknown key `{name}`: did you mean `{near}`?"),
        None => format!("unknown key `{name}`; there are {}", names.collect::<Vec<_>>().join(", ")),
    }
}

/// A value as texts.
fn texts(key: &Key, value: &DeValue<'_>) -> Result<Vec<String>, String> {
    match (key.shape, value) {
        (Shape::Flag, DeValue::Boolean(value)) => Ok(vec![value.to_string()]),
        (Shape::Flag, _) => Err("expected true or false".to_owned()),
        (Shape::Number, DeValue::Integer(value)) if value.radix() == 10 => {
            Ok(vec![value.as_str().replace('_', "")])
        }
        (Shape::Number, _) => Err("expected a number, without quotes".to_owned()),
        (Shape::Text | Shape::Many, DeValue::String(text)) => Ok(vec![text.clone().into_owned()]),
        (Shape::Many, DeValue::Array(values)) => {
            let text = |value: &DeValue<'_>| match value {
                DeValue::String(text) => Ok(text.clone().into_owned()),
                _ => Err(format!("expected a list of {} in quotes", key.value)),
            };
            values.iter().map(|value| text(value.get_ref())).collect()
        }
        (Shape::Text | Shape::Many, _) => Err(format!("expected {} in quotes", key.value)),
    }
}

/// Reads a text file that may be so long.
fn read(path: &Path, at_most: u64) -> Result<String, ConfigError> {
    let wrong = |what: String| ConfigError { file: Some(path.to_owned()), ..ConfigError::new(what) };
    let file = File::open(path).map_err(|e| wrong(format!("cannot be read: {e}")))?;
    let mut text = String::new();
    let read = file.take(at_most + 1).read_to_string(&mut text);
    read.map_err(|e| wrong(format!("cannot be read: {e}")))?;
    if text.len() as u64 > at_most {
        return Err(wrong(format!("is longer than {at_most} bytes")));
    }
    Ok(text)
}
