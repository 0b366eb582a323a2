//! What a whole file is held against, and its hashes.

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

/// The hashes that a file must have before it gets its name. Without any, its blocks were checked as they
/// came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FinalCheck {
    pub(crate) root: RootCheck,
    /// Its hashes of the SHA-2 family.
    pub(crate) digests: Digests,
}

/// What the root of a file's id tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RootCheck {
    /// Nothing: it only names the journal.
    #[default]
    Unknown,
    /// The root is the hash of the whole content, and every block was verified with it as it came.
    Blocks,
    /// The root is the hash of the whole content. Blocks could not be verified with it as they came, so the
    /// whole file is hashed at the end.
    Whole,
}

/// What is known of a file, by which it is told from all others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Demands {
    pub(crate) proof: FinalCheck,
    /// What it has to be signed by besides.
    pub(crate) signed: Option<Signed>,
    /// What becomes of it if it is wrong.
    pub(crate) if_wrong: IfWrong,
    /// The hashes that servers state for the file. The field `weighs_claims` tells whether they count, which
    /// they do only if nobody vouches for the file.
    pub(crate) claims: Vec<Claim>,
    pub(crate) weighs_claims: bool,
}

/// What becomes of a whole that is not what it should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum IfWrong {
    /// It is removed: it may be a mixture that no mirror has.
    #[default]
    Remove,
    /// It gets another name, for only servers say what is right, and may be wrong about that.
    Keep,
    /// It gets another name, unless that is taken: one server has just this, and what the user says that it
    /// should be may be mistyped.
    KeepOnce,
}

impl Demands {
    /// Whether it can be told from all others by more than what its own servers say.
    pub(super) fn can_judge(&self, aliases: &Aliases) -> bool {
        self.signed.is_some() || has_hash(&aliases.recorded) && self.if_wrong != IfWrong::Keep
    }

    /// The kinds of digests that are looked at.
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

/// What is wrong with a file: the rest of a sentence that begins with its name.
#[derive(Debug)]
pub(crate) enum Mismatch {
    /// It has nothing of what it should have.
    Other(String),
    /// It has some of the hashes that it should have and lacks others, so no file can have them all. The text
    /// names both.
    Contradiction(String),
}

impl FinalCheck {
    /// Nothing is known.
    pub(crate) const NOTHING: Self = Self::of(RootCheck::Unknown, NO_DIGESTS);
    /// The root alone, held against blocks as they came.
    pub(crate) const ROOT: Self = Self::of(RootCheck::Blocks, NO_DIGESTS);

    pub(crate) const fn of(root: RootCheck, digests: Digests) -> Self {
        Self { root, digests }
    }

    /// Whether the whole is held against anything.
    pub(crate) fn is_something(&self) -> bool {
        *self != Self::NOTHING
    }

    /// A name of the hashes that a file of this `id` must have; `None` if there are none.
    pub(crate) fn name(&self, id: &ContentId) -> Option<[u8; 32]> {
        let root = (self.root != RootCheck::Unknown).then(|| HEXLOWER.encode(&id.root));
        let text = format!("{}, {}", root.unwrap_or_default(), self.digests);
        let name = || blake3::derive_key("anabranch 2026-11 hashes of a whole", text.as_bytes());
        self.is_something().then(name)
    }

    /// What is wrong with a file that is to be `id` and has this root and these digests, of the kinds that
    /// are wanted.
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

/// The hashes of a file, of the kinds that `wanted` has. Where that is none, it is not read.
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

/// The root of a file, and its hashes of the kinds that `wanted` has.
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
