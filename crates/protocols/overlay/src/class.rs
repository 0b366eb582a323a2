//! Classes of transfers: which paths they have, and what marks their packets.

use std::num::NonZeroU8;

use anabranch_topology::plan::Policy;

use crate::dscp::{Dscp, DscpSet};

/// Which paths receivers of a domain ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathChoice {
    /// How they are chosen.
    pub policy: Policy,
    /// How many to each host, at most.
    pub per_host: u8,
    /// The class that asks.
    pub class: Option<ClassId>,
}

/// The number of a class: from 1 on, in the order of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassId(pub NonZeroU8);

/// A class of transfers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// What it is called.
    pub name: String,
    /// Its paths.
    pub paths: PathChoice,
    /// What marks its packets.
    pub dscp: Dscp,
}

impl Default for PathChoice {
    /// None that share a link: what they share would be one bottleneck for all of them.
    fn default() -> Self {
        Self { policy: Policy::LinkDisjoint, per_host: 4, class: None }
    }
}

/// That a domain has no such class, and which it has.
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
    /// These, which have the numbers of their places.
    pub(crate) fn new(all: Vec<Class>) -> Self {
        Self { marks: all.iter().map(|class| class.dscp).collect(), all }
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Class] {
        &self.all
    }

    /// That of a number; `None` if there is none.
    #[must_use]
    pub fn get(&self, id: ClassId) -> Option<&Class> {
        self.all.get(usize::from(id.0.get()) - 1)
    }

    /// The marks that packets may have.
    #[must_use]
    pub const fn marks(&self) -> DscpSet {
        self.marks
    }

    /// That of a name, in the domain of a name.
    pub(crate) fn by_name(&self, domain: &str, name: &str) -> Result<&Class, UnknownClass> {
        self.all.iter().find(|class| class.name == name).ok_or_else(|| {
            let known: Vec<&str> = self.all.iter().map(|class| &*class.name).collect();
            let known = if known.is_empty() { "none".into() } else { known.join(", ") };
            UnknownClass { domain: domain.into(), name: name.into(), known }
        })
    }
}
