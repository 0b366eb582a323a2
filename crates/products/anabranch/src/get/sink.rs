//! Stores fetched contents: in files, a bounded number of which are open at a time, with a reader, or in
//! memory.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::path::PathBuf;

use anabranch_mmtp::ContentId;
use anabranch_mmtp::bitmap::Bitmap;
use anabranch_mmtp::subscriber::{DownloadId, Subscriber};
use anabranch_mmtp::tree::ChainingValue;

use super::event_loop::RESUMES;
use super::reassembly_buffer::{self, ReassemblyBuffer};
use super::writer::Writer;
use crate::filenames::{first_few, show};
use crate::target::journal::NOTHING_CLUE;
use crate::target::{Aliases, Demands, DestPath, Finished, Records, Target};
use crate::{Error, Result};

/// The most contents that are fetched at the same time: enough that small files do not wait for each other's
/// round trips, few enough for the file descriptors (three a file) and for the disk.
const OPEN_MAX: usize = 64;
/// The most complete files that wait to be made durable, where a transfer has several contents.
const ENDING_MAX: usize = 64;
/// The message where neither an ETag nor a date tells which version of a file arrived.
const FORGETS: &str = "the server gives neither ETag nor date, so the same `Get` cannot go on with what \
                       arrived: it would with `checksum` from the beginning";
/// The message where, in addition, the server does not support ranges.
const BEGINS_ANEW: &str =
    "the server gives neither ETag nor date, and no ranges, so the same `Get` begins anew";

/// Asks the subscriber or the mirrors for a content of which some blocks exist already. Returns the number of
/// the download, and which of the existing blocks count.
pub(super) type Want<'a> = dyn FnMut(ContentId, Here<'_>) -> Result<(DownloadId, Bitmap)> + 'a;

/// Holds the blocks of a content that exist already.
pub(super) struct Here<'a> {
    /// The blocks that exist.
    pub(super) there: Bitmap,
    /// The records about the mirrors that delivered these blocks, if they are in a part file.
    pub(super) records: Option<Records<'a>>,
}

/// Describes a content that is to be fetched.
#[derive(Clone)]
pub(super) struct Wanted {
    pub(super) id: ContentId,
    /// The other names of the content.
    pub(super) aliases: Aliases,
    pub(super) demands: Demands,
}

/// Holds one content and its destination, which is looked up when the content's turn comes.
pub(super) struct Job {
    pub(super) wanted: Wanted,
    pub(super) executable: bool,
    pub(super) open: Box<dyn FnOnce() -> Result<Destination>>,
}

/// Names the destination of one content.
pub(super) enum Destination {
    File(DestPath),
    Reader(ReassemblyBuffer),
}

/// Holds all contents of one transfer, and the parts that have arrived.
#[derive(Default)]
pub(super) struct Sink {
    waiting: VecDeque<Job>,
    open: BTreeMap<DownloadId, SinkEntry>,
    force: bool,
    memory: Option<Vec<u8>>,
    /// The outcome of the content that was finished last.
    finished: Option<Finished>,
    /// The number of contents of the transfer.
    count: usize,
    /// Gives files their names where there are several contents. `None` before the first is complete.
    writer: Option<Writer>,
    /// The paths of the contents that were given up.
    missing: Vec<PathBuf>,
    total_bytes: u64,
    done_bytes: u64,
    resumed_bytes: u64,
    /// The reason why a later transfer cannot tell that it fetches this version of the content; `None` if it
    /// can.
    forgets: Option<&'static str>,
    /// Notices about the targets that were opened.
    notices: Vec<String>,
}

enum SinkEntry {
    File { target: Box<Target>, executable: bool },
    Reader(ReassemblyBuffer),
    Memory(Vec<u8>),
}

impl Sink {
    /// Creates a sink for contents that go into files or to a reader.
    pub(super) fn new(wanted: Vec<Job>, force: bool) -> Self {
        Self {
            total_bytes: wanted.iter().map(|job| job.wanted.id.length).sum(),
            count: wanted.len(),
            waiting: wanted.into(),
            force,
            ..Self::default()
        }
    }

