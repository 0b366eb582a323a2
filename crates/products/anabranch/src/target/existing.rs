//! Finds out what exists at a destination: the content, another file, or a part of an earlier transfer.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anabranch_http::client::METADATA_BYTES;
use anabranch_mirror::digests::Digests;
use anabranch_mmtp::ContentId;
use anabranch_mmtp::id::BLOCK_BYTES;
use anabranch_mmtp::tree::ChainingValue;
use nix::fcntl::{Flock, FlockArg, OFlag};

use super::aliases::Aliases;
use super::dest_path::DestPath;
use super::final_check::{Demands, FinalCheck, Mismatch, RootCheck, hashes};
use super::journal::{self, HEADER_BYTES, Record};
use super::journal_file::{read_behind, read_up_to};
use super::part::cv_of;
use crate::filenames::show;
use crate::openpgp::Verdict;
use crate::{Error, Result};

/// Returns the root hash of the file at `place` if the file is exactly this content. Any other file there is
/// an error, unless `force` allows replacing it. `progress` is called with the number of bytes read so far
/// and stops the check by returning false.
///
/// # Errors
/// [`ErrorKind::Target`](crate::ErrorKind::Target) if something else is there,
/// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) if `progress` stopped the check.
pub(crate) fn is_there(
    place: &DestPath,
    id: ContentId,
    proof: FinalCheck,
    force: bool,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Option<[u8; 32]>> {
    let Some(root) = is_there_already(place, &id, &proof.into(), force, progress)? else { return Ok(None) };
    remove_leftovers(place, &ContentId { root, ..id });
    Ok(Some(root))
}

/// Gives a file that an earlier transfer kept as `NAME.unverified` its name, if the name is free and the file
/// has the hashes in `proof`. Returns the file's earlier name. `progress` is called with the number of bytes
/// read so far and stops the check by returning false.
///
/// # Errors
/// [`ErrorKind::Target`](crate::ErrorKind::Target) if a file cannot be read or renamed,
/// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) if `progress` stopped the check.
pub(crate) fn promote(
    place: &DestPath,
    id: &ContentId,
    proof: &FinalCheck,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Option<OsString>> {
    if !proof.is_something() || place.is_among_others() || place.is_anew() || place.is_taken()? {
        return Ok(None);
    }
    for name in place.aside_names() {
        let Some(entry) = place.stat(&name)? else { break };
        // A hash without a root says nothing about the length.
        let may_be = entry.length == id.length || proof.root == RootCheck::Unknown;
        if !entry.file || !may_be {
            continue;
        }
        let file = place.open(&name, OFlag::O_RDONLY).map_err(|e| place.failure("read", &name, e))?;
        let (root, found) = hashes(place, &file, &proof.digests, progress)?;
        if proof.mismatch(id, root, &found).is_none() {
            place.rename(&name, false).map_err(|e| place.failure("rename", &name, e))?;
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Returns a hash of the first bytes of the file at `place`; every server is asked for this number of bytes.
///
/// # Errors
/// [`ErrorKind::Target`](crate::ErrorKind::Target) if the file cannot be read.
pub(crate) fn opening_of(place: &DestPath) -> Result<[u8; 32]> {
    let mut bytes = Vec::new();
    let file = place.open(place.name(), OFlag::O_RDONLY);
    file.and_then(|file| file.take(METADATA_BYTES).read_to_end(&mut bytes))
        .map_err(|e| place.failure("read", place.name(), e))?;
    Ok(*blake3::hash(&bytes).as_bytes())
}

/// Returns the chaining value of a block of the file at `path`, whose content is `id`; `None` if the block
/// cannot be read.
pub(crate) fn block_of_file(path: &Path, id: &ContentId, block: u64) -> Option<ChainingValue> {
    let mut bytes = vec![0; id.block_len(block)];
    let file = File::open(path).ok()?;
    file.read_exact_at(&mut bytes, block * BLOCK_BYTES as u64).ok()?;
    Some(cv_of(id, block, &bytes))
}

/// Opens and hashes the file at `place` if `is_wanted` returns true for its length. Returns the file, its
/// root hash and length, and its hashes of the kinds in `wanted`. `progress` is called with the number of
/// bytes read so far and stops the check by returning false.
///
/// # Errors
/// [`ErrorKind::Target`](crate::ErrorKind::Target) if the file cannot be read,
/// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) if `progress` stopped the check.
pub(crate) fn what_has_the_name(
    place: &DestPath,
    is_wanted: impl Fn(u64) -> bool,
    wanted: &Digests,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Option<(File, ContentId, Digests)>> {
    let entry = place.stat(place.name())?.filter(|entry| entry.file && !place.is_anew());
    let Some(entry) = entry.filter(|entry| is_wanted(entry.length)) else { return Ok(None) };
    let file =
        place.open(place.name(), OFlag::O_RDONLY).map_err(|e| place.failure("read", place.name(), e))?;
    let (root, found) = hashes(place, &file, wanted, progress)?;
    Ok(Some((file, ContentId { root, length: entry.length }, found)))
}

/// Returns the root hash of the file at `place` if the file is exactly this content. Fails if another file is
/// there that must not be replaced, or if the known hashes of the content contradict each other.
pub(super) fn is_there_already(
    place: &DestPath,
    id: &ContentId,
    demands: &Demands,
    force: bool,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Option<[u8; 32]>> {
    let Some(entry) = place.stat(place.name())? else { return Ok(None) };
    let path = place.path();
    if entry.directory {
        return Err(
            Error::target(format!("{} is a directory: choose a name with `to_file`", show(&path))).at(&path)
        );
    }
    if !entry.file && !entry.link {
        return Err(Error::target(format!(
            "{} is not a regular file: choose another `to_file`",
            show(&path)
        ))
        .at(&path));
    }
    if entry.link && std::fs::metadata(&path).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
        // An example is /dev/stdout: replacing the link is never wanted.
        return Err(Error::target(format!(
            "{} leads to a pipe or a device: name a file with `to_file`, or say `read`",
            show(&path)
        ))
        .at(&path));
    }
    let Demands { proof, signed, .. } = demands;
    let is_known = proof.is_something() || signed.is_some();
    let is_wanted = |length| is_known && length == id.length;
    if let Some((file, ContentId { root, .. }, found)) =
        what_has_the_name(place, is_wanted, &proof.digests, progress)?
    {
        let is_right = match (proof.mismatch(id, root, &found), signed) {
            (Some(Mismatch::Contradiction(why)), _) => {
                return Err(
                    Error::corrupt(format!("{}{why}; it was there already and stays", show(&path))).at(&path)
                );
            }
            (Some(Mismatch::Other(_)), _) => false,
            // If a known hash identifies the file, the signature is checked at the end.
            (None, Some(signed)) if !proof.is_something() => {
                matches!(signed.verify(&file)?, Verdict::Good(_))
            }
            (None, _) => true,
        };
        if is_right {
            return Ok(Some(root));
        }
    }
    match force {
        true => Ok(None),
        false if is_known => Err(exists(&path)),
        false => Err(Error::target(format!(
            "{} is there already, and nothing tells whether it is what would come: choose another \
             `to_file`, or let `overwrite` replace it",
            show(&path)
        ))
        .at(&path)),
    }
}

/// Removes the part and the journal of this content, if they exist. A crash at the end of an earlier
/// transfer leaves them beside the finished file, and they would be in the way of another file. A part
/// without such a journal belongs to the user and stays.
pub(crate) fn remove_leftovers(place: &DestPath, id: &ContentId) {
    for of_length in [None, Some(id.length)] {
        remove_part(place, &place.part_names(of_length), |_, of| of == id);
    }
}

/// Removes parts of other files that were fetched from one of these URLs. It is called once the file that the
/// URLs have now is complete.
pub(super) fn remove_outdated(place: &DestPath, urls: &[[u8; 32]]) {
    for (of_length, names) in place.all_part_names() {
        remove_part(place, &names, |journal, of| {
            // A part with a length in its name must have that length: `NAME.8` may be another file of the
            // user.
            of_length.is_none_or(|length| length == of.length)
                && read_behind(journal, of)
                    .is_ok_and(|behind| urls.iter().any(|clue| behind.has(Record::Alias, clue)))
        });
    }
}

/// Makes way for a whole content in `file` that is about to be put at `place`. Parts that earlier transfers
/// left of this content, or of other files from its URLs, are removed if `file` meets the `demands`;
/// otherwise they stay, because they may still turn out right.
///
/// # Errors
/// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if `file` does not meet the demands and a part stays;
/// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) if `progress` stopped the check.
pub(crate) fn make_way(
    place: &DestPath,
    file: &File,
    id: &ContentId,
    aliases: &Aliases,
    demands: &Demands,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<()> {
    let Demands { proof, signed, .. } = demands;
    let mut parts = place.all_part_names().into_iter().map(|(_, (part, _))| part);
    let part = parts.find(|part| place.stat(part).is_ok_and(|there| there.is_some()));
    let Some(part) = part.filter(|_| demands.can_judge(aliases)) else { return Ok(()) };
    let (root, found) = hashes(place, file, &proof.digests, progress)?;
    let wrong = match (proof.mismatch(id, root, &found), signed) {
        (Some(Mismatch::Other(why) | Mismatch::Contradiction(why)), _) => Some(why),
        (None, None) => None,
        (None, Some(signed)) => match signed.verify(file)? {
            Verdict::Good(_) => None,
            Verdict::OtherBytes(why) | Verdict::Useless(why) => Some(format!(": {why}")),
        },
    };
    if let Some(why) = wrong {
        let (path, part) = (place.path(), place.path().with_file_name(part));
        return Err(Error::corrupt(format!("{}{why}; {} stays", show(&path), show(part))).at(&path));
    }
    remove_leftovers(place, id);
    remove_outdated(place, &aliases.urls);
    Ok(())
}

/// Removes a part and its journal if no transfer has them open and `is_useless` returns true for the journal.
fn remove_part(
    place: &DestPath,
    (name, journal_name): &(OsString, OsString),
    is_useless: impl Fn(&File, &ContentId) -> bool,
) {
    let Ok(file) = place.open(journal_name, OFlag::O_RDONLY) else { return };
    // Another transfer that holds the lock removes the files itself.
    let Ok(journal) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else { return };
    let mut head = [0; HEADER_BYTES];
    let Ok(read) = read_up_to(&journal, &mut head, 0) else { return };
    let (Ok(stat), Ok(Some(entry))) = (nix::sys::stat::fstat(&*journal), place.stat(journal_name)) else {
        return;
    };
    if journal::parse_header(&head[..read]).is_ok_and(|of| is_useless(&journal, &of))
        && entry.inode == (stat.st_dev, stat.st_ino)
    {
        // The finished file is complete whether or not this succeeds. The part is removed first, because only
        // its journal identifies it.
        if place.unlink(name).is_ok() || matches!(place.stat(name), Ok(None)) {
            let _ = place.unlink(journal_name);
        }
    }
}

pub(crate) fn exists(path: &Path) -> Error {
    Error::target(format!(
        "{} is there already, with other content: choose another `to_file`, or let `overwrite` replace it",
        show(path)
    ))
    .at(path)
}
