//! Where contents go as they arrive: files, a bounded number of them open at a time, a reader, or memory.

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

/// Contents that are fetched at the same time: enough that small files do not wait for each other's round
/// trips, few enough for the descriptors (three a file) and for the disk.
const OPEN_MAX: usize = 64;
/// Of several contents, those that are whole and wait to be made durable.
const ENDING_MAX: usize = 64;
/// What is said where nothing tells what version of a file came.
const FORGETS: &str = "the server gives neither ETag nor date, so the same `Get` cannot go on with what \
                       arrived: it would with `checksum` from the beginning";
/// What is said where, besides, the server sends no parts.
const BEGINS_ANEW: &str =
    "the server gives neither ETag nor date, and no ranges, so the same `Get` begins anew";

/// Asks a machine for a content, of which some blocks are here already. Returns the number of the download,
/// and which of these blocks count.
pub(super) type Want<'a> = dyn FnMut(ContentId, Here<'_>) -> Result<(DownloadId, Bitmap)> + 'a;

/// What is here already of a content.
pub(super) struct Here<'a> {
    /// The blocks.
    pub(super) there: Bitmap,
    /// The records of the mirrors that brought them.
    pub(super) records: Option<Records<'a>>,
}

/// A content that is to come.
#[derive(Clone)]
pub(super) struct Wanted {
    pub(super) id: ContentId,
    /// What it is known by besides.
    pub(super) aliases: Aliases,
    pub(super) demands: Demands,
}

/// One content and the place where it is to go; the place is looked up when its turn comes.
pub(super) struct Job {
    pub(super) wanted: Wanted,
    pub(super) executable: bool,
    pub(super) open: Box<dyn FnOnce() -> Result<Destination>>,
}

/// Where one content is to go.
pub(super) enum Destination {
    File(DestPath),
    Reader(ReassemblyBuffer),
}

/// All contents of one transfer.
#[derive(Default)]
pub(super) struct Sink {
    waiting: VecDeque<Job>,
    open: BTreeMap<DownloadId, SinkEntry>,
    force: bool,
    memory: Option<Vec<u8>>,
    /// What was finished last.
    finished: Option<Finished>,
    /// How many contents the transfer has.
    count: usize,
    /// Gives several contents their names; none before the first, and where there is only one.
    writer: Option<Writer>,
    /// The paths of the contents that cannot be had.
    missing: Vec<PathBuf>,
    total_bytes: u64,
    done_bytes: u64,
    resumed_bytes: u64,
    /// Why the next transfer of the content cannot tell that it is the same, if so.
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
    /// Files.
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

    /// One content, in memory: for manifests.
    pub(super) fn in_memory(id: ContentId, subscriber: &mut Subscriber) -> Self {
        let mut new = Self::new(Vec::new(), false);
        new.total_bytes = id.length;
        let bytes = vec![0; usize::try_from(id.length).unwrap_or(0)];
        let download = subscriber.add_download(id, false, |_| false);
        new.open.insert(download, SinkEntry::Memory(bytes));
        new
    }

    /// Wants as many more contents as may be open at once; whether there were any. `want` is told of each
    /// what is here already. `checking` is told how much of how many bytes that are there has been checked,
    /// and stops it by returning false.
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

    /// A verified block arrived. `mark` is as of [`Slot::mark`](crate::target::journal::Slot::mark).
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

    /// Blocks that had arrived may be wrong: they will come again.
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

    /// See [`Target::refute`].
    pub(super) fn refute(&mut self, download: DownloadId, url: &str) -> Result<()> {
        self.file(download).map_or(Ok(()), |target| target.refute(url))
    }

    /// See [`Target::tried_alone`].
    pub(super) fn tried_alone(&mut self, download: DownloadId, url: &str) -> Result<()> {
        self.file(download).map_or(Ok(()), |target| target.tried_alone(url))
    }

    /// A mirror has lied, as others show: what its origin says of the content counts no more.
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

    /// Whether there are others that may come though one cannot be had.
    pub(super) const fn has_several(&self) -> bool {
        self.count > 1
    }

    /// Where a content goes, if it is to be a file.
    pub(super) fn path_of(&self, download: DownloadId) -> Option<PathBuf> {
        match self.open.get(&download) {
            Some(SinkEntry::File { target, .. }) => Some(target.path()),
            _ => None,
        }
    }

    /// No source has a content any more: what is here of it stays, and the others go on.
    pub(super) fn give_up(&mut self, download: DownloadId) -> Result<()> {
        if let Some(SinkEntry::File { mut target, .. }) = self.open.remove(&download) {
            self.missing.push(target.path());
            target.flush()?;
            target.discard_if_empty();
        }
        Ok(())
    }

    /// How it ends when all has come that can be had.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if some contents were given up; as for
    /// [`complete`](Self::complete), if one could not get its name.
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

    /// What was finished last.
    pub(super) fn into_finished(self) -> Option<Finished> {
        self.finished
    }

    /// Whether a content, all of which is here, is not what it should be, and other bytes may be. Of one that
    /// is read in order this is not known before all of it has been read. `checking` is as of
    /// [`advance`](Self::advance).
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

    /// A content is whole: it gets its name. `checking` is as of [`advance`](Self::advance): if it stops it,
    /// what is here stays.
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

    /// One of several contents gets its name, while others come.
    fn finish(&mut self, target: Target) -> Result<()> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => none.insert(Writer::start(None)?),
        };
        // What it holds is a few blocks.
        writer.put(0, 0, move || target.finish(&mut |_| true).map(drop));
        writer.ended().into_iter().try_for_each(|(_, outcome)| outcome)?;
        if writer.waiting() > ENDING_MAX {
            writer.wait().map_or(Ok(()), |(_, outcome)| outcome)
        } else {
            Ok(())
        }
    }

    /// Writes what is held back, so that it survives a crash.
    pub(super) fn flush(&mut self) -> Result<()> {
        for slot in self.open.values_mut() {
            if let SinkEntry::File { target, .. } = slot {
                target.flush()?;
            }
        }
        Ok(())
    }

    /// Nothing came of these: no part of theirs is to be left behind.
    pub(super) fn discard_empty(&mut self) {
        for (_, slot) in std::mem::take(&mut self.open) {
            if let SinkEntry::File { target, .. } = slot {
                target.discard_if_empty();
            }
        }
    }

    /// The content that is read in order: it is the only one of its transfer.
    pub(super) fn reading(&self) -> Option<(DownloadId, &ReassemblyBuffer)> {
        match self.open.first_key_value() {
            Some((download, SinkEntry::Reader(buffer))) => Some((*download, buffer)),
            _ => None,
        }
    }

    /// The bytes that the next transfer of the same contents would find.
    pub(super) fn kept_bytes(&self) -> u64 {
        if self.reading().is_some() { 0 } else { self.done_bytes }
    }

    /// What becomes of the bytes that are here if the transfer ends before all have come. Those that are
    /// `of_one_answer` or `of_no_version` are of no use to another transfer.
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

    /// Whether nothing is missing.
    pub(super) fn is_done(&self) -> bool {
        self.open.is_empty() && self.waiting.is_empty()
    }

    /// The content that was fetched into memory.
    pub(super) fn into_memory(self) -> Vec<u8> {
        self.memory.unwrap_or_default()
    }

    /// Bytes in all, here, and here before this run.
    pub(super) const fn bytes(&self) -> (u64, u64, u64) {
        (self.total_bytes, self.done_bytes, self.resumed_bytes)
    }
}
