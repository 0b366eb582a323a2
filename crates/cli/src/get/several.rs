//! A directory from mirrors: the files of one Metalink.
//!
//! What is there already and right is found first. Then come the small files that have a hash, many at once
//! ([`Small`]), then the others, each as if it were fetched alone. A file that cannot be had does not keep
//! the others from coming; it is told at the end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use algo::Span;
use mirror::metalink::{File, Metalink};
use mmtp::ContentId;
use net::Clock;

use super::asked::{Asked, Base};
use super::look::{Found, Looked, Said, look, origin};
use super::small::{Hash, Item, SMALL_BYTES, Small, Totals};
use super::standing::worst;
use super::writer::Writer;
use super::{End, Named, client, found_one, is_harmless};
use crate::args::Get;
use crate::exit::{Code, Failure, Outcome};
use crate::host::{Stop, shared_stop};
use crate::names::show;
use crate::target::{Directory, Place, directory_destination, is_there};
use crate::view::{BannedSource, PathRow, Snapshot, Summary, Verified, View, add, bytes, share};

/// Files that are named when several could not be had.
const TOLD_MAX: usize = 5;

/// Fetches the files that a Metalink describes into a directory.
pub(super) fn get(args: &Get, metalink: Metalink, base: Base, named: &Named, view: &mut View) -> Outcome {
    refuse(args, &metalink, &base, named)?;
    let name = name(&base).filter(|name| is_harmless(name));
    let id = ContentId::of(metalink.files.iter().map(|f| f.name.as_str()).collect::<String>().as_bytes());
    let path = directory_destination(args.output.as_deref(), name.as_deref(), &id)?;
    let directory = Arc::new(Directory::create(&path)?);
    let stop = shared_stop().map_err(|e| Failure::other(format!("cannot catch signals: {e}")))?;
    let files = metalink.files.len();
    let mut several = Several { args, base, named, directory, stop, sum: Sum::default() };
    several.sum.files = files;
    let whole = several.fetch(metalink, view).and_then(|()| several.sum.outcome());
    let content = format!("{files} files");
    view.finish(&several.sum.summary(show(&path), content, whole.as_ref().err()));
    whole
}

/// What makes no sense beside a Metalink of several files.
fn refuse(args: &Get, metalink: &Metalink, base: &Base, named: &Named) -> Outcome {
    let n = metalink.files.len();
    let is_remote = matches!(base, Base::Url(_));
    let why = if args.http.checksum.is_some() {
        "--checksum is of one file"
    } else if !args.from.is_empty() {
        "--from is for a content that has one id; a directory from sources that speak mmTP has a URI of its \
         own, and comes from them alone"
    } else if named.uri {
        "the URI names one content: fetch it by itself"
    } else if named.urls {
        "the URLs beside it name one file: put them into the Metalink, or fetch them by themselves"
    } else if named.lists > usize::from(is_remote) {
        "fetch other Metalinks by themselves"
    } else {
        // Some programs obey files by their names (.profile, .ssh/rc), and who runs a server is not trusted.
        let is_hidden = |file: &&File| file.name.split('/').any(|part| part.starts_with('.'));
        if let Some(hidden) = metalink.files.iter().find(is_hidden).filter(|_| is_remote) {
            let name = show(&hidden.name);
            return Err(Failure::usage(format!(
                "the Metalink names a hidden file ({name}), which a server may not choose: if you trust it, \
                 download the Metalink and fetch it by its file name"
            )));
        }
        let mut names = BTreeSet::new();
        return match metalink.files.iter().find(|file| !names.insert(file.name.as_str())) {
            Some(twice) => Err(Failure::usage(format!("the Metalink has {} twice", show(&twice.name)))),
            None => Ok(()),
        };
    };
    Err(Failure::usage(format!("the Metalink describes {n} files: {why}")))
}

