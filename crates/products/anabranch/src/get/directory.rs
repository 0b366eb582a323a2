//! Fetches a directory from mirrors, namely the files of one Metalink.
//!
//! Files that exist already and are right are found first. Then the small files that have a hash are fetched,
//! many at once ([`SmallFiles`]), and then the other files, each as if it were fetched alone. A file that
//! cannot be fetched does not stop the others; it is reported at the end.

use std::collections::BTreeSet;
use std::sync::Arc;

use anabranch_mirror::metalink::{File, Metalink};
use anabranch_mmtp::ContentId;

use super::attempt;
use super::discovered_file::DiscoveredFile;
use super::discovery::candidates::{Discovered, discover};
use super::discovery::rounds::in_rounds;
use super::discovery::{Expected, Round};
use super::event_loop::EventLoop;
use super::file_totals::FileTotals;
use super::locators::{Beside, Locators, MetalinkOrigin};
use super::offered_names::OfferedNames;
use super::origin::{Origin, host, origin};
use super::outcome::{FileOutcome, Outcome};
use super::request::Request;
use super::small_files::{ByteTotals, FileJob, Hash, SMALL_BYTES, SmallFiles};
use crate::error::ErrorKind;
use crate::event::CHECKING_PART;
use crate::event::Observer;
use crate::filenames::{lossy, show};
use crate::format::bytes;
use crate::target::{DestPath, Directory, is_there};
use crate::{BannedSource, Error, Progress, Report, Result, Verified, VouchedBy};

/// Fetches the files that a Metalink describes into a directory. `by` is the voucher for the Metalink.
pub(super) fn get(
    request: &Request,
    metalink: Metalink,
    base: MetalinkOrigin,
    by: VouchedBy,
    beside: &Beside,
    events: &mut EventLoop<'_, '_>,
) -> Result<Outcome> {
    request.allow_directory()?;
    refuse(request, &metalink, &base, beside)?;
    let mut names = OfferedNames::default();
    names.offer("the Metalink", name(&base));
    let id = ContentId::of(metalink.files.iter().map(|f| f.name.as_str()).collect::<String>().as_bytes());
    let path = names.path(request, true, &id, events.observer)?;
    let directory = Arc::new(request.output.directory(&path)?);
    let files = metalink.files.len();
    let sum = FileTotals { files, ..FileTotals::default() };
    let (liars, deaf, recalled) = (Vec::new(), BTreeSet::new(), Vec::new());
    let mut download = DirectoryDownload { request, base, beside, by, directory, sum, liars, deaf, recalled };
    let result = download.fetch(metalink, events).and_then(|()| match download.sum.most_specific() {
        Some(code) => Err(download.sum.failure(code, "; perhaps the URLs in the Metalink are wrong")),
        None => Ok(()),
    });
    if result.is_err() {
        download.directory.remove_empty();
    }
    let report = download.sum.report(lossy(&path), result.is_ok());
    // If the hashes of some files are known only from earlier transfers, the oldest day counts.
    let by = download.recalled.into_iter().min().map_or(download.by, VouchedBy::History);
    let verified_by = Some(by).filter(|_| report.verified == Verified::Files);
    let advice = match &verified_by {
        Some(VouchedBy::Hosts(hosts)) if report.complete => Some(format!(
            "files are only compared, by hashes that {} itself offers: a Metalink that you trust verifies \
             them",
            hosts.join(" and ")
        )),
        _ => report.advice,
    };
    Ok(Outcome { report: Report { verified_by, advice, ..report }, result })
}

