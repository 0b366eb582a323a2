//! An incomplete file at the destination that another program has begun, for example curl before it was
//! interrupted. Its verified blocks become the part.

use std::fs::File;

use anabranch_mirror::metalink::Pieces;
use anabranch_mmtp::ContentId;
use anabranch_mmtp::id::BLOCK_BYTES;
use anabranch_mmtp::tree::ChainingValue;
use nix::fcntl::OFlag;

use super::aliases::Aliases;
use super::dest_path::DestPath;
use super::journal_file::read_up_to;
use super::part::{Part, cv_of, interrupted};
use crate::filenames::show;
use crate::{Error, Result};

/// Verified blocks of a content, each with its chaining value.
pub(crate) type Blocks = Vec<(u64, ChainingValue)>;

/// A file under the final name that is shorter than the content.
pub(crate) struct Begun<'a> {
    place: &'a DestPath,
    id: ContentId,
    file: File,
    /// The length of the file in bytes.
    pub(crate) length: u64,
}

impl<'a> Begun<'a> {
    /// Opens the file at `place` if it may be the beginning of this content.
    ///
    /// # Errors
    /// [`ErrorKind::Target`](crate::ErrorKind::Target) if the file cannot be read.
    pub(crate) fn of(place: &'a DestPath, id: ContentId) -> Result<Option<Self>> {
        let entry = place.stat(place.name())?.filter(|entry| entry.file && entry.length < id.length);
        let Some(entry) = entry else { return Ok(None) };
        let file =
            place.open(place.name(), OFlag::O_RDONLY).map_err(|e| place.failure("read", place.name(), e))?;
        Ok(Some(Self { place, id, file, length: entry.length }))
    }

    /// Returns the blocks of the file whose chaining values equal those of the content, `cvs`. `progress` is
    /// called with the number of bytes read so far and stops the check by returning false.
    ///
    /// # Errors
    /// [`ErrorKind::Target`](crate::ErrorKind::Target) if the file cannot be read,
    /// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) if `progress` stopped the check.
    pub(crate) fn right_blocks(
        &self,
        cvs: &[ChainingValue],
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Blocks> {
        let mut right = Blocks::new();
        self.each_block(progress, &mut |block, _, cv| {
            let is_right = usize::try_from(block).is_ok_and(|n| cvs.get(n) == Some(&cv));
            right.extend(is_right.then_some((block, cv)));
        })?;
        Ok(right)
    }

    /// Returns the blocks of the file that lie in pieces with the right hash.
    ///
    /// # Errors
    /// Those of [`right_blocks`](Self::right_blocks).
    pub(crate) fn right_pieces(
        &self,
        pieces: &Pieces,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Blocks> {
        let (mut right, mut of_piece) = (Blocks::new(), Blocks::new());
        let blocks_of_piece = pieces.bytes / BLOCK_BYTES as u64;
        let mut hashes = pieces.hashes.iter();
        let mut hasher = pieces.hashes.hasher();
        self.each_block(progress, &mut |block, bytes, cv| {
            hasher.update(bytes);
            of_piece.push((block, cv));
            if (block + 1) % blocks_of_piece == 0 {
                let whole = std::mem::replace(&mut hasher, pieces.hashes.hasher());
                let is_right = hashes.next().is_some_and(|hash| whole.is(hash));
                right.extend(of_piece.drain(..).filter(|_| is_right));
            }
        })?;
        Ok(right)
    }

    /// Calls `each` for every complete block of the file, in order.
    fn each_block(
        &self,
        progress: &mut dyn FnMut(u64) -> bool,
        each: &mut dyn FnMut(u64, &[u8], ChainingValue),
    ) -> Result<()> {
        let mut bytes = vec![0; BLOCK_BYTES];
        for block in 0..self.length / BLOCK_BYTES as u64 {
            let at = block * BLOCK_BYTES as u64;
            let read = read_up_to(&self.file, &mut bytes, at)
                .map_err(|e| self.place.failure("read", self.place.name(), e))?;
            if read < bytes.len() {
                break;
            }
            each(block, &bytes, cv_of(&self.id, block, &bytes));
            if !progress(at + BLOCK_BYTES as u64) {
                return Err(interrupted());
            }
        }
        Ok(())
    }

    /// Turns the file into the part of a transfer that knows the content by these `aliases`. `blocks` are the
    /// verified blocks of the file.
    ///
    /// # Errors
    /// [`ErrorKind::Target`](crate::ErrorKind::Target) if a part exists already, or the file cannot become
    /// one.
    pub(crate) fn becomes_part(self, aliases: &Aliases, blocks: &[(u64, ChainingValue)]) -> Result<()> {
        let part = Part::open(self.place, &self.id, aliases, true, false)?;
        if !part.virgin {
            return Err(Error::target(format!(
                "{} is there, and so is {}, which this request would go on with: remove one of them",
                show(self.place.path()),
                show(self.place.path().with_file_name(&part.name))
            ))
            .at(self.place.path()));
        }
        part.take_over(self.place, blocks)
    }
}