/// The Metalink's own name, without `.meta4`.
fn name(base: &Base) -> Option<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt as _;
    let name = match base {
        Base::Path(path) => path.file_name()?.as_bytes().to_vec(),
        Base::Url(url) => url.file_name()?,
    };
    let lower = name.to_ascii_lowercase();
    let end = [&b".meta4"[..], b".metalink"].into_iter().find(|end| lower.ends_with(end))?;
    Some(name[..name.len() - end.len()].to_vec())
}

/// What tells that a file is right, if anything short does.
fn hash(file: &File) -> Option<Hash> {
    file.hashes.blake3.map(Hash::Blake3).or(file.hashes.sha256.map(Hash::Sha256))
}

struct Several<'a> {
    args: &'a Get,
    base: Base,
    named: &'a Named,
    directory: Arc<Directory>,
    stop: Stop,
    sum: Sum,
}

/// What has come of the files so far.
#[derive(Default)]
struct Sum {
    files: usize,
    totals: Totals,
    elapsed_s: f64,
    rows: Vec<PathRow>,
    banned: Vec<BannedSource>,
    /// Origins of those.
    liars: Vec<(bool, String, u16)>,
    unverified: usize,
    /// Files that could not be had, with the exit status and the reason.
    missing: Vec<(String, Code, String)>,
}

