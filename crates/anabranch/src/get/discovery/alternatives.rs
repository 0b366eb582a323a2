//! The files that may be the one that is wanted. Mostly that is one; several where servers say different
//! lengths, or none, and a hash of the user's or a signature tells which is right.
//!
//! A server that does not say how long its file is may have any of them, or another one. It is not asked for
//! parts of a file of somebody else's length: its file is taken in one answer, if those of a known length
//! are not the one.

use std::collections::VecDeque;

use mmtp::ContentId;

use super::Discovery;
use super::resolution::{Known, LENGTHS_MAX};
use crate::get::discovered_file::DiscoveredFile;
use crate::get::event_loop::EventLoop;
use crate::get::one_answer;
use crate::get::origin::host;
use crate::get::request::Request;
use crate::openpgp::Signed;
use crate::target::{DestPath, what_is_there};
use crate::{Error, Result, VouchedBy};

/// See the [module](self).
pub(in crate::get) struct Alternatives<'a> {
    pub(super) discovery: Discovery<'a>,
    /// What the user knows of the content.
    pub(super) known: Known,
    /// What it has to be signed by besides.
    pub(super) signed: Option<Signed>,
    /// Those of which the length is known.
    pub(super) measured: VecDeque<DiscoveredFile>,
    /// The URLs whose servers do not say it, by their places.
    pub(super) unmeasured: VecDeque<usize>,
}

impl Alternatives<'_> {
    /// The first one, which is taken in one answer if there is no other way to know it.
    ///
    /// # Errors
    /// What that fails with.
    pub(in crate::get) fn first(
        &mut self,
        request: &Request,
        events: &mut EventLoop<'_, '_>,
    ) -> Result<&DiscoveredFile> {
        if self.measured.is_empty() {
            let next = self.next(request, events);
            self.measured.extend(next.transpose()?);
        }
        self.measured.front().ok_or_else(|| Error::not_found("no mirror has the file"))
    }

    /// Lets come first what an earlier run has begun, or finished.
    ///
    /// # Errors
    /// [`Error::Target`] if the directory cannot be looked at.
    pub(in crate::get) fn sort_by_what_is_there(&mut self, place: &DestPath) -> Result<()> {
        let mut all = Vec::new();
        for found in self.measured.drain(..) {
            all.push((what_is_there(place, found.id.length)?, found));
        }
        all.sort_by_key(|(there, _)| *there);
        self.measured.extend(all.into_iter().map(|(_, found)| found));
        Ok(())
    }

    /// What was taken for the user's word is somebody else's.
    pub(in crate::get) fn are_vouched_for_by(&mut self, by: &VouchedBy) {
        let all = self.measured.iter_mut().map(|found| &mut found.vouched_by);
        for vouched_by in all.chain([&mut self.known.by]) {
            if *vouched_by == Some(VouchedBy::User) {
                *vouched_by = Some(by.clone());
            }
        }
    }

    pub(in crate::get) fn len(&self) -> usize {
        self.measured.len() + self.unmeasured.len()
    }

    /// The next one in words; `None` if that was the last.
    pub(in crate::get) fn next_text(&self) -> Option<String> {
        let of_length = self.measured.front().map(|found| {
            let hosts: Vec<String> = found.mirrors.iter().map(|mirror| host(&mirror.url)).collect();
            format!("that of {} bytes, from {}", found.id.length, hosts.join(", "))
        });
        of_length.or_else(|| {
            let place = *self.unmeasured.front()?;
            Some(format!("that of {}", host(&self.discovery.urls[place])))
        })
    }

    /// Takes the next one.
    pub(in crate::get) fn next(
        &mut self,
        request: &Request,
        events: &mut EventLoop<'_, '_>,
    ) -> Option<Result<DiscoveredFile>> {
        match self.measured.pop_front() {
            Some(found) => Some(Ok(found)),
            None => self.unmeasured.pop_front().map(|place| self.measure(place, request, events)),
        }
    }

    /// Takes the file of a server in one answer, for nobody knows how long it is. A file that is there already
    /// and must not be replaced tells it: then it is that one, or nothing is fetched.
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
        let found = discovery.found_of(length, self.known.clone());
        discovery.tell_notices(events.observer);
        let mut found = found?;
        if came.is_some() {
            // Nobody else has any part in it.
            found.mirrors.retain(|mirror| mirror.url.as_str() == url.as_str());
        }
        (found.came, found.signed) = (came, self.signed.clone());
        Ok(found)
    }
}

impl Discovery<'_> {
    /// The places of URLs of which only an answer tells how long the file is: all that may be tried after
    /// others, those that the user named first; else one, if nobody says any length.
    pub(super) fn unmeasured(&self) -> VecDeque<usize> {
        let all = self.heads.iter().zip(&self.named).enumerate();
        let without = all.filter(|(_, (head, _))| head.as_ref().is_some_and(|head| head.length.is_none()));
        let (named, others): (Vec<_>, Vec<_>) = without.partition(|(_, (_, named))| **named);
        let is_length_known =
            self.heads.iter().flatten().any(|head| head.length.is_some()) || self.told_length().is_some();
        let most = match self.tries_lengths {
            _ if self.is_read_in_order => 0,
            true => LENGTHS_MAX,
            false => usize::from(!is_length_known),
        };
        named.into_iter().chain(others).map(|(place, _)| place).take(most).collect()
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
