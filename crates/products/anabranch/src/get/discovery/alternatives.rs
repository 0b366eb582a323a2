//! The files that may be the one that is wanted. Mostly that is one; several where servers say different
//! lengths, or none, and a hash of the user's or a signature tells which is right.
//!
//! A server that does not say how long its file is may have any of them, or another one. It is not asked for
//! parts of a file of somebody else's length: its file is taken in one answer, if those of a known length
//! are not the one. One that is silent or slow gives way to others. What is slow comes again after them, and
//! has longer then; not before a second round, which begins with all that there are.

use std::collections::VecDeque;

use anabranch_mirror::metalink::Metalink;
use anabranch_mirror::url::Url;
use anabranch_mirror::verified_pool::Check;
use anabranch_mmtp::ContentId;

use super::resolution::Resolved;
use super::{Discovery, Expected, Round, ask_all};
use crate::error::ErrorKind;
use crate::event::Observer;
use crate::get::discovered_file::DiscoveredFile;
use crate::get::event_loop::EventLoop;
use crate::get::locators::Locators;
use crate::get::one_answer;
use crate::get::origin::host;
use crate::get::request::Request;
use crate::target::{DestPath, RootCheck, what_is_there};
use crate::{Error, Result, VouchedBy};

/// What discovery found.
pub(in crate::get) enum Discovered<'a> {
    /// One file, or several of which one is it.
    File(Box<Alternatives<'a>>),
    /// A Metalink of several files, and where it is: named, or that of a directory which alone was named.
    /// Then with the server that offers it.
    Directory(Metalink, Url, Option<String>),
}

/// Asks all servers what there is of what was asked for. `absent` become the servers that the user named, or
/// a Metalink of the user's, and that cannot be reached, or cannot answer now, if others have answered.
///
/// # Errors
/// [`Error::Usage`] if that contradicts itself, [`Error::NotFound`], [`Error::Unreachable`] or
/// [`Error::Refused`] if no server has it, [`Error::Interrupted`] if the caller stops.
pub(in crate::get) fn discover<'a>(
    asked: Locators,
    said: Expected,
    round: Round,
    absent: &mut Vec<String>,
    request: &'a Request,
    events: &mut EventLoop<'_, '_>,
) -> Result<Discovered<'a>> {
    let mut discovery = ask_all(asked, said, round, request, events)?;
    if discovery.has_answer() {
        // Else all were asked as long as there was any use in it.
        discovery.absent.clone_into(absent);
    }
    if let Some((metalink, url, by)) = discovery.several {
        return Ok(Discovered::Directory(metalink, url, by));
    }
    discovery.leave_out_listings();
    let resolved = discovery.resolve();
    if resolved.is_ok() {
        discovery.notices.append(&mut discovery.unsaid);
    }
    discovery.tell_notices(events.observer);
    let resolved = resolved?;
    discovery.warnings.drain(..).for_each(|warning| events.observer.warning(&warning));
    let gives_way = round == Round::First && !absent.is_empty();
    Ok(Discovered::File(Box::new(Alternatives { discovery, resolved, slow: VecDeque::new(), gives_way })))
}

/// See the [module](self).
pub(in crate::get) struct Alternatives<'a> {
    discovery: Discovery<'a>,
    resolved: Resolved,
    /// Those that were slow: they come after all others.
    slow: VecDeque<Candidate>,
    /// If all are silent or slow, there is another round, with servers that could not be asked.
    gives_way: bool,
}

/// A file that may be the one.
enum Candidate {
    Measured(Box<DiscoveredFile>),
    /// The place of a server that was to send it in one answer, and how often that has been slow.
    Unmeasured(usize, u32),
}

/// One that was taken.
pub(in crate::get) struct Next {
    /// The file, or why it did not come.
    pub(in crate::get) found: Result<DiscoveredFile>,
    /// It has not come, and comes again.
    pub(in crate::get) comes_again: bool,
}

