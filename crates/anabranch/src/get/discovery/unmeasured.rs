//! A file of which no server says how long it is.

use mmtp::ContentId;

use super::Discovery;
use crate::Result;
use crate::get::event_loop::EventLoop;
use crate::get::one_answer::{self, OneAnswer};
use crate::get::request::Request;

impl Discovery<'_> {
    /// The first URL that has the file, if nobody says how long that is: its place.
    pub(super) fn unmeasured(&self) -> Option<usize> {
        let is_known = self.said.id.is_some()
            || self.metalink.as_ref().is_some_and(|file| file.size.is_some())
            || self.heads.iter().flatten().any(|head| head.length.is_some())
            || self.told_length().is_some();
        let there = |named: bool| {
            let mut all = self.heads.iter().zip(&self.named);
            all.position(|(head, is)| head.is_some() && *is == named)
        };
        there(true).or_else(|| there(false)).filter(|_| !is_known)
    }

    /// Takes all of the file in one answer, for nobody says how long it is. A file that is there already and
    /// must not be replaced tells it: then it is that one, or nothing is fetched.
    pub(super) fn measure(
        &mut self,
        place: usize,
        request: &Request,
        events: &mut EventLoop<'_, '_>,
    ) -> Result<Option<OneAnswer>> {
        self.notices.drain(..).for_each(|notice| events.observer.notice(&notice));
        let (url, there) = (&self.urls[place], self.length_there(request)?);
        let (length, came) = match there.filter(|_| !request.force) {
            Some(length) => (length, None),
            None => {
                let via = &self.vias[self.via];
                let came = one_answer::take(url, self.is_named(url), via, &request.output, events)?;
                (came.length, Some(came))
            }
        };
        if let Some(head) = &mut self.heads[place] {
            (head.length, head.ranges) = (Some(length), false);
        }
        self.is_here = true;
        Ok(came)
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
