//! The presets and their names.

/// A store whose paths are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Any web server.
    Files,
    /// An index of Python packages (PEP 503).
    PyPi,
    /// A binary cache of Nix.
    Nix,
    /// A registry of container images (OCI Distribution Specification).
    Oci,
    /// An archive of Debian packages.
    Apt,
    /// A store of chunks as casync and desync have them.
    Casync,
    /// A repository of OSTree, as Flatpak and rpm-ostree have them.
    Ostree,
    /// The hub of Hugging Face, or a mirror of it.
    HuggingFace,
    /// A storage of objects of Git LFS.
    GitLfs,
}

/// All presets and their names.
const PRESETS: &[(&str, Preset)] = &[
    ("files", Preset::Files),
    ("pypi", Preset::PyPi),
    ("nix", Preset::Nix),
    ("oci", Preset::Oci),
    ("apt", Preset::Apt),
    ("casync", Preset::Casync),
    ("ostree", Preset::Ostree),
    ("huggingface", Preset::HuggingFace),
    ("git-lfs", Preset::GitLfs),
];

impl Preset {
    /// Returns the preset of a name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        PRESETS.iter().find(|(known, _)| *known == name).map(|(_, preset)| *preset)
    }

    /// Returns the name of the preset.
    #[must_use]
    pub fn name(self) -> &'static str {
        PRESETS.iter().find(|(_, preset)| *preset == self).map_or("", |(name, _)| name)
    }

    /// Returns the names of all presets, separated by commas.
    #[must_use]
    pub fn names() -> String {
        PRESETS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    }
}