impl Several<'_> {
    /// # Errors
    /// What ends all of it. What ends one file alone is in the sum.
    fn fetch(&mut self, metalink: Metalink, view: &mut View) -> Outcome {
        self.sum.totals.total_bytes = metalink.files.iter().filter_map(|file| file.size).sum();
        let (mut small, mut others) = (Vec::new(), Vec::new());
        for file in metalink.files {
            match (file.size, hash(&file)) {
                (Some(bytes), Some(hash)) if bytes <= SMALL_BYTES => {
                    let urls = file.mirrors.into_iter().map(|mirror| mirror.url).collect();
                    small.push(Item { name: file.name, bytes, hash, urls });
                }
                _ => others.push(file),
            }
        }
        view.note(&format!(
            "{} files, {}; each is verified before it gets its name, if there is a hash of it",
            self.sum.files,
            bytes(self.sum.totals.total_bytes)
        ));
        let small = self.leave_out(small, |item| Some((&item.name, item.bytes, item.hash)), view)?;
        let others = self.leave_out(others, |file| Some((&file.name, file.size?, hash(file)?)), view)?;
        self.small(&small, view)?;
        for file in others {
            self.one(file, view)?;
        }
        if self.sum.unverified > 0 {
            view.note(&format!("UNVERIFIED: {} files, of which there is no hash", self.sum.unverified));
        }
        Ok(())
    }

    fn place(&self, name: &str) -> Outcome<Place> {
        self.directory.place(name.split('/').map(str::as_bytes))
    }

    fn stopped(&self) -> bool {
        self.stop.1.load(Ordering::Relaxed)
    }

    /// Leaves out what is there already. What is there and is not right is told before anything is fetched.
    fn leave_out<T>(
        &mut self,
        files: Vec<T>,
        what: impl Fn(&T) -> Option<(&str, u64, Hash)>,
        view: &mut View,
    ) -> Outcome<Vec<T>> {
        let clock = Clock::start();
        view.among(Snapshot::default());
        let mut missing = Vec::new();
        for file in files {
            let Some((name, bytes, hash)) = what(&file) else {
                missing.push(file);
                continue;
            };
            let place = self.place(name)?;
            let (proof, root) = hash.proof();
            let id = ContentId { root, length: bytes };
            if is_there(&place, id, proof, self.args.force, &mut |_| !self.stopped())?.is_some() {
                self.sum.totals.done_bytes += bytes;
                self.sum.totals.resumed_bytes += bytes;
            } else {
                missing.push(file);
            }
            let Totals { total_bytes, done_bytes, resumed_bytes } = self.sum.totals;
            if resumed_bytes > 0 {
                let snapshot = Snapshot { total_bytes, done_bytes, resumed_bytes, ..Snapshot::default() };
                view.checking(clock.now(), snapshot);
            }
            if self.stopped() {
                return Err(Failure::new(Code::Interrupted, "interrupted; nothing was fetched"));
            }
        }
        Ok(missing)
    }

    fn small(&mut self, items: &[Item], view: &mut View) -> Outcome {
        if items.is_empty() {
            return Ok(());
        }
        view.among(Snapshot::default());
        let writer = Writer::start(&self.directory, self.args.force)?;
        let timeout = Span::from_secs(self.args.timeout);
        let (origins, via) = (&self.named.origins, &self.args.via);
        let mut small = Small::new(client(self.args)?, items, origins, via, timeout, writer, view)?;
        let result = small.run(&mut self.sum.totals, (&self.stop.0, &self.stop.1), view);
        let ended = small.end();
        for (origin, source, reason) in ended.liars {
            self.sum.liars.push(origin);
            self.sum.banned.push(BannedSource { source, reason });
        }
        self.sum
            .missing
            .extend(ended.lost.into_iter().map(|(n, code, why)| (items[n].name.clone(), code, why)));
        self.sum.add(&ended.last);
        result
    }

    /// Fetches a file as if it were alone.
    fn one(&mut self, mut file: File, view: &mut View) -> Outcome {
        let name = file.name.clone();
        let size = file.size.unwrap_or(0);
        let Totals { total_bytes, done_bytes, resumed_bytes } = self.sum.totals;
        let total_bytes = total_bytes - size;
        let elapsed_s = self.sum.elapsed_s;
        let paths = self.sum.rows.clone();
        view.among(Snapshot { total_bytes, done_bytes, resumed_bytes, elapsed_s, paths, note: None });
        if self.stopped() {
            return Err(Failure::new(Code::Interrupted, "interrupted; what arrived is kept"));
        }
        // Without a hash of it nothing was looked at before. It keeps no other from coming.
        let is_taken = |place: Place| Ok(!self.args.force && place.is_taken()?);
        let (in_the_way, no_place) = match self.place(&name).and_then(is_taken) {
            Ok(in_the_way) => (in_the_way, None),
            Err(failure) => (failure.code == Code::Target, Some(failure)),
        };
        file.mirrors.retain(|mirror| !self.sum.liars.contains(&origin(&mirror.url)));
        let ended = if let Some(failure) = no_place {
            Err(failure)
        } else if !file.mirrors.is_empty() {
            view.about(Some(show(&name)));
            let ended = self.alone(file, view);
            view.about(None);
            ended
        } else if self.sum.liars.is_empty() {
            Err(Failure::new(Code::NotFound, "no mirror is named"))
        } else {
            Err(Failure::new(Code::Corrupt, "all its mirrors are banned"))
        };
        let failure = match ended {
            Ok((found, End { summary, whole, .. })) => {
                self.sum.totals.total_bytes = total_bytes + summary.last.total_bytes.max(size);
                self.sum.totals.done_bytes += summary.last.done_bytes;
                self.sum.totals.resumed_bytes += summary.last.resumed_bytes;
                self.sum.add(&summary.last);
                for banned in summary.banned {
                    let url = found.mirrors.iter().find(|m| super::look::host(&m.url) == banned.source);
                    self.sum.liars.extend(url.map(|mirror| origin(&mirror.url)));
                    self.sum.banned.push(banned);
                }
                let unverified = matches!(summary.verified, Verified::Nothing | Verified::Unchanged);
                self.sum.unverified += usize::from(unverified && whole.is_ok());
                whole.err()
            }
            Err(failure) => Some(failure),
        };
        match failure {
            None => Ok(()),
            Some(failure) if is_of_the_file(failure.code) || (in_the_way && failure.code == Code::Target) => {
                view.note(&format!("{}: {}", show(&name), failure.message));
                self.sum.missing.push((name, failure.code, failure.message));
                Ok(())
            }
            Some(failure) => Err(Failure::new(failure.code, format!("{}: {}", show(&name), failure.message))),
        }
    }

    fn alone(&self, file: File, view: &mut View) -> Outcome<(Found, End)> {
        let name = file.name.clone();
        let asked = Asked {
            metalink: Some((Metalink { files: vec![file] }, self.base.clone())),
            origins: self.named.origins.clone(),
            ..Asked::default()
        };
        let mut client = client(self.args)?;
        let timeout = Span::from_secs(self.args.timeout);
        let found = match look(asked, Said::default(), &self.args.via, timeout, &mut client, view)? {
            Looked::One(found) => *found,
            Looked::Several(..) => return Err(Failure::other("a Metalink within a Metalink")),
        };
        let mut place = || self.place(&name);
        let end = found_one(self.args, &found, &[], client, &mut place, view)?;
        Ok((found, end))
    }
}