    /// Takes the notices about the targets that were opened.
    pub(super) fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// Creates a sink that keeps one content, a manifest, in memory, and asks the subscriber for that
    /// content.
    pub(super) fn in_memory(id: ContentId, subscriber: &mut Subscriber) -> Self {
        let mut new = Self::new(Vec::new(), false);
        new.total_bytes = id.length;
        let bytes = vec![0; usize::try_from(id.length).unwrap_or(0)];
        let download = subscriber.add_download(id, false, |_| false);
        new.open.insert(download, SinkEntry::Memory(bytes));
        new
    }

    /// Opens the next contents, as many as may be open at once, and calls `want` for each with its existing
    /// blocks. Returns whether there were any. `checking` is called with the length of a content and the
    /// number of its existing bytes that have been checked; it stops the check by returning false.
    pub(super) fn advance(
        &mut self,
        want: &mut Want<'_>,
        checking: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<bool> {
        let mut any = false;
        while self.open.len() < OPEN_MAX {
            let Some(Job { wanted, executable, open }) = self.waiting.pop_front() else { break };
            any = true;
            let id = wanted.id;
            let path = match open()? {
                Destination::File(path) => path,
                Destination::Reader(buffer) => {
                    let there = buffer.open(id, wanted.demands);
                    self.total_bytes -= id.length - buffer.wanted_bytes(&id);
                    self.done_bytes += there;
                    self.resumed_bytes += there;
                    let mut there = Bitmap::new(id.blocks());
                    for block in (0..id.blocks()).filter(|block| buffer.holds(*block)) {
                        there.insert(block);
                    }
                    let (download, _) = want(id, Here { there, records: None })?;
                    self.open.insert(download, SinkEntry::Reader(buffer));
                    continue;
                }
            };
            let forgets = wanted.aliases.recorded.contains(&NOTHING_CLUE);
            self.forgets = forgets.then_some(if wanted.aliases.begins_anew { BEGINS_ANEW } else { FORGETS });
            let (mut target, there) =
                Target::open(path, id, &wanted.aliases, wanted.demands, self.force, &mut |bytes| {
                    checking(id.length, bytes)
                })?;
            self.notices.extend(target.note_of_what_stays());
            self.notices.extend(target.note_of_no_lock());
            let (download, counts) = want(wanted.id, Here { there, records: target.records() })?;
            target.count_only(&counts);
            self.done_bytes += target.bytes_done();
            self.resumed_bytes += target.bytes_done();
            self.open.insert(download, SinkEntry::File { target: Box::new(target), executable });
        }
        Ok(any)
    }

    /// Stores a block that has arrived. `mark` is as in [`Slot::mark`](crate::target::journal::Slot::mark).
    pub(super) fn block(
        &mut self,
        download: DownloadId,
        block: u64,
        bytes: Vec<u8>,
        cv: ChainingValue,
        mark: u8,
    ) -> Result<()> {
        match self.open.get_mut(&download) {
            Some(SinkEntry::File { target, .. }) => {
                let before = target.bytes_done();
                target.write(block, bytes, cv, mark)?;
                self.done_bytes += target.bytes_done() - before;
                Ok(())
            }
            Some(SinkEntry::Reader(buffer)) => {
                let length = bytes.len() as u64;
                self.done_bytes += if buffer.put(block, bytes) { length } else { 0 };
                Ok(())
            }
            Some(SinkEntry::Memory(memory)) => {
                self.done_bytes += bytes.len() as u64;
                let start = usize::try_from(block)
                    .unwrap_or(usize::MAX)
                    .saturating_mul(anabranch_mmtp::id::BLOCK_BYTES);
                if let Some(to) = memory.get_mut(start..start + bytes.len()) {
                    to.copy_from_slice(&bytes);
                }
                Ok(())
            }
            None => Err(Error::system("a block arrived for a content that nobody wants")),
        }
    }

    /// Discards blocks that had arrived and may be wrong; they will be fetched again.
    pub(super) fn revoked(&mut self, download: DownloadId, blocks: Range<u64>) -> Result<()> {
        match self.open.get_mut(&download) {
            Some(SinkEntry::File { target, .. }) => {
                let before = target.bytes_done();
                target.forget(blocks)?;
                self.done_bytes -= before - target.bytes_done();
            }
            Some(SinkEntry::Reader(buffer)) => self.done_bytes -= buffer.revoke(blocks)?,
            Some(SinkEntry::Memory(_)) | None => {}
        }
        Ok(())
    }

    /// Calls [`Target::refute`] for the file of a download.
    pub(super) fn refute(&mut self, download: DownloadId, url: &str) -> Result<()> {
        self.file(download).map_or(Ok(()), |target| target.refute(url))
    }

    /// Calls [`Target::tried_alone`] for the file of a download.
    pub(super) fn tried_alone(&mut self, download: DownloadId, url: &str) -> Result<()> {
        self.file(download).map_or(Ok(()), |target| target.tried_alone(url))
    }

    /// Discards the hashes that a mirror's origin states for the content, because other mirrors show that the
    /// origin has lied.
    pub(super) fn distrust(&mut self, download: DownloadId, origin: &str) {
        match self.open.get_mut(&download) {
            Some(SinkEntry::File { target, .. }) => target.distrust(origin),
            Some(SinkEntry::Reader(buffer)) => buffer.distrust(origin),
            _ => {}
        }
    }

    fn file(&mut self, download: DownloadId) -> Option<&mut Target> {
        match self.open.get_mut(&download) {
            Some(SinkEntry::File { target, .. }) => Some(target),
            _ => None,
        }
    }

    /// Returns whether the transfer has several contents, so that the others go on if one cannot be fetched.
    pub(super) const fn has_several(&self) -> bool {
        self.count > 1
    }

    /// Returns the path of a content's file, or `None` if the content does not go into a file.
    pub(super) fn path_of(&self, download: DownloadId) -> Option<PathBuf> {
        match self.open.get(&download) {
            Some(SinkEntry::File { target, .. }) => Some(target.path()),
            _ => None,
        }
    }

    /// Gives up a content that no source has any more. Its bytes that have arrived are kept, and the others
    /// go on.
    pub(super) fn give_up(&mut self, download: DownloadId) -> Result<()> {
        if let Some(SinkEntry::File { mut target, .. }) = self.open.remove(&download) {
            self.missing.push(target.path());
            target.flush()?;
            target.discard_if_empty();
        }
        Ok(())
    }

    /// Waits for the writer, then returns the result of a transfer whose contents are all complete or given
    /// up.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if some contents were given up; an error of
    /// [`complete`](Self::complete) if a file could not get its name.
    pub(super) fn result(&mut self) -> Result<()> {
        while let Some((_, outcome)) = self.writer.as_mut().and_then(Writer::wait) {
            outcome?;
        }
        if self.missing.is_empty() {
            return Ok(());
        }
        Err(Error::not_found(format!(
            "{} of {} files could not be had ({}): no source has them as the directory's URI says; the \
             others are here: try another `from_source`, or the URI that the directory has now",
            self.missing.len(),
            self.count,
            first_few(self.missing.iter().map(show), ", ")
        )))
    }

    /// Returns the outcome of the content that was finished last.
    pub(super) fn into_finished(self) -> Option<Finished> {
        self.finished
    }

    /// Returns whether a content whose blocks have all arrived is wrong, while other bytes may be right.
    /// Always false for a content that is read in order, which is checked only after all of it has been read.
    /// `checking` is called as in [`advance`](Self::advance).
    pub(super) fn needs_others(
        &mut self,
        download: DownloadId,
        checking: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<bool> {
        match self.open.get_mut(&download) {
            Some(SinkEntry::File { target, .. }) => {
                let length = target.length();
                target.needs_others(&mut |bytes| checking(length, bytes))
            }
            _ => Ok(false),
        }
    }

    /// Finishes a content whose blocks have all arrived: checks it, and gives a file its name. `checking` is
    /// called as in [`advance`](Self::advance); if it stops the check, the bytes that have arrived are kept.
    pub(super) fn complete(
        &mut self,
        download: DownloadId,
        checking: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<()> {
        match self.open.remove(&download) {
            Some(SinkEntry::File { target, executable }) => {
                if executable {
                    target.make_executable()?;
                }
                if self.has_several() {
                    return self.finish(*target);
                }
                let length = target.length();
                self.finished = Some(target.finish(&mut |bytes| checking(length, bytes))?);
                Ok(())
            }
            Some(SinkEntry::Reader(buffer)) => {
                let (root, dissent) = buffer.complete()?;
                self.finished = Some(Finished { root, signer: None, dissent });
                Ok(())
            }
            Some(SinkEntry::Memory(memory)) => {
                self.memory = Some(memory);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Hands one of several contents to the writer, which gives the complete file its name while others are
    /// fetched.
    fn finish(&mut self, target: Target) -> Result<()> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => none.insert(Writer::start(None)?),
        };
        // The job holds only a few blocks in memory, so they are not counted.
        writer.put(0, 0, move || target.finish(&mut |_| true).map(drop));
        writer.ended().into_iter().try_for_each(|(_, outcome)| outcome)?;
        if writer.waiting() > ENDING_MAX {
            writer.wait().map_or(Ok(()), |(_, outcome)| outcome)
        } else {
            Ok(())
        }
    }

    /// Writes the blocks that are held back, so that they survive a crash.
    pub(super) fn flush(&mut self) -> Result<()> {
        for slot in self.open.values_mut() {
            if let SinkEntry::File { target, .. } = slot {
                target.flush()?;
            }
        }
        Ok(())
    }

    /// Drops all contents that are still open, and removes their part files that hold nothing.
    pub(super) fn discard_empty(&mut self) {
        for (_, slot) in std::mem::take(&mut self.open) {
            if let SinkEntry::File { target, .. } = slot {
                target.discard_if_empty();
            }
        }
    }

    /// Returns the content that is read in order, if there is one; it is the only content of its transfer.
    pub(super) fn reading(&self) -> Option<(DownloadId, &ReassemblyBuffer)> {
        match self.open.first_key_value() {
            Some((download, SinkEntry::Reader(buffer))) => Some((*download, buffer)),
            _ => None,
        }
    }

    /// Returns the number of bytes that the next transfer of these contents would find.
    pub(super) fn kept_bytes(&self) -> u64 {
        if self.reading().is_some() { 0 } else { self.done_bytes }
    }

    /// Returns a clause about the fate of the bytes that have arrived if the transfer ends early. Another
    /// transfer cannot use bytes that are `of_one_answer` (the ETag differs in each response) or
    /// `of_no_version` (no mirror has an ETag or date that stays).
    pub(super) fn interrupted(&self, of_one_answer: bool, of_no_version: bool) -> &'static str {
        match self.reading() {
            Some(_) => reassembly_buffer::INTERRUPTED,
            None if of_one_answer => {
                "the server's ETag is another with each answer, so the same `Get` cannot go \
                 on with what arrived: it would with `checksum` from the beginning"
            }
            None if of_no_version && self.forgets.is_none() => {
                "no server gives an ETag or date that stays, so the same `Get` cannot go on \
                 with what arrived: it would with `checksum` from the beginning"
            }
            None => self.forgets.unwrap_or(RESUMES),
        }
    }

    /// Returns whether every content is complete or given up.
    pub(super) fn is_done(&self) -> bool {
        self.open.is_empty() && self.waiting.is_empty()
    }

    /// Returns the content that was fetched into memory.
    pub(super) fn into_memory(self) -> Vec<u8> {
        self.memory.unwrap_or_default()
    }

    /// Returns whether the sink has contents for files or a reader, not only a manifest or a name.
    pub(super) const fn has_contents(&self) -> bool {
        self.count > 0
    }

    /// Returns three numbers of bytes: of all contents, of those that have arrived, and of those that existed
    /// before this run.
    pub(super) const fn bytes(&self) -> (u64, u64, u64) {
        (self.total_bytes, self.done_bytes, self.resumed_bytes)
    }
}
