//! Classes of transfers: their paths, and the marks of their packets.

use std::num::NonZeroU8;

use anabranch_topology::plan::Policy;

use crate::dscp::{Dscp, DscpSet};

/// The paths that receivers of a domain ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathChoice {
    /// How the paths are chosen.
    pub policy: Policy,
    /// The most paths to each host.
    pub per_host: u8,
    /// The class that asks for the paths.
    pub class: Option<ClassId>,
}

/// The number of a class: classes are numbered from 1, in the order of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassId(pub NonZeroU8);

/// A class of transfers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// The name of the class.
    pub name: String,
    /// The paths of the class.
    pub paths: PathChoice,
    /// The mark of the class's packets.
    pub dscp: Dscp,
}

impl Default for PathChoice {
    /// Paths that share no link: a shared link would be one bottleneck for all of them.
    fn default() -> Self {
        Self { policy: Policy::LinkDisjoint, per_host: 4, class: None }
    }
}

/// The error of a class that a domain does not have. Its message lists the classes that there are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the domain {domain} has no class {name}; it has: {known}")]
pub struct UnknownClass {
    domain: String,
    name: String,
    known: String,
}

/// The classes of a domain, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classes {
    all: Vec<Class>,
    marks: DscpSet,
}

impl Classes {
    /// Creates the classes of a domain, numbered in this order.
    pub(crate) fn new(all: Vec<Class>) -> Self {
        Self { marks: all.iter().map(|class| class.dscp).collect(), all }
    }

    /// Returns all classes.
    #[must_use]
    pub fn all(&self) -> &[Class] {
        &self.all
    }

    /// Returns the class of a number; `None` if there is none.
    #[must_use]
    pub fn get(&self, id: ClassId) -> Option<&Class> {
        self.all.get(usize::from(id.0.get()) - 1)
    }

    /// Returns the marks that packets may have.
    #[must_use]
    pub const fn marks(&self) -> DscpSet {
        self.marks
    }

    /// Returns the class called `name`; `domain` is the name of the domain, for the error.
    pub(crate) fn by_name(&self, domain: &str, name: &str) -> Result<&Class, UnknownClass> {
        self.all.iter().find(|class| class.name == name).ok_or_else(|| {
            let known: Vec<&str> = self.all.iter().map(|class| &*class.name).collect();
            let known = if known.is_empty() { "none".into() } else { known.join(", ") };
            UnknownClass { domain: domain.into(), name: name.into(), known }
        })
    }
}
