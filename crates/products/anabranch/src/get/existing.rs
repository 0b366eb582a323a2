//! Decides whether a file that exists at the destination before the transfer is the wanted file.

use anabranch_mirror::digests::Digests;
use anabranch_mirror::variants::Ballot;
use anabranch_mirror::verified_pool::Check;
use anabranch_mmtp::ContentId;
use anabranch_mmtp::id::BLOCK_BYTES;
use anabranch_net::Clock;

use super::discovered_file::{DiscoveredFile, ExistingFile};
use super::outcome::FileOutcome;
use super::request::Request;
use crate::event::{CHECKING_PART, Observer};
use crate::filenames::show;
use crate::target::{
    Begun, Blocks, DestPath, exists, is_there_in_pieces, opening_of, remove_leftovers, what_has_the_name,
};
use crate::{Error, Progress, Report, Result, Verified, target};

/// Makes a file at the destination that another program has begun the part file of this transfer, if the
/// request asks for that and some blocks of the file are proven to be right.
///
/// # Errors
/// [`ErrorKind::Target`](crate::ErrorKind::Target) if no block is proven,
/// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) if the caller stops the transfer.
pub(super) fn adopt(
    request: &Request,
    found: &DiscoveredFile,
    place: &DestPath,
    observer: &mut Observer<'_>,
) -> Result<()> {
    if !request.adopts || request.force {
        return Ok(());
    }
    let total_bytes = found.id.length;
    let Some(begun) = Begun::of(place, found.id)? else { return Ok(()) };
    let clock = Clock::start();
    let mut progress = |checked_bytes: u64| {
        observer.checking(clock.now(), CHECKING_PART, total_bytes, checked_bytes);
        !observer.is_stopped()
    };
    let blocks = match &found.check {
        Check::Leaves(cvs) => begun.right_blocks(cvs, &mut progress)?,
        Check::Pieces { .. } => match found.pieces() {
            Some(pieces) => begun.right_pieces(&pieces, &mut progress)?,
            None => Blocks::new(),
        },
        Check::Nothing => {
            return Err(Error::target(format!(
                "{} is there, with {} of {total_bytes} bytes, and no hashes of parts tell whether these are \
                 right, as a Metalink with pieces or a leaf list would: remove it, or let `overwrite` \
                 replace it",
                show(place.path()),
                begun.length
            ))
            .at(place.path()));
        }
    };
    if blocks.is_empty() {
        return Err(Error::target(format!(
            "{} is there, and nothing in it is proven to be of what would come: remove it, or let \
             `overwrite` replace it",
            show(place.path())
        ))
        .at(place.path()));
    }
    let kept = blocks.len() as u64 * BLOCK_BYTES as u64;
    observer.notice(&format!(
        "{} was begun by another program: {kept} of its {} bytes are right and are kept",
        show(place.path()),
        begun.length
    ));
    begun.becomes_part(&found.aliases, &blocks)
}

/// Gives a file that an earlier transfer kept as `NAME.unverified` its name, if it has the hash that is
/// wanted now.
///
/// # Errors
/// [`ErrorKind::Target`](crate::ErrorKind::Target) if the file cannot be read or renamed,
/// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) if the caller stops the transfer.
pub(super) fn promote(found: &DiscoveredFile, place: &DestPath, observer: &mut Observer<'_>) -> Result<()> {
    let (clock, length) = (Clock::start(), found.id.length);
    let mut progress = |checked_bytes: u64| {
        observer.checking(clock.now(), CHECKING_PART, length.max(checked_bytes), checked_bytes);
        !observer.is_stopped()
    };
    if let Some(kept) = target::promote(place, &found.id, &found.proof, &mut progress)? {
        let kept = show(place.path().with_file_name(kept));
        observer.notice(&format!("{kept} has the hash that is wanted: it is {} now", show(place.path())));
    }
    Ok(())
}

