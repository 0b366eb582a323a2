//! The final check of a complete file: what it is compared with, and how its hashes are computed.

use std::fs::File;

use anabranch_mirror::digests::{Digests, Hasher};
use anabranch_mmtp::ContentId;
use data_encoding::HEXLOWER;

use super::aliases::{Aliases, has_hash};
use super::claims::{self, Claim};
use super::dest_path::DestPath;
use super::journal_file::read_up_to;
use super::part::interrupted;
use crate::Result;
use crate::openpgp::Signed;

/// The hashes that a file must have before it gets its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FinalCheck {
    pub(crate) root: RootCheck,
    /// The hashes of the SHA-2 family that the file must have.
    pub(crate) digests: Digests,
}

/// What the root hash in a file's id tells about the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RootCheck {
    /// Nothing: the root hash only names the journal.
    #[default]
    Unknown,
    /// The root is the hash of the whole content, and every block was verified with it on arrival.
    Blocks,
    /// The root is the hash of the whole content. Blocks could not be verified with it on arrival, so the
    /// whole file is hashed at the end.
    Whole,
}

/// The conditions that a file must meet, by which it is told from all other files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Demands {
    pub(crate) proof: FinalCheck,
    /// The signature that the file must have besides.
    pub(crate) signed: Option<Signed>,
    /// What happens to the file if it is wrong.
    pub(crate) if_wrong: IfWrong,
    /// The hashes that servers state for the file. The field `weighs_claims` tells whether they count, which
    /// they do only if nobody vouches for the file.
    pub(crate) claims: Vec<Claim>,
    pub(crate) weighs_claims: bool,
}

/// What happens to a complete file that is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum IfWrong {
    /// It is removed: it may be a mixture that no mirror has.
    #[default]
    Remove,
    /// It gets another name, because only servers say what is right, and they may be wrong about that.
    Keep,
    /// It gets another name, unless that name is taken: one server has exactly this file, and the hash that
    /// the user gave may be mistyped.
    KeepOnce,
}

impl Demands {
    /// Whether the wanted file can be recognised by more than the statements of the servers that deliver it.
    pub(super) fn can_judge(&self, aliases: &Aliases) -> bool {
        self.signed.is_some() || has_hash(&aliases.recorded) && self.if_wrong != IfWrong::Keep
    }

    /// Returns the kinds of digests that the final check computes.
    pub(crate) fn wanted(&self) -> Digests {
        let claimed = if self.weighs_claims { claims::kinds(&self.claims) } else { Digests::default() };
        self.proof.digests.or(claimed)
    }
}

impl From<FinalCheck> for Demands {
    fn from(proof: FinalCheck) -> Self {
        Self { proof, ..Self::default() }
    }
}

/// What is wrong with a file. The text is the rest of a sentence that begins with the file's name.
#[derive(Debug)]
pub(crate) enum Mismatch {
    /// The file has none of the required hashes.
    Other(String),
    /// The file has some of the required hashes and lacks others, so no file can have them all. The text
    /// names both.
    Contradiction(String),
}

impl FinalCheck {
    /// No hash is known.
    pub(crate) const NOTHING: Self = Self::of(RootCheck::Unknown, NO_DIGESTS);
    /// Only the root hash is known, and blocks were verified with it on arrival.
    pub(crate) const ROOT: Self = Self::of(RootCheck::Blocks, NO_DIGESTS);

    pub(crate) const fn of(root: RootCheck, digests: Digests) -> Self {
        Self { root, digests }
    }

    /// Whether any hash of the complete file is known.
    pub(crate) fn is_something(&self) -> bool {
        *self != Self::NOTHING
    }

    /// Returns a name of the hashes that a file of this `id` must have; `None` if there are none.
    pub(crate) fn name(&self, id: &ContentId) -> Option<[u8; 32]> {
        let root = (self.root != RootCheck::Unknown).then(|| HEXLOWER.encode(&id.root));
        let text = format!("{}, {}", root.unwrap_or_default(), self.digests);
        let name = || blake3::derive_key("anabranch 2026-11 hashes of a whole", text.as_bytes());
        self.is_something().then(name)
    }

    /// Compares a file that should be `id` with the required hashes, and returns what is wrong with it.
    /// `root` and `digests` are the hashes that the file has.
    pub(crate) fn mismatch(&self, id: &ContentId, root: [u8; 32], digests: &Digests) -> Option<Mismatch> {
        let blake3 = |root: &[u8; 32]| format!("BLAKE3 {}", HEXLOWER.encode(root));
        let knows_root = self.root != RootCheck::Unknown;
        let roots = Some((blake3(&root), blake3(&id.root))).filter(|_| knows_root);
        let digests = digests.each().into_iter().zip(self.digests.each());
        let digests = digests.filter(|(_, wanted)| !wanted.is_empty());
        let digests = digests.map(|(found, wanted)| (found.to_string(), wanted.to_string()));
        let (right, wrong): (Vec<_>, Vec<_>) =
            roots.into_iter().chain(digests).partition(|(found, wanted)| found == wanted);
        if wrong.is_empty() {
            return None;
        }
        let (found, wanted): (Vec<String>, Vec<String>) = wrong.into_iter().unzip();
        let (found, wanted) = (found.join(", "), wanted.join(", "));
        if !right.is_empty() {
            let right: Vec<String> = right.into_iter().map(|(right, _)| right).collect();
            return Some(Mismatch::Contradiction(format!(
                " has the {}, as was said, and the {found}, where {wanted} was said: these are hashes of \
                 different contents, so what is said of the file (by a Metalink, a URI, `checksum` or a \
                 server) contradicts itself",
                right.join(", ")
            )));
        }
        Some(Mismatch::Other(if self.digests.is_empty() {
            format!(": the whole of it is not {id} but {}", ContentId { root, ..*id })
        } else {
            format!(" has the {found}, expected {wanted}")
        }))
    }
}

const NO_DIGESTS: Digests = Digests { sha256: None, sha384: None, sha512: None };

/// Returns the hashes of a file of the kinds in `wanted`. If `wanted` is empty, the file is not read.
pub(super) fn digests(
    place: &DestPath,
    file: &File,
    wanted: &Digests,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Digests> {
    let mut sha2 = Hasher::of(wanted);
    if !wanted.is_empty() {
        read_all(place, file, progress, |bytes| sha2.update(bytes))?;
    }
    Ok(sha2.finish())
}

/// Returns the root hash of a file, and its hashes of the kinds in `wanted`.
pub(super) fn hashes(
    place: &DestPath,
    file: &File,
    wanted: &Digests,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<([u8; 32], Digests)> {
    let (mut blake3, mut sha2) = (blake3::Hasher::new(), Hasher::of(wanted));
    read_all(place, file, progress, |bytes| {
        blake3.update(bytes);
        sha2.update(bytes);
    })?;
    Ok((*blake3.finalize().as_bytes(), sha2.finish()))
}

fn read_all(
    place: &DestPath,
    file: &File,
    progress: &mut dyn FnMut(u64) -> bool,
    mut each: impl FnMut(&[u8]),
) -> Result<()> {
    let (mut bytes, mut at) = (vec![0; 1 << 20], 0);
    loop {
        let read = read_up_to(file, &mut bytes, at);
        let read = read.map_err(|e| place.failure("read", place.name(), e))?;
        each(&bytes[..read]);
        at += read as u64;
        if read == 0 {
            return Ok(());
        }
        if !progress(at) {
            return Err(interrupted());
        }
    }
}