/// Whether other files may come all the same.
const fn is_of_the_file(code: Code) -> bool {
    matches!(code, Code::NotFound | Code::Unreachable | Code::Corrupt | Code::Refused)
}

impl Sum {
    /// Adds what came over which way.
    fn add(&mut self, last: &Snapshot) {
        self.elapsed_s += last.elapsed_s;
        add(&mut self.rows, &last.paths);
    }

    /// How it ends if nothing ended it.
    fn outcome(&self) -> Outcome {
        if self.missing.is_empty() {
            return Ok(());
        }
        let codes: Vec<Code> = self.missing.iter().map(|(_, code, _)| *code).collect();
        let code = worst(codes.iter().copied());
        // The reason for the exit status comes first.
        let mut reasons: Vec<(bool, &str)> = Vec::new();
        for (_, each, why) in &self.missing {
            if !reasons.iter().any(|(_, known)| known == why) {
                reasons.push((*each != code, why));
            }
        }
        reasons.sort_by_key(|(is_other, _)| *is_other);
        let told = |of: &str| {
            let names = self.missing.iter().filter(|(.., why)| why == of).map(|(name, ..)| show(name));
            let mut names: Vec<String> = names.take(TOLD_MAX + 1).collect();
            if names.len() > TOLD_MAX {
                names[TOLD_MAX] = "…".into();
            }
            format!("({}): {of}", names.join(", "))
        };
        let mut why: Vec<String> = reasons.iter().take(TOLD_MAX).map(|(_, why)| told(why)).collect();
        if reasons.len() > TOLD_MAX {
            why.push("…".into());
        }
        let (lost, files, why) = (self.missing.len(), self.files, why.join("; "));
        let hint = if codes.iter().all(|code| *code == Code::NotFound) {
            "; perhaps the URLs in the Metalink are wrong"
        } else {
            ""
        };
        let rest =
            if lost < files { "the others are here".to_owned() } else { format!("none is here{hint}") };
        let message = format!("{lost} of {files} files could not be had {why}; {rest}");
        Err(Failure::new(code, message))
    }

    fn summary(&mut self, target: String, content: String, failure: Option<&Failure>) -> Summary {
        share(&mut self.rows);
        let seconds = self.elapsed_s.max(1e-9);
        for row in &mut self.rows {
            row.rate_bytes = (row.bytes as f64 / seconds) as u64;
        }
        let Totals { total_bytes, done_bytes, resumed_bytes } = self.totals;
        Summary {
            last: Snapshot {
                total_bytes,
                done_bytes,
                resumed_bytes,
                elapsed_s: self.elapsed_s,
                paths: std::mem::take(&mut self.rows),
                note: None,
            },
            target,
            content: Some(content),
            banned: std::mem::take(&mut self.banned),
            complete: failure.is_none(),
            verified: if self.unverified > 0 { Verified::Nothing } else { Verified::Files },
            unverified_since: None,
            exit: failure.map_or(0, |failure| failure.code as u8),
            error: failure.map(|failure| failure.message.clone()),
        }
    }
}
