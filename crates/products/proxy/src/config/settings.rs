//! The items that the settings of all roles share.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anabranch_net::nearest;
use toml::de::{DeTable, DeValue};

use crate::config::value::Shape;

/// The most bytes of a settings file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// When a change of a setting takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// As soon as the role reloads its settings.
    Live,
    /// When the role starts again.
    Restart,
}

/// The description of a setting.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The name of the setting in a file. The flag has two dashes before it.
    pub name: &'static str,
    /// The form of the value for help, such as `ADDR:PORT`.
    pub value: &'static str,
    /// How the value is written.
    pub shape: Shape,
    /// The default. With `None`, the setting is unset by default.
    pub default: Option<&'static str>,
    /// When a change takes effect.
    pub change: Change,
    pub(super) docs: &'static str,
}

impl Key {
    /// Returns the meaning of the setting, in one paragraph.
    #[must_use]
    pub fn docs(&self) -> &'static str {
        self.docs.trim()
    }
}

/// An error in a setting, and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{what}", place(.file.as_deref(), *.line))]
pub struct ConfigError {
    /// The file with the error, if there is one.
    pub file: Option<PathBuf>,
    /// The number of the line in the file, counted from 1.
    pub line: Option<usize>,
    /// The description of the error.
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

/// The settings of a role. A field that is `None` was not set.
pub trait Settings: Clone + Default + PartialEq {
    /// The descriptions of all settings.
    const KEYS: &'static [Key];

    /// Sets a setting. A setting of [`Shape::Flag`] takes no text, or `true` or `false`.
    ///
    /// # Errors
    /// If there is no setting `name`, or if the value is invalid; the error is a sentence for people.
    fn set(&mut self, name: &str, texts: &[String]) -> Result<(), String>;

    /// Returns the value of a setting as texts, or `None` if it is not set. Secrets are hidden.
    fn texts(&self, name: &str) -> Option<Vec<String>>;

    /// Returns these settings, with unset ones taken from `those`.
    #[must_use]
    fn over(self, those: Self) -> Self;

    /// Returns the names of the settings that differ.
    fn differing(&self, other: &Self) -> Vec<&'static str>;

    /// Returns the default of every setting.
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

    /// Returns the settings that are set, as the text of a TOML file.
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
            // Writing to a `String` cannot fail.
            let _ = writeln!(text, "{} = {value}", key.name);
        }
        text
    }
}

/// The names of the settings that a reload changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The settings whose change takes effect at once.
    pub live: Vec<&'static str>,
    /// The settings whose change takes effect when the role starts again.
    pub restart: Vec<&'static str>,
}

/// Returns the differences between the settings in force and new ones.
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
/// If the file cannot be read or a line is invalid; the error names the line, and for an unknown key the most
/// similar valid one.
pub fn load<S: Settings>(path: &Path) -> Result<S, ConfigError> {
    let text = read(path, FILE_BYTES_MAX)?;
    parse(&text).map_err(|e| ConfigError { file: Some(path.to_owned()), ..e })
}

/// Parses settings from the text of a TOML file.
///
/// # Errors
/// If a line is invalid; the error names the line, and for an unknown key the most similar valid one.
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

/// Converts a value of TOML to texts, as the shape of the setting allows.
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

/// Reads a text file of at most `at_most` bytes.
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
