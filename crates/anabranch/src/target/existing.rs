//! Contents that are there in one go: found, or put in their place from memory.

use mmtp::ContentId;
use mmtp::id::BLOCK_BYTES;

use super::{DestPath, FinalCheck, Target, cv_of, is_there_already, remove_leftovers};
use crate::Result;

/// The root of what the place holds if that is exactly this content. Anything else there is an error, unless
/// `force` allows to replace it. `progress` is called with the bytes read so far and stops it by returning
/// false.
///
/// # Errors
/// [`Error::Target`] if something else is there, [`Error::Interrupted`] if `progress` stopped it.
pub(crate) fn is_there(
    place: &DestPath,
    id: ContentId,
    proof: FinalCheck,
    force: bool,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Option<[u8; 32]>> {
    let Some(root) = is_there_already(place, &id, proof, force, progress)? else { return Ok(None) };
    remove_leftovers(place, &ContentId { root, ..id });
    Ok(Some(root))
}

/// Puts a whole content, which is verified, in its place: through a part, as all that comes.
///
/// # Errors
/// [`Error::Target`] if the target does not take it.
pub(crate) fn put(place: DestPath, bytes: &[u8], force: bool) -> Result<()> {
    let id = ContentId::of(bytes);
    let (mut target, there) = Target::open(place, id, FinalCheck::Root, force, &mut |_| true)?;
    for (block, bytes) in (0..).zip(bytes.chunks(BLOCK_BYTES)) {
        if !there.contains(block) {
            target.write(block, bytes, cv_of(&id, block, bytes))?;
        }
    }
    target.finish().map(drop)
}