impl Alternatives<'_> {
    /// The first one that there is, which is taken in one answer if there is no other way to know it.
    ///
    /// # Errors
    /// What the last of those fails with.
    pub(in crate::get) fn first(
        &mut self,
        request: &Request,
        events: &mut EventLoop<'_, '_>,
    ) -> Result<&DiscoveredFile> {
        while self.resolved.measured.is_empty()
            && let Some(next) = self.next(request, events)
        {
            match next.found {
                Ok(found) => {
                    self.resolved.measured.push_back(found);
                    if !self.discovery.tries_lengths {
                        // Nothing tells that this is not it.
                        self.resolved.unmeasured.clear();
                    }
                }
                Err(error) => match self.next_text().filter(|_| !ends_all(error.kind())) {
                    Some(next) => events.observer.notice(&format!("{error}: trying {next}")),
                    None => return Err(error),
                },
            }
        }
        self.resolved.measured.front().ok_or_else(|| Error::not_found("no mirror has the file"))
    }

    /// Lets come first what an earlier run has begun, or finished.
    ///
    /// # Errors
    /// [`Error::Target`] if the directory cannot be looked at.
    pub(in crate::get) fn sort_by_what_is_there(&mut self, place: &DestPath) -> Result<()> {
        let mut all = Vec::new();
        for found in self.resolved.measured.drain(..) {
            all.push((what_is_there(place, found.id.length)?, found));
        }
        all.sort_by_key(|(there, _)| *there);
        self.resolved.measured.extend(all.into_iter().map(|(_, found)| found));
        Ok(())
    }

    /// What was taken for the user's word is somebody else's.
    pub(in crate::get) fn are_vouched_for_by(&mut self, by: &VouchedBy) {
        let all = self.resolved.measured.iter_mut().map(|found| &mut found.vouched_by);
        for vouched_by in all.chain([&mut self.resolved.known.by]) {
            if *vouched_by == Some(VouchedBy::User) {
                *vouched_by = Some(by.clone());
            }
        }
    }

    pub(in crate::get) fn len(&self) -> usize {
        self.resolved.measured.len() + self.resolved.unmeasured.len() + self.slow.len()
    }

    /// How often one was slow that is next, if it is to give way to others; `is_last`: there are none but
    /// those of another round.
    pub(in crate::get) fn turn(&self, found: &DiscoveredFile, is_last: bool) -> Option<u32> {
        // Without a hash it would not be sure that another round goes on with what came.
        let gives_way = self.gives_way && !found.is_vouched_for_by_nobody();
        (!is_last || gives_way).then_some(found.turn)
    }

    /// What was slow comes again after all others; if there is another round, in that. Whether it is in this.
    pub(in crate::get) fn put_back(&mut self, mut found: DiscoveredFile) -> bool {
        found.turn += 1;
        self.comes_again(Candidate::Measured(Box::new(found)))
    }

    fn comes_again(&mut self, slow: Candidate) -> bool {
        if !self.gives_way {
            self.slow.push_back(slow);
        }
        !self.gives_way
    }

    /// The next one in words; `None` if that was the last.
    pub(in crate::get) fn next_text(&self) -> Option<String> {
        let of_length = |found: &DiscoveredFile| {
            let hosts: Vec<String> = found.mirrors.iter().map(|mirror| host(&mirror.url)).collect();
            format!("that of {} bytes, from {}", found.id.length, hosts.join(", "))
        };
        let of_place = |place: &usize| format!("that of {}", host(&self.discovery.urls[*place]));
        let Resolved { measured, unmeasured, .. } = &self.resolved;
        let first = measured.front().map(of_length).or_else(|| unmeasured.front().map(of_place));
        first.or_else(|| {
            Some(match self.slow.front()? {
                Candidate::Measured(found) => of_length(found),
                Candidate::Unmeasured(place, _) => of_place(place),
            })
        })
    }

    /// Takes the next one.
    pub(in crate::get) fn next(&mut self, request: &Request, events: &mut EventLoop<'_, '_>) -> Option<Next> {
        let is_here = |found| Some(Next { found: Ok(found), comes_again: false });
        if let Some(found) = self.resolved.measured.pop_front() {
            return is_here(found);
        }
        let unmeasured = self.resolved.unmeasured.pop_front().map(|place| Candidate::Unmeasured(place, 0));
        match unmeasured.or_else(|| self.slow.pop_front())? {
            Candidate::Measured(found) => is_here(*found),
            Candidate::Unmeasured(place, turn) => {
                let has_others = self.len() > 0 || self.gives_way;
                let take = |events: &mut EventLoop<'_, '_>| self.measure(place, request, events);
                let (found, is_slow) = events.beside_others(has_others.then_some(turn), take);
                let comes_again = is_slow && self.comes_again(Candidate::Unmeasured(place, turn + 1));
                Some(Next { found, comes_again })
            }
        }
    }

    /// Takes the file of a server in one answer, for nobody knows how long it is. A file that is there
    /// already and must not be replaced tells it: then it is that one, or nothing is fetched.
    fn measure(
        &mut self,
        place: usize,
        request: &Request,
        events: &mut EventLoop<'_, '_>,
    ) -> Result<DiscoveredFile> {
        let discovery = &mut self.discovery;
        let url = discovery.urls[place].clone();
        let there = discovery.length_there(request)?;
        let (length, came) = match there.filter(|_| !request.force) {
            Some(length) => (length, None),
            None => {
                let (is_named, via) = (discovery.is_named(&url), &discovery.vias[discovery.via]);
                let came = one_answer::take(&url, is_named, via, &request.output, events)?;
                (came.length, Some(came))
            }
        };
        if let Some(head) = &mut discovery.heads[place] {
            (head.length, head.ranges) = (Some(length), false);
        }
        discovery.is_here = true;
        let found = discovery.found_of(length, self.resolved.known.clone());
        discovery.tell_notices(events.observer);
        let mut found = found?;
        if came.is_some() {
            // Nobody else has any part in it, and its blocks were not looked at as they came.
            found.mirrors.retain(|mirror| mirror.url.as_str() == url.as_str());
            if matches!(found.check, Check::Leaves(_)) {
                (found.check, found.proof.root) = (Check::Nothing, RootCheck::Whole);
            }
        }
        (found.came, found.signed) = (came, self.resolved.signed.clone());
        Ok(found)
    }
}

/// Whether nothing else is tried after such an error.
pub(in crate::get) const fn ends_all(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Usage | ErrorKind::Interrupted | ErrorKind::System)
}

impl Discovery<'_> {
    fn tell_notices(&mut self, observer: &mut Observer<'_>) {
        self.notices.drain(..).for_each(|notice| observer.notice(&notice));
    }

    /// The length of what is where the file is to go.
    fn length_there(&self, request: &Request) -> Result<Option<u64>> {
        let names = self.offered_names(self.metalink.as_ref(), &[]);
        let needs_name = request.output.needs_name(false);
        if needs_name && names.chosen().is_none() {
            // It will be called by what it is.
            return Ok(None);
        }
        let path = request.output.file_path(names.chosen(), &ContentId { root: [0; 32], length: 0 })?;
        Ok(std::fs::symlink_metadata(path).ok().map(|there| there.len()))
    }
}