/// Refuses a Metalink of several files together with options or URLs for one file, and refuses file names
/// that cannot be used.
fn refuse(request: &Request, metalink: &Metalink, base: &MetalinkOrigin, beside: &Beside) -> Result<()> {
    let n = metalink.files.len();
    let is_remote = matches!(base, MetalinkOrigin::Url(_));
    let why = if !request.digests.is_empty() {
        "`checksum` is of one file"
    } else if request.keyring.is_some() {
        "`keyring` is for one file"
    } else if !request.from.is_empty() {
        "`from_source` is for a content that has one id; a directory from sources that speak mmTP has a URI \
         of its own, and comes from them alone"
    } else if beside.uri {
        "the URI names one content: fetch it by itself"
    } else if beside.urls {
        "the URLs beside it name one file: put them into the Metalink, or fetch them by themselves"
    } else if beside.lists > usize::from(is_remote) {
        "fetch other Metalinks by themselves"
    } else {
        // Some programs obey files by their names (.profile, .ssh/rc), and a server is not trusted.
        let is_hidden = |file: &&File| file.name.split('/').any(|part| part.starts_with('.'));
        if let Some(hidden) = metalink.files.iter().find(is_hidden).filter(|_| is_remote) {
            let name = show(&hidden.name);
            return Err(Error::usage(format!(
                "the Metalink names a hidden file ({name}), which a server may not choose: if you trust it, \
                 download the Metalink and fetch it by its file name"
            )));
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = metalink.files.iter().find(|file| !names.insert(file.name.as_str())) {
            return Err(Error::usage(format!("the Metalink has {} twice", show(&twice.name))));
        }
        let parents = |name: &&&str| name.match_indices('/').any(|(at, _)| names.contains(&name[..at]));
        return match names.iter().find(parents) {
            Some(below) => Err(Error::usage(format!(
                "the Metalink has {}, and a part of that name as a file, too: there cannot be both",
                show(below)
            ))),
            None => Ok(()),
        };
    };
    Err(Error::usage(format!("the Metalink describes {n} files: {why}")))
}

/// Returns the file name of the Metalink without its ending, `.meta4` or `.metalink`; `None` without such an
/// ending.
fn name(base: &MetalinkOrigin) -> Option<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt as _;
    let name = match base {
        MetalinkOrigin::Path(path) => path.file_name()?.as_bytes().to_vec(),
        MetalinkOrigin::Url(url) => url.last_component(),
        MetalinkOrigin::Pipe => return None,
    };
    let lower = name.to_ascii_lowercase();
    let end = [&b".meta4"[..], b".metalink"].into_iter().find(|end| lower.ends_with(end))?;
    Some(name[..name.len() - end.len()].to_vec())
}

struct DirectoryDownload<'a> {
    request: &'a Request,
    base: MetalinkOrigin,
    beside: &'a Beside,
    by: VouchedBy,
    directory: Arc<Directory>,
    sum: FileTotals,
    /// The origins of banned servers.
    liars: Vec<Origin>,
    /// Mirrors that did not answer in a second round: see [`in_rounds`].
    deaf: BTreeSet<String>,
    /// For each file whose hash is known only from an earlier transfer, the day of that transfer.
    recalled: Vec<String>,
}