/// Returns the outcome if the file exists already and is recognised by a content of an earlier transfer, by
/// hashes of pieces, or by a hash of the whole while servers have a file of another length. Returns `None` in
/// other cases: where a signature is needed, or servers have a file of the length that the hash belongs to,
/// the target checks the existing file itself.
///
/// # Errors
/// [`ErrorKind::Target`](crate::ErrorKind::Target) if another file exists and `overwrite` is not given, or if
/// the existing file begins with other bytes than the mirrors' file now,
/// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) if the caller stops the transfer.
pub(super) fn already(
    request: &Request,
    found: &DiscoveredFile,
    place: &DestPath,
    observer: &mut Observer<'_>,
) -> Result<Option<FileOutcome>> {
    if found.signed.is_some() {
        // The target checks the signature at the end.
        return Ok(None);
    }
    let clock = Clock::start();
    let length = found.id.length;
    let mut progress = |checked_bytes: u64| {
        observer.checking(clock.now(), CHECKING_PART, length.max(checked_bytes), checked_bytes);
        !observer.is_stopped()
    };
    let report = match &found.there[..] {
        // Nothing proves that the existing file is right: with `overwrite` it is fetched again.
        [_, ..] if request.force => return Ok(None),
        known @ [_, ..] => {
            let there = what_has_the_name(place, |its| its == length, &Digests::default(), &mut progress)?;
            let Some((_, id, _)) = there else { return Ok(None) };
            let Some(ExistingFile { since, .. }) = known.iter().find(|known| known.id == id) else {
                return Err(exists(&place.path()));
            };
            if is_contradicted(found, place)? {
                return Err(Error::target(format!(
                    "{} is there, as it came on {since}, but begins otherwise (the first 13 KiB) than the \
                     files of mirrors now: `overwrite` fetches it again",
                    show(place.path())
                ))
                .at(place.path()));
            }
            let (verified, unverified_since) = (Verified::Unchanged, Some(since.clone()));
            Some((id, Report { verified, unverified_since, ..Report::default() }))
        }
        [] if found.proof.digests.is_empty() => {
            let Some(pieces) = found.pieces().filter(|_| !found.proof.is_something()) else {
                return Ok(None);
            };
            let id = is_there_in_pieces(place, &pieces, request.force, &mut progress)?;
            let (verified, verified_by) = (Verified::Pieces, found.vouched_by.clone());
            id.map(|id| (id, Report { verified, verified_by, ..Report::default() }))
        }
        [] => {
            let proof = &found.proof;
            let there = what_has_the_name(place, |its| its != length, &proof.digests, &mut progress)?;
            let is_it = |id: &ContentId, found: &Digests| proof.mismatch(id, id.root, found).is_none();
            let id = there.filter(|(_, id, found)| is_it(id, found)).map(|(_, id, _)| id);
            if id.is_some() {
                observer.notice(&format!("servers have a file of {length} bytes by now"));
            }
            let (verified, verified_by) = (Verified::Whole, found.vouched_by.clone());
            id.map(|id| (id, Report { verified, verified_by, ..Report::default() }))
        }
    };
    let Some((id, report)) = report else { return Ok(None) };
    remove_leftovers(place, &id);
    let all = id.length;
    let (done_bytes, resumed_bytes) = (all, all);
    let last = Progress { total_bytes: Some(all), done_bytes, resumed_bytes, ..Progress::default() };
    let report = Report { last, content: Some(id.to_string()), complete: true, ..report };
    Ok(Some(FileOutcome { report, result: Ok(()) }))
}

/// Returns whether the existing file begins with other bytes than the files of most mirrors, or the mirrors
/// are split over how the file begins.
fn is_contradicted(found: &DiscoveredFile, place: &DestPath) -> Result<bool> {
    let voters = found.mirrors.iter().filter(|mirror| !mirror.introduced);
    let openings: Vec<_> = voters.filter_map(|mirror| mirror.opening).collect();
    Ok(match Ballot::of(openings, 0) {
        Ballot::Majority(right) => right != opening_of(place)?,
        Ballot::Split => true,
        Ballot::Open => false,
    })
}
