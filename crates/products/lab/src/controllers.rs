//! Holds the controllers whose names a scenario may use: those of the table ([`ALGORITHMS`]), and those that
//! a program registers.
//!
//! ```text
//!  Controllers::default().with("mine", Mine::new)? ──▶ ScenarioReader ──▶ Scenario ──▶ Plan ──▶ runs, tables
//! ```
//!
//! A scenario keeps the controllers with which it was read, so every user of the scenario runs them too: in
//! packet flows, as the senders of mirrors, and in mmTP. The world `kernel` has no registered controllers.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use anabranch_algo::control::{ALGORITHMS, Algorithm, Control, SLOW_STARTS};
use anabranch_algo::controller::ControllerKind;
use serde::{Deserialize, Serialize};

use crate::hint::{hint, list, missing, nearest};

/// Controllers by name; see the [module](self). Two values are equal if they have equal names.
#[derive(Clone, Debug, Default)]
pub struct Controllers {
    own: BTreeMap<String, ControllerKind>,
}

impl Controllers {
    /// Adds a controller: `make` returns a new one for each path of each flow. A controller has its own slow
    /// start. To add a rule of congestion avoidance only, wrap it in a
    /// [`ClassicCc`](anabranch_algo::control::ClassicCc).
    ///
    /// # Errors
    /// If the name is already used, or contains characters other than letters, digits, `-` and `_`.
    pub fn with<C: Control + Send + 'static>(
        mut self,
        name: &str,
        make: impl Fn() -> C + Send + Sync + 'static,
    ) -> Result<Self, String> {
        if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || "-_".contains(c)) {
            return Err(format!("`{name}` is no name of a controller: letters, digits, `-` and `_`"));
        }
        if self.kind(name).is_some() {
            return Err(format!("there is a controller `{name}` already"));
        }
        self.own.insert(name.into(), ControllerKind::own(make));
        Ok(self)
    }

    /// Returns all names: those of the program, then those of the table.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.own.keys().map(String::as_str).chain(ALGORITHMS.iter().map(|entry| entry.name))
    }

    /// Whether the program registered a controller with this name.
    #[must_use]
    pub fn is_own(&self, name: &str) -> bool {
        self.own.contains_key(name)
    }

    /// Whether the program registered any controller.
    #[must_use]
    pub fn has_own(&self) -> bool {
        !self.own.is_empty()
    }

    /// Checks that a controller with this name exists. A name of the table may be followed by `+` and a slow
    /// start.
    ///
    /// # Errors
    /// If there is none; the error is a sentence with the nearest name, or with all names.
    pub fn check(&self, name: &str) -> Result<(), String> {
        if self.kind(name).is_some() {
            return Ok(());
        }
        match name.split_once('+') {
            Some((rule, _)) if self.is_own(rule) => {
                Err(format!("`{rule}` brings its own slow start: write it without `+`"))
            }
            Some((rule, start)) if Algorithm::by_name(rule).is_some() => {
                Err(missing("slow start", start, SLOW_STARTS.iter().map(|entry| entry.name)))
            }
            _ => {
                let names: Vec<&str> = self.names().collect();
                let rule = name.split('+').next().unwrap_or(name);
                let there_are = if nearest(rule, names.iter().copied()).is_some() {
                    format!(" There are {}", list(&names))
                } else {
                    String::new()
                };
                Err(format!("there is no controller `{name}`{}{there_are}", hint(rule, names)))
            }
        }
    }

    /// Returns the kind of controller with this name.
    pub(crate) fn kind(&self, name: &str) -> Option<ControllerKind> {
        self.own.get(name).cloned().or_else(|| Algorithm::by_name(name).map(ControllerKind::from))
    }
}

impl PartialEq for Controllers {
    fn eq(&self, other: &Self) -> bool {
        self.own.keys().eq(other.own.keys())
    }
}

/// The names of the controllers that a scenario compares, and all controllers that it may name. In a file
/// this is a list of names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<String>", into = "Vec<String>")]
pub struct ComparedControllers {
    names: Vec<String>,
    /// The controllers with which the scenario was read.
    pub known: Controllers,
}

impl From<Vec<String>> for ComparedControllers {
    fn from(names: Vec<String>) -> Self {
        Self { names, known: Controllers::default() }
    }
}

impl From<ComparedControllers> for Vec<String> {
    fn from(compared: ComparedControllers) -> Self {
        compared.names
    }
}

impl Deref for ComparedControllers {
    type Target = Vec<String>;

    fn deref(&self) -> &Vec<String> {
        &self.names
    }
}

impl DerefMut for ComparedControllers {
    fn deref_mut(&mut self) -> &mut Vec<String> {
        &mut self.names
    }
}

#[cfg(test)]
mod tests {
    use anabranch_algo::control::{ClassicCc, Reno, SlowStart};

    use super::*;

    fn mine() -> ClassicCc<Reno> {
        ClassicCc::new(Reno, SlowStart::Standard)
    }

    #[test]
    fn names_are_those_of_the_program_and_of_the_table() {
        let own = Controllers::default().with("mine", mine).expect("a name");
        assert_eq!((own.names().next(), own.names().count()), (Some("mine"), ALGORITHMS.len() + 1));
        assert!(own.is_own("mine") && !own.is_own("reno") && own.has_own());
        assert!(own.check("mine").is_ok() && own.check("lia+hystart").is_ok());
        assert!(Controllers::default().check("mine").is_err());
        for (name, said) in [
            ("mien", "there is no controller `mien`: did you mean `mine`? There are mine, cubic-coupled, "),
            ("rno", "there is no controller `rno`: did you mean `reno`?"),
            ("lia+hystar", "there is no slow start `hystar`: did you mean `hystart`?"),
            ("mine+hystart", "`mine` brings its own slow start"),
            ("quite-another", "there are mine, cubic-coupled, nmcc"),
        ] {
            let what = own.check(name).expect_err(name);
            assert!(what.contains(said), "{name}: {what}");
        }
    }

    #[test]
    fn a_name_is_taken_once() {
        let own = Controllers::default().with("mine", mine).expect("a name");
        for name in ["mine", "reno", "lia+hystart", "", "a b", "a/b"] {
            assert!(own.clone().with(name, mine).is_err(), "{name}");
        }
    }
}