impl DirectoryDownload<'_> {
    /// Fetches all files of the Metalink.
    ///
    /// # Errors
    /// An error that ends the whole transfer. Errors of single files are in `sum`.
    fn fetch(&mut self, metalink: Metalink, events: &mut EventLoop<'_, '_>) -> Result<()> {
        self.sum.totals.total_bytes = metalink.files.iter().filter_map(|file| file.size).sum();
        let (mut small, mut others) = (Vec::new(), Vec::new());
        for file in metalink.files {
            match (file.size, Hash::of(&file.hashes)) {
                (Some(bytes), Some(hash)) if bytes <= SMALL_BYTES => {
                    let urls = file.mirrors.into_iter().map(|mirror| mirror.url).collect();
                    small.push(FileJob { name: file.name, bytes, hash, urls });
                }
                _ => others.push(file),
            }
        }
        events.observer.notice(&format!(
            "{} files, {}; each will be verified before it gets its name, if there is a hash of it",
            self.sum.files,
            bytes(self.sum.totals.total_bytes)
        ));
        let small = self.leave_out(small, |item| Some((&item.name, item.bytes, item.hash)), events)?;
        let others =
            self.leave_out(others, |file| Some((&file.name, file.size?, Hash::of(&file.hashes)?)), events)?;
        let missing = small.iter().map(|item| item.bytes).chain(others.iter().filter_map(|file| file.size));
        self.directory.check_room(self.directory.path(), missing.fold(0, u64::saturating_add))?;
        self.small(&small, events)?;
        for file in others {
            self.one(file, events)?;
        }
        Ok(())
    }

    fn place(&self, name: &str) -> Result<DestPath> {
        self.directory.place(name.split('/').map(str::as_bytes))
    }

    /// Returns the files that are not in their places yet. If something else is in the place of a file, this
    /// is an error without `overwrite`, and is thus reported before anything is fetched.
    fn leave_out<T>(
        &mut self,
        files: Vec<T>,
        what: impl Fn(&T) -> Option<(&str, u64, Hash)>,
        events: &mut EventLoop<'_, '_>,
    ) -> Result<Vec<T>> {
        let EventLoop { world, observer, .. } = events;
        observer.among(Progress::default());
        let mut missing = Vec::new();
        for file in files {
            let Some((name, bytes, hash)) = what(&file) else {
                missing.push(file);
                continue;
            };
            let path = self.place(name)?;
            let (proof, root) = hash.proof();
            let id = ContentId { root, length: bytes };
            if is_there(&path, id, proof, self.request.force, &mut |_| !observer.is_stopped())?.is_some() {
                self.sum.totals.done_bytes += bytes;
                self.sum.totals.resumed_bytes += bytes;
            } else {
                missing.push(file);
            }
            let ByteTotals { total_bytes, resumed_bytes, .. } = self.sum.totals;
            if resumed_bytes > 0 {
                observer.checking(world.now(), CHECKING_PART, total_bytes, resumed_bytes);
            }
            if observer.is_stopped() {
                return Err(Error::interrupted("interrupted; nothing was fetched"));
            }
        }
        Ok(missing)
    }

    fn small(&mut self, items: &[FileJob], events: &mut EventLoop<'_, '_>) -> Result<()> {
        if items.is_empty() {
            return Ok(());
        }
        events.observer.among(Progress::default());
        events.world.open_http()?;
        let (origins, totals) = (&self.beside.origins, self.sum.totals);
        let mut small =
            SmallFiles::new(items, origins, self.request, &self.directory, totals, &self.by, events)?;
        let result = events.run(&mut small);
        let ended = small.end(events.world.now());
        self.sum.totals = ended.totals;
        for (origin, source, reason) in ended.liars {
            self.liars.push(origin);
            self.sum.banned.push(BannedSource { source, reason });
        }
        self.sum
            .missing
            .extend(ended.lost.into_iter().map(|(n, code, why)| (items[n].name.clone(), code, why)));
        self.sum.add(&ended.last);
        result
    }

    /// Fetches one file as if it were alone, and adds the outcome to `sum`.
    fn one(&mut self, mut file: File, events: &mut EventLoop<'_, '_>) -> Result<()> {
        let name = file.name.clone();
        let size = file.size.unwrap_or(0);
        let ByteTotals { total_bytes, done_bytes, resumed_bytes } = self.sum.totals;
        let total_bytes = total_bytes - size;
        let elapsed_s = self.sum.elapsed_s;
        let paths = self.sum.rows.clone();
        events.observer.among(Progress {
            total_bytes: Some(total_bytes),
            done_bytes,
            resumed_bytes,
            elapsed_s,
            paths,
            ..Progress::default()
        });
        if events.observer.is_stopped() {
            return Err(Error::interrupted("interrupted; what arrived is kept"));
        }
        // Without a hash, nothing was checked in `leave_out`. If the place is taken, only this file fails.
        let is_taken = |path: DestPath| Ok(!self.request.force && path.is_taken()?);
        let (in_the_way, refused) = match self.place(&name).and_then(is_taken) {
            Ok(in_the_way) => (in_the_way, None),
            Err(error) => (error.kind() == ErrorKind::Target, Some(error)),
        };
        file.mirrors.retain(|mirror| !self.liars.contains(&origin(&mirror.url)));
        let ended = if let Some(failure) = refused {
            Err(failure)
        } else if !file.mirrors.is_empty() {
            events.observer.about(Some(show(&name)));
            let ended = self.alone(&file, events);
            events.observer.about(None);
            ended
        } else if self.liars.is_empty() {
            Err(Error::not_found("no mirror is named"))
        } else {
            Err(Error::corrupt("all its mirrors are banned"))
        };
        let failure = match ended {
            Ok((found, FileOutcome { report, result, .. })) => {
                self.sum.totals.total_bytes =
                    total_bytes + report.last.total_bytes.unwrap_or_default().max(size);
                self.sum.totals.done_bytes += report.last.done_bytes;
                self.sum.totals.resumed_bytes += report.last.resumed_bytes;
                self.sum.add(&report.last);
                for banned in report.banned {
                    let url = found.mirrors.iter().find(|m| host(&m.url) == banned.source);
                    self.liars.extend(url.map(|mirror| origin(&mirror.url)));
                    self.sum.banned.push(banned);
                }
                if result.is_ok() {
                    match (report.verified, report.verified_by) {
                        (Verified::Nothing | Verified::Unchanged, _) => self.sum.unverified += 1,
                        (_, Some(by)) if by == self.by => {}
                        (_, Some(VouchedBy::History(day))) => self.recalled.push(day),
                        _ => self.sum.unverified += 1,
                    }
                }
                result.err()
            }
            Err(failure) => Some(failure),
        };
        match failure {
            None => Ok(()),
            Some(error)
                if error.kind().is_of_sources() || (in_the_way && error.kind() == ErrorKind::Target) =>
            {
                events.observer.notice(&format!("{}: {error}", show(&name)));
                self.sum.lacks(name, &error);
                Ok(())
            }
            Some(error) => {
                let message = format!("{}: {error}", show(&name));
                Err(error.with_message(message))
            }
        }
    }

    /// Fetches one file in one round, or in two, as if it were alone.
    fn alone(
        &mut self,
        file: &File,
        events: &mut EventLoop<'_, '_>,
    ) -> Result<(DiscoveredFile, FileOutcome)> {
        let (request, mut deaf) = (self.request, std::mem::take(&mut self.deaf));
        let run = |round, absent: &mut Vec<String>, events: &mut EventLoop<'_, '_>| {
            self.round(file, round, absent, events)
        };
        let error = |(_, outcome): &(_, FileOutcome)| outcome.result.as_ref().err().map(Error::kind);
        let ended = in_rounds(request, &mut deaf, events, run, error);
        self.deaf = deaf;
        ended
    }

    fn round(
        &mut self,
        file: &File,
        round: Round,
        absent: &mut Vec<String>,
        events: &mut EventLoop<'_, '_>,
    ) -> Result<(DiscoveredFile, FileOutcome)> {
        let asked = Locators {
            metalink: Some((Metalink { files: vec![file.clone()] }, self.base.clone())),
            origins: self.beside.origins.clone(),
            ..Locators::default()
        };
        let mut candidates = match discover(asked, Expected::default(), round, absent, self.request, events)?
        {
            Discovered::File(candidates) => candidates,
            Discovered::Directory(..) => return Err(Error::system("a Metalink within a Metalink")),
        };
        // Discovery credits the user with each file's Metalink. Its real voucher is the directory's.
        candidates.are_vouched_for_by(&self.by);
        let mut begin = |_: &DiscoveredFile, _: &mut Observer<'_>| self.place(&file.name).map(Some);
        attempt::fetch(self.request, *candidates, &[], &mut begin, events)
    }
}
